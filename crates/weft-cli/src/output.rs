//! The standard output: all that commands print goes through here.
//!
//! A command that only prints ends with its reader (SIGPIPE, see `main`). Any other finishes its
//! work: after the first failure the rest of the report is dropped, and the exit code shows that.

use std::fmt;
use std::io::{Write, stdout};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set once something could not be printed.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);

/// Prints a line of a report.
macro_rules! outln {
    ($($argument:tt)*) => {
        $crate::output::line(format_args!($($argument)*))
    };
}

/// Prints a line to the standard error, if that can be written.
macro_rules! errln {
    ($($argument:tt)*) => {{
        use std::io::Write;
        // Standard error may have no room, which is no reason to end.
        let _ = writeln!(std::io::stderr(), $($argument)*);
    }};
}

/// Duties of a command whose report is lost.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// None: the report is its only purpose.
    Printing,
    /// It has done more than print.
    Done,
}

/// Prints bytes as they are.
pub fn write(bytes: &[u8]) {
    if !has_failed() {
        note(stdout().write_all(bytes));
    }
}

/// Prints a line; see `outln!`.
pub fn line(text: fmt::Arguments<'_>) {
    if !has_failed() {
        note(stdout().write_fmt(format_args!("{text}\n")));
    }
}

/// True if something could not be printed: there is no need to go on printing.
pub fn has_failed() -> bool {
    HAS_FAILED.load(Ordering::Relaxed)
}

/// Reports the first failure to print.
pub fn note(printed: std::io::Result<()>) {
    if let Err(error) = printed
        && !HAS_FAILED.swap(true, Ordering::Relaxed)
    {
        tracing::error!("the report could not be written to the standard output: {error}");
    }
}

/// Ends the report of a command that ends with `code`. Returns the code that shows if it was lost.
pub fn end(code: ExitCode, work: Work) -> ExitCode {
    if !has_failed() {
        note(stdout().flush());
    }
    match work {
        _ if !has_failed() || code != ExitCode::SUCCESS => code,
        // Some of these commands have exit code 1 for a difference, or for damage.
        Work::Printing => ExitCode::from(2),
        Work::Done => ExitCode::FAILURE,
    }
}
