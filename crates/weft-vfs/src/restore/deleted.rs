//! Names that were deleted below a directory, and can still be had.
//!
//! A directory has another version for each commit that changed its entries, so the names that were
//! deleted are those that one version has and the next one has not. What had another name after
//! that was moved, not deleted. All is looked up by keys; the work is that of the directories below
//! the one asked for, there now or not, and of their versions.

use super::newest::{self, Search};
use super::path::{VolumePath, shown};
use super::rows::Rows;
use super::{Restoring, refused};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cmp::{Ordering, Reverse};
use std::collections::BTreeSet;
use std::ops::Range;
use weft_store::{CommitNo, Cookie, Generation, Ino, InodeRow, Kind, Name, NameRow, Store};

/// Versions of a directory that are read at once.
const VERSIONS_READ: usize = 256;

/// Entries of a directory that are read at once.
const NAMES_READ: usize = 1 << 12;

/// Versions of directories that are compared, in all.
const VERSIONS_MAX: usize = 1 << 20;

/// Directories that are found and not looked at yet.
const WAITING_MAX: usize = 1 << 18;

/// Directories that are gone and are told apart.
const LOOKED_MAX: usize = 1 << 20;

/// Deleted names of one directory that are told apart.
const NAMES_MAX: usize = 1 << 20;

/// A name that was deleted, and can still be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletedName {
    /// The first commit that is known not to have it.
    pub gone: CommitNo,
    /// The path from the directory asked about.
    pub path: Vec<u8>,
    /// The last kept commit that has it.
    pub last: CommitNo,
    /// The directory that it was in.
    pub directory: Ino,
    /// Its name there.
    pub name: Name,
    /// True if `last` has it at `path`. Else a directory on the way lay elsewhere then.
    pub is_at_path: bool,
    /// True if it named a directory.
    pub is_directory: bool,
    /// Length of the file in bytes, or the number of the directory's entries.
    pub size: u64,
}

impl DeletedName {
    fn order(&self) -> impl Ord + '_ {
        (self.gone, Reverse(&self.path), self.last, self.directory, self.is_at_path, &self.name)
    }
}

impl Ord for DeletedName {
    /// Those that were deleted later are greater; of one commit, a directory is greater than what
    /// lay in it, so that it is told first.
    fn cmp(&self, other: &DeletedName) -> Ordering {
        self.order().cmp(&other.order())
    }
}

impl PartialOrd for DeletedName {
    fn partial_cmp(&self, other: &DeletedName) -> Option<Ordering> {
        Some(self.cmp(other))
    }
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
    let now = Rows::new(store, search.kept.last());
    let row = Rows::new(store, then).existing(top)?;
    let is_present = then == search.kept.last();
    if !is_present && is_alive(now, &row)? {
        return refused(format!("{} was moved; name it by the path that it has now", shown(path.names())));
    }
    let gone = if is_present { None } else { Some(then.next()) };
    let top =
        Directory { ino: top, generation: row.generation, path: Vec::new(), now: is_present.then_some(top), gone };
    let mut finder = Finder {
        top: path,
        was_at_path: None,
        now,
        store,
        search,
        newest: Newest { limit, names: BTreeSet::new(), by_path: FxHashMap::default(), count: 0 },
        versions: 0,
        is_complete: true,
        looked: FxHashSet::default(),
        waiting: vec![top],
    };
    while let Some(directory) = finder.waiting.pop() {
        finder.look_into(&directory)?;
    }
    let Finder { newest: Newest { names, count, .. }, is_complete, .. } = finder;
    Ok(DeletedNames { names: names.into_iter().rev().collect(), count, is_complete })
}

/// A directory to look into.
struct Directory {
    ino: Ino,
    generation: Generation,
    /// The path from the directory asked about.
    path: Vec<u8>,
    /// The directory that has this path now: itself, or another one.
    now: Option<Ino>,
    /// The commit that removed it; none if it is there.
    gone: Option<CommitNo>,
}

/// The names that were deleted last, of all that were found.
struct Newest {
    limit: usize,
    names: BTreeSet<DeletedName>,
    by_path: FxHashMap<Vec<u8>, DeletedName>,
    count: u64,
}

impl Newest {
    /// Adds a name, unless something else was deleted at its path later.
    fn add(&mut self, deleted: DeletedName) {
        match self.by_path.get(&deleted.path).filter(|_| deleted.is_at_path) {
            Some(other) if other.gone >= deleted.gone => return,
            Some(other) => drop(self.names.remove(other)),
            None => self.count += 1,
        }
        if deleted.is_at_path {
            self.by_path.insert(deleted.path.clone(), deleted.clone());
        }
        self.names.insert(deleted);
        if self.names.len() > self.limit
            && let Some(oldest) = self.names.pop_first()
            && oldest.is_at_path
        {
            self.by_path.remove(&oldest.path);
        }
    }
}

struct Finder<'a> {
    store: &'a dyn Store,
    /// The path of the directory asked about.
    top: VolumePath,
    /// The directory and the commit that were asked about last, and the answer.
    was_at_path: Option<((Ino, CommitNo), bool)>,
    search: Search<'a>,
    /// The rows of the present.
    now: Rows<'a>,
    newest: Newest,
    versions: usize,
    is_complete: bool,
    /// Directories that are gone and were found.
    looked: FxHashSet<(Ino, Generation)>,
    waiting: Vec<Directory>,
}

impl Finder<'_> {
    fn look_into(&mut self, directory: &Directory) -> Restoring<()> {
        let mut seen = FxHashSet::default();
        let mut later = None;
        let mut until = self.search.kept.last().next();
        if directory.gone.is_none() {
            self.add_present_directories(directory)?;
            if let Some((_, since)) = self.now.inode(directory.ino)? {
                later = self.search.kept.first_of(&(since..until));
                until = since;
            }
        }
        loop {
            let versions = self.store.versions(directory.ino, until, VERSIONS_READ)?;
            let Some((_, oldest)) = versions.last().cloned() else { return Ok(()) };
            for (row, held) in versions {
                self.versions += 1;
                if self.versions > VERSIONS_MAX || seen.len() > NAMES_MAX {
                    self.is_complete = false;
                    return Ok(());
                }
                // Its number was or is another one's.
                if row.generation != directory.generation {
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
        let (Some(first), Some(last)) = (self.search.kept.first_of(held), self.search.kept.last_of(held)) else {
            return Ok(None);
        };
        let then = Rows::new(self.store, last);
        match (later, directory.gone) {
            (Some(later), _) => {
                for (name, now) in self.store.changed_names((last, later), directory.ino)? {
                    // A directory may have got the name of another one, which is gone. This is not
                    // asked of files: nearly all have new names, and it takes long to tell.
                    if now.as_ref().is_some_and(|now| now.kind != Kind::Directory) {
                        continue;
                    }
                    let entry = then.name(directory.ino, &name)?;
                    if let Some(entry) = entry.filter(|entry| now.is_none_or(|now| now.ino != entry.ino)) {
                        self.add(directory, &entry, (last, later), seen)?;
                    }
                }
            }
            (None, Some(gone)) => {
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
            (None, None) => {}
        }
        Ok(Some(first))
    }

    /// Adds an entry that commit `last` has and commit `gone` has not, unless it is there again or
    /// had another name then.
    fn add(
        &mut self,
        directory: &Directory,
        entry: &NameRow,
        (last, gone): (CommitNo, CommitNo),
        seen: &mut FxHashSet<Name>,
    ) -> Restoring<()> {
        let is_directory = entry.kind == Kind::Directory;
        let is_last = seen.insert(entry.name.clone());
        if !is_last && !is_directory {
            return Ok(());
        }
        let then = Rows::new(self.store, last);
        let Some((row, _)) = then.inode(entry.ino)? else { return Ok(()) };
        // Nothing brings back a file whose content was taken out of history.
        if is_alive(self.now, &row)? || !then.forgotten(std::iter::once(&row))?.is_empty() {
            return Ok(());
        }
        let there = match directory.now {
            Some(now) => self.now.name(now, &entry.name)?,
            None => None,
        };
        // It was deleted by another name later, which is the one to tell.
        if self.is_alive_after(gone, &row)? {
            return Ok(());
        }
        let path = below(&directory.path, &entry.name);
        if is_directory && self.looked.insert((entry.ino, row.generation)) {
            // Another one may have its name now, and lack what was in it.
            let now = there.as_ref().filter(|there| there.kind == Kind::Directory).map(|there| there.ino);
            let (ino, generation, path) = (entry.ino, row.generation, path.clone());
            self.await_look(Directory { ino, generation, path, now, gone: Some(gone) });
        }
        if is_last && there.is_none() {
            let is_at_path = self.is_at_path(directory, last)?;
            let (directory, name, size) = (directory.ino, entry.name.clone(), row.size);
            self.newest.add(DeletedName { gone, path, last, directory, name, is_at_path, is_directory, size });
        }
        Ok(())
    }

    /// True if the inode whose row was `then` still had a name once `gone` was made: it was moved.
    fn is_alive_after(&self, gone: CommitNo, then: &InodeRow) -> Restoring<bool> {
        match self.search.kept.first_of(&(gone..self.search.kept.last().next())) {
            Some(after) => is_alive(Rows::new(self.store, after), then),
            None => Ok(false),
        }
    }

    /// True if `directory` had its path as of `commit`.
    fn is_at_path(&mut self, directory: &Directory, commit: CommitNo) -> Restoring<bool> {
        let asked = (directory.ino, commit);
        if let Some((_, answer)) = self.was_at_path.filter(|(before, _)| *before == asked) {
            return Ok(answer);
        }
        let way = [self.top.names(), VolumePath::parse(&directory.path)?.names()].concat();
        let found = Rows::new(self.store, commit).entry(&way)?.map_or(Ino::ROOT, |entry| entry.ino);
        let answer = found == directory.ino;
        self.was_at_path = Some((asked, answer));
        Ok(answer)
    }

    fn add_present_directories(&mut self, directory: &Directory) -> Restoring<()> {
        let mut after = Cookie(0);
        loop {
            let entries = self.store.names(directory.ino, after, NAMES_READ)?;
            let Some(last) = entries.last() else { return Ok(()) };
            after = last.cookie;
            for entry in entries.iter().filter(|entry| entry.kind == Kind::Directory) {
                let path = below(&directory.path, &entry.name);
                let (ino, generation) = (entry.ino, self.now.existing(entry.ino)?.generation);
                self.await_look(Directory { ino, generation, path, now: Some(ino), gone: None });
            }
        }
    }

    fn await_look(&mut self, directory: Directory) {
        match self.waiting.len() < WAITING_MAX && self.looked.len() < LOOKED_MAX {
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
