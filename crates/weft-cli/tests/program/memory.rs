//! The daemon's memory stays below the sum of its caches' bounds and 100 MiB, whatever is written.

use crate::place::{Numbers, Place, on_each_engine};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// Changes, metadata and blocks by default, and 100 MiB. In PostgreSQL more was seen, also since
/// rows are sent in parts of 4 MiB; what takes the rest is not known.
fn bound_mib(volume: &str) -> u64 {
    256 + 256 + 64 + 100 + if volume == "v" { 0 } else { 256 }
}

/// Checks what the daemon of `m` has taken at most.
#[track_caller]
fn assert_bounded(place: &Place, volume: &str) {
    let told = fs::read_to_string(format!("/proc/{}/status", place.daemon())).unwrap();
    let line = told.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak = line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10;
    assert!(peak < bound_mib(volume), "it took {peak} MiB, and may take {}", bound_mib(volume));
}

#[test]
fn whatever_is_written_the_daemon_takes_no_more_memory_than_it_may() {
    let space = rustix::fs::statvfs(std::env::temp_dir()).unwrap();
    if space.f_bavail * space.f_frsize < 3 << 30 {
        return eprintln!("SKIPPED whatever_is_written_the_daemon_takes_no_more_memory: needs 3 GiB for files");
    }
    on_each_engine(&[], |place, volume| {
        let (blocks, files) = if volume == "v" { (24_000, 50_000) } else { (8000, 10_000) };
        // The last page of each block: each write makes a block sixteen times its size.
        let sparse = File::create(place.path("m/sparse")).unwrap();
        for block in 0..blocks {
            sparse.write_all_at(&[b'w'; 4096], block * 65_536 + 61_440).unwrap();
        }
        sparse.sync_all().unwrap();
        drop(sparse);
        assert_bounded(place, volume);
        fs::remove_file(place.path("m/sparse")).unwrap();

        // Some lie in their rows, others beside them; all are looked at in no order.
        for len in [100, 4096] {
            let directory = place.path(format!("m/{len}"));
            fs::create_dir(&directory).unwrap();
            let mut names: Vec<_> = (0..files).map(|number| directory.join(number.to_string())).collect();
            names.iter().for_each(|name| fs::write(name, vec![b'x'; len]).unwrap());
            let mut numbers = Numbers(3);
            for at in (1..names.len()).rev() {
                names.swap(at, numbers.below(at as u64 + 1) as usize);
            }
            for name in &names {
                assert_eq!(fs::metadata(name).unwrap().len(), len as u64);
            }
            assert_bounded(place, volume);
        }
    });
}
