//! Names that were deleted below a directory, and can still be had.
//!
//! A directory has another version for each commit that changed its entries, so the names that were
//! deleted are those that one version has and the next one has not. What has another name now was
//! moved, not deleted. All is looked up by keys; the work is that of the directories below the one
//! asked for, there now or not, and of their versions.

use super::newest::{self, Search};
use super::path::{VolumePath, shown};
use super::rows::Rows;
use super::{Restoring, refused};
use rustc_hash::FxHashSet;
use std::collections::BTreeSet;
use std::ops::Range;
use weft_store::{CommitNo, Cookie, Ino, InodeRow, Kind, Name, NameRow, Store};

/// Versions of a directory that are read at once.
const VERSIONS_READ: usize = 256;

/// Entries of a directory that are read at once.
const NAMES_READ: usize = 1 << 12;

/// Versions of directories that are compared, in all.
const VERSIONS_MAX: usize = 1 << 20;

/// Directories that are found and not looked at yet.
const WAITING_MAX: usize = 1 << 18;

/// Deleted names of one directory that are told apart.
const NAMES_MAX: usize = 1 << 20;

/// A name that was deleted, and can still be had.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeletedName {
    /// The first commit that is known not to have it.
    pub gone: CommitNo,
    /// The path from the directory asked about.
    pub path: Vec<u8>,
    /// The last kept commit that has it.
    pub last: CommitNo,
    /// True if it named a directory.
    pub is_directory: bool,
    /// Length of the file in bytes, or the number of the directory's entries.
    pub size: u64,
}

/// Names that were deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletedNames {
    /// Those that were deleted last, the newest first.
    pub names: Vec<DeletedName>,
    /// All that were found.
    pub count: u64,
    /// False if there is so much to look at that some may be missing.
    pub is_complete: bool,
}

/// Finds names deleted below the directory `path` of `store`, which is there now or was at a kept
/// commit: up to `limit` of those that were deleted last. Refused if nothing kept has `path`.
pub fn deleted_names(store: &dyn Store, path: &[u8], limit: usize) -> Restoring<DeletedNames> {
    let path = VolumePath::parse(path)?;
    let then = newest::last_with(store, &path)?;
    let top = match Rows::new(store, then).entry(path.names())? {
        None => Ino::ROOT,
        Some(entry) if entry.kind == Kind::Directory => entry.ino,
        Some(_) => return refused(format!("{} is not a directory", shown(path.names()))),
    };
    let search = Search::begin(store)?;
    let now = Rows::new(store, search.last);
    let life = if then == search.last { Life::Present } else { Life::Until { last: then, gone: then.next() } };
    if life != Life::Present && is_alive(now, &Rows::new(store, then).existing(top)?)? {
        return refused(format!("{} was moved; name it by the path that it has now", shown(path.names())));
    }
    let mut finder = Finder {
        now,
        store,
        search,
        limit,
        newest: BTreeSet::new(),
        count: 0,
        versions: 0,
        is_complete: true,
        waiting: vec![Directory { ino: top, path: Vec::new(), life }],
    };
    while let Some(directory) = finder.waiting.pop() {
        finder.look_into(&directory)?;
    }
    let Finder { newest, count, is_complete, .. } = finder;
    Ok(DeletedNames { names: newest.into_iter().rev().collect(), count, is_complete })
}

/// A directory to look into.
struct Directory {
    ino: Ino,
    /// The path from the directory asked about.
    path: Vec<u8>,
    life: Life,
}

/// Time of a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    /// It is there now.
    Present,
    /// It was there until a commit.
    Until { last: CommitNo, gone: CommitNo },
}

struct Finder<'a> {
    store: &'a dyn Store,
    search: Search<'a>,
    /// The rows of the present.
    now: Rows<'a>,
    limit: usize,
    newest: BTreeSet<DeletedName>,
    count: u64,
    versions: usize,
    is_complete: bool,
    waiting: Vec<Directory>,
}

impl Finder<'_> {
    fn look_into(&mut self, directory: &Directory) -> Restoring<()> {
        if directory.life == Life::Present {
            self.add_present_directories(directory)?;
        }
        let mut seen = FxHashSet::default();
        let mut later = None;
        let mut until = self.search.last.next();
        if let Some((_, since)) = self.now.inode(directory.ino)?.filter(|_| directory.life == Life::Present) {
            later = self.search.first_kept(&(since..until));
            until = since;
        }
        loop {
            let versions = self.store.versions(directory.ino, until, VERSIONS_READ)?;
            let Some((_, oldest)) = versions.last().cloned() else { return Ok(()) };
            for (_, held) in versions {
                self.versions += 1;
                if self.versions > VERSIONS_MAX || seen.len() > NAMES_MAX {
                    self.is_complete = false;
                    return Ok(());
                }
                // Its number may belong to another one since.
                if matches!(directory.life, Life::Until { last, .. } if held.start > last) {
                    continue;
                }
                if let Some(first) = self.look_at(directory, &held, later, &mut seen)? {
                    later = Some(first);
                }
            }
            until = oldest.start;
        }
    }

    /// Finds what a version of `directory` has that the one of commit `later` has not. Returns the
    /// first kept commit that has the version.
    fn look_at(
        &mut self,
        directory: &Directory,
        held: &Range<CommitNo>,
        later: Option<CommitNo>,
        seen: &mut FxHashSet<Name>,
    ) -> Restoring<Option<CommitNo>> {
        let (Some(first), Some(last)) = (self.search.first_kept(held), self.search.last_kept(held)) else {
            return Ok(None);
        };
        let then = Rows::new(self.store, last);
        match (later, directory.life) {
            (Some(later), _) => {
                let changed = self.store.changed_names((last, later), directory.ino)?;
                for name in changed.into_iter().filter(|(_, now)| now.is_none()).map(|(name, _)| name) {
                    if let Some(entry) = then.name(directory.ino, &name)? {
                        self.add(directory, &entry, (last, later), seen)?;
                    }
                }
            }
            (None, Life::Until { gone, .. }) => {
                // All that it had went with it.
                let mut after = Cookie(0);
                loop {
                    let entries = self.store.names_at(last, directory.ino, after, NAMES_READ)?;
                    let Some(entry) = entries.last() else { break };
                    after = entry.cookie;
                    for entry in &entries {
                        self.add(directory, entry, (last, gone.max(held.end)), seen)?;
                    }
                }
            }
            (None, Life::Present) => {}
        }
        Ok(Some(first))
    }

    /// Adds an entry that commit `last` has and commit `gone` has not, unless it is there again or
    /// has another name.
    fn add(
        &mut self,
        directory: &Directory,
        entry: &NameRow,
        (last, gone): (CommitNo, CommitNo),
        seen: &mut FxHashSet<Name>,
    ) -> Restoring<()> {
        if !seen.insert(entry.name.clone()) {
            return Ok(());
        }
        let is_there = directory.life == Life::Present && self.now.name(directory.ino, &entry.name)?.is_some();
        let Some((row, _)) = Rows::new(self.store, last).inode(entry.ino)?.filter(|_| !is_there) else {
            return Ok(());
        };
        if is_alive(self.now, &row)? {
            return Ok(());
        }
        let path = below(&directory.path, &entry.name);
        let is_directory = entry.kind == Kind::Directory;
        if is_directory {
            self.await_look(Directory { ino: entry.ino, path: path.clone(), life: Life::Until { last, gone } });
        }
        self.count += 1;
        self.newest.insert(DeletedName { gone, path, last, is_directory, size: row.size });
        if self.newest.len() > self.limit {
            self.newest.pop_first();
        }
        Ok(())
    }

    fn add_present_directories(&mut self, directory: &Directory) -> Restoring<()> {
        let mut after = Cookie(0);
        loop {
            let entries = self.store.names(directory.ino, after, NAMES_READ)?;
            let Some(last) = entries.last() else { return Ok(()) };
            after = last.cookie;
            for entry in entries.iter().filter(|entry| entry.kind == Kind::Directory) {
                let path = below(&directory.path, &entry.name);
                self.await_look(Directory { ino: entry.ino, path, life: Life::Present });
            }
        }
    }

    fn await_look(&mut self, directory: Directory) {
        match self.waiting.len() < WAITING_MAX {
            true => self.waiting.push(directory),
            false => self.is_complete = false,
        }
    }
}

/// True if the inode whose row was `then` has a name in `now`.
fn is_alive(now: Rows<'_>, then: &InodeRow) -> Restoring<bool> {
    let now = now.inode(then.ino)?;
    Ok(now.is_some_and(|(now, _)| now.generation == then.generation && now.nlink > 0))
}

/// The path of `name` in the directory at `above`.
fn below(above: &[u8], name: &Name) -> Vec<u8> {
    if above.is_empty() { name.as_bytes().to_vec() } else { [above, name.as_bytes()].join(&b'/') }
}
