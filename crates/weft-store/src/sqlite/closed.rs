//! Closing the files of a volume to other users.
//!
//! New files are made so (`crate::files`); those of volumes that older programs made, or that were
//! copied in a hurry, may be open. A user who can read the database, the logs or the segments reads
//! all of the volume; one who can open the lock can hold the volume, and keep its owner out.

use super::layout::{Layout, beside};
use super::open::check_file;
use crate::files;
use crate::user::user_of_files;
use rustix::fs::{AtFlags, CWD, FileType, Mode};
use std::path::{Path, PathBuf};

/// The treatment of files that are open to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// Only tell of them.
    Look,
    /// Close those that belong to the user by whose rights the volume is used.
    Close,
}

/// Permissions of anybody but the owner.
const OTHERS: u32 = 0o077;

/// Closes the files of the volume at `path` to other users, or looks which are open. Tells it in
/// lines for the user: one of what was closed, one of what is open still.
pub fn close_to_others(path: &Path, closing: Closing) -> Vec<String> {
    // What is no volume is nobody's business here.
    let entered = Layout::enter(path).ok();
    let Some((layout, _rights)) = entered.filter(|(layout, _)| check_file(layout).is_ok()) else { return Vec::new() };
    let open: Vec<_> = files_of(&layout).into_iter().filter(|path| is_open(path)).collect();
    let is_closed = |path: &&PathBuf| closing == Closing::Close && close(path).is_ok();
    let (closed, left): (Vec<&PathBuf>, Vec<&PathBuf>) = open.iter().partition(is_closed);
    let closed = told(&closed).map(|files| format!("closed to other users, who had access to it: {files}"));
    let left = told(&left).map(|files| {
        format!(
            "open to other users, who can read what is in the volume or keep it from being mounted: {files}; \
             its owner closes it by 'chmod go= FILE', 'weft mount' or 'weft check --repair'"
        )
    });
    closed.into_iter().chain(left).collect()
}

/// Names the first of `paths`, and counts the others.
pub(super) fn told(paths: &[&PathBuf]) -> Option<String> {
    let first = paths.first()?.display();
    Some(if paths.len() == 1 { first.to_string() } else { format!("{first} and {} more", paths.len() - 1) })
}

/// Returns the volume's files: those in its directory, or those beside its database.
fn files_of(layout: &Layout) -> Vec<PathBuf> {
    let database = &layout.database;
    let Some(segments) = &layout.segments else {
        let logs = [layout.log.clone(), database.with_added_extension("log")];
        let own = ["", "-wal", "-shm"].map(|suffix| beside(database, suffix));
        return own.into_iter().chain(logs).collect();
    };
    let mut files = layout.log.parent().map(entries).unwrap_or_default();
    // A person may have put others there.
    files.retain(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(is_own_name));
    // Nobody gets at what is in a closed one, and there may be thousands.
    if is_open(segments) {
        files.extend(entries(segments));
    }
    files
}

/// True if a file in the directory of a volume with this name is the volume's: with what SQLite
/// adds, and copies that were set aside.
fn is_own_name(name: &str) -> bool {
    matches!(name, "lock" | "segments" | "weft.log") || name.starts_with("meta.sqlite") || name.starts_with("intents")
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory);
    let mut entries: Vec<_> = entries.into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    entries
}

fn is_open(path: &Path) -> bool {
    rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| {
        let kind = FileType::from_raw_mode(stat.st_mode);
        matches!(kind, FileType::RegularFile | FileType::Directory) && stat.st_mode & OTHERS != 0
    })
}

/// Closes a file of the user by whose rights the volume is used that has no second name, which
/// could be anything.
fn close(path: &Path) -> rustix::io::Result<()> {
    let file = files::open_any(path)?;
    let stat = rustix::fs::fstat(&file)?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if stat.st_uid != user_of_files() || is_file && stat.st_nlink > 1 {
        return Err(rustix::io::Errno::PERM);
    }
    rustix::fs::fchmod(&file, Mode::from_raw_mode(stat.st_mode & 0o7777 & !OTHERS))
}
