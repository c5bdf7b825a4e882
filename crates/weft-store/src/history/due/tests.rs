use super::*;
use crate::history::testing::{SECOND, commit, kept, make_due, volume};
use crate::memory::MemoryStore;
use crate::past::PastStore;
use crate::store::{RowStore, VolumeOptions};
use proptest::prelude::*;

#[test]
fn nothing_is_due_where_no_history_is_kept() {
    let store = MemoryStore::new(VolumeOptions::default());
    assert_eq!(due(&store, Timestamp(i64::MAX), &[]).expect("readable"), []);
    assert_eq!(yielding(&store).expect("readable"), []);
}

#[test]
fn only_versions_that_no_kept_commit_sees_go_without_the_time() {
    let store = volume("all 10s, minutely 10m");
    (1..=100).for_each(|time| commit(&store, time, Vec::new()));
    assert_eq!(sweeping(&store).expect("readable"), [], "all commits are kept");
    commit(&store, 101, vec![HistoryChange::First(CommitNo(40))]);
    let before = kept(&store);
    for round in 0.. {
        let changes = sweeping(&store).expect("readable");
        if changes.is_empty() {
            break;
        }
        assert!(round < 100, "it never ends: {changes:?}");
        commit(&store, 1_000_000, changes);
    }
    let history = store.history().expect("readable").expect("on");
    assert_eq!((history.first, history.swept), (CommitNo(40), CommitNo(40)));
    assert!(kept(&store).starts_with(&before));
}

#[test]
fn a_rule_of_a_later_program_keeps_all() {
    let store = volume("some of it, as it likes");
    (1..10).for_each(|time| commit(&store, time, Vec::new()));
    assert_eq!(due(&store, Timestamp(i64::MAX), &[]).expect("readable"), []);
}

#[test]
fn a_commit_in_use_stays_until_nobody_uses_it() {
    let store = volume("all 10s, minutely 10m");
    (1..=100).for_each(|time| commit(&store, time, Vec::new()));
    let used = CommitNo(40);
    for _ in 0..10 {
        let changes = due(&store, Timestamp(100 * SECOND), &[used]).expect("readable");
        commit(&store, 100, changes);
    }
    let left = kept(&store);
    assert!(left.contains(&used) && !left.contains(&CommitNo(39)) && !left.contains(&CommitNo(41)), "{left:?}");
    make_due(&store, 100);
    assert!(!kept(&store).contains(&used));
}

#[test]
fn all_that_no_user_asked_for_yields_the_oldest_first() {
    let store = volume("all 10s, minutely 10m");
    for time in 1..=300 {
        commit(&store, time, Vec::new());
    }
    make_due(&store, 300);
    let snapshot = Pin {
        commit: store.history().expect("readable").expect("on").first,
        kind: PinKind::Snapshot,
        name: b"kept".to_vec(),
        made: Timestamp(0),
        held_until: None,
    };
    commit(&store, 301, vec![HistoryChange::Pin(snapshot.clone())]);
    let mut before = kept(&store);
    assert!(before.len() > 10);
    for round in 0.. {
        let changes = yielding(&store).expect("readable");
        if changes.is_empty() {
            break;
        }
        assert!(round < 100, "it never ends");
        commit(&store, 302, changes);
        let mut now = kept(&store);
        now.retain(|commit| *commit <= *before.last().expect("some"));
        let is_gone = |commit: &&CommitNo| !now.contains(commit) && **commit != snapshot.commit;
        let gone = before.iter().filter(is_gone).max().copied();
        let left = now.iter().find(|commit| **commit != snapshot.commit).copied();
        assert!(gone < left || left.is_none(), "{gone:?} went before {left:?}");
        before = kept(&store);
    }
    let last = store.header().expect("readable").commit;
    let left = kept(&store);
    assert!(
        left.iter().all(|commit| *commit == snapshot.commit || last.0 - commit.0 <= LAST_KEPT),
        "{left:?} of {last:?}"
    );
}

#[test]
fn a_volume_that_nobody_uses_commits_nothing_for_ever() {
    let store = volume("all 10s, minutely 10m");
    (1..=5).for_each(|time| commit(&store, time, Vec::new()));
    let looks = (6..2000).map(|time| {
        let before = store.header().expect("readable").commit;
        make_due(&store, time);
        (time, store.header().expect("readable").commit.0 - before.0)
    });
    let made = looks.filter(|(_, commits)| *commits > 0).collect::<Vec<_>>();
    assert!(made.len() <= 8 && made.iter().all(|(time, _)| *time < 700), "{made:?}");
    assert!(store.is_kept(CommitNo(7)).expect("readable"), "the last state");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]
    /// Made often or seldom, what is due comes to the same as time passes.
    #[test]
    fn what_is_due_is_what_the_rule_says(
        gaps in prop::collection::vec(0..40i64, 1..60),
        looks in prop::collection::vec(any::<bool>(), 60),
        later in 0..900i64,
    ) {
        let rule = "all 30s, minutely 5m";
        let store = volume(rule);
        let mut made = vec![(CommitNo(2), Timestamp(0))];
        let mut time = 0;
        for (gap, looks) in gaps.iter().zip(looks) {
            time += gap;
            commit(&store, time, Vec::new());
            made.push((store.header().expect("readable").commit, Timestamp(time * SECOND)));
            if looks {
                let changes = due(&store, Timestamp(time * SECOND), &[]).expect("readable");
                if !changes.is_empty() {
                    commit(&store, time, changes);
                    made.push((store.header().expect("readable").commit, Timestamp(time * SECOND)));
                }
            }
        }
        let now = time + later;
        make_due(&store, now);
        // Commits that only change what is kept leave the tree as it was, and may stay beside the
        // one that made it so.
        let trees = |commits: &mut dyn Iterator<Item = CommitNo>| {
            let mut ops = commits.filter_map(|number| store.commits(number, 1).expect("readable").pop());
            let mut trees = ops.by_ref().map(|row| row.op).collect::<Vec<_>>();
            trees.dedup();
            trees
        };
        let stays = thin(&rule.parse().expect("a rule"), Timestamp(now * SECOND), &made, made.last().expect("one").0);
        let expected = made.iter().map(|(number, _)| *number)
            .filter(|number| *number >= stays.first || stays.points.contains(number));
        let (found, expected) = (trees(&mut kept(&store).into_iter()), trees(&mut { expected }));
        prop_assert_eq!(found, expected);
    }
}
