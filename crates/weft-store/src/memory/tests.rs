//! Tests of the model of history: small cases that fix the meaning of each change.

use super::MemoryStore;
use crate::batch::{Batch, ExtentChange, InodeChange, NewBlock};
use crate::error::ErrorKind;
use crate::past::{HistoryChange, HistoryFor, PastStore, Pin, PinKind};
use crate::row::{BlockId, CommitNo, Ino, InodeRow, Place, Span, Timestamp};
use crate::store::{CommitStore, Durability, ReadMode, RowStore, VolumeOptions};
use crate::{BlockStore, Result};
use weft_block::Rope;
use weft_digest::Kind;

const FILE: Ino = Ino(16);

fn store() -> MemoryStore {
    MemoryStore::new(VolumeOptions::default())
}

/// Commits what `fill` puts into a batch, at 1000 times its number.
fn commit(store: &MemoryStore, fill: impl FnOnce(&mut Batch)) -> Result<CommitNo> {
    let header = store.header()?;
    let number = header.commit.next();
    let time = Timestamp(i64::try_from(number.0).expect("few") * 1000);
    let mut batch = Batch { commit: number, time, counters: header.counters, ..Batch::default() };
    fill(&mut batch);
    store.apply(&batch, Durability::Durable)?;
    Ok(number)
}

fn change(store: &MemoryStore, changes: &[HistoryChange]) -> Result<CommitNo> {
    commit(store, |batch| batch.history = changes.to_vec())
}

fn keep() -> HistoryChange {
    HistoryChange::Keep("all forever".into(), HistoryFor::All)
}

fn snapshot(commit: CommitNo, name: &str, until: Option<Timestamp>) -> Pin {
    Pin { commit, kind: PinKind::Snapshot, name: name.into(), made: Timestamp(0), held_until: until }
}

fn row(size: u64, atime: i64) -> InodeRow {
    let root = InodeRow::new_root(0, 0, Timestamp(0));
    InodeRow { ino: FILE, kind: Kind::File, size, atime: Timestamp(atime), parent: Ino(0), ..root }
}

fn put(store: &MemoryStore, row: InodeRow) -> CommitNo {
    commit(store, |batch| batch.inodes.push(InodeChange::Put(row))).expect("applied")
}

/// Puts a new block at the start of the file.
fn put_block(store: &MemoryStore) -> CommitNo {
    let applied = commit(store, |batch| {
        let new = NewBlock::new(BlockId(batch.counters.next_block), FILE, Rope::from(vec![7; 10]), 0);
        batch.counters.next_block += 1;
        batch.extents.push(ExtentChange::Put {
            ino: FILE,
            span: Span::of_block(0, 65536),
            block: new.at(Place::Database),
        });
        batch.blocks.push(new);
    });
    applied.expect("applied")
}

fn size_and_since(store: &MemoryStore, commit: CommitNo) -> (u64, CommitNo) {
    let found = store.inodes_at(commit, FILE..FILE.next(), 1).expect("kept");
    let (row, since) = found.first().expect("the file");
    (row.size, *since)
}

fn refused(outcome: Result<CommitNo>) {
    assert_eq!(outcome.expect_err("refused").kind(), ErrorKind::Unusable);
}

#[test]
fn history_begins_with_the_commit_that_switches_it_on() {
    let store = store();
    assert_eq!(store.history().expect("readable"), None);
    assert!(!store.is_kept(CommitNo(1)).expect("readable"));
    let begun = change(&store, &[keep()]).expect("applied");
    let history = store.history().expect("readable").expect("on");
    assert_eq!((&*history.rule, history.first, history.swept), ("all forever", begun, begun));
    let kept = [begun.0 - 1, begun.0, begun.0 + 1].map(|number| store.is_kept(CommitNo(number)).expect("readable"));
    assert_eq!(kept, [false, true, false]);
    change(&store, &[HistoryChange::Keep("all 1d".into(), HistoryFor::All)]).expect("applied");
    let history = store.history().expect("readable").expect("on");
    assert_eq!((&*history.rule, history.first), ("all 1d", begun), "another rule begins no other history");
}

#[test]
fn an_inode_is_as_old_as_its_last_change_of_anything_but_the_access_time() {
    let store = store();
    let made = put(&store, row(1, 0));
    let begun = change(&store, &[keep()]).expect("applied");
    let read = put(&store, row(1, 5));
    assert_eq!(size_and_since(&store, begun), (1, made));
    assert_eq!(size_and_since(&store, read), (1, made));
    let grown = put(&store, row(2, 5));
    let again = put(&store, row(2, 5));
    assert_eq!(size_and_since(&store, read), (1, made));
    assert_eq!(size_and_since(&store, again), (2, grown));
    let versions = store.versions(FILE, again, 9).expect("readable");
    assert_eq!(versions, [(row(1, 5), made..grown)]);
}

#[test]
fn versions_are_told_from_the_newest_on_up_to_a_commit() {
    let store = store();
    change(&store, &[keep()]).expect("applied");
    let commits = [1, 2, 3].map(|size| put(&store, row(size, 0)));
    let removed = commit(&store, |batch| batch.inodes.push(InodeChange::Remove(FILE))).expect("applied");
    let held = |until, limit| {
        let versions = store.versions(FILE, until, limit).expect("readable");
        versions.into_iter().map(|(row, held)| (row.size, held)).collect::<Vec<_>>()
    };
    let all = [(3, commits[2]..removed), (2, commits[1]..commits[2]), (1, commits[0]..commits[1])];
    assert_eq!(held(removed, 9), all);
    assert_eq!(held(removed, 1), all[..1]);
    assert_eq!(held(commits[2], 9), all[1..]);
    assert_eq!(store.inodes_at(commits[0], FILE..FILE.next(), 1).expect("kept").len(), 1);
    assert_eq!(store.inodes_at(removed, FILE..FILE.next(), 1).expect("kept"), []);
}

#[test]
fn a_block_lives_as_long_as_a_kept_commit_names_it() {
    let store = store();
    change(&store, &[keep()]).expect("applied");
    let first = put_block(&store);
    let second = put_block(&store);
    assert_eq!(store.block_count(), 2);
    let (_, block) = store.extents_at(first, FILE, 0..9).expect("kept")[0];
    assert_eq!(store.read_block(&block, ReadMode::Blocking).expect("readable").expect("waited").len(), 10);
    change(&store, &[HistoryChange::First(second)]).expect("applied");
    assert_eq!(store.block_count(), 2, "nothing is forgotten before it is asked for");
    let last = change(&store, &[HistoryChange::Forget(9)]).expect("applied");
    assert_eq!(store.block_count(), 1);
    assert_eq!(store.versions(FILE, last, 9).expect("readable"), []);
    let history = store.history().expect("readable").expect("on");
    assert_eq!(history.swept, second);
}

#[test]
fn a_pin_keeps_a_commit_that_is_not_among_the_last() {
    let store = store();
    change(&store, &[keep()]).expect("applied");
    let commits = [(); 4].map(|()| put_block(&store));
    let forget = [
        HistoryChange::Pin(snapshot(commits[1], "s", None)),
        HistoryChange::First(commits[3]),
        HistoryChange::Forget(9),
    ];
    change(&store, &forget).expect("applied");
    assert_eq!(commits.map(|commit| store.is_kept(commit).expect("readable")), [false, true, false, true]);
    assert_eq!(store.block_count(), 2);
    assert_eq!(store.pins().expect("readable"), [snapshot(commits[1], "s", None)]);
    assert_eq!(store.inodes_at(commits[2], FILE..FILE.next(), 1).expect_err("gone").kind(), ErrorKind::Unusable);
    let unpin = HistoryChange::Unpin(commits[1], PinKind::Snapshot, b"s".to_vec());
    change(&store, std::slice::from_ref(&unpin)).expect("applied");
    assert_eq!(store.history().expect("readable").expect("on").swept, commits[1]);
    change(&store, &[unpin, HistoryChange::Forget(9)]).expect("removing what is not there is harmless");
    assert_eq!(store.block_count(), 1);
    assert_eq!(store.history().expect("readable").expect("on").swept, commits[3]);
}

#[test]
fn a_commit_that_is_not_kept_cannot_be_pinned() {
    let store = store();
    refused(change(&store, &[HistoryChange::Pin(snapshot(CommitNo(1), "s", None))]));
    let begun = change(&store, &[keep()]).expect("applied");
    refused(change(&store, &[HistoryChange::Pin(snapshot(CommitNo(begun.0 - 1), "s", None))]));
    refused(change(&store, &[HistoryChange::Pin(snapshot(CommitNo(begun.0 + 2), "s", None))]));
    let own = CommitNo(begun.0 + 1);
    assert_eq!(change(&store, &[HistoryChange::Pin(snapshot(own, "s", None))]).expect("applied"), own);
    let first = CommitNo(own.0 + 1);
    let moved = HistoryChange::First(first);
    refused(change(&store, &[moved, HistoryChange::Pin(snapshot(begun, "s", None))]));
}

#[test]
fn a_pin_is_not_removed_before_its_time() {
    let store = store();
    let begun = change(&store, &[keep()]).expect("applied");
    let until = Timestamp(1000 * i64::try_from(begun.0 + 3).expect("few"));
    change(&store, &[HistoryChange::Pin(snapshot(begun, "s", Some(until)))]).expect("applied");
    let unpin = [HistoryChange::Unpin(begun, PinKind::Snapshot, b"s".to_vec())];
    refused(change(&store, &unpin));
    change(&store, &[]).expect("applied");
    change(&store, &unpin).expect("its time has come");
    assert_eq!(store.pins().expect("readable"), []);
}

#[test]
fn a_snapshot_gets_another_name_and_its_hold_goes_along() {
    let store = store();
    let begun = change(&store, &[keep()]).expect("applied");
    let held = Some(Timestamp(i64::MAX));
    let rename = |from: &[u8], to: &[u8]| HistoryChange::Rename(begun, from.to_vec(), to.to_vec());
    change(&store, &[HistoryChange::Pin(snapshot(begun, "s", held)), rename(b"s", b"t")]).expect("applied");
    assert_eq!(store.pins().expect("readable"), [snapshot(begun, "t", held)]);
    refused(change(&store, &[HistoryChange::Pin(snapshot(begun, "s", None)), rename(b"s", b"t")]));
    change(&store, &[rename(b"s", b"u")]).expect("harmless");
    assert_eq!(store.pins().expect("readable"), [snapshot(begun, "t", held)]);
}

#[test]
fn history_does_not_end_while_there_are_snapshots() {
    let store = store();
    change(&store, &[HistoryChange::End]).expect("there is none to end");
    let begun = change(&store, &[keep()]).expect("applied");
    let [first, _] = [(); 2].map(|()| put_block(&store));
    change(&store, &[HistoryChange::Pin(snapshot(begun, "s", None))]).expect("applied");
    refused(change(&store, &[HistoryChange::End]));
    assert!(store.is_kept(first).expect("readable"), "a refused commit changes nothing");
    let unpin = HistoryChange::Unpin(begun, PinKind::Snapshot, b"s".to_vec());
    let point = HistoryChange::Pin(Pin { kind: PinKind::Point, ..snapshot(first, "", None) });
    change(&store, &[unpin, point, HistoryChange::End]).expect("applied");
    assert_eq!(store.history().expect("readable"), None);
    assert_eq!((store.pins().expect("readable"), store.block_count()), (Vec::new(), 1));
    let again = change(&store, &[keep()]).expect("applied");
    assert_eq!(store.history().expect("readable").expect("on").first, again);
}

#[test]
fn the_first_kept_commit_moves_up_alone() {
    let store = store();
    let begun = change(&store, &[keep()]).expect("applied");
    let second = change(&store, &[]).expect("applied");
    let first = || store.history().expect("readable").expect("on").first;
    change(&store, &[HistoryChange::First(second)]).expect("applied");
    change(&store, &[HistoryChange::First(begun)]).expect("harmless");
    assert_eq!(first(), second);
    let next = store.header().expect("readable").commit.next();
    refused(change(&store, &[HistoryChange::First(next.next())]));
    change(&store, &[HistoryChange::First(next)]).expect("the commit itself");
    assert_eq!(first(), next);
}

#[test]
fn a_time_has_the_last_commit_before_it() {
    let store = store();
    for _ in 2..=4 {
        change(&store, &[]).expect("applied");
    }
    let at = |time| store.commit_at(Timestamp(time)).expect("readable").map(|row| row.number.0);
    assert_eq!([-1, 0, 1999, 2000, 3500, i64::MAX].map(at), [None, Some(1), Some(1), Some(2), Some(3), Some(4)]);
}

#[test]
fn a_part_of_the_past_is_forgotten_if_that_is_asked_for() {
    let store = store();
    let begun = change(&store, &[keep()]).expect("applied");
    let commits = [(); 4].map(|()| put_block(&store));
    change(&store, &[HistoryChange::First(commits[3]), HistoryChange::Forget(2)]).expect("applied");
    assert_eq!(store.history().expect("readable").expect("on").swept, CommitNo(begun.0 + 2));
    assert_eq!(store.block_count(), 3);
}
