//! Content of files through the kernel.

use crate::fixture::on_each_transport;
use rustix::fs::{FallocateFlags, SeekFrom};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| u8::try_from(i * 7 % 251).expect("below 251")).collect()
}

#[test]
fn what_was_written_reads_back_from_the_kernels_cache_and_from_the_daemon() {
    on_each_transport(|mounted| {
        for len in [0, 1, 4095, 4096, 4097, 65_536, 1_000_000, 5_000_000] {
            let path = mounted.path(&format!("file{len}"));
            let data = pattern(len);
            fs::write(&path, &data).expect("written");
            assert!(fs::read(&path).expect("read") == data, "{len} from the cache");
            let file = File::open(&path).expect("opened");
            file.sync_all().expect("synced");
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("dropped");
            assert!(fs::read(&path).expect("read") == data, "{len} from the daemon");
        }
        assert!(mounted.requests("read") > 0);
    });
}

#[test]
fn an_open_file_outlives_its_name() {
    on_each_transport(|mounted| {
        let path = mounted.path("file");
        let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).expect("made");
        fs::remove_file(&path).expect("removed");
        file.write_all(b"still here").expect("written");
        let mut bytes = [0; 10];
        file.read_exact_at(&mut bytes, 0).expect("read");
        assert_eq!(&bytes, b"still here");
        assert_eq!(file.metadata().expect("attributes").nlink(), 0);
        let used = mounted.vfs.stats().inodes_used;
        drop(file);
        // Forgetting comes when the kernel finds time for it; a listing of another inode shows that
        // it did.
        while mounted.vfs.stats().inodes_used == used {
            thread_yield();
        }
    });
}

fn thread_yield() {
    std::thread::yield_now();
}

#[test]
fn appends_of_several_writers_all_arrive() {
    on_each_transport(|mounted| {
        let path = mounted.path("log");
        std::thread::scope(|scope| {
            for writer in 0..4u8 {
                let path = path.clone();
                scope.spawn(move || {
                    let mut file = OpenOptions::new().append(true).create(true).open(path).expect("opened");
                    for _ in 0..100 {
                        file.write_all(&[writer; 100]).expect("appended");
                    }
                });
            }
        });
        let bytes = fs::read(&path).expect("read");
        assert_eq!(bytes.len(), 4 * 100 * 100);
        assert!(bytes.chunks(100).all(|line| line.iter().all(|byte| *byte == line[0])), "no line is torn");
    });
}

#[test]
fn holes_are_found_punched_and_read_as_zeros() {
    on_each_transport(|mounted| {
        let file = File::create_new(mounted.path("sparse")).expect("made");
        file.write_all_at(&[1; 65_536], 0).expect("written");
        file.write_all_at(&[2; 65_536], 10 << 20).expect("written");
        assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(0)), Ok(65_536));
        assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(65_536)), Ok(10 << 20));
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, punch, 10 << 20, 65_536).expect("punched");
        assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(65_536)), Err(rustix::io::Errno::NXIO));
        assert_eq!(file.metadata().expect("attributes").len(), (10 << 20) + 65_536);
        let collapse = rustix::fs::fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 65_536);
        assert_eq!(collapse, Err(rustix::io::Errno::OPNOTSUPP));
    });
}

#[test]
fn copying_in_the_daemon_gives_the_same_bytes() {
    on_each_transport(|mounted| {
        let data = pattern(3_000_000);
        fs::write(mounted.path("from"), &data).expect("written");
        let from = File::open(mounted.path("from")).expect("opened");
        let to = File::create_new(mounted.path("to")).expect("made");
        let (mut at_from, mut at_to) = (0, 0);
        while at_from < data.len() as u64 {
            let left = data.len() - usize::try_from(at_from).expect("small");
            let copied = rustix::fs::copy_file_range(&from, Some(&mut at_from), &to, Some(&mut at_to), left);
            assert!(copied.expect("copied") > 0);
        }
        assert!(fs::read(mounted.path("to")).expect("read") == data);
        let requests = mounted.requests("CopyFileRange") + mounted.requests("CopyFileRange64");
        assert!(requests > 0, "the daemon copies");
    });
}

#[test]
fn a_mapped_file_is_written_through_its_mapping() {
    on_each_transport(|mounted| {
        let file = File::options().read(true).write(true).create_new(true).open(mounted.path("mapped")).expect("made");
        file.set_len(8192).expect("sized");
        let (protection, flags) =
            (rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE, rustix::mm::MapFlags::SHARED);
        // SAFETY: a new mapping of a file that nothing else in this process maps; unmapped below.
        unsafe {
            let memory = rustix::mm::mmap(std::ptr::null_mut(), 8192, protection, flags, &file, 0).expect("mapped");
            memory.cast::<u8>().add(5000).write(9);
            rustix::mm::msync(memory, 8192, rustix::mm::MsyncFlags::SYNC).expect("synced");
            rustix::mm::munmap(memory, 8192).expect("unmapped");
        }
        let ino = weft_store::Ino(file.metadata().expect("attributes").ino());
        assert_eq!(mounted.vfs.read(ino, 5000, 1).expect("read").to_vec(), [9]);
    });
}

#[test]
fn stores_to_a_mapping_that_fail_are_dropped_and_no_fsync_succeeds_before_they_are_made_again() {
    on_each_transport(|mounted| {
        let file = File::options().read(true).write(true).create_new(true).open(mounted.path("mapped")).expect("made");
        file.write_all_at(&[1; 8192], 0).expect("written");
        let protection = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
        // SAFETY: a new mapping of a file that nothing else in this process maps; unmapped below.
        unsafe {
            let flags = rustix::mm::MapFlags::SHARED;
            let memory = rustix::mm::mmap(std::ptr::null_mut(), 8192, protection, flags, &file, 0).expect("mapped");
            let sync = || rustix::mm::msync(memory, 8192, rustix::mm::MsyncFlags::SYNC);
            let byte = memory.cast::<u8>().add(5000);
            byte.write_volatile(9);
            mounted.vfs.refuse_changes().expect("refused");
            sync().expect_err("nothing may be changed");
            mounted.vfs.take_changes().expect("taken");
            for _ in 0..2 {
                sync().expect_err("the store is missing");
                file.sync_all().expect_err("the store is missing");
            }
            // A thread notifies the kernel.
            while byte.read_volatile() != 1 {
                std::thread::yield_now();
            }
            byte.write_volatile(8);
            sync().expect("synced");
            file.sync_all().expect("synced");
            rustix::mm::munmap(memory, 8192).expect("unmapped");
        }
        let ino = weft_store::Ino(file.metadata().expect("attributes").ino());
        assert_eq!(mounted.vfs.read(ino, 5000, 1).expect("read").to_vec(), [8]);
    });
}

#[test]
fn truncating_at_open_and_direct_io_work_without_an_open_request() {
    on_each_transport(|mounted| {
        let path = mounted.path("file");
        fs::write(&path, pattern(10_000)).expect("written");
        drop(File::create(&path).expect("truncated"));
        assert_eq!(fs::metadata(&path).expect("attributes").len(), 0);
        let direct =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(&path).expect("opened");
        direct.write_all_at(&[3; 8192], 0).expect("written");
        let mut bytes = [0; 8192];
        direct.read_exact_at(&mut bytes, 0).expect("read");
        assert!(bytes.iter().all(|byte| *byte == 3));
        assert!(mounted.requests("Open") <= 1);
    });
}

#[test]
fn a_write_by_a_user_takes_set_user_id_away_at_once() {
    on_each_transport(|mounted| {
        let path = mounted.path("program");
        fs::write(&path, b"x").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).expect("set");
        let status = std::process::Command::new("setpriv")
            .args(["--reuid", "1000", "--regid", "1000", "--clear-groups", "sh", "-c"])
            .arg(format!("printf y >> {}", path.display()))
            .status();
        match status {
            Ok(status) => assert!(status.success()),
            Err(_) => return eprintln!("SKIPPED: no setpriv"),
        }
        assert_eq!(fs::metadata(&path).expect("attributes").mode() & 0o7777, 0o777);
    });
}

#[test]
fn an_unnamed_file_can_be_given_a_name() {
    on_each_transport(|mounted| {
        let mut file =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_TMPFILE).open(mounted.root()).expect("made");
        file.write_all(b"text").expect("written");
        let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        let flags = rustix::fs::AtFlags::SYMLINK_FOLLOW;
        rustix::fs::linkat(rustix::fs::CWD, link, rustix::fs::CWD, mounted.path("named"), flags).expect("linked");
        drop(file);
        let mut text = String::new();
        File::open(mounted.path("named")).expect("opened").read_to_string(&mut text).expect("read");
        assert_eq!(text, "text");
    });
}

#[test]
fn locks_are_kept() {
    on_each_transport(|mounted| {
        fs::write(mounted.path("file"), b"").expect("written");
        let first = File::open(mounted.path("file")).expect("opened");
        let second = File::open(mounted.path("file")).expect("opened");
        first.lock().expect("locked");
        assert!(matches!(second.try_lock(), Err(fs::TryLockError::WouldBlock)));
        first.unlock().expect("unlocked");
        second.try_lock().expect("locked");
    });
}
