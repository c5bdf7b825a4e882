//! A volume on a small disk that fills up: errors say so, nothing that was synced is lost, and work
//! goes on once there is room.

use crate::place::{Numbers, Place, is_root, write_synced};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Longest time until the kernel has forgotten a file that was removed.
const SOON: Duration = Duration::from_secs(300);

/// A disk of its own, mounted until dropped.
struct Disk(PathBuf);

impl Disk {
    /// Makes one of so many MiB in `disk`; none, with a loud message, where that cannot be.
    fn new(place: &Place, mib: u64) -> Option<Disk> {
        let (image, directory) = (place.path("image"), place.directory("disk"));
        File::create(&image).unwrap().set_len(mib << 20).unwrap();
        let made = Command::new("mkfs.ext4").args(["-q", "-m", "0"]).arg(&image).status();
        let mounted = Command::new("mount").args(["-o", "loop"]).args([&image, &directory]).output();
        if is_root() && made.is_ok_and(|status| status.success()) && mounted.is_ok_and(|said| said.status.success()) {
            return Some(Disk(directory));
        }
        eprintln!("SKIPPED full disks: they need root, mkfs.ext4 and loop devices");
        None
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

/// Writes to a new file until there is no room.
fn fill(path: &Path) -> std::io::Error {
    let mut file = File::create(path).unwrap();
    loop {
        if let Err(error) = file.write_all(&vec![0; 1 << 20]) {
            return error;
        }
    }
}

fn sync(directory: &Path) -> rustix::io::Result<()> {
    rustix::fs::syncfs(File::open(directory).unwrap())
}

fn try_write_synced(path: &Path, content: &[u8]) -> std::io::Result<()> {
    fs::write(path, content)?;
    File::open(path)?.sync_all()
}

fn fills_up_and_goes_on(mib: u64) {
    let Some(place) = Place::to_mount() else { return };
    let Some(disk) = Disk::new(&place, mib) else { return };
    let mounted = place.directory("m");
    place.weft(&["init", "disk/v"]).well();
    // Nor is there room for messages.
    let said = place.weft(&["mount", "disk/v", "m", "--log", "/dev/full"]);
    assert_eq!(said.code, 0, "{said:?}");
    let mut numbers = Numbers(mib);
    let safe = numbers.bytes(5_000_000);
    write_synced(&mounted.join("safe"), &safe);
    let is_safe = || fs::read(mounted.join("safe")).unwrap() == safe;
    assert_eq!(fill(&mounted.join("filler")).kind(), ErrorKind::StorageFull);
    assert!(is_safe(), "reading goes on");
    fs::remove_file(mounted.join("filler")).unwrap();
    sync(&mounted).unwrap();
    // The kernel forgets a file that was removed in its own time; then its space comes back.
    let (again, begun) = (numbers.bytes(20_000_000), Instant::now());
    while let Err(error) = try_write_synced(&mounted.join("again"), &again) {
        assert!(begun.elapsed() < SOON, "writing does not go on: {error}");
        let _ = sync(&mounted);
    }

    // Filled by another program: a sync says so, or the data is safe.
    fill(&disk.0.join("intruder"));
    let late = numbers.bytes(3_000_000);
    let written = try_write_synced(&mounted.join("late"), &late);
    if let Err(error) = &written {
        assert!(matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EIO | libc::EDQUOT)), "{error}");
    }
    fs::remove_file(disk.0.join("intruder")).unwrap();
    sync(&mounted).or_else(|_| sync(&mounted)).unwrap();
    assert!(is_safe());
    assert!(written.is_err() || fs::read(mounted.join("late")).unwrap() == late);
    place.umount();
    place.weft(&["check", "--read-data", "disk/v"]).well();
}

#[test]
fn a_small_disk_that_fills_up_is_said_to_be_full_and_loses_nothing() {
    fills_up_and_goes_on(128);
}

/// A large disk, of which ext4 keeps more for itself.
#[test]
fn a_large_disk_that_fills_up_is_said_to_be_full_and_loses_nothing() {
    fills_up_and_goes_on(1000);
}

fn free(directory: &Path) -> u64 {
    let stat = rustix::fs::statvfs(directory).unwrap();
    stat.f_bavail * stat.f_frsize
}

/// Waits until so many bytes or more are said to be free in the mount.
fn await_free(place: &Place, bytes: u64) {
    let (directory, begun) = (&place.path("m"), Instant::now());
    while free(directory) < bytes {
        assert!(begun.elapsed() < SOON, "{} of {bytes} bytes are free", free(directory));
        place.weft(&["stats", "m"]).well();
    }
}

#[test]
fn history_counts_as_free_and_yields_and_what_a_snapshot_keeps_is_named() {
    let Some(place) = Place::to_mount() else { return };
    let Some(disk) = Disk::new(&place, 256) else { return };
    let mounted = place.directory("m");
    place.weft(&["init", "--history", "all forever", "disk/v"]).well();
    place.weft(&["mount", "disk/v", "m", "--log", "log"]).well();
    let mib = |count: usize| vec![7; count << 20];
    // Each is a commit of its own: what is replaced before a commit is no version.
    let write = |name: &str, count: usize| {
        let written = try_write_synced(&mounted.join(name), &mib(count));
        place.weft(&["sync", "m"]);
        written
    };
    let before = free(&disk.0);
    for _ in 0..3 {
        write("file", 40).unwrap();
    }
    assert!(free(&disk.0) + (110 << 20) < before, "three versions are stored");
    await_free(&place, before - (60 << 20));
    // All of that may be used.
    for number in 0..3 {
        write(&format!("more {number}"), 40).unwrap();
    }
    for number in 0..3 {
        fs::remove_file(mounted.join(format!("more {number}"))).unwrap();
    }
    sync(&mounted).unwrap();
    await_free(&place, before - (60 << 20));
    place.weft(&["snapshot", "create", "m", "keeper"]).well();
    write("file", 40).unwrap();
    write("file", 40).unwrap();
    let said = (0..20).map(|number| write(&format!("again {number}"), 20)).find_map(Result::err);
    assert_eq!(said.expect("the disk is full").kind(), ErrorKind::StorageFull);
    let log = fs::read_to_string(place.path("log")).unwrap();
    assert!(log.contains("the oldest history goes"), "{log}");
    let why = "there is no room left: snapshot 'keeper' keeps all of the history that there is";
    assert!(log.contains(why), "{log}");
    assert!(place.weft(&["history", "m"]).well().contains(why));
    assert!(place.weft(&["status"]).out.contains(why));
    let costs = place.weft(&["history", "--json", "m"]).json();
    assert!(costs["costs"]["bytes_pinned"].as_u64().unwrap() >= 40 << 20, "{costs}");
    place.weft(&["snapshot", "delete", "m", "keeper"]).well();
    assert!(!place.weft(&["history", "m"]).well().contains(why));
    write("after", 20).unwrap();
    place.umount();
    place.weft(&["check", "--read-data", "disk/v"]).well();
}

/// Makes directories of files so small that they lie in rows, 64 MB in all.
fn make_small_files(directory: &Path) {
    let mut numbers = Numbers(1);
    for number in 0..16 {
        let directory = directory.join(number.to_string());
        fs::create_dir(&directory).unwrap();
        for name in 0..2000 {
            let len = numbers.below(4096) as usize;
            fs::write(directory.join(name.to_string()), numbers.bytes(len)).unwrap();
        }
    }
}

fn fills_up_with_small_files(mib: u64, is_import: bool) {
    let Some(place) = Place::to_mount() else { return };
    let Some(_disk) = Disk::new(&place, mib) else { return };
    make_small_files(&place.directory("small"));
    let mounted = place.directory("m");
    let mount = || place.weft(&["mount", "disk/v", "m", "--log", "log"]).well();
    place.weft(&["init", "disk/v"]).well();
    if is_import {
        assert_ne!(place.weft(&["import", "small", "disk/v:tree"]).code, 0);
        mount();
    } else {
        mount();
        place.sh("cp -r ../small tree").fails_with("No space left");
    }
    for name in ["tree/1", "tree/2"] {
        fs::remove_dir_all(mounted.join(name)).unwrap();
    }
    sync(&mounted).unwrap();
    place.sh("cp -r ../small/1 again").well();
    sync(&mounted).unwrap();
    place.umount();
    mount();
    place.sh("diff -r ../small/1 again && test ! -e tree/1").well();
    place.umount();
    place.weft(&["check", "--read-data", "disk/v"]).well();
}

#[test]
fn a_disk_full_of_small_files_that_programs_made_has_room_once_some_are_removed() {
    fills_up_with_small_files(120, false);
}

#[test]
fn a_disk_full_of_small_files_that_were_imported_has_room_once_some_are_removed() {
    fills_up_with_small_files(60, true);
}
