//! `weft pipe`: stages in this process, joined by reference, and ordinary commands before and after
//! them.

use super::networks::{explained, said, write_all};
use crate::arguments::Pipe;
use crate::failure::usage;
use crate::input::Inputs;
use anyhow::{Context, Result, bail};
use std::io::{self, stdout};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitCode, ExitStatus, Stdio};
use weft_transform::{Network, Reading, Run, Source, Sources, catalog};

/// Runs a pipeline.
pub fn run(arguments: &Pipe) -> Result<ExitCode> {
    let elements = split(&arguments.text, |byte| byte == b'|');
    if let Some(empty) = elements.iter().position(|element| element.is_empty()) {
        return usage(format!("nothing stands at place {} of the pipeline", empty + 1));
    }
    // An element that names files to read is no stage, and needs none after it.
    let files = named_files(elements[0]);
    let is_stage = |at: usize| at == 0 && files.is_some() || is_stage(elements[at]);
    let Some(first) = (0..elements.len()).find(|at| is_stage(*at)) else {
        return usage("none of that is a stage of Weft ('weft stages'): a shell joins ordinary commands".into());
    };
    // Elements after a command are the shell's, whatever their names.
    let end = (first..elements.len()).find(|at| !is_stage(*at)).unwrap_or(elements.len());
    let (before, after) = (&elements[..first], &elements[end..]);
    let stages = &elements[first + usize::from(files.is_some())..end];
    let text = if stages.is_empty() { "identity".into() } else { stages.join(" | ") };
    let network = match Network::parse(&text) {
        Ok(network) => network,
        Err(error) => return usage(said(&text, &error)),
    };
    if network.files() > 0 {
        return usage("stages that read numbered files are for 'weft run'".into());
    }
    let code = join(&network, files.unwrap_or_default(), &before.join(" | "), &after.join(" | "));
    if arguments.copies {
        // Ended threads have counted nearly all that they copied.
        errln!("{} bytes were copied from memory to memory", weft_block::bytes_copied());
    }
    code
}

/// Runs `network` between two pipelines of the shell; either may be empty.
fn join(network: &Network, files: Vec<String>, before: &str, after: &str) -> Result<ExitCode> {
    let mut giver = (!before.is_empty()).then(|| shell(before).stdout(Stdio::piped()).spawn()).transpose()?;
    let mut taker = (!after.is_empty()).then(|| shell(after).stdin(Stdio::piped()).spawn()).transpose()?;
    let given = giver.as_mut().and_then(|giver| giver.stdout.take());
    let taken = taker.as_mut().and_then(|taker| taker.stdin.take());
    let input: Box<dyn Source> = match given {
        Some(given) => Box::new(Reading(given)),
        None => Box::new(Inputs::of(files.into_iter().map(PathBuf::from))),
    };
    let ran = pump(network, Input(Some(input)), taken);
    let (giver, taker) = (ended(giver)?, ended(taker)?);
    ran?;
    // A command ends so when its reader has seen enough, or the shell reports that it did.
    let is_enough =
        |status: ExitStatus| status.signal().or(status.code().map(|code| code - 128)) == Some(libc::SIGPIPE);
    let is_well = |status: ExitStatus| status.success() || is_enough(status);
    for (command, status) in [(before, giver), (after, taker)] {
        if let Some(status) = status.filter(|status| !is_well(*status)) {
            bail!("the command '{command}' ended with {status}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the output of `network` to `to`, or to the standard output, until the reader is gone.
fn pump(network: &Network, mut input: Input, to: Option<ChildStdin>) -> Result<()> {
    let stdout = stdout();
    let to: BorrowedFd<'_> = to.as_ref().map_or(stdout.as_fd(), |to| to.as_fd());
    for rope in Run::start(network, &mut input).map_err(explained)? {
        match write_all(&rope.map_err(explained)?, to) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            written => written.context("cannot write what the stages give")?,
        }
    }
    Ok(())
}

fn shell(command: &str) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", command]);
    shell
}

fn ended(child: Option<Child>) -> io::Result<Option<ExitStatus>> {
    child.map(|mut child| child.wait()).transpose()
}

/// Input of a network: one source, once.
struct Input(Option<Box<dyn Source>>);

impl Sources for Input {
    fn input(&mut self) -> io::Result<Box<dyn Source>> {
        self.0.take().ok_or_else(|| io::Error::other("it was read already"))
    }

    fn file(&mut self, _: usize) -> io::Result<Box<dyn Source>> {
        Err(io::Error::other("there are no numbered files"))
    }
}

/// True if an element begins as a stage does.
fn is_stage(element: &str) -> bool {
    let name = element.split(|byte: char| byte.is_whitespace() || byte == '(').next().unwrap_or_default();
    const JOINS: [&str; 5] = ["tee", "concat", "merge", "zip", "interleave"];
    catalog::STAGES.iter().any(|stage| stage.name == name) || JOINS.contains(&name) && element.contains('(')
}

/// Returns the files of `cat FILE...`, if it is no more than that.
fn named_files(element: &str) -> Option<Vec<String>> {
    let mut words = split(element, |byte| byte.is_ascii_whitespace()).into_iter().filter(|word| !word.is_empty());
    let is_cat = words.next() == Some("cat") && words.clone().all(|word| !word.starts_with('-'));
    is_cat.then(|| words.map(unquoted).collect())
}

/// Splits `text` at bytes that `ends` accepts, except in quotes or parentheses.
fn split(text: &str, ends: impl Fn(u8) -> bool) -> Vec<&str> {
    let (mut parts, mut begin, mut depth, mut quote, mut is_escaped) = (Vec::new(), 0, 0usize, None, false);
    for (at, byte) in text.bytes().enumerate() {
        match (byte, quote) {
            _ if is_escaped => is_escaped = false,
            (b'\\', None | Some(b'"')) => is_escaped = true,
            (byte, Some(open)) => quote = (byte != open).then_some(open),
            (b'\'' | b'"', None) => quote = Some(byte),
            (b'(', None) => depth += 1,
            (b')', None) => depth = depth.saturating_sub(1),
            (byte, None) if depth == 0 && ends(byte) => {
                parts.push(text[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[begin..].trim());
    parts
}

/// Returns a word without its quotes.
fn unquoted(word: &str) -> String {
    let (mut text, mut quote, mut is_escaped) = (String::new(), None, false);
    for letter in word.chars() {
        match (letter, quote) {
            (letter, _) if is_escaped => {
                text.push(letter);
                is_escaped = false;
            }
            ('\\', None | Some('"')) => is_escaped = true,
            (letter, Some(open)) if letter == open => quote = None,
            ('\'' | '"', None) => quote = Some(letter),
            (letter, _) => text.push(letter),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_quotes_or_parentheses_joins_nothing() {
        let parts = split(r#"cat 'a|b' "c\"|d" | tee(upper | rev, lower) | grep \|x"#, |byte| byte == b'|');
        assert_eq!(parts, [r#"cat 'a|b' "c\"|d""#, "tee(upper | rev, lower)", r"grep \|x"]);
        assert_eq!(named_files(parts[0]), Some(vec!["a|b".into(), "c\"|d".into()]));
        assert_eq!((named_files("cat"), named_files("category x")), (Some(Vec::new()), None));
        assert_eq!(named_files("cat -n x"), None);
        assert!(is_stage("tee(upper, lower)") && !is_stage("tee file") && is_stage("wc -l") && !is_stage("wcx"));
    }
}
