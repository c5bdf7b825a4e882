//! Links that keep places, read from front to back: what they give is computed before it is asked
//! for.

use crate::{Volume, mount_options, options, volume_options};
use std::sync::Barrier;
use std::thread::{available_parallelism, scope};
use weft_links::LinkDefinition;
use weft_store::ErrorKind as StoreError;
use weft_testkit::Faults;
use weft_vfs::{Caller, ErrorKind, Ino, Options};

/// Bytes of each read.
const READ: usize = 64 << 10;

/// Bytes of the file, not a multiple of that.
const FILE_BYTES: usize = (3 << 20) + 777;

fn volume() -> Volume {
    Volume::mounted(volume_options(), Options { background: true, ..mount_options() }, options())
}

fn content(seed: usize) -> Vec<u8> {
    (0..FILE_BYTES).map(|at| (at * 31 + at / 4096 + seed) as u8).collect()
}

/// A file, and a link in which each byte of it is one more.
fn linked(volume: &Volume, network: &str) -> (Ino, Ino) {
    let file = volume.file("file");
    volume.write(file, 0, &content(0));
    let definition = LinkDefinition::new(vec![b"/file".to_vec()], network);
    let link = volume.links().make_link(Caller::ROOT, Ino::ROOT, b"link", 0o644, &definition).expect("made").ino;
    (file, link)
}

/// The same, incremented, of which nothing is found in memory.
fn cold() -> (Volume, Ino) {
    let mut volume = volume();
    let (_, link) = linked(&volume, "increment");
    volume.vfs.close().expect("closed");
    volume.reopen(Options { background: true, block_cache_bytes: 0, ..mount_options() });
    (volume, link)
}

fn incremented(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|byte| byte.wrapping_add(1)).collect()
}

/// All of a link, read from front to back.
fn read_in_order(volume: &Volume, link: Ino) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let read = volume.read(link, all.len() as u64, READ);
        if read.is_empty() {
            return all;
        }
        all.extend(read);
    }
}

#[test]
fn whoever_reads_from_front_to_back_gets_what_the_network_makes() {
    let volume = volume();
    let (_, link) = linked(&volume, "increment");
    let expected = incremented(&content(0));
    for _ in 0..3 {
        assert!(read_in_order(&volume, link) == expected);
    }
    scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert!(read_in_order(&volume, link) == expected));
        }
    });
    volume.vfs.close().expect("closed");
    assert!(read_in_order(&volume, link) == expected, "without the thread");
}

/// Each gets what it asked for, whichever of them has what both share go on.
#[test]
fn two_who_read_in_step_get_what_they_ask_for() {
    let (volume, link) = cold();
    let expected = incremented(&content(0));
    let step = Barrier::new(2);
    // Where it got something else: whoever failed at once would leave the other one waiting.
    let read_in_step = || {
        let mut wrong = Vec::new();
        for at in (0..30).flat_map(|_| (0..FILE_BYTES).step_by(READ)) {
            step.wait();
            let read = volume.vfs.read(link, at as u64, READ).map(|read| read.to_vec());
            if read.ok().as_deref() != Some(&expected[at..(at + READ).min(FILE_BYTES)]) {
                wrong.push(at);
            }
        }
        wrong
    };
    scope(|scope| {
        let other = scope.spawn(read_in_step);
        assert_eq!(read_in_step(), [0; 0]);
        assert_eq!(other.join().expect("no panic"), [0; 0]);
    });
}

#[test]
fn what_is_computed_ahead_is_given_to_who_asks_for_it() {
    if available_parallelism().map_or(1, usize::from) < 2 {
        eprintln!("SKIPPED: there is no second processor here, so nothing is computed ahead");
        return;
    }
    let volume = volume();
    let (_, link) = linked(&volume, "increment");
    // The thread has to be started, and may come late.
    while volume.vfs.stats().bytes_computed_ahead < READ as u64 {
        read_in_order(&volume, link);
    }
    let before = volume.vfs.stats().bytes_computed_ahead;
    for at in [9, 3, 20, 11, 0] {
        volume.read(link, at * READ as u64, READ);
    }
    assert_eq!(volume.vfs.stats().bytes_computed_ahead, before, "these are in no order");
}

/// Nobody is given what the link gave before a write that has returned.
#[test]
fn a_write_between_two_reads_is_seen_by_the_second() {
    let volume = volume();
    let (file, link) = linked(&volume, "increment | increment");
    for round in 1..20 {
        let mut expected = volume.read(file, 0, FILE_BYTES);
        let mut at = 0;
        while at < FILE_BYTES {
            let read = volume.read(link, at as u64, READ);
            let end = (at + READ).min(FILE_BYTES);
            assert!(read == incremented(&incremented(&expected[at..end])), "round {round}, from {at}");
            at = end;
            // In the part that is read next, which is computed by now.
            if (at / READ).is_multiple_of(3) && at + 100 < FILE_BYTES {
                volume.write(file, at as u64 + 50, &[round; 20]);
                expected[at + 50..at + 70].fill(round);
            }
        }
    }
}

#[test]
fn a_file_that_is_cut_while_its_link_is_read_ends_there() {
    let volume = volume();
    let (file, link) = linked(&volume, "increment");
    for at in 0..10 {
        assert_eq!(volume.read(link, at * READ as u64, READ).len(), READ);
    }
    volume.resize(file, 10 * READ as u64 + 5);
    assert_eq!(volume.read(link, 10 * READ as u64, READ), incremented(&content(0)[10 * READ..10 * READ + 5]));
    assert!(volume.read(link, 11 * READ as u64, READ).is_empty());
    volume.vfs.unlink(Ino::ROOT, b"file").expect("removed");
    assert_eq!(volume.vfs.read(link, 0, READ).map(|_| ()).expect_err("gone").kind(), ErrorKind::NotFound);
}

/// A disk that failed once is asked again by whoever needs the bytes.
#[test]
fn what_could_not_be_computed_ahead_is_no_error_of_its_own() {
    let (volume, link) = cold();
    let expected = incremented(&content(0));
    for after in [0, 40, 300, 500] {
        volume.store.set_faults(Faults { after, count: 1, kind: StoreError::Unavailable, ..Faults::NONE });
        let (mut at, mut errors) = (0, 0);
        while at < FILE_BYTES {
            match volume.vfs.read(link, at as u64, READ) {
                Ok(read) => {
                    assert!(read.to_vec() == expected[at..at + read.len()], "from {at}");
                    at += read.len();
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Io);
                    errors += 1;
                }
            }
        }
        assert!(errors <= 1, "{errors} errors of one failure");
    }
}
