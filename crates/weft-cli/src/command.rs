//! The commands, one file each.

mod check;
mod convert;
mod diff;
mod digest;
mod export;
mod import;
mod info;
mod init;
mod link;
mod log;
mod mount;
pub mod mounted;
mod net;
mod pages;
mod pipe;
mod programs;
mod prove;
mod run;
mod scrub;
mod serve;
mod sign;
mod stages;
mod stats;
mod status;
mod sync;
pub mod transfer;
mod umount;
mod upgrade;

use crate::advice;
use crate::arguments::{Blocks, Command, Net};
use anyhow::Result;
use std::fmt;
use std::process::ExitCode;
use weft_store::{BlockHome, Finding, Location, Waiting};

/// Runs a command.
pub fn run(command: Command) -> Result<ExitCode> {
    advice::is_about(&command);
    match command {
        Command::Init(arguments) => init::run(&arguments),
        Command::Mount(arguments) => mount::run(arguments),
        Command::Serve(arguments) => serve::run(arguments),
        Command::Umount(arguments) => umount::run(&arguments),
        Command::Info(arguments) => info::run(&arguments),
        Command::Check(arguments) => Ok(looked(check::run(&arguments))),
        Command::Convert(arguments) => Ok(convert::run(&arguments)),
        Command::Upgrade(arguments) => upgrade::run(&arguments),
        Command::Import(arguments) => Ok(import::run(&arguments)),
        Command::Export(arguments) => Ok(export::run(&arguments)),
        Command::Digest(arguments) => Ok(looked(digest::run(&arguments))),
        Command::Diff(arguments) => diff::run(&arguments),
        Command::Prove(arguments) => Ok(looked(prove::prove(&arguments))),
        Command::VerifyProof(arguments) => Ok(looked(prove::verify(&arguments))),
        Command::Log(arguments) => log::run(&arguments),
        Command::Keygen(arguments) => sign::keygen(&arguments),
        Command::Sign(arguments) => Ok(looked(sign::sign(&arguments))),
        Command::Verify(arguments) => Ok(looked(sign::verify(&arguments))),
        Command::Scrub(arguments) => Ok(looked(scrub::run(&arguments))),
        Command::Stats(arguments) => stats::run(&arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Sync(arguments) => sync::run(&arguments),
        Command::Link(arguments) => link::run(&arguments),
        Command::Net(arguments) => net::run(&arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Stages(arguments) => stages::run(&arguments),
        Command::Pipe(arguments) => pipe::run(&arguments),
        Command::Cat(arguments) => Ok(programs::cat(&arguments)),
        Command::Grep(arguments) => programs::grep(&arguments),
        Command::Wc(arguments) => Ok(programs::wc(&arguments)),
        Command::Sum(arguments) => Ok(programs::sum(&arguments)),
        Command::Permute(arguments) => programs::permute(&arguments),
        Command::Completions { shell } => pages::completions(shell),
        Command::Man { dir } => pages::man(dir.as_deref()),
    }
}

impl From<Blocks> for BlockHome {
    fn from(blocks: Blocks) -> BlockHome {
        match blocks {
            Blocks::Segments => BlockHome::Segments,
            Blocks::Database => BlockHome::Database,
        }
    }
}

impl Command {
    /// True if the files that it makes belong to a volume.
    pub fn writes_volumes(&self) -> bool {
        match self {
            Command::Init(_)
            | Command::Mount(_)
            | Command::Serve(_)
            | Command::Info(_)
            | Command::Check(_)
            | Command::Convert(_)
            | Command::Upgrade(_)
            | Command::Import(_)
            | Command::Log(_)
            | Command::Scrub(_) => true,
            // Files of `export` are the user's, and get the permissions that they have in the
            // volume.
            _ => false,
        }
    }

    /// True if nothing is left half done when it ends before all is printed.
    pub fn only_prints(&self) -> bool {
        match self {
            Command::Info(_)
            | Command::Digest(_)
            | Command::Diff(_)
            | Command::Prove(_)
            | Command::VerifyProof(_)
            | Command::Log(_)
            | Command::Scrub(_)
            | Command::Verify(_)
            | Command::Stats(_)
            | Command::Status(_)
            | Command::Run(_)
            | Command::Cat(_)
            | Command::Grep(_)
            | Command::Wc(_)
            | Command::Sum(_)
            | Command::Permute(_)
            | Command::Net(Net::List { .. })
            | Command::Stages(_)
            | Command::Completions { .. }
            | Command::Man { dir: None } => true,
            Command::Check(arguments) => !arguments.repair && !arguments.salvage,
            Command::Link(arguments) => arguments.show,
            _ => false,
        }
    }
}

/// Invalid arguments: the exit code is 2.
#[derive(Debug)]
pub struct Usage(String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// A difference or damage that a command looked for, as an error: the exit code is 1. Failures have
/// exit code 2.
#[derive(Debug)]
pub struct Differs(pub String);

impl fmt::Display for Differs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Differs {}

/// Fails with [`Differs`] unless `is`.
fn agrees(is: bool, differs: impl FnOnce() -> String) -> Result<()> {
    if is { Ok(()) } else { Err(Differs(differs()).into()) }
}

/// Returns an error, its causes and advice on one line.
pub fn one_line(error: &anyhow::Error) -> String {
    let told = crate::daemons::explain(error, causes(error));
    let advice = advice::on(error, &told);
    advice::filled(&(told + &advice))
}

/// Returns the exit code of a command that looks for damage or a difference. Prints an error that
/// it ends with. The code is 1 if that reports either, and 2 if the command could not look, for
/// example because SQLite cannot read a volume.
fn looked(done: Result<ExitCode>) -> ExitCode {
    done.unwrap_or_else(|error| {
        tracing::error!("{}", crate::shown::message(&one_line(&error)));
        if is_found(&error) { ExitCode::FAILURE } else { ExitCode::from(2) }
    })
}

/// True if `error` reports damage or a difference that the command looked for.
fn is_found(error: &anyhow::Error) -> bool {
    error.chain().any(|error| error.is::<Differs>()) || advice::is_damage(error) && !advice::is_malformed(error)
}

/// Returns an error and its causes on one line; many errors name their causes themselves.
fn causes(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for error in error.chain() {
        let mut cause = error.to_string();
        // Damage is mentioned once.
        if let Some(damage) = cause.strip_prefix("damaged: ")
            && (damage.contains("damaged") || line.contains(damage))
        {
            cause = damage.into();
        }
        if line.is_empty() {
            line = cause;
        } else if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
        // It names all of its causes in its own words.
        if error.is::<weft_store::Error>() {
            break;
        }
    }
    line.replace('\n', " ")
}

/// Prints a line that is no error, if there is one.
pub fn tell(note: Option<String>) {
    if let Some(note) = note {
        errln!("weft: {}", crate::shown::message(&note));
    }
}

/// Reports operations that wait in the intent log of the volume at `location`, and those that are
/// lost; unless another process has the volume.
fn tell_of_waiting(location: &Location) -> Waiting {
    match location.waiting() {
        Ok(waiting) => {
            tell(waiting.note());
            tell(waiting.lost.clone());
            waiting
        }
        Err(error) => {
            tell(Some(format!("cannot tell of the intent log: {error}")));
            Waiting::default()
        }
    }
}

/// True if `finding` contains its own advice; a repair would not help.
pub fn is_advised(finding: &Finding) -> bool {
    let words = ["--accept-loss", "--salvage", "--discard", "move the log away", "then unmount it"];
    words.iter().any(|word| finding.what.contains(word))
}

/// Counts the damaged places in `findings`.
pub fn places<'a>(findings: impl IntoIterator<Item = &'a Finding>) -> usize {
    findings.into_iter().map(Finding::places).sum()
}

/// Returns the number of damaged places in words.
pub fn damages(count: usize) -> String {
    if count == 1 { "1 damaged place".into() } else { format!("{count} damaged places") }
}

/// Refuses an argument; `error` names it and the reason.
pub fn usage<T>(error: String) -> Result<T> {
    Err(Usage(error).into())
}

/// Returns a 32-bit option, or refuses `value`.
fn narrow(what: &str, value: u64) -> Result<u32> {
    u32::try_from(value).or_else(|_| usage(format!("{what} {value} is too large")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn a_cause_that_an_error_names_itself_is_said_once() {
        let error = std::io::Error::other("no paper");
        let error = Err::<(), _>(error).context("cannot print: no paper\nat all").context("cannot report").unwrap_err();
        assert_eq!(one_line(&error), "cannot report: cannot print: no paper at all");
        let error = weft_store::Error::Corrupt("block 2 has other bytes".into());
        let at_inode = "damaged at inode 16: block 2 has other bytes";
        let error = Err::<(), _>(error).context(at_inode).unwrap_err();
        let line = one_line(&error);
        assert!(line.starts_with(&format!("{at_inode}; 'weft check")), "{line}");
        let error = weft_store::Error::Corrupt("the row of inode 16 is damaged; 'weft check' tells".into());
        let line = one_line(&Err::<(), _>(error).context("cannot read x").unwrap_err());
        assert_eq!(line, "cannot read x: the row of inode 16 is damaged; 'weft check VOLUME' tells");
    }
}
