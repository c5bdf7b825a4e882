//! Thinning by example, against its definition, and as time passes.

use super::super::rule::Reach;
use super::super::rule::tests::rules;
use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

const SECOND: i64 = 1_000_000_000;
const HOUR: i64 = 3600;

type Commits = Vec<(CommitNo, Timestamp)>;

/// Returns commits 1, 2, … at `seconds`.
fn at(seconds: &[i64]) -> Commits {
    (1..).map(CommitNo).zip(seconds.iter().map(|seconds| Timestamp(seconds * SECOND))).collect()
}

fn newest(commits: &Commits) -> CommitNo {
    commits.last().map_or(CommitNo(1), |(number, _)| *number)
}

fn thinned(rule: &Rule, now: Timestamp, commits: &Commits) -> Thinned {
    thin(rule, now, commits, newest(commits))
}

/// Returns the commits that stay.
fn kept(rule: &Rule, now: Timestamp, commits: &Commits) -> Commits {
    let Thinned { first, points } = thinned(rule, now, commits);
    commits.iter().filter(|(number, _)| *number >= first || points.contains(number)).copied().collect()
}

/// Returns `first` and the points for a rule as text, a time in seconds and commits 1, 2, ….
fn found(rule: &str, now: i64, seconds: &[i64]) -> (u64, Vec<u64>) {
    let Thinned { first, points } = thinned(&rule.parse().expect(rule), Timestamp(now * SECOND), &at(seconds));
    (first.0, points.into_iter().map(|point| point.0).collect())
}

#[test]
fn young_commits_stay_and_the_last_one_of_each_period_before() {
    let (day, hours) = (24 * HOUR, [0, 1, 1, 1, 3, 5, 5, 6, 7].map(|hour| hour * HOUR + 10));
    assert_eq!(found("all 90m, hourly 4h, daily 30d", 7 * HOUR + 20, &hours), (7, vec![5]));
    assert_eq!(found("all 90m, daily 30d", 7 * HOUR + 20, &hours), (7, vec![]), "the day has commits that stay");
    assert_eq!(found("all 90m, daily 30d", 3 * day, &hours), (9, vec![]));
    assert_eq!(found("hourly 1d", 7 * HOUR + 20, &hours), (9, vec![1, 4, 5, 7, 8]));
    assert_eq!(found("all forever", i64::MAX / SECOND, &hours), (1, vec![]));
}

#[test]
fn state_stays_that_held_when_a_reach_begins() {
    assert_eq!(found("all 10s", 20, &[9, 10, 12, 15]), (2, vec![]));
    assert_eq!(found("all 10s", 21, &[9, 10, 12, 15]), (2, vec![]));
    assert_eq!(found("all 10s", 22, &[9, 10, 12, 15]), (3, vec![]));
    let hours = [10, 20, HOUR, 3 * HOUR];
    assert_eq!(found("hourly 2h", 3 * HOUR - 1, &hours), (3, vec![2]));
    assert_eq!(found("hourly 2h", 3 * HOUR, &hours), (4, vec![3]));
    assert_eq!(found("hourly 2h", 5 * HOUR, &[10, 20, 4 * HOUR, 4 * HOUR + 1]), (4, vec![2]), "it held at hour 3");
}

#[test]
fn change_after_a_long_rest_can_be_undone() {
    let year = 365 * 24 * HOUR;
    assert_eq!(found("all 1d, hourly 7d, daily 30d", year + 60, &[0, 10, year, year + 10]), (2, vec![]));
    assert_eq!(found("daily 30d", year + 60, &[0, 10, year, year + 10]), (4, vec![2]));
    assert_eq!(found("all 1d", 2 * year, &[0, 10, year]), (3, vec![]));
}

#[test]
fn last_commit_stays_at_any_age() {
    assert_eq!(found("all 1s", 1_000_000, &[1, 2, 3]), (3, vec![]));
    assert_eq!(found("hourly 1h", 1_000_000, &[1, 2, 3]), (3, vec![]));
    assert_eq!(thin(&Rule::default(), Timestamp(0), &[], CommitNo(7)), Thinned { first: CommitNo(7), points: vec![] });
}

#[test]
fn nothing_of_the_future_is_dropped() {
    assert_eq!(found("hourly 1h", 5 * HOUR, &[HOUR, 5 * HOUR, 5 * HOUR + 1, 5 * HOUR + 2]), (2, vec![1]));
    assert_eq!(found("all 1s", i64::MIN / SECOND, &[-5, 0, 5]), (1, vec![]));
}

#[test]
fn periods_before_1970_are_aligned_as_later_ones() {
    assert_eq!(found("hourly 1d", 1, &[-HOUR - 1, -HOUR, -1, 0]), (4, vec![1, 3]));
}

#[test]
fn young_commits_before_a_gap_are_points() {
    let commits: Commits = [3, 7, 8].map(|number| (CommitNo(number), Timestamp(0))).into();
    let rule = "all 1d".parse().unwrap();
    let thinned = |first, points: &[u64]| Thinned {
        first: CommitNo(first),
        points: points.iter().copied().map(CommitNo).collect(),
    };
    assert_eq!(thin(&rule, Timestamp(0), &commits, CommitNo(8)), thinned(7, &[3]));
    assert_eq!(thin(&rule, Timestamp(0), &commits, CommitNo(9)), thinned(7, &[3]), "the newest is still being made");
    assert_eq!(thin(&rule, Timestamp(0), &commits, CommitNo(10)), thinned(10, &[3, 7, 8]));
    assert_eq!(thin(&rule, Timestamp(i64::MAX), &commits, CommitNo(10)), thinned(10, &[8]), "the last of those told");
}

/// Returns a number of seconds of any magnitude up to three years.
fn span() -> impl Strategy<Value = i64> {
    (0..3 * 365 * 24 * HOUR, 0..28u32).prop_map(|(seconds, bits)| seconds >> bits)
}

/// Returns commits with gaps before some of them, at times that may be equal.
fn commits() -> impl Strategy<Value = Commits> {
    let steps = proptest::collection::vec((prop_oneof![9 => Just(1u64), 1 => 1..9u64], span()), 0..50);
    (steps, -1000..1000i64, 1..100u64).prop_map(|(steps, hour, number)| {
        let (mut number, mut seconds) = (number, hour * HOUR);
        let step = |(skipped, span): (u64, i64)| {
            (number, seconds) = (number + skipped, seconds + span);
            (CommitNo(number), Timestamp(seconds * SECOND))
        };
        steps.into_iter().map(step).collect()
    })
}

/// Returns a time near one of the commits.
fn near(commits: &Commits, at: prop::sample::Index, seconds: i64) -> Timestamp {
    let time = if commits.is_empty() { Timestamp(0) } else { at.get(commits).1 };
    Timestamp(time.0 + seconds * SECOND)
}

fn moment() -> impl Strategy<Value = (prop::sample::Index, i64)> {
    (any::<prop::sample::Index>(), (span(), any::<bool>()).prop_map(|(span, back)| if back { -span } else { span }))
}

/// Returns the last commit whose time, in nanoseconds, is one that `holds` lets pass.
fn state_at(commits: &Commits, holds: impl Fn(i128) -> bool) -> Option<&(CommitNo, Timestamp)> {
    commits.iter().rfind(|(_, time)| holds(time.0.into()))
}

/// Returns what stays by the words of the definition, looking at all commits for each.
fn defined(rule: &Rule, now: Timestamp, commits: &Commits) -> Commits {
    let horizon = rule.dense().horizon(now);
    let mut stays = BTreeSet::from_iter(state_at(commits, |time| time <= horizon));
    stays.extend(commits.iter().filter(|(_, time)| i128::from(time.0) > horizon));
    stays.extend(commits.last());
    for (period, reach) in rule.periods() {
        let oldest = reach.horizon(now).max(i64::MIN.into()).div_euclid(period);
        let later = commits.iter().map(|(_, time)| i128::from(time.0).div_euclid(period));
        for index in later.filter(|index| *index > oldest).chain([oldest]) {
            stays.extend(state_at(commits, |time| time < (index + 1) * period));
        }
    }
    stays.into_iter().copied().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn thinning_keeps_what_its_definition_says(rule in rules(), commits in commits(), (at, seconds) in moment()) {
        let now = near(&commits, at, seconds);
        let thinned = thinned(&rule, now, &commits);
        prop_assert_eq!(kept(&rule, now, &commits), defined(&rule, now, &commits));
        prop_assert!(thinned.points.iter().all(|point| *point < thinned.first));
        prop_assert!(thinned.points.is_sorted_by(|one, next| one < next));
        let numbers = BTreeSet::from_iter(commits.iter().map(|(number, _)| number.0));
        prop_assert!(thinned.points.iter().all(|point| numbers.contains(&point.0)));
        prop_assert!(commits.is_empty() || (thinned.first.0..=newest(&commits).0).all(|number| numbers.contains(&number)));
    }

    #[test]
    fn each_period_within_reach_keeps_a_commit(rule in rules(), commits in commits(), (at, seconds) in moment()) {
        let now = near(&commits, at, seconds);
        let kept = kept(&rule, now, &commits);
        for (period, reach) in rule.periods() {
            let young = commits.iter().filter(|(_, time)| i128::from(time.0) > reach.horizon(now));
            let periods = |commits: &Commits| {
                BTreeSet::from_iter(commits.iter().map(|(_, time)| i128::from(time.0).div_euclid(period)))
            };
            prop_assert!(periods(&kept).is_superset(&periods(&young.copied().collect())));
        }
    }

    #[test]
    fn each_moment_within_the_reach_of_all_keeps_its_state(
        rule in rules(),
        commits in commits(),
        (at, seconds) in moment(),
        ago in span(),
    ) {
        let now = near(&commits, at, seconds);
        let ago = match rule.dense() {
            Reach::Seconds(seconds) => ago % (i64::try_from(seconds).unwrap() + 1),
            Reach::Forever => ago,
        };
        let moment = i128::from(now.0 - ago * SECOND);
        let state = |commits: &Commits| state_at(commits, |time| time <= moment).copied();
        prop_assert_eq!(state(&kept(&rule, now, &commits)), state(&commits));
    }

    #[test]
    fn thinning_twice_is_thinning_once(rule in rules(), commits in commits(), (at, seconds) in moment()) {
        let now = near(&commits, at, seconds);
        let kept = kept(&rule, now, &commits);
        prop_assert_eq!(thinned(&rule, now, &kept), thinned(&rule, now, &commits));
    }

    #[test]
    fn later_less_stays(rule in rules(), commits in commits(), (at, seconds) in moment(), later in span()) {
        let now = near(&commits, at, seconds);
        let before = kept(&rule, now, &commits);
        let after = kept(&rule, Timestamp(now.0 + later * SECOND), &commits);
        prop_assert!(after.iter().all(|commit| before.contains(commit)));
    }

    /// The volume is thinned now and then, with new commits in between.
    #[test]
    fn thinning_on_the_way_changes_nothing_in_the_end(
        rule in rules(),
        commits in commits(),
        mut moments in proptest::collection::vec((any::<prop::sample::Index>(), moment()), 1..6),
    ) {
        let mut nows: Vec<_> = moments.iter().map(|(_, (at, seconds))| near(&commits, *at, *seconds)).collect();
        nows.sort_unstable();
        moments.sort_unstable_by_key(|(upto, _)| upto.index(commits.len() + 1));
        let (mut there, mut begun) = (Commits::new(), 0);
        for ((upto, _), now) in moments.iter().zip(&nows) {
            let end = upto.index(commits.len() + 1);
            there.extend(&commits[begun..end]);
            begun = end;
            let once = thinned(&rule, *now, &commits[..end].to_vec());
            prop_assert_eq!(thinned(&rule, *now, &there), once);
            there = kept(&rule, *now, &there);
        }
    }
}
