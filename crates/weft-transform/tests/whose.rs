//! Joint bounds for the user numbers that belong to one person.

use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
use std::fs;
use weft_transform::{Bounds, Charge};
use weft_users::whose;

#[test]
fn subordinate_users_share_what_their_person_may_have() {
    if !rustix::process::geteuid().is_root() || !fs::exists("/etc/subuid").is_ok_and(|exists| exists) {
        eprintln!("skipped: only root can put another /etc/subuid in the place of one that is there");
        return;
    }
    // SAFETY: this thread alone gets mounts of its own; nothing else of it changes.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.expect("mounts of its own");
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE).expect("private");
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let file = directory.path().join("subuid");
    fs::write(&file, "4000400:5000000:65536\n4000401:6000000:65536\n").expect("written");
    mount_bind(&file, "/etc/subuid").expect("mounted");
    let asked = [0, 1000, 4_000_400, 5_000_000, 5_065_535, 5_065_536, 6_000_000];
    assert_eq!(asked.map(whose), [0, 1000, 4_000_400, 4_000_400, 4_000_400, 5_065_536, 4_000_401]);
    // A network has a quarter of this, and a person half.
    let bounds = Bounds { memory_bytes: 64 << 20, ..Bounds::default() };
    let mut charges = [5_000_000, 5_000_001, 5_000_002, 6_000_000].map(|user| Charge::of(Some(user), bounds));
    let taken = charges.each_mut().map(|charge| charge.raise(16 << 20));
    assert_eq!(taken, [true, true, false, true]);
}
