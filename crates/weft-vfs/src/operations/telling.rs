//! The rule for who is told digests.
//!
//! A digest confirms a guess of what was hashed, so it is told to those who may read all that it
//! commits to. The digest of a file is told to those who may read the file. That of a directory
//! commits to everything below: it is told to those who may list and search every directory there
//! and read every file. A directory lists a link by its definition, which is told as
//! [`crate::opaque::OpaqueState::permit_definition`] says. The super-user and the holder of the
//! volume are told without looking.
//!
//! Looking is bounded: after [`LOOKED_AT_MAX`] inodes the digest is refused. The asker can then ask
//! about what is in the directory, as `weft digest` does.

use crate::asker::Asker;
use crate::volume::Vfs;
use weft_store::{Cookie, Ino, Kind};
use weft_tree::{Error, ErrorKind, Result};

/// Inodes that are looked at for one answer.
const LOOKED_AT_MAX: usize = 4096;

/// Entries that are listed at once.
const PAGE: usize = 256;

impl Vfs {
    /// `AccessDenied` unless the asker may be told the digest of `ino`, of `kind`.
    pub(super) fn permit_digest(&self, ino: Ino, kind: Kind) -> Result<()> {
        self.permit_digests(&mut vec![(ino, kind)])
    }

    /// `AccessDenied` unless the asker may be told the digests of all of these.
    pub(super) fn permit_digests(&self, left: &mut Vec<(Ino, Kind)>) -> Result<()> {
        if Asker::now(Asker::is_mighty) {
            return Ok(());
        }
        let mut room = LOOKED_AT_MAX.checked_sub(left.len()).ok_or(ErrorKind::AccessDenied)?;
        while let Some((ino, kind)) = left.pop() {
            self.run(|state| match kind {
                Kind::Transformation => state.opaque.layer().permit_definition(&mut state.tree, ino),
                Kind::File | Kind::Directory if !state.asker_may_read(ino)? => Err(ErrorKind::AccessDenied.into()),
                _ => Ok(()),
            })?;
            if kind != Kind::Directory {
                continue;
            }
            let mut after = Cookie(0);
            loop {
                let page = self.read_directory(ino, after, PAGE)?;
                let Some(last) = page.last() else { break };
                after = last.cookie;
                room = room.checked_sub(page.len()).ok_or_else(|| Error::new(ErrorKind::AccessDenied, ino))?;
                // A listing tells of opaque inodes as of what they look like.
                let kind = |ino| self.run(|state| Ok(state.tree.inode(ino)?.row.kind));
                for entry in page {
                    left.push((entry.ino, kind(entry.ino)?));
                }
            }
        }
        Ok(())
    }
}
