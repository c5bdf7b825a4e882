//! Changes that wait for an operation which others would keep from its end.

use super::Vfs;
use crate::blocking::Wait;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weft_tree::Result;

/// Longest wait of a change. It then goes on, whatever it was held back for.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Whether changes are held back.
#[derive(Default)]
pub(crate) struct HeldBack {
    /// The same as `waits`, to be looked at by each change.
    is_on: AtomicBool,
    waits: Mutex<bool>,
    released: Condvar,
}

/// Holds back changes until it is dropped.
pub(crate) struct Holding<'a>(&'a HeldBack);

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        self.0.is_on.store(false, Ordering::Relaxed);
        *self.0.waits.lock() = false;
        self.0.released.notify_all();
    }
}

impl Vfs {
    /// Holds back changes that begin from now on, for a while. The caller makes none meanwhile.
    /// Another one may end it early: then changes go on.
    pub(crate) fn hold_back(&self) -> Holding<'_> {
        *self.held_back.waits.lock() = true;
        self.held_back.is_on.store(true, Ordering::Relaxed);
        Holding(&self.held_back)
    }

    /// Waits until changes are not held back any more. `WouldBlock`.
    pub(super) fn wait_if_held_back(&self) -> Result<()> {
        let held = &self.held_back;
        if held.is_on.load(Ordering::Relaxed) {
            self.may_wait(Wait::Commit)?;
            let until = Instant::now() + WAIT_MAX;
            let mut waits = held.waits.lock();
            while *waits && !held.released.wait_until(&mut waits, until).timed_out() {}
        }
        Ok(())
    }
}
