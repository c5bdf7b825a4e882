//! Mounts on which the kernel keeps what programs write.

use crate::fixture::{Mounted, can_mount};
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use weft_fuse::SessionOptions;
use weft_vfs::{Caller, Ino};

fn mounted() -> Option<Mounted> {
    can_mount().then(|| Mounted::with(SessionOptions { writeback: true, ..SessionOptions::default() }))
}

/// Returns the content that the daemon has of a file.
fn held(mounted: &Mounted, name: &str) -> Vec<u8> {
    let found = mounted.vfs.lookup(Caller::ROOT, Ino::ROOT, name.as_bytes()).expect("there");
    mounted.vfs.read(found.ino, 0, 1 << 20).expect("read").to_vec()
}

#[test]
fn small_writes_reach_the_daemon_together_when_the_file_is_closed_or_synced() {
    let Some(mounted) = mounted() else { return };
    let mut file = File::create(mounted.path("file")).expect("made");
    for _ in 0..1000 {
        file.write_all(b"0123456789").expect("written");
    }
    assert_eq!(mounted.requests("Write"), 0);
    assert_eq!(file.metadata().expect("told").size(), 10_000);
    file.sync_data().expect("synced");
    assert_eq!(held(&mounted, "file"), b"0123456789".repeat(1000));
    assert!(mounted.requests("Write") <= 3);
    file.write_all(b"end").expect("written");
    drop(file);
    assert_eq!(held(&mounted, "file").len(), 10_003);
    assert_eq!(fs::read(mounted.path("file")).expect("read").len(), 10_003);
}

#[test]
fn parts_of_pages_appends_and_cuts_leave_what_was_there() {
    let Some(mounted) = mounted() else { return };
    let path = mounted.path("file");
    fs::write(&path, vec![1; 10_000]).expect("written");
    let file = File::options().append(true).open(&path).expect("opened");
    (&file).write_all(&[2; 100]).expect("appended");
    let other = File::options().write(true).open(&path).expect("opened");
    other.write_all_at(&[3; 10], 5000).expect("written");
    other.set_len(10_050).expect("cut");
    (&file).write_all(&[4; 5]).expect("appended");
    drop((file, other));
    let mut expected = vec![1; 10_000];
    expected[5000..5010].fill(3);
    expected.extend([2; 50]);
    expected.extend([4; 5]);
    assert_eq!(held(&mounted, "file"), expected);
    assert_eq!(fs::read(&path).expect("read"), expected);
}

#[test]
fn what_the_kernel_keeps_is_no_hole() {
    let Some(mounted) = mounted() else { return };
    let path = mounted.path("file");
    let file = File::create(&path).expect("made");
    file.set_len(1 << 20).expect("sized");
    file.write_all_at(&[1; 4096], 512 << 10).expect("written");
    let mut reader = File::open(&path).expect("opened");
    let data = rustix::fs::seek(&reader, rustix::fs::SeekFrom::Data(512 << 10)).expect("data");
    assert_eq!(data, 512 << 10);
    reader.seek(SeekFrom::Start(0)).expect("back");
    let copied = std::io::copy(&mut reader, &mut File::create(mounted.path("copy")).expect("made")).expect("copied");
    assert_eq!(copied, 1 << 20);
    drop(file);
    assert_eq!(held(&mounted, "copy"), held(&mounted, "file"));
}

#[test]
fn times_that_a_program_sets_stay() {
    let Some(mounted) = mounted() else { return };
    let path = mounted.path("file");
    let mut file = File::create(&path).expect("made");
    file.write_all(b"content").expect("written");
    let time = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 7);
    file.set_modified(time).expect("set");
    drop(file);
    assert_eq!(fs::metadata(&path).expect("told").modified().expect("told"), time);
    let found = mounted.vfs.lookup(Caller::ROOT, Ino::ROOT, b"file").expect("there");
    assert_eq!(found.mtime.0, 1_000_000_000_000_000_007);
}
