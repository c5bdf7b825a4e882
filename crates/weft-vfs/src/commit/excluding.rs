//! Content of the past that goes before the rule says so: that of files whose paths are excluded.
//!
//! The versions are counted by file, as those who ask what history costs count them. The versions
//! of a file that has bytes there, has a path that is excluded, and is in no snapshot are emptied,
//! as `weft history forget` empties them. All of that is done in the background, in bounded steps
//! between commits, some minutes after the content was replaced.

use crate::exclusions::Exclusion;
use crate::restore::{LastNames, LastPlace};
use crate::volume::Vfs;
use parking_lot::Mutex;
use std::time::{Duration, Instant};
use weft_store::{CommitNo, Counted, HistoryChange, Ino, NameKey, PastCosts, PastCount, PinKind};
use weft_tree::Result;

/// Time that a step takes, but for the commit of what it found.
const STEP: Duration = Duration::from_millis(20);

/// Versions that are looked at before that is looked at again.
const VERSIONS: usize = 1 << 10;

/// Files that are looked at before that is looked at again.
const FILES: usize = 16;

/// Files that one commit empties.
const EMPTIED_MAX: usize = 64;

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
    patterns: Vec<Exclusion>,
    /// Commits of snapshots.
    snapshots: Vec<CommitNo>,
    stage: Stage,
    took: Duration,
    /// The last commit when it began.
    begun: CommitNo,
}

enum Stage {
    /// Finds files that have bytes in the past.
    Counting(PastCount),
    /// Finds the last names of those that are gone.
    Naming(PastCosts, LastNames, NameKey),
    /// Looks at these files.
    Deciding(Vec<Ino>, LastNames),
}

impl Vfs {
    /// Goes on with what is excluded from history, if it is time. What fails is tried again later.
    pub(crate) fn tend_exclusions(&self) {
        if let Err(error) = self.try_tend_exclusions() {
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

    fn try_tend_exclusions(&self) -> Result<()> {
        let taken = self.excluding.lock().pass.take();
        let mut pass = match taken {
            Some(pass) => pass,
            None => match self.begin_pass()? {
                Some(pass) => pass,
                None => return Ok(()),
            },
        };
        let begun = Instant::now();
        let mut found = Vec::new();
        let mut next = Some(pass.stage);
        while let Some(stage) = next.take() {
            next = self.step(stage, (&pass.patterns, &pass.snapshots), &mut found)?;
            if begun.elapsed() >= STEP || found.len() >= EMPTIED_MAX {
                break;
            }
        }
        if !self.empty_excluded(&found, pass.begun)? {
            self.exclude_soon();
            return Ok(());
        }
        pass.took += begun.elapsed();
        let mut excluding = self.excluding.lock();
        match next {
            Some(stage) => excluding.pass = Some(Pass { stage, ..pass }),
            None => {
                let took = i64::try_from(pass.took.as_nanos()).unwrap_or(i64::MAX);
                excluding.next_at = self.now().0.saturating_add(took.saturating_mul(SHARE).max(EVERY));
            }
        }
        Ok(())
    }

    /// Begins a pass if one is due.
    fn begin_pass(&self) -> Result<Option<Pass>> {
        let commit = self.store.header()?.commit;
        {
            let excluding = self.excluding.lock();
            if self.now().0 < excluding.next_at || excluding.looked_at == Some(commit) {
                return Ok(None);
            }
        }
        let patterns = self.exclusions()?;
        let patterns = patterns.iter().filter_map(|pattern| Exclusion::parse(pattern).ok()).collect::<Vec<_>>();
        let pins = self.store.pins()?.into_iter().filter(|pin| pin.kind == PinKind::Snapshot);
        let snapshots = pins.map(|pin| pin.commit).collect::<Vec<_>>();
        let count = if patterns.is_empty() { None } else { PastCount::begin(&*self.store, Counted::ByInode)? };
        let mut excluding = self.excluding.lock();
        excluding.looked_at = Some(commit);
        excluding.next_at = self.now().0.saturating_add(EVERY);
        Ok(count.map(|count| Pass {
            patterns,
            snapshots,
            stage: Stage::Counting(count),
            took: Duration::ZERO,
            begun: commit,
        }))
    }

    /// Makes a step; returns what is next. Adds files to `found` that are to be emptied.
    fn step(
        &self,
        stage: Stage,
        (patterns, snapshots): (&[Exclusion], &[CommitNo]),
        found: &mut Vec<Ino>,
    ) -> Result<Option<Stage>> {
        Ok(match stage {
            Stage::Counting(mut count) => match count.step(&*self.store, VERSIONS)? {
                true => Some(Stage::Counting(count)),
                false => {
                    let costs = count.end(&*self.store)?;
                    let is_any = costs.by_inode.keys().any(|ino| !costs.pinned_inodes.contains(ino));
                    is_any.then(|| Stage::Naming(costs, LastNames::default(), NameKey::default()))
                }
            },
            Stage::Naming(costs, mut names, after) => {
                match names.read_more(&*self.store, &after, VERSIONS, |ino| costs.by_inode.contains_key(&ino))? {
                    Some(after) => Some(Stage::Naming(costs, names, after)),
                    None => {
                        let files = costs.by_inode.into_keys().filter(|ino| !costs.pinned_inodes.contains(ino));
                        Some(Stage::Deciding(files.collect(), names))
                    }
                }
            }
            Stage::Deciding(mut files, names) => {
                let rest = files.split_off(files.len().min(FILES));
                for ino in files {
                    if self.is_excluded(ino, &names, patterns)? && !self.is_in_snapshot(ino, snapshots)? {
                        found.push(ino);
                    }
                }
                (!rest.is_empty()).then(|| Stage::Deciding(rest, names))
            }
        })
    }

    /// True if one of `snapshots` has a version of `ino` that a later commit replaced: its content
    /// may be the present one.
    fn is_in_snapshot(&self, ino: Ino, snapshots: &[CommitNo]) -> Result<bool> {
        let mut until = CommitNo(i64::MAX.unsigned_abs());
        while !snapshots.is_empty() {
            let versions = self.store.versions(ino, until, VERSIONS)?;
            let Some((_, oldest)) = versions.last() else { break };
            until = oldest.start;
            if versions.iter().any(|(_, held)| snapshots.iter().any(|commit| held.contains(commit))) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// True if all paths of `ino`, or its last one if it is gone, are excluded.
    fn is_excluded(&self, ino: Ino, names: &LastNames, patterns: &[Exclusion]) -> Result<bool> {
        let mut places = self.store.names_of(ino)?.into_iter().map(|(parent, name)| (parent, name.as_bytes().to_vec()));
        let mut places = places.by_ref().collect::<Vec<_>>();
        if places.is_empty() {
            places.extend(names.place(ino).map(|LastPlace { parent, name, .. }| (*parent, name.clone())));
        }
        for (parent, name) in &places {
            let Some(path) = self.path_names(*parent, name, names)? else { return Ok(false) };
            if !patterns.iter().any(|pattern| pattern.is_of(&path)) {
                return Ok(false);
            }
        }
        Ok(!places.is_empty())
    }

    /// The names from the root to `name` in `parent`, which may be gone. None if that cannot be
    /// told.
    fn path_names(&self, parent: Ino, name: &[u8], names: &LastNames) -> Result<Option<Vec<Vec<u8>>>> {
        let (mut path, mut at) = (vec![name.to_vec()], parent);
        while at != Ino::ROOT && path.len() < DEPTH_MAX {
            let above = self.store.names_of(at)?.into_iter().next();
            let above = above.map(|(parent, name)| (parent, name.as_bytes().to_vec()));
            let last = || names.place(at).map(|LastPlace { parent, name, .. }| (*parent, name.clone()));
            let Some((parent, name)) = above.or_else(last) else { return Ok(None) };
            path.push(name);
            at = parent;
        }
        path.reverse();
        Ok((at == Ino::ROOT).then_some(path))
    }

    /// Empties the versions of `files`. False if a snapshot was made since `begun`: it may have one
    /// of them.
    fn empty_excluded(&self, files: &[Ino], begun: CommitNo) -> Result<bool> {
        if files.is_empty() {
            return Ok(true);
        }
        let mut is_pinned = false;
        self.change_history(|_, _| {
            is_pinned = self.store.pins()?.iter().any(|pin| pin.kind == PinKind::Snapshot && pin.commit >= begun);
            let all = files.iter().map(|ino| HistoryChange::Empty(*ino));
            Ok(if is_pinned { Vec::new() } else { all.collect() })
        })?;
        if !is_pinned {
            files.iter().for_each(|ino| self.past_content_gone(*ino));
        }
        Ok(!is_pinned)
    }
}
