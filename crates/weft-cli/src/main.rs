//! The `weft` program: makes, mounts, inspects and checks volumes.
// All printing goes through `output`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

// Before all modules that print.
#[macro_use]
mod output;

mod advice;
#[cfg(feature = "jemalloc")]
mod allocator;
mod arguments;
mod command;
mod configuration;
mod confinement;
mod control;
mod control_socket;
mod daemon;
mod daemons;
mod dentry;
mod failure;
mod findings;
mod helper;
mod input;
mod leaving;
mod mounted;
mod named;
mod notes;
mod opened;
mod owner;
mod proc_path;
mod secrets;
mod serving;
mod shown;
mod size;
mod user;
mod watched;

use clap::{CommandFactory, FromArgMatches, Parser};
use helper::Helper;
use output::Work;
use std::process::ExitCode;
use std::sync::OnceLock;
use weft_transform::worker;

/// Exit code by which `weft umount` learns that a daemon's volume is whole only with the files
/// beside the database.
const UNSETTLED_CODE: u8 = 3;

fn main() -> ExitCode {
    secrets::hide();
    let filter = std::env::var("WEFT_LOG").unwrap_or_default();
    if let Err(part) = weft_vfs::write_messages(advice::filled, &filter) {
        errln!(
            "weft: WEFT_LOG: '{}' is neither a level (off, error, warn, info, debug, trace) nor TARGET=LEVEL",
            weft_vfs::printable(&part)
        );
        return ExitCode::from(2);
    }
    let mut words = secrets::words().to_vec();
    if let Some(code) = worker::run_if_asked(&words) {
        return code;
    }
    worker::set_program("/proc/self/exe".into());
    match helper::helper(&words, rustix::process::geteuid()) {
        Helper::No => {}
        Helper::Arguments(arguments) => words = arguments,
        Helper::Fake => return ExitCode::SUCCESS,
    }
    outlive_limits();
    let words = match configuration::complete(words) {
        Ok(words) => words,
        Err(why) => {
            errln!("weft: {}", shown::message(&why));
            return ExitCode::from(2);
        }
    };
    let parsed = match words.get(1).and_then(|word| word.to_str()) {
        Some("help" | "--help" | "-h") | None => {
            let program = arguments::grouped(arguments::Arguments::command());
            program.try_get_matches_from(words).and_then(|found| arguments::Arguments::from_arg_matches(&found))
        }
        Some(_) => arguments::Arguments::try_parse_from(words),
    };
    let arguments = match parsed {
        Ok(arguments) => arguments,
        Err(error) => return help_or_refuse(&error),
    };
    let only_prints = arguments.command.only_prints();
    if only_prints {
        end_with_the_reader();
    }
    if arguments.command.writes_volumes() {
        close_new_files();
    }
    let code = match command::run(arguments.command) {
        Ok(code) => code,
        Err(error) => {
            tracing::error!("{}", shown::message(&failure::one_line(&error)));
            if error.is::<failure::Usage>() {
                ExitCode::from(2)
            } else if error.is::<opened::Unsettled>() {
                ExitCode::from(UNSETTLED_CODE)
            } else {
                ExitCode::FAILURE
            }
        }
    };
    output::end(code, if only_prints { Work::Printing } else { Work::Done })
}

/// Prints the help that was asked for, or reports what is wrong with the arguments and ends.
fn help_or_refuse(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        error.exit();
    }
    end_with_the_reader();
    output::note(error.print());
    output::end(ExitCode::SUCCESS, Work::Printing)
}

/// Makes a write beyond the limit of file sizes (setrlimit(2), `RLIMIT_FSIZE`) fail with EFBIG,
/// like any other that finds no room. The signal would end a daemon before it commits.
fn outlive_limits() {
    // SAFETY: no handler is installed, and no other thread runs yet.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Makes all new files of this process its user's alone, also those of SQLite, of libraries, and of
/// code that sets no mode.
fn close_new_files() {
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    // It is set once.
    let _ = USERS_UMASK.set(before.bits());
}

/// The umask that the user has, where [`close_new_files`] has set another one: for files in volumes
/// that are the user's own.
static USERS_UMASK: OnceLock<u32> = OnceLock::new();

/// Lets a process that prints for `head` end when `head` has seen enough, as other programs do.
/// Rust ignores the signal, and printing then panics.
fn end_with_the_reader() {
    // SAFETY: no handler is installed, and no other thread runs yet.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}
