//! Errors as Python has them: `OSError` or the subclass that belongs to the number.

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use std::ffi::OsString;
use std::io;
use weft_client::errno;

/// Returns `error` as an exception with a number and a text.
pub(crate) fn exception(error: io::Error) -> PyErr {
    match error.downcast::<PyErr>() {
        // The handler of a signal raised it.
        Ok(raised) => raised,
        Err(error) => PyOSError::new_err((errno(&error), text(&error))),
    }
}

/// As [`exception`], of a call that concerns `path`.
pub(crate) fn about(path: OsString) -> impl FnOnce(io::Error) -> PyErr {
    move |error| PyOSError::new_err((errno(&error), text(&error), path))
}

/// Returns the exception for a call on something closed, as files of Python raise it.
pub(crate) fn closed(what: &str) -> PyErr {
    PyValueError::new_err(format!("I/O operation on closed {what}"))
}

/// Returns the exception for a call that waited on something when it was closed.
pub(crate) fn closed_meanwhile(what: &str) -> PyErr {
    PyValueError::new_err(format!("I/O operation on closed {what}: it was closed while the call waited"))
}

/// Runs the handlers of signals that came. One that raises ends the wait.
pub(crate) fn handle_signals() -> io::Result<()> {
    Python::attach(|py| py.check_signals()).map_err(|raised| io::Error::new(io::ErrorKind::Interrupted, raised))
}

/// The system's text without the number that Rust adds, which Python adds itself.
fn text(error: &io::Error) -> String {
    let text = error.to_string();
    match error.raw_os_error() {
        Some(number) => text.trim_end_matches(&format!(" (os error {number})")).to_string(),
        None => text,
    }
}
