//! The commits that are kept, in their order.

use super::{History, PastStore, Pin};
use crate::error::Result;
use crate::row::CommitNo;
use std::ops::Range;

/// The commits that are kept: some of them alone, and from one on all.
#[derive(Clone, Debug)]
pub struct KeptCommits {
    /// Those before `first`, ascending.
    alone: Vec<CommitNo>,
    first: CommitNo,
    last: CommitNo,
}

impl KeptCommits {
    /// Those of `store` now; none if it keeps no history.
    pub fn of(store: &(impl PastStore + ?Sized)) -> Result<Option<KeptCommits>> {
        let Some(history) = store.history()? else { return Ok(None) };
        Ok(Some(KeptCommits::new(&history, &store.pins()?, store.header()?.commit)))
    }

    fn new(history: &History, pins: &[Pin], last: CommitNo) -> KeptCommits {
        let mut alone = pins.iter().map(|pin| pin.commit).filter(|commit| *commit < history.first).collect::<Vec<_>>();
        alone.sort_unstable();
        alone.dedup();
        KeptCommits { alone, first: history.first, last }
    }

    /// The commit from which on all are kept.
    pub fn first(&self) -> CommitNo {
        self.first
    }

    /// The last commit.
    pub fn last(&self) -> CommitNo {
        self.last
    }

    /// The first kept commit of `held`.
    pub fn first_of(&self, held: &Range<CommitNo>) -> Option<CommitNo> {
        let commit = self.at(self.position(held.start))?;
        Some(commit).filter(|commit| held.contains(commit))
    }

    /// The last kept commit of `held`.
    pub fn last_of(&self, held: &Range<CommitNo>) -> Option<CommitNo> {
        let commit = self.at(self.position(held.end).checked_sub(1)?)?;
        Some(commit).filter(|commit| held.contains(commit))
    }

    /// The number of kept commits before `commit`.
    pub fn position(&self, commit: CommitNo) -> u64 {
        let alone = self.alone.partition_point(|kept| *kept < commit) as u64;
        alone + commit.0.min(self.last.0 + 1).saturating_sub(self.first.0)
    }

    /// The kept commit that has so many before it.
    pub fn at(&self, position: u64) -> Option<CommitNo> {
        let alone = self.alone.len() as u64;
        let commit = match position.checked_sub(alone) {
            None => self.alone[usize::try_from(position).ok()?],
            Some(behind) => CommitNo(self.first.0 + behind),
        };
        Some(commit).filter(|commit| *commit <= self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_are_counted_over_those_that_are_gone() {
        let kept = KeptCommits { alone: [3, 7].map(CommitNo).to_vec(), first: CommitNo(10), last: CommitNo(12) };
        let all = [3, 7, 10, 11, 12].map(CommitNo);
        for (position, commit) in (0..).zip(all) {
            assert_eq!((kept.at(position), kept.position(commit)), (Some(commit), position));
        }
        assert_eq!((kept.at(5), kept.position(CommitNo(99))), (None, 5));
        for start in 0..15 {
            for end in start..15 {
                let held = CommitNo(start)..CommitNo(end);
                let within = || all.into_iter().filter(|commit| held.contains(commit));
                assert_eq!(kept.first_of(&held), within().min(), "{held:?}");
                assert_eq!(kept.last_of(&held), within().max(), "{held:?}");
            }
        }
    }
}
