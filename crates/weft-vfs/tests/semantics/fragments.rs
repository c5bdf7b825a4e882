//! Readers of blocks that are split or merged meanwhile, by commits that their memory does not
//! follow.

use crate::{FILE, options};
use std::sync::Arc;
use weft_store::{At, BlockHome, Store, Timestamp, VolumeOptions, sqlite};
use weft_vfs::{Caller, Ino, ManualClock, Options, Vfs};

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

    /// The volume as of its last commit, as another process sees it that has looked at the file.
    fn watched(&self) -> Arc<Vfs> {
        let commit = self.store.header().expect("a header").commit;
        let at = Arc::new(At::new(self.store.clone(), commit).expect("kept"));
        let options = Options { read_only: true, block_cache_bytes: 0, ..options() };
        let then = Vfs::open(at, None, options, Arc::new(ManualClock::default())).expect("opens");
        assert_eq!(then.read(self.ino, 0, SIZE).expect("readable").to_vec(), self.content);
        then
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
