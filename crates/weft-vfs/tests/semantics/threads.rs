//! Many threads at once, with commits in the background.

use crate::{DIRECTORY, FILE, Volume, options, volume_options};
use std::sync::Barrier;
use std::sync::mpsc::channel;
use std::time::Duration;
use weft_testkit::check_rows;
use weft_vfs::blocking::{Answer, Wait, set_hook};
use weft_vfs::{Caller, ErrorKind, Ino, Options, RenameMode};

const THREADS: usize = 4;

/// A volume that commits all the time and keeps next to nothing in memory.
fn restless() -> Volume {
    let options = Options {
        background: true,
        commit_interval: Duration::from_micros(500),
        dirty_bytes_max: 256 << 10,
        metadata_cache_bytes: 4096,
        block_cache_bytes: 4096,
        ..options()
    };
    Volume::with(volume_options(), options)
}

fn together(work: impl Fn(usize) + Sync) {
    let start = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (start, work) = (&start, &work);
            scope.spawn(move || {
                start.wait();
                work(thread);
            });
        }
    });
}

#[test]
fn threads_in_directories_of_their_own_do_not_disturb_each_other() {
    let mut volume = restless();
    let content = |thread: usize, i: usize| vec![u8::try_from(thread * 40 + i % 40).expect("small"); i * 97 % 20_000];
    together(|thread| {
        let directory = volume.make(Ino::ROOT, &thread.to_string(), DIRECTORY);
        for i in 0..150 {
            let ino = volume.make(directory, "new", FILE);
            for (at, part) in content(thread, i).chunks(3000).enumerate() {
                volume.write(ino, at as u64 * 3000, part);
            }
            let name = i.to_string();
            volume.vfs.rename((directory, b"new"), (directory, name.as_bytes()), RenameMode::Replace).expect("renamed");
            assert_eq!(volume.read(ino, 0, 30_000), content(thread, i));
            if i % 3 == 0 {
                volume.vfs.unlink(directory, name.as_bytes()).expect("unlinked");
            }
            if i % 20 == 0 {
                volume.vfs.sync().expect("synced");
            }
        }
    });
    volume.remount();
    check_rows(&*volume.store).expect("the rows agree");
    for thread in 0..THREADS {
        let directory = volume.find(Ino::ROOT, &thread.to_string()).expect("found");
        assert_eq!(directory.size, 100);
        for i in (0..150).filter(|i| i % 3 != 0) {
            let ino = volume.find(directory.ino, &i.to_string()).expect("found").ino;
            assert_eq!(volume.read(ino, 0, 30_000), content(thread, i));
        }
    }
}

#[test]
fn of_threads_that_make_or_take_one_name_exactly_one_wins_each_time() {
    let mut volume = restless();
    let wins = std::sync::atomic::AtomicUsize::new(0);
    let count = |result: Result<(), ErrorKind>, lost: ErrorKind| match result {
        Ok(()) => drop(wins.fetch_add(1, std::sync::atomic::Ordering::Relaxed)),
        Err(error) => assert_eq!(error, lost),
    };
    let names: Vec<_> = (0..300).map(|i| format!("name{i}")).collect();
    together(|_| {
        for name in &names {
            let made = volume.vfs.make(Caller::ROOT, Ino::ROOT, name.as_bytes(), FILE);
            count(made.map(drop).map_err(|error| error.kind()), ErrorKind::Exists);
        }
    });
    assert_eq!(wins.swap(0, std::sync::atomic::Ordering::Relaxed), names.len());
    together(|_| {
        for name in &names {
            let removed = volume.vfs.unlink(Ino::ROOT, name.as_bytes());
            count(removed.map_err(|error| error.kind()), ErrorKind::NotFound);
        }
    });
    assert_eq!(wins.into_inner(), names.len());
    volume.remount();
    check_rows(&*volume.store).expect("the rows agree");
    assert_eq!(volume.vfs.stats().inodes_used, 1);
}

#[test]
fn threads_that_rename_directories_into_each_other_never_make_a_loop() {
    let mut volume = restless();
    for i in 0..4 {
        volume.directory(&i.to_string());
    }
    let inos: Vec<_> = (0..4).map(|i| volume.find(Ino::ROOT, &i.to_string()).expect("found").ino).collect();
    together(|thread| {
        for i in 0..400 {
            let (moved, to) = ((i * 7 + thread) % 4, (i * 3 + thread * 2) % 5);
            let to = inos.get(to).copied().unwrap_or(Ino::ROOT);
            let from = volume.vfs.parent(Caller::ROOT, inos[moved]).expect("there").ino;
            let name = moved.to_string();
            let result = volume.vfs.rename((from, name.as_bytes()), (to, name.as_bytes()), RenameMode::Replace);
            if let Err(error) = result {
                assert!(matches!(error.kind(), ErrorKind::Invalid | ErrorKind::NotFound), "{error}");
            }
        }
    });
    volume.remount();
    check_rows(&*volume.store).expect("the rows agree");
    for ino in inos {
        let mut at = ino;
        let depth = (0..6).take_while(|_| {
            at = volume.vfs.parent(Caller::ROOT, at).expect("there").ino;
            at != Ino::ROOT
        });
        assert!(depth.count() < 4, "inode {} hangs in a loop", ino.0);
    }
}

/// A commit frees the blocks that it replaces in the store a moment before memory knows of the new
/// ones.
#[test]
fn a_block_that_a_commit_has_just_replaced_is_not_taken_for_damage() {
    let volume = Volume::with(volume_options(), Options { block_cache_bytes: 0, ..options() });
    let ino = volume.file("file");
    volume.write(ino, 0, &[1; 8192]);
    volume.vfs.commit().expect("committed");
    volume.write(ino, 100, &[2; 100]);
    let (tell, stored) = channel();
    let (go_on, may_go_on) = channel::<()>();
    volume.store.when_stored(move || {
        tell.send(()).expect("somebody waits");
        // Nothing comes if the reader is done without having waited.
        let _ = may_go_on.recv();
    });
    std::thread::scope(|scope| {
        let committed = scope.spawn(|| volume.vfs.commit());
        stored.recv().expect("the commit is in the store");
        let read = scope.spawn(|| {
            set_hook(move |wait| {
                if wait == Wait::Commit {
                    go_on.send(()).expect("the commit waits");
                }
                Answer::Wait
            });
            volume.vfs.read(ino, 0, 4096)
        });
        let read = read.join().expect("no panic").expect("nothing is damaged").to_vec();
        assert_eq!(read, [[1; 100].as_slice(), &[2; 100], &[1; 3896]].concat());
        committed.join().expect("no panic").expect("committed");
    });
}

#[test]
fn writers_to_one_file_never_tear_each_others_blocks() {
    let mut volume = restless();
    let ino = volume.file("file");
    together(|thread| {
        let byte = u8::try_from(thread).expect("small") + 1;
        for i in 0..200u64 {
            volume.write(ino, i % 10 * 5000, &[byte; 5000]);
            let found = volume.read(ino, i % 7 * 5000, 5000);
            assert!(found.iter().all(|byte| *byte == found[0]), "a write is seen in part");
        }
    });
    volume.remount();
    for part in volume.read(ino, 0, 50_000).chunks(5000) {
        assert!(part[0] > 0 && part.iter().all(|byte| *byte == part[0]));
    }
}
