//! The last kept commit that has a path, or had the same in the directory that is at its end now.

use super::path::{VolumePath, shown};
use super::rows::Rows;
use super::{Restoring, refused};
use rustc_hash::FxHashSet;
use std::collections::BTreeSet;
use std::ops::Range;
use weft_store::{CommitNo, Cookie, Ino, InodeRow, KeptCommits, Kind, Name, NameRow, Store, no_history};

/// Versions of a directory that are read at once.
const VERSIONS_READ: usize = 256;

/// Entries of a directory that are read at once.
const NAMES_READ: usize = 1 << 14;

/// Entries that are compared to find out when a removal began.
const NAMES_MAX: usize = 1 << 21;

/// Versions of directories that are looked at, before a moment has to be named.
const VERSIONS_MAX: usize = 100_000;

/// Commits in which a directory was emptied, at most.
const EMPTYING_MAX: usize = 256;

/// Time between two commits of one removal, at most, in nanoseconds: a commit is put off by up to
/// ten seconds where programs sync often.
const BETWEEN: i64 = 15_000_000_000;

/// Something that was deleted, by the way to it.
pub(super) enum Deleted {
    /// It was at the path.
    AtPath,
    /// It was in this directory, which lay elsewhere then and is on the path now.
    In(Ino),
}

impl Deleted {
    /// Its entry in `rows`, by its `path`.
    pub(super) fn entry(&self, rows: Rows<'_>, path: &VolumePath) -> weft_store::Result<Option<NameRow>> {
        match (self, path.split()) {
            (Deleted::In(directory), Some((_, name))) => rows.name(*directory, name),
            (Deleted::AtPath | Deleted::In(_), _) => rows.entry(path.names()),
        }
    }
}

/// Finds the last kept commit that has `path` whole, or what its directory had of that name where
/// it lay before. Refused if there is none.
///
/// The removal of a directory with much in it takes several commits, each of which leaves less. The
/// one before them is meant, but not one before something that stayed was changed.
pub(super) fn commit_with(store: &dyn Store, path: &VolumePath) -> Restoring<(CommitNo, Deleted)> {
    let (last, deleted) = last_deleted(store, path)?;
    let Some(entry) = deleted.entry(Rows::new(store, last), path)? else { return Ok((last, deleted)) };
    if entry.kind != Kind::Directory {
        return Ok((last, deleted));
    }
    let (mut whole, mut names, mut at) = (last, names_below(store, last, entry.ino)?, last);
    let time = |commit: CommitNo| -> Restoring<Option<i64>> { Ok(store.commit_row(commit)?.map(|row| row.time.0)) };
    let mut emptied_at = time(last)?;
    for _ in 0..EMPTYING_MAX {
        let Some(before) = at.0.checked_sub(1).map(CommitNo) else { break };
        let (Some(now), Some(made)) = (emptied_at, time(before)?) else { break };
        if now.saturating_sub(made) > BETWEEN || !store.is_kept(before)? {
            break;
        }
        let is_it = deleted.entry(Rows::new(store, before), path)?.is_some_and(|found| found.ino == entry.ino);
        if !is_it {
            break;
        }
        let more = names_below(store, before, entry.ino)?;
        if !names.is_subset(&more) || is_changed(store, &names, (before, at))? {
            break;
        }
        if more.len() > names.len() {
            (whole, names, emptied_at) = (before, more, Some(made));
        }
        at = before;
    }
    Ok((whole, deleted))
}

/// Finds the last kept commit that has something at `path`, or had it in the directory that is on
/// the path now, whichever is later.
fn last_deleted(store: &dyn Store, path: &VolumePath) -> Restoring<(CommitNo, Deleted)> {
    let mut search = Search::begin(store)?;
    let all = search.all();
    let at_path = search.find(Ino::ROOT, path.names(), all.clone())?;
    let now = Rows::new(store, search.kept.last());
    if let Some((way, name)) = path.split()
        && let Some(directory) = now.entry(way)?.filter(|entry| entry.kind == Kind::Directory)
        && let Some(last) = search.find(directory.ino, std::slice::from_ref(name), all)?
        && at_path.is_none_or(|at_path| last > at_path)
    {
        // Its number may have been another one's.
        let [then, now] = [Rows::new(store, last), now].map(|rows| rows.existing(directory.ino));
        if then?.generation == now?.generation {
            return Ok((last, Deleted::In(directory.ino)));
        }
    }
    match at_path {
        Some(commit) => Ok((commit, Deleted::AtPath)),
        None => refused(format!("no commit that is kept has {}", shown(path.names()))),
    }
}

/// True if something that has one of `names` was changed after `before` up to `at`, by more than
/// the removal of others: that takes entries from directories and links from files.
fn is_changed(
    store: &dyn Store,
    names: &FxHashSet<(Ino, Name, Ino)>,
    (before, at): (CommitNo, CommitNo),
) -> Restoring<bool> {
    let staying = names.iter().map(|(_, _, ino)| *ino).collect::<FxHashSet<_>>();
    let own = |row: &InodeRow| {
        let content = (row.kind != Kind::Directory).then_some((row.size, row.mtime));
        (content, row.permissions, row.uid, row.gid, row.xattrs)
    };
    for ino in store.changed_inodes((before, at))?.into_iter().filter(|ino| staying.contains(ino)) {
        let [then, now] = [before, at].map(|commit| store.row_at(commit, ino));
        if then?.map(|(row, _)| own(&row)) != now?.map(|(row, _)| own(&row)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The entries below `directory` as of `commit`, as far as they are not very many.
fn names_below(store: &dyn Store, commit: CommitNo, directory: Ino) -> Restoring<FxHashSet<(Ino, Name, Ino)>> {
    let (mut names, mut left) = (FxHashSet::default(), vec![directory]);
    while let Some(directory) = left.pop() {
        let mut after = Cookie(0);
        loop {
            let page = store.names_at(commit, directory, after, NAMES_READ)?;
            let Some(last) = page.last() else { break };
            after = last.cookie;
            left.extend(page.iter().filter(|entry| entry.kind == Kind::Directory).map(|entry| entry.ino));
            names.extend(page.into_iter().map(|entry| (directory, entry.name, entry.ino)));
            if names.len() > NAMES_MAX {
                return Ok(FxHashSet::default());
            }
        }
    }
    Ok(names)
}

/// Returns the last kept commit of `store` that has something at `path`. Refused if there is none,
/// and if no history is kept.
pub fn last_commit_with(store: &dyn Store, path: &[u8]) -> Restoring<CommitNo> {
    last_with(store, &VolumePath::parse(path)?)
}

/// Finds the last kept commit that has something at `path`.
pub(super) fn last_with(store: &dyn Store, path: &VolumePath) -> Restoring<CommitNo> {
    let mut search = Search::begin(store)?;
    let all = search.all();
    match search.find(Ino::ROOT, path.names(), all)? {
        Some(commit) => Ok(commit),
        None => refused(format!("no commit that is kept has {}", shown(path.names()))),
    }
}

/// What is kept of the past of a volume, to be searched.
pub(super) struct Search<'a> {
    store: &'a dyn Store,
    pub(super) kept: KeptCommits,
    looked_at: usize,
}

impl<'a> Search<'a> {
    /// Begins to search `store`. Refused if it keeps no history.
    pub(super) fn begin(store: &'a dyn Store) -> Restoring<Search<'a>> {
        let kept = KeptCommits::of(store)?.ok_or_else(no_history)?;
        Ok(Search { store, kept, looked_at: 0 })
    }

    /// All commits.
    fn all(&self) -> Range<CommitNo> {
        CommitNo(0)..self.kept.last().next()
    }

    /// The last kept commit in `within` as of which `path` leads somewhere from `directory`, which
    /// is there all that time or has no rows.
    fn find(&mut self, directory: Ino, path: &[Name], within: Range<CommitNo>) -> Restoring<Option<CommitNo>> {
        let Some((name, rest)) = path.split_first() else { return Ok(self.kept.last_of(&within)) };
        // The present version is not among those that were replaced.
        let mut until = within.end;
        if let Some(last) = self.kept.last_of(&within)
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
        let Some(last) = self.kept.last_of(held) else { return Ok(None) };
        match Rows::new(self.store, last).name(directory, name)? {
            Some(_) if rest.is_empty() => Ok(Some(last)),
            Some(entry) if entry.kind == Kind::Directory => self.find(entry.ino, rest, held.clone()),
            Some(_) | None => Ok(None),
        }
    }
}

/// The regular files that had the name `path` as of kept commits.
pub(super) fn files_at(store: &dyn Store, path: &VolumePath) -> Restoring<Vec<Ino>> {
    let mut search = Search::begin(store)?;
    let (all, mut files) = (search.all(), BTreeSet::new());
    search.collect(Ino::ROOT, path.names(), &all, &mut files)?;
    Ok(files.into_iter().collect())
}

impl Search<'_> {
    /// Adds the files at `path` from `directory` as of kept commits in `within`.
    fn collect(
        &mut self,
        directory: Ino,
        path: &[Name],
        within: &Range<CommitNo>,
        files: &mut BTreeSet<Ino>,
    ) -> Restoring<()> {
        let Some((name, rest)) = path.split_first() else { return Ok(()) };
        for held in self.times_of(directory, within)? {
            self.looked_at += 1;
            if self.looked_at > VERSIONS_MAX {
                return refused("the directories on the way have changed too often".into());
            }
            let Some(last) = self.kept.last_of(&held) else { continue };
            match Rows::new(self.store, last).name(directory, name)? {
                Some(entry) if rest.is_empty() && entry.kind == Kind::File => drop(files.insert(entry.ino)),
                Some(entry) if entry.kind == Kind::Directory => self.collect(entry.ino, rest, &held, files)?,
                Some(_) | None => {}
            }
        }
        Ok(())
    }

    /// The times in `within` in each of which the entries of `directory` did not change.
    fn times_of(&self, directory: Ino, within: &Range<CommitNo>) -> Restoring<Vec<Range<CommitNo>>> {
        let (mut times, mut until) = (Vec::new(), within.end);
        if let Some((_, since)) = Rows::new(self.store, self.kept.last()).inode(directory)? {
            times.push(since..self.kept.last().next());
        }
        loop {
            let versions = self.store.versions(directory, until, VERSIONS_READ)?;
            let Some((_, oldest)) = versions.last() else { break };
            until = oldest.start;
            times.extend(versions.into_iter().map(|(_, held)| held));
        }
        let cut = |held: Range<CommitNo>| held.start.max(within.start)..held.end.min(within.end);
        Ok(times.into_iter().map(cut).filter(|held| !held.is_empty()).collect())
    }
}
