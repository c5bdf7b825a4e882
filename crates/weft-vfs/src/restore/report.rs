//! What a restoration does, for people.

use weft_store::{CommitNo, Timestamp};

/// Paths that a report lists.
pub(super) const LISTED_MAX: usize = 1000;

/// Bytes of them.
const LISTED_BYTES_MAX: usize = 64 << 10;

/// Paths outside that a report lists.
pub(super) const OUTSIDE_MAX: usize = 100;

/// Facts about a restoration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RestoreReport {
    /// The commit as of which it is.
    pub then: CommitNo,
    /// The time at which that was made.
    pub made: Option<Timestamp>,
    /// The last commit, which has it; none of a rehearsal.
    pub committed: Option<CommitNo>,
    /// Names that come back.
    pub back: u64,
    /// Names that come back by renaming, of files and directories that had other names.
    pub moved: u64,
    /// Names of which the content or the attributes become others.
    pub changed: u64,
    /// Names that go, as they were not there then.
    pub removed: u64,
    /// Names of which all is as it was.
    pub unchanged: u64,
    /// Files of which history has no content any more: one that is there keeps what it has.
    pub forgotten: u64,
    /// The effect on each name but those unchanged, at most 1000, in the order of paths.
    pub paths: Vec<PathEffect>,
    /// Changed files that have hard links outside of the place.
    pub linked: u64,
    /// Other paths, at most 100, at which changed files are seen, too: they have hard links there.
    pub outside: Vec<Vec<u8>>,
    pub(super) listed_bytes: usize,
}

/// The effect at one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathEffect {
    /// The path from the place that is restored on; empty for that.
    pub path: Vec<u8>,
    /// The effect.
    pub effect: Effect,
    /// The path before, if it is moved.
    pub from: Option<Vec<u8>>,
}

/// The fate of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It comes back.
    Back,
    /// It comes back by renaming.
    Moved,
    /// It gets the content and attributes of then.
    Changed,
    /// It is not there any more.
    Removed,
    /// Its content was taken out of history, so it does not come back.
    Forgotten,
}

impl RestoreReport {
    /// Notes an effect.
    pub(super) fn add(&mut self, effect: Effect, path: Option<&Vec<u8>>, from: Option<Vec<u8>>) {
        match effect {
            Effect::Moved => self.moved += 1,
            Effect::Back => self.back += 1,
            Effect::Changed => self.changed += 1,
            Effect::Removed => self.removed += 1,
            Effect::Forgotten => self.forgotten += 1,
        }
        if self.paths.len() < LISTED_MAX
            && self.listed_bytes < LISTED_BYTES_MAX
            && let Some(path) = path
        {
            self.listed_bytes += path.len() + from.as_ref().map_or(0, Vec::len);
            self.paths.push(PathEffect { path: path.clone(), effect, from });
        }
    }
}
