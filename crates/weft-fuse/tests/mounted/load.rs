//! Many programs at once, and requests that must wait.

use crate::fixture::{Mounted, on_each_transport};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::Barrier;
use std::thread;

/// Fewer than the requests that one processor's queue holds, and than the threads of the device.
const WAITING: usize = 12;

/// Keeps the calling thread on one processor, so that all requests of a test go to one queue.
fn stay_on_first_processor() {
    let mut set = CpuSet::new();
    set.set(0);
    // In a place without processor 0 the test is only easier.
    let _ = sched_setaffinity(None, &set);
}

#[test]
fn programs_that_wait_for_the_disk_do_not_hold_up_others() {
    on_each_transport(|mounted| {
        stay_on_first_processor();
        fs::write(mounted.path("file"), b"before").expect("written");
        mounted.gate.close();
        thread::scope(|scope| {
            for i in 0..WAITING {
                scope.spawn(move || {
                    let file = File::create_new(mounted.path(&format!("waiting{i}"))).expect("made");
                    file.write_all_at(b"text", 0).expect("written");
                    file.sync_all().expect("synced");
                });
            }
            mounted.gate.await_waiting();
            for i in 0..100 {
                fs::write(mounted.path("file"), format!("{i}")).expect("written");
                assert_eq!(fs::metadata(mounted.path("file")).expect("attributes").len(), format!("{i}").len() as u64);
            }
            mounted.gate.open();
        });
        for i in 0..WAITING {
            assert_eq!(fs::read(mounted.path(&format!("waiting{i}"))).expect("read"), b"text");
        }
    });
}

#[test]
fn many_programs_at_once_each_see_their_own_files_right() {
    on_each_transport(|mounted| {
        let start = Barrier::new(8);
        thread::scope(|scope| {
            for program in 0..8 {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    work(mounted, program);
                });
            }
        });
        assert_eq!(fs::read_dir(mounted.root()).expect("listed").count(), 0);
    });
}

fn work(mounted: &Mounted, program: usize) {
    let directory = mounted.path(&format!("program{program}"));
    fs::create_dir(&directory).expect("made");
    for round in 0..30 {
        let path = directory.join(format!("file{round}"));
        let data = vec![u8::try_from(round + program).expect("small"); 1 + round * 7000];
        fs::write(&path, &data).expect("written");
        let file = File::open(&path).expect("opened");
        if round % 5 == 0 {
            file.sync_all().expect("synced");
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("dropped");
        }
        assert!(fs::read(&path).expect("read") == data, "program {program}, round {round}");
        let moved = directory.join(format!("moved{round}"));
        fs::rename(&path, &moved).expect("renamed");
        if round % 2 == 0 {
            fs::remove_file(&moved).expect("removed");
        }
    }
    assert_eq!(fs::read_dir(&directory).expect("listed").count(), 15);
    fs::remove_dir_all(&directory).expect("removed");
}

#[test]
fn forgotten_inodes_are_let_go() {
    on_each_transport(|mounted| {
        for i in 0..500 {
            fs::write(mounted.path(&format!("file{i}")), b"").expect("made");
        }
        assert!(mounted.vfs.stats().held_inodes >= 500);
        for i in 0..500 {
            fs::remove_file(mounted.path(&format!("file{i}"))).expect("removed");
        }
        while mounted.vfs.stats().held_inodes > 0 {
            thread::yield_now();
        }
        assert_eq!(mounted.vfs.stats().inodes_used, 1);
    });
}
