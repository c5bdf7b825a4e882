//! Mounts, and takes the mount down again whatever happens.

use parking_lot::{Condvar, Mutex};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use weft_block::Block;
use weft_fuse::{Leaver, MountOptions, Session, SessionOptions, Transport, Unmounter};
use weft_store::memory::MemoryStore;
use weft_store::{
    BlockRef, BlockStore, CommitNo, CommitRow, CommitStore, Cookie, Durability, Header, History, Ino, InodeRow,
    Maintenance, Name, NameRow, PastStore, Pin, ReadMode, RowStore, Space, Span, Timestamp, Transaction, VolumeOptions,
};
use weft_vfs::{Options, SystemClock, Vfs};

/// A volume, mounted until dropped.
pub struct Mounted {
    directory: tempfile::TempDir,
    server: Option<JoinHandle<std::io::Result<()>>>,
    unmounter: Unmounter,
    pub leaver: Leaver,
    pub vfs: Arc<Vfs>,
    pub gate: Arc<Gate>,
}

/// True if mounting is possible; prints a note if not.
pub fn can_mount() -> bool {
    let can = fs::exists("/dev/fuse").unwrap_or(false) && rustix::process::geteuid().is_root();
    if !can {
        eprintln!("SKIPPED: mounting needs root and /dev/fuse; NOTHING was tested here");
    }
    can
}

/// Runs `test` on a mount over each transport there is.
pub fn on_each_transport(test: impl Fn(&Mounted)) {
    if !can_mount() {
        return;
    }
    test(&Mounted::new(Transport::Device));
    let rings = fs::read_to_string("/sys/module/fuse/parameters/enable_uring");
    if rings.is_ok_and(|on| on.trim() == "Y") {
        let mounted = Mounted::new(Transport::Automatic);
        assert_eq!(mounted.stats()["transport"], "io_uring");
        test(&mounted);
    } else {
        eprintln!(
            "SKIPPED: FUSE over io_uring is off (/sys/module/fuse/parameters/enable_uring): tested the device alone"
        );
    }
}

impl Mounted {
    pub fn new(transport: Transport) -> Mounted {
        Mounted::with(SessionOptions { transport, ..SessionOptions::default() })
    }

    pub fn with(options: SessionOptions) -> Mounted {
        let gate = Arc::new(Gate::default());
        let store = GatedStore { store: MemoryStore::new(VolumeOptions::default()), gate: gate.clone() };
        let vfs = weft_links::open(
            Arc::new(store),
            None,
            Options::default(),
            weft_links::LinkOptions::default(),
            Arc::new(SystemClock),
        )
        .expect("opens");
        let directory = tempfile::tempdir().expect("a directory");
        let mount = MountOptions { source: "test".into(), ..MountOptions::default() };
        let session = Session::mount(vfs.clone(), directory.path(), &mount, options).expect("mounts");
        let unmounter = session.unmounter();
        let leaver = session.leaver();
        let server = thread::spawn(move || session.run());
        Mounted { directory, server: Some(server), unmounter, leaver, vfs, gate }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn root(&self) -> &Path {
        self.directory.path()
    }

    pub fn stats(&self) -> serde_json::Value {
        let mut value = vec![0; 65536];
        let len = rustix::fs::getxattr(self.root(), "user.weft.stats", &mut value).expect("counters");
        serde_json::from_slice(&value[..len]).expect("JSON")
    }

    /// Requests of a kind so far.
    pub fn requests(&self, opcode: &str) -> u64 {
        self.stats()["requests"][opcode.to_ascii_lowercase()].as_u64().unwrap_or(0)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.gate.open();
        let unmounted = self.unmounter.unmount();
        let served = self.server.take().expect("a thread").join();
        if !thread::panicking() {
            unmounted.expect("unmounts");
            served.expect("no panic").expect("served to the end");
        }
    }
}

/// Lets commits pass, or not.
#[derive(Default)]
pub struct Gate {
    closed: Mutex<bool>,
    waiting: Mutex<usize>,
    changed: Condvar,
}

impl Gate {
    pub fn close(&self) {
        *self.closed.lock() = true;
    }

    pub fn open(&self) {
        *self.closed.lock() = false;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let mut closed = self.closed.lock();
        *self.waiting.lock() += 1;
        self.changed.notify_all();
        while *closed {
            self.changed.wait(&mut closed);
        }
        *self.waiting.lock() -= 1;
    }

    /// Waits until a commit waits here.
    pub fn await_waiting(&self) {
        let mut closed = self.closed.lock();
        while *self.waiting.lock() == 0 {
            self.changed.wait(&mut closed);
        }
    }
}

/// A store in memory whose commits go through a gate.
struct GatedStore {
    store: MemoryStore,
    gate: Arc<Gate>,
}

impl RowStore for GatedStore {
    fn header(&self) -> weft_store::Result<Header> {
        self.store.header()
    }

    fn inodes(&self, from: Ino, limit: usize) -> weft_store::Result<Vec<InodeRow>> {
        self.store.inodes(from, limit)
    }

    fn name(&self, parent: Ino, name: &Name) -> weft_store::Result<Option<NameRow>> {
        self.store.name(parent, name)
    }

    fn names(&self, parent: Ino, after: Cookie, limit: usize) -> weft_store::Result<Vec<NameRow>> {
        self.store.names(parent, after, limit)
    }

    fn whole_names(&self, parent: Ino, after: Cookie, limit: usize) -> weft_store::Result<Vec<NameRow>> {
        self.store.whole_names(parent, after, limit)
    }

    fn extents(&self, ino: Ino, range: Range<u64>) -> weft_store::Result<Vec<(Span, BlockRef)>> {
        self.store.extents(ino, range)
    }

    fn refuse_missing_names(&self, directory: Ino) -> weft_store::Result<()> {
        self.store.refuse_missing_names(directory)
    }

    fn refuse_missing_blocks(&self, ino: Ino) -> weft_store::Result<()> {
        self.store.refuse_missing_blocks(ino)
    }

    fn xattrs(&self, ino: Ino) -> weft_store::Result<Vec<(Name, Vec<u8>)>> {
        self.store.xattrs(ino)
    }

    fn orphans(&self) -> weft_store::Result<Vec<Ino>> {
        self.store.orphans()
    }
}

impl BlockStore for GatedStore {
    fn read_block(&self, block: &BlockRef, mode: ReadMode) -> weft_store::Result<Option<Block>> {
        // As if every block were on a disk.
        if mode == ReadMode::CachedOnly { Ok(None) } else { self.store.read_block(block, mode) }
    }
}

impl CommitStore for GatedStore {
    fn begin(&self, durability: Durability) -> weft_store::Result<Box<dyn Transaction + '_>> {
        self.gate.pass();
        self.store.begin(durability)
    }
}

impl PastStore for GatedStore {
    fn history(&self) -> weft_store::Result<Option<History>> {
        self.store.history()
    }

    fn pins(&self) -> weft_store::Result<Vec<Pin>> {
        self.store.pins()
    }

    fn is_kept(&self, commit: CommitNo) -> weft_store::Result<bool> {
        self.store.is_kept(commit)
    }

    fn commit_at(&self, time: Timestamp) -> weft_store::Result<Option<CommitRow>> {
        self.store.commit_at(time)
    }

    fn inodes_at(
        &self,
        commit: CommitNo,
        inos: Range<Ino>,
        limit: usize,
    ) -> weft_store::Result<Vec<(InodeRow, CommitNo)>> {
        self.store.inodes_at(commit, inos, limit)
    }

    fn name_at(&self, commit: CommitNo, parent: Ino, name: &Name) -> weft_store::Result<Option<NameRow>> {
        self.store.name_at(commit, parent, name)
    }

    fn names_at(&self, commit: CommitNo, parent: Ino, after: Cookie, limit: usize) -> weft_store::Result<Vec<NameRow>> {
        self.store.names_at(commit, parent, after, limit)
    }

    fn extents_at(&self, commit: CommitNo, ino: Ino, range: Range<u64>) -> weft_store::Result<Vec<(Span, BlockRef)>> {
        self.store.extents_at(commit, ino, range)
    }

    fn xattrs_at(&self, commit: CommitNo, ino: Ino) -> weft_store::Result<Vec<(Name, Vec<u8>)>> {
        self.store.xattrs_at(commit, ino)
    }

    fn digest_at(&self, commit: CommitNo, ino: Ino) -> weft_store::Result<Option<[u8; 32]>> {
        self.store.digest_at(commit, ino)
    }

    fn versions(
        &self,
        ino: Ino,
        until: CommitNo,
        limit: usize,
    ) -> weft_store::Result<Vec<(InodeRow, Range<CommitNo>)>> {
        self.store.versions(ino, until, limit)
    }
}

impl Maintenance for GatedStore {
    fn space(&self) -> weft_store::Result<Space> {
        self.store.space()
    }
}
