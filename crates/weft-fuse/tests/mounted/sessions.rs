//! Mounting and unmounting.

use crate::fixture::{Mounted, on_each_transport};
use std::fs::{self, File};
use std::io::Write;
use std::sync::Arc;
use weft_fuse::{MountError, MountOptions, Session, SessionOptions};
use weft_store::VolumeOptions;
use weft_store::memory::MemoryStore;
use weft_vfs::{Options, SystemClock, Vfs};

fn vfs() -> Arc<Vfs> {
    let store = Arc::new(MemoryStore::new(VolumeOptions::default()));
    Vfs::open(store, None, Options::default(), Arc::new(SystemClock)).expect("opens")
}

fn mount_line(mounted: &Mounted) -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mounts").expect("a list of mounts");
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
