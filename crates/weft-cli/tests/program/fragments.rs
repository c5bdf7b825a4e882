//! Small writes into long files: what they store, and `weft defragment`, `weft info FILE`.

use crate::place::{Place, on_each_engine};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Bytes of a long file.
const LONG: usize = 1 << 20;

/// Makes a long file, and writes to two places of each of its blocks. Returns its content.
fn make_fragments(place: &Place, path: &Path) -> Vec<u8> {
    let mut content: Vec<u8> = (0..LONG).map(|at| u8::try_from(at / 100 % 90 + 33).unwrap()).collect();
    fs::write(path, &content).unwrap();
    place.weft(&["sync", "m"]).well();
    let file = File::options().write(true).open(path).unwrap();
    for (at, len) in (0..LONG).step_by(64 << 10).flat_map(|block| [(block + 5000, 100), (block + (40 << 10), 4096)]) {
        content[at..at + len].fill(b'~');
        file.write_all_at(&content[at..at + len], at as u64).unwrap();
    }
    file.sync_all().unwrap();
    place.weft(&["sync", "m"]).well();
    content
}

fn stored(place: &Place, named: &str) -> (u64, u64, u64) {
    let told = place.weft(&["info", "--json", named]).json();
    let number = |name: &str| told[name].as_u64().unwrap();
    (number("stored_blocks"), number("blocks"), number("bytes"))
}

#[test]
fn fragments_of_files_are_told_and_merged_and_nothing_else_changes() {
    on_each_engine(&[], |place, volume| {
        let path = place.path("m/long");
        let content = make_fragments(place, &path);
        let (before, blocks, bytes) = stored(place, "m/long");
        assert!(before > 3 * blocks && (blocks, bytes) == (16, LONG as u64), "{before} of {blocks}");
        let facts = |path: &Path| fs::metadata(path).map(|of| (of.mtime_nsec(), of.ctime_nsec(), of.blocks())).unwrap();
        let (then, versions) = (facts(&path), place.weft(&["log", "--json", "m/long"]).json());
        let digest = place.weft(&["digest", "m"]).well();
        let rehearsed = place.weft(&["defragment", "--dry-run", "--json", "m"]).json();
        assert_eq!(rehearsed["stored_blocks_needless"].as_u64(), Some(before - blocks));
        assert_eq!(stored(place, "m/long").0, before, "nothing was done yet");
        let done = place.weft(&["defragment", "--json", "m"]).json();
        assert_eq!((done["files"].as_u64(), done["merged"].as_u64()), (Some(1), Some(16)));
        assert_eq!(stored(place, "m/long"), (16, 16, LONG as u64));
        assert_eq!(place.weft(&["log", "--json", "m/long"]).json(), versions, "there is no version of it");
        assert_eq!((facts(&path), place.weft(&["digest", "m"]).well()), (then, digest));
        assert!(fs::read(&path).unwrap() == content);
        place.umount();
        let named = format!("{volume}:long");
        assert!(place.weft(&["cat", &named]).well().as_bytes() == content);
        assert!(place.weft(&["defragment", &named]).well().contains("0 files of 1 file"));
        place.weft(&["check", "--read-data", volume]).well();
        place.weft(&["defragment", &format!("{volume}:none")]).fails_with("there is no none in the volume");
        place.mount_with(volume, &[]);
    });
}

#[test]
fn a_small_write_into_a_long_file_takes_little_space() {
    let Some(place) = Place::to_mount() else { return };
    place.weft(&["init", "v", "--history", "all forever"]).well();
    place.directory("m");
    place.mount_with("v", &[]);
    make_fragments(&place, &place.path("m/long"));
    // Earlier versions keep two grains of each block, and not the blocks.
    let kept = place.weft(&["history", "--json", "m"]).json();
    let bytes = kept["costs"]["bytes"].as_u64().or_else(|| kept["bytes"].as_u64()).unwrap_or_else(|| panic!("{kept}"));
    assert!((16 * 4096..=4 * 16 * 4096).contains(&bytes), "{bytes}");
    place.umount();
}

#[test]
fn a_link_among_files_is_passed_over() {
    let Some(place) = Place::to_mount() else { return };
    place.weft(&["init", "v"]).well();
    place.directory("m");
    place.mount();
    make_fragments(&place, &place.path("m/long"));
    place.weft(&["link", "m/long", "m/a", "-n", "grep ~"]).well();
    place.weft(&["info", "m/a"]).fails_with("a transformation link");
    let done = place.weft(&["defragment", "--json", "m"]).json();
    assert_eq!((done["files"].as_u64(), done["merged"].as_u64()), (Some(1), Some(16)));
    place.umount();
    place.weft(&["defragment", "v:"]).well();
}
