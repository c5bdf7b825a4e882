//! The file system that stores nothing: names and lengths are right, content is zeros.

use crate::fixture::can_mount;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::thread;
use weft_fuse::{MountOptions, Nothing, SessionOptions, Transport};

#[test]
fn what_stores_nothing_has_names_and_lengths_and_reads_as_zeros() {
    if !can_mount() {
        return;
    }
    // The automatic one is io_uring where the kernel has that on.
    for transport in [Transport::Device, Transport::Automatic] {
        let directory = tempfile::tempdir().expect("a directory");
        let options = SessionOptions { transport, ..SessionOptions::default() };
        let nothing = Nothing::mount(directory.path(), &MountOptions::default(), options).expect("mounts");
        let unmounter = nothing.unmounter();
        let server = thread::spawn(move || nothing.run());
        use_it(directory.path());
        unmounter.unmount().expect("unmounts");
        server.join().expect("no panic").expect("served to the end");
    }
}

fn use_it(root: &Path) {
    let at = |name: &str| root.join(name);
    fs::write(at("file"), vec![7; 3 << 20]).expect("written");
    let file = fs::File::options().read(true).write(true).open(at("file")).expect("opened");
    file.write_all_at(b"more", 4 << 20).expect("written");
    file.sync_all().expect("synced");
    assert_eq!(file.metadata().expect("there").len(), (4 << 20) + 4);
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("dropped");
    let mut read = [1; 100];
    file.read_exact_at(&mut read, 4096).expect("read");
    assert_eq!(read, [0; 100]);
    fs::set_permissions(at("file"), fs::Permissions::from_mode(0o640)).expect("set");
    assert_eq!(at("file").metadata().expect("there").mode() & 0o7777, 0o640);
    fs::create_dir_all(at("d/e")).expect("made");
    fs::rename(at("file"), at("d/moved")).expect("moved");
    fs::hard_link(at("d/moved"), at("d/linked")).expect("linked");
    symlink("moved", at("d/symbolic")).expect("made");
    assert_eq!(fs::read_link(at("d/symbolic")).expect("read").as_os_str(), "moved");
    assert_eq!(at("d/symbolic").metadata().expect("followed").nlink(), 2);
    for number in 0..3000 {
        fs::write(at(&format!("d/e/{number}")), "").expect("made");
    }
    assert_eq!(fs::read_dir(at("d/e")).expect("listed").count(), 3000);
    assert!(fs::remove_dir(at("d")).is_err() && fs::rename(at("none"), at("other")).is_err());
    fs::remove_dir_all(at("d")).expect("removed");
    assert_eq!(fs::read_dir(root).expect("listed").count(), 0);
    // One that is open stays as long as it is.
    let open = fs::File::create_new(at("open")).expect("made");
    fs::remove_file(at("open")).expect("removed");
    open.write_all_at(b"x", 10).expect("written");
    assert_eq!(open.metadata().expect("there").len(), 11);
}
