//! A look at all files of a volume before any of them is opened to be used.
//!
//! SQLite opens files beside the database by itself: it would wait for a pipe, and put a rollback
//! journal into the database. Files with several names (hard links) belong to a copy of the volume
//! as well: a write or a punched hole in one destroys the other.

use super::layout::{Layout, beside};
use crate::error::{Error, Result};
use crate::files;
use crate::user::user_of_files;
use rustix::fs::Access;
use rustix::io::Errno;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file of a volume that has other names, too.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Linked {
    pub(super) path: PathBuf,
    pub(super) names: u64,
}

impl Linked {
    /// Describes the problem.
    pub(super) fn why(&self) -> String {
        let (path, names) = (self.path.display(), self.names);
        format!("{path} has {names} names (hard links): another copy of the volume has the same file")
    }
}

/// Looks at the files of `layout`. Returns one that others have, too, if there is one. Errors: one
/// is no regular file, or another user's, or is a rollback journal, which no volume has.
pub(super) fn inspect(layout: &Layout) -> Result<Option<Linked>> {
    let database = &layout.database;
    let journal = beside(database, "-journal");
    if journal.symlink_metadata().is_ok() {
        return Err(Error::Unusable(format!(
            "{} is a rollback journal, which Weft never makes: SQLite would put its content into the database; find out \
             who put it there, and move it away",
            journal.display()
        )));
    }
    let owner = database.symlink_metadata().map_or(0, |metadata| metadata.uid());
    // A lock that two copies share keeps out too many, and nothing is written to it.
    look(&layout.hold, owner)?;
    let mut linked = None;
    if let Some(segments) = &layout.segments {
        refuse_roots(segments, owner)?;
    }
    for path in files_of(layout)? {
        linked = linked.or(look(&path, owner)?);
    }
    Ok(linked)
}

/// The database, its logs and the files of segments.
pub(super) fn files_of(layout: &Layout) -> Result<Vec<PathBuf>> {
    let database = &layout.database;
    let mut files = vec![database.clone(), layout.wal(), beside(database, "-shm"), layout.log.clone()];
    files.extend(segments(layout)?);
    Ok(files)
}

/// Refuses the file at `path` if it is root's and closed to the owner of the volume, by whose
/// rights it is used.
fn refuse_roots(path: &Path, owner: u32) -> Result<()> {
    if owner == user_of_files()
        && files::may(path, Access::READ_OK) == Err(Errno::ACCESS)
        && let Some(why) = roots(path, owner)
    {
        return Err(Error::Unusable(why));
    }
    Ok(())
}

/// Returns advice on the file at `path` if it is root's in the volume of `owner`, by whose rights
/// it is used.
pub(super) fn roots(path: &Path, owner: u32) -> Option<String> {
    let is_roots = path.symlink_metadata().is_ok_and(|metadata| metadata.uid() == 0);
    (is_roots && owner != 0 && owner == user_of_files()).then(|| {
        let path = path.display();
        format!(
            "{path} belongs to root, who used the volume: 'chown {owner} {path}', or 'weft check --repair VOLUME' for \
             all such files, as root"
        )
    })
}

/// The files of segments.
fn segments(layout: &Layout) -> Result<Vec<PathBuf>> {
    let Some(directory) = &layout.segments else { return Ok(Vec::new()) };
    let io = |source| Error::Io { what: "cannot list", path: directory.clone(), source };
    let entries = match std::fs::read_dir(directory) {
        // An empty directory is easily lost in a copy; another user's files are told of elsewhere.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
            return Ok(Vec::new());
        }
        entries => entries.map_err(io)?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(io)?.path();
        files.extend(path.extension().is_some_and(|end| end == "seg").then_some(path));
    }
    files.sort();
    Ok(files)
}

/// Looks at the file at `path` of a volume that belongs to `owner`.
fn look(path: &Path, owner: u32) -> Result<Option<Linked>> {
    let io = |source| Error::Io { what: "cannot open", path: path.into(), source };
    let metadata = match path.symlink_metadata() {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => return Ok(None),
        metadata => metadata.map_err(io)?,
    };
    files::refuse_kind(metadata.file_type()).map_err(io)?;
    refuse_roots(path, owner)?;
    // Root's daemon may have made it.
    if ![owner, 0, user_of_files()].contains(&metadata.uid()) {
        return Err(Error::Unusable(format!(
            "{} belongs to another user (number {}) than the volume (number {owner}); find out who put it there, and \
             remove it, or give it to the volume's owner (chown) if it is the volume's",
            path.display(),
            metadata.uid()
        )));
    }
    Ok((metadata.nlink() > 1).then(|| Linked { path: path.into(), names: metadata.nlink() }))
}
