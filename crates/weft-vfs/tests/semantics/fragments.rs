//! Readers of blocks that are split or merged meanwhile, by commits that their memory does not
//! follow.

use crate::{FILE, options};
use std::sync::Arc;
use weft_store::{At, BlockHome, CommitNo, Store, Timestamp, VolumeOptions, sqlite};
use weft_vfs::{Caller, ErrorKind, Ino, ManualClock, Options, SetAttributes, Vfs};

/// Bytes of the file: several blocks.
const SIZE: usize = 4 * (64 << 10);

/// A volume with blocks in segments that keeps history, and one file in it.
struct Volume {
    _directory: tempfile::TempDir,
    store: Arc<dyn Store>,
    vfs: Arc<Vfs>,
    ino: Ino,
    content: Vec<u8>,
}

impl Volume {
    fn new() -> Volume {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("volume");
        let volume = VolumeOptions { home: BlockHome::Segments, ..VolumeOptions::default() };
        sqlite::create(&path, &volume, (0, 0), Timestamp(0)).expect("made");
        let store: Arc<dyn Store> = sqlite::open(&path).expect("opens").store;
        // No block is found in a cache.
        let options = Options { block_cache_bytes: 0, ..options() };
        let vfs = Vfs::open(store.clone(), None, options, Arc::new(ManualClock::default())).expect("opens");
        vfs.keep_history("all forever", None).expect("kept");
        let ino = vfs.make(Caller::ROOT, Ino::ROOT, b"file", FILE).expect("made").ino;
        let content: Vec<u8> = (0..SIZE).map(|at| u8::try_from(at / 10 % 251).expect("a byte")).collect();
        let volume = Volume { _directory: directory, store, vfs, ino, content };
        volume.vfs.write(ino, 0, &volume.content, false).expect("written");
        volume.commit();
        volume
    }

    /// Commits, and has all space given back that is free then.
    fn commit(&self) {
        self.vfs.commit_durably().expect("committed");
        self.store.reclaim().expect("given back");
    }

    /// Writes over 4 KiB in each block.
    fn write_small(&mut self, byte: u8, at: usize) {
        for start in (at..SIZE).step_by(64 << 10) {
            self.content[start..start + 4096].fill(byte);
            self.vfs.write(self.ino, start as u64, &[byte; 4096], false).expect("written");
        }
        self.commit();
    }

    fn merge(&self) {
        let mut from = Some(0);
        while let Some(at) = from {
            from = self.vfs.defragment(self.ino, at).expect("merged").next;
        }
        self.commit();
    }

    fn resize(&mut self, size: usize) {
        let changes = SetAttributes { size: Some(size as u64), ..SetAttributes::default() };
        self.vfs.set_attributes(self.ino, changes).expect("resized");
        self.content.resize(size, 0);
        self.commit();
    }

    fn last_commit(&self) -> CommitNo {
        self.store.header().expect("a header").commit
    }

    /// The volume as of its last commit, as another process sees it that has looked at the file.
    fn watched(&self) -> Arc<Vfs> {
        let then = self.as_of(self.last_commit());
        assert_eq!(then.read(self.ino, 0, SIZE).expect("readable").to_vec(), self.content);
        then
    }

    fn as_of(&self, commit: CommitNo) -> Arc<Vfs> {
        let at = Arc::new(At::new(self.store.clone(), commit).expect("kept"));
        let options = Options { read_only: true, block_cache_bytes: 0, ..options() };
        Vfs::open(at, None, options, Arc::new(ManualClock::default())).expect("opens")
    }
}

#[test]
fn a_reader_of_the_past_finds_blocks_that_were_split_or_merged_since() {
    let mut volume = Volume::new();
    let (first, at_first) = (volume.watched(), volume.content.clone());
    volume.write_small(1, 8 << 10);
    let (second, at_second) = (volume.watched(), volume.content.clone());
    volume.write_small(2, 40 << 10);
    let (third, at_third) = (volume.watched(), volume.content.clone());
    volume.merge();
    let fragments = volume.vfs.fragments(volume.ino).expect("told");
    assert_eq!(fragments.stored, fragments.blocks);
    // Others take the place of what went.
    volume.write_small(3, 8 << 10);
    volume.merge();
    for (then, content) in [(first, at_first), (second, at_second), (third, at_third)] {
        assert!(then.read(volume.ino, 0, SIZE).expect("readable").to_vec() == content);
    }
    assert!(volume.vfs.read(volume.ino, 0, SIZE).expect("readable").to_vec() == volume.content);
}

#[test]
fn a_merge_leaves_commits_alone_that_had_blocks_behind_the_end_of_now() {
    let mut volume = Volume::new();
    let mut kept = vec![(volume.last_commit(), volume.content.clone())];
    volume.write_small(1, 8 << 10);
    kept.push((volume.last_commit(), volume.content.clone()));
    for size in [SIZE - (12 << 10), SIZE, SIZE - (44 << 10), SIZE - (40 << 10) + 100] {
        volume.resize(size);
        kept.push((volume.last_commit(), volume.content.clone()));
        volume.merge();
    }
    for (commit, content) in kept {
        let then = volume.as_of(commit).read(volume.ino, 0, SIZE);
        assert!(then.expect("readable").to_vec() == content, "as of commit {}", commit.0);
    }
    let stored = volume.vfs.fragments(volume.ino).expect("told");
    assert_eq!(stored.stored, stored.blocks);
}

#[test]
fn a_mount_that_takes_no_changes_merges_nothing() {
    let mut volume = Volume::new();
    volume.write_small(1, 0);
    let before = volume.vfs.fragments(volume.ino).expect("told").stored;
    volume.vfs.refuse_changes().expect("committed");
    let error = volume.vfs.defragment(volume.ino, 0).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::ReadOnly);
    assert_eq!(volume.vfs.fragments(volume.ino).expect("told").stored, before);
    volume.vfs.take_changes().expect("taken");
    volume.merge();
    assert!(volume.vfs.fragments(volume.ino).expect("told").stored < before);
}

/// A walk over many files asks for each.
#[test]
fn looking_at_the_fragments_of_a_file_commits_changes_of_that_file_alone() {
    let volume = Volume::new();
    let other = volume.vfs.make(Caller::ROOT, Ino::ROOT, b"other", FILE).expect("made").ino;
    volume.vfs.write(other, 0, &[1; 5000], false).expect("written");
    let last = || volume.store.header().expect("a header").commit;
    let before = last();
    volume.vfs.fragments(volume.ino).expect("told");
    assert_eq!(last(), before);
    assert_eq!(volume.vfs.fragments(other).expect("told").bytes, 5000);
    assert!(last() > before);
}

/// However long a file is, only what it holds is looked at.
#[test]
fn a_hole_of_exabytes_is_passed_over() {
    let volume = Volume::new();
    let far = (1 << 62) + 5 * (64 << 10);
    for byte in 1..4 {
        let at = far + 8192 * u64::from(byte);
        volume.vfs.write(volume.ino, at, &vec![byte; 20_000], false).expect("written");
        volume.commit();
    }
    let found = volume.vfs.fragments(volume.ino).expect("told");
    assert!(found.bytes > SIZE as u64 && found.stored > 5, "{found:?}");
    let (mut from, mut steps) = (Some(0), 0);
    while let Some(at) = from {
        from = volume.vfs.defragment(volume.ino, at).expect("merged").next;
        steps += 1;
    }
    assert!(steps < 10, "{steps}");
}
