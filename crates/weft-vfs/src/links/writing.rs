//! Writing through links that keep each byte in its place and can be undone.

use super::resolve::Resolved;
use super::sources::Targets;
use crate::attributes::{Attributes, Privileges, SetAttributes};
use crate::error::{ErrorKind, Result};
use crate::volume::Vfs;
use std::ops::Range;
use weft_block::Rope;
use weft_store::Ino;
use weft_transform::Network;

/// Bytes filled at once.
const FILL_BYTES: usize = 1 << 20;

impl Vfs {
    /// As [`Vfs::write`], through link `ino` into its target. `AccessDenied` if that cannot be.
    pub(crate) fn write_link(&self, ino: Ino, offset: u64, data: &[u8], kill_privileges: bool) -> Result<Privileges> {
        let resolved = self.writable_link(ino)?;
        let inverse = resolved.link.inverse.as_ref().ok_or(ErrorKind::AccessDenied)?;
        let target = resolved.data();
        let mut files = Targets::new(self.me.clone(), ino, &resolved);
        let size = self.attributes(target)?.size;
        self.fill(target, inverse, &mut files, size..offset)?;
        let bytes = self.undone(inverse, &mut files, data.to_vec())?;
        self.write(target, offset, &bytes.contiguous(), kill_privileges)
    }

    /// As [`Vfs::set_attributes`]: size and times are those of what link `ino` leads to, the rest its own. `AccessDenied` if that cannot be.
    pub(crate) fn set_link_attributes(&self, ino: Ino, changes: SetAttributes) -> Result<Attributes> {
        let resolved = self.writable_link(ino)?;
        let inverse = resolved.link.inverse.as_ref().ok_or(ErrorKind::AccessDenied)?;
        let SetAttributes { permissions, uid, gid, .. } = changes;
        let own = SetAttributes { permissions, uid, gid, ..SetAttributes::default() };
        if own != SetAttributes::default() {
            self.set_attributes(ino, own)?;
        }
        let target = resolved.data();
        let mut files = Targets::new(self.me.clone(), ino, &resolved);
        let size = self.attributes(target)?.size;
        self.fill(target, inverse, &mut files, size..changes.size.unwrap_or(0))?;
        let SetAttributes { size, atime, mtime, kill_privileges, .. } = changes;
        self.set_attributes(target, SetAttributes { size, atime, mtime, kill_privileges, ..SetAttributes::default() })?;
        self.attributes(ino)
    }

    /// Writes into `range` of `target`, which lies past its end, what reads as zeros through the link.
    fn fill(&self, target: Ino, inverse: &Network, files: &mut Targets, range: Range<u64>) -> Result<()> {
        if range.is_empty() || self.undone(inverse, files, vec![0])?.to_vec() == [0] {
            return Ok(());
        }
        let zeros = self.undone(inverse, files, vec![0; FILL_BYTES])?.contiguous().to_vec();
        let mut at = range.start;
        while at < range.end {
            let len = usize::try_from(range.end - at).map_or(FILL_BYTES, |left| left.min(FILL_BYTES));
            self.write(target, at, &zeros[..len], false)?;
            at += len as u64;
        }
        Ok(())
    }

    fn writable_link(&self, ino: Ino) -> Result<Resolved> {
        let resolved = self.run(|state| state.resolve(ino))?;
        if resolved.is_writable() { Ok(resolved) } else { Err(ErrorKind::AccessDenied.into()) }
    }

    /// What has to be in the target for `bytes` to be read through the link.
    fn undone(&self, inverse: &Network, files: &mut Targets, bytes: Vec<u8>) -> Result<Rope> {
        match self.applied(inverse, Rope::from(bytes), files)? {
            Some(undone) => Ok(undone),
            // Code that it runs was replaced meanwhile.
            None => Err(ErrorKind::Io.into()),
        }
    }
}
