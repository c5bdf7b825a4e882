//! Forks against their definitions, number by number.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

const SMALL: u64 = 130;

/// Returns the number in `since..until` with the most trailing zeros, by looking at each.
fn searched(since: u64, until: u64) -> u64 {
    (since..until).max_by_key(|number| number.trailing_zeros()).expect("since < until")
}

/// Returns all `(since, until)` of small numbers.
fn versions() -> impl Iterator<Item = (u64, u64)> {
    (1..SMALL).flat_map(|since| (since + 1..SMALL + 1).map(move |until| (since, until)))
}

/// Returns the fork that `forks_until` gives a version, as SQL finds it.
fn found(since: u64, until: u64) -> Option<u64> {
    forks_until(CommitNo(until)).into_iter().find(|fork| *fork >= since)
}

#[test]
fn fork_of_a_version_has_the_most_trailing_zeros() {
    for (since, until) in versions() {
        let best = searched(since, until);
        assert_eq!(fork(CommitNo(since), CommitNo(until)), best, "{since}..{until}");
        let as_good = (since..until).filter(|number| number.trailing_zeros() == best.trailing_zeros());
        assert_eq!(as_good.count(), 1, "{since}..{until}");
    }
}

#[test]
fn forks_of_a_commit_are_those_of_all_versions_that_held_then() {
    for last in 1..SMALL {
        for commit in 1..=last + 2 {
            let held = versions().filter(|&(since, until)| since <= commit && commit < until && until <= last);
            let forks: BTreeSet<u64> = held.map(|(since, until)| searched(since, until)).collect();
            assert!(forks_at(CommitNo(commit), CommitNo(last)).into_iter().eq(forks), "{commit}, {last}");
        }
    }
}

#[test]
fn fork_of_a_version_is_the_least_of_its_end_that_is_not_before_its_start() {
    for (since, until) in versions() {
        assert_eq!(found(since, until), Some(searched(since, until)), "{since}..{until}");
    }
    assert_eq!(forks_until(CommitNo(1)), [], "no version ends with the first commit");
    assert_eq!(forks_until(CommitNo(0b1011_0101)), [0b1000_0000, 0b1010_0000, 0b1011_0000, 0b1011_0100]);
}

#[test]
#[should_panic(expected = "never held")]
fn version_that_never_held_has_no_fork() {
    fork(CommitNo(7), CommitNo(7));
}

/// Returns numbers of all lengths up to that of `u64`, of which the largest are no less likely than
/// the least.
fn number() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0..u64::BITS).prop_map(|(number, bits)| (number >> bits).max(1))
}

proptest! {
    #[test]
    fn forks_of_large_numbers_agree(mut numbers in [number(), number(), number()]) {
        numbers.sort_unstable();
        let [since, commit, until] = numbers;
        prop_assume!(commit < until);
        let fork = fork(CommitNo(since), CommitNo(until));
        prop_assert!((since..until).contains(&fork));
        let step = (fork & fork.wrapping_neg()).checked_mul(2);
        let others = step.is_some_and(|step| (since - 1) / step != (until - 1) / step);
        prop_assert!(!others, "a number with more zeros lies in the range");
        prop_assert_eq!(found(since, until), Some(fork));
        let forks = forks_at(CommitNo(commit), CommitNo(until));
        prop_assert!(forks.contains(&fork));
        prop_assert!(forks.is_sorted_by(|one, next| one < next) && forks.iter().all(|fork| *fork < until));
        prop_assert!(forks.len() <= until.ilog2() as usize + 1);
    }
}
