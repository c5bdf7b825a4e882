//! Streams record by record: what is sent comes back, and what no Weft sends is refused.

use super::codec::{RecordWriter, row_digest};
use super::frame::FrameWriter;
use super::record::{Part, Record, Snapshot};
use super::{Incoming, ReceiveOptions, Selection, StreamCommit, StreamVolume, is_begun, send};
use crate::error::{Error, ErrorKind, Result};
use crate::finding::{CheckOptions, Outcome, Repair};
use crate::memory::MemoryStore;
use crate::row::{CommitNo, Cookie, Ino, InodeRow, Span, Timestamp};
use crate::store::{BlockHome, Durability, ReadMode, RowStore, Store, VolumeOptions};
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
    Record::Block { span: span(index), base: index * BLOCK, bytes: vec![byte; length] }
}

fn span(index: u64) -> Span {
    Span::of_block(index, options().block_size)
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
        Record::Shared { span: span(1), ino: Ino(18), at: 3 * BLOCK },
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

/// Receives `records` as `part`, with the digest of the tree that they make. `scratch` tells that
/// digest as it refuses another one. It is `store` where a refusal changes nothing.
fn receive_as(part: Part, records: &[Record], (scratch, store): (&dyn Store, &dyn Store)) -> Result<()> {
    let with = |root: Digest, store: &dyn Store| {
        let part = Part { to: StreamCommit { root: Some(root), ..part.to }, ..part.clone() };
        receive(&stream(vec![volume(), Record::Part(part)], records), store)
    };
    let told = with([0; 32], scratch).expect_err("another digest").to_string();
    let hex = told.strip_prefix("the tree would have digest ").and_then(|told| told.get(..64));
    let Some(hex) = hex else { return with([0; 32], store) };
    let byte = |at: usize| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).expect("two digits");
    with(std::array::from_fn(byte), store)
}

/// Receives a whole tree into the new volume `store`.
fn receive_tree(part: Part, records: &[Record], store: &dyn Store) -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    receive_as(part, records, (&*new_store(&directory.path().join("scratch")), store))
}

fn receive(bytes: &[u8], store: &dyn Store) -> Result<()> {
    Incoming::open(bytes)?.receive(store, &ReceiveOptions::default(), &mut |_| ()).map(drop)
}

fn whole(records: &[Record]) -> Result<()> {
    let head = vec![volume(), Record::Part(part(None, commit(5, None)))];
    receive(&stream(head, records), &MemoryStore::new(VolumeOptions { digests: false, ..options() }))
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
    receive_tree(first, &tree(), &*store).expect("received");
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

/// A new volume without digests, which takes a tree that has none.
fn undigested_store(path: &Path) -> Arc<dyn Store> {
    let options = VolumeOptions { digests: false, ..options() };
    sqlite::create(path, &options, (0, 0), Timestamp(5)).expect("made");
    sqlite::open(path).expect("opened").store
}

/// All that `store` holds, as text; but for the commits that it took.
fn content(store: &dyn Store) -> String {
    let mut content = String::new();
    for row in store.inodes(Ino(0), 1000).expect("read") {
        let ino = row.ino;
        content += &format!("{row:?} {:?}\n", store.xattrs(ino).expect("read"));
        content += &format!("{:?}\n", store.names(ino, Cookie(0), 1000).expect("read"));
        for (span, block) in store.extents(ino, 0..u64::MAX >> 1).expect("read") {
            let bytes = store.read_block(&block, ReadMode::Blocking).expect("read").expect("there");
            content += &format!("{span:?} {:?}\n", bytes.as_ref());
        }
    }
    content
}

#[test]
fn a_receipt_that_ended_early_goes_on_where_it_ended() {
    let directory = tempfile::tempdir().expect("a directory");
    let (head, tree) = ([volume(), Record::Part(part(None, commit(5, None)))].to_vec(), tree());
    // One whose end cannot stand there.
    let ended_after = |count: usize| {
        let records = [&tree[..count], &[Record::Gone { ino: Ino(17), base: [0; 32] }][..]].concat();
        stream(head.clone(), &records)
    };
    let at_once = undigested_store(&directory.path().join("at-once"));
    receive(&stream(head.clone(), &tree), &*at_once).expect("received");
    let mut goes_on = 0;
    for (first, second) in (0..=tree.len()).zip((0..=tree.len()).rev()) {
        let path = directory.path().join(format!("{first}"));
        let store = undigested_store(&path);
        for count in [first, second] {
            refused(receive(&ended_after(count), &*store));
            goes_on += usize::from(is_begun(&*store).expect("read"));
            // What nothing of came has nothing to go on with.
            if !is_begun(&*store).expect("read") {
                break;
            }
        }
        if is_begun(&*store).expect("read") {
            receive(&stream(head.clone(), &tree), &*store).expect("received");
            assert_eq!(content(&*store), content(&*at_once), "{first} {second}");
            store.close().expect("closed");
            drop(store);
            assert_clean(&path);
        }
    }
    assert!(goes_on > tree.len(), "{goes_on}");
}

#[test]
fn a_receipt_goes_on_with_no_other_stream() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = undigested_store(&directory.path().join("v"));
    let (part, tree) = (part(None, commit(5, None)), tree());
    let broken = [&tree[..15], &[Record::Gone { ino: Ino(17), base: [0; 32] }][..]].concat();
    refused(receive(&stream(vec![volume(), Record::Part(part.clone())], &broken), &*store));
    assert!(is_begun(&*store).expect("read"));
    let before = content(&*store);
    let mut changed = tree.clone();
    changed[3] = xattr("user.a/b", Some("y"));
    let later = Part { to: commit(6, None), ..part.clone() };
    for (part, records) in [(part.clone(), &changed[..]), (later, &tree), (part.clone(), &tree[..3])] {
        let error = receive(&stream(vec![volume(), Record::Part(part)], records), &*store).expect_err("another one");
        assert_eq!(error.kind(), ErrorKind::Unusable, "{error}");
        assert_eq!(content(&*store), before);
    }
    // What the volume says of itself, and when a file was read, may be others by now.
    let mut tree = tree;
    let Record::Inode { row, .. } = &mut tree[2] else { panic!("no inode") };
    row.atime = Timestamp(77);
    let part = Part { next_id: 200, bytes_about: 9, ..part };
    receive(&stream(vec![volume(), Record::Part(part)], &tree), &*store).expect("received");
    assert!(!content(&*store).contains("weft.receiving"));
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
        (2, &|row| row.ino = Ino(15)),
        (2, &|row| (row.inline, row.size, row.allocated) = (Some(Slice::from(vec![0; 101])), 101, 101)),
        (9, &|row| (row.inline, row.size, row.allocated) = (Some(Slice::from(vec![b'a'; 4096])), 4096, 4096)),
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
    refused(whole(&with(6, Record::Block { span: span(0), base: 5, bytes: vec![1; 4096] })));
    refused(whole(&with(6, Record::Block { span: span(1 << 60), base: 0, bytes: vec![1; 4096] })));
    refused(whole(&with(11, Record::Shared { span: span(1), ino: Ino(18), at: 4 * BLOCK })));
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
    receive_tree(part(None, commit(5, None)), &tree(), &*store).expect("received");
    let root = store.digest(Ino::ROOT).expect("readable");
    (store, commit(5, root))
}

/// A row as it is sent.
fn row(store: &dyn Store, ino: u64) -> InodeRow {
    let row = store.inodes(Ino(ino), 1).expect("readable").remove(0);
    super::attributes::sent_row(store, &row).expect("readable")
}

/// What changes `old` into that.
fn changed(old: &InodeRow, change: impl FnOnce(&mut InodeRow)) -> Record {
    let mut row = old.clone();
    change(&mut row);
    Record::Inode { base: Some(row_digest(old)), row }
}

fn changes(store: &dyn Store, from: StreamCommit, records: &[Record]) -> Result<()> {
    receive_as(part(Some(from), commit(6, None)), records, (store, store))
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
        Record::Clear { range: 3 * BLOCK..4 * BLOCK },
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
    let with = |part: Part| {
        let store = MemoryStore::new(VolumeOptions { digests: false, ..options() });
        receive(&stream(vec![volume(), Record::Part(part)], &tree()), &store)
    };
    with(Part { next_id: 1 << 47, ..part.clone() }).expect("received");
    for next_id in [0, 15, (1 << 47) + 1, 1 << 62, i64::MAX.unsigned_abs()] {
        refused(with(Part { next_id, ..part.clone() }));
    }
    refused(with(Part { to: commit((1 << 62) + 1, None), ..part }));
    let directory = tempfile::tempdir().expect("a directory");
    let (store, from) = base(&directory.path().join("v"));
    let part = Part { next_id: (1 << 47) + 1, ..super::tests::part(Some(from), commit(6, from.root)) };
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
fn attributes_that_no_mount_sets_are_refused() {
    let of = |at: usize, attributes: &[(&str, Vec<u8>)]| {
        let mut tree = tree();
        tree.retain(|record| !matches!(record, Record::Xattr { .. }));
        let Record::Inode { row, .. } = &mut tree[2] else { panic!("no inode") };
        row.xattrs = 0;
        let Record::Inode { row, .. } = &mut tree[at] else { panic!("no inode") };
        row.xattrs = u32::try_from(attributes.len()).expect("few");
        let records = attributes.iter().map(|(name, value)| Record::Xattr {
            name: Name::of_xattr(name.as_bytes()).expect("a name"),
            value: Some(value.clone()),
        });
        tree.splice(at + 1..at + 1, records);
        whole(&tree)
    };
    let entry = |tag: u16, bits: u16| [&tag.to_le_bytes()[..], &bits.to_le_bytes(), &[0xff; 4]].concat();
    let acl = |entries: &[(u16, u16)]| {
        let entries = entries.iter().flat_map(|(tag, bits)| entry(*tag, *bits));
        [2, 0, 0, 0].into_iter().chain(entries).collect::<Vec<u8>>()
    };
    let minimal = acl(&[(1, 7), (4, 5), (32, 0)]);
    let (access, default) = ("system.posix_acl_access", "system.posix_acl_default");
    of(2, &[(access, acl(&[(1, 7), (2, 7), (4, 5), (16, 7), (32, 0)]))]).expect("received");
    of(1, &[(access, minimal.clone()), (default, minimal.clone())]).expect("received");
    of(2, &[("security.x", vec![1]), ("trusted.x", Vec::new())]).expect("received");
    for name in ["bogus", "user", "user.", "system.x", "trusted."] {
        refused(of(2, &[(name, vec![1])]));
    }
    refused(of(2, &[(default, minimal.clone())]));
    refused(of(3, &[("user.long", vec![0; (64 << 10) + 1])]));
    for junk in [
        b"junk".to_vec(),
        Vec::new(),
        minimal[..minimal.len() - 1].to_vec(),
        [&[3], &minimal[1..]].concat(),
        acl(&[(4, 5), (1, 7), (32, 0)]),
        acl(&[(1, 8), (4, 5), (32, 0)]),
        acl(&[(1, 7), (2, 7), (4, 5), (32, 0)]),
        acl(&[(1, 7), (4, 5), (32, 0), (64, 0)]),
    ] {
        refused(of(2, &[(access, junk)]));
    }
}

#[test]
fn records_of_what_was_taken_out_of_history_come_along_and_nothing_else_of_the_volume() {
    use crate::past::{FORGOTTEN_BYTES_MAX, FORGOTTEN_MAX};
    let directory = tempfile::tempdir().expect("a directory");
    let with = |at: usize, attributes: &[(String, usize)], place: &str| {
        let mut tree = tree();
        let Record::Inode { row, .. } = &mut tree[at] else { panic!("no inode") };
        row.xattrs = u32::try_from(attributes.len()).expect("few");
        let attributes = attributes.iter().map(|(name, length)| xattr(name, Some(&"x".repeat(*length))));
        let attributes = attributes.collect::<Vec<_>>();
        tree.splice(at + 1..at + 1, attributes.clone());
        let (store, from) = base(&directory.path().join(place));
        let ino = if at == 0 { 1 } else { 18 };
        let mut changed = vec![changed(&self::row(&*store, ino), |row| row.xattrs = attributes.len() as u32)];
        changed.extend(attributes);
        (whole(&tree), changes(&*store, from, &changed))
    };
    let records = |count: usize, length: usize| {
        (0..count).map(|time| (format!("weft.forgotten.{time:020}"), length)).collect::<Vec<_>>()
    };
    for (place, of) in [("many", records(FORGOTTEN_MAX, 1000)), ("long", records(2, FORGOTTEN_BYTES_MAX))] {
        let (whole, changes) = with(0, &of, place);
        whole.and(changes).expect("received");
    }
    let own = |name: &str| vec![(name.to_owned(), 32)];
    for (number, (at, attributes)) in [
        (0, records(FORGOTTEN_MAX + 1, 10)),
        (0, records(100, FORGOTTEN_BYTES_MAX)),
        (0, records(1, FORGOTTEN_BYTES_MAX + 1)),
        (5, records(1, 10)),
        (0, own("weft.forgotten.1")),
        (0, own("weft.forgotten.x0000000000000000000")),
        (0, own("weft.secret.handles")),
        (0, own("weft.exclude")),
    ]
    .into_iter()
    .enumerate()
    {
        let (whole, changes) = with(at, &attributes, &number.to_string());
        refused(whole);
        refused(changes);
    }
}

#[test]
fn an_inode_has_no_more_bytes_of_attributes_than_a_mount_takes() {
    let with = |count: u32, length: usize| {
        let names = (0..count).map(|number| format!("user.{number:05}"));
        let attributes = names.map(|name| xattr(&name, Some(&"x".repeat(length)))).collect::<Vec<_>>();
        let mut tree = tree();
        let Record::Inode { row, .. } = &mut tree[5] else { panic!("no inode") };
        row.xattrs = count;
        tree.splice(6..6, attributes.clone());
        let directory = tempfile::tempdir().expect("a directory");
        let (store, from) = base(&directory.path().join("v"));
        let mut changed = vec![changed(&self::row(&*store, 18), |row| row.xattrs = count)];
        changed.extend(attributes);
        (whole(&tree), changes(&*store, from, &changed))
    };
    let (whole, changes) = with(16, 64 << 10);
    whole.and(changes).expect("received");
    for (count, length) in [(18, 64 << 10), (6400, 1)] {
        let (whole, changes) = with(count, length);
        refused(whole);
        refused(changes);
    }
}

#[test]
fn bytes_in_rows_and_attributes_end_a_commit() {
    let commits = |inline: usize, attribute: usize| {
        let content = Slice::from(vec![7; inline]);
        let file_of =
            |number, bytes: u64| InodeRow { xattrs: 1, inline: Some(content.clone()), ..file(number, bytes, bytes) };
        let records = [
            inode(directory(1, 1, 2, 2)),
            inode(InodeRow { xattrs: 0, ..file_of(16, inline as u64) }),
            inode(file_of(17, inline as u64)),
            xattr("user.a", Some(&"x".repeat(attribute))),
            Record::Directory { ino: Ino(1) },
            name("a", 16, Kind::File, 30),
            name("b", 17, Kind::File, 31),
        ];
        let options = VolumeOptions { block_size: 4 << 20, inline_max: 4 << 20, digests: false, ..options() };
        let Record::Volume(told) = volume() else { panic!("no volume") };
        let head = vec![
            Record::Volume(StreamVolume { options: options.clone(), ..told }),
            Record::Part(part(None, commit(5, None))),
        ];
        let store = MemoryStore::new(options);
        receive(&stream(head, &records), &store).expect("received");
        store.header().expect("readable").commit.0
    };
    assert_eq!(commits(2 << 20, 1), commits(1, 1) + 1);
}

/// A part with a snapshot.
fn with_snapshot(name: &[u8], held_until: Option<Timestamp>) -> Part {
    let snapshot = Snapshot { name: name.to_vec(), made: Timestamp(1), held_until };
    Part { snapshots: vec![snapshot], ..part(None, commit(5, None)) }
}

#[test]
fn snapshots_that_nobody_can_make_are_refused() {
    let receive = |part: Part| {
        let store = MemoryStore::new(VolumeOptions { digests: false, ..options() });
        receive(&stream(vec![volume(), Record::Part(part)], &tree()), &store)
    };
    for name in ["", ".", "a/b", "a\n", "now", "yesterday", "today", "@5", "-1h", "1h", "2026-11-28", "12:30"] {
        refused(receive(with_snapshot(name.as_bytes(), None)));
    }
    refused(receive(with_snapshot(b"\xff", None)));
    let mut twice = with_snapshot(b"a", None);
    twice.snapshots.push(twice.snapshots[0].clone());
    receive(twice).expect_err("a name twice");
}

#[test]
fn a_hold_lasts_ten_years_at_most() {
    let held = |until: i64| {
        let directory = tempfile::tempdir().expect("a directory");
        let store = new_store(&directory.path().join("v"));
        receive_tree(with_snapshot(b"a", Some(Timestamp(until))), &tree(), &*store).expect("received");
        store.pins().expect("readable")[0].held_until.expect("held").0
    };
    // Now is 1970.
    assert_eq!(held(1 << 50), 1 << 50);
    assert_eq!(held(i64::MAX), 3653 * 86_400 * 1_000_000_000);
}

#[test]
fn times_in_the_future_are_refused() {
    let day = 86_400 * 1_000_000_000;
    let received = |part: Part, created: i64| {
        let Record::Volume(told) = volume() else { panic!("no volume") };
        let head = vec![Record::Volume(StreamVolume { created: Timestamp(created), ..told }), Record::Part(part)];
        receive(&stream(head, &tree()), &MemoryStore::new(VolumeOptions { digests: false, ..options() }))
    };
    let at = |time| part(None, StreamCommit { time: Timestamp(time), ..commit(5, None) });
    received(at(day), day).expect("received");
    received(at(i64::MIN), 0).expect("received");
    let made = |made: i64| {
        let mut part = with_snapshot(b"a", None);
        part.snapshots[0].made = Timestamp(made);
        part
    };
    for refused in [received(at(day + 1), 0), received(at(5), day + 1), received(made(i64::MAX), 0)] {
        let error = refused.expect_err("the future").to_string();
        assert!(error.contains("in the future"), "{error}");
    }
}

#[test]
fn a_part_without_a_digest_is_refused_where_there_are_digests() {
    let directory = tempfile::tempdir().expect("a directory");
    let (store, from) = base(&directory.path().join("v"));
    let new = new_store(&directory.path().join("new"));
    let whole = (part(None, commit(5, None)), tree(), new);
    let changes = (part(Some(from), commit(6, None)), some_changes(&*store), store);
    for (part, records, store) in [whole, changes] {
        let error = receive(&stream(vec![volume(), Record::Part(part)], &records), &*store).expect_err("no digest");
        assert!(error.to_string().contains("no digest of its tree"), "{error}");
    }
}

#[test]
fn snapshots_of_a_volume_without_digests_are_not_sent() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("v");
    let no_digests = VolumeOptions { digests: false, ..options() };
    sqlite::create(&path, &no_digests, (0, 0), Timestamp(5)).expect("made");
    let store: Arc<dyn Store> = sqlite::open(&path).expect("opened").store;
    receive(&stream(vec![volume(), Record::Part(with_snapshot(b"a", None))], &tree()), &*store).expect("received");
    let mut next = super::writing::Pending::new(&*store, Timestamp(9000), Durability::Durable).expect("begun");
    next.commit(None).expect("committed");
    let to = store.header().expect("readable").commit;
    let selection = Selection { from: None, to, snapshots: true };
    let mut out = Vec::new();
    let error = send((&store, true), &selection, &mut out, &mut |_| ()).expect_err("nobody could receive it");
    assert!(error.to_string().contains("keeps no digests"), "{error}");
    assert!(out.is_empty());
    send((&store, true), &Selection { snapshots: false, ..selection }, &mut out, &mut |_| ()).expect("sent");
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
    refused(receive(&bytes, &MemoryStore::new(VolumeOptions { digests: false, ..options() })));
}
