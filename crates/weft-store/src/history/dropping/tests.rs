use super::*;
use crate::history::testing::{self, SECOND, commit, keep, make_due, volume};
use crate::memory::MemoryStore;
use crate::past::{HistoryChange, Pin};
use crate::store::{RowStore, VolumeOptions};
use proptest::prelude::*;

fn snapshot(store: &MemoryStore, time: i64) {
    let (commit_no, made) = (store.header().expect("readable").commit, Timestamp(time * SECOND));
    let name = commit_no.0.to_string().into_bytes();
    let pin = Pin { commit: commit_no, kind: PinKind::Snapshot, name, made, held_until: None };
    commit(store, time, vec![HistoryChange::Pin(pin)]);
}

fn told(store: &MemoryStore, rule: Option<&str>, time: i64) -> Dropped {
    let rule = rule.map(|rule| rule.parse::<Rule>().expect("a rule"));
    dropped(store, rule.as_ref(), Timestamp(time * SECOND)).expect("readable").expect("kept")
}

#[test]
fn ending_history_drops_all_but_the_present_and_is_refused_with_snapshots() {
    let store = volume("all forever");
    assert_eq!(told(&store, None, 1).commits, 0, "nothing was changed yet");
    (1..=30).for_each(|time| commit(&store, time, Vec::new()));
    let last = store.header().expect("readable").commit;
    assert_eq!(told(&store, None, 30), Dropped { commits: 30, oldest: last });
    snapshot(&store, 31);
    let refused = dropped(&store, None, Timestamp(31 * SECOND));
    assert!(matches!(&refused, Err(error) if error.to_string().contains("snapshots")), "{refused:?}");
    let off = MemoryStore::new(VolumeOptions::default());
    assert_eq!(dropped(&off, None, Timestamp(0)).expect("readable"), None);
}

#[test]
fn a_rule_that_reaches_as_far_or_that_nobody_knows_costs_nothing() {
    let store = volume("all 10s, minutely 10m");
    (1..=500).for_each(|time| commit(&store, time, Vec::new()));
    for rule in ["all 10s, minutely 10m", "all 20s, minutely 1h", "all forever"] {
        assert_eq!(told(&store, Some(rule), 500).commits, 0, "{rule}");
    }
    let unknown = volume("some of it, as it likes");
    (1..=500).for_each(|time| commit(&unknown, time, Vec::new()));
    assert_eq!(told(&unknown, Some("all forever"), 500).commits, 0);
    assert_eq!(told(&unknown, Some("all 100s"), 500).commits, 400);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]
    /// What is told is what goes.
    #[test]
    fn what_is_told_is_what_is_dropped(
        gaps in prop::collection::vec((0..40i64, 0..12u8), 1..60),
        later in 0..900i64,
        rules in (0..4usize, 0..4usize),
    ) {
        let all = ["all 30s, minutely 5m", "all 5s", "all forever", "all 2m, minutely 10m, hourly forever"];
        let (old, new) = (all[rules.0], all[rules.1]);
        let store = volume(old);
        let mut time = 0;
        for (gap, what) in gaps {
            time += gap;
            commit(&store, time, Vec::new());
            match what {
                0 => snapshot(&store, time),
                1 => make_due(&store, time),
                _ => {}
            }
        }
        time += later;
        make_due(&store, time);
        let before = testing::kept(&store);
        let said = told(&store, Some(new), time);
        keep(&store, time, new);
        make_due(&store, time);
        let after = testing::kept(&store);
        let gone = before.iter().filter(|commit| !after.contains(commit)).count() as u64;
        let ops = before.iter().filter_map(|number| store.commit_row(*number).expect("readable")).map(|row| row.op);
        let is_one_tree = ops.collect::<BTreeSet<_>>().len() == 1;
        prop_assert_eq!(said.commits, if is_one_tree { 0 } else { gone });
        prop_assert_eq!(Some(&said.oldest), after.first());
    }
}
