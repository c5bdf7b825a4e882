//! Rows that are gone as a whole: somebody tells, and no repair gives up what is there.

use crate::check::{database, sample_volume};
use crate::contract::{HOMES, new_volume, options};
use crate::convert::other;
use crate::sample::{self, CLONE, DIRECTORY, LARGE, SMALL, SUBDIRECTORY, SYMLINK};
use crate::sums::{Answers, answers, usual};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weft_store::sqlite::{convert, salvage};
use weft_store::*;
use weft_store::{OpenOptions, postgres};
use weft_testkit::Cluster;

/// Gives the values of the first column of a query.
type List<'a> = Box<dyn Fn(&str) -> Vec<String> + 'a>;

/// A volume of either engine, and how to run SQL in it.
struct Volume<'a> {
    location: Location,
    edit: Box<dyn Fn(&str) + 'a>,
    list: List<'a>,
}

impl Volume<'_> {
    fn open(&self) -> Arc<dyn Store> {
        self.location.engine().open(OpenOptions::default()).expect("opened").store
    }

    /// Returns all findings but notes.
    fn check(&self, repair: Repair) -> Vec<Finding> {
        let options = CheckOptions { repair, read_data: false };
        let findings = self.location.engine().check(options, &mut |_| {}).expect("checked");
        findings.into_iter().filter(|finding| finding.outcome != Outcome::Note).collect()
    }

    fn told(&self, repair: Repair) -> Vec<String> {
        self.check(repair).iter().map(ToString::to_string).collect()
    }

    fn scrubbed(&self) -> Vec<String> {
        self.location.engine().scrub(&mut |_| {}).expect("scrubbed").iter().map(ToString::to_string).collect()
    }
}

fn in_files(path: PathBuf) -> Volume<'static> {
    let (location, database) = (Location::Files(path.clone()), database(&path));
    let connect = move || rusqlite::Connection::open(&database).expect("opened");
    let again = connect.clone();
    let edit = move |statements: &str| connect().execute_batch(statements).expect("edited");
    let list = move |query: &str| {
        let connection = again();
        let mut statement = connection.prepare(query).expect("prepared");
        statement.query_map((), |row| row.get(0)).and_then(Iterator::collect).expect("listed")
    };
    Volume { location, edit: Box::new(edit), list: Box::new(list) }
}

fn in_postgresql(cluster: &'static Cluster, own_table_from: Option<u64>) -> Volume<'static> {
    let address = cluster.address();
    let options = VolumeOptions { own_table_from, ..options(BlockHome::Database) };
    postgres::create(&address, &options, (0, 0), Timestamp(0)).expect("made");
    sample::fill(&*postgres::open(&address, OpenOptions::default()).expect("opens"));
    let schema = address.schema().to_owned();
    let run = move |text: &str| {
        let text = text.replace("X'", "'\\x").replace("hex(", "(");
        cluster.run(&format!("SET search_path TO {schema}; {text}"))
    };
    let again = run.clone();
    let edit = move |statements: &str| drop(run(statements));
    let list = move |query: &str| again(query).lines().map(str::to_owned).collect();
    Volume { location: Location::Postgres(Box::new(address)), edit: Box::new(edit), list: Box::new(list) }
}

/// Has `test` look at the sample in each engine, with blocks wherever they may lie.
fn everywhere(test: impl Fn(&Volume<'_>)) {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        test(&in_files(sample_volume(&directory, home)));
    }
    for own_table_from in [None, Some(0)] {
        test(&in_postgresql(Cluster::shared(), own_table_from));
    }
}

fn entry(store: &dyn Store, parent: u64, name: &[u8]) -> Option<u64> {
    store.name(Ino(parent), &Name::new(name).expect("valid")).expect("readable").map(|row| row.ino.0)
}

fn row(store: &dyn Store, ino: u64) -> Option<InodeRow> {
    store.inodes(Ino(ino), 1).expect("readable").pop().filter(|row| row.ino.0 == ino)
}

fn content(store: &dyn Store, ino: u64) -> Vec<(u64, Vec<u8>)> {
    let extents = store.extents(Ino(ino), 0..u64::MAX).expect("readable");
    let read = |block| store.read_block(&block, ReadMode::Blocking).expect("whole").expect("waited for").to_vec();
    extents.into_iter().map(|(span, block)| (span.start, read(block))).collect()
}

const CLEAN: Vec<String> = Vec::new();

/// Says that a finding was put right.
fn repaired(findings: &[&str]) -> Vec<String> {
    findings.iter().map(|finding| format!("{finding} (repaired)")).collect()
}

#[test]
fn a_directory_whose_row_is_gone_is_made_anew_with_its_names() {
    everywhere(|volume| {
        let before = answers(&*volume.open());
        (volume.edit)(&format!("DELETE FROM fileatt WHERE ino IN (1, {DIRECTORY})"));
        let anew = |path, entries| {
            format!(
                "{path}: the directory's row is gone, with owner, permissions and times; its {entries} entries are \
                 there: a repair makes it anew for root alone"
            )
        };
        let told = [anew("/", 3), anew("/dir", 3)];
        assert_eq!(volume.scrubbed(), told);
        assert_eq!(volume.told(Repair::No), told);
        assert_eq!(volume.told(Repair::Yes), repaired(&[&told[0], &told[1]]));
        assert_eq!(volume.told(Repair::No), CLEAN);
        let store = volume.open();
        for ino in [1, DIRECTORY] {
            let row = row(&*store, ino).expect("made anew");
            let kept = (row.kind, row.permissions, row.uid, row.gid, row.parent, row.size, row.nlink);
            assert_eq!(kept, (Kind::Directory, 0o700, 0, 0, Ino(1), 3, 3));
        }
        for (asked, answer) in answers(&*store) {
            if !["inode 1", "inode 20"].contains(&&*asked) {
                assert_eq!(format!("{answer:?}"), format!("{:?}", before[&asked]), "{asked}");
            }
        }
    });
}

#[test]
fn a_directory_of_which_no_row_is_left_takes_its_names_to_lost_and_found() {
    everywhere(|volume| {
        (volume.edit)(&format!(
            "DELETE FROM fileatt WHERE ino = {DIRECTORY}; DELETE FROM naming WHERE ino = {DIRECTORY}"
        ));
        let told = volume.told(Repair::Yes);
        assert!(told.iter().all(|what| what.ends_with("(repaired)")), "{told:?}");
        assert_eq!(volume.told(Repair::No), CLEAN);
        let store = volume.open();
        let home = entry(&*store, 1, b"lost+found").expect("made");
        assert_eq!(entry(&*store, home, b"#20"), Some(DIRECTORY));
        for (name, ino) in [(&b"large"[..], LARGE), (b"clone", CLONE), (b"\xff sub", SUBDIRECTORY)] {
            assert_eq!(entry(&*store, DIRECTORY, name), Some(ino));
        }
    });
}

#[test]
fn a_file_whose_row_is_gone_stays_damage_and_keeps_its_name_if_there_is_content() {
    everywhere(|volume| {
        let before = content(&*volume.open(), LARGE);
        (volume.edit)(&format!("DELETE FROM fileatt WHERE ino IN ({LARGE}, {SMALL}, {SYMLINK})"));
        let told = [
            "/dir/large: the entry names inode 23, whose row is gone, with owner, permissions, times and length; \
             blocks of it are there, and where none is there are zeros, which may have been a hole or may be lost",
            "/dir/\u{fffd} sub/small: the entry names inode 22, whose row is gone with all that it held",
            "/second name: the entry names inode 22, whose row is gone with all that it held",
            "/symlink: the entry names inode 25, whose row is gone with all that it held",
        ];
        for _ in 0..2 {
            // Checks that count inodes report more.
            for said in [volume.scrubbed(), volume.told(Repair::No), volume.told(Repair::Yes)] {
                assert!(told.iter().all(|what| said.iter().any(|said| said == what)), "{said:?}");
            }
            let tried = volume.told(Repair::Yes);
            assert!(tried.iter().all(|what| !what.ends_with("(repaired)")), "{tried:?}");
            let store = volume.open();
            assert_eq!(entry(&*store, SUBDIRECTORY, b"small"), Some(SMALL));
            assert_eq!(entry(&*store, 1, b"second name"), Some(SMALL));
        }
        let given_up = volume.told(Repair::Discard);
        assert!(repaired(&told).iter().all(|what| given_up.contains(what)), "{given_up:?}");
        assert_eq!(volume.told(Repair::No), CLEAN);
        let store = volume.open();
        assert_eq!(entry(&*store, DIRECTORY, b"large"), Some(LARGE));
        assert_eq!(content(&*store, LARGE), before);
        let row = row(&*store, LARGE).expect("made anew");
        assert_eq!((row.permissions, row.uid, row.nlink, row.size), (0o600, 0, 1, 5 * 65536 + 100));
        assert_eq!(store.xattrs(Ino(LARGE)).expect("readable").len(), 1);
        assert!(row.has_xattrs());
        assert_eq!((entry(&*store, 1, b"second name"), entry(&*store, 1, b"lost+found")), (None, None));
    });
}

/// A check reports whether zeros were a hole where a digest says so.
#[test]
fn a_file_made_of_its_blocks_is_compared_with_the_hash_of_its_entry() {
    let about = |volume: &Volume<'_>, repair| {
        let options = CheckOptions { repair, read_data: false };
        let findings = volume.location.engine().check(options, &mut |_| {}).expect("checked");
        let about = |finding: &Finding| finding.what.contains("the hash of its entry");
        findings.iter().filter(|finding| about(finding)).map(ToString::to_string).collect::<Vec<_>>()
    };
    let (all, less) = ("proves that the blocks that are known are", "says that the blocks that are known are not");
    let told = |path, what, outcome| format!("{path}: the hash of its entry {what} all of its content{outcome}");
    everywhere(|volume| {
        (volume.edit)(&format!("DELETE FROM fileatt WHERE ino IN ({LARGE}, {CLONE})"));
        let whole = ["/dir/large", "/dir/clone"].map(|path| told(path, all, " (no damage)"));
        assert_eq!(about(volume, Repair::No), whole);
        (volume.edit)(&format!("DELETE FROM extents WHERE ino = {LARGE} AND start = 65536"));
        let half = |outcome| [told("/dir/large", less, outcome), whole[1].clone()];
        assert_eq!(about(volume, Repair::No), half(""));
        assert_eq!(about(volume, Repair::Yes), half(""));
        assert_eq!(about(volume, Repair::Discard), half(" (repaired)"));
        assert_eq!(volume.told(Repair::No), CLEAN);
    });
}

#[test]
fn a_block_whose_row_is_gone_is_made_anew_if_its_bytes_are_there_and_a_digest_vouches_for_them() {
    let directory = tempfile::tempdir().expect("a directory");
    let volume = in_files(sample_volume(&directory, BlockHome::Database));
    let before = answers(&*volume.open());
    (volume.edit)("DELETE FROM blocks WHERE id = 2");
    let told = [
        "/dir/large: the row of block 2, from byte 65536 on, is gone; its bytes are there",
        "/dir/clone: the row of block 2, from byte 0 on, is gone; its bytes are there",
    ];
    assert_eq!(volume.scrubbed(), told);
    assert_eq!(volume.told(Repair::No), told);
    assert_eq!(volume.told(Repair::Yes), repaired(&told));
    assert_eq!(volume.told(Repair::No), CLEAN);
    same(&before, &answers(&*volume.open()), "block 2");

    (volume.edit)("DELETE FROM blocks WHERE id = 2; UPDATE block_bytes SET bytes = zeroblob(65536) WHERE id = 2");
    let tried = volume.told(Repair::Yes);
    assert!(tried.iter().any(|what| what.contains("/dir/large: no digest vouches for the bytes")), "{tried:?}");
    assert!(tried.iter().all(|what| !what.ends_with("(repaired)")), "{tried:?}");
}

/// An entry without any other row is no gap in a listing.
#[test]
fn a_listing_for_digests_fails_at_an_entry_whose_inode_has_no_row() {
    everywhere(|volume| {
        let listed = |after| volume.open().listed(Ino(DIRECTORY), Cookie(after), 10);
        let cookies = listed(0).expect("readable").iter().map(|row| row.name.cookie.0).collect::<Vec<_>>();
        assert_eq!(cookies.len(), 3);
        (volume.edit)(&format!("DELETE FROM fileatt WHERE ino = {LARGE}"));
        let error = listed(0).expect_err("nobody knows it");
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains("the row of inode 23, which a name leads to, is gone"), "{error}");
        assert_eq!(listed(cookies[1]).expect("what comes after").len(), 1);
    });
}

/// Words of ours, and none of the database's.
#[test]
fn a_block_without_a_row_is_an_error_that_says_so() {
    everywhere(|volume| {
        (volume.edit)("DELETE FROM blocks WHERE id = 2");
        let error = volume.open().extents(Ino(LARGE), 0..u64::MAX).expect_err("nobody knows it");
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().ends_with("block 2, of inode 23, has no row; 'weft check' tells more"), "{error}");
    });
}

fn same(before: &Answers, after: &Answers, what: &str) {
    for (asked, answer) in after {
        assert_eq!(format!("{answer:?}"), format!("{:?}", before[asked]), "{what}: {asked}");
    }
}

#[test]
fn commits_that_are_gone_between_others_are_told() {
    everywhere(|volume| {
        (volume.edit)("DELETE FROM commits WHERE number = 2");
        let told = ["the row of commit 2 is gone"];
        assert_eq!(
            (volume.scrubbed(), volume.told(Repair::No)),
            (told.map(str::to_owned).to_vec(), told.map(str::to_owned).to_vec())
        );
        assert_eq!(volume.told(Repair::Yes), told);
        assert_eq!(volume.told(Repair::Discard), repaired(&told));
        assert_eq!(volume.told(Repair::No), CLEAN);
    });
}

/// Tables, what tells their rows apart, and what tells which inode they are of.
const TABLES: &[(&str, &[&str], Option<&str>)] = &[
    ("commits", &["number"], None),
    ("fileatt", &["ino"], None),
    ("naming", &["parent", "name"], Some("parent")),
    ("naming", &["parent", "name"], Some("ino")),
    ("extents", &["ino", "start"], Some("ino")),
    ("blocks", &["id"], None),
    ("block_bytes", &["id"], None),
    ("segments", &["id"], None),
    ("branches", &["parent", "prefix"], Some("parent")),
    ("nodes", &["ino", "level", "idx"], Some("ino")),
];

/// Statements that each delete a row, or all rows of an inode in a table, of the volume at `path`.
fn deletions(path: &Path) -> Vec<(&'static str, String)> {
    let volume = in_files(path.to_owned());
    let mut deletions = BTreeSet::new();
    for (table, key, inode) in TABLES {
        let keys: &[&[&str]] = &[key, &inode.map(|inode| [inode]).unwrap_or(["ino"])];
        for key in &keys[..1 + usize::from(inode.is_some())] {
            let which = key.iter().map(|key| format!("'{key} = ' || quote({key})")).collect::<Vec<_>>();
            let rows = format!("SELECT DISTINCT {} FROM {table}", which.join(" || ' AND ' || "));
            let deletion = |which| (*table, format!("DELETE FROM {table} WHERE {which}"));
            deletions.extend((volume.list)(&rows).into_iter().map(deletion));
        }
    }
    deletions.into_iter().collect()
}

/// Names, content and what says where it lies, as far as they are there: a line each.
fn kept(volume: &Volume<'_>) -> BTreeSet<String> {
    let queries = [
        "SELECT 'name ' || parent || ' ' || hex(name) || ' ' || ino FROM naming",
        "SELECT 'block ' || ino || ' ' || start || ' ' || block FROM extents",
        "SELECT 'inline ' || ino || ' ' || hex(inline) FROM fileatt WHERE inline IS NOT NULL",
        "SELECT 'attribute ' || ino || ' ' || hex(name) || ' ' || hex(value) FROM xattr",
        "SELECT 'value ' || id || ' ' || hex(value) FROM blocks",
    ];
    queries.into_iter().flat_map(&volume.list).collect()
}

/// Tests that a volume in which `what` was done reports it, or that all is as `before`; and that a
/// repair keeps what is there. Giving up the rest then leaves a volume in order.
fn is_told_and_kept(volume: &Volume<'_>, before: &Answers, what: &str) {
    let there = kept(volume);
    let told = volume.told(Repair::No);
    let scrubbed = volume.scrubbed();
    assert_eq!(told.is_empty(), scrubbed.is_empty(), "{what}: check {told:?}, scrub {scrubbed:?}");
    if told.is_empty() {
        same(before, &answers(&*volume.open()), what);
    }
    let tried = volume.check(Repair::Yes);
    assert_eq!(tried.is_empty(), told.is_empty(), "{what}: {tried:?}, before {told:?}");
    let lacking = there.difference(&kept(volume)).cloned().collect::<Vec<_>>();
    assert_eq!(lacking, CLEAN, "{what}: given up by {tried:?}");
    if tried.iter().all(|finding| finding.outcome == Outcome::Repaired) {
        assert_eq!(volume.told(Repair::No), CLEAN, "{what}: repaired {tried:?}");
    } else {
        assert_eq!(volume.told(Repair::No), told, "{what}: some of it changed");
    }
    let given_up = volume.told(Repair::Discard);
    let left = volume.told(Repair::No);
    // Damaged bytes stay so after any repair.
    let is_left = |told: &String| !told.contains("has no bytes");
    assert_eq!(left.into_iter().filter(is_left).collect::<Vec<_>>(), CLEAN, "{what}: gave up {given_up:?}");
}

/// The same of what is copied of the volume at `path`.
fn copies_are_told_or_whole(path: &Path, before: &Answers, what: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let (converted, salvaged) = (directory.path().join("converted"), directory.path().join("salvaged"));
    let open = |path: &Path| Location::Files(path.into()).engine().open(OpenOptions::default()).expect("opened").store;
    let home = sqlite::header(path).expect("readable").options.home;
    match convert(path, &converted, other(home), &mut |_| {}) {
        Ok(()) => same(before, &answers(&*open(&converted)), what),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error}"),
    }
    let told = salvage(path, &salvaged, &mut |_| {}).expect("salvaged");
    let after = answers(&*open(&salvaged));
    if told.missing.is_empty() {
        same(before, &after, what);
    }
    let lost = |(asked, answer): (&String, &Result<String>)| {
        let is_name = asked.starts_with("names in") || asked.starts_with("name ");
        (is_name && format!("{answer:?}") != format!("{:?}", before[asked])).then(|| asked.clone())
    };
    let names = after.iter().filter_map(lost).collect::<Vec<_>>();
    assert!(names.is_empty() || !told.missing.is_empty(), "{what}: {names:?}");
}

#[test]
fn whatever_row_is_gone_from_files_somebody_tells_and_a_repair_keeps_the_rest() {
    for (first, home) in HOMES.into_iter().enumerate() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = sample_volume(&directory, home);
        let volume = in_files(path.clone());
        let before = answers(&*volume.open());
        let pristine = std::fs::read(database(&path)).expect("read");
        for (_, deletion) in deletions(&path).into_iter().skip(first).step_by(usual(2)) {
            std::fs::write(database(&path), &pristine).expect("restored");
            (volume.edit)(&deletion);
            copies_are_told_or_whole(&path, &before, &deletion);
            is_told_and_kept(&volume, &before, &deletion);
        }
    }
}

#[test]
fn whatever_row_of_large_trees_of_digests_is_gone_somebody_tells() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = new_volume(&directory, BlockHome::Segments);
    sample::fill_large(&*sqlite::open(&path).expect("opened").store);
    let volume = in_files(path.clone());
    let pristine = std::fs::read(database(&path)).expect("read");
    let of = deletions(&path).into_iter().filter(|(table, _)| ["branches", "nodes"].contains(table));
    let mut count = 0;
    for (_, deletion) in of.step_by(2) {
        count += 1;
        std::fs::write(database(&path), &pristine).expect("restored");
        (volume.edit)(&deletion);
        assert!(!volume.scrubbed().is_empty(), "{deletion}");
        assert!(!volume.told(Repair::Yes).is_empty(), "{deletion}");
        assert_eq!(volume.told(Repair::No), CLEAN, "{deletion}");
    }
    assert!(count > 3, "{count}");
}

#[test]
fn whatever_row_is_gone_from_postgresql_somebody_tells_and_a_repair_keeps_the_rest() {
    let directory = tempfile::tempdir().expect("a directory");
    // The same sample has the same rows.
    let deletions = deletions(&sample_volume(&directory, BlockHome::Segments));
    for (own_table_from, first) in [(None, 0), (Some(0), 1)] {
        let volume = in_postgresql(Cluster::shared(), own_table_from);
        let before = answers(&*volume.open());
        let tables = (volume.list)(
            "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() AND tablename <> 'lease'",
        );
        let each = |text: fn(&str) -> String| tables.iter().map(|table| text(table)).collect::<String>();
        (volume.edit)(&each(|table| format!("CREATE TABLE saved_{table} AS SELECT * FROM {table};")));
        let there = deletions.iter().filter(|(table, _)| tables.iter().any(|name| name == table));
        for (_, deletion) in there.skip(first).step_by(usual(3)) {
            (volume.edit)(deletion);
            is_told_and_kept(&volume, &before, deletion);
            (volume.edit)(&each(|table| {
                format!(
                    "CREATE TABLE IF NOT EXISTS {table} (LIKE saved_{table}); DELETE FROM {table}; \
                     INSERT INTO {table} SELECT * FROM saved_{table};"
                )
            }));
            same(&before, &answers(&*volume.open()), "restored");
        }
    }
}
