//! A disk that is full at any byte: a limit on the length of files makes the N-th write fail, for N
//! = 1, 2, …
//!
//! The limit counts for the process, so this is a program of its own with one test.

use weft_block::Rope;
use weft_store::*;

/// Limits files that this process writes to `bytes`; writes beyond fail with EFBIG.
fn limit(bytes: u64) {
    let limit = rustix::process::Rlimit { current: Some(bytes), maximum: None };
    rustix::process::setrlimit(rustix::process::Resource::Fsize, limit).expect("set");
}

fn batch(store: &dyn Store, seed: u8) -> Batch {
    let header = store.header().expect("readable");
    let mut batch = Batch { commit: header.commit.next(), counters: header.counters, ..Batch::default() };
    for index in 0..6u64 {
        let bytes = vec![seed; if index % 2 == 0 { 9000 } else { 50 }];
        let id = BlockId(header.counters.next_block + index);
        let new = NewBlock::new(id, Ino(16), Rope::from(bytes), 0);
        batch.extents.push(ExtentChange::Put {
            ino: Ino(2),
            span: Span::of_block(index, 65536),
            block: new.at(Place::Database),
        });
        batch.blocks.push(new);
    }
    batch.counters.next_block += 6;
    for ino in 20..60 {
        let inline = Some(weft_block::Slice::from(vec![seed; 300]));
        let row = InodeRow { ino: Ino(ino), inline, ..InodeRow::new_root(0, 0, Timestamp(0)) };
        batch.inodes.push(InodeChange::Put(row));
    }
    batch
}

fn contents(store: &dyn Store) -> (CommitNo, Vec<InodeRow>, Vec<Vec<u8>>) {
    let extents = store.extents(Ino(2), 0..u64::MAX).expect("readable");
    let read = |(_, block): &(Span, BlockRef)| {
        store.read_block(block, ReadMode::Blocking).expect("whole").expect("waited for").to_vec()
    };
    let inodes = store.inodes(Ino(0), 1000).expect("readable");
    (store.header().expect("readable").commit, inodes, extents.iter().map(read).collect())
}

/// Commits while no file may grow past `bytes`; false if that passed. What fails must change
/// nothing, neither now nor after the volume is opened again, and when there is room work goes on.
fn fails_at(bytes: u64, home: BlockHome) -> bool {
    let directory = tempfile::tempdir().expect("a directory");
    let path = &directory.path().join("volume");
    sqlite::create(path, &VolumeOptions { home, ..VolumeOptions::default() }, (0, 0), Timestamp(0)).expect("made");
    let store = sqlite::open(path).expect("opened").store;
    store.apply(&batch(&*store, 1), Durability::Durable).expect("applied");
    let before = contents(&*store);
    limit(bytes);
    let applied = store.apply(&batch(&*store, 2), Durability::Durable);
    limit(1 << 40);
    let Err(error) = applied else { return false };
    assert!(matches!(error.kind(), ErrorKind::Full | ErrorKind::Unavailable), "{error}");
    assert_eq!(contents(&*store), before, "nothing of a failed commit is seen");
    drop(store);
    let store = sqlite::open(path).expect("opened").store;
    assert_eq!(contents(&*store), before, "nor after the volume was opened again");
    limit(bytes);
    store.apply(&batch(&*store, 3), Durability::Durable).ok();
    limit(1 << 40);
    store.apply(&batch(&*store, 4), Durability::Durable).expect("work goes on when there is room");
    drop(store);
    let options = CheckOptions { repair: Repair::No, read_data: true };
    let findings = sqlite::check(path, options, &mut |_| {}).expect("checked");
    let blocks = |f: &&Finding| f.path.is_none() && (f.what.contains("block") || f.what.contains("segment"));
    assert_eq!(findings.iter().filter(blocks).collect::<Vec<_>>(), Vec::<&Finding>::new());
    true
}

#[test]
fn a_commit_that_finds_no_room_changes_nothing_and_the_next_one_succeeds() {
    // SAFETY: ignoring a signal installs no handler.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    for home in [BlockHome::Segments, BlockHome::Database] {
        let failures = (0..).map(|n| 1000 + n * 7000).take_while(|bytes| fails_at(*bytes, home)).count();
        assert!(failures > 3, "the limit met {failures} commits");
    }
}
