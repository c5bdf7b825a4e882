//! Users who ask at the same time, of whom one asks for more than others.

use crate::fixture::{Mounted, can_mount};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, chown};
use std::sync::Barrier;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;
use weft_fuse::Transport;

/// More than the threads that serve.
const WAITING: usize = 100;

const ALICE: u32 = 1000;
const BOB: u32 = 1001;

/// A test that fails does so instead of hanging.
const LONG: Duration = Duration::from_secs(60);

/// Makes this thread alone act for another user, for good.
fn become_user(uid: u32) {
    // SAFETY: no pointers.
    unsafe {
        assert_eq!(libc::syscall(libc::SYS_setresgid, uid, uid, uid), 0);
        assert_eq!(libc::syscall(libc::SYS_setresuid, uid, uid, uid), 0);
    }
}

/// True if a thread of this process waits in fsync(2) (proc_pid_syscall(5)).
fn waits_in_fsync(thread: i32) -> bool {
    let call = fs::read_to_string(format!("/proc/self/task/{thread}/syscall")).unwrap_or_default();
    call.split(' ').next() == Some(&libc::SYS_fsync.to_string())
}

/// Attack: all that a user asks for waits, for a commit as here or for a disk, and it asks for as
/// much as all threads could serve.
#[test]
fn a_user_all_of_whose_requests_wait_leaves_other_users_threads() {
    if !can_mount() {
        return;
    }
    let mounted = &Mounted::new(Transport::Device);
    for (name, uid) in [("hers", ALICE), ("his", BOB)] {
        fs::create_dir(mounted.path(name)).expect("made");
        chown(mounted.path(name), Some(uid), Some(uid)).expect("given away");
    }
    let files: Vec<_> = (0..WAITING).map(|i| File::create(mounted.path(&format!("hers/{i}"))).expect("made")).collect();
    let threads: Vec<_> = (0..WAITING).map(|_| AtomicI32::new(0)).collect();
    mounted.gate.close();
    let all_written = &Barrier::new(WAITING);
    thread::scope(|scope| {
        for (file, thread) in files.iter().zip(&threads) {
            scope.spawn(move || {
                become_user(ALICE);
                file.write_all_at(b"text", 0).expect("written");
                all_written.wait();
                thread.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Relaxed);
                file.sync_all().expect("synced");
            });
        }
        while !threads.iter().all(|thread| waits_in_fsync(thread.load(Ordering::Relaxed))) {
            thread::yield_now();
        }
        let (done, is_done) = channel();
        scope.spawn(move || {
            become_user(BOB);
            for i in 0..20 {
                fs::write(mounted.path(&format!("his/{i}")), b"text").expect("written");
            }
            assert_eq!(fs::read_dir(mounted.path("his")).expect("listed").count(), 20);
            done.send(()).expect("heard");
        });
        let in_time = is_done.recv_timeout(LONG);
        mounted.gate.open();
        in_time.expect("Bob is served while Alice's requests wait");
    });
    assert!((0..WAITING).all(|i| fs::read(mounted.path(&format!("hers/{i}"))).expect("read") == b"text"));
}
