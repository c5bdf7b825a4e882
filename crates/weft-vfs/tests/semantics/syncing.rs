//! Syncs of single inodes: for whom they sync all there is.

use crate::{Volume, options};
use weft_vfs::{Asker, Ino, Options};

/// Attack: the kernel locks an inode while it is synced, and whoever may open it may sync it, in
/// many processes, while others write much.
#[test]
fn a_user_who_syncs_what_did_not_change_waits_for_no_commit() {
    let mut volume = Volume::new();
    let (directory, file) = (volume.directory("directory"), volume.file("file"));
    volume.vfs.sync().expect("synced");
    let busy = volume.file("busy");
    let commits = |volume: &Volume| volume.vfs.stats().commits;
    let sync_as_user = |volume: &Volume, ino| {
        let _asking = Asker::thread(1000, 1000, 0).asks();
        volume.vfs.sync_inode(ino).expect("synced");
    };
    let before = commits(&volume);
    for ino in [directory, file] {
        volume.write(busy, 0, b"more");
        sync_as_user(&volume, ino);
        assert_eq!(commits(&volume), before);
    }
    // What changed is synced, and all that came before it.
    volume.chmod(file, 0o600);
    sync_as_user(&volume, file);
    assert_eq!((commits(&volume), volume.vfs.progress().1), (before + 1, volume.vfs.progress().0));
    volume.make(directory, "new", crate::FILE);
    sync_as_user(&volume, directory);
    assert_eq!(commits(&volume), before + 2);
    // For the super-user it is a sync of the volume.
    volume.write(busy, 0, b"more");
    volume.vfs.sync_inode(directory).expect("synced");
    assert_eq!(commits(&volume), before + 3);
    // What was read from a commit that need not be durable is not known to be.
    volume.chmod(file, 0o644);
    volume.vfs.commit().expect("committed");
    volume.reopen(Options { metadata_cache_bytes: 0, ..options() });
    volume.write(busy, 0, b"more");
    let before = commits(&volume);
    sync_as_user(&volume, file);
    assert_eq!(commits(&volume), before + 1);
    assert_eq!(volume.find(Ino::ROOT, "file").expect("there").permissions, 0o644);
}
