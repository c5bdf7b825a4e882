//! Streams record by record: what is sent comes back, and what no Weft sends is refused.

use super::codec::{RecordWriter, row_digest};
use super::frame::FrameWriter;
use super::record::{Part, Record, Snapshot};
use super::{Incoming, ReceiveOptions, Selection, StreamCommit, StreamVolume, send};
use crate::error::{Error, Result};
use crate::finding::{CheckOptions, Outcome, Repair};
use crate::memory::MemoryStore;
use crate::row::{CommitNo, Cookie, Ino, InodeRow, Timestamp};
use crate::store::{BlockHome, Store, VolumeOptions};
use crate::{HistoryFor, Name, sqlite};
use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;
use weft_block::Slice;
use weft_digest::{Digest, Kind};

const BLOCK: u64 = 4096;

fn options() -> VolumeOptions {
    VolumeOptions { block_size: 4096, inline_max: 100, home: BlockHome::Database, ..VolumeOptions::default() }
}

fn volume() -> Record {
    let history = Some(("all forever".into(), HistoryFor::All));
    Record::Volume(StreamVolume { uuid: [7; 16], created: Timestamp(5), options: options(), in_files: true, history })
}

fn commit(number: u64, root: Option<Digest>) -> StreamCommit {
    StreamCommit { number: CommitNo(number), time: Timestamp(1000 + i64::try_from(number).expect("small")), root }
}

fn part(from: Option<StreamCommit>, to: StreamCommit) -> Part {
    Part { from, to, next_id: 100, bytes_about: 0, snapshots: Vec::new() }
}

fn directory(ino: u64, parent: u64, size: u64, nlink: u32) -> InodeRow {
    InodeRow { ino: Ino(ino), parent: Ino(parent), size, nlink, ..InodeRow::new_root(3, 4, Timestamp(9)) }
}

fn file(ino: u64, size: u64, allocated: u64) -> InodeRow {
    let new = InodeRow::new_root(1, 2, Timestamp(8));
    InodeRow { ino: Ino(ino), kind: Kind::File, parent: Ino(0), nlink: 1, size, allocated, ..new }
}

fn inode(row: InodeRow) -> Record {
    Record::Inode { base: None, row }
}

fn name(name: &str, ino: u64, kind: Kind, cookie: u64) -> Record {
    let name = Name::new(name.as_bytes()).expect("a name");
    Record::Name { name, ino: Ino(ino), kind, cookie: Cookie(cookie) }
}

fn xattr(name: &str, value: Option<&str>) -> Record {
    let name = Name::of_xattr(name.as_bytes()).expect("a name");
    Record::Xattr { name, value: value.map(|value| value.as_bytes().to_vec()) }
}

fn block(index: u64, byte: u8, length: usize) -> Record {
    Record::Block { index, base: index * BLOCK, bytes: vec![byte; length] }
}

/// The records of a small tree: all kinds of rows, a hole, a hard link, a shared block.
fn tree() -> Vec<Record> {
    let link = InodeRow { kind: Kind::Symlink, inline: Some(Slice::from(b"a".to_vec())), ..file(19, 1, 1) };
    let inline = InodeRow { nlink: 2, xattrs: 2, inline: Some(Slice::from(b"hello".to_vec())), ..file(17, 9, 5) };
    vec![
        inode(directory(1, 1, 4, 3)),
        inode(directory(16, 1, 2, 2)),
        inode(inline),
        xattr("user.a/b", Some("x")),
        xattr("user.c", Some("")),
        inode(file(18, 9 * BLOCK, 2 * BLOCK + 10)),
        block(0, 1, 4096),
        block(3, 2, 4096),
        block(8, 3, 10),
        inode(link),
        inode(file(20, 2 * BLOCK, BLOCK)),
        Record::Shared { index: 1, ino: Ino(18), at: 3 },
        Record::Directory { ino: Ino(1) },
        name("sub", 16, Kind::Directory, 30),
        name("a", 17, Kind::File, 31),
        name("l", 19, Kind::Symlink, 33),
        name("clone", 20, Kind::File, 34),
        Record::Directory { ino: Ino(16) },
        name("\u{ff}", 17, Kind::File, 35),
        name("big", 18, Kind::File, 36),
    ]
}

fn stream(head: Vec<Record>, records: &[Record]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut out = RecordWriter::new(FrameWriter::new(&mut bytes).expect("written"));
    head.iter().for_each(|record| out.put(record).expect("written"));
    out.counts = super::StreamCounts::default();
    records.iter().for_each(|record| out.put(record).expect("written"));
    out.end_part().expect("written");
    out.finish().expect("written");
    bytes
}

fn receive(bytes: &[u8], store: &dyn Store) -> Result<()> {
    Incoming::open(bytes)?.receive(store, &ReceiveOptions::default(), &mut |_| ()).map(drop)
}

fn whole(records: &[Record]) -> Result<()> {
    let head = vec![volume(), Record::Part(part(None, commit(5, None)))];
    receive(&stream(head, records), &MemoryStore::new(options()))
}

#[track_caller]
fn refused(done: Result<()>) {
    match done {
        Err(Error::Stream(_)) => {}
        other => panic!("{other:?}"),
    }
}

fn new_store(path: &Path) -> Arc<dyn Store> {
    sqlite::create(path, &options(), (0, 0), Timestamp(5)).expect("made");
    sqlite::open(path).expect("opened").store
}

#[track_caller]
fn assert_clean(path: &Path) {
    let options = CheckOptions { repair: Repair::No, read_data: true };
    let mut findings = sqlite::check(path, options, &mut |_| ()).expect("checked");
    findings.retain(|finding| finding.outcome != Outcome::Note);
    assert!(findings.is_empty(), "{findings:?}");
}

#[test]
fn a_tree_that_takes_several_commits_is_received_and_sent_on_as_it_came() {
    whole(&tree()).expect("received");
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("v");
    let store = new_store(&path);
    let snapshot = Snapshot { name: b"monday".to_vec(), made: Timestamp(1), held_until: None };
    let first = Part { snapshots: vec![snapshot], ..part(None, commit(5, None)) };
    receive(&stream(vec![volume(), Record::Part(first)], &tree()), &*store).expect("received");
    let header = store.header().expect("readable");
    assert!(header.commit.0 > 5, "in several commits");
    assert_eq!((header.counters.next_id, header.counters.inodes_used), (100, 6));
    assert_eq!(store.pins().expect("readable").len(), 1);
    let again = |store: &Arc<dyn Store>| {
        let mut bytes = Vec::new();
        let to = store.header().expect("readable").commit;
        let selection = Selection { from: None, to, snapshots: false };
        send((store, true), &selection, &mut bytes, &mut |_| ()).expect("sent");
        records(&bytes)
    };
    let sent = again(&store);
    assert_eq!(sent[2..sent.len() - 2], tree());
    store.close().expect("closed");
    drop(store);
    assert_clean(&path);
}

fn records(bytes: &[u8]) -> Vec<Record> {
    let mut reader = super::codec::RecordReader::new(super::frame::FrameReader::new(bytes).expect("a stream"));
    let mut records = vec![reader.next().expect("a record")];
    while records.last() != Some(&Record::End) {
        records.push(reader.next().expect("a record"));
    }
    records
}

#[test]
fn a_tree_with_another_digest_than_was_sent_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = new_store(&directory.path().join("v"));
    let head = vec![volume(), Record::Part(part(None, commit(5, Some([1; 32]))))];
    let error = receive(&stream(head, &tree()), &*store).expect_err("another digest");
    assert!(error.to_string().starts_with("the tree would have digest "), "{error}");
}

#[test]
fn records_that_are_missing_doubled_or_exchanged_are_refused() {
    let tree = tree();
    for at in 0..tree.len() {
        let mut without = tree.clone();
        without.remove(at);
        refused(whole(&without));
        let mut doubled = tree.clone();
        doubled.insert(at, tree[at].clone());
        refused(whole(&doubled));
    }
    for at in 1..tree.len() {
        let mut exchanged = tree.clone();
        exchanged.swap(at - 1, at);
        refused(whole(&exchanged));
    }
}

#[test]
fn rows_that_no_volume_has_are_refused() {
    let changed = |at: usize, change: &dyn Fn(&mut InodeRow)| {
        let mut tree = tree();
        let Record::Inode { row, .. } = &mut tree[at] else { panic!("no inode") };
        change(row);
        tree
    };
    for (at, change) in [
        (0, &(|row: &mut InodeRow| row.parent = Ino(16)) as &dyn Fn(&mut InodeRow)),
        (0, &|row| row.size = 5),
        (0, &|row| row.nlink = 4),
        (1, &|row| row.parent = Ino(17)),
        (1, &|row| row.parent = Ino(16)),
        (2, &|row| row.nlink = 3),
        (2, &|row| row.xattrs = 1),
        (2, &|row| row.allocated = 6),
        (2, &|row| row.size = 4),
        (2, &|row| row.ino = Ino(0)),
        (2, &|row| row.ino = Ino(100)),
        (2, &|row| row.ino = Ino(1 << 48)),
        (5, &|row| row.kind = Kind::Fifo),
        (5, &|row| row.size = 8 * BLOCK),
        (5, &|row| row.allocated = 0),
        (9, &|row| row.inline = None),
    ] {
        refused(whole(&changed(at, change)));
    }
    let with = |at: usize, record: Record| {
        let mut tree = tree();
        tree[at] = record;
        tree
    };
    refused(whole(&with(6, block(0, 1, 0))));
    refused(whole(&with(6, block(0, 1, 4097))));
    refused(whole(&with(6, Record::Block { index: 0, base: 5, bytes: vec![1; 4096] })));
    refused(whole(&with(6, Record::Block { index: 1 << 60, base: 0, bytes: vec![1; 4096] })));
    refused(whole(&with(11, Record::Shared { index: 1, ino: Ino(18), at: 4 })));
    refused(whole(&with(13, name("sub", 16, Kind::Directory, 2))));
    refused(whole(&with(13, name("sub", 16, Kind::Directory, 100))));
    refused(whole(&with(13, name("a", 16, Kind::Directory, 30))));
    refused(whole(&with(13, name("sub", 1, Kind::Directory, 30))));
}

#[test]
fn names_with_a_slash_and_numbers_below_zero_are_refused() {
    let replaced = |from: &[u8], to: &[u8]| {
        let mut bytes = Vec::new();
        let mut out = RecordWriter::new(FrameWriter::new(&mut bytes).expect("written"));
        let head = [volume(), Record::Part(part(None, commit(5, None)))];
        head.iter().chain(&tree()).for_each(|record| out.put(record).expect("written"));
        out.end_part().expect("written");
        out.finish().expect("written");
        // One frame: the bytes of all records.
        let mut payload = bytes[20..bytes.len() - 32].to_vec();
        let at = payload.windows(from.len()).position(|bytes| bytes == from).expect("it is there");
        payload[at..at + to.len()].copy_from_slice(to);
        super::fuzzing::receive(&payload).map(drop)
    };
    let error = replaced(b"clone", b"cl/ne").expect_err("no name");
    assert!(error.to_string().contains("cl/ne"), "{error}");
    refused(replaced(b"clone", b"cl\0ne"));
    // The size of the file of nine blocks, of the same length.
    let size = (9 * BLOCK).to_le_bytes();
    let error = replaced(&size, &(-1i64).to_le_bytes()).expect_err("no size");
    assert!(error.to_string().contains("negative"), "{error}");
    refused(replaced(&size, &(9 * BLOCK - 5000).to_le_bytes()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_bytes_and_any_changes_of_a_stream_are_refused_or_received(
        bytes in prop::collection::vec(any::<u8>(), 0..300), at in any::<prop::sample::Index>(), to in any::<u8>()
    ) {
        let _ = super::fuzzing::receive(&bytes);
        let _ = receive(&bytes, &MemoryStore::new(options()));
        let stream = stream(vec![volume(), Record::Part(part(None, commit(5, None)))], &tree());
        let mut payload = stream[20..stream.len() - 32].to_vec();
        let at = at.index(payload.len());
        payload[at] = to;
        let _ = super::fuzzing::receive(&payload);
    }
}

/// A volume with the tree, and the commit that it is at.
fn base(path: &Path) -> (Arc<dyn Store>, StreamCommit) {
    let store = new_store(path);
    let head = vec![volume(), Record::Part(part(None, commit(5, None)))];
    receive(&stream(head, &tree()), &*store).expect("received");
    let root = store.digest(Ino::ROOT).expect("readable");
    (store, commit(5, root))
}

fn row(store: &dyn Store, ino: u64) -> InodeRow {
    store.inodes(Ino(ino), 1).expect("readable").remove(0)
}

/// What changes `old` into that.
fn changed(old: &InodeRow, change: impl FnOnce(&mut InodeRow)) -> Record {
    let mut row = old.clone();
    change(&mut row);
    Record::Inode { base: Some(row_digest(old)), row }
}

fn changes(store: &dyn Store, from: StreamCommit, records: &[Record]) -> Result<()> {
    let head = vec![volume(), Record::Part(part(Some(from), commit(6, None)))];
    receive(&stream(head, records), store)
}

/// Moves a file, removes a link, adds a directory, changes blocks and attributes.
fn some_changes(store: &dyn Store) -> Vec<Record> {
    let of = |ino| row(store, ino);
    vec![
        changed(&of(1), |row| row.nlink = 4),
        changed(&of(16), |row| row.size = 1),
        changed(&of(17), |row| row.xattrs = 1),
        xattr("user.c", None),
        xattr("user.a/b", Some("y")),
        changed(&of(18), |row| row.allocated = 2 * BLOCK + 10),
        Record::Clear { range: 3..4 },
        block(2, 9, 4096),
        inode(directory(40, 1, 1, 2)),
        Record::Gone { ino: Ino(19), base: row_digest(&of(19)) },
        Record::Directory { ino: Ino(1) },
        Record::NoName { name: Name::new(b"l").expect("a name") },
        name("new", 40, Kind::Directory, 50),
        Record::Directory { ino: Ino(16) },
        Record::NoName { name: Name::new(b"big").expect("a name") },
        Record::Directory { ino: Ino(40) },
        name("moved", 18, Kind::File, 51),
    ]
}

#[test]
fn changes_are_one_commit() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("v");
    let (store, from) = base(&path);
    let before = store.header().expect("readable").commit;
    changes(&*store, from, &some_changes(&*store)).expect("received");
    assert_eq!(store.header().expect("readable").commit, before.next());
    assert_eq!(store.commits(before.next(), 1).expect("readable")[0].time, commit(6, None).time);
    let moved = store.names(Ino(40), Cookie(0), 10).expect("readable");
    assert_eq!(moved[0].ino, Ino(18));
    store.close().expect("closed");
    drop(store);
    assert_clean(&path);
}

#[test]
fn changes_that_do_not_fit_change_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let (store, from) = base(&directory.path().join("v"));
    let before = store.header().expect("readable");
    let all = some_changes(&*store);
    // Nothing depends on the new value of an attribute.
    let needed = |record: &Record| !matches!(record, Record::Xattr { value: Some(_), .. });
    for at in (0..all.len()).filter(|at| needed(&all[*at])) {
        let mut without = all.clone();
        without.remove(at);
        changes(&*store, from, &without).expect_err(&format!("without record {at}"));
    }
    // A directory may come in two parts.
    let once = |record: &Record| !matches!(record, Record::Directory { .. });
    for at in (0..all.len()).filter(|at| once(&all[*at])) {
        let mut doubled = all.clone();
        doubled.insert(at, all[at].clone());
        changes(&*store, from, &doubled).expect_err(&format!("record {at} twice"));
    }
    assert_eq!(store.header().expect("readable"), before);
}

#[test]
fn directories_that_would_lie_in_each_other_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let (store, from) = base(&directory.path().join("v"));
    let of = |ino| row(&*store, ino);
    let circle = [
        changed(&of(1), |row| (row.size, row.nlink) = (3, 2)),
        changed(&of(16), |row| (row.size, row.nlink, row.parent) = (3, 3, Ino(40))),
        inode(self::directory(40, 16, 1, 3)),
        Record::Directory { ino: Ino(1) },
        Record::NoName { name: Name::new(b"sub").expect("a name") },
        Record::Directory { ino: Ino(16) },
        name("in", 40, Kind::Directory, 50),
        Record::Directory { ino: Ino(40) },
        name("out", 16, Kind::Directory, 51),
    ];
    let error = changes(&*store, from, &circle).expect_err("a circle");
    assert!(error.to_string().contains("does not lead to the root"), "{error}");
}

#[test]
fn changes_of_another_commit_or_of_other_rows_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let (store, from) = base(&directory.path().join("v"));
    let other = StreamCommit { root: Some([9; 32]), ..from };
    let error = changes(&*store, other, &some_changes(&*store)).expect_err("another tree");
    assert!(error.to_string().contains("begins from commit 5 of there, with digest 0909"), "{error}");
    let mut records = some_changes(&*store);
    let Record::Inode { base, .. } = &mut records[0] else { panic!("no inode") };
    *base = Some([9; 32]);
    let error = changes(&*store, from, &records).expect_err("another row");
    assert!(error.to_string().contains("inode 1 (/) is not as commit 5 left it"), "{error}");
    let unlike = Part { to: commit(6, Some([3; 32])), ..part(Some(from), commit(6, None)) };
    let bytes = stream(vec![volume(), Record::Part(unlike)], &some_changes(&*store));
    refused(receive(&bytes, &*store));
    changes(&*store, from, &some_changes(&*store)).expect("the right ones are received");
}

#[test]
fn numbers_that_no_volume_comes_to_are_refused() {
    let part = part(None, commit(5, None));
    let with = |part: Part| receive(&stream(vec![volume(), Record::Part(part)], &tree()), &MemoryStore::new(options()));
    with(Part { next_id: 1 << 47, ..part.clone() }).expect("received");
    for next_id in [0, 15, (1 << 47) + 1, 1 << 62, i64::MAX.unsigned_abs()] {
        refused(with(Part { next_id, ..part.clone() }));
    }
    refused(with(Part { to: commit((1 << 62) + 1, None), ..part }));
    let directory = tempfile::tempdir().expect("a directory");
    let (store, from) = base(&directory.path().join("v"));
    let part = Part { next_id: (1 << 47) + 1, ..super::tests::part(Some(from), commit(6, None)) };
    refused(receive(&stream(vec![volume(), Record::Part(part)], &some_changes(&*store)), &*store));
    assert_eq!(store.header().expect("readable").counters.next_id, 100);
}

#[test]
fn an_entry_at_the_position_of_one_that_stays_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let (store, from) = base(&directory.path().join("v"));
    let with = |cookie: u64| {
        let mut records = some_changes(&*store);
        let at = records.iter().position(|record| matches!(record, Record::Name { .. })).expect("an entry");
        records[at] = name("new", 40, Kind::Directory, cookie);
        changes(&*store, from, &records)
    };
    // Those of `sub`, `a` and `clone`, which stay.
    [30, 31, 34].into_iter().for_each(|cookie| refused(with(cookie)));
    // That of `l`, which goes.
    with(33).expect("received");
}

#[test]
fn a_stream_ends_with_its_end() {
    let mut bytes = Vec::new();
    let mut out = RecordWriter::new(FrameWriter::new(&mut bytes).expect("written"));
    [volume(), Record::Part(part(None, commit(5, None)))].iter().for_each(|record| out.put(record).expect("written"));
    out.counts = super::StreamCounts::default();
    tree().iter().for_each(|record| out.put(record).expect("written"));
    out.end_part().expect("written");
    out.put(&Record::End).expect("written");
    out.put(&Record::End).expect("written");
    out.finish().expect("written");
    refused(receive(&bytes, &MemoryStore::new(options())));
}
