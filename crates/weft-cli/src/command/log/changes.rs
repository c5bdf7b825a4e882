//! `weft log` of a file or a directory: the versions of its inode that are kept.
//!
//! An inode is followed, not a name: what a file had been called before does not matter.

use super::Since;
use crate::mounted::{self, volume_named};
use crate::named::in_volume;
use crate::shown;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use weft_digest::{Digest, hex};
use weft_store::{CommitNo, CommitRow, History, Ino, InodeRow, Location, Name, OpenOptions, Pin, Store};

/// Versions that are read at once.
const READ_TOGETHER: usize = 256;

/// A file or directory in a volume.
pub(super) struct Subject {
    pub(super) location: Location,
    path: Vec<u8>,
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

impl Subject {
    /// Returns the file that `named` names: `VOLUME:PATH`, or a path in a mounted volume. None if
    /// it names a volume.
    pub(super) fn find(named: &Path) -> Result<Option<Subject>> {
        if mounted::is_mount_point(named) || weft_store::sqlite::is_volume(named) {
            return Ok(None);
        }
        if let Some((volume, path)) = in_volume(named.as_os_str()) {
            let location = volume_named(Path::new(volume))?;
            return Ok(Some(Subject { location, path: path.as_bytes().to_vec() }));
        }
        let absolute = std::path::absolute(named)?;
        let Some((name, Ok(parent))) = absolute.file_name().zip(absolute.parent().map(Path::canonicalize)) else {
            return Ok(None);
        };
        let Some((path, device)) = mounted::in_volume(&parent.join(name)) else { return Ok(None) };
        let root = mounted::root_of(device).context("the mount shows a part of its volume; name VOLUME:PATH")?;
        let location = volume_named(&root)?;
        Ok(Some(Subject { location, path: path.into_os_string().into_encoded_bytes() }))
    }

    fn shown(&self) -> String {
        shown::path(Path::new(OsStr::from_bytes(&self.path)))
    }

    /// The inode that has the path in the last commit of `store`.
    fn inode(&self, store: &dyn Store) -> Result<Ino> {
        let mut at = Ino::ROOT;
        for name in self.path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".") {
            let name = Name::new(name).with_context(|| format!("{} is no path", self.shown()))?;
            match store.name(at, &name)? {
                Some(entry) => at = entry.ino,
                None => bail!(
                    "the last commit of volume {} has no {}; 'weft undelete' brings back what it had before",
                    self.location,
                    self.shown()
                ),
            }
        }
        Ok(at)
    }

    /// Prints the changes that are kept, the last first.
    pub(super) fn print(&self, since: Option<&Since>, limit: Option<usize>, as_json: bool) -> Result<()> {
        let context = || format!("cannot read volume {}", self.location);
        let opened = self.location.engine().open_beside(OpenOptions::default()).with_context(context)?;
        let store = &*opened.store;
        let ino = self.inode(store)?;
        let Some(history) = store.history().with_context(context)? else {
            bail!("volume {} keeps no history; 'weft history set' begins one", self.location)
        };
        let mut listing = Listing { store, history, pins: store.pins()?, since, limit: limit.unwrap_or(usize::MAX) };
        let changes = listing.read(ino).with_context(context)?;
        if as_json {
            outln!("{:#}", Value::from(changes.iter().map(Change::as_json).collect::<Vec<_>>()));
        } else {
            changes.iter().for_each(Change::print);
        }
        Ok(())
    }
}

/// What is listed of a store.
struct Listing<'a> {
    store: &'a dyn Store,
    history: History,
    pins: Vec<Pin>,
    since: Option<&'a Since>,
    limit: usize,
}

impl Listing<'_> {
    fn read(&mut self, ino: Ino) -> weft_store::Result<Vec<Change>> {
        let last = self.store.header()?.commit;
        let present = self.store.inodes_at(last, ino, 1)?.pop().filter(|(row, _)| row.ino == ino);
        let Some((row, since)) = present else { return Ok(Vec::new()) };
        let mut versions = vec![(row, since..last.next())];
        let mut changes = Vec::new();
        let mut until = since;
        loop {
            let more = self.store.versions(ino, until, READ_TOGETHER)?;
            let is_end = more.len() < READ_TOGETHER;
            until = more.last().map_or(until, |(_, held)| held.start);
            versions.extend(more);
            // The last one waits for the one before it.
            let ready = if is_end { versions.len() } else { versions.len() - 1 };
            for (index, (row, held)) in versions.iter().enumerate().take(ready) {
                let before = versions.get(index + 1);
                match self.change(row, held, before.map(|(row, held)| (row, held)))? {
                    Some(change) if changes.len() < self.limit => changes.push(change),
                    _ => return Ok(changes),
                }
            }
            if is_end {
                return Ok(changes);
            }
            versions.drain(..ready);
        }
    }

    /// The change that made the version `row`, which held as long as `held`; none if it was before
    /// all that are to be listed.
    fn change(
        &self,
        row: &InodeRow,
        held: &Range<CommitNo>,
        before: Option<(&InodeRow, &Range<CommitNo>)>,
    ) -> weft_store::Result<Option<Change>> {
        let commit = held.start;
        let made = self.store.commits(commit, 1)?.into_iter().find(|made| made.number == commit);
        let is_listed = |since: &&Since| match &made {
            Some(made) => since.has(made),
            None => false,
        };
        if self.since.is_some_and(|since| !is_listed(&since)) {
            return Ok(None);
        }
        let digest = self.digest(row.ino, held)?;
        let what = match before {
            Some((other, other_held)) => {
                let follows = other_held.end == held.start;
                let other_digest = self.digest(row.ino, other_held)?;
                if follows { differences(row, other, digest != other_digest) } else { Vec::new() }
            }
            // The version before would be kept.
            None if commit > self.history.first => vec!["made"],
            None => Vec::new(),
        };
        Ok(Some(Change { commit, made, row: row.clone(), digest, what }))
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
fn differences(row: &InodeRow, before: &InodeRow, has_another_digest: bool) -> Vec<&'static str> {
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
