//! A database that is written anew in a file beside it, and takes its place in one step once it is
//! whole and on the disk.
//!
//! Interrupted anywhere, that leaves the old database or the new one. What a process leaves that
//! was killed is no volume, and the next one that does the same removes it.

use super::connection::{Access, connect};
use super::layout::{Layout, beside, remove_database, remove_file};
use crate::copies::sync_directory;
use crate::error::{Error, Result};
use crate::files;
use crate::finding::Progress;
use rustix::fs::{XattrFlags, fgetxattr, fremovexattr, fsetxattr};
use std::fs::{File, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::Path;

/// The attribute of a database that is being written.
const UNFINISHED: &str = "user.weft.unfinished";

/// A reason to write a database anew.
pub(super) struct Rewriting {
    /// It, in words: "an upgrade".
    pub(super) by: &'static str,
    /// The end of the new database's name until that takes the place of the old one.
    pub(super) suffix: &'static str,
}

fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    move |source| Error::Io { what, path: path.into(), source }
}

impl Rewriting {
    /// Has `fill` write the new database into an empty file, which then takes the place of that of
    /// `layout`: `old` is its file, nobody else has it open by then, and its write-ahead log has no
    /// commit.
    pub(super) fn replace(
        &self,
        (layout, old): (&Layout, &File),
        fill: impl FnOnce(&Path, &mut dyn FnMut(Progress)) -> Result<()>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<()> {
        let new = beside(&layout.database, self.suffix);
        self.remove_left(&new, &layout.database)?;
        make(&new)?;
        let filled = fill(&new, progress).and_then(|()| {
            let file = files::open(files::options().read(true).write(true), &new).map_err(io("cannot open", &new))?;
            belong_like(old, &file).map_err(io("cannot give the owner and permissions of the database to", &new))?;
            let _ = fremovexattr(&file, UNFINISHED);
            file.sync_all().map_err(io("cannot sync", &new))
        });
        if let Err(error) = filled.and_then(|()| take_place(layout, &new, progress)) {
            // The error is what the user must see.
            let _ = remove_database(&new);
            return Err(error);
        }
        Ok(())
    }

    /// Removes the file at `new` if it is what was left when the database `old` was written anew
    /// and that was killed: not whole yet, or the same moment of the same volume. Errors: it is
    /// anything else.
    fn remove_left(&self, new: &Path, old: &Path) -> Result<()> {
        let others = |path: &Path| {
            Error::Unusable(format!(
                "{} exists, and is not what {} left that was ended: the new database gets the name {} until it takes \
                 the place of the old one; move the file away, with what belongs to it",
                path.display(),
                self.by,
                new.display()
            ))
        };
        let file = match files::open(files::options().read(true), new) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let beside = ["-wal", "-shm", "-journal"].map(|suffix| beside(new, suffix));
                let left = beside.iter().find(|path| path.symlink_metadata().is_ok());
                return left.map_or(Ok(()), |left| Err(others(left)));
            }
            file => file.map_err(io("cannot open", new))?,
        };
        let is_empty = file.metadata().map_err(io("cannot look at", new))?.len() == 0;
        let is_begun = fgetxattr(&file, UNFINISHED, &mut [0; 8][..]).is_ok();
        if is_empty || is_begun || is_same_moment(new, old) {
            return remove_database(new);
        }
        Err(others(new))
    }
}

/// True if two databases are volumes of the same commit, as far as all formats tell.
fn is_same_moment(one: &Path, other: &Path) -> bool {
    let moment = |path: &Path| {
        let connection = connect(path, 1, Access::Immutable).ok()?;
        let moment = "SELECT created, number, op, next_id, next_block FROM volume";
        let read = |row: &rusqlite::Row<'_>| {
            (0..5).map(|column| row.get::<_, i64>(column)).collect::<rusqlite::Result<Vec<_>>>()
        };
        connection.query_row(moment, (), read).ok()
    };
    moment(one).is_some_and(|one| moment(other) == Some(one))
}

/// Gives `new` the owner and permissions of `old`.
fn belong_like(old: &File, new: &File) -> std::io::Result<()> {
    let (old, made) = (old.metadata()?, new.metadata()?);
    if (old.uid(), old.gid()) != (made.uid(), made.gid()) {
        fchown(new, Some(old.uid()), Some(old.gid()))?;
    }
    new.set_permissions(Permissions::from_mode(old.mode() & 0o7777))
}

/// Puts `new`, which is on the disk, where the database of `layout` is.
fn take_place(layout: &Layout, new: &Path, progress: &mut dyn FnMut(Progress)) -> Result<()> {
    // They belong to the old file, and nothing is in them.
    remove_file(&layout.wal())?;
    remove_file(&beside(&layout.database, "-shm"))?;
    progress(Progress { step: "replacing the database", done: 0, total: 1 });
    std::fs::rename(new, &layout.database).map_err(io("cannot rename", new))?;
    sync_directory(files::parent_of(&layout.database))?;
    progress(Progress { step: "replacing the database", done: 1, total: 1 });
    Ok(())
}

/// Makes the empty file `new`, marked as what is being written.
fn make(new: &Path) -> Result<()> {
    let made = files::open(files::options().write(true).create_new(true), new).map_err(io("cannot make", new))?;
    // Where files have no attributes, the user who ends this has to remove the file.
    let _ = fsetxattr(&made, UNFINISHED, b"1", XattrFlags::empty());
    Ok(())
}
