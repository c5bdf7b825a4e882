//! Findings and repairs of a check.

use crate::contract::{HOMES, new_volume, options};
use crate::sample::{self, CLONE, DIRECTORY, LARGE, SMALL, SUBDIRECTORY};
use std::path::{Path, PathBuf};
use weft_store::sqlite::{self, check, open};
use weft_store::{
    BlockHome, BlockStore, Cookie, Ino, Name, OpenOptions, ReadMode, RowStore, Timestamp, VolumeOptions, postgres,
};
use weft_store::{CheckOptions, Finding, Outcome, Repair};
use weft_testkit::Cluster;

/// A volume with the sample in it.
pub fn sample_volume(directory: &tempfile::TempDir, home: BlockHome) -> PathBuf {
    let path = new_volume(directory, home);
    sample::fill(&*open(&path).expect("opened").store);
    path
}

/// The database of a volume.
pub fn database(path: &Path) -> PathBuf {
    if path.is_dir() { path.join("meta.sqlite") } else { path.into() }
}

/// Checks all of a volume.
pub fn look(path: &Path, repair: Repair) -> Vec<Finding> {
    check(path, CheckOptions { repair, read_data: true }, &mut |_| {}).expect("checked")
}

fn damage(findings: &[Finding]) -> Vec<String> {
    findings.iter().filter(|finding| finding.outcome != Outcome::Note).map(ToString::to_string).collect()
}

fn edit(path: &Path, statements: &str) {
    let connection = rusqlite::Connection::open(database(path)).expect("opened");
    connection.execute_batch(statements).expect("edited");
    drop(connection);
    // As if a Weft with a mistake had written it: what others write is damage by itself
    // (tests/store/sums.rs).
    sqlite::seal(path).expect("sealed");
}

/// Breaks the sample by `statements`, and checks that it is found as `expected`, that looking alone
/// changes nothing, and that a repair leaves nothing more to repair.
#[track_caller]
fn breaks(statements: &str, expected: &[&str]) {
    breaks_in_files(statements, expected);
    for own_table_from in [None, Some(0)] {
        let cluster = Cluster::shared();
        let address = cluster.address();
        let options = VolumeOptions { own_table_from, ..options(BlockHome::Database) };
        postgres::create(&address, &options, (0, 0), Timestamp(0)).expect("made");
        let open = || postgres::open(&address, OpenOptions::default()).expect("opens");
        sample::fill(&*open());
        let schema = address.schema().to_owned();
        let statements = statements.replace("x'", "'\\x");
        cluster.run(&format!("SET search_path TO {schema}; {statements}"));
        postgres::seal(&address).expect("sealed");
        let look = |repair| postgres::check(&address, CheckOptions { repair, read_data: true }, &mut |_| {});
        are_repaired(|repair| look(repair).expect("checked"), expected);
        crate::compare::state(&*open()).expect("readable");
    }
}

/// The same where only a volume in files can be broken so.
#[track_caller]
fn breaks_in_files(statements: &str, expected: &[&str]) {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = sample_volume(&directory, home);
        edit(&path, statements);
        are_repaired(|repair| look(&path, repair), expected);
        let store = open(&path).expect("opens").store;
        crate::compare::state(&*store).expect("readable");
    }
}

#[track_caller]
fn are_repaired(look: impl Fn(Repair) -> Vec<Finding>, expected: &[&str]) {
    assert_eq!(damage(&look(Repair::No)), expected);
    assert_eq!(damage(&look(Repair::No)), expected, "looking changes nothing");
    let repaired: Vec<String> = expected.iter().map(|what| format!("{what} (repaired)")).collect();
    assert_eq!(damage(&look(Repair::Yes)), repaired);
    assert_eq!(damage(&look(Repair::No)), Vec::<String>::new(), "all is repaired");
}

#[test]
fn a_volume_in_order_has_no_findings_but_its_orphan() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = sample_volume(&directory, home);
        let findings = look(&path, Repair::No);
        assert_eq!(damage(&findings), Vec::<String>::new());
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].path.as_deref(), Some(&b"#26"[..]));
    }
}

#[test]
fn a_file_as_long_as_any_may_be_is_in_order() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = new_volume(&directory, home);
        sample::fill_longest(&*open(&path).expect("opened").store);
        assert_eq!(damage(&look(&path, Repair::No)), Vec::<String>::new());
    }
}

#[test]
fn wrong_counts_are_set_right() {
    breaks(
        "UPDATE volume SET inodes_used = 1, next_block = 1",
        &["the volume counts 1 inodes, it has 8", "the next block would be 1, but 4 is taken"],
    );
    breaks(
        &format!("UPDATE fileatt SET nlink = 7 WHERE ino = {SMALL}"),
        &["/second name: it has 2 names, its link count is 7"],
    );
    breaks(
        &format!("UPDATE fileatt SET nlink = 2, size = 9 WHERE ino = {DIRECTORY}"),
        &["/dir: its link count is 2 and should be 3", "/dir: it has 3 entries and says 9"],
    );
    breaks("UPDATE blocks SET refs = 7 WHERE id = 2", &["block 2 is named 2 times, its row says 7"]);
    breaks("UPDATE volume SET next_id = 3", &["the next id would be 3, but 36 is taken"]);
}

#[test]
fn counters_that_no_volume_comes_to_are_told() {
    for (column, what, most) in [
        ("next_id", "id", 1u64 << 47),
        ("next_block", "block", 1 << 62),
        ("number", "commit", 1 << 62),
        ("op", "operation", 1 << 62),
    ] {
        let told = |number: u64| {
            let directory = tempfile::tempdir().expect("a directory");
            let path = new_volume(&directory, BlockHome::Database);
            edit(&path, &format!("UPDATE volume SET {column} = {number}"));
            let says = format!("the next {what} is {number}, and no volume comes that far");
            damage(&look(&path, Repair::No)).iter().any(|found| found.starts_with(&says))
        };
        assert!(!told(most));
        assert!(told(most + 1), "{column}");
    }
}

#[test]
fn what_verifies_parts_of_a_block_is_taken_away_if_it_is_wrong() {
    let says = |id| format!("block {id}: what verifies its parts is not of its value");
    breaks_in_files("UPDATE blocks SET parts = zeroblob(128) WHERE id = 2", &[&says(2)]);
    breaks_in_files("UPDATE blocks SET parts = substr(parts, 1, 96) WHERE id = 1", &[&says(1)]);
    breaks_in_files("UPDATE blocks SET parts = (SELECT parts FROM blocks WHERE id = 1) WHERE id = 3", &[&says(3)]);
    breaks_in_files("UPDATE blocks SET parts = 'text' WHERE id = 1", &[&says(1)]);
}

#[test]
fn what_no_name_leads_to_moves_to_lost_and_found() {
    breaks(
        &format!(
            "DELETE FROM naming WHERE ino = {SUBDIRECTORY}; UPDATE fileatt SET nlink = 2, size = 2 WHERE ino = 20"
        ),
        &["#21: no name leads to inode 21; its place is /lost+found/#21"],
    );
    // Nor is a file of that name in the way.
    breaks(
        &format!(
            "UPDATE naming SET name = x'6c6f73742b666f756e64' WHERE name = x'7365636f6e64206e616d65'; \
             DELETE FROM naming WHERE ino IN ({SUBDIRECTORY}, {LARGE}); \
             UPDATE fileatt SET nlink = 2, size = 1 WHERE ino = 20"
        ),
        &[
            "#21: no name leads to inode 21; its place is /lost+found.1/#21",
            &format!("#{LARGE}: no name leads to inode {LARGE}; its place is /lost+found.1/#{LARGE}"),
        ],
    );
}

#[test]
fn the_content_of_what_was_lost_is_there_after_a_repair() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = sample_volume(&directory, home);
        edit(&path, &format!("DELETE FROM fileatt WHERE ino = {LARGE}; DELETE FROM extents WHERE ino = {CLONE}"));
        edit(&path, &format!("DELETE FROM extents WHERE ino = {LARGE} AND start = 65536"));
        assert!(look(&path, Repair::Yes).iter().all(|finding| finding.outcome != Outcome::Repaired), "rows are gone");
        let findings = damage(&look(&path, Repair::Discard));
        assert!(findings.iter().any(|f| f.contains("1 blocks belong to no file")), "{findings:?}");
        assert_eq!(damage(&look(&path, Repair::No)), Vec::<String>::new());
        let store = open(&path).expect("opens").store;
        let home = store.name(Ino::ROOT, &Name::new(b"lost+found").expect("valid")).expect("readable").expect("made");
        let mut found = store.names(home.ino, Cookie(0), 10).expect("readable");
        assert_eq!(found.len(), 1, "the other file keeps its name");
        found.extend(store.name(Ino(DIRECTORY), &Name::new(b"large").expect("valid")).expect("readable"));
        assert_eq!(found.len(), 2);
        for row in found {
            for (_, block) in store.extents(row.ino, 0..u64::MAX).expect("readable") {
                store.read_block(&block, ReadMode::Blocking).expect("whole");
            }
        }
    }
}

#[test]
fn a_cycle_of_directories_is_cut() {
    breaks(
        &format!(
            "UPDATE naming SET parent = {SUBDIRECTORY} WHERE ino = {DIRECTORY}; \
             UPDATE fileatt SET parent = {SUBDIRECTORY} WHERE ino = {DIRECTORY}; \
             UPDATE fileatt SET nlink = 2, size = 2 WHERE ino = 1"
        ),
        &["#20: directory 20 lies in itself; its place is /lost+found/#20"],
    );
}

#[test]
fn a_directory_that_also_has_a_name_in_itself_keeps_the_other() {
    breaks(
        &format!(
            "INSERT INTO naming (parent, name, ino, kind, cookie, since) VALUES ({SUBDIRECTORY}, x'61', {DIRECTORY}, 16384, 60, 1); \
             UPDATE fileatt SET parent = {SUBDIRECTORY} WHERE ino = {DIRECTORY}"
        ),
        &[
            "/dir/\u{fffd} sub/a: the directory has another name already",
            "/dir: it says its directory is inode 21, which is 1",
        ],
    );
}

#[test]
fn entries_of_the_wrong_kind_or_place_are_put_right() {
    breaks(
        &format!("UPDATE naming SET kind = 4096 WHERE ino = {LARGE}"),
        &["/dir/large: the entry says kind 10000, the inode 100000"],
    );
    breaks(
        &format!(
            "INSERT INTO naming (parent, name, ino, kind, cookie, since) VALUES (1, x'61', {SUBDIRECTORY}, 16384, 60, 1)"
        ),
        &["/a: the directory has another name already"],
    );
    breaks_in_files(
        &format!("UPDATE naming SET cookie = 30 WHERE ino = {SMALL} AND parent = 1"),
        &["/second name: position 30 in the directory is taken twice or reserved"],
    );
    breaks(
        &format!("UPDATE fileatt SET parent = 1 WHERE ino = {SUBDIRECTORY}"),
        &["/dir/\u{fffd} sub: it says its directory is inode 1, which is 20"],
    );
}

#[test]
fn digests_that_are_not_what_they_should_be_are_made_anew() {
    breaks(
        &format!("UPDATE fileatt SET digest = x'{}' WHERE ino = {LARGE}", "ab".repeat(32)),
        &[
            "/dir/large: its digest is not that of its content",
            "/dir: the hash of an entry is not that of what it names",
        ],
    );
    breaks(
        &format!("UPDATE fileatt SET digest = x'{}' WHERE ino = {DIRECTORY}", "cd".repeat(32)),
        &["/: the hash of an entry is not that of what it names", "/dir: its digest is not that of its entries"],
    );
}

/// A digest is evidence: content whose rows are whole and that gives another one is damage, which a
/// repair of anything else leaves, and only the user's word gives up.
#[test]
fn content_that_contradicts_its_digest_is_not_made_to_look_right() {
    let swapped = format!("UPDATE extents SET block = 3 - block WHERE ino = {LARGE} AND start < 131072");
    for (home, beside) in HOMES.into_iter().zip(["UPDATE volume SET inodes_used = 1", ""]) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = sample_volume(&directory, home);
        edit(&path, &format!("{swapped}; {beside}"));
        let told = |repair| damage(&look(&path, repair));
        let words = "/dir/large: its digest is not that of its content, whose rows are whole";
        let is_told = |found: &[String], end: &str| {
            let mut told = found.iter().filter(|what| what.starts_with(words) && what.contains("--discard"));
            told.any(|what| what.ends_with(end))
        };
        for _ in 0..2 {
            let found = told(Repair::Yes);
            assert!(is_told(&found, "as it is"), "{found:?}");
        }
        assert_eq!(told(Repair::No).len(), 1, "all else is repaired");
        for other in HOMES {
            let new = directory.path().join(format!("new-{other:?}"));
            let error = sqlite::convert(&path, &new, other, &mut |_| {}).expect_err("refused");
            assert!(error.kind() == weft_store::ErrorKind::Corrupt && error.to_string().contains(words), "{error}");
            assert!(!new.exists());
        }
        let store = open(&path).expect("opens").store;
        let contradicts = |ino| {
            let row = store.inodes(Ino(ino), 1).expect("readable").remove(0);
            weft_store::contradicts_digest(&*store, &row).expect("told")
        };
        assert_eq!([LARGE, CLONE, SMALL].map(contradicts), [true, false, false]);
        drop(store);
        let found = told(Repair::Discard);
        assert!(is_told(&found, "(repaired)"), "{found:?}");
        assert_eq!(told(Repair::No), Vec::<String>::new());
    }
}

#[test]
fn content_beyond_its_size_shows_again_after_a_repair() {
    breaks(
        &format!("UPDATE fileatt SET size = 10 WHERE ino = {CLONE}"),
        &["/dir/clone: its blocks reach byte 65536, its size is 10"],
    );
    breaks(
        &format!("UPDATE fileatt SET size = 2 WHERE ino = {SMALL}"),
        &["/second name: its row holds 5 bytes of content, its size is 2"],
    );
    breaks(
        &format!("UPDATE fileatt SET xattrs = 0 WHERE ino = {LARGE}"),
        &["/dir/large: it has 1 extended attributes, and its row says 0"],
    );
}

#[test]
fn damaged_bytes_are_told_by_path_and_range_and_left_alone() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = sample_volume(&directory, home);
        match home {
            BlockHome::Database => edit(&path, "UPDATE block_bytes SET bytes = zeroblob(65536) WHERE id = 2"),
            BlockHome::Segments => {
                let segment = path.join("segments/00000001.seg");
                let mut bytes = std::fs::read(&segment).expect("read");
                bytes[70_000] ^= 1;
                std::fs::write(&segment, bytes).expect("written");
            }
        }
        let expected = [
            "/dir/large: bytes 65536 to 131071 are damaged: block 2 has other bytes than were written",
            "/dir/clone: bytes 0 to 65535 are damaged: block 2 has other bytes than were written",
        ];
        assert_eq!(damage(&look(&path, Repair::Yes)), expected);
        let fast = CheckOptions { repair: Repair::No, read_data: false };
        assert_eq!(damage(&check(&path, fast, &mut |_| {}).expect("checked")), Vec::<String>::new());
    }
}

#[test]
fn a_missing_segment_is_told_by_the_files_in_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = sample_volume(&directory, BlockHome::Segments);
    std::fs::remove_file(path.join("segments/00000001.seg")).expect("removed");
    let findings = damage(&look(&path, Repair::No));
    assert_eq!(findings.len(), 5, "{findings:?}");
    assert!(findings[0].ends_with("segments/00000001.seg is missing"), "{findings:?}");
    let file = "/dir/large: bytes 0 to 131071 are damaged: block 1 lies in a segment file that is missing (";
    assert!(findings[1].starts_with(file), "{findings:?}");
}

#[test]
fn a_missing_directory_of_segments_is_damage_if_rows_name_any() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = sample_volume(&directory, BlockHome::Segments);
    std::fs::rename(path.join("segments"), directory.path().join("elsewhere")).expect("moved");
    let findings = damage(&look(&path, Repair::No));
    assert_eq!(findings.len(), 5, "{findings:?}");
    let told = |words: &str| findings.iter().any(|finding| finding.contains(words));
    assert!(told("/segments is missing, and with it 1 segment that rows name: put it back"), "{findings:?}");
    std::fs::rename(directory.path().join("elsewhere"), path.join("segments")).expect("put back");
    assert_eq!(damage(&look(&path, Repair::No)), Vec::<String>::new());
    let (bare, segments) = (directory.path().join("bare"), directory.path().join("bare/segments"));
    sqlite::create(&bare, &options(BlockHome::Segments), (0, 0), Timestamp(0)).expect("made");
    std::fs::remove_dir(segments).expect("removed");
    assert_eq!(damage(&look(&bare, Repair::No)), Vec::<String>::new(), "nothing was in it");
    let freed = "INSERT INTO segments (id, live, length) VALUES (1, 0, 4096)";
    edit(&bare, freed);
    assert_eq!(damage(&look(&bare, Repair::No)).len(), 1, "rows name one that had blocks");
}

#[test]
fn a_mounted_volume_is_not_checked() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = sample_volume(&directory, BlockHome::Segments);
    let _held = open(&path).expect("opened");
    let options = CheckOptions { repair: Repair::No, read_data: false };
    assert_eq!(check(&path, options, &mut |_| {}).expect_err("held").kind(), weft_store::ErrorKind::Locked);
}

#[test]
fn extents_that_no_file_can_have_are_told() {
    let cases = [
        ("UPDATE extents SET length = 12288", "an extent of 12288 bytes at byte 0 is none that a file can have"),
        ("UPDATE extents SET start = 4096", "an extent of 65536 bytes at byte 4096 is none that a file can have"),
        ("UPDATE extents SET length = 4096", "1 of its blocks are longer than the extents that name them"),
        (
            "INSERT INTO extents SELECT ino, 61440, 4096, block, since, -1 FROM extents",
            "its extent at byte 0 covers that at byte 61440",
        ),
    ];
    for (damage, told) in cases {
        let start = if damage.starts_with("INSERT") { 5 << 16 } else { 0 };
        let directory = tempfile::tempdir().expect("a directory");
        let path = sample_volume(&directory, BlockHome::Database);
        edit(&path, &format!("{damage} WHERE ino = {LARGE} AND start = {start}"));
        weft_store::sqlite::seal(&path).expect("sealed");
        for repair in [Repair::No, Repair::Yes] {
            let found = look(&path, repair).iter().map(ToString::to_string).collect::<Vec<_>>();
            assert!(found.contains(&format!("/dir/large: {told}")), "{damage}: {found:?}");
        }
    }
}
