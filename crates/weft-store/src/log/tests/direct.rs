//! Appends past the page cache, beside others through it.

use super::*;
use crate::files;
use rustix::fs::OFlags;
use std::os::unix::fs::OpenOptionsExt;
use weft_block::Buffer;

/// Bytes of operations that end at, before and behind the borders of sectors and pages.
const LENGTHS: [usize; 11] = [1, 423, 424, 425, 911, 912, 913, 3839, 3840, 4096, 9000];

/// Both halves, the second of which begins within a page.
const UNEVEN: u64 = 2 * 71 * SECTOR as u64;

/// The file as the disk has it.
fn past_the_cache(path: &Path) -> Vec<u8> {
    let flags = (files::FLAGS | OFlags::DIRECT).bits().cast_signed();
    let file = files::open(files::options().read(true).custom_flags(flags), path).expect("opens");
    let len = usize::try_from(file.metadata().expect("there").len()).expect("small");
    let mut buffer = Buffer::any(len.next_multiple_of(4096).max(64 << 10));
    let mut read = 0;
    while read < len {
        // The end of the file is that of a sector, and thus of a read.
        let now = file.read_at(&mut buffer[read..], read as u64).expect("read");
        assert!(now > 0, "the file ends at {read}");
        read += now;
    }
    buffer[..len].to_vec()
}

/// Appends records of all lengths in `place`, each after one that is still in the page cache, and
/// with the header written now and then. What a mount finds is read through the cache, where all
/// pages are from the time before.
fn append_all(place: &mut Place) {
    let mut op = 0;
    for half in 0..2 {
        for len in LENGTHS {
            place.log.append_unsynced(OpNo(op + 1), OpNo(op + 1), &vec![1; len % 300].into()).expect("appended");
            assert_eq!(found(&place.path(), &first()), Ok((1..=op + 1).collect()), "{len} bytes, half {half}");
            op += 2;
            if op % 3 == 0 {
                place.log.name(CommitNo(2)).expect("named");
            }
            place.append(op, len);
            assert_eq!(found(&place.path(), &first()), Ok((1..=op).collect()), "{len} bytes, half {half}");
        }
        place.sync();
        place.log.switch();
    }
}

#[test]
fn readers_find_in_the_page_cache_what_was_appended_past_it() {
    let mut place = Place::of(tempfile::tempdir(), UNEVEN);
    if !place.log.is_direct() {
        return eprintln!("SKIPPED readers_find_in_the_page_cache_...: no direct writes of sectors here");
    }
    append_all(&mut place);
    assert!(place.log.is_direct(), "the file refused a length or a place");
    assert!(past_the_cache(&place.path()) == place.bytes(), "a page in the cache is stale");
}

#[test]
fn a_file_that_takes_no_direct_writes_is_appended_to_all_the_same() {
    let mut place = Place::of(tempfile::tempdir(), UNEVEN);
    place.log.write_through_the_cache();
    append_all(&mut place);
    assert!(!place.log.is_direct());
}

#[test]
fn files_in_memory_are_appended_to_through_the_page_cache() {
    let memory = Path::new("/dev/shm");
    if !memory.is_dir() {
        return eprintln!("SKIPPED files_in_memory_are_...: no /dev/shm");
    }
    append_all(&mut Place::of(tempfile::tempdir_in(memory), UNEVEN));
}
