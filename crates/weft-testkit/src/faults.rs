//! A store whose calls fail on demand and that can lose power.

use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weft_block::Block;
use weft_digest::Digest;
use weft_store::log::OperationLog;
use weft_store::memory::MemoryStore;
use weft_store::{
    Batch, BlockRef, BlockStore, CommitNo, CommitRow, CommitStore, Cookie, Durability, Error, ErrorKind, ExtentKey,
    Header, History, Ino, InodeRow, ListedRow, Maintenance, Name, NameRow, NewBlock, PastContent, PastExtent,
    PastStore, Pin, Place, ReadMode, Result, RoundTrips, RowStore, Space, Span, SplitBlock, Store, Timestamp,
    Transaction, VolumeOptions,
};

/// A store in memory with a durable image and the eventual commits after it; or any store, to make
/// its calls fail, but not to crash.
pub struct CrashStore {
    live: Arc<dyn Store>,
    /// Images of a store in memory: the durable one, then one after each eventual commit.
    images: Mutex<Vec<MemoryStore>>,
    /// The store in memory, if it is one.
    memory: Option<Arc<MemoryStore>>,
    /// The log of operations, if not in a file.
    log: Option<LogOf>,
    faults: Mutex<Faults>,
    bytes_free: AtomicU64,
    /// Done once the next commit is in the store, before the call returns.
    stored: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// The result that the next commit reports, though it has happened.
    doubt: Mutex<Option<InDoubt>>,
    /// A commit that the next reading of a block waits for.
    late: Mutex<Option<(Batch, Vec<NewBlock>)>>,
}

/// A commit in doubt: its caller sees a failure.
#[derive(Clone, Copy, Debug)]
pub enum InDoubt {
    /// It has happened; a second try is worth while.
    Interrupted,
    /// It has happened; the store cannot be reached any more.
    Unheard,
    /// It happens when a block is read next.
    Late,
}

/// Opens the log of the volume.
type LogOf = Box<dyn Fn() -> Box<dyn OperationLog> + Send + Sync>;

/// The calls that fail.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// Number of calls that succeed first.
    pub after: u32,
    /// Number of calls that fail then.
    pub count: u32,
    /// The error that they return.
    pub kind: ErrorKind,
    /// The calls concerned.
    pub calls: Calls,
    /// Number of calls that have failed.
    pub met: u32,
}

/// Kinds of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// Any but those that only look at the volume as a whole.
    All,
    /// The calls that make up a commit.
    Commits,
}

impl Faults {
    /// No faults.
    pub const NONE: Faults = Faults { after: 0, count: 0, kind: ErrorKind::Bug, calls: Calls::All, met: 0 };
}

impl CrashStore {
    /// An empty volume in memory, durable.
    pub fn new(options: VolumeOptions) -> CrashStore {
        let memory = Arc::new(MemoryStore::new(options));
        let images = Mutex::new(vec![(*memory).clone()]);
        CrashStore { images, memory: Some(memory.clone()), ..CrashStore::over(memory) }
    }

    /// Passes all calls to `store`.
    pub fn over(store: Arc<dyn Store>) -> CrashStore {
        CrashStore {
            live: store,
            images: Mutex::new(Vec::new()),
            memory: None,
            log: None,
            faults: Mutex::new(Faults::NONE),
            bytes_free: AtomicU64::new(u64::MAX / 2),
            stored: Mutex::default(),
            doubt: Mutex::default(),
            late: Mutex::default(),
        }
    }

    /// The same, with operations logged where `log` says.
    pub fn with_log(self, log: impl Fn() -> Box<dyn OperationLog> + Send + Sync + 'static) -> CrashStore {
        CrashStore { log: Some(Box::new(log)), ..self }
    }

    /// The log for a new mount, if it is not to be in a file.
    pub fn log(&self) -> Option<Box<dyn OperationLog>> {
        self.log.as_ref().map(|log| log())
    }

    /// Makes these calls fail from now on; returns the faults set before.
    pub fn set_faults(&self, faults: Faults) -> Faults {
        std::mem::replace(&mut self.faults.lock(), faults)
    }

    /// Returns the number of calls of the present faults that have failed.
    pub fn faults_met(&self) -> u32 {
        self.faults.lock().met
    }

    /// Power is lost: what is durable survives, and `survives` of 255 of the commits after it. A
    /// store that is not in memory loses nothing: it is as if the daemon had been killed.
    pub fn crash(&self, survives: u8) {
        if self.memory.is_none() {
            return;
        }
        let mut images = self.images.lock();
        let kept = (images.len() - 1) * usize::from(survives) / 255;
        let image = images[kept].clone();
        self.memory().restore(&image);
        *images = vec![image];
    }

    /// Has the store report room for `bytes` more at the place of the volume from now on.
    pub fn set_bytes_free(&self, bytes: u64) {
        self.bytes_free.store(bytes, Ordering::Relaxed);
    }

    /// Does `work` once the next commit is in the store, before the call returns.
    pub fn when_stored(&self, work: impl FnOnce() + Send + 'static) {
        *self.stored.lock() = Some(Box::new(work));
    }

    /// Leaves the next commit in doubt: its caller sees a failure.
    pub fn leave_in_doubt(&self, doubt: InDoubt) {
        *self.doubt.lock() = Some(doubt);
    }

    /// Makes the commit that is late.
    fn catch_up(&self) -> Result<()> {
        let Some((batch, blocks)) = self.late.lock().take() else { return Ok(()) };
        let mut transaction = self.live.begin(Durability::Durable)?;
        transaction.put_blocks(blocks)?;
        transaction.commit(&batch)
    }

    /// Returns the number of blocks in the store in memory.
    pub fn block_count(&self) -> usize {
        self.memory().block_count()
    }

    /// True if it keeps digests: a store in memory does not.
    pub fn keeps_digests(&self) -> bool {
        self.memory.is_none()
    }

    fn memory(&self) -> &MemoryStore {
        self.memory.as_ref().expect("the store is in memory")
    }

    fn call(&self, kind: Calls) -> Result<()> {
        let mut faults = self.faults.lock();
        if faults.calls == Calls::Commits && kind != Calls::Commits {
            return Ok(());
        }
        if faults.after > 0 {
            faults.after -= 1;
            return Ok(());
        }
        if faults.count == 0 {
            return Ok(());
        }
        faults.count -= 1;
        faults.met += 1;
        Err(Error::Injected(faults.kind))
    }
}

impl RowStore for CrashStore {
    fn header(&self) -> Result<Header> {
        self.live.header()
    }

    fn inodes(&self, from: Ino, limit: usize) -> Result<Vec<InodeRow>> {
        self.call(Calls::All)?;
        self.live.inodes(from, limit)
    }

    fn name(&self, parent: Ino, name: &Name) -> Result<Option<NameRow>> {
        self.call(Calls::All)?;
        self.live.name(parent, name)
    }

    fn names(&self, parent: Ino, after: Cookie, limit: usize) -> Result<Vec<NameRow>> {
        self.call(Calls::All)?;
        self.live.names(parent, after, limit)
    }

    fn whole_names(&self, parent: Ino, after: Cookie, limit: usize) -> Result<Vec<NameRow>> {
        self.call(Calls::All)?;
        self.live.whole_names(parent, after, limit)
    }

    fn extents(&self, ino: Ino, range: Range<u64>) -> Result<Vec<(Span, BlockRef)>> {
        self.call(Calls::All)?;
        self.live.extents(ino, range)
    }

    fn refuse_missing_names(&self, directory: Ino) -> Result<()> {
        self.call(Calls::All)?;
        self.live.refuse_missing_names(directory)
    }

    fn refuse_missing_blocks(&self, ino: Ino) -> Result<()> {
        self.call(Calls::All)?;
        self.live.refuse_missing_blocks(ino)
    }

    fn names_of(&self, ino: Ino) -> Result<Vec<(Ino, Name)>> {
        self.live.names_of(ino)
    }

    fn xattrs(&self, ino: Ino) -> Result<Vec<(Name, Vec<u8>)>> {
        self.call(Calls::All)?;
        self.live.xattrs(ino)
    }

    fn orphans(&self) -> Result<Vec<Ino>> {
        self.call(Calls::All)?;
        self.live.orphans()
    }

    fn digest(&self, ino: Ino) -> Result<Option<Digest>> {
        self.call(Calls::All)?;
        self.live.digest(ino)
    }

    fn listed(&self, parent: Ino, after: Cookie, limit: usize) -> Result<Vec<ListedRow>> {
        self.call(Calls::All)?;
        self.live.listed(parent, after, limit)
    }

    fn content_digest(&self, ino: Ino) -> Result<Option<Digest>> {
        self.call(Calls::All)?;
        self.live.content_digest(ino)
    }

    fn commits(&self, from: CommitNo, limit: usize) -> Result<Vec<CommitRow>> {
        self.call(Calls::All)?;
        self.live.commits(from, limit)
    }
}

impl BlockStore for CrashStore {
    fn read_block(&self, block: &BlockRef, mode: ReadMode) -> Result<Option<Block>> {
        self.call(Calls::All)?;
        self.catch_up()?;
        self.live.read_block(block, mode)
    }
}

impl CommitStore for CrashStore {
    fn begin(&self, durability: Durability) -> Result<Box<dyn Transaction + '_>> {
        self.call(Calls::Commits)?;
        if self.late.lock().is_some() {
            return Ok(Box::new(Overtaken(self)));
        }
        let blocks = Vec::new();
        Ok(Box::new(CrashTransaction { store: self, inner: self.live.begin(durability)?, durability, blocks }))
    }

    fn are_commits_durable(&self) -> bool {
        self.live.are_commits_durable()
    }

    fn lost(&self) -> Option<Error> {
        self.live.lost()
    }
}

impl PastStore for CrashStore {
    fn history(&self) -> Result<Option<History>> {
        self.live.history()
    }

    fn pins(&self) -> Result<Vec<Pin>> {
        self.live.pins()
    }

    fn is_kept(&self, commit: CommitNo) -> Result<bool> {
        self.live.is_kept(commit)
    }

    fn commit_at(&self, time: Timestamp) -> Result<Option<CommitRow>> {
        self.call(Calls::All)?;
        self.live.commit_at(time)
    }

    fn inodes_at(&self, commit: CommitNo, inos: Range<Ino>, limit: usize) -> Result<Vec<(InodeRow, CommitNo)>> {
        self.call(Calls::All)?;
        self.live.inodes_at(commit, inos, limit)
    }

    fn name_at(&self, commit: CommitNo, parent: Ino, name: &Name) -> Result<Option<NameRow>> {
        self.call(Calls::All)?;
        self.live.name_at(commit, parent, name)
    }

    fn names_at(&self, commit: CommitNo, parent: Ino, after: Cookie, limit: usize) -> Result<Vec<NameRow>> {
        self.call(Calls::All)?;
        self.live.names_at(commit, parent, after, limit)
    }

    fn extents_at(&self, commit: CommitNo, ino: Ino, range: Range<u64>) -> Result<Vec<(Span, BlockRef)>> {
        self.call(Calls::All)?;
        self.live.extents_at(commit, ino, range)
    }

    fn xattrs_at(&self, commit: CommitNo, ino: Ino) -> Result<Vec<(Name, Vec<u8>)>> {
        self.call(Calls::All)?;
        self.live.xattrs_at(commit, ino)
    }

    fn past_extents(&self, after: ExtentKey, limit: usize) -> Result<Vec<PastExtent>> {
        self.call(Calls::All)?;
        self.live.past_extents(after, limit)
    }

    fn past_contents(&self, after: (Ino, CommitNo), limit: usize) -> Result<Vec<PastContent>> {
        self.call(Calls::All)?;
        self.live.past_contents(after, limit)
    }

    fn digest_at(&self, commit: CommitNo, ino: Ino) -> Result<Option<Digest>> {
        self.call(Calls::All)?;
        self.live.digest_at(commit, ino)
    }

    fn versions(&self, ino: Ino, until: CommitNo, limit: usize) -> Result<Vec<(InodeRow, Range<CommitNo>)>> {
        self.call(Calls::All)?;
        self.live.versions(ino, until, limit)
    }
}

impl Maintenance for CrashStore {
    fn round_trips(&self) -> RoundTrips {
        self.live.round_trips()
    }

    fn space(&self) -> Result<Space> {
        let bytes_free = self.bytes_free.load(Ordering::Relaxed);
        Ok(Space { bytes_free, ..self.live.space()? })
    }

    fn is_remote(&self) -> bool {
        self.live.is_remote()
    }

    fn make_room(&self) -> Result<bool> {
        self.live.make_room()
    }
}

/// A commit whose steps fail on demand.
struct CrashTransaction<'a> {
    store: &'a CrashStore,
    inner: Box<dyn Transaction + 'a>,
    durability: Durability,
    /// Blocks that were put, if the commit may be late.
    blocks: Vec<NewBlock>,
}

impl Transaction for CrashTransaction<'_> {
    fn put_blocks(&mut self, blocks: Vec<NewBlock>) -> Result<Vec<BlockRef>> {
        self.store.call(Calls::Commits)?;
        if self.store.doubt.lock().is_some() {
            self.blocks.extend(blocks.iter().cloned());
        }
        self.inner.put_blocks(blocks)
    }

    fn split_block(&mut self, split: &SplitBlock) -> Result<Option<Vec<BlockRef>>> {
        self.store.call(Calls::Commits)?;
        // A commit that may be late is made of the blocks that were put.
        let is_late = self.store.doubt.lock().is_some();
        if is_late { Ok(None) } else { self.inner.split_block(split) }
    }

    fn commit(self: Box<Self>, batch: &Batch) -> Result<()> {
        self.store.call(Calls::Commits)?;
        let doubt = self.store.doubt.lock().take();
        if let Some(InDoubt::Late) = doubt {
            *self.store.late.lock() = Some((batch.clone(), self.blocks));
            return Err(Error::Interrupted);
        }
        self.inner.commit(batch)?;
        if let Some(memory) = &self.store.memory {
            let mut images = self.store.images.lock();
            if self.durability == Durability::Durable {
                images.clear();
            }
            images.push((**memory).clone());
        }
        let work = self.store.stored.lock().take();
        if let Some(work) = work {
            work();
        }
        match doubt {
            Some(InDoubt::Interrupted) => Err(Error::Interrupted),
            Some(InDoubt::Unheard) => Err(Error::Unheard(ErrorKind::Unavailable)),
            Some(InDoubt::Late) | None => Ok(()),
        }
    }
}

/// A commit before which the late one happens.
struct Overtaken<'a>(&'a CrashStore);

impl Transaction for Overtaken<'_> {
    fn put_blocks(&mut self, blocks: Vec<NewBlock>) -> Result<Vec<BlockRef>> {
        Ok(blocks.iter().map(|new| new.at(Place::Database)).collect())
    }

    fn commit(self: Box<Self>, _batch: &Batch) -> Result<()> {
        self.0.catch_up().and(Err(Error::Interrupted))
    }
}
