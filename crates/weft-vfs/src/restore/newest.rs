//! The last kept commit that has a path.

use super::path::{VolumePath, shown};
use super::rows::Rows;
use super::{Restoring, refused};
use std::ops::Range;
use weft_store::{CommitNo, Ino, Kind, Name, Store};

/// Versions of a directory that are read at once.
const VERSIONS_READ: usize = 256;

/// Versions of directories that are looked at, before a moment has to be named.
const VERSIONS_MAX: usize = 100_000;

/// Finds the last kept commit that has `path`. Refused if there is none.
pub(super) fn commit_with(store: &dyn Store, path: &VolumePath) -> Restoring<CommitNo> {
    let Some(history) = store.history()? else {
        return refused("this volume keeps no history; 'weft history set' begins one".into());
    };
    let pins = store.pins()?.into_iter().map(|pin| pin.commit).collect();
    let end = store.header()?.commit.next();
    let mut search = Search { store, first: history.first, pins, looked_at: 0 };
    match search.find(Ino::ROOT, path.names(), CommitNo(0)..end)? {
        Some(commit) => Ok(commit),
        None => refused(format!("no commit that is kept has {}", shown(path.names()))),
    }
}

struct Search<'a> {
    store: &'a dyn Store,
    first: CommitNo,
    /// Kept commits before that.
    pins: Vec<CommitNo>,
    looked_at: usize,
}

impl Search<'_> {
    /// The last kept commit of `held`.
    fn last_kept(&self, held: &Range<CommitNo>) -> Option<CommitNo> {
        let last = CommitNo(held.end.0.checked_sub(1)?);
        if last >= self.first && last >= held.start {
            return Some(last);
        }
        self.pins.iter().filter(|pin| held.contains(pin)).max().copied()
    }

    /// The last kept commit in `within` as of which `path` leads somewhere from `directory`, which
    /// is there all that time or has no rows.
    fn find(&mut self, directory: Ino, path: &[Name], within: Range<CommitNo>) -> Restoring<Option<CommitNo>> {
        let Some((name, rest)) = path.split_first() else { return Ok(self.last_kept(&within)) };
        // The present version is not among those that were replaced.
        let mut until = within.end;
        if let Some(last) = self.last_kept(&within)
            && let Some((_, since)) = Rows::new(self.store, last).inode(directory)?
        {
            let held = since.max(within.start)..within.end;
            if let Some(found) = self.find_in(directory, name, rest, &held)? {
                return Ok(Some(found));
            }
            until = held.start;
        }
        loop {
            let versions = self.store.versions(directory, until, VERSIONS_READ)?;
            let Some((_, oldest)) = versions.last().cloned() else { return Ok(None) };
            for (_, held) in versions {
                let held = held.start.max(within.start)..held.end.min(within.end);
                if held.is_empty() {
                    return Ok(None);
                }
                if let Some(found) = self.find_in(directory, name, rest, &held)? {
                    return Ok(Some(found));
                }
            }
            until = oldest.start;
        }
    }

    /// The same in a time in which the entries of `directory` do not change.
    fn find_in(
        &mut self,
        directory: Ino,
        name: &Name,
        rest: &[Name],
        held: &Range<CommitNo>,
    ) -> Restoring<Option<CommitNo>> {
        self.looked_at += 1;
        if self.looked_at > VERSIONS_MAX {
            return refused("it changed too often since it was there; name a moment with --at".into());
        }
        let Some(last) = self.last_kept(held) else { return Ok(None) };
        match Rows::new(self.store, last).name(directory, name)? {
            Some(_) if rest.is_empty() => Ok(Some(last)),
            Some(entry) if entry.kind == Kind::Directory => self.find(entry.ino, rest, held.clone()),
            Some(_) | None => Ok(None),
        }
    }
}
