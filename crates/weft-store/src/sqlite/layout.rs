//! The files that make up a volume.

use crate::error::{Error, Result};
use crate::files;
use crate::path_walk::{PathWalk, replacer};
use crate::sqlite::is_volume;
use crate::store::{BlockHome, Space};
use crate::user::{Rights, User};
use rustix::process::geteuid;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Paths of a volume's files, and by whose rights they are used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The volume as the user names it: a directory, or one file.
    pub volume: PathBuf,
    /// The database.
    pub database: PathBuf,
    /// Directory of the segments, if blocks lie there.
    pub segments: Option<PathBuf>,
    /// The intent log.
    pub log: PathBuf,
    /// The file or directory that is locked to hold the volume.
    pub hold: PathBuf,
    /// The owner of the volume, if this is root and that is another user.
    pub(super) owner: Option<Arc<User>>,
}

/// The name of the database in the directory of a volume.
pub(super) const DATABASE: &str = "meta.sqlite";

/// Follows the name of a volume that is one file in the name of its intent log.
pub(super) const INTENTS: &str = "-intents";

impl Layout {
    /// Returns the layout of a volume at `path`, which need not be there yet, whose blocks lie at
    /// `home`.
    pub fn of(path: &Path, home: BlockHome) -> Layout {
        Layout { volume: path.into(), ..Layout::at(&resolved(path), home) }
    }

    /// The same at a `path` without symbolic links.
    fn at(path: &Path, home: BlockHome) -> Layout {
        let (volume, path) = (path.to_path_buf(), path.to_path_buf());
        match home {
            BlockHome::Segments => Layout {
                database: path.join(DATABASE),
                segments: Some(path.join("segments")),
                log: path.join("intents"),
                hold: path.join("lock"),
                owner: None,
                volume,
            },
            BlockHome::Database => {
                let log = beside(&path, INTENTS);
                Layout { database: path.clone(), segments: None, log, hold: path, owner: None, volume }
            }
        }
    }

    /// Returns the layout of the volume that is there, a directory or a file, with the rights by
    /// which its files are to be used while these live: if this is root, those of its owner.
    pub fn enter(path: &Path) -> Result<(Layout, Rights)> {
        let layout = Layout::find(path)?;
        let rights = layout.rights()?;
        Ok((layout, rights))
    }

    /// The rights by which the files are to be used, as of [`Layout::enter`].
    pub fn rights(&self) -> Result<Rights> {
        rights_of(self.owner.as_deref(), &self.volume)
    }

    /// Refuses to have a volume made at `new` from this one where its owner, if that is another
    /// user than this, has no directory: it is made with the owner's rights, as it holds what the
    /// owner wrote.
    pub(super) fn refuse_elsewhere(&self, new: &Path) -> Result<()> {
        let Some(owner) = &self.owner else { return Ok(()) };
        if files::parent_of(new).metadata().is_ok_and(|parent| parent.uid() == owner.number()) {
            return Ok(());
        }
        Err(Error::Unusable(format!(
            "{} belongs to user {}, and so does what is made of it: {} must be in a directory of that user's; if you trust \
             what it says, give it to root first (chown -R)",
            self.volume.display(),
            owner.number(),
            new.display()
        )))
    }

    /// The owner of the volume, if this is root and that is another user.
    pub fn owner(&self) -> Option<&Arc<User>> {
        self.owner.as_ref()
    }

    /// Finds the volume that is there: a directory or a file. Symbolic links on the way are
    /// resolved here, once, so that all of its files lie together under whatever name it is opened.
    /// Root follows only links of root or of the volume's owner.
    pub fn find(path: &Path) -> Result<Layout> {
        let failed = |source: std::io::Error| match source.kind() {
            std::io::ErrorKind::NotFound => Error::Unusable(match without_colon(path).filter(|path| is_volume(path)) {
                Some(volume) => format!(
                    "there is no volume at {}; the volume's own name is {}, without a colon",
                    path.display(),
                    volume.display()
                ),
                None => format!("there is no volume at {}; make one with 'weft init'", path.display()),
            }),
            _ => Error::Io { what: "cannot open", path: path.into(), source },
        };
        let way = PathWalk::to(path).map_err(failed)?;
        let owner = owner_on(&way, path)?.map(Arc::new);
        let _rights = rights_of(owner.as_deref(), path)?;
        let (is_directory, resolved) = (way.is_to_directory(), way.path);
        let is_part = resolved.file_name().is_some_and(|name| name == DATABASE)
            && resolved.parent().is_some_and(|parent| parent.join("segments").is_dir() || parent.join("lock").exists());
        if is_part {
            return Err(part_of_volume(path));
        }
        let home = if is_directory { BlockHome::Segments } else { BlockHome::Database };
        Ok(Layout { volume: path.into(), owner, ..Layout::at(&resolved, home) })
    }

    /// Returns the storage of the blocks.
    pub(super) fn home(&self) -> BlockHome {
        if self.segments.is_some() { BlockHome::Segments } else { BlockHome::Database }
    }

    /// Refuses to have a volume made here where something has its name, or lies beside it that
    /// would be taken for the new volume's: logs that another one left behind, which may be in use.
    pub fn refuse_taken(&self) -> Result<()> {
        if self.volume.symlink_metadata().is_ok() {
            let what = match self.home() {
                BlockHome::Segments => "name a volume to be made",
                BlockHome::Database => "the volume will be a file of that name",
            };
            return Err(Error::Unusable(format!("{} already exists; {what}", self.volume.display())));
        }
        match self.beside().into_iter().find(|left| left.symlink_metadata().is_ok()) {
            None => Ok(()),
            Some(left) => Err(Error::Unusable(format!(
                "{} exists, and belongs to a volume that was {}: where that is now it may need this file; move the \
                 file there, or give another name",
                left.display(),
                self.volume.display()
            ))),
        }
    }

    /// Gives the files that lie beside the one of a volume in one file, while it is in use.
    pub fn beside(&self) -> Vec<PathBuf> {
        match self.home() {
            BlockHome::Segments => Vec::new(),
            BlockHome::Database => {
                ["-wal", "-shm", "-journal", INTENTS].map(|suffix| beside(&self.database, suffix)).into()
            }
        }
    }

    /// Refuses a database whose blocks lie at `home`, elsewhere than the files around it say. The
    /// one of a volume in a directory is refused by its name before, in [`Layout::find`]: here it
    /// has another name, or was moved.
    pub(super) fn refuse_other_home(&self, home: BlockHome) -> Result<()> {
        match (home, &self.segments) {
            (BlockHome::Segments, None) => Err(part_of_volume(&self.volume)),
            (BlockHome::Database, Some(_)) => Err(Error::Unusable(format!(
                "{} holds the database of a volume that is one file; name {}",
                self.volume.display(),
                self.database.display()
            ))),
            _ => Ok(()),
        }
    }

    /// SQLite's write-ahead log.
    pub(super) fn wal(&self) -> PathBuf {
        beside(&self.database, "-wal")
    }

    /// True if no commit waits in the write-ahead log, which nobody writes to.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.wal().metadata().map_or(true, |wal| wal.len() == 0)
    }

    /// Space of the file system the volume lies in.
    pub(super) fn space(&self) -> Result<Space> {
        let stat = rustix::fs::statvfs(&self.database).map_err(|errno| Error::Io {
            what: "cannot tell the space at",
            path: self.database.clone(),
            source: errno.into(),
        })?;
        // The file system keeps it for the super-user, and ext4 some for nobody. Who writes through
        // a mount is mostly not the user of its daemon, which may need some of it for what was
        // taken.
        let reserved = stat.f_bfree.saturating_sub(stat.f_bavail);
        Ok(Space {
            bytes_total: stat.f_blocks * stat.f_frsize,
            bytes_free: (stat.f_bfree - reserved) * stat.f_frsize,
            bytes_reserved: reserved * stat.f_frsize,
        })
    }
}

/// The owner of the volume that `way` leads to, if this is root and that is another user. Errors: a
/// link on the way, called `named`, is neither root's nor the owner's.
fn owner_on(way: &PathWalk, named: &Path) -> Result<Option<User>> {
    let owners = || {
        // A file of root's in a directory of somebody else's need not be there by root's will.
        let directory = if way.is_to_directory() { way.directory_owner()? } else { 0 };
        Ok((way.owner_of(DATABASE)?, directory))
    };
    let failed = |source| Error::Io { what: "cannot look at", path: named.into(), source };
    let owner = match owners().map_err(failed)? {
        (0, directory) => directory,
        (owner, _) => owner,
    };
    way.refuse_links_of_others(owner, named)?;
    Ok(User::other(owner))
}

/// Says, in a line for the user, if root's own volume at `path` lies where another user can put
/// another one in its place while root uses it.
pub fn replaceable(path: &Path) -> Option<String> {
    let way = PathWalk::to(path)
        .ok()
        .filter(|way| geteuid().is_root() && way.owner_of(DATABASE).is_ok_and(|owner| owner == 0))?;
    let (directory, who) = replacer(&way.path)?;
    Some(format!(
        "{} is root's and lies in {}, where {who} can put another volume of root's in its place while it is used; keep it \
         where only root changes names, or give it to the user who is to use it (chown -R)",
        path.display(),
        directory.display()
    ))
}

/// Takes the rights of `owner`, if any, by which the volume at `volume` is used.
fn rights_of(owner: Option<&User>, volume: &Path) -> Result<Rights> {
    let what = "cannot take the rights of the owner of";
    Rights::of(owner).map_err(|source| Error::Io { what, path: volume.into(), source })
}

/// The refusal of the database at `path` as a volume of its own.
fn part_of_volume(path: &Path) -> Error {
    let what = "is the database of a volume that is a directory; name the directory that holds it";
    Error::Unusable(format!("{} {what}", path.display()))
}

/// `path` without symbolic links, as far as it is there.
fn resolved(path: &Path) -> PathBuf {
    let below = || Ok(files::parent_of(path).canonicalize()?.join(path.file_name().unwrap_or_default()));
    path.canonicalize().or_else(|_: std::io::Error| below()).unwrap_or_else(|_: std::io::Error| path.into())
}

/// Removes the database at `path` and what SQLite keeps beside it, as far as they are there.
pub(super) fn remove_database(path: &Path) -> Result<()> {
    ["", "-wal", "-shm", "-journal"].into_iter().try_for_each(|suffix| remove_file(&beside(path, suffix)))
}

/// Removes the file at `path`, if there is one.
pub(super) fn remove_file(path: &Path) -> Result<()> {
    match files::remove(path) {
        Err(source) if source.kind() != ErrorKind::NotFound => {
            Err(Error::Io { what: "cannot remove", path: path.into(), source })
        }
        _ => Ok(()),
    }
}

/// The path before a colon at its end, with which commands name the content of a volume.
fn without_colon(path: &Path) -> Option<PathBuf> {
    path.as_os_str().as_bytes().strip_suffix(b":").map(|path| OsStr::from_bytes(path).into())
}

/// The file beside `path` whose name ends with `suffix`, too.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
