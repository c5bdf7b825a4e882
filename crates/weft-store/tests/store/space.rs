//! Space in segments: what a commit frees comes back once that is durable, and what belongs to
//! nobody is cut off.

use crate::check::sample_volume;
use crate::compare::state;
use crate::contract::{HOMES, new_volume};
use crate::generate::{Change, batch};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use weft_store::sqlite::open;
use weft_store::*;

fn stored(volume: &Path) -> u64 {
    let segments = fs::read_dir(volume.join("segments")).expect("listed").flatten();
    segments.map(|entry| entry.metadata().expect("there").blocks() * 512).sum()
}

/// Opens the volume and commits, as a mount does: that gives back what is free.
fn mount(path: &Path) {
    let store = open(path).expect("opened").store;
    store.apply(&batch(&*store, &[]), Durability::Durable).expect("applied");
}

/// Ten blocks, of more than 90 000 bytes together.
fn write(store: &dyn Store) {
    let changes: Vec<Change> =
        (0..10).map(|n| Change::Block { ino: 2 + n % 5, index: n / 5, length: 9000 + u16::from(n) }).collect();
    store.apply(&batch(store, &changes), Durability::Durable).expect("applied");
}

fn drop_all(store: &dyn Store, durability: Durability) {
    let changes: Vec<Change> = (2..7).map(|ino| Change::RemoveInode { ino }).collect();
    store.apply(&batch(store, &changes), durability).expect("applied");
}

#[test]
fn space_comes_back_with_a_durable_commit_and_not_before() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = new_volume(&directory, BlockHome::Segments);
    let store = open(&path).expect("opened").store;
    write(&*store);
    let full = stored(&path);
    assert!(full >= 90_000);
    drop_all(&*store, Durability::Eventual);
    assert_eq!(stored(&path), full, "a power cut may bring the files back");
    store.apply(&batch(&*store, &[]), Durability::Durable).expect("applied");
    assert_eq!(stored(&path), 0);
}

#[test]
fn the_file_of_a_segment_without_live_blocks_goes_even_if_it_was_the_last() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = new_volume(&directory, BlockHome::Segments);
    let files = || {
        let listed = fs::read_dir(path.join("segments")).expect("listed").flatten();
        let mut names: Vec<_> = listed.map(|entry| entry.file_name().into_string().expect("a name")).collect();
        names.sort();
        names
    };
    let bytes = weft_block::Rope::from(weft_block::Slice::from(vec![7; 4 << 20]));
    // Closing waits until space is given back.
    let apply = |indices: std::ops::Range<u64>, clear: bool| {
        let store = open(&path).expect("opened").store;
        let header = store.header().expect("readable");
        let mut counters = header.counters;
        let mut batch = Batch { commit: header.commit.next(), ..Batch::default() };
        if clear {
            batch.extents.push(ExtentChange::Clear { ino: Ino::ROOT, range: 0..u64::MAX });
        }
        for index in indices {
            let id = BlockId(counters.next_block);
            counters.next_block += 1;
            let new = NewBlock::new(id, Ino(16), bytes.clone(), 0);
            batch.extents.push(ExtentChange::Put {
                ino: Ino::ROOT,
                span: Span::of_block(index, 4 << 20),
                block: new.at(Place::Database),
            });
            batch.blocks.push(new);
        }
        batch.counters = counters;
        store.apply(&batch, Durability::Durable).expect("applied");
    };
    // A segment takes 64 of them.
    apply(0..64, false);
    apply(0..0, true);
    assert_eq!(files(), ["00000001.seg"], "blocks are still appended to it");
    apply(0..1, false);
    assert_eq!(files(), ["00000002.seg"]);
    fs::write(path.join("segments/00000001.seg"), [0; 5000]).expect("made");
    mount(&path);
    assert_eq!(files(), ["00000001.seg", "00000002.seg"], "what holds anything stays");
    fs::write(path.join("segments/00000001.seg"), []).expect("made");
    mount(&path);
    assert_eq!(files(), ["00000002.seg"], "what a crash left goes at the next opening");
}

#[test]
fn a_volume_that_was_closed_has_nothing_to_give_back() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = new_volume(&directory, BlockHome::Segments);
    let store = open(&path).expect("opened").store;
    write(&*store);
    drop_all(&*store, Durability::Durable);
    store.close().expect("closed");
    let count = "SELECT count(*) FROM freed";
    let connection = rusqlite::Connection::open(crate::check::database(&path)).expect("opened");
    assert_eq!(connection.query_row(count, (), |row| row.get::<_, i64>(0)).expect("counted"), 0);
}

#[test]
fn space_freed_by_commits_that_are_not_durable_comes_back_when_it_is_asked_for() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = new_volume(&directory, BlockHome::Segments);
    let store = open(&path).expect("opened").store;
    write(&*store);
    drop_all(&*store, Durability::Eventual);
    assert!(stored(&path) > 0);
    store.reclaim().expect("reclaimed");
    assert_eq!(stored(&path), 0);
}

#[test]
fn space_freed_before_a_crash_comes_back_at_the_next_opening() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = new_volume(&directory, BlockHome::Segments);
    let store = open(&path).expect("opened").store;
    write(&*store);
    drop_all(&*store, Durability::Eventual);
    drop(store);
    assert!(stored(&path) > 0);
    mount(&path);
    assert_eq!(stored(&path), 0);
}

#[test]
fn what_lies_past_the_last_commit_is_held_by_one_mount_and_given_back_by_the_next() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = new_volume(&directory, BlockHome::Segments);
    write(&*open(&path).expect("opened").store);
    let before = state(&*open(&path).expect("opened").store).expect("readable");
    let segment = |id: u32| path.join(format!("segments/{id:08}.seg"));
    let read = |id| fs::read(segment(id)).expect("there");
    let mut first = read(1);
    first.extend([7; 100_000]);
    fs::write(segment(1), &first).expect("written");
    for id in [2, 5] {
        fs::write(segment(id), [7; 5000]).expect("written");
    }
    let store = open(&path).expect("opened").store;
    assert_eq!(state(&*store).expect("readable"), before);
    // It goes with no segment that is empty now, either.
    drop_all(&*store, Durability::Durable);
    assert!(store.notices().iter().any(|notice| notice.contains("behind the last commit")));
    write(&*store);
    let after = state(&*store).expect("readable");
    store.reclaim().expect("reclaimed");
    store.cut().expect("nothing of this process's is there");
    drop(store);
    assert!(read(1).ends_with(&[7; 100_000]) && read(2) == [7; 5000] && read(5) == [7; 5000]);
    for _ in 0..2 {
        let store = open(&path).expect("opened").store;
        store.apply(&batch(&*store, &[]), Durability::Durable).expect("applied");
        store.reclaim().expect("reclaimed");
        assert_eq!(store.notices(), Vec::<String>::new());
        assert_eq!(state(&*store).expect("readable").rows(), after.rows());
    }
    assert_eq!([1, 2, 5, 6].map(|id| segment(id).exists()), [false, false, false, true]);
}

#[test]
fn a_crash_of_each_mount_leaves_no_more_than_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = new_volume(&directory, BlockHome::Segments);
    for round in 0..5 {
        let store = open(&path).expect("opened").store;
        if round % 2 == 0 {
            write(&*store);
        }
        store.apply(&batch(&*store, &[]), Durability::Durable).expect("applied");
        store.reclaim().expect("reclaimed");
        let mut transaction = store.begin(Durability::Durable).expect("begun");
        let block = NewBlock::new(BlockId(1 << 40), Ino(16), weft_block::Slice::from(vec![7; 1 << 20]).into(), 0);
        transaction.put_blocks(vec![block]).expect("written");
        drop(transaction);
        drop(store);
        assert!(stored(&path) < (2 << 20) + 5 * 100_000, "{} bytes after crash {round}", stored(&path));
    }
}

#[test]
fn space_that_was_only_allocated_past_the_last_commit_is_cut_off() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = sample_volume(&directory, BlockHome::Segments);
    let (first, next) = (path.join("segments/00000001.seg"), path.join("segments/00000002.seg"));
    let length = fs::metadata(&first).expect("there").len();
    for segment in [&first, &next] {
        let file = fs::OpenOptions::new().write(true).create(true).truncate(false).open(segment).expect("opened");
        file.set_len(length + 100_000).expect("longer");
    }
    mount(&path);
    assert!(fs::metadata(&first).expect("there").len() <= length);
    assert!(!next.exists());
}

#[test]
fn a_damaged_table_of_segments_cuts_nothing_off() {
    for damage in ["DELETE FROM segments", "UPDATE segments SET length = 100"] {
        let directory = tempfile::tempdir().expect("a directory");
        let path = sample_volume(&directory, BlockHome::Segments);
        let before = state(&*open(&path).expect("opened").store).expect("readable");
        let connection = rusqlite::Connection::open(crate::check::database(&path)).expect("opened");
        connection.execute_batch(damage).expect("edited");
        drop(connection);
        if damage.starts_with("UPDATE") {
            // Whose row is damaged is left alone; what follows goes elsewhere.
            assert_eq!(state(&*open(&path).expect("opened").store).expect("all blocks are there"), before);
        }
        weft_store::sqlite::seal(&path).expect("sealed");
        let error = open(&path).map(|_| ()).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains("weft check --repair"), "{error}");
        crate::check::look(&path, weft_store::Repair::Yes);
        let after = state(&*open(&path).expect("opens").store).expect("all blocks are there");
        assert_eq!(after.rows(), before.rows());
    }
}

#[test]
fn readers_beside_a_writer_see_whole_commits_and_the_log_stays_short() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = new_volume(&directory, home);
        let store = open(&path).expect("opened").store;
        let inode = |size| InodeRow { ino: Ino(2), size, parent: Ino(0), ..InodeRow::new_root(0, 0, Timestamp(0)) };
        let twin = |size| InodeRow { ino: Ino(3), ..inode(size) };
        let commit = |size| {
            let header = store.header().expect("readable");
            let mut batch = Batch { commit: header.commit.next(), counters: header.counters, ..Batch::default() };
            // Enough bytes that the write-ahead log passes its bound several times.
            let filler = Some(weft_block::Slice::from(vec![1; 60_000]));
            let fillers = (10..30).map(|ino| InodeRow { ino: Ino(ino), inline: filler.clone(), ..inode(0) });
            batch.inodes = [inode(size), twin(size)].into_iter().chain(fillers).map(InodeChange::Put).collect();
            store.apply(&batch, Durability::Eventual).expect("applied");
        };
        commit(0);
        let (applied, finished) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !finished.load(Ordering::Relaxed) {
                        let before = applied.load(Ordering::Acquire);
                        let rows = store.inodes(Ino(2), 2).expect("readable");
                        assert_eq!(rows[0].size, rows[1].size, "one commit wrote both");
                        assert!(rows[0].size >= before, "what was applied before is seen");
                    }
                });
            }
            for size in 1..100 {
                commit(size);
                applied.store(size, Ordering::Release);
            }
            finished.store(true, Ordering::Relaxed);
        });
        let database = crate::check::database(&path);
        let log = fs::metadata(format!("{}-wal", database.display())).expect("there").len();
        assert!(log < 64 << 20, "{log} bytes of write-ahead log after 120 MB of commits");
    }
}

/// A connection that reads keeps what it sees until the next commit: that would go behind it in the
/// log, however small the disk.
#[test]
fn the_log_stays_short_where_something_is_read_before_space_is_asked_for() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = new_volume(&directory, home);
        let store = open(&path).expect("opened").store;
        let inode = InodeRow { parent: Ino(0), ..InodeRow::new_root(0, 0, Timestamp(0)) };
        for round in 1..30 {
            let header = store.header().expect("readable");
            let filler = Some(weft_block::Slice::from(vec![round; 60_000]));
            let fillers = (10..30).map(|ino| InodeRow { ino: Ino(ino), inline: filler.clone(), ..inode.clone() });
            let inodes = fillers.map(InodeChange::Put).collect();
            let batch = Batch { commit: header.commit.next(), counters: header.counters, inodes, ..Batch::default() };
            store.apply(&batch, Durability::Eventual).expect("applied");
            store.pins().expect("readable");
            store.reclaim().expect("reclaimed");
        }
        let database = crate::check::database(&path);
        let log = fs::metadata(format!("{}-wal", database.display())).expect("there").len();
        assert!(log < 8 << 20, "{log} bytes of write-ahead log, which each request could empty");
    }
}
