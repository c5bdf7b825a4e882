//! Counts what operations on a volume cost, in process: `count WORK COUNT DIRECTORY`.
//!
//! Prints the allocations of COUNT operations of WORK. `tests/count-builds` runs it below
//! callgrind and strace, too, in two source trees, and compares. What an operation costs is the
//! difference between two counts, so that opening and closing the volume cancel out.
//!
//! Works: `create` makes files of 4 KiB and commits each thousand; `warm` looks one of a thousand
//! up and reads it; `cold` does so with files of which nothing is in memory; `rows` changes the
//! time of one in a directory of a thousand and commits each thousand.

#![allow(missing_docs)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weft_store::{Timestamp, VolumeOptions, sqlite};
use weft_vfs::{Caller, Ino, Kind, MakeNode, ManualClock, Options, SetAttributes, Vfs};

/// The system's allocator, with a count of what was asked of it.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: all is passed on to the system's allocator unchanged.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const FILE: MakeNode = MakeNode { kind: Kind::File, permissions: 0o644, umask: 0, rdev: 0 };
/// Files that are used again and again, and operations in a commit.
const SOME: u64 = 1000;

fn main() {
    let arguments = std::env::args().collect::<Vec<_>>();
    let [_, work, count, directory] = arguments.as_slice() else {
        panic!("usage: count WORK COUNT DIRECTORY");
    };
    let count = count.parse::<u64>().expect("COUNT is a number");
    let path = Path::new(directory).join("volume");
    let options = VolumeOptions::default();
    sqlite::create(&path, &options, (0, 0), Timestamp(0)).expect("the volume is made");
    let vfs = match work.as_str() {
        "create" => open(&path),
        "cold" => {
            let vfs = open(&path);
            make(&vfs, count);
            vfs.close().expect("closed");
            drop(vfs);
            open(&path)
        }
        _ => {
            let vfs = open(&path);
            make(&vfs, SOME);
            vfs
        }
    };
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    match work.as_str() {
        "create" => make(&vfs, count),
        "cold" => read(&vfs, count, count),
        "warm" => read(&vfs, count, SOME),
        "rows" => touch(&vfs, count),
        _ => panic!("WORK is create, cold, warm or rows"),
    }
    println!("{}", ALLOCATIONS.load(Ordering::Relaxed) - before);
    vfs.close().expect("closed");
}

fn open(path: &Path) -> Arc<Vfs> {
    let options = Options { background: false, ..Options::default() };
    let store = sqlite::open(path).expect("the volume opens").store;
    Vfs::open(store, None, options, Arc::new(ManualClock::default())).expect("the tree opens")
}

fn name(n: u64) -> Vec<u8> {
    format!("file {n}").into_bytes()
}

fn make(vfs: &Vfs, count: u64) {
    let content = [7; 4096];
    for n in 0..count {
        let ino = vfs.make(Caller::ROOT, Ino::ROOT, &name(n), FILE).expect("made").ino;
        vfs.write(ino, 0, &content, false).expect("written");
        commit_some(vfs, n);
    }
    vfs.commit().expect("committed");
}

fn read(vfs: &Vfs, count: u64, files: u64) {
    for n in 0..count {
        let found = vfs.lookup(Caller::ROOT, Ino::ROOT, &name(n % files)).expect("found");
        assert_eq!(vfs.read(found.ino, 0, 4096).expect("read").len(), 4096);
        vfs.release(found.ino, 1);
    }
}

fn touch(vfs: &Vfs, count: u64) {
    let first = vfs.lookup(Caller::ROOT, Ino::ROOT, &name(0)).expect("found").ino;
    for n in 0..count {
        let ino = Ino(first.0 + n % SOME);
        let changes = SetAttributes { permissions: Some(0o600 + (n / SOME % 2) as u32), ..SetAttributes::default() };
        vfs.set_attributes(ino, changes).expect("changed");
        commit_some(vfs, n);
    }
    vfs.commit().expect("committed");
}

fn commit_some(vfs: &Vfs, n: u64) {
    if n % SOME == SOME - 1 {
        vfs.commit().expect("committed");
    }
}
