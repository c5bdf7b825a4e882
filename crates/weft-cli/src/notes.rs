//! Lines that are no errors.

use crate::advice;
use weft_store::{Location, Waiting};

/// Prints a line that is no error, if there is one.
pub fn tell(note: Option<String>) {
    if let Some(note) = note {
        errln!("weft: {}", crate::shown::message(&note));
    }
}

/// Reports operations that wait in the intent log of the volume at `location`, and those that are
/// lost; unless another process has the volume.
pub fn tell_of_waiting(location: &Location) -> Waiting {
    match location.engine().waiting() {
        Ok(waiting) => {
            tell(waiting.note());
            tell(waiting.lost.clone());
            waiting
        }
        // Opening the volume fails in the same way, and tells that.
        Err(error) if advice::is_denied(&error) => Waiting::default(),
        Err(error) => {
            tell(Some(format!("cannot tell of the intent log: {error}")));
            Waiting::default()
        }
    }
}
