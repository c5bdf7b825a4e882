//! Files of a user's volume that belong to root: its owner cannot use the volume any more.
//!
//! Programs before this one left them when root used the volume. Nothing gives them away by
//! itself: a user who may rename root's file in some directory of his could put it here, and would
//! be given what he must not read. Root decides that, by a repair of the volume.

use super::closed::told;
use super::inspect::files_of;
use super::layout::Layout;
use super::open::check_file;
use crate::files;
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, Uid, fchown, fstat, openat, statat};
use std::path::{Path, PathBuf};

/// Treatment of root's files in the volume of another user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Giving {
    /// They are only reported.
    Look,
    /// They are given to the owner of the volume.
    Give,
}

/// Finds files of the volume at `path` that are root's though the database is another user's, if
/// this is root. Returns lines for the user: one of those that were given to the owner, one of
/// those that were not.
pub fn give_to_owner(path: &Path, giving: Giving) -> Vec<String> {
    let entered = Layout::enter(path).ok();
    let Some((layout, rights)) = entered.filter(|(layout, _)| check_file(layout).is_ok()) else { return Vec::new() };
    let owner = layout.owner().and_then(|owner| look(&layout.database).filter(|found| found.st_uid == owner.number()));
    let Some(owner) = owner else { return Vec::new() };
    let files = files_of(&layout).unwrap_or_default().into_iter().filter(|path| path != &layout.hold);
    let all = files.chain([layout.hold.clone()]).chain(layout.segments.clone());
    let is_roots = |path: &PathBuf| look(path).is_some_and(|stat| stat.st_uid == 0);
    let roots: Vec<PathBuf> = all.chain(logs(&layout)).filter(is_roots).collect();
    // Nobody but root gives them away.
    drop(rights);
    let is_given = |path: &&PathBuf| giving == Giving::Give && give(path, &owner).is_some();
    let (given, left): (Vec<&PathBuf>, Vec<&PathBuf>) = roots.iter().partition(is_given);
    let user = owner.st_uid;
    let given = told(&given).map(|files| format!("given to the owner of the volume (user {user}): {files}"));
    let left = told(&left).map(|files| {
        let advice = match giving {
            Giving::Look => "'weft check --repair VOLUME', as root, gives it",
            Giving::Give => "give it (chown) if it is the volume's, or move it away",
        };
        format!("belongs to root, so that the owner of the volume (user {user}) cannot use it: {files}; {advice}")
    });
    given.into_iter().chain(left).collect()
}

/// Messages of daemons.
fn logs(layout: &Layout) -> [PathBuf; 1] {
    [match layout.log.parent().filter(|_| layout.segments.is_some()) {
        Some(directory) => directory.join("weft.log"),
        None => layout.database.with_added_extension("log"),
    }]
}

fn look(path: &Path) -> Option<Stat> {
    statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).ok()
}

/// Gives the file or directory at `path` to the owner of the database, which has these attributes,
/// if it is as Weft makes it: for root alone, and without another name.
fn give(path: &Path, database: &Stat) -> Option<()> {
    let (directory, name) = files::directory_of(path).ok()?;
    // In another's directory, as one for everybody, its name says nothing of whose it is.
    fstat(&directory).ok().filter(|directory| directory.st_uid == database.st_uid)?;
    let file = openat(&directory, name, files::FLAGS | OFlags::CLOEXEC, Mode::empty()).ok()?;
    // The name is looked at between two looks at the file: one that had its only name elsewhere, as
    // this one was removed meanwhile, is not there any more.
    let before = fstat(&file).ok().filter(is_ours)?;
    let named = look(path).filter(is_ours)?;
    let after = fstat(&file).ok().filter(is_ours)?;
    let identity = |stat: &Stat| (stat.st_dev, stat.st_ino);
    if identity(&before) != identity(&named) || identity(&named) != identity(&after) {
        return None;
    }
    fchown(&file, Some(Uid::from_raw(database.st_uid)), Some(Gid::from_raw(database.st_gid))).ok()
}

/// True if a file of these attributes can be one that root's Weft made.
fn is_ours(stat: &Stat) -> bool {
    let is_as_made = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => stat.st_nlink == 1 && stat.st_mode & 0o7177 == 0,
        FileType::Directory => stat.st_mode & 0o7077 == 0,
        _ => false,
    };
    is_as_made && stat.st_uid == 0
}
