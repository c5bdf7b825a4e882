//! Files read from front to back on volumes in files: the same bytes as without reading ahead,
//! damage only where it is.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use weft_store::sqlite;
use weft_store::{BlockHome, RowStore, Timestamp, VolumeOptions};
use weft_vfs::{Caller, ErrorKind, Ino, Kind, MakeNode, ManualClock, Options, Vfs};

const FILE: MakeNode = MakeNode { kind: Kind::File, permissions: 0o644, umask: 0, rdev: 0 };

/// Bytes in a read, and in the file: its last block is a short one.
const STEP: usize = 128 << 10;
const SIZE: usize = (20 << 20) + 777;

fn byte(at: usize) -> u8 {
    (at / 4096 * 31 + at % 251) as u8
}

fn content() -> Vec<u8> {
    (0..SIZE).map(byte).collect()
}

fn open(path: &Path) -> Arc<Vfs> {
    let store = sqlite::open(path).expect("opened").store;
    Vfs::open(store, None, Options::default(), Arc::new(ManualClock::default())).expect("opens")
}

/// A volume with `content` in a file of the root.
fn volume(directory: &tempfile::TempDir, home: BlockHome, content: &[u8]) -> (std::path::PathBuf, Ino) {
    let path = directory.path().join("volume");
    let options = VolumeOptions { home, ..VolumeOptions::default() };
    sqlite::create(&path, &options, (0, 0), Timestamp(0)).expect("created");
    let vfs = open(&path);
    let ino = vfs.make(Caller::ROOT, Ino::ROOT, b"file", FILE).expect("made").ino;
    vfs.write(ino, 0, content, false).expect("written");
    vfs.close().expect("closed");
    (path, ino)
}

#[test]
fn reading_from_front_to_back_gives_what_was_written_and_reads_ahead() {
    for home in [BlockHome::Segments, BlockHome::Database] {
        let directory = tempfile::tempdir().expect("a directory");
        let content = content();
        let (path, ino) = volume(&directory, home, &content);
        let vfs = open(&path);
        for offset in (0..SIZE).step_by(STEP) {
            let read = vfs.read(ino, offset as u64, STEP).expect("read").to_vec();
            assert!(read == content[offset..SIZE.min(offset + STEP)], "at {offset} in {home:?}");
        }
        assert!(vfs.stats().blocks_read_ahead > 100, "{}", vfs.stats().blocks_read_ahead);
        vfs.close().expect("closed");
    }
}

#[test]
fn damage_in_the_middle_is_an_error_there_and_nowhere_else() {
    let directory = tempfile::tempdir().expect("a directory");
    let content = content();
    let (path, ino) = volume(&directory, BlockHome::Segments, &content);
    let store = sqlite::open(&path).expect("opened").store;
    let block = store.extents(ino, 150 << 16..151 << 16).expect("readable")[0].1;
    drop(store);
    let weft_store::Place::Segment { offset, .. } = block.place else { panic!("it lies in a segment") };
    let segment = OpenOptions::new().write(true).open(path.join("segments/00000001.seg")).expect("there");
    segment.write_all_at(&[byte(150 * 65536 + 9) ^ 1], offset + 9).expect("damaged");
    let vfs = open(&path);
    for index in 0..SIZE.div_ceil(65536) {
        let read = vfs.read(ino, (index * 65536) as u64, 65536);
        match read {
            Ok(read) => {
                assert!(read.to_vec() == content[index * 65536..SIZE.min((index + 1) * 65536)], "block {index}")
            }
            Err(error) => assert_eq!((index, error.kind()), (150, ErrorKind::Corrupt)),
        }
        assert!(index != 150 || vfs.read(ino, (index * 65536) as u64, 65536).is_err());
    }
    vfs.close().expect("closed");
}

#[test]
fn what_is_written_meanwhile_is_read_and_not_what_was_there() {
    let directory = tempfile::tempdir().expect("a directory");
    let (path, ino) = volume(&directory, BlockHome::Segments, &vec![1; SIZE]);
    let vfs = open(&path);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 2..6u8 {
                for offset in (0..SIZE).step_by(STEP) {
                    vfs.write(ino, offset as u64, &vec![round; STEP.min(SIZE - offset)], false).expect("written");
                }
                vfs.commit().expect("committed");
            }
        });
        let mut least = vec![1; SIZE.div_ceil(STEP)];
        for _ in 0..6 {
            for (step, least) in least.iter_mut().enumerate() {
                let read = vfs.read(ino, (step * STEP) as u64, STEP).expect("read").to_vec();
                assert!(read.iter().all(|byte| *byte == read[0]), "a torn read of step {step}");
                assert!(read[0] >= *least, "step {step} went back from {least} to {}", read[0]);
                *least = read[0];
            }
        }
    });
    for offset in (0..SIZE).step_by(STEP) {
        assert!(vfs.read(ino, offset as u64, STEP).expect("read").to_vec().iter().all(|byte| *byte == 5));
    }
    vfs.close().expect("closed");
    drop(vfs);
}
