//! What programs do to links between opening and closing them: for ways in that tell of that, if
//! asked to.
//!
//! It costs requests, so it is asked for only where a volume has links that want it: those that
//! leave their length open or are read past the kernel's cache, and those that are written as a
//! whole. Whether there are any is an attribute of the volume's root, so that a mount knows it when
//! it begins.

use crate::definition::Writing;
use crate::layer::Links;
use crate::writing::drafts::{Closed, Written};
use weft_store::{Ino, Kind};
use weft_tree::{ErrorKind, Result, Stop};
use weft_vfs::Asker;
use weft_vfs::Change;

/// Mode in which an opener reads and writes a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// As any.
    Plain,
    /// Past what the kernel keeps.
    Direct {
        /// True if its length is unknown: it is read until a read returns nothing, and available
        /// bytes are returned at once.
        is_open: bool,
    },
    /// It is written as a whole, which takes effect by [`Links::flush`].
    Draft {
        /// True if it is read past the kernel's page cache.
        is_direct: bool,
        /// As of [`Opening::Direct`].
        is_open: bool,
    },
}

impl Links<'_> {
    /// A program has opened file `ino`. `AccessDenied` if it is a link that is closed to it, or
    /// cannot be written, and the program `writes`. `NotSynchronized` if others write to it as a
    /// whole from when it led elsewhere.
    pub fn opened(&self, ino: Ino, writes: bool) -> Result<Opening> {
        self.run(|state| {
            if state.tree.inode(ino)?.row.kind != Kind::Transformation {
                return Ok(Opening::Plain);
            }
            let resolved = match state.resolve(ino) {
                // Who reads comes to hear of that.
                Err(Stop::Fail(error)) if !writes && error.kind() != ErrorKind::AccessDenied => {
                    return Ok(Opening::Plain);
                }
                resolved => resolved?,
            };
            if resolved.link.looks.is_some() {
                return Ok(Opening::Plain);
            }
            if writes && (resolved.writing == Writing::Not || !resolved.may_write) {
                return Err(ErrorKind::AccessDenied.into());
            }
            let is_open = state.leaves_open(&resolved) && state.length_told(ino, &resolved)?.is_none();
            // What the kernel keeps it gives to all who have the link open, also to those who were
            // let open it when it led elsewhere.
            let is_direct = is_open || resolved.link.definition.direct || !resolved.is_for_all;
            Ok(match (writes && resolved.writing == Writing::Whole, is_direct) {
                (true, _) => {
                    state.join_draft(ino)?;
                    Opening::Draft { is_direct, is_open }
                }
                (false, true) => Opening::Direct { is_open },
                (false, false) => Opening::Plain,
            })
        })
    }

    /// Puts what was written to link `ino` as a whole into its target, if anything was: all of it,
    /// or nothing if that fails or the volume crashes. As [`weft_vfs::Vfs::write`]; `AccessDenied`
    /// if the link leads elsewhere now, `Io` or `TimedOut` if the network fails.
    pub fn flush(&self, ino: Ino) -> Result<()> {
        let draft = self.draft(ino);
        draft.map_or(Ok(()), |draft| self.store_draft(ino, &draft))
    }

    /// As [`Links::flush`], when a program has closed one of its descriptors. An empty draft waits
    /// once, for the next time, or the last ([`Links::closed`]): a shell closes a copy of what `>`
    /// opened before the command writes anything, and nothing of the old content is to be lost by
    /// that if what follows makes no sense.
    pub fn flush_written(&self, ino: Ino) -> Result<()> {
        let waits = self.draft(ino).is_some_and(|draft| draft.waits_once());
        if waits { Ok(()) } else { self.flush(ino) }
    }

    /// Stores what is open to be written when the volume is closed.
    pub(crate) fn store_drafts(&self) {
        let links = self.locked(|state| state.links.drafts.links());
        for ino in links {
            if let Err(error) = self.flush(ino) {
                let path = self.path(ino);
                tracing::error!("what was written to {} is lost: {error}", String::from_utf8_lossy(&path));
            }
        }
    }

    /// `AccessDenied` if link `ino` is written as a whole: for those of whom nobody tells when they
    /// open and close it.
    pub(crate) fn refuse_drafts(&self, ino: Ino) -> Result<()> {
        let writing = self.run(|state| Ok(state.resolve(ino)?.writing))?;
        if writing == Writing::Whole { Err(ErrorKind::AccessDenied.into()) } else { Ok(()) }
    }

    /// A program has closed link `ino`, which was a draft to it ([`Opening::Draft`]). `WouldBlock`:
    /// it is to be told once more.
    pub fn closed(&self, ino: Ino) -> Result<()> {
        let mut stores = true;
        loop {
            let closed = self.locked(|state| state.links.drafts.closed(ino, Asker::now(Asker::uid), stores));
            match closed {
                Closed::Shared => return Ok(()),
                Closed::Unstored(draft) => {
                    let Err(error) = self.store_draft(ino, &draft) else { continue };
                    if error.kind() == ErrorKind::WouldBlock {
                        return Err(error);
                    }
                    let path = self.path(ino);
                    tracing::error!(
                        user = weft_vfs::asking_user(),
                        "what was written to {} is lost: {error}",
                        String::from_utf8_lossy(&path)
                    );
                    stores = false;
                }
                Closed::Last(draft) => {
                    let written = std::mem::replace(&mut *draft.content.lock(), Written::Ended);
                    if let Written::Here(content) = written {
                        content.end(self);
                        // What is read now comes through the network again.
                        self.draft_changed(ino);
                        self.announce([Change::Outdated { ino: self.layer.stacks.pushed_onto(ino).unwrap_or(ino) }]);
                    }
                    return Ok(());
                }
            }
        }
    }
}
