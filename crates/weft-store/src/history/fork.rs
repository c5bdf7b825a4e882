//! Forks: the numbers under which the past versions of rows are filed.
//!
//! A version that held from commit `since` until commit `until` replaced it is filed once, under
//! its *fork*: the number in `since..until` with the most trailing zeros (the relational interval
//! tree of Kriegel, Pötke and Seidl, VLDB 2000). Commits are the leaves and inner nodes of a binary
//! tree then, and the fork of a version is the highest node in its range. All versions under one
//! fork held at the same commit, so a fork has at most as many rows of a directory as the directory
//! had entries.

use crate::row::CommitNo;

/// Returns the fork of a version that holds from commit `since` until commit `until`, which has
/// another one.
///
/// # Panics
///
/// Unless 1 <= `since` < `until`.
pub(crate) fn fork(since: CommitNo, until: CommitNo) -> u64 {
    assert!(0 < since.0 && since < until, "a version from {since:?} until {until:?} never held");
    let (before, last) = (since.0 - 1, until.0 - 1);
    node(last, (before ^ last).ilog2())
}

/// Returns the forks of all versions that can have held at `commit` and been replaced at or before
/// `last`: ascending, each once, about log2(`last`) + 1 of them.
pub(crate) fn forks_at(commit: CommitNo, last: CommitNo) -> Vec<u64> {
    if commit >= last {
        return Vec::new();
    }
    let above = commit.0.trailing_zeros()..u64::BITS;
    let mut forks: Vec<u64> = above.map(|level| node(commit.0, level)).filter(|fork| *fork < last.0).collect();
    forks.sort_unstable();
    forks
}

/// Returns all forks of versions that were replaced at `until`, ascending. The fork of a version
/// that held since commit `since` is the least of them that is not below `since`.
///
/// There is one for each bit that is set in `until` - 1.
pub(crate) fn forks_until(until: CommitNo) -> Vec<u64> {
    let last = until.0.saturating_sub(1);
    (0..u64::BITS).rev().filter(|level| last >> level & 1 == 1).map(|level| node(last, level)).collect()
}

/// Returns the ancestor of `number` in the tree that has `level` trailing zeros: `number` itself if
/// it has as many. It must not have more.
fn node(number: u64, level: u32) -> u64 {
    (number >> level | 1) << level
}

#[cfg(test)]
mod tests;
