//! Paths from the root of the volume, resolved with the rights of a user (POSIX.1-2024 4.16
//! "Pathname Resolution").
//!
//! A symbolic link leads on from its directory. One with an absolute target leads out of the
//! volume, as it would from a mount: nothing is found there. Above the root is the root.

use super::Volume;
use super::query::Query;
use weft_vfs::{Attributes, ErrorKind, FileId, Ino, Kind, Result};

/// Symbolic links on the way to one inode at most (Linux, path_resolution(7)).
const LINKS_MAX: usize = 40;

/// Most bytes of a path, with those that links lead through.
const PATH_BYTES_MAX: usize = 64 << 10;

/// The directory that a path leads through, and the name in it.
pub(crate) type Entry = (FileId, Vec<u8>);

/// Returns the inode that `query` is of: by its id, or else by its path, as [`find`].
pub(crate) fn named(volume: &Volume<'_>, query: &Query) -> Result<FileId> {
    match query.id()? {
        Some(id) => Ok(id),
        None => Ok(FileId::from(&find(volume, &query.bytes("path")?)?)),
    }
}

/// Finds the end of `path`. `NotFound`, `NotDirectory`, `AccessDenied`, `Loop`, `NameTooLong`.
pub(crate) fn find(volume: &Volume<'_>, path: &[u8]) -> Result<Attributes> {
    Walk::new(volume, path)?.go_to_end(true)
}

/// Finds the same, but a symbolic link there itself.
pub(crate) fn find_itself(volume: &Volume<'_>, path: &[u8]) -> Result<Attributes> {
    Walk::new(volume, path)?.go_to_end(false)
}

/// Finds the directory that the last name of `path` is in, there or not. `Invalid` if it has none.
pub(crate) fn entry(volume: &Volume<'_>, path: &[u8]) -> Result<Entry> {
    let mut walk = Walk::new(volume, path)?;
    match walk.names.first().map(|last| last.as_slice()) {
        None | Some(b"." | b"..") => Err(ErrorKind::Invalid.into()),
        Some(_) => {
            let name = walk.names.remove(0);
            Ok((FileId::from(&walk.go_to_end(true)?), name))
        }
    }
}

/// A way through the volume.
struct Walk<'a> {
    volume: &'a Volume<'a>,
    /// The names that are left, the next one last.
    names: Vec<Vec<u8>>,
    links: usize,
}

impl<'a> Walk<'a> {
    fn new(volume: &'a Volume<'a>, path: &[u8]) -> Result<Walk<'a>> {
        let mut walk = Walk { volume, names: Vec::new(), links: 0 };
        walk.push(path)?;
        Ok(walk)
    }

    /// Puts the names of `path` before those that are left.
    fn push(&mut self, path: &[u8]) -> Result<()> {
        let names = path.rsplit(|byte| *byte == b'/').filter(|name| !name.is_empty());
        self.names.extend(names.map(<[u8]>::to_vec));
        let bytes: usize = self.names.iter().map(|name| name.len() + 1).sum();
        if bytes > PATH_BYTES_MAX { Err(ErrorKind::NameTooLong.into()) } else { Ok(()) }
    }

    /// Goes all the way; through the last one, too, if it is a symbolic link and `follows`.
    fn go_to_end(&mut self, follows: bool) -> Result<Attributes> {
        let mut at = self.volume.vfs.attributes(Ino::ROOT)?;
        while let Some(name) = self.names.pop() {
            if name == b"." || name == b".." && at.ino == Ino::ROOT {
                continue;
            }
            let (found, _) = self.volume.user.lookup(FileId::from(&at), &name)?;
            if found.kind != Kind::Symlink || self.names.is_empty() && !follows {
                at = found;
                continue;
            }
            self.links += 1;
            if self.links > LINKS_MAX {
                return Err(ErrorKind::Loop.into());
            }
            let (target, _) = self.volume.user.read_symlink(FileId::from(&found))?;
            if target.starts_with(b"/") {
                return Err(ErrorKind::NotFound.into());
            }
            self.push(&target)?;
        }
        Ok(at)
    }
}
