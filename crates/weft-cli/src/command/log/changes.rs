//! `weft log` of a file or a directory: the versions of its inode that are kept.
//!
//! An inode is followed, not a name: what a file had been called before does not matter.

use super::Since;
use crate::command::subject::Subject;
use crate::shown;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::ops::Range;
use weft_digest::{Digest, hex};
use weft_store::{CommitNo, CommitRow, History, Ino, InodeRow, Name, OpenOptions, Pin, Store};

/// Versions that are read at once.
const READ_TOGETHER: usize = 256;

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
    row: InodeRow,
    digest: Option<Digest>,
    /// The kinds of change; none if the version before is not kept.
    what: Vec<&'static str>,
}

/// The inode that has the path of `subject` in the last commit of `store`.
fn inode(subject: &Subject, store: &dyn Store) -> Result<Ino> {
    let mut at = Ino::ROOT;
    for name in subject.names()? {
        let name = Name::new(&name).with_context(|| format!("{} is no path", subject.shown()))?;
        match store.name(at, &name)? {
            Some(entry) => at = entry.ino,
            None => bail!(
                "the last commit of volume {} has no {}; 'weft undelete' brings back what it had before",
                subject.location,
                subject.shown()
            ),
        }
    }
    Ok(at)
}

/// Prints the changes of `subject` that are kept, the last first.
pub(super) fn print(subject: &Subject, since: Option<&Since>, limit: Option<usize>, as_json: bool) -> Result<()> {
    subject.commit_first("the log ends with the last commit");
    let context = || format!("cannot read volume {}", subject.location);
    let opened = subject.location.engine().open_beside(OpenOptions::default()).with_context(context)?;
    let store = &*opened.store;
    let Some(history) = store.history().with_context(context)? else {
        bail!("volume {} keeps no history; 'weft history set' begins one", subject.location)
    };
    let ino = inode(subject, store)?;
    let listing = Listing { store, history, pins: store.pins()?, since, limit: limit.unwrap_or(usize::MAX) };
    let changes = listing.read(ino).with_context(context)?;
    if as_json {
        outln!("{:#}", Value::from(changes.iter().map(Change::as_json).collect::<Vec<_>>()));
    } else {
        changes.iter().for_each(Change::print);
    }
    Ok(())
}

/// A listing of versions of an inode.
struct Listing<'a> {
    store: &'a dyn Store,
    history: History,
    pins: Vec<Pin>,
    since: Option<&'a Since>,
    limit: usize,
}

impl Listing<'_> {
    fn read(&self, ino: Ino) -> weft_store::Result<Vec<Change>> {
        let last = self.store.header()?.commit;
        let Some((row, since)) = self.store.row_at(last, ino)? else { return Ok(Vec::new()) };
        let mut version = self.version(row, since..last.next())?;
        let (mut changes, mut earlier) = (Vec::new(), Vec::new().into_iter());
        let mut is_end = false;
        while changes.len() < self.limit {
            if earlier.len() == 0 && !is_end {
                let read = self.store.versions(ino, version.held.start, READ_TOGETHER)?;
                (is_end, earlier) = (read.len() < READ_TOGETHER, read.into_iter());
            }
            let before = earlier.next().map(|(row, held)| self.version(row, held)).transpose()?;
            let Some(change) = self.change(&version, before.as_ref())? else { break };
            changes.push(change);
            let Some(before) = before else { break };
            version = before;
        }
        Ok(changes)
    }

    fn version(&self, row: InodeRow, held: Range<CommitNo>) -> weft_store::Result<Version> {
        Ok(Version { digest: self.digest(row.ino, &held)?, row, held })
    }

    /// The change that made `version`, which followed on `before`; none if it was before all that
    /// are to be listed.
    fn change(&self, version: &Version, before: Option<&Version>) -> weft_store::Result<Option<Change>> {
        let commit = version.held.start;
        let made = self.store.commits(commit, 1)?.into_iter().find(|made| made.number == commit);
        if self.since.is_some_and(|since| !made.as_ref().is_some_and(|made| since.has(made))) {
            return Ok(None);
        }
        let what = match before {
            Some(before) if before.held.end == commit => differences(version, before),
            Some(_) => Vec::new(),
            // The version before would be kept.
            None if commit > self.history.first => vec!["made"],
            None => Vec::new(),
        };
        Ok(Some(Change { commit, made, row: version.row.clone(), digest: version.digest, what }))
    }

    /// The digest of `ino` at a kept commit of `held`.
    fn digest(&self, ino: Ino, held: &Range<CommitNo>) -> weft_store::Result<Option<Digest>> {
        let first = held.start.max(self.history.first);
        let pinned = self.pins.iter().map(|pin| pin.commit).find(|commit| held.contains(commit));
        match Some(first).filter(|first| held.contains(first)).or(pinned) {
            Some(kept) => self.store.digest_at(kept, ino),
            None => Ok(None),
        }
    }
}

/// The kinds of change between two versions of an inode.
fn differences(version: &Version, before: &Version) -> Vec<&'static str> {
    let has_another_digest = version.digest != before.digest;
    let (row, before) = (&version.row, &before.row);
    let is_content = has_another_digest || (row.size, row.mtime) != (before.size, before.mtime);
    let kinds = [
        ("content", is_content),
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

impl Change {
    fn print(&self) {
        let time = self.made.as_ref().map_or_else(|| "an unknown time".into(), |made| shown::exact_time(made.time));
        let digest = self.digest.as_ref().map_or_else(|| "-".into(), hex);
        let what = if self.what.is_empty() { "unknown".into() } else { self.what.join(", ") };
        outln!("commit {:<8} {time}  {:>12}  {digest}  {what}", self.commit.0, self.row.size);
    }

    fn as_json(&self) -> Value {
        json!({
            "commit": self.commit.0,
            "time": self.made.as_ref().map(|made| shown::exact_time(made.time)),
            "size": self.row.size,
            "mode": format!("{:04o}", self.row.permissions),
            "uid": self.row.uid,
            "gid": self.row.gid,
            "links": self.row.nlink,
            "digest": self.digest.as_ref().map(hex),
            "changed": self.what,
        })
    }
}
