//! The commands, one file each.

pub mod asking;
mod check;
mod compact;
mod config;
mod convert;
mod defragment;
mod diff;
mod digest;
mod du;
mod export;
mod gc;
mod history;
mod import;
mod info;
mod init;
mod link;
mod log;
mod mcp;
mod mount;
mod net;
mod networks;
mod pages;
mod pipe;
mod programs;
mod prove;
mod receive;
mod restore;
mod run;
mod scrub;
mod send;
mod serve;
mod set;
mod sign;
mod snapshot;
mod stages;
pub mod stats;
mod status;
mod stop;
mod subject;
pub mod sync;
pub mod transfer;
mod umount;
mod upgrade;

use crate::advice;
use crate::arguments::Command;
use crate::failure::{is_found, one_line};
use anyhow::Result;
use std::process::ExitCode;

/// Runs a command.
pub fn run(command: Command) -> Result<ExitCode> {
    advice::is_about(&command);
    match command {
        Command::Init(arguments) => init::run(&arguments),
        Command::Mount(arguments) => mount::run(arguments),
        Command::Serve(arguments) => serve::run(arguments),
        Command::Mcp(arguments) => mcp::run(&arguments),
        Command::Umount(arguments) => umount::run(&arguments),
        Command::Info(arguments) => info::run(&arguments),
        Command::Set(arguments) => set::run(&arguments),
        Command::Check(arguments) => Ok(looked(check::run(&arguments))),
        Command::Convert(arguments) => Ok(convert::run(&arguments)),
        Command::Compact(arguments) => compact::run(&arguments),
        Command::Defragment(arguments) => defragment::run(&arguments),
        Command::Upgrade(arguments) => upgrade::run(&arguments),
        Command::Import(arguments) => Ok(import::run(&arguments)),
        Command::Export(arguments) => Ok(export::run(&arguments)),
        Command::Put(arguments) => import::put(&arguments),
        Command::Get(arguments) => Ok(export::get(&arguments)),
        Command::Send(arguments) => Ok(send::run(&arguments)),
        Command::Receive(arguments) => Ok(receive::run(&arguments)),
        Command::Digest(arguments) if arguments.tree => Ok(looked(diff::trees(&arguments))),
        Command::Digest(arguments) => Ok(looked(digest::run(&arguments))),
        Command::Diff(arguments) => diff::run(&arguments),
        Command::Prove(arguments) => Ok(looked(prove::prove(&arguments))),
        Command::VerifyProof(arguments) => Ok(looked(prove::verify(&arguments))),
        Command::Log(arguments) => log::run(&arguments),
        Command::History(arguments) => history::run(&arguments),
        Command::Snapshot(arguments) => snapshot::run(&arguments),
        Command::Restore(arguments) => restore::run(&arguments),
        Command::Cp(arguments) => restore::copy(&arguments),
        Command::Undelete(arguments) => restore::undelete(&arguments),
        Command::Du(arguments) => du::run(&arguments),
        Command::Gc(arguments) => gc::run(&arguments),
        Command::Keygen(arguments) => sign::keygen(&arguments),
        Command::Sign(arguments) => Ok(looked(sign::sign(&arguments))),
        Command::Verify(arguments) => Ok(looked(sign::verify(&arguments))),
        Command::Scrub(arguments) => Ok(looked(scrub::run(&arguments))),
        Command::Stats(arguments) => stats::run(&arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Config(arguments) => config::run(&arguments),
        Command::Stop(arguments) => stop::run(&arguments),
        Command::Sync(arguments) => sync::run(&arguments),
        Command::Link(arguments) => link::run(&arguments),
        Command::Net(arguments) => net::run(&arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Stages(arguments) => stages::run(&arguments),
        Command::Pipe(arguments) => pipe::run(&arguments),
        Command::Ls(arguments) => Ok(programs::ls(&arguments)),
        Command::Cat(arguments) => programs::cat(&arguments),
        Command::Grep(arguments) => programs::grep(&arguments),
        Command::Wc(arguments) => Ok(programs::wc(&arguments)),
        Command::Sum(arguments) => Ok(programs::sum(&arguments)),
        Command::Permute(arguments) => programs::permute(&arguments),
        Command::Completions { shell } => pages::completions(shell),
        Command::Man { dir } => pages::man(dir.as_deref()),
    }
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
