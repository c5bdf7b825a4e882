//! Changes that wait for an operation which others would keep from its end.

use super::Vfs;
use crate::blocking::Wait;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weft_tree::Result;

/// Longest wait of a change. It then goes on, whatever it was held back for.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// The state of holding changes back.
#[derive(Default)]
pub(crate) struct HeldBack {
    /// True while changes wait. Set with `waiting` locked, and looked at by each change without.
    is_on: AtomicBool,
    waiting: Mutex<()>,
    released: Condvar,
}

/// Holds back changes until it is dropped.
pub(crate) struct Holding<'a>(&'a HeldBack);

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        self.0.set(false);
        self.0.released.notify_all();
    }
}

impl HeldBack {
    fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    fn set(&self, is_on: bool) {
        let _waiting = self.waiting.lock();
        self.is_on.store(is_on, Ordering::Relaxed);
    }
}

impl Vfs {
    /// Holds back changes that begin from now on, for a while. The caller makes none meanwhile.
    /// Another one may end it early: then changes go on.
    pub(crate) fn hold_back(&self) -> Holding<'_> {
        self.held_back.set(true);
        Holding(&self.held_back)
    }

    /// Waits until changes are not held back any more. `WouldBlock`.
    pub(super) fn wait_if_held_back(&self) -> Result<()> {
        let held = &self.held_back;
        if held.is_on() {
            self.may_wait(Wait::Commit)?;
            let until = Instant::now() + WAIT_MAX;
            let mut waiting = held.waiting.lock();
            while held.is_on() && !held.released.wait_until(&mut waiting, until).timed_out() {}
        }
        Ok(())
    }
}
