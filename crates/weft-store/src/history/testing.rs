//! A volume in memory that commits as a test says, for tests of what is kept.

use super::due;
use crate::batch::Batch;
use crate::memory::MemoryStore;
use crate::past::{HistoryChange, HistoryFor, PastStore};
use crate::row::{CommitNo, Timestamp};
use crate::store::{CommitStore, Durability, RowStore, VolumeOptions};

pub(super) const SECOND: i64 = 1_000_000_000;

/// Commits `history`, or else a change of the tree.
pub(super) fn commit(store: &MemoryStore, time: i64, history: Vec<HistoryChange>) {
    let header = store.header().expect("readable");
    let (commit, mut counters) = (header.commit.next(), header.counters);
    counters.op.0 += u64::from(history.is_empty());
    let batch = Batch { commit, time: Timestamp(time * SECOND), counters, history, ..Batch::default() };
    store.apply(&batch, Durability::Durable).expect("applied");
}

/// Keeps history by `rule` from `time` on.
pub(super) fn keep(store: &MemoryStore, time: i64, rule: &str) {
    commit(store, time, vec![HistoryChange::Keep(rule.into(), HistoryFor::All)]);
}

pub(super) fn volume(rule: &str) -> MemoryStore {
    let store = MemoryStore::new(VolumeOptions::default());
    keep(&store, 0, rule);
    store
}

pub(super) fn kept(store: &MemoryStore) -> Vec<CommitNo> {
    let last = store.header().expect("readable").commit.0;
    (1..=last).map(CommitNo).filter(|commit| store.is_kept(*commit).expect("readable")).collect()
}

/// Makes what is due at `time`, in as many commits as it takes.
pub(super) fn make_due(store: &MemoryStore, time: i64) {
    for round in 0.. {
        let changes = due(store, Timestamp(time * SECOND), &[]).expect("readable");
        if changes.is_empty() {
            return;
        }
        assert!(round < 100, "it never ends: {changes:?}");
        commit(store, time, changes);
    }
}
