//! `weft log` of a file or a directory: the versions of its inode that are kept.
//!
//! An inode is followed: each change tells the path that it had then. Behind its first version come
//! those of the inode that had the name before it.

use super::Since;
use super::names::{Known, Names, Place};
use crate::command::subject::Subject;
use crate::shown;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::HashSet;
use std::ops::Range;
use weft_digest::{Digest, hex};
use weft_store::{CommitNo, CommitRow, Ino, InodeRow, KeptCommits, Name, OpenOptions, Store};
use weft_vfs::last_commit_with;

/// Versions that are read at once.
const READ_TOGETHER: usize = 256;

/// The kind of change of a version that follows on a deletion.
const BROUGHT_BACK: &str = "brought back";

/// A version of an inode.
struct Version {
    row: InodeRow,
    /// The commits as of which it was there.
    held: Range<CommitNo>,
    digest: Option<Digest>,
}

/// A change of an inode.
struct Change {
    /// The commit that made it, and its time and others, if that is remembered.
    commit: CommitNo,
    made: Option<CommitRow>,
    /// A commit that is kept and shows it; none of a deletion.
    kept: Option<CommitNo>,
    row: InodeRow,
    digest: Option<Digest>,
    /// The kinds of change; none if the version before is not kept.
    what: Vec<&'static str>,
    /// The path as of then, as far as it can be told.
    path: Option<Vec<u8>>,
    /// The path before, if this change made it another one.
    renamed_from: Option<Vec<u8>>,
}

/// An inode whose changes are listed.
struct Followed {
    ino: Ino,
    /// The last name that is known of it; the root has none.
    last: Option<Known>,
}

impl Followed {
    /// Finds the inode that has the path of `subject` in the last commit, or had it in the last
    /// commit that had one.
    fn find(subject: &Subject, names: &Names, (store, kept): (&dyn Store, &KeptCommits)) -> Result<Followed> {
        if let Some(followed) = Followed::at(subject, store, kept.last())? {
            return Ok(followed);
        }
        let commit = last_commit_with(store, &subject.path)?;
        let thinned = "history was thinned out meanwhile; try again";
        let Followed { ino, last } = Followed::at(subject, store, commit)?.context(thinned)?;
        // It may have had another name since.
        let near = last.as_ref().map(|known| known.place.directory);
        Ok(Followed { ino, last: names.last_known(ino, near)?.or(last) })
    }

    /// The inode that has the path of `subject` as of `commit`.
    fn at(subject: &Subject, store: &dyn Store, commit: CommitNo) -> Result<Option<Followed>> {
        let mut followed = Followed { ino: Ino::ROOT, last: None };
        for name in subject.names()? {
            let name = Name::new(&name).with_context(|| format!("{} is no path", subject.shown()))?;
            let Some(entry) = store.name_at(commit, followed.ino, &name)? else { return Ok(None) };
            let last = Known { place: Place { directory: entry.parent, name }, commit };
            followed = Followed { ino: entry.ino, last: Some(last) };
        }
        Ok(Some(followed))
    }
}

/// Prints the changes of `subject` that are kept, the last first.
pub(super) fn print(subject: &Subject, since: Option<&Since>, limit: Option<usize>, as_json: bool) -> Result<()> {
    subject.commit_first("the log ends with the last commit");
    let context = || format!("cannot read volume {}", subject.location);
    let opened = subject.location.engine().open_beside(OpenOptions::default()).with_context(context)?;
    let store = &*opened.store;
    let Some(kept) = KeptCommits::of(store).with_context(context)? else {
        bail!("volume {} keeps no history; 'weft history set' begins one", subject.location)
    };
    let names = Names::new(store, &kept);
    let Followed { ino, last } = Followed::find(subject, &names, (store, &kept)).with_context(context)?;
    let asked = last.clone();
    let limit = limit.unwrap_or(usize::MAX);
    let mut listing = Listing { store, kept: &kept, names, place: last, had: Vec::new(), since, limit };
    let changes = listing.read_all(ino, asked.as_ref()).with_context(context)?;
    if as_json {
        outln!("{:#}", Value::from(changes.iter().map(Change::as_json).collect::<Vec<_>>()));
    } else {
        let mut path = Some(subject.names()?.join(&b'/'));
        for change in &changes {
            change.print(path.as_deref());
            path = change.renamed_from.clone().or_else(|| change.path.clone()).or(path);
        }
    }
    Ok(())
}

/// A name that an inode took from another one.
struct TakenOver {
    other: Ino,
    /// The last kept commit as of which the other one had it.
    before: CommitNo,
    /// The first one as of which it did not.
    by: CommitNo,
}

/// A listing of versions of an inode.
struct Listing<'a> {
    store: &'a dyn Store,
    kept: &'a KeptCommits,
    names: Names<'a>,
    /// The earliest name that is known of it.
    place: Option<Known>,
    /// Names that it had before it was renamed, the last first, as of the last commit in which it
    /// is known to have had them.
    had: Vec<Known>,
    since: Option<&'a Since>,
    limit: usize,
}

impl Listing<'_> {
    /// The changes of `ino`, whose last name is `asked`, and of the inodes that had one of its
    /// names before it: programs that save a file under another name and rename that make another
    /// inode each time.
    fn read_all(&mut self, ino: Ino, asked: Option<&Known>) -> weft_store::Result<Vec<Change>> {
        let Some(newest) = self.newest(ino)? else { return Ok(Vec::new()) };
        let mut changes = Vec::new();
        if newest.held.end <= self.kept.last() && self.limit > 0 {
            let Some(deletion) = self.deletion(&newest)? else { return Ok(changes) };
            changes.push(deletion);
        }
        let (mut next, mut asked) = (Some(newest), asked.cloned());
        let mut listed = HashSet::new();
        while let Some(version) = next.take() {
            let (ino, own) = (version.row.ino, changes.len());
            // All of one that had the name twice was listed at once.
            if !listed.insert(ino) {
                break;
            }
            self.had.clear();
            let Some(first) = self.read(version, &mut changes)? else { break };
            let names = asked.take().into_iter().chain(std::mem::take(&mut self.had));
            let mut taken = None;
            for name in names {
                taken = self.taken_over(&name, (ino, first))?.map(|taken| (name.place, taken));
                if taken.is_some() {
                    break;
                }
            }
            let Some((place, taken)) = taken else { break };
            if let Some(change) = changes[own..].iter_mut().find(|change| change.commit <= taken.by) {
                change.what.push("in place of another");
            }
            asked = Some(Known { place, commit: taken.before });
            self.place.clone_from(&asked);
            let row = self.store.row_at(taken.before, taken.other)?;
            next = row.map(|(row, since)| self.version(row, since..taken.before.next())).transpose()?;
        }
        changes.sort_by_key(|change| Reverse(change.commit));
        Ok(changes)
    }

    /// Finds from whom `ino`, which is there since `first`, took the name `known`. None if that was
    /// free before, or if nothing is kept of that.
    fn taken_over(&self, known: &Known, (ino, first): (Ino, CommitNo)) -> weft_store::Result<Option<TakenOver>> {
        let asked = &known.place;
        let between = [first, known.commit.next()].map(|commit| self.kept.position(commit).checked_sub(1));
        let [Some(without), Some(with)] = between else { return Ok(None) };
        let Some([before, by]) = self.names.given(ino, asked, [without, with])? else { return Ok(None) };
        let entry = self.store.name_at(before, asked.directory, &asked.name)?;
        let other = entry.map(|entry| entry.ino).filter(|other| *other != ino);
        Ok(other.map(|other| TakenOver { other, before, by }))
    }

    /// Adds `version` and those before it to `changes`. Returns the commit that made the first one,
    /// if all of them were added.
    fn read(&mut self, mut version: Version, changes: &mut Vec<Change>) -> weft_store::Result<Option<CommitNo>> {
        let mut earlier = Vec::new().into_iter();
        let mut is_end = false;
        while changes.len() < self.limit {
            if earlier.len() == 0 && !is_end {
                let read = self.store.versions(version.row.ino, version.held.start, READ_TOGETHER)?;
                (is_end, earlier) = (read.len() < READ_TOGETHER, read.into_iter());
            }
            let before = earlier.next().map(|(row, held)| self.version(row, held)).transpose()?;
            let Some(change) = self.change(&version, before.as_ref())? else { return Ok(None) };
            let was_deleted = change.what.first() == Some(&BROUGHT_BACK);
            changes.push(change);
            let Some(before) = before else { return Ok(Some(version.held.start)) };
            if was_deleted && changes.len() < self.limit {
                let Some(deletion) = self.deletion(&before)? else { return Ok(None) };
                changes.push(deletion);
            }
            version = before;
        }
        Ok(None)
    }

    fn version(&self, row: InodeRow, held: Range<CommitNo>) -> weft_store::Result<Version> {
        Ok(Version { digest: self.digest(row.ino, &held)?, row, held })
    }

    /// The present version of `ino`, or the last one that is kept.
    fn newest(&self, ino: Ino) -> weft_store::Result<Option<Version>> {
        let last = self.kept.last();
        let newest = match self.store.row_at(last, ino)? {
            Some((row, since)) => Some((row, since..last.next())),
            None => self.store.versions(ino, last.next(), 1)?.into_iter().next(),
        };
        newest.map(|(row, held)| self.version(row, held)).transpose()
    }

    /// True if what `made`, the row of a commit if that is remembered, did is to be listed.
    fn is_listed(&self, made: Option<&CommitRow>) -> bool {
        self.since.is_none_or(|since| made.is_some_and(|made| since.has(made)))
    }

    /// The deletion of an inode whose last version this is; none if it was before all that are to
    /// be listed.
    fn deletion(&self, version: &Version) -> weft_store::Result<Option<Change>> {
        let commit = version.held.end;
        let made = self.store.commit_row(commit)?;
        let (row, what) = (version.row.clone(), vec!["deleted"]);
        let deletion = Change { commit, made, kept: None, row, digest: None, what, path: None, renamed_from: None };
        Ok(Some(deletion).filter(|deletion| self.is_listed(deletion.made.as_ref())))
    }

    /// The change that made `version`, which followed on `before`; none if it was before all that
    /// are to be listed.
    fn change(&mut self, version: &Version, before: Option<&Version>) -> weft_store::Result<Option<Change>> {
        let commit = version.held.start;
        let made = self.store.commit_row(commit)?;
        if !self.is_listed(made.as_ref()) {
            return Ok(None);
        }
        let path = self.path(version)?;
        let renamed_from = match before {
            Some(before) => self.renamed_from(before)?,
            None => None,
        };
        let what = match before {
            _ if renamed_from.is_some() => with_rename(before.map(|before| differences(version, before))),
            Some(before) if before.held.end == commit => differences(version, before),
            Some(before) if before.row.generation != version.row.generation => brought_back(version, before),
            // Versions between the two are not kept.
            Some(before) => differences(version, before),
            // The version before would be kept.
            None if commit > self.kept.first() => vec!["made"],
            None => vec!["first kept"],
        };
        let (row, digest, kept) = (version.row.clone(), version.digest, self.kept.first_of(&version.held));
        Ok(Some(Change { commit, made, kept, row, digest, what, path, renamed_from }))
    }

    /// The path that `version` had when it was made.
    fn path(&mut self, version: &Version) -> weft_store::Result<Option<Vec<u8>>> {
        let Some(commit) = self.kept.first_of(&version.held) else { return Ok(None) };
        self.look_back(version.row.ino, commit)?;
        self.path_at(commit)
    }

    /// The path that `before` had in the end, if it was renamed then.
    fn renamed_from(&mut self, before: &Version) -> weft_store::Result<Option<Vec<u8>>> {
        let Some(commit) = self.kept.last_of(&before.held) else { return Ok(None) };
        if !self.look_back(before.row.ino, commit)? {
            return Ok(None);
        }
        self.path_at(commit)
    }

    /// The path as of `commit`, if that is the one as of which the name is known.
    fn path_at(&mut self, commit: CommitNo) -> weft_store::Result<Option<Vec<u8>>> {
        match self.place.as_ref().filter(|known| known.commit == commit) {
            Some(known) => self.names.path(&known.place, commit),
            None => Ok(None),
        }
    }

    /// Finds the name that `ino` had as of `commit`. True if it was renamed from that.
    fn look_back(&mut self, ino: Ino, commit: CommitNo) -> weft_store::Result<bool> {
        let Some(known) = &self.place else { return Ok(false) };
        let Some(earlier) = self.names.earlier(ino, known, commit)? else { return Ok(false) };
        let was_renamed = earlier.was_renamed;
        let found = Known { place: earlier.place, commit };
        if known.place != found.place {
            self.had.push(found.clone());
        }
        self.place = Some(found);
        Ok(was_renamed)
    }

    /// The digest of `ino` at a kept commit of `held`.
    fn digest(&self, ino: Ino, held: &Range<CommitNo>) -> weft_store::Result<Option<Digest>> {
        match self.kept.first_of(held) {
            Some(kept) => self.store.digest_at(kept, ino),
            None => Ok(None),
        }
    }
}

/// The kinds of change between two versions of an inode.
fn differences(version: &Version, before: &Version) -> Vec<&'static str> {
    let is_known = version.digest.is_some() && before.digest.is_some();
    let has_another_digest = version.digest != before.digest;
    let (row, before) = (&version.row, &before.row);
    let has_other_time = row.mtime != before.mtime;
    let is_content = has_another_digest || row.size != before.size || has_other_time && !is_known;
    let kinds = [
        ("content", is_content),
        ("time", has_other_time && !is_content),
        ("mode", row.permissions != before.permissions),
        ("owner", (row.uid, row.gid) != (before.uid, before.gid)),
        ("links", row.nlink != before.nlink),
        ("moved", row.parent != before.parent),
    ];
    let mut found: Vec<_> = kinds.into_iter().filter(|(_, is_so)| *is_so).map(|(kind, _)| kind).collect();
    if found.is_empty() {
        found.push("attributes");
    }
    found
}

/// The kinds of change of a version that was brought back after it was deleted.
fn brought_back(version: &Version, before: &Version) -> Vec<&'static str> {
    let found = differences(version, before).into_iter().filter(|kind| *kind != "attributes");
    [BROUGHT_BACK].into_iter().chain(found).collect()
}

/// These kinds of change, and that it was renamed.
fn with_rename(found: Option<Vec<&'static str>>) -> Vec<&'static str> {
    let mut found = found.unwrap_or_default();
    found.retain(|kind| !matches!(*kind, "attributes" | "moved"));
    found.push("renamed");
    found
}

impl Change {
    /// Prints it, with its path unless that is `path`.
    fn print(&self, path: Option<&[u8]>) {
        let time = self.made.as_ref().map_or_else(|| "an unknown time".into(), |made| shown::exact_time(made.time));
        let digest = self.digest.as_ref().map_or_else(|| "-".into(), hex);
        let mut what = self.what.join(", ");
        if let Some(from) = &self.renamed_from {
            what += &format!(" from {}", shown::bytes(from));
        }
        if let Some(then) = self.path.as_deref().filter(|then| Some(*then) != path) {
            what += &format!(", as {}", shown::bytes(then));
        }
        // The commit itself may have been dropped.
        if let Some(kept) = self.kept.filter(|kept| *kept != self.commit) {
            what += &format!(", kept as of @{}", kept.0);
        }
        outln!("commit {:<8} {time}  {:>12}  {digest}  {what}", self.commit.0, self.row.size);
    }

    fn as_json(&self) -> Value {
        json!({
            "commit": self.commit.0,
            "kept": self.kept.map(|kept| kept.0),
            "time": self.made.as_ref().map(|made| shown::exact_time(made.time)),
            "size": self.row.size,
            "mode": format!("{:04o}", self.row.permissions),
            "uid": self.row.uid,
            "gid": self.row.gid,
            "links": self.row.nlink,
            "digest": self.digest.as_ref().map(hex),
            "changed": self.what,
            "path": self.path.as_ref().map(|path| String::from_utf8_lossy(path)),
            "renamed_from": self.renamed_from.as_ref().map(|path| String::from_utf8_lossy(path)),
        })
    }
}
