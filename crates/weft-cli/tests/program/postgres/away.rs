//! A server that restarts, crashes, stays away, or has a full disk.

use super::{Writer, assert_numbered};
use crate::place::{Place, is_root, write_synced};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use weft_testkit::Cluster;

const COUNT: usize = 600;

#[test]
fn programs_wait_for_a_server_that_restarts_or_crashes_and_go_on() {
    let cluster = Cluster::start("-c fsync=off");
    let Some(place) = Place::to_mount() else { return };
    let url = cluster.url();
    place.weft(&["init", &url]).well();
    let mounted = place.directory("m");
    for orders in [&["restart"][..], &["crash", "start"]] {
        place.mount_with(&url, &[]);
        let directory = mounted.join(orders[0]);
        let writer = Writer::start(directory.clone(), COUNT);
        writer.await_synced(5);
        orders.iter().for_each(|order| cluster.tell(order));
        writer.end().unwrap();
        assert_numbered(&directory, COUNT);
        place.umount();
        place.mount_with(&url, &[]);
        assert_numbered(&directory, COUNT);
        place.umount();
        place.weft(&["check", "--read-data", &url]).well();
    }
}

#[test]
fn what_a_server_that_stays_away_cannot_take_is_told_and_kept() {
    let cluster = Cluster::start("-c fsync=off");
    let Some(place) = Place::to_mount() else { return };
    let url = cluster.url();
    place.weft(&["init", &url]).well();
    let file = place.directory("m").join("kept");
    place.mount_with(&url, &["--patience", "1"]);
    fs::write(&file, "before").unwrap();
    cluster.tell("stop");
    let sync = || File::open(&file).unwrap().sync_all();
    sync().unwrap_err();
    place.weft(&["umount", "m"]).failed(&["stays mounted"]);
    cluster.tell("start");
    sync().unwrap();
    place.mount_killed(&url, &[]);
    assert_eq!(fs::read(&file).unwrap(), b"before");
    place.umount();
}

/// A file system in memory, mounted until dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(directory: PathBuf, mib: u32) -> SmallDisk {
        let size = std::ffi::CString::new(format!("size={mib}m")).unwrap();
        mount("tmpfs", &directory, "tmpfs", MountFlags::empty(), size.as_c_str()).unwrap();
        SmallDisk(directory)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

#[test]
fn a_server_whose_disk_is_full_is_said_to_be_and_loses_nothing_that_was_synced() {
    if !is_root() {
        return eprintln!("SKIPPED a_server_whose_disk_is_full_is_said_to_be: needs root");
    }
    let cluster = Cluster::start("-c fsync=off");
    let Some(place) = Place::to_mount() else { return };
    fs::set_permissions(place.path(""), PermissionsExt::from_mode(0o755)).unwrap();
    let disk = SmallDisk::mount(place.directory("disk"), 160);
    let space = disk.0.join("space");
    fs::create_dir(&space).unwrap();
    let owner = std::os::unix::fs::MetadataExt::uid(&cluster.socket().metadata().unwrap());
    chown(&space, Some(owner), None).unwrap();
    fs::write(disk.0.join("intruder"), vec![0; 64 << 20]).unwrap();
    cluster.run(&format!("CREATE TABLESPACE small LOCATION '{}'", space.display()));
    cluster.run("CREATE DATABASE small TABLESPACE small");
    let url = cluster.url().replace("/postgres?", "/small?");
    place.weft(&["init", &url]).well();
    let mounted = place.directory("m");
    place.mount_with(&url, &[]);
    let safe: Vec<u8> = (0..1_250_000u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    write_synced(&mounted.join("safe"), &safe);

    let mut filler = File::create(mounted.join("filler")).unwrap();
    let written = (0..400).try_for_each(|_| filler.write_all(&vec![7; 1 << 20])).and_then(|()| filler.sync_all());
    assert_eq!(written.unwrap_err().kind(), ErrorKind::StorageFull);
    drop(filler);
    assert!(fs::read(mounted.join("safe")).unwrap() == safe, "reading goes on");
    fs::remove_file(mounted.join("filler")).unwrap();
    let sync = || rustix::fs::syncfs(File::open(&mounted).unwrap());
    let _ = sync();
    fs::remove_file(disk.0.join("intruder")).unwrap();
    // The first one may tell what was lost before.
    sync().or_else(|_| sync()).unwrap();
    write_synced(&mounted.join("again"), &safe);
    place.umount();
    place.mount_with(&url, &[]);
    for name in ["safe", "again"] {
        assert!(fs::read(mounted.join(name)).unwrap() == safe, "{name}");
    }
    place.umount();
    place.weft(&["check", "--read-data", &url]).well();
}
