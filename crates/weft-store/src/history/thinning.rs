//! Thinning: which commits stay by a [`Rule`], as they age.
//!
//! Thinning now and then keeps what thinning once, at the end, would keep: a commit that held at
//! the end of a period held then at each earlier thinning, too, so it was never dropped. New
//! commits in between change nothing about that. If the clock goes back, nothing that lies in the
//! future is dropped.

use super::rule::Rule;
use crate::row::{CommitNo, Timestamp};

/// The commits that stay, as [`thin`] finds them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thinned {
    /// The commit from which on all stay.
    pub first: CommitNo,
    /// The commits before `first` that stay, ascending.
    pub points: Vec<CommitNo>,
}

/// Returns which commits stay by `rule` at `now`.
///
/// `commits` are those that are there, ascending, with their times, which never go back: the ones
/// from some commit up to `last`, the newest, without a gap, and points that stayed before them.
///
/// - Of `all`, each state stays that held at some moment within the reach: all younger commits, and
///   the one before them, which held when the reach begins. So `last` always stays.
/// - Of another word, the state stays that held at the end of each period, if the end lies within
///   the word's reach: the last commit of the period, or else the last one before it. Periods are
///   aligned to multiples of their length since 1970-01-01T00:00:00Z.
///
/// So a volume that nobody wrote to for longer than any reach still has its old state after the
/// next commit, and that commit can be undone.
///
/// `first` begins a run of commits without a gap, so all states from there on can be read. Commits
/// that stay before a gap are points even if they are young: a rule whose `all` has become longer
/// brings no commit back.
///
/// It takes linear time.
pub fn thin(rule: &Rule, now: Timestamp, commits: &[(CommitNo, Timestamp)], last: CommitNo) -> Thinned {
    debug_assert!(commits.is_sorted_by(|one, next| one.0 < next.0 && one.1 <= next.1), "commits ascend");
    let dense = dense_start(rule, now, commits);
    let run = dense.max(run_start(commits, last));
    let mut stays = vec![false; dense];
    for (period, reach) in rule.periods() {
        mark_ends(&mut stays, commits, period, reach.horizon(now));
    }
    stays.resize(run, true);
    let points = commits.iter().zip(stays).filter(|(_, stays)| *stays).map(|((number, _), _)| *number);
    Thinned { first: commits.get(run).map_or(last, |(number, _)| *number), points: points.collect() }
}

/// Returns the index of the commit that held when the reach of `all` begins, or else of the first.
fn dense_start(rule: &Rule, now: Timestamp, commits: &[(CommitNo, Timestamp)]) -> usize {
    let horizon = rule.dense().horizon(now);
    commits.partition_point(|(_, time)| i128::from(time.0) <= horizon).saturating_sub(1)
}

/// Returns the index from which on `commits` have no gap up to `last`.
fn run_start(commits: &[(CommitNo, Timestamp)], last: CommitNo) -> usize {
    let mut next = last;
    let gap = commits.iter().rposition(|(number, _)| std::mem::replace(&mut next, *number) > number.next());
    gap.map_or(0, |gap| gap + 1)
}

/// Marks in `stays` each commit that held at the end of a period that ends after `horizon`.
fn mark_ends(stays: &mut [bool], commits: &[(CommitNo, Timestamp)], period: i128, horizon: i128) {
    let oldest = horizon.div_euclid(period);
    // The last of all commits before the oldest period held at its end, if the period has none.
    let period_of = |(_, time): (CommitNo, Timestamp)| i128::from(time.0).div_euclid(period).max(oldest);
    for (stays, pair) in stays.iter_mut().zip(commits.windows(2)) {
        *stays |= period_of(pair[0]) != period_of(pair[1]);
    }
}

#[cfg(test)]
mod tests;
