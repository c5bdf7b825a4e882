//! Paths from a top directory, resolved with the rights of a user (POSIX.1-2024 4.16 "Pathname
//! Resolution").
//!
//! The top is the root of the volume, unless a request names another one: the root as of a moment,
//! or a directory by its id. Nothing outside is ever found, as with `RESOLVE_IN_ROOT` of
//! openat2(2), but for one difference: a symbolic link with an absolute target leads out of the
//! volume, as it would from a mount, so that nothing is found there. `..` goes back the way that a
//! path came.

use super::Volume;
use super::query::Query;
use super::refusal::Refusal;
use weft_vfs::{Attributes, ErrorKind, FileId, Ino, Kind, Result};

/// Symbolic links on the way to one inode at most (Linux, path_resolution(7)).
const LINKS_MAX: usize = 40;

/// Most bytes of a path, with those that links lead through.
const PATH_BYTES_MAX: usize = 64 << 10;

/// The parameters that name a top directory.
pub(super) const TOPS: [&str; 2] = ["at", "in"];

/// The directory that a path leads through, and the name in it.
pub(super) type Entry = (FileId, Vec<u8>);

/// The end of a path, there or not.
pub(super) struct Place {
    pub(super) entry: Entry,
    /// The attributes of its inode.
    pub(super) there: Option<Attributes>,
}

/// Returns the directory where paths of `query` begin.
pub(super) fn top(volume: &Volume<'_>, query: &Query) -> Result<FileId, Refusal> {
    match (query.text("at")?, query.id("in")?) {
        (None, None) => Ok(FileId::from(&volume.vfs.attributes(Ino::ROOT)?)),
        (Some(moment), None) => Ok(volume.user.root_at(&moment)?.0),
        (None, Some(directory)) => Ok(directory),
        (Some(_), Some(_)) => Err(Refusal::senseless("it names both 'at' and 'in'")),
    }
}

/// Returns the inode that `query` is of: by its id, or else by its path, as [`find`].
pub(super) fn named(volume: &Volume<'_>, query: &Query) -> Result<FileId, Refusal> {
    match query.id("id")? {
        Some(id) => Ok(id),
        None => Ok(FileId::from(&find(volume, query)?)),
    }
}

/// Finds the end of the path of `query`. `NotFound`, `NotDirectory`, `AccessDenied`, `Loop`,
/// `NameTooLong`.
pub(super) fn find(volume: &Volume<'_>, query: &Query) -> Result<Attributes, Refusal> {
    let top = top(volume, query)?;
    Ok(Walk::new(volume, top, &query.bytes("path")?)?.go_to_end()?)
}

/// Finds the same, but a symbolic link there itself.
pub(super) fn find_itself(volume: &Volume<'_>, query: &Query) -> Result<Attributes, Refusal> {
    let top = top(volume, query)?;
    let mut walk = Walk::new(volume, top, &query.bytes("path")?)?;
    let Some(name) = walk.take_last()? else { return Ok(walk.go_to_end()?) };
    let parent = walk.go_to_directory()?;
    Ok(volume.user.lookup(parent, &name)?.0)
}

/// Finds the directory that the last name of the path `name` of `query` is in, there or not.
pub(super) fn entry(volume: &Volume<'_>, query: &Query, name: &'static str) -> Result<Entry, Refusal> {
    let top = top(volume, query)?;
    let mut walk = Walk::new(volume, top, &query.bytes(name)?)?;
    let last = walk.take_last()?.ok_or_else(|| Refusal::senseless("its path ends in no name"))?;
    Ok((walk.go_to_directory()?, last))
}

/// Finds the place that the path of `query` leads to, through symbolic links at its end, too.
pub(super) fn place(volume: &Volume<'_>, query: &Query) -> Result<Place, Refusal> {
    let top = top(volume, query)?;
    let mut walk = Walk::new(volume, top, &query.bytes("path")?)?;
    loop {
        let name = walk.take_last()?.ok_or(ErrorKind::IsDirectory)?;
        let parent = walk.go_to_directory()?;
        match volume.user.lookup(parent, &name) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(Place { entry: (parent, name), there: None });
            }
            Err(error) => return Err(error.into()),
            Ok((there, _)) if there.kind != Kind::Symlink => {
                return Ok(Place { entry: (parent, name), there: Some(there) });
            }
            Ok((link, _)) => walk.follow(&link)?,
        }
    }
}

/// A way through the volume.
struct Walk<'a> {
    volume: &'a Volume<'a>,
    /// The directories from the top to where it is, both among them.
    way: Vec<FileId>,
    /// The names that are left, the next one last.
    names: Vec<Vec<u8>>,
    links: usize,
}

impl<'a> Walk<'a> {
    fn new(volume: &'a Volume<'a>, top: FileId, path: &[u8]) -> Result<Walk<'a>> {
        let mut walk = Walk { volume, way: vec![top], names: Vec::new(), links: 0 };
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

    /// Takes the last name away. None if the path ends without one, in a directory.
    fn take_last(&mut self) -> Result<Option<Vec<u8>>> {
        match self.names.first().map(Vec::as_slice) {
            None | Some(b"." | b"..") => Ok(None),
            Some(_) => Ok(Some(self.names.remove(0))),
        }
    }

    /// The directory where it is.
    fn here(&self) -> FileId {
        *self.way.last().expect("a way has its top")
    }

    /// Goes on by what the symbolic link `link` in this directory says.
    fn follow(&mut self, link: &Attributes) -> Result<()> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(ErrorKind::Loop.into());
        }
        let (target, _) = self.volume.user.read_symlink(FileId::from(link))?;
        if target.starts_with(b"/") {
            return Err(ErrorKind::NotFound.into());
        }
        self.push(&target)
    }

    /// Goes all the way, to a directory.
    fn go_to_directory(&mut self) -> Result<FileId> {
        match self.go()? {
            None => Ok(self.here()),
            Some(_) => Err(ErrorKind::NotDirectory.into()),
        }
    }

    /// Goes all the way.
    fn go_to_end(&mut self) -> Result<Attributes> {
        match self.go()? {
            None => self.volume.user.attributes(self.here()),
            Some(found) => Ok(found),
        }
    }

    /// Goes all the way, through symbolic links. Returns what is there, unless that is a directory,
    /// where it is then.
    fn go(&mut self) -> Result<Option<Attributes>> {
        while let Some(name) = self.names.pop() {
            let is_up = name == b"..";
            if is_up || name == b"." {
                // The user must be able to search this directory.
                self.volume.user.lookup(self.here(), b".")?;
                if is_up && self.way.len() > 1 {
                    self.way.pop();
                }
                continue;
            }
            let (found, _) = self.volume.user.lookup(self.here(), &name)?;
            match found.kind {
                Kind::Symlink => self.follow(&found)?,
                // A transformation link says itself if it is no directory.
                Kind::Directory | Kind::Transformation => self.way.push(FileId::from(&found)),
                _ if self.names.is_empty() => return Ok(Some(found)),
                _ => return Err(ErrorKind::NotDirectory.into()),
            }
        }
        Ok(None)
    }
}
