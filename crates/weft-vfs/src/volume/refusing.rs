//! Refusing changes for a while (mount(8), `remount,ro`).

use super::Vfs;
use std::sync::atomic::Ordering;
use weft_tree::{ErrorKind, Result};

impl Vfs {
    /// True if every change is refused with `ReadOnly`.
    pub fn is_read_only(&self) -> bool {
        self.options.read_only || self.refuses_changes.load(Ordering::Relaxed)
    }

    /// Commits all and refuses every change from now on, until [`Vfs::take_changes`]. Errors as
    /// [`Vfs::sync`]; changes are taken then as before.
    pub fn refuse_changes(&self) -> Result<()> {
        if self.is_read_only() {
            return Ok(());
        }
        {
            // Under the lock that operations change the state under: those that come later are
            // refused, those before are committed.
            let _state = self.state.lock();
            self.refuses_changes.store(true, Ordering::Relaxed);
        }
        // Results so far stay as they are. New ones are kept in memory alone.
        self.opaque.end(self);
        let committed = self.commit_all();
        if committed.is_err() {
            self.refuses_changes.store(false, Ordering::Relaxed);
        }
        committed
    }

    /// Takes changes again. `ReadOnly` if the volume was opened to be read alone.
    pub fn take_changes(&self) -> Result<()> {
        if self.options.read_only {
            return Err(ErrorKind::ReadOnly.into());
        }
        self.refuses_changes.store(false, Ordering::Relaxed);
        Ok(())
    }
}
