//! The commands in groups, as the help of the program lists them.

use clap::Command;
use std::fmt::Write;

/// Groups of commands that belong together, and each command once.
const GROUPS: &[(&str, &[&str])] = &[
    ("Use volumes", &["init", "mount", "umount", "serve", "mcp", "stop", "sync"]),
    ("Look at them", &["status", "info", "stats", "log", "du", "ls", "cat"]),
    ("Copy", &["cp", "put", "get", "import", "export", "send", "receive"]),
    ("The past", &["history", "snapshot", "restore", "undelete", "gc"]),
    ("Change volumes", &["set", "config", "convert", "compact", "defragment", "upgrade"]),
    ("Damage", &["check", "scrub"]),
    ("Compare and prove", &["digest", "diff", "prove", "verify-proof", "keygen", "sign", "verify"]),
    ("Links and networks", &["link", "net", "stages", "run", "pipe"]),
    ("Programs that use memory of the daemon", &["grep", "wc", "sum", "permute"]),
    ("Help", &["help", "man", "completions"]),
];

/// Columns of a line.
const WIDTH: usize = 100;

/// Has the help of `program` list its commands in groups.
pub fn grouped(mut program: Command) -> Command {
    program.build();
    let column = GROUPS.iter().flat_map(|(_, names)| *names).map(|name| name.len()).max().unwrap_or(0) + 4;
    let mut text = String::new();
    for (group, names) in GROUPS {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{group}:");
        for command in names.iter().filter_map(|name| program.find_subcommand(name)) {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {:width$}{}", command.get_name(), wrapped(&about, column), width = column - 2);
        }
        text.push('\n');
    }
    let template = format!("{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{text}Options:\n{{options}}");
    program.help_template(template)
}

/// `text` in lines that begin at `column`, the first one without that.
fn wrapped(text: &str, column: usize) -> String {
    let (mut lines, mut at) = (String::new(), column);
    for word in text.split_whitespace() {
        if at > column && at + 1 + word.len() > WIDTH {
            let _ = write!(lines, "\n{:column$}", "");
            at = column;
        } else if at > column {
            lines.push(' ');
            at += 1;
        }
        lines.push_str(word);
        at += word.len();
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Arguments;
    use clap::CommandFactory;

    #[test]
    fn each_command_is_in_one_group() {
        let mut program = Arguments::command();
        program.build();
        let mut all = program.get_subcommands().map(|command| command.get_name().to_owned()).collect::<Vec<_>>();
        let mut grouped =
            GROUPS.iter().flat_map(|(_, names)| *names).map(|name| (*name).to_owned()).collect::<Vec<_>>();
        all.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, all);
    }

    #[test]
    fn lines_are_wrapped_between_words() {
        let text = "word ".repeat(40);
        let lines = wrapped(&text, 20);
        assert!(lines.lines().all(|line| line.len() <= WIDTH) && lines.lines().count() == 3, "{lines}");
    }
}
