//! A store whose commits fail on demand and that can lose power.

use parking_lot::{Mutex, RwLock};
use std::ops::Range;
use weft_block::Block;
use weft_store::memory::MemoryStore;
use weft_store::{
    Applied, Batch, BlockRef, Cookie, Durability, Error, ErrorKind, Header, Ino, InodeRow, Name, NameRow, Patience,
    Result, Space, Store, VolumeOptions,
};

/// A store in memory with a durable image and the eventual commits after it.
pub struct CrashStore {
    live: RwLock<MemoryStore>,
    /// The durable image, then one after each eventual commit.
    images: Mutex<Vec<MemoryStore>>,
    failing: Mutex<(u32, ErrorKind)>,
}

impl CrashStore {
    /// An empty volume, durable.
    pub fn new(options: VolumeOptions) -> CrashStore {
        let live = MemoryStore::new(options);
        let images = Mutex::new(vec![live.clone()]);
        CrashStore { live: RwLock::new(live), images, failing: Mutex::new((0, ErrorKind::Bug)) }
    }

    /// The next `count` commits fail with `kind`.
    pub fn fail_next(&self, count: u32, kind: ErrorKind) {
        *self.failing.lock() = (count, kind);
    }

    /// Power is lost: what is durable survives, and `survives` of 255 of the commits after it.
    pub fn crash(&self, survives: u8) {
        let mut images = self.images.lock();
        let kept = (images.len() - 1) * usize::from(survives) / 255;
        let image = images[kept].clone();
        *images = vec![image.clone()];
        *self.live.write() = image;
    }

    /// How many blocks the store keeps.
    pub fn block_count(&self) -> usize {
        self.live.read().block_count()
    }

    fn fails(&self) -> Option<ErrorKind> {
        let mut failing = self.failing.lock();
        let (count, kind) = *failing;
        failing.0 = count.saturating_sub(1);
        (count > 0).then_some(kind)
    }
}

impl Store for CrashStore {
    fn header(&self) -> Result<Header> {
        self.live.read().header()
    }
    fn inodes(&self, from: Ino, limit: usize) -> Result<Vec<InodeRow>> {
        self.live.read().inodes(from, limit)
    }
    fn name(&self, parent: Ino, name: &Name) -> Result<Option<NameRow>> {
        self.live.read().name(parent, name)
    }
    fn names(&self, parent: Ino, after: Cookie, limit: usize) -> Result<Vec<NameRow>> {
        self.live.read().names(parent, after, limit)
    }
    fn extents(&self, ino: Ino, range: Range<u64>) -> Result<Vec<(u64, BlockRef)>> {
        self.live.read().extents(ino, range)
    }
    fn xattrs(&self, ino: Ino) -> Result<Vec<(Name, Vec<u8>)>> {
        self.live.read().xattrs(ino)
    }
    fn orphans(&self) -> Result<Vec<Ino>> {
        self.live.read().orphans()
    }
    fn read_block(&self, block: &BlockRef, patience: Patience) -> Result<Option<Block>> {
        self.live.read().read_block(block, patience)
    }
    fn apply(&self, batch: &Batch, durability: Durability) -> Result<Applied> {
        if let Some(kind) = self.fails() {
            return Err(Error::Injected(kind));
        }
        let live = self.live.read();
        let applied = live.apply(batch, durability)?;
        let mut images = self.images.lock();
        if durability == Durability::Durable {
            images.clear();
        }
        images.push(live.clone());
        Ok(applied)
    }
    fn space(&self) -> Result<Space> {
        self.live.read().space()
    }
}
