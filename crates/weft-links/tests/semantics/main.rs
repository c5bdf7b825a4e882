//! Promises to users of transformation links, sentence by sentence.

mod absent;
mod computing;
mod digests;
mod drafts;
mod links;
mod past;
mod places;
mod rights;
mod sharing;
mod steps;
mod trusted;
mod views;

use std::sync::Arc;
use weft_links::{LinkOptions, Links, WithLinks};
use weft_store::VolumeOptions;
use weft_testkit::CrashStore;
use weft_vfs::{Attributes, Caller, ErrorKind, Ino, Kind, MakeNode, ManualClock, Options, Result, SetAttributes, Vfs};

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

fn mount_options() -> Options {
    Options { background: false, ..Options::default() }
}

fn options() -> LinkOptions {
    LinkOptions::default()
}

impl Volume {
    fn new() -> Volume {
        Volume::with(volume_options(), options())
    }

    fn with(volume: VolumeOptions, links: LinkOptions) -> Volume {
        Volume::mounted(volume, mount_options(), links)
    }

    fn mounted(volume: VolumeOptions, options: Options, links: LinkOptions) -> Volume {
        let store = Arc::new(CrashStore::new(volume));
        let clock = Arc::new(ManualClock::default());
        let vfs = weft_links::open(store.clone(), None, options, links, clock.clone()).expect("opens");
        Volume { store, clock, vfs }
    }

    fn links(&self) -> Links<'_> {
        self.vfs.links().expect("it was opened with links")
    }

    /// Power is lost; only what was synced survives.
    fn crash(&mut self) {
        self.store.crash(0);
        self.reopen(mount_options());
    }

    fn remount(&mut self) {
        self.vfs.close().expect("closed");
        self.reopen(mount_options());
    }

    fn reopen(&mut self, mount: Options) {
        let opened = weft_links::open(self.store.clone(), None, mount, options(), self.clock.clone());
        self.vfs = opened.expect("opens");
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

    fn clock_now(&self) -> weft_vfs::Timestamp {
        weft_vfs::Clock::now(&*self.clock)
    }

    fn resize(&self, ino: Ino, size: u64) {
        let changes = SetAttributes { size: Some(size), ..SetAttributes::default() };
        self.vfs.set_attributes(ino, changes).expect("set");
    }
}

/// A directory that commands of stages can see: they have a `/tmp` of their own.
fn seen_by_commands() -> tempfile::TempDir {
    let place = if rustix::process::geteuid().is_root() { "/run" } else { env!("CARGO_TARGET_TMPDIR") };
    tempfile::tempdir_in(place).expect("a directory")
}

/// The kind of the error that `result` must be.
fn kind<T>(result: Result<T>) -> ErrorKind {
    result.err().expect("an error").kind()
}
