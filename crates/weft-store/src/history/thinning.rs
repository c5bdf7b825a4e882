//! Thinning: which commits stay by a [`Rule`], as they age.
//!
//! Thinning again, later, keeps what thinning once would have kept: a commit that stays later is
//! the last one of its period, so it stayed before, too. It holds with commits that came in between
//! as well, as long as the clock does not go back. If it does, nothing that lies in the future is
//! dropped.

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
/// - All commits that are younger than the reach of `all` stay, and `last` does.
/// - Of each period of another word that ends within the word's reach, the last commit stays: the
///   state at the end of the period. Periods are aligned to multiples of their length since
///   1970-01-01T00:00:00Z.
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

/// Returns the index of the first commit that stays by `all`; the last commit always does.
fn dense_start(rule: &Rule, now: Timestamp, commits: &[(CommitNo, Timestamp)]) -> usize {
    let horizon = rule.dense().horizon(now);
    let young = commits.partition_point(|(_, time)| i128::from(time.0) <= horizon);
    young.min(commits.len().saturating_sub(1))
}

/// Returns the index from which on `commits` have no gap up to `last`.
fn run_start(commits: &[(CommitNo, Timestamp)], last: CommitNo) -> usize {
    let mut next = last;
    let gap = commits.iter().rposition(|(number, _)| std::mem::replace(&mut next, *number) > number.next());
    gap.map_or(0, |gap| gap + 1)
}

/// Marks in `stays` each commit that is the last of a period that ends after `horizon`.
fn mark_ends(stays: &mut [bool], commits: &[(CommitNo, Timestamp)], period: i128, horizon: i128) {
    let period_of = |(_, time): (CommitNo, Timestamp)| i128::from(time.0).div_euclid(period);
    let oldest = horizon.div_euclid(period);
    for (stays, pair) in stays.iter_mut().zip(commits.windows(2)) {
        let of = period_of(pair[0]);
        *stays |= of >= oldest && of != period_of(pair[1]);
    }
}

#[cfg(test)]
mod tests;
