//! Mounts whose locks the volume keeps, for others to see.

use crate::fixture::{Mounted, can_mount};
use rustix::fs::{FlockOperation, fcntl_lock, flock};
use rustix::io::Errno;
use std::fs::File;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use weft_fuse::{LockKeeper, SessionOptions};
use weft_vfs::locks::{Claim, IfHeld, LockError, LockKind, LockMode, LockOwner, LockRange, LockRequest, Locked};
use weft_vfs::{Caller, Ino};

/// A mount, and another client that locks files outside of it.
struct Shared {
    mounted: Mounted,
    other: LockOwner,
    ino: Ino,
}

fn shared() -> Option<(Shared, File)> {
    let options = SessionOptions { locks: LockKeeper::Volume, ..SessionOptions::default() };
    let mounted = can_mount().then(|| Mounted::with(options))?;
    let file = File::create_new(mounted.path("file")).expect("made");
    let ino = mounted.vfs.lookup(Caller::ROOT, Ino::ROOT, b"file").expect("there").ino;
    let other = LockOwner { client: mounted.vfs.locks().client(), name: Arc::new([1]) };
    Some((Shared { mounted, other, ino }, file))
}

impl Shared {
    fn request(&self) -> LockRequest {
        let (owner, range) = (self.other.clone(), LockRange::ALL);
        LockRequest { owner, user: 0, kind: LockKind::Either, range, mode: LockMode::Exclusive, pid: 0, tag: 0 }
    }

    /// The other one locks all of the file.
    fn lock(&self, if_held: IfHeld) -> Result<Locked, LockError> {
        self.mounted.vfs.locks().lock(self.ino, self.request(), Claim::New, if_held)
    }

    fn unlock(&self) {
        self.mounted.vfs.locks().unlock(self.ino, &self.other, LockKind::Either, LockRange::ALL).expect("unlocked");
    }
}

#[test]
fn programs_and_others_exclude_each_other() {
    let Some((shared, file)) = shared() else { return };
    shared.lock(IfHeld::Fail).expect("locked");
    assert_eq!(fcntl_lock(&file, FlockOperation::NonBlockingLockShared), Err(Errno::AGAIN));
    assert_eq!(flock(&file, FlockOperation::NonBlockingLockShared), Err(Errno::AGAIN));
    shared.unlock();
    fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).expect("locked");
    flock(&file, FlockOperation::NonBlockingLockExclusive).expect("locked; the two do not see each other");
    assert_eq!(shared.lock(IfHeld::Fail), Err(LockError::Held));
    fcntl_lock(&file, FlockOperation::Unlock).expect("unlocked");
    assert_eq!(shared.lock(IfHeld::Fail), Err(LockError::Held));
    flock(&file, FlockOperation::Unlock).expect("unlocked");
    shared.lock(IfHeld::Fail).expect("locked");
}

#[test]
fn closing_a_file_gives_its_locks_up() {
    let Some((shared, file)) = shared() else { return };
    let (granted, is_granted) = channel();
    let wait = || {
        let granted = granted.clone();
        IfHeld::Wait(Box::new(move || granted.send(()).expect("somebody listens")))
    };
    fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).expect("locked");
    assert_eq!(shared.lock(wait()), Ok(Locked::Waiting));
    drop(File::open(shared.mounted.path("file")).expect("opened"));
    is_granted.recv().expect("closing any descriptor gives up the process's ranges");
    shared.unlock();
    flock(&file, FlockOperation::NonBlockingLockExclusive).expect("locked");
    assert_eq!(shared.lock(wait()), Ok(Locked::Waiting));
    drop(file);
    is_granted.recv().expect("the last descriptor was closed");
}

#[test]
fn a_program_that_waits_goes_on_when_the_other_gives_its_lock_up() {
    let Some((shared, file)) = shared() else { return };
    shared.lock(IfHeld::Fail).expect("locked");
    let waiting = thread::spawn(move || fcntl_lock(&file, FlockOperation::LockExclusive).map(|()| file));
    while shared.mounted.requests("Setlkw") == 0 {
        thread::yield_now();
    }
    shared.unlock();
    let _file = waiting.join().expect("no panic").expect("locked");
    assert_eq!(shared.lock(IfHeld::Fail), Err(LockError::Held));
}

#[test]
fn a_program_that_waits_can_be_interrupted_and_then_waits_no_more() {
    let Some((shared, file)) = shared() else { return };
    shared.lock(IfHeld::Fail).expect("locked");
    let mut flock = Command::new("flock");
    flock.args(["--wait", "0.2", "--conflict-exit-code", "7"]).arg(shared.mounted.path("file")).arg("true");
    let ended = flock.status().expect("flock runs");
    assert_eq!(ended.code(), Some(7));
    shared.unlock();
    shared.lock(IfHeld::Fail).expect("nobody else got it");
    drop(file);
}
