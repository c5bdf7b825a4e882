//! Listing directories: the store's entries in cookie order, corrected by what changed since.

use crate::refusal::Refusal;
use crate::state::State;
use crate::volume::Vfs;
use std::ops::Bound;
use weft_store::{Cookie, Ino, Kind, NameRow};
use weft_tree::{Attributes, Caller, DirEntry, ErrorKind, LISTED_MAX, Result, Stop, is_past, is_virtual};

/// Entries that are put together while the state is locked once, however many are asked for.
/// Directories of which all entries are kept have fewer.
const PAGE: usize = 2 * LISTED_MAX;

/// Entries whose attributes are looked up while the state is locked once. Who takes a lock for each
/// waits as often for others, and who takes one for all has them wait.
const LOOKED_UP: usize = 64;

impl Vfs {
    /// Up to `limit` entries of directory `ino` after the one at `after` (`Cookie(0)`: from the
    /// start), in cookie order; fewer only at the end, or where entries of the directory are
    /// damaged: then none are left after them but `Corrupt`. An entry that exists all the while is
    /// listed exactly once, whatever else changes between the calls.
    pub fn read_directory(&self, ino: Ino, after: Cookie, limit: usize) -> Result<Vec<DirEntry>> {
        if is_past(ino) {
            return self.past_list(ino, after, limit);
        }
        let mut listed = Vec::new();
        let mut after = after;
        if i64::try_from(after.0).is_err() {
            // A position that no entry has; the store's numbers are signed.
            return Ok(listed);
        }
        while listed.len() < limit {
            let wanted = limit - listed.len();
            let (page, more) = match self.read_page(ino, after, wanted) {
                Err(Refusal::Opaque) => return self.opaque.list(self, ino, after, limit),
                // Whoever goes on after those that are listed comes to it.
                Err(Refusal::Error(error)) if error.kind() == ErrorKind::Corrupt && !listed.is_empty() => break,
                page => page?,
            };
            listed.extend(page.into_iter().map(|entry| self.as_listed(entry)));
            match more {
                Some(cookie) => after = cookie,
                None => break,
            }
        }
        self.read_moves_atime(ino);
        Ok(listed)
    }

    /// `entry` with the kind that programs see: a directory for a view, a file for any other link.
    /// Walkers of trees go by it, and would pass a view by.
    fn as_listed(&self, entry: DirEntry) -> DirEntry {
        if entry.kind != Kind::Transformation {
            return entry;
        }
        // Whoever asks for one that is damaged is told. It must not hide the others.
        let is_view = self.run(|state| state.looks_like_directory(entry.ino)).unwrap_or(false);
        DirEntry { kind: if is_view { Kind::Directory } else { Kind::File }, ..entry }
    }

    /// One page: its entries, and where to go on unless this was the end.
    fn read_page(&self, ino: Ino, after: Cookie, limit: usize) -> Result<(Vec<DirEntry>, Option<Cookie>), Refusal> {
        let limit = limit.min(PAGE);
        loop {
            let asks = |state: &mut State| -> Result<usize, Stop> {
                let directory = state.tree.directory(ino)?;
                let listed = directory.directory.as_ref().is_some_and(|directory| directory.listed);
                // One that is kept is read at once, however few entries are wanted first.
                let is_kept = after == Cookie(0) && directory.row.size <= LISTED_MAX as u64;
                Ok(match directory.stored && !listed {
                    true if is_kept => limit.max(directory.row.size as usize + 1),
                    true => limit,
                    false => 0,
                })
            };
            let (finished, asked) = self.try_run(|state| Ok((state.tree.finished, asks(state)?)))?;
            let stored = asked > 0;
            if stored {
                self.may_read_rows()?;
            }
            let rows = if stored { self.stored_names(ino, after, asked)? } else { Vec::new() };
            let page = self.try_run(|state| {
                // What was known in full may have been forgotten.
                if state.tree.finished != finished || (!stored && asks(state)? > 0) {
                    return Ok(None);
                }
                let is_end = stored && rows.len() < asked;
                let may_lack_some = is_end && (after != Cookie(0) || !state.tree.learn_list(ino, &rows)?);
                let until = rows.last().filter(|_| !is_end).map(|last| last.cookie);
                Ok(Some((state.merge(ino, (after, until), &rows, limit)?, may_lack_some)))
            })?;
            let Some(((listed, more), may_lack_some)) = page else { continue };
            let asked = if may_lack_some { self.refuse_missing_names(ino, u64::MAX) } else { Ok(()) };
            return match (asked, listed.last()) {
                // The error comes after them.
                (Err(error), Some(last)) if error.kind() == ErrorKind::Corrupt => {
                    let last = last.cookie;
                    Ok((listed, Some(last)))
                }
                (asked, _) => Ok(asked.map(|()| (listed, more))?),
            };
        }
    }

    /// Entries of the store as by its `names`; without those that are damaged, which must not hide
    /// the others.
    fn stored_names(&self, ino: Ino, after: Cookie, limit: usize) -> Result<Vec<NameRow>> {
        match self.store.names(ino, after, limit) {
            Err(error) if error.kind() == weft_store::ErrorKind::Corrupt => {
                if let Some(known) = self.state.lock().tree.inodes.get(&ino).and_then(|inode| inode.directory.as_mut())
                {
                    // At the end the store is asked again.
                    known.is_whole = false;
                }
                Ok(self.store.whole_names(ino, after, limit)?)
            }
            rows => Ok(rows?),
        }
    }

    /// The same with attributes, where they are at hand. Each inode with them is held once more if
    /// `caller.holds`.
    pub fn read_directory_attributes(
        &self,
        caller: Caller,
        ino: Ino,
        after: Cookie,
        limit: usize,
    ) -> Result<Vec<(DirEntry, Option<Attributes>)>> {
        if is_past(ino) {
            return self.past_list_attributes(caller, ino, after, limit);
        }
        let entries = self.read_directory(ino, after, limit)?;
        let mut found = Vec::with_capacity(entries.len());
        while found.len() < entries.len() {
            let until = entries.len().min(found.len() + LOOKED_UP);
            // What stops for something to be fetched goes on where it was.
            let looked_up = self.run(|state| {
                while found.len() < until {
                    found.push(state.listed_attributes(caller, &entries[found.len()])?);
                }
                Ok(())
            });
            match looked_up {
                // Whoever asks for what is damaged is told. It must not hide the others.
                Err(error) if matches!(error.kind(), ErrorKind::Stale | ErrorKind::Corrupt) => found.push(None),
                looked_up => looked_up?,
            }
        }
        Ok(entries.into_iter().zip(found).collect())
    }

    /// Attributes of what `entry` names, which is held once more if `caller.holds`; none if it was
    /// removed since it was listed or is damaged, and of opaque inodes: who lists them need
    /// not wait until each was computed.
    pub(crate) fn listed_attributes(&self, caller: Caller, entry: &DirEntry) -> Result<Option<Attributes>> {
        match self.run(|state| state.listed_attributes(caller, entry)) {
            Err(error) if matches!(error.kind(), ErrorKind::Stale | ErrorKind::Corrupt) => Ok(None),
            attributes => attributes,
        }
    }
}

impl State {
    /// As [`Vfs::listed_attributes`]. `Stale`, `Corrupt`.
    fn listed_attributes(&mut self, caller: Caller, entry: &DirEntry) -> Result<Option<Attributes>, Stop> {
        if is_virtual(entry.ino) {
            return Ok(None);
        }
        let inode = self.tree.inode(entry.ino)?;
        if inode.row.kind == Kind::Transformation {
            return Ok(None);
        }
        let attributes = inode.attributes();
        self.tree.hold_by(caller, entry.ino);
        Ok(Some(attributes))
    }

    /// Up to `limit` entries after `after` that memory and `rows` give together, which are all of
    /// the store's up to `until`, or to the end.
    fn merge(
        &mut self,
        ino: Ino,
        (after, until): (Cookie, Option<Cookie>),
        rows: &[NameRow],
        limit: usize,
    ) -> Result<(Vec<DirEntry>, Option<Cookie>), Stop> {
        let inode = self.tree.directory(ino)?;
        let mut listed: Vec<DirEntry> = Vec::with_capacity(rows.len());
        let overlay = inode.directory.as_deref();
        let gone = |cookie: &Cookie| {
            overlay.is_some_and(|known| known.removed.contains_key(cookie) || known.added.contains_key(cookie))
        };
        for row in rows.iter().filter(|row| !gone(&row.cookie)) {
            listed.push(DirEntry { name: row.name.clone(), ino: row.ino, kind: row.kind, cookie: row.cookie });
        }
        let mut more = until;
        let until = until.map_or(Bound::Unbounded, Bound::Included);
        let mut added = 0;
        if let Some(known) = overlay {
            for (cookie, entry) in known.added.range((Bound::Excluded(after), until)).take(limit + 1) {
                added += 1;
                listed.push(DirEntry { name: entry.name.clone(), ino: entry.ino, kind: entry.kind, cookie: *cookie });
            }
        }
        if added > 0 {
            listed.sort_by_key(|entry| entry.cookie);
        }
        if listed.len() > limit {
            listed.truncate(limit);
            more = listed.last().map(|entry| entry.cookie);
        }
        Ok((listed, more))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::options::Options;
    use std::sync::Arc;
    use weft_store::VolumeOptions;
    use weft_testkit::CrashStore;
    use weft_tree::MakeNode;

    /// Attack: a user lists a large directory with a large buffer, again and again.
    #[test]
    fn however_much_is_listed_the_state_is_locked_for_a_page_at_a_time() {
        let store = Arc::new(CrashStore::new(VolumeOptions::default()));
        let options = Options { background: false, ..Options::default() };
        let vfs = Vfs::open(store, None, options, Arc::new(ManualClock::default())).expect("opens");
        let count = PAGE + 10;
        for i in 0..count {
            let node = MakeNode { kind: Kind::File, permissions: 0o644, umask: 0, rdev: 0 };
            vfs.make(Caller::ROOT, Ino::ROOT, format!("{i}").as_bytes(), node).expect("made");
        }
        // As they are in memory, and as they are in the store.
        for _ in 0..2 {
            let (page, more) = vfs.read_page(Ino::ROOT, Cookie(0), usize::MAX >> 1).expect("listed");
            assert!(page.len() == PAGE && more == page.last().map(|entry| entry.cookie));
            let all = vfs.read_directory(Ino::ROOT, Cookie(0), 2 * count).expect("listed");
            assert!(all.len() == count && all.is_sorted_by_key(|entry| entry.cookie));
            let looked_up = vfs.read_directory_attributes(Caller::ROOT, Ino::ROOT, Cookie(0), 2 * count);
            let looked_up = looked_up.expect("listed");
            assert!(looked_up.iter().all(|(entry, found)| found.is_some_and(|found| found.ino == entry.ino)));
            vfs.commit().expect("committed");
        }
    }
}
