//! Reads blocks before they are asked for, for programs that read a file from front to back.
//!
//! Blocks that lie together are read and verified together, on threads of its own, and put into the
//! cache of blocks, in which a bound holds for them. What cannot be read is left to whoever asks
//! for it, who is told.
//!
//! A reader that needs a block on its way waits for it only if somebody is reading it just then; a
//! run that nobody has begun it takes over and reads itself. So nobody waits for a thread that is
//! not there. Invariant: a block is `Reading` only while a [`Run`] that holds it exists.

mod streams;

use crate::cache::BlockCache;
use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use streams::Streams;
use weft_store::{BlockId, BlockRef, Ino, Store};

/// Threads that read. More than one, so that the disk does not idle while blocks are verified.
const THREADS: usize = 2;

/// Reads ahead for one volume.
pub(crate) struct ReadAhead {
    shared: Arc<Shared>,
    streams: Mutex<Streams>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    store: Arc<dyn Store>,
    cache: Arc<BlockCache>,
    jobs: Mutex<Jobs>,
    /// Signalled when there is a run to read, or no more will come.
    work: Condvar,
    /// Signalled when a block has been read.
    done: Condvar,
    /// Bytes of blocks that are read together.
    run_bytes: u64,
    /// Bytes that may be on their way.
    bytes_max: u64,
    blocks_read: AtomicU64,
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Vec<BlockRef>>,
    /// True if the store has asked to prefetch.
    is_store_due: bool,
    coming: FxHashMap<BlockId, Coming>,
    /// Bytes of all pending blocks.
    bytes: u64,
    closed: bool,
}

/// State of a pending block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coming {
    Waiting,
    Reading,
}

impl ReadAhead {
    /// Keeps `bytes` ahead of each reader. None if there is no room for that in the cache, or no
    /// thread for it.
    pub(crate) fn new(store: Arc<dyn Store>, cache: Arc<BlockCache>, bytes: u64) -> Option<ReadAhead> {
        if bytes == 0 {
            return None;
        }
        let shared = Arc::new(Shared::new(store, cache, 2 * bytes));
        let start = |_| {
            let shared = shared.clone();
            thread::Builder::new().name("weft-read-ahead".into()).spawn(move || shared.work()).ok()
        };
        let threads = (0..THREADS).filter_map(start).collect::<Vec<_>>();
        (!threads.is_empty()).then(|| ReadAhead { shared, streams: Mutex::new(Streams::new(bytes)), threads })
    }

    /// Bytes `read` of file `ino` are read; tells which bytes to [`ReadAhead::ask`] for, if any.
    pub(crate) fn observe(&self, ino: Ino, read: Range<u64>) -> Option<Range<u64>> {
        self.streams.lock().observe(ino, read)
    }

    /// Has `blocks` read, but for those that are here or on their way, and those for which there is
    /// no room.
    pub(crate) fn ask(&self, blocks: Vec<BlockRef>) {
        self.shared.ask(blocks);
    }

    /// Reads `blocks`, but for those that are here or on their way, and those for which there is no
    /// room.
    pub(crate) fn read(&self, blocks: Vec<BlockRef>) {
        self.shared.read(blocks);
    }

    /// Has the store bring what it wants to.
    pub(crate) fn prefetch(&self) {
        self.shared.jobs.lock().is_store_due = true;
        self.shared.work.notify_one();
    }

    /// True if block `id` is pending.
    pub(crate) fn is_coming(&self, id: BlockId) -> bool {
        self.shared.jobs.lock().coming.contains_key(&id)
    }

    /// Waits until block `id` is not on its way any more, or reads it.
    pub(crate) fn bring(&self, id: BlockId) {
        self.shared.bring(id);
    }

    /// Blocks read since the mount.
    pub(crate) fn blocks_read(&self) -> u64 {
        self.shared.blocks_read.load(Ordering::Relaxed)
    }
}

impl Drop for ReadAhead {
    /// Waits for the threads: as long as they run they keep the store open.
    fn drop(&mut self) {
        {
            let mut jobs = self.shared.jobs.lock();
            jobs.closed = true;
            jobs.waiting.clear();
        }
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn new(store: Arc<dyn Store>, cache: Arc<BlockCache>, bytes_max: u64) -> Shared {
        let (jobs, work, done) = (Mutex::default(), Condvar::new(), Condvar::new());
        let run_bytes = store.run_bytes();
        Shared { store, cache, jobs, work, done, run_bytes, bytes_max, blocks_read: AtomicU64::new(0) }
    }

    fn work(&self) {
        while let Some(work) = self.next() {
            match work {
                Work::Read(run) => run.read(),
                // What does not come will be asked for, and who does is told why not.
                Work::Prefetch => drop(self.store.prefetch()),
            }
        }
    }

    /// Something to do; waits for it. None when no more will come.
    fn next(&self) -> Option<Work<'_>> {
        let mut jobs = self.jobs.lock();
        loop {
            if jobs.closed {
                return None;
            }
            if std::mem::take(&mut jobs.is_store_due) {
                return Some(Work::Prefetch);
            }
            if let Some(blocks) = jobs.waiting.pop_front() {
                return Some(Work::Read(Run::new(self, &mut jobs, blocks)));
            }
            self.work.wait(&mut jobs);
        }
    }

    fn ask(&self, blocks: Vec<BlockRef>) {
        let mut jobs = self.jobs.lock();
        let runs = self.runs(&mut jobs, blocks);
        jobs.waiting.extend(runs);
        drop(jobs);
        self.work.notify_all();
    }

    fn read(&self, blocks: Vec<BlockRef>) {
        let mut jobs = self.jobs.lock();
        let runs = self.runs(&mut jobs, blocks);
        let runs = runs.into_iter().map(|blocks| Run::new(self, &mut jobs, blocks)).collect::<Vec<_>>();
        drop(jobs);
        runs.into_iter().for_each(Run::read);
    }

    /// Those of `blocks` that are to be read, and on their way from now on.
    fn runs(&self, jobs: &mut Jobs, blocks: Vec<BlockRef>) -> Vec<Vec<BlockRef>> {
        let (mut runs, mut run) = (Vec::new(), Vec::new());
        let mut bytes = 0;
        for block in blocks {
            let length = u64::from(block.length);
            if jobs.coming.contains_key(&block.id) || self.cache.has_whole(block.id) {
                continue;
            }
            if jobs.bytes + length > self.bytes_max {
                break;
            }
            if bytes + length > self.run_bytes && !run.is_empty() {
                runs.push(std::mem::take(&mut run));
                bytes = 0;
            }
            jobs.coming.insert(block.id, Coming::Waiting);
            jobs.bytes += length;
            bytes += length;
            run.push(block);
        }
        if !run.is_empty() {
            runs.push(run);
        }
        runs
    }

    /// Notes that `blocks` are not on their way any more.
    fn end<'a>(&self, blocks: impl Iterator<Item = &'a BlockRef>) {
        let mut jobs = self.jobs.lock();
        for block in blocks {
            jobs.coming.remove(&block.id);
            jobs.bytes -= u64::from(block.length);
        }
        drop(jobs);
        self.done.notify_all();
    }

    fn bring(&self, id: BlockId) {
        let mut jobs = self.jobs.lock();
        if jobs.coming.get(&id) == Some(&Coming::Waiting) {
            let place = jobs.waiting.iter().position(|run| run.iter().any(|block| block.id == id));
            let blocks = place.and_then(|place| jobs.waiting.remove(place)).unwrap_or_default();
            let run = Run::new(self, &mut jobs, blocks);
            drop(jobs);
            return run.read();
        }
        while jobs.coming.get(&id) == Some(&Coming::Reading) {
            self.done.wait(&mut jobs);
        }
    }
}

/// Next task of a thread.
enum Work<'a> {
    Read(Run<'a>),
    Prefetch,
}

/// Blocks that one thread reads. Dropped, none of them is on its way any more.
struct Run<'a> {
    shared: &'a Shared,
    /// Those that are still on their way.
    blocks: VecDeque<BlockRef>,
}

impl<'a> Run<'a> {
    fn new(shared: &'a Shared, jobs: &mut Jobs, mut blocks: Vec<BlockRef>) -> Run<'a> {
        // Those of a fragmented file lie here and there, but many of them together.
        blocks.sort_unstable_by_key(BlockRef::order);
        for block in &blocks {
            jobs.coming.insert(block.id, Coming::Reading);
        }
        Run { shared, blocks: blocks.into() }
    }

    fn read(mut self) {
        let blocks = Vec::from(self.blocks.clone());
        // What could not be read is not on its way any more: whoever needs it reads it and is told
        // why not.
        let _ = self.shared.store.read_blocks(&blocks, &mut |_, bytes| {
            let block = self.blocks.pop_front().expect("each is visited once");
            if let Ok(bytes) = bytes {
                self.shared.cache.insert(block.id, bytes);
                self.shared.blocks_read.fetch_add(1, Ordering::Relaxed);
            }
            self.shared.end([&block].into_iter());
        });
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        if !self.blocks.is_empty() {
            self.shared.end(self.blocks.iter());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::SharedCache;
    use weft_block::Rope;
    use weft_store::memory::MemoryStore;
    use weft_store::{CommitStore, Durability, ExtentChange, NewBlock, RowStore, Span, VolumeOptions};

    /// Bytes that the store in memory has read together.
    const RUN_BYTES: u64 = 1 << 20;

    /// A store with `count` blocks of half a run each.
    fn store(count: u64) -> (Arc<dyn Store>, Vec<BlockRef>) {
        let store = Arc::new(MemoryStore::new(VolumeOptions::default()));
        let header = store.header().expect("a header");
        let mut batch =
            weft_store::Batch { commit: header.commit.next(), counters: header.counters, ..Default::default() };
        for index in 0..count {
            let new = NewBlock::new(BlockId(1 + index), Ino(16), Rope::from(vec![1; (RUN_BYTES / 2) as usize]), 0);
            let block = new.at(weft_store::Place::Database);
            batch.extents.push(ExtentChange::Put { ino: Ino::ROOT, span: Span::of_block(index, 65536), block });
            batch.blocks.push(new);
        }
        let blocks = store.apply(&batch, Durability::Durable).expect("applied").blocks;
        (store, blocks)
    }

    /// A prefetcher without threads, and the blocks of its store.
    fn without_threads(count: u64) -> (Shared, Vec<BlockRef>) {
        let (store, blocks) = store(count);
        (Shared::new(store, Arc::new(BlockCache::new(64 << 20, SharedCache::new(0, 4096))), 8 << 20), blocks)
    }

    fn is_idle(shared: &Shared) -> bool {
        let jobs = shared.jobs.lock();
        jobs.coming.is_empty() && jobs.waiting.is_empty() && jobs.bytes == 0
    }

    #[test]
    fn what_is_asked_for_is_in_the_cache_when_it_is_waited_for() {
        let (store, blocks) = store(20);
        let cache = Arc::new(BlockCache::new(64 << 20, SharedCache::new(0, 4096)));
        let ahead = ReadAhead::new(store, cache.clone(), 8 << 20).expect("threads");
        for _ in 0..100 {
            ahead.ask(blocks.clone());
            for block in &blocks {
                ahead.bring(block.id);
                assert!(cache.has_whole(block.id) && !ahead.is_coming(block.id));
            }
        }
        assert_eq!(ahead.blocks_read(), 20, "none is read twice");
        drop(ahead);
    }

    #[test]
    fn nobody_waits_for_threads_that_are_not_there() {
        let (shared, blocks) = without_threads(6);
        shared.ask(blocks.clone());
        shared.bring(blocks[3].id);
        assert!(shared.cache.has_whole(blocks[2].id) && shared.cache.has_whole(blocks[3].id), "its run was read");
        assert!(!shared.cache.has_whole(blocks[4].id));
        blocks.iter().for_each(|block| shared.bring(block.id));
        assert!(is_idle(&shared));
    }

    #[test]
    fn no_more_is_on_its_way_than_the_bound() {
        let (shared, blocks) = without_threads(20);
        shared.ask(blocks.clone());
        assert_eq!(shared.jobs.lock().bytes, 8 << 20);
        blocks.iter().for_each(|block| shared.bring(block.id));
        assert!(is_idle(&shared) && !shared.cache.has_whole(blocks[16].id));
    }

    #[test]
    fn what_cannot_be_read_is_not_waited_for() {
        let (shared, mut blocks) = without_threads(3);
        blocks[1].value = [0; 32];
        shared.ask(blocks.clone());
        blocks.iter().for_each(|block| shared.bring(block.id));
        assert_eq!(
            blocks.iter().map(|block| shared.cache.has_whole(block.id)).collect::<Vec<_>>(),
            [true, false, true]
        );
        assert!(is_idle(&shared));
    }

    #[test]
    fn a_reader_waits_for_a_run_that_another_reads_and_goes_on_if_that_one_gives_up() {
        let (shared, blocks) = without_threads(2);
        shared.ask(blocks.clone());
        let run = shared.next().expect("asked for");
        thread::scope(|scope| {
            let waiting = scope.spawn(|| shared.bring(blocks[0].id));
            drop(run);
            waiting.join().expect("no panic");
        });
        assert!(is_idle(&shared) && !shared.cache.has_whole(blocks[0].id));
    }
}
