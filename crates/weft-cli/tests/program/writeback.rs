//! Writes that the kernel has cached and cannot write back: one fsync reports them, and then they
//! are forgotten.

use crate::place::Place;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

const BYTES: usize = 3 << 20;

/// Mounts a volume whose quota has room for one file of [`BYTES`], with one in it.
fn filled(place: &Place) -> std::path::PathBuf {
    let directory = place.directory("m");
    place.weft(&["init", "--size-max", "4M", "v"]).well();
    place.weft(&["mount", "--writeback", "v", "m"]).well();
    fs::write(directory.join("fill"), vec![b'f'; BYTES]).unwrap();
    File::open(directory.join("fill")).unwrap().sync_all().unwrap();
    directory
}

/// Leaves `name` in the kernel's hands, which cannot pass on all of it.
fn written(directory: &std::path::Path, name: &str) -> File {
    let file = File::options().read(true).write(true).create(true).truncate(false).open(directory.join(name)).unwrap();
    file.write_all_at(&vec![b'D'; BYTES], 0).unwrap();
    assert!(file.sync_all().is_err(), "there is no room");
    file
}

#[test]
fn no_sync_succeeds_until_what_the_kernel_could_not_pass_on_is_written_again() {
    let Some(place) = Place::to_mount() else { return };
    let directory = filled(&place);
    let file = written(&directory, "late");
    let missing = &["could not pass on", "/late", "write them again"];
    for _ in 0..2 {
        assert!(file.sync_all().is_err());
        place.weft(&["sync", "m"]).failed(missing);
        place.weft(&["umount", "m"]).failed(&["m stays mounted", "could not pass on", "/late", "--lazy"]);
    }
    assert!(place.weft(&["stats", "m"]).well().contains("/late"));
    // Others are not held up.
    File::open(directory.join("fill")).unwrap().sync_all().unwrap();
    File::open(&directory).unwrap().sync_all().unwrap();
    // Room alone brings nothing back.
    fs::remove_file(directory.join("fill")).unwrap();
    assert!(file.sync_all().is_err());
    place.weft(&["umount", "m"]).failed(&["m stays mounted"]);
    file.write_all_at(&vec![b'E'; BYTES], 0).unwrap();
    file.sync_all().unwrap();
    place.weft(&["sync", "m"]).well();
    drop(file);
    place.umount();
    place.mount();
    assert!(fs::read(directory.join("late")).unwrap() == vec![b'E'; BYTES]);
    place.umount();
}

/// The kernel would put its length of a file, and bytes beside those written, over clients' own.
#[test]
fn a_mount_whose_kernel_keeps_writes_is_not_served() {
    let Some(place) = Place::to_mount() else { return };
    place.directory("m");
    place.weft(&["init", "v"]).well();
    for option in [&["--writeback"][..], &["-o", "writeback"]] {
        let arguments = [&["mount", "v", "m", "--nfs", "127.0.0.1:0"], option].concat();
        place.weft(&arguments).misused(&["--writeback", "--nfs", "leave one of them out"]);
    }
}

#[test]
fn a_file_that_was_removed_or_cut_misses_nothing() {
    let Some(place) = Place::to_mount() else { return };
    let directory = filled(&place);
    drop(written(&directory, "removed"));
    place.weft(&["umount", "m"]).failed(&["m stays mounted", "/removed"]);
    fs::remove_file(directory.join("removed")).unwrap();
    place.weft(&["sync", "m"]).well();
    let cut = written(&directory, "cut");
    place.weft(&["sync", "m"]).failed(&["/cut"]);
    cut.set_len(0).unwrap();
    cut.sync_all().unwrap();
    drop(cut);
    place.umount();
}

#[test]
fn reads_give_what_the_volume_has_and_not_what_could_not_be_passed_on() {
    let Some(place) = Place::to_mount() else { return };
    let directory = filled(&place);
    let file = written(&directory, "late");
    let read = || {
        let mut bytes = vec![0; BYTES];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    place.weft(&["sync", "m"]).failed(&["/late"]);
    let told = read();
    drop(file);
    place.weft(&["umount", "--lazy", "m"]).well();
    // The daemon lets go of the volume by itself.
    while place.weft(&["mount", "v", "m"]).code != 0 {
        std::thread::yield_now();
    }
    let kept = fs::read(directory.join("late")).unwrap();
    assert!(told.iter().filter(|byte| **byte == b'D').count() == kept.iter().filter(|byte| **byte == b'D').count());
    place.umount();
}
