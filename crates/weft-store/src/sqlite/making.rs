//! New volumes that are being made from others: a signal that ends the process meanwhile removes
//! the unfinished volume, and nothing that somebody else put there.

use super::{Salvaged, convert, salvage};
use crate::error::Result;
use crate::finding::Progress;
use crate::store::BlockHome;
use parking_lot::Mutex;
use std::path::Path;

/// Progress of a new volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Made {
    /// Nothing of it is there.
    #[default]
    Nothing,
    /// Some of it is there, under the name that it is made by.
    Some,
    /// It has its final name, or was removed.
    Over,
}

/// A new volume that is being made. Held while it begins to be there and while it ends, so that
/// another thread finds it before or after.
#[derive(Debug, Default)]
pub struct Making(Mutex<Made>);

impl Making {
    /// Makes it, as [`super::convert`] does. It is left under its name at `new`: [`Making::end`] is
    /// for the caller to call, but where this fails.
    ///
    /// # Errors
    /// Those of [`super::convert`].
    pub fn convert(&self, path: &Path, new: &Path, home: BlockHome, progress: &mut dyn FnMut(Progress)) -> Result<()> {
        convert::convert_as(self, path, new, home, progress)
    }

    /// Makes it, as [`super::salvage`] does.
    ///
    /// # Errors
    /// Those of [`super::salvage`].
    pub fn salvage(&self, path: &Path, new: &Path, progress: &mut dyn FnMut(Progress)) -> Result<Salvaged> {
        salvage::salvage_as(self, path, new, progress)
    }

    /// Has `make` begin it, where nothing has its name.
    pub(super) fn begin(&self, make: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut made = self.0.lock();
        make()?;
        *made = Made::Some;
        Ok(())
    }

    /// Has `end` name or remove it.
    pub fn end<T>(&self, end: impl FnOnce() -> T) -> T {
        let mut made = self.0.lock();
        let ended = end();
        *made = Made::Over;
        ended
    }

    /// Has `look` see how far it is, and keeps it from going on meanwhile.
    pub fn look<T>(&self, look: impl FnOnce(Made) -> T) -> T {
        look(*self.0.lock())
    }
}
