//! Names that an inode had, from the one that it has now back to earlier commits.
//!
//! No table finds the names of an inode in the past. Its name at a commit is mostly the one that it
//! had at a later one, which a look by key tells. Where it is not, the commit that gave the name is
//! found by halving, and the name before among those that this commit took away.

use std::collections::HashMap;
use weft_store::{CommitNo, Ino, KeptCommits, Kind, Name, Result, Store};

/// Inodes of one commit among which a directory is looked for that an inode was moved from.
const CHANGED_MAX: usize = 4096;

/// Names that are gone through between two commits.
const RENAMES_MAX: usize = 256;

/// Versions without a name behind the last one that had some.
const NAMELESS_MAX: usize = 256;

/// Names of a path.
const DEPTH_MAX: usize = 4096;

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::command) struct Place {
    pub(in crate::command) directory: Ino,
    pub(in crate::command) name: Name,
}

/// A name of an inode, and one of the commits as of which it had that.
#[derive(Clone)]
pub(super) struct Known {
    pub(super) place: Place,
    pub(super) commit: CommitNo,
}

/// A name that an inode had before.
pub(super) struct Earlier {
    pub(super) place: Place,
    /// True if it was renamed since: the name is gone.
    pub(super) was_renamed: bool,
}

/// A look back at names.
pub(in crate::command) struct Names<'a> {
    store: &'a dyn Store,
    kept: &'a KeptCommits,
    /// The earliest known names of directories.
    directories: HashMap<Ino, Known>,
}

impl<'a> Names<'a> {
    pub(in crate::command) fn new(store: &'a dyn Store, kept: &'a KeptCommits) -> Names<'a> {
        Names { store, kept, directories: HashMap::new() }
    }

    /// The path of `place` as of `commit`, which is kept and not later than those asked about
    /// before. None if it cannot be told.
    pub(in crate::command) fn path(&mut self, place: &Place, commit: CommitNo) -> Result<Option<Vec<u8>>> {
        let mut names = vec![place.name.as_bytes().to_vec()];
        let mut at = place.directory;
        while at != Ino::ROOT {
            let Some(above) = self.directory(at, commit)?.filter(|_| names.len() < DEPTH_MAX) else { return Ok(None) };
            names.push(above.name.as_bytes().to_vec());
            at = above.directory;
        }
        names.reverse();
        Ok(Some(names.join(&b'/')))
    }

    /// The name that `ino` had as of `commit`, which is kept and not later than when it had the one
    /// that is known. None if it cannot be told.
    pub(super) fn earlier(&self, ino: Ino, known: &Known, commit: CommitNo) -> Result<Option<Earlier>> {
        let mut earlier = Earlier { place: known.place.clone(), was_renamed: false };
        let mut at = self.kept.position(known.commit);
        for _ in 0..RENAMES_MAX {
            if self.is_named(commit, ino, &earlier.place)? {
                return Ok(Some(earlier));
            }
            let Some([before, after]) = self.given(ino, &earlier.place, [self.kept.position(commit), at])? else {
                break;
            };
            let Some(found) = self.before(ino, &earlier.place, (before, after))? else { break };
            earlier = Earlier { was_renamed: earlier.was_renamed || found.was_renamed, ..found };
            at = self.kept.position(before);
        }
        Ok(None)
    }

    fn is_named(&self, commit: CommitNo, ino: Ino, place: &Place) -> Result<bool> {
        Ok(self.store.name_at(commit, place.directory, &place.name)?.is_some_and(|entry| entry.ino == ino))
    }

    /// Kept commits, one after the other, of which the first one does not have `ino` at `place` and
    /// the second one has: between positions of kept commits of which that is so.
    pub(super) fn given(
        &self,
        ino: Ino,
        place: &Place,
        [mut without, mut with]: [u64; 2],
    ) -> Result<Option<[CommitNo; 2]>> {
        while with.saturating_sub(without) > 1 {
            let middle = without.midpoint(with);
            let Some(commit) = self.kept.at(middle) else { return Ok(None) };
            match self.is_named(commit, ino, place)? {
                true => with = middle,
                false => without = middle,
            }
        }
        Ok(self
            .kept
            .at(without)
            .zip(self.kept.at(with))
            .map(|(without, with)| [without, with])
            .filter(|_| without < with))
    }

    /// The name of `ino` as of `before`, after which a commit gave it `place`.
    fn before(&self, ino: Ino, place: &Place, (before, after): (CommitNo, CommitNo)) -> Result<Option<Earlier>> {
        let mut directories = vec![place.directory];
        // The row of a directory tells where it lay.
        directories.extend(self.store.row_at(before, ino)?.map(|(row, _)| row.parent));
        if let Some(place) = self.taken_from(ino, &directories, (before, after))? {
            return Ok(Some(Earlier { place, was_renamed: true }));
        }
        for (directory, name) in self.store.names_of(ino)? {
            let place = Place { directory, name };
            if self.is_named(before, ino, &place)? {
                return Ok(Some(Earlier { place, was_renamed: false }));
            }
        }
        let changed = self.changed_directories((before, after))?;
        if let Some(place) = self.taken_from(ino, &changed, (before, after))? {
            return Ok(Some(Earlier { place, was_renamed: true }));
        }
        // Another name that it kept for a while.
        let kept = self.taken_from(ino, &directories, (before, self.kept.last()))?;
        Ok(kept.map(|place| Earlier { place, was_renamed: false }))
    }

    /// Directories that changed between two commits, as far as they are not very many.
    fn changed_directories(&self, (before, after): (CommitNo, CommitNo)) -> Result<Vec<Ino>> {
        let mut directories = self.store.changed_inodes((before, after))?;
        directories.truncate(CHANGED_MAX);
        let mut found = Vec::new();
        for ino in directories {
            let row = self.store.row_at(before, ino)?;
            found.extend(row.filter(|(row, _)| row.kind == Kind::Directory).map(|(row, _)| row.ino));
        }
        Ok(found)
    }

    /// A name of `ino` in one of `directories` that was taken away between two commits.
    fn taken_from(&self, ino: Ino, directories: &[Ino], between: (CommitNo, CommitNo)) -> Result<Option<Place>> {
        for directory in directories.iter().copied() {
            if let Some(name) = self.taken(ino, directory, between)? {
                return Ok(Some(Place { directory, name }));
            }
        }
        Ok(None)
    }

    /// A name of `ino` in `directory` that was taken away between two commits.
    fn taken(&self, ino: Ino, directory: Ino, (before, after): (CommitNo, CommitNo)) -> Result<Option<Name>> {
        for (name, now) in self.store.changed_names((before, after), directory)? {
            let place = Place { directory, name };
            if now.is_none_or(|now| now.ino != ino) && self.is_named(before, ino, &place)? {
                return Ok(Some(place.name));
            }
        }
        Ok(None)
    }

    /// The name of directory `ino` as of `commit`.
    fn directory(&mut self, ino: Ino, commit: CommitNo) -> Result<Option<Place>> {
        let known = match self.directories.get(&ino).filter(|known| known.commit >= commit) {
            Some(known) => Some(known.clone()),
            None => self.last_known(ino, None)?,
        };
        let Some(known) = known.filter(|known| known.commit >= commit) else { return Ok(None) };
        let Some(earlier) = self.earlier(ino, &known, commit)? else { return Ok(None) };
        self.directories.insert(ino, Known { place: earlier.place.clone(), commit });
        Ok(Some(earlier.place))
    }

    /// The last name of `ino`, which lay in directory `near` before, as far as it can be told.
    pub(super) fn last_known(&self, ino: Ino, near: Option<Ino>) -> Result<Option<Known>> {
        let last = self.kept.last();
        if let Some((directory, name)) = self.store.names_of(ino)?.into_iter().next() {
            return Ok(Some(Known { place: Place { directory, name }, commit: last }));
        }
        // It is gone: the commit that left it without a name took that. Itself it may have been
        // there longer, as long as a program had it open.
        let versions = self.store.versions(ino, last.next(), NAMELESS_MAX)?;
        let Some((row, held)) = versions.into_iter().find(|(row, _)| row.nlink > 0) else { return Ok(None) };
        let Some(before) = self.kept.last_of(&held) else { return Ok(None) };
        let Some(after) = self.kept.at(self.kept.position(before) + 1) else { return Ok(None) };
        let likely: Vec<_> = near.into_iter().chain([row.parent]).collect();
        let place = match self.taken_from(ino, &likely, (before, after))? {
            Some(place) => Some(place),
            None => self.taken_from(ino, &self.changed_directories((before, after))?, (before, after))?,
        };
        Ok(place.map(|place| Known { place, commit: before }))
    }
}
