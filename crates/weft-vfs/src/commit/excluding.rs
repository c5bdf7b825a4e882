//! Content of the past that goes before the rule says so: that of files whose paths are excluded.
//!
//! A pass looks at all versions of files, by inode, and takes some thousands of files at a time
//! that have content in the past. It collects the names that these have and had (`places`), and
//! empties the versions of those that had excluded paths alone, as `weft history forget` empties
//! them. A file that had another path as well keeps all: a user who may rename it cannot have its
//! history go. What a snapshot has stays. All of that is work in the background (`background`),
//! some minutes after the content was replaced.

mod places;

use super::background::Turn;
use crate::exclusions::Exclusion;
use crate::volume::Vfs;
use parking_lot::Mutex;
use places::Places;
use std::time::Duration;
use weft_store::{CommitNo, HistoryChange, Ino, NameKey, PinKind};
use weft_tree::Result;

/// Versions that are read at once.
const VERSIONS: usize = 1 << 10;

/// Inodes that are asked about at once.
const INODES: usize = 16;

/// Files whose names are collected together, about.
const FILES_MAX: usize = 1 << 13;

/// Files that one commit empties.
const EMPTIED_MAX: usize = 256;

/// Time between two passes, in nanoseconds.
const EVERY: i64 = 60_000_000_000;

/// Share of the time that passes may take: one part in so many.
const SHARE: i64 = 100;

/// Names of a path.
const DEPTH_MAX: usize = 4096;

/// A pass, and when the next one is due.
#[derive(Default)]
pub(crate) struct Excluding {
    pass: Option<Pass>,
    next_at: i64,
    /// The last commit when the last pass began.
    looked_at: Option<CommitNo>,
}

/// The state behind its lock.
pub(crate) type ExcludingState = Mutex<Excluding>;

/// A pass over the past.
struct Pass {
    rules: Rules,
    stage: Stage,
    /// The version behind which files are looked for next; none if there are no more.
    after: Option<(Ino, CommitNo)>,
    took: Duration,
}

/// The reasons for which content goes or stays.
struct Rules {
    patterns: Vec<Exclusion>,
    /// Commits of snapshots.
    snapshots: Vec<CommitNo>,
}

/// A file whose versions are to be emptied.
struct Found {
    ino: Ino,
    /// The commit that wrote its present row.
    since: Option<CommitNo>,
}

enum Stage {
    /// Finds files with content in the past, of which some may have an excluded path: those found,
    /// and those yet to be asked about.
    Finding(Vec<Ino>, Vec<Ino>),
    /// Reads the names that inodes have: the files, and the inodes that are left.
    Present(Vec<Ino>, Places, Vec<Ino>),
    /// Reads the names that they had.
    Past(Vec<Ino>, Places, NameKey),
    /// Looks at these files.
    Deciding(Vec<Ino>, Places),
}

impl Vfs {
    /// Goes on with what is excluded from history, if it is time. What fails is tried again later.
    pub(super) fn tend_exclusions(&self, turn: &Turn<'_>) {
        if let Err(error) = self.try_tend_exclusions(turn) {
            self.report("what is excluded from history is still kept; will try again", &error);
            let mut excluding = self.excluding.lock();
            (excluding.pass, excluding.looked_at) = (None, None);
            excluding.next_at = self.now().0.saturating_add(EVERY);
        }
    }

    /// Has the next pass begin now.
    pub(crate) fn exclude_soon(&self) {
        *self.excluding.lock() = Excluding::default();
    }

    fn try_tend_exclusions(&self, turn: &Turn<'_>) -> Result<()> {
        let taken = self.excluding.lock().pass.take();
        let Some(mut pass) = taken.map_or_else(|| self.begin_pass(), |pass| Ok(Some(pass)))? else { return Ok(()) };
        let mut found = Vec::new();
        let has_more = loop {
            let before = turn.took();
            let has_more = self.step(&mut pass, &mut found)?;
            pass.took += turn.took().saturating_sub(before);
            let is_over = !has_more || turn.is_over();
            if (is_over || found.len() >= EMPTIED_MAX)
                && !self.empty_excluded(&std::mem::take(&mut found), &pass.rules)?
            {
                self.exclude_soon();
                return Ok(());
            }
            if is_over {
                break has_more;
            }
        };
        let mut excluding = self.excluding.lock();
        if excluding.looked_at.is_none() {
            // The patterns are others by now.
            return Ok(());
        }
        if has_more {
            excluding.pass = Some(pass);
        } else {
            let took = i64::try_from(pass.took.as_nanos()).unwrap_or(i64::MAX);
            excluding.next_at = self.now().0.saturating_add(took.saturating_mul(SHARE).max(EVERY));
        }
        Ok(())
    }

    /// Begins a pass if one is due.
    fn begin_pass(&self) -> Result<Option<Pass>> {
        let begun = self.store.header()?.commit;
        {
            let mut excluding = self.excluding.lock();
            let now = self.now().0;
            if now < excluding.next_at || excluding.looked_at == Some(begun) {
                return Ok(None);
            }
            (excluding.looked_at, excluding.next_at) = (Some(begun), now.saturating_add(EVERY));
        }
        let patterns = self.exclusions()?;
        let patterns = patterns.iter().filter_map(|pattern| Exclusion::parse(pattern).ok()).collect::<Vec<_>>();
        if patterns.is_empty() {
            return Ok(None);
        }
        let pins = self.store.pins()?.into_iter().filter(|pin| pin.kind == PinKind::Snapshot);
        let rules = Rules { patterns, snapshots: pins.map(|pin| pin.commit).collect() };
        let (stage, after) = (Stage::Finding(Vec::new(), Vec::new()), Some((Ino(0), CommitNo(0))));
        Ok(Some(Pass { rules, stage, after, took: Duration::ZERO }))
    }

    /// Makes a step of `pass`; false once there is nothing more. Adds files to `found` that are to
    /// be emptied.
    fn step(&self, pass: &mut Pass, found: &mut Vec<Found>) -> Result<bool> {
        let stage = std::mem::replace(&mut pass.stage, Stage::Finding(Vec::new(), Vec::new()));
        pass.stage = match stage {
            Stage::Finding(files, asked) => return self.find(pass, files, asked),
            Stage::Present(files, mut places, mut left) => {
                for ino in left.split_off(left.len().saturating_sub(INODES)) {
                    let names = self.store.names_of(ino)?;
                    names.iter().for_each(|(parent, name)| places.add(ino, *parent, name.as_bytes()));
                }
                match left.is_empty() {
                    true => Stage::Past(files, places, NameKey::default()),
                    false => Stage::Present(files, places, left),
                }
            }
            Stage::Past(files, mut places, after) => {
                let names = self.store.past_names(&after, VERSIONS)?;
                names.iter().for_each(|name| places.add(name.ino, name.key.parent, &name.key.name));
                match names.into_iter().last() {
                    Some(last) => Stage::Past(files, places, last.key),
                    None if places.next_level() => {
                        let level = places.level().collect();
                        Stage::Present(files, places, level)
                    }
                    None => Stage::Deciding(files, places),
                }
            }
            Stage::Deciding(mut files, places) => {
                for ino in files.split_off(files.len().saturating_sub(INODES)) {
                    let is_excluded = |path: &[&[u8]]| pass.rules.exclude(path);
                    if !places.all_are(ino, &is_excluded) {
                        continue;
                    }
                    let since = self.since(ino, self.store.header()?.commit)?;
                    if !self.is_in_snapshot(ino, since, &pass.rules.snapshots)? {
                        found.push(Found { ino, since });
                    }
                }
                match files.is_empty() {
                    true => Stage::Finding(Vec::new(), Vec::new()),
                    false => Stage::Deciding(files, places),
                }
            }
        };
        Ok(true)
    }

    /// Finds more files for `pass`, beside `files`; `asked` are yet to be asked about.
    fn find(&self, pass: &mut Pass, mut files: Vec<Ino>, mut asked: Vec<Ino>) -> Result<bool> {
        for ino in asked.split_off(asked.len().saturating_sub(INODES)) {
            if self.may_be_excluded(ino, &pass.rules)? {
                files.push(ino);
            }
        }
        if !asked.is_empty() {
            pass.stage = Stage::Finding(files, asked);
            return Ok(true);
        }
        if let (true, Some(after)) = (files.len() < FILES_MAX, pass.after) {
            let versions = self.store.past_versions(after, VERSIONS)?;
            pass.after = versions.last().map(|last| (last.ino, last.until));
            asked.extend(versions.iter().filter(|version| version.has_content).map(|version| version.ino));
            asked.dedup();
            pass.stage = Stage::Finding(files, asked);
            return Ok(true);
        }
        files.sort_unstable();
        files.dedup();
        let has_any = !files.is_empty();
        let places = Places::of(&files);
        pass.stage = Stage::Present(files.clone(), places, files);
        Ok(has_any)
    }

    /// True unless a path that `ino` has now says that it is not excluded.
    fn may_be_excluded(&self, ino: Ino, rules: &Rules) -> Result<bool> {
        let names = self.store.names_of(ino)?;
        if names.len() > places::NAMES_MAX {
            return Ok(false);
        }
        for (parent, name) in names {
            match self.present_path(parent, name.as_bytes())? {
                Some(path) if rules.exclude(&path.iter().map(|name| &name[..]).collect::<Vec<_>>()) => {}
                Some(_) | None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// The names from the root to `name` in `parent`. None if that is not below the root.
    fn present_path(&self, parent: Ino, name: &[u8]) -> Result<Option<Vec<Vec<u8>>>> {
        let (mut path, mut at) = (vec![name.to_vec()], parent);
        while at != Ino::ROOT && path.len() < DEPTH_MAX {
            let Some((parent, name)) = self.store.names_of(at)?.into_iter().next() else { return Ok(None) };
            path.push(name.as_bytes().to_vec());
            at = parent;
        }
        path.reverse();
        Ok((at == Ino::ROOT).then_some(path))
    }

    /// The commit that wrote the row that `ino` had as of `commit`.
    fn since(&self, ino: Ino, commit: CommitNo) -> Result<Option<CommitNo>> {
        Ok(self.store.row_at(commit, ino)?.map(|(_, since)| since))
    }

    /// True if one of `snapshots` has a version of `ino` other than the present one, which is since
    /// commit `present`: that one is not emptied.
    fn is_in_snapshot(&self, ino: Ino, present: Option<CommitNo>, snapshots: &[CommitNo]) -> Result<bool> {
        for commit in snapshots {
            if self.since(ino, *commit)?.is_some_and(|then| Some(then) != present) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Empties the versions of those of `files` that have no other path now, and are as they were
    /// found: a version that was the present one then, and is one of the past now, may be a
    /// snapshot's. False if a snapshot was made since the pass began: it may have one of them.
    fn empty_excluded(&self, files: &[Found], rules: &Rules) -> Result<bool> {
        if files.is_empty() {
            return Ok(true);
        }
        let (mut is_pinned, mut emptied) = (false, Vec::new());
        self.change_history(|header, _| {
            let pins = self.store.pins()?;
            let mut snapshots = pins.iter().filter(|pin| pin.kind == PinKind::Snapshot);
            is_pinned = snapshots.any(|pin| !rules.snapshots.contains(&pin.commit));
            for Found { ino, since } in files.iter().filter(|_| !is_pinned) {
                if self.since(*ino, header.commit)? == *since && self.may_be_excluded(*ino, rules)? {
                    emptied.push(*ino);
                }
            }
            Ok(emptied.iter().map(|ino| HistoryChange::Empty(*ino)).collect())
        })?;
        emptied.into_iter().for_each(|ino| self.past_content_gone(ino));
        Ok(!is_pinned)
    }
}

impl Rules {
    fn exclude(&self, path: &[&[u8]]) -> bool {
        self.patterns.iter().any(|pattern| pattern.is_of(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::options::Options;
    use std::sync::Arc;
    use weft_store::{Kind, PastStore, Timestamp, VolumeOptions, sqlite};
    use weft_tree::{Caller, MakeNode};

    /// A snapshot has the content that a file has when it is found; another one replaces that
    /// before the earlier content goes.
    #[test]
    fn content_that_a_snapshot_has_stays_if_it_is_replaced_while_earlier_content_goes() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("volume");
        sqlite::create(&path, &VolumeOptions::default(), (0, 0), Timestamp(0)).expect("made");
        let store = sqlite::open(&path).expect("opened").store;
        let options = Options { background: false, ..Options::default() };
        let vfs = Vfs::open(store.clone(), None, options, Arc::new(ManualClock::default())).expect("opens");
        vfs.keep_history("all forever", None).expect("kept");
        let node = MakeNode { kind: Kind::File, permissions: 0o644, umask: 0, rdev: 0 };
        let files = [b"changed", b"settled"].map(|name| {
            let ino = vfs.make(Caller::ROOT, Ino::ROOT, name, node).expect("made").ino;
            for content in [b"first ", b"second"] {
                vfs.write(ino, 0, content, false).expect("written");
                vfs.commit().expect("committed");
            }
            ino
        });
        let snapshot = vfs.create_snapshot("snapshot", None).expect("made");
        for name in ["/changed", "/settled"] {
            vfs.exclude_from_history(name.as_bytes()).expect("excluded");
        }
        let mut pass = vfs.begin_pass().expect("begun").expect("due");
        let mut found = Vec::new();
        while vfs.step(&mut pass, &mut found).expect("a step") {}
        assert_eq!(found.len(), 2, "the snapshot has what both have now");
        vfs.write(files[0], 0, b"third ", false).expect("written");
        assert!(vfs.empty_excluded(&found, &pass.rules).expect("emptied"));
        let sizes = files.map(|ino| {
            let versions = store.versions(ino, CommitNo(u64::MAX), 9).expect("readable");
            versions.iter().map(|(row, held)| (held.contains(&snapshot), row.size)).collect::<Vec<_>>()
        });
        let [changed, settled] = sizes;
        assert!(changed.contains(&(true, 6)), "{changed:?}");
        assert!(settled.iter().all(|(_, size)| *size == 0) && !settled.is_empty(), "{settled:?}");
    }
}
