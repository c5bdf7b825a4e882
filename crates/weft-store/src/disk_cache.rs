//! Blocks of a server, kept in a file of a local disk as well, also from one mount to the next.
//!
//! It knows blocks by their values, which hash their bytes and where they stand, and gives none
//! whose bytes do not hash to what the database says: what is old, torn, damaged or somebody else's
//! is not found. So nothing in it is ever synced, and losing it loses nothing. What is read from
//! the server and what is written goes in by a thread of its own, which leaves out what it cannot
//! keep up with. A disk that fails or is full ends that, and [`DiskCacheStats::failure`] tells so.

mod slots;

use crate::row::BlockRef;
use parking_lot::Mutex;
use slots::Slots;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use weft_block::{Block, Rope};
use weft_digest::{Value, ZERO};

/// Bytes of blocks that wait to be written, at most.
const WAITING_BYTES: usize = 16 << 20;

/// Place and maximum size of a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskCacheOptions {
    /// The directory; one of several volumes is fine. It is made if there is none.
    pub directory: PathBuf,
    /// Most bytes of blocks in it.
    pub bytes: u64,
}

/// Counters of a cache since the mount.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct DiskCacheStats {
    /// Blocks that were found.
    pub hits: u64,
    /// Blocks that were asked of the server.
    pub misses: u64,
    /// Blocks in it.
    pub blocks: u64,
    /// Blocks that it has room for.
    pub blocks_max: u64,
    /// The reason that nothing more is written into it, if so.
    pub failure: Option<String>,
}

/// The cache of one volume that is open.
pub struct DiskCache {
    shared: Arc<Shared>,
    /// None once it is to end.
    sender: Option<SyncSender<(Value, Rope)>>,
    writer: Option<JoinHandle<()>>,
}

struct Shared {
    /// None if there are none to be had.
    slots: Option<Slots>,
    hits: AtomicU64,
    misses: AtomicU64,
    failure: Mutex<Option<String>>,
}

impl DiskCache {
    /// Opens the cache of the volume that is called `name`, or makes it: of blocks of up to
    /// `block_size` bytes. One that cannot be had is empty and stays so, and [`DiskCache::stats`]
    /// tells why.
    pub(crate) fn open(options: &DiskCacheOptions, name: &str, block_size: u32) -> DiskCache {
        let (slots, failure) = match Slots::open(&path(&options.directory, name), options.bytes, block_size) {
            Ok(slots) => (Some(slots), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let shared = Arc::new(Shared { slots, hits: 0.into(), misses: 0.into(), failure: Mutex::new(failure) });
        let waiting = (WAITING_BYTES / block_size as usize).max(2);
        let (sender, receiver) = sync_channel(waiting);
        let work = shared.clone();
        let writer = thread::Builder::new().name("weft-disk-cache".into()).spawn(move || work.write(&receiver));
        if let Err(error) = &writer {
            shared.failure.lock().get_or_insert_with(|| format!("cannot start a thread for it: {error}"));
        }
        DiskCache { shared, sender: Some(sender), writer: writer.ok() }
    }

    /// True if `block` is likely to be found.
    pub fn has(&self, block: &BlockRef) -> bool {
        self.shared.slots.as_ref().is_some_and(|slots| slots.has(&block.value))
    }

    /// The bytes of `block`, verified, if they are here.
    pub fn read(&self, block: &BlockRef) -> Option<Block> {
        let found = self.shared.slots.as_ref()?.read(block);
        self.shared.hits.fetch_add(u64::from(found.is_some()), Ordering::Relaxed);
        found
    }

    /// Keeps the bytes of `block`, which were read elsewhere.
    pub fn missed(&self, block: &BlockRef, bytes: &Block) {
        self.shared.misses.fetch_add(1, Ordering::Relaxed);
        self.keep(block.value, bytes.whole().into());
    }

    /// Keeps `bytes`, which hash to `value`, unless too much is to be written already.
    pub fn keep(&self, value: Value, bytes: Rope) {
        if value != ZERO
            && let (Some(slots), Some(sender)) = (&self.shared.slots, &self.sender)
            && !slots.has(&value)
        {
            // A writer that ended or is behind takes nothing.
            let _ = sender.try_send((value, bytes));
        }
    }

    /// The counters.
    pub fn stats(&self) -> DiskCacheStats {
        let Shared { slots, hits, misses, failure } = &*self.shared;
        let (blocks, blocks_max) = slots.as_ref().map(Slots::used).unwrap_or_default();
        let (hits, misses) = (hits.load(Ordering::Relaxed), misses.load(Ordering::Relaxed));
        DiskCacheStats { hits, misses, blocks, blocks_max, failure: failure.lock().clone() }
    }
}

impl Shared {
    fn write(&self, receiver: &Receiver<(Value, Rope)>) {
        let Some(slots) = &self.slots else { return };
        while let Ok((value, bytes)) = receiver.recv() {
            if let Err(error) = slots.write(value, &bytes) {
                *self.failure.lock() = Some(error.to_string());
                return;
            }
        }
    }
}

impl Drop for DiskCache {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(writer) = self.writer.take() {
            // One that panicked has said so.
            let _ = writer.join();
        }
    }
}

/// Names of volumes may be anything, and hold what is nobody's business.
fn path(directory: &Path, name: &str) -> PathBuf {
    let digest = weft_digest::hex(&weft_digest::digest(name.as_bytes()));
    directory.join(format!("weft-{}.blocks", &digest[..16]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::NewBlock;
    use crate::row::{BlockId, Ino, Place};
    use std::os::unix::fs::FileExt;

    const SIZE: u32 = 8192;

    fn options(directory: &tempfile::TempDir, blocks: u64) -> DiskCacheOptions {
        DiskCacheOptions { directory: directory.path().join("cache"), bytes: blocks * u64::from(SIZE) }
    }

    /// Block `number` of a file, of bytes that no other has.
    fn block(number: u64) -> (BlockRef, Rope) {
        let len = 5000 + usize::try_from(number).expect("few");
        let bytes = Rope::from(number.to_le_bytes().iter().copied().cycle().take(len).collect::<Vec<_>>());
        let new = NewBlock::new(BlockId(number), Ino(16), bytes.clone(), number * u64::from(SIZE));
        (new.at(Place::File(Ino(16))), bytes)
    }

    fn slots(cache: &DiskCache) -> &Slots {
        cache.shared.slots.as_ref().expect("there is a file")
    }

    fn filled(options: &DiskCacheOptions, numbers: std::ops::Range<u64>) {
        let cache = DiskCache::open(options, "a volume", SIZE);
        for (block, bytes) in numbers.map(block) {
            slots(&cache).write(block.value, &bytes).expect("written");
        }
    }

    fn found(options: &DiskCacheOptions, numbers: std::ops::Range<u64>) -> Vec<u64> {
        let cache = DiskCache::open(options, "a volume", SIZE);
        let is_there = |number: &u64| {
            let (block, bytes) = block(*number);
            cache.read(&block).map(|read| assert_eq!(*read, bytes.to_vec()[..])).is_some()
        };
        numbers.filter(is_there).collect()
    }

    #[test]
    fn what_is_kept_is_there_at_the_next_mount() {
        let directory = tempfile::tempdir().expect("a directory");
        let options = options(&directory, 8);
        let (block, bytes) = block(3);
        let cache = DiskCache::open(&options, "a volume", SIZE);
        assert!(cache.read(&block).is_none());
        cache.keep(block.value, bytes.clone());
        drop(cache);
        assert_eq!(found(&options, 1..9), [3]);
        let other = DiskCache::open(&options, "another volume", SIZE);
        assert!(other.read(&block).is_none());
        assert_eq!(other.stats(), DiskCacheStats { blocks_max: 8, ..Default::default() });
    }

    #[test]
    fn what_is_used_stays_and_the_rest_goes_when_it_is_full() {
        let directory = tempfile::tempdir().expect("a directory");
        let options = options(&directory, 4);
        let cache = DiskCache::open(&options, "a volume", SIZE);
        for number in 0..20 {
            let (block, bytes) = block(number);
            slots(&cache).write(block.value, &bytes).expect("written");
            assert!(cache.read(&self::block(0).0).is_some(), "{number}");
        }
        assert_eq!(cache.stats().blocks, 4);
        drop(cache);
        assert_eq!(found(&options, 0..20).len(), 4);
    }

    #[test]
    fn nothing_goes_while_there_is_room_also_at_a_later_mount() {
        let directory = tempfile::tempdir().expect("a directory");
        let options = options(&directory, 8);
        filled(&options, 0..4);
        filled(&options, 4..8);
        assert_eq!(found(&options, 0..8), [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn a_damaged_block_is_replaced_where_it_lies_and_takes_no_other_with_it() {
        let directory = tempfile::tempdir().expect("a directory");
        // Full, with room, or with room for the one block.
        for blocks in [8, 9, 100] {
            let options = options(&directory, blocks);
            filled(&options, 0..8);
            let (damaged, bytes) = block(2);
            let cache = DiskCache::open(&options, "a volume", SIZE);
            slots(&cache).damage(&damaged.value);
            assert!(cache.read(&damaged).is_none());
            // Twice, as two readers may have missed it.
            for _ in 0..2 {
                slots(&cache).write(damaged.value, &bytes).expect("written");
            }
            assert_eq!(cache.stats().blocks, 8);
            drop(cache);
            assert_eq!(found(&options, 0..8), [0, 1, 2, 3, 4, 5, 6, 7], "{blocks}");
        }
    }

    #[test]
    fn another_size_begins_anew() {
        let directory = tempfile::tempdir().expect("a directory");
        filled(&options(&directory, 8), 0..8);
        assert_eq!(found(&options(&directory, 8), 0..8).len(), 8);
        assert_eq!(found(&options(&directory, 16), 0..8), []);
        filled(&options(&directory, 16), 0..8);
        let larger = DiskCache::open(&options(&directory, 32), "a volume", 4 * SIZE);
        assert_eq!(larger.stats().blocks, 0);
    }

    #[test]
    fn two_processes_do_not_share_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let options = options(&directory, 8);
        let path = path(&options.directory, "a volume");
        let first = DiskCache::open(&options, "a volume", SIZE);
        assert!(Slots::lock_and_open(&path, options.bytes, SIZE, std::time::Duration::ZERO).is_err());
        drop(first);
        assert_eq!(DiskCache::open(&options, "a volume", SIZE).stats().failure, None);
    }

    #[test]
    fn a_file_that_is_not_ours_alone_is_not_used() {
        let directory = tempfile::tempdir().expect("a directory");
        let options = options(&directory, 8);
        let path = path(&options.directory, "a volume");
        filled(&options, 0..4);
        let (moved, (block, bytes)) = (path.with_extension("moved"), block(1));
        let refused = |says: &str| {
            let cache = DiskCache::open(&options, "a volume", SIZE);
            cache.keep(block.value, bytes.clone());
            assert!(!cache.has(&block) && cache.read(&block).is_none());
            let failure = cache.stats().failure;
            assert!(failure.as_deref().is_some_and(|why| why.contains(says)), "{failure:?}");
        };
        std::fs::rename(&path, &moved).expect("renamed");
        std::os::unix::fs::symlink(&moved, &path).expect("made");
        refused("cannot open the disk cache");
        std::fs::remove_file(&path).expect("removed");
        std::fs::rename(&moved, &path).expect("renamed");
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o640)).expect("set");
        refused("nobody else may read");
        std::fs::remove_file(&path).expect("removed");
        std::fs::create_dir(&path).expect("made");
        refused("cannot open the disk cache");
    }

    #[test]
    fn no_size_is_too_large_or_too_small() {
        let counts = [0, 1, u64::from(SIZE), 10 * u64::from(SIZE) + 1, u64::MAX].map(|bytes| slots::count(bytes, SIZE));
        assert_eq!(counts, [1, 1, 1, 10, 1 << 24]);
        let directory = tempfile::tempdir().expect("a directory");
        let cache = DiskCache::open(&DiskCacheOptions { bytes: 0, ..options(&directory, 1) }, "a volume", SIZE);
        let (block, bytes) = block(1);
        slots(&cache).write(block.value, &bytes).expect("written");
        assert!(cache.read(&block).is_some());
    }

    #[test]
    fn whatever_the_file_holds_no_wrong_bytes_come_out() {
        let directory = tempfile::tempdir().expect("a directory");
        let options = options(&directory, 8);
        filled(&options, 0..8);
        let path = path(&options.directory, "a volume");
        let whole = std::fs::read(&path).expect("readable");
        let mut random = 1u64;
        for _ in 0..200 {
            let mut bytes = whole.clone();
            for _ in 0..8 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                // Often where the index is.
                let span = if random >> 63 == 0 { 5 * 1024 } else { whole.len() };
                bytes[usize::try_from(random >> 20).expect("64 bits") % span] ^= 1 << (random % 8);
            }
            std::fs::write(&path, &bytes).expect("written");
            assert!(found(&options, 0..8).len() <= 8);
        }
        for len in [0, 1, 4095, 4096, 5000, whole.len() / 2] {
            std::fs::write(&path, &whole[..len]).expect("written");
            found(&options, 0..8);
        }
    }

    #[test]
    fn a_disk_that_takes_nothing_ends_the_writing_and_tells_why() {
        let directory = tempfile::tempdir().expect("a directory");
        let options = options(&directory, 8);
        filled(&options, 0..4);
        let slots = Slots::read_only(&path(&options.directory, "a volume"), options.bytes, SIZE);
        let shared = Shared { slots: Some(slots), hits: 0.into(), misses: 0.into(), failure: Mutex::default() };
        let (sender, receiver) = sync_channel(8);
        for number in 4..8 {
            let (block, bytes) = block(number);
            sender.send((block.value, bytes)).expect("there is room");
        }
        shared.write(&receiver);
        assert!(shared.failure.lock().as_deref().is_some_and(|why| why.contains("cannot write")));
        assert!(shared.slots.as_ref().expect("they are there").read(&block(2).0).is_some(), "what is there serves on");
    }

    #[test]
    fn bytes_under_another_value_are_not_given() {
        let directory = tempfile::tempdir().expect("a directory");
        let options = options(&directory, 8);
        let (asked, _) = block(1);
        let cache = DiskCache::open(&options, "a volume", SIZE);
        slots(&cache).write(asked.value, &block(2).1).expect("written");
        assert!(cache.has(&asked) && cache.read(&asked).is_none());
        assert!(!cache.has(&asked), "it is not looked for again");
        let file = std::fs::File::open(path(&options.directory, "a volume")).expect("there");
        let mut magic = [0; 8];
        file.read_exact_at(&mut magic, 0).expect("readable");
        assert_eq!(&magic, slots::MAGIC);
    }
}
