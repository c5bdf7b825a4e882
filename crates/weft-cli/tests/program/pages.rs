//! Help, completions and manual pages, made from one definition.

use crate::place::Place;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

const COMMANDS: &[&str] = &[
    "init",
    "mount",
    "umount",
    "info",
    "check",
    "convert",
    "import",
    "export",
    "stats",
    "status",
    "sync",
    "completions",
    "man",
];

#[test]
fn every_command_is_in_the_help_and_has_help_and_a_manual_page() {
    let place = Place::new();
    place.directory("pages");
    place.weft(&["man", "--dir", "pages"]).well();
    let help = place.weft(&["--help"]).well();
    for command in COMMANDS {
        assert!(help.lines().any(|line| line.trim_start().starts_with(command)), "{command}");
        assert!(place.weft(&[command, "--help"]).well().contains("Usage: weft"));
        assert!(place.path(format!("pages/man1/weft-{command}.1")).is_file(), "{command}");
    }
    assert!(place.weft(&["man"]).well().starts_with(".ie"));
    for page in std::fs::read_dir(place.path("pages/man1")).unwrap() {
        let page = std::fs::read_to_string(page.unwrap().path()).unwrap();
        assert!(!page.contains("EXTRA") && !page.contains("Examples:"), "{page}");
    }
    let page = std::fs::read_to_string(place.path("pages/man1/weft-umount.1")).unwrap();
    for words in [
        ".SH SYNOPSIS\nweft umount [OPTIONS] <DIRECTORY>\n",
        ".SH \"EXIT STATUS\"\nExit code 0: ",
        "fBweft\\-mount\\fR(1)",
    ] {
        assert!(page.contains(words), "no {words} in {page}");
    }
    assert!(std::fs::read_to_string(place.path("pages/man1/weft-init.1")).unwrap().contains(".SH EXAMPLES\n"));
}

#[test]
fn pages_of_daemons_tell_variables_and_files_and_others_have_pages_too() {
    let place = Place::new();
    place.directory("pages");
    place.weft(&["man", "--dir", "pages"]).well();
    let page = |name: &str| std::fs::read_to_string(place.path(format!("pages/{name}"))).unwrap();
    let helper = page("man8/mount.weft.8");
    for words in
        ["\\fBcommit\\-interval\\fR=\\fISECONDS\\fR\n", ".SH ENVIRONMENT\n", "\\fBWEFT_LOG\\fR\n", ".SH FILES\n"]
    {
        assert!(helper.contains(words), "no {words} in {helper}");
    }
    assert!(page("man1/weft-serve.1").contains(".SH ENVIRONMENT\n"));
    assert!(page("man7/weft-networks.7").contains(".SH \"GRAMMAR\"\n"));
}

#[test]
fn the_help_of_each_command_has_exit_codes_and_examples() {
    let place = Place::new();
    let help = place.weft(&["--help"]).well();
    let (list, _) = help.split_once("\nOptions:\n").unwrap();
    let names = list.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names: Vec<_> =
        names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").collect();
    assert!(names.len() > 30, "{names:?}");
    for name in names {
        let help = place.weft(&[name, "--help"]).well().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(help.contains("Exit code 0: "), "{name}: {help}");
        assert!(help.contains("Examples: weft "), "{name}: {help}");
    }
}

#[test]
fn the_example_of_a_pipeline_runs_as_it_stands() {
    let place = Place::new();
    let help = place.weft(&["pipe", "--help"]).well();
    let (_, quoted) = help.split_once(" such as '").unwrap();
    let (pipeline, _) = quoted.split_once('\'').unwrap();
    assert_eq!(place.weft(&["pipe", pipeline]).well().split_whitespace().count(), 3, "{pipeline}");
}

#[test]
fn completions_know_the_commands() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = place.weft(&["completions", shell]).well();
        assert!(COMMANDS.iter().all(|command| script.contains(command)), "{shell}");
    }
}

#[test]
fn a_reader_that_leaves_early_ends_what_only_prints() {
    let place = Place::new();
    place.weft(&["init", "v"]).well();
    for arguments in [&["completions", "bash"][..], &["man"], &["info", "v"], &["check", "v"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
        let output = command.args(arguments).current_dir(place.path("")).stdout(writer).output().unwrap();
        assert_eq!(output.status.signal(), Some(libc::SIGPIPE), "{arguments:?}");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "{arguments:?}");
    }
}
