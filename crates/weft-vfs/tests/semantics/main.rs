//! What holds for users of a volume, sentence by sentence.

mod access;
mod content;
mod crashed;
mod damage;
mod deferred;
mod doubt;
mod fragments;
mod history;
mod intents;
mod intents_in_rows;
mod limits;
mod listing;
mod names;
mod sharing;
mod syncing;
mod threads;
mod times;

use std::sync::Arc;
use weft_store::VolumeOptions;
use weft_testkit::CrashStore;
use weft_vfs::{
    AtimePolicy, Attributes, Caller, ErrorKind, Ino, Kind, MakeNode, ManualClock, Options, Result, SetAttributes, Vfs,
};

const FILE: MakeNode = MakeNode { kind: Kind::File, permissions: 0o644, umask: 0, rdev: 0 };
const DIRECTORY: MakeNode = MakeNode { kind: Kind::Directory, permissions: 0o755, umask: 0, rdev: 0 };

/// A volume in memory that commits when told, under a clock that stands still.
struct Volume {
    store: Arc<CrashStore>,
    clock: Arc<ManualClock>,
    vfs: Arc<Vfs>,
}

fn volume_options() -> VolumeOptions {
    VolumeOptions { block_size: 4096, inline_max: 100, ..VolumeOptions::default() }
}

fn options() -> Options {
    Options { background: false, atime: AtimePolicy::Relative, ..Options::default() }
}

impl Volume {
    fn new() -> Volume {
        Volume::with(volume_options(), options())
    }

    fn with(volume: VolumeOptions, options: Options) -> Volume {
        let store = Arc::new(CrashStore::new(volume));
        let clock = Arc::new(ManualClock::default());
        let vfs = Vfs::open(store.clone(), None, options, clock.clone()).expect("opens");
        Volume { store, clock, vfs }
    }

    /// Power is lost; only what was synced survives.
    fn crash(&mut self) {
        self.store.crash(0);
        self.reopen(options());
    }

    fn remount(&mut self) {
        self.vfs.close().expect("closed");
        self.reopen(options());
    }

    fn reopen(&mut self, options: Options) {
        self.vfs = Vfs::open(self.store.clone(), None, options, self.clock.clone()).expect("opens");
    }

    fn file(&self, name: &str) -> Ino {
        self.make(Ino::ROOT, name, FILE)
    }

    fn directory(&self, name: &str) -> Ino {
        self.make(Ino::ROOT, name, DIRECTORY)
    }

    fn make(&self, parent: Ino, name: &str, node: MakeNode) -> Ino {
        self.vfs.make(Caller::ROOT, parent, name.as_bytes(), node).expect("made").ino
    }

    fn find(&self, parent: Ino, name: &str) -> Result<Attributes> {
        self.vfs.lookup(Caller::ROOT, parent, name.as_bytes())
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) {
        self.vfs.write(ino, offset, data, false).expect("written");
    }

    fn read(&self, ino: Ino, offset: u64, len: usize) -> Vec<u8> {
        self.vfs.read(ino, offset, len).expect("read").to_vec()
    }

    fn attributes(&self, ino: Ino) -> Attributes {
        self.vfs.attributes(ino).expect("there")
    }

    fn chmod(&self, ino: Ino, permissions: u32) {
        let changes = SetAttributes { permissions: Some(permissions), ..SetAttributes::default() };
        self.vfs.set_attributes(ino, changes).expect("set");
    }

    fn resize(&self, ino: Ino, size: u64) {
        let changes = SetAttributes { size: Some(size), ..SetAttributes::default() };
        self.vfs.set_attributes(ino, changes).expect("set");
    }
}

/// The kind of the error that `result` must be.
fn kind<T>(result: Result<T>) -> ErrorKind {
    result.err().expect("an error").kind()
}
