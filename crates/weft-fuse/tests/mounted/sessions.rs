//! Mounting and unmounting.

use crate::fixture::{Mounted, on_each_transport};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use weft_fuse::{MountError, MountOptions, Session, SessionOptions};
use weft_store::VolumeOptions;
use weft_store::memory::MemoryStore;
use weft_vfs::{Options, SystemClock, Vfs};

fn vfs() -> Arc<Vfs> {
    let store = Arc::new(MemoryStore::new(VolumeOptions::default()));
    weft_links::open(store, None, Options::default(), weft_links::LinkOptions::default(), Arc::new(SystemClock))
        .expect("opens")
}

fn mount_line(mounted: &Mounted) -> Option<String> {
    let mounts = String::from_utf8_lossy(&fs::read("/proc/self/mounts").expect("a list of mounts")).into_owned();
    let path = format!(" {} ", mounted.root().display());
    mounts.lines().find(|line| line.contains(&path)).map(str::to_owned)
}

#[test]
fn a_mount_shows_its_source_and_type() {
    on_each_transport(|mounted| {
        let line = mount_line(mounted).expect("mounted");
        assert!(line.starts_with("test ") && line.contains(" fuse.weft "), "{line}");
        assert!(line.contains("default_permissions"), "{line}");
    });
}

#[test]
fn a_second_mount_at_the_same_place_is_refused_and_changes_nothing() {
    on_each_transport(|mounted| {
        let refused = Session::mount(vfs(), mounted.root(), &MountOptions::default(), SessionOptions::default());
        assert!(matches!(refused.map(|_| ()), Err(MountError::InUse(_))));
        fs::write(mounted.path("file"), b"").expect("it still serves");
    });
}

#[test]
fn a_session_that_is_dropped_before_it_served_leaves_no_mount() {
    on_each_transport(|_| {
        let directory = tempfile::tempdir().expect("a directory");
        let session = Session::mount(vfs(), directory.path(), &MountOptions::default(), SessionOptions::default());
        drop(session.expect("mounts"));
        fs::write(directory.path().join("file"), b"").expect("a plain directory");
    });
}

#[test]
fn unmounting_in_use_waits_for_the_last_user() {
    on_each_transport(|mounted| {
        let mut file = File::create_new(mounted.path("file")).expect("made");
        assert!(weft_fuse::unmount(mounted.root(), false).is_err(), "it is in use");
        weft_fuse::unmount(mounted.root(), true).expect("unmounted");
        assert_eq!(mount_line(mounted), None);
        file.write_all(b"still served").expect("written");
        file.sync_all().expect("synced");
    });
}

#[test]
fn a_read_only_mount_refuses_changes() {
    on_each_transport(|_| {
        let directory = tempfile::tempdir().expect("a directory");
        let mount = MountOptions { read_only: true, ..MountOptions::default() };
        let session = Session::mount(vfs(), directory.path(), &mount, SessionOptions::default()).expect("mounts");
        let unmounter = session.unmounter();
        let server = std::thread::spawn(move || session.run());
        let error = fs::write(directory.path().join("file"), b"").expect_err("read-only");
        assert_eq!(error.raw_os_error(), Some(libc::EROFS));
        unmounter.unmount().expect("unmounted");
        server.join().expect("no panic").expect("served");
    });
}

/// Asks for names and files as a program may. Returns the errno of each answer; none for success.
fn asked(mounted: &Mounted, open: &File) -> Vec<(&'static str, Option<i32>)> {
    let mut bytes = [0; 4];
    let of = |result: std::io::Result<()>| result.err().and_then(|error| error.raw_os_error());
    vec![
        ("content", of(fs::read(mounted.path("directory/file")).map(drop))),
        ("content of what is open", of(open.read_exact_at(&mut bytes, 0))),
        ("attributes", of(fs::metadata(mounted.path("directory/file")).map(drop))),
        ("attributes of the root", of(fs::metadata(mounted.root()).map(drop))),
        ("attributes of what is open", of(open.metadata().map(drop))),
        ("what a symbolic link says", of(fs::read_link(mounted.path("link")).map(drop))),
        (
            "entries",
            of(fs::read_dir(mounted.path("directory"))
                .and_then(|mut entries| entries.try_for_each(|entry| entry.map(drop)))),
        ),
        ("a missing name", of(fs::metadata(mounted.path("directory/missing")).map(drop))),
        ("a missing name in the root", of(fs::metadata(mounted.path("missing")).map(drop))),
    ]
}

/// The kernel answers from its caches without asking the daemon, and for long.
#[test]
fn nothing_is_answered_from_the_kernels_caches_once_a_session_has_left() {
    on_each_transport(|mounted| {
        fs::create_dir(mounted.path("directory")).expect("made");
        fs::write(mounted.path("directory/file"), vec![7; 300_000]).expect("written");
        std::os::unix::fs::symlink("directory", mounted.path("link")).expect("made");
        let open = File::open(mounted.path("directory/file")).expect("opened");
        // The second time all of it comes from the caches.
        for _ in 0..2 {
            for (what, error) in asked(mounted, &open) {
                assert_eq!(error, what.starts_with("a missing").then_some(libc::ENOENT), "{what}");
            }
        }
        let before = ["read", "lookup", "readlink"].map(|opcode| mounted.requests(opcode));
        fs::read(mounted.path("directory/file")).expect("readable");
        fs::metadata(mounted.path("missing")).expect_err("missing");
        fs::read_link(mounted.path("link")).expect("readable");
        assert_eq!(["read", "lookup", "readlink"].map(|opcode| mounted.requests(opcode)), before, "it was cached");
        mounted.leaver.leave();
        for (what, error) in asked(mounted, &open) {
            assert_eq!(error, Some(libc::ENOTCONN), "{what}");
        }
        fs::write(mounted.path("directory/file"), b"").expect_err("nobody is there");
    });
}
