//! Digests of what is there now.

use crate::blocking::Wait;
use crate::error::Result;
use crate::inode::Changed;
use crate::volume::Vfs;
use weft_digest::Digest;
use weft_store::{Ino, Kind};

impl Vfs {
    /// BLAKE3 of the content of a file, or the digest of a directory, as a reader would find them now (docs/digest.md). What changed is
    /// committed first, for digests follow from commits. None of what is neither, if the volume keeps no digests, or if the file is damaged or
    /// has so many zeros that hashing them takes long. `Stale`, and as [`Vfs::commit`]. `WouldBlock`.
    pub fn digest(&self, ino: Ino) -> Result<Option<Digest>> {
        Ok(match self.committed(ino)? {
            Some(Kind::File) => self.store.content_digest(ino)?,
            Some(Kind::Directory) => self.store.digest(ino)?,
            _ => None,
        })
    }

    /// By what a directory lists `ino`, as [`Vfs::digest`] otherwise.
    pub fn listed_digest(&self, ino: Ino) -> Result<Option<Digest>> {
        Ok(match self.committed(ino)? {
            Some(_) => self.store.digest(ino)?,
            None => None,
        })
    }

    /// Has what concerns the digest of `ino` committed; tells its kind. None if that cannot be.
    fn committed(&self, ino: Ino) -> Result<Option<Kind>> {
        let (kind, is_committed) = self.run(|state| {
            let inode = state.inode(ino)?;
            let (kind, is_clean) = (inode.row.kind, inode.changed == Changed::CLEAN);
            // Anything may lie under a directory; of others nothing but themselves counts.
            Ok((kind, if kind == Kind::Directory { state.dirty_bytes == 0 } else { is_clean }))
        })?;
        if !is_committed {
            if self.options.read_only {
                // What the intent log holds is not in the store, and will not be.
                return Ok(None);
            }
            self.may_wait(Wait::Commit)?;
            self.commit()?;
        }
        self.may_wait(Wait::Read)?;
        Ok(Some(kind))
    }
}
