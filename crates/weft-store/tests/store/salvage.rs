//! Broken databases: what can be read of them comes into a new volume, verified, and what cannot is
//! named.

use crate::check::{database, look, sample_volume};
use crate::contract::HOMES;
use crate::sample::{CLONE, LARGE, ORPHAN};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use weft_store::sqlite::{Missing, Salvaged, open, salvage};
use weft_store::*;

const PAGE: usize = 4096;

/// The content of each inode: what lies in its row, and its blocks.
pub type Contents = BTreeMap<u64, (Kind, Option<Vec<u8>>, BTreeMap<u64, Vec<u8>>)>;

/// The content of all inodes. Nothing stands for a block that is damaged.
pub fn contents(store: &dyn Store) -> Contents {
    let inodes = store.inodes(Ino(0), 1000).expect("readable");
    let content = |row: InodeRow| {
        let extents = store.extents(row.ino, 0..u64::MAX).expect("readable");
        let read = |(span, block): (Span, BlockRef)| {
            let read = store.read_block(&block, ReadMode::Blocking);
            (span.start, read.map_or_else(|_| Vec::new(), |bytes| bytes.expect("waited for").to_vec()))
        };
        let inline = row.inline.as_ref().map(|inline| inline.to_vec());
        (row.ino.0, (row.kind, inline, extents.into_iter().map(read).collect()))
    };
    inodes.into_iter().map(content).collect()
}

fn names(store: &dyn Store) -> Vec<NameRow> {
    (1..64).flat_map(|ino| store.names(Ino(ino), Cookie(0), 1000).expect("readable")).collect()
}

pub fn salvaged(path: &Path, new: &Path) -> Result<Salvaged> {
    salvage(path, new, &mut |_| {})
}

#[test]
fn a_whole_volume_is_brought_as_it_is() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, new) = (sample_volume(&directory, home), directory.path().join("new"));
        let told = salvaged(&path, &new).expect("brought");
        assert_eq!(told.missing, []);
        assert_eq!((told.files, told.directories, told.others, told.nameless), (4, 3, 1, 0));
        let (old, new_store) = (open(&path).expect("opens").store, open(&new).expect("opens").store);
        assert_eq!(contents(&*new_store), contents(&*old));
        assert_eq!(names(&*new_store), names(&*old));
        for ino in 1..64 {
            assert_eq!(new_store.xattrs(Ino(ino)).expect("readable"), old.xattrs(Ino(ino)).expect("readable"));
            assert_eq!(new_store.digest(Ino(ino)).expect("readable"), old.digest(Ino(ino)).expect("readable"));
        }
        drop(new_store);
        assert!(look(&new, Repair::No).iter().all(|finding| finding.outcome == Outcome::Note));
        assert_eq!(salvaged(&path, &new).expect_err("it is held").kind(), ErrorKind::Locked);
        drop(old);
        let error = salvaged(&path, &new).expect_err("refused");
        assert!(error.to_string().contains("already exists"), "{error}");
    }
}

/// Content that was deleted and that history keeps is neither missing nor of no file.
#[test]
fn what_the_past_alone_has_is_not_brought_and_not_missed() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, new) = (sample_volume(&directory, home), directory.path().join("new"));
        let store = open(&path).expect("opens").store;
        let next = |change: &dyn Fn(&mut Batch)| {
            let header = store.header().expect("readable");
            let mut batch = Batch { commit: header.commit.next(), counters: header.counters, ..Batch::default() };
            change(&mut batch);
            store.apply(&batch, Durability::Durable).expect("applied");
        };
        next(&|batch| batch.history.push(HistoryChange::Keep("all forever".into(), HistoryFor::All)));
        let row = store.inodes(Ino(LARGE), 1).expect("readable").remove(0);
        next(&|batch| {
            batch.extents.push(ExtentChange::Clear { ino: Ino(LARGE), range: 0..u64::MAX });
            batch.inodes.push(InodeChange::Put(InodeRow { size: 0, allocated: 0, ..row.clone() }));
            batch.counters.bytes_used -= row.allocated;
        });
        drop(store);
        let told = salvaged(&path, &new).expect("brought");
        assert_eq!((told.missing, told.nameless), (vec![], 0));
        assert!(look(&new, Repair::No).iter().all(|finding| finding.outcome == Outcome::Note));
    }
}

/// No wrong byte is salvaged, whatever page is gone, and the rest is reported.
#[test]
fn each_damaged_page_costs_no_more_than_what_it_held() {
    for (home, step) in HOMES.into_iter().zip([1, 11]) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = sample_volume(&directory, home);
        let before = contents(&*open(&path).expect("opens").store);
        let whole = std::fs::read(database(&path)).expect("read");
        for page in (0..whole.len() / PAGE).step_by(step) {
            let garbage = if page % 2 == 0 { 0 } else { 0xa5 };
            let file = OpenOptions::new().write(true).open(database(&path)).expect("opens");
            file.write_all_at(&whole, 0).expect("written");
            file.write_all_at(&[garbage; PAGE], (page * PAGE) as u64).expect("written");
            let new = directory.path().join(format!("new {page}"));
            let told = match salvaged(&path, &new) {
                Ok(told) => told,
                // All rows of inodes were in one page.
                Err(error) => {
                    assert!(error.to_string().contains("nothing of a Weft volume"), "{error}");
                    assert!(!new.with_added_extension("unfinished").exists());
                    continue;
                }
            };
            let damaged = |finding: &Finding| finding.outcome == Outcome::Damaged && finding.subject != Subject::Bytes;
            assert_eq!(look(&new, Repair::No).into_iter().filter(damaged).collect::<Vec<_>>(), []);
            let after = contents(&*open(&new).expect("opens").store);
            let is_bytes = |missing: &Missing| missing.kind == "bytes";
            for (ino, content) in &before {
                match after.get(ino) {
                    Some(brought) if brought == content => {}
                    Some(brought) => {
                        let known = brought.2.iter().all(|(at, bytes)| bytes.is_empty() || *bytes == content.2[at]);
                        assert!(known && brought.2.len() == content.2.len(), "inode {ino} without page {page}");
                        assert!(told.missing.iter().any(is_bytes), "{:?}", told.missing);
                    }
                    None => assert!(!told.missing.is_empty(), "inode {ino} is missing without a word"),
                }
            }
        }
    }
}

#[test]
fn a_file_whose_row_is_damaged_is_named_and_not_brought() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, new) = (sample_volume(&directory, home), directory.path().join("new"));
        let connection = rusqlite::Connection::open(database(&path)).expect("opened");
        // Of a file itself, and of a block of another.
        let edit = "UPDATE fileatt SET inline = x'6865406c6f' WHERE ino = 22; \
                    UPDATE blocks SET base = base + 65536 WHERE id IN (SELECT block FROM extents WHERE ino = 26)";
        connection.execute_batch(edit).expect("edited");
        drop(connection);
        let told = salvaged(&path, &new).expect("brought");
        let missing = told.missing.iter().map(|m| (m.kind, String::from_utf8_lossy(&m.what).into_owned()));
        let missing = missing.collect::<Vec<_>>();
        assert!(missing.iter().any(|(kind, what)| *kind == "file" && what.ends_with("small")), "{missing:?}");
        assert!(missing.contains(&("file", "#26".into())), "{missing:?}");
        let after = contents(&*open(&new).expect("opens").store);
        assert!(!after.contains_key(&22) && !after.contains_key(&26));
        assert_eq!(told.files, 2);
    }
}

#[test]
fn a_file_with_damaged_bytes_is_brought_and_reading_those_is_an_error() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, new) = (sample_volume(&directory, home), directory.path().join("new"));
        let store = open(&path).expect("opens").store;
        let (mut before, digest) = (contents(&*store), store.digest(Ino(LARGE)).expect("readable"));
        let block = store.extents(Ino(LARGE), 65536..65537).expect("readable")[0].1;
        drop(store);
        if let Place::Segment { segment, offset } = block.place {
            let file = OpenOptions::new().write(true).open(path.join(format!("segments/{segment:08}.seg")));
            file.expect("opens").write_all_at(b"XX", offset + 50).expect("written");
        } else {
            let connection = rusqlite::Connection::open(database(&path)).expect("opened");
            let edit = "UPDATE block_bytes SET bytes = CAST(x'5858' || substr(bytes, 3) AS BLOB) WHERE id = ?1";
            connection.execute(edit, (block.id.0.cast_signed(),)).expect("edited");
        }
        let told = salvaged(&path, &new).expect("brought");
        let bytes =
            told.missing.iter().map(|m| (m.kind, String::from_utf8_lossy(&m.what), &m.why[..m.why.len().min(33)]));
        let expected = [
            ("bytes", "/dir/large".into(), "bytes 65536 to 131071 are damaged"),
            ("bytes", "/dir/clone".into(), "bytes 0 to 65535 are damaged: blo"),
        ];
        assert_eq!(bytes.collect::<Vec<_>>(), expected);
        assert_eq!((told.files, told.damaged), (4, 2));
        for (ino, start) in [(LARGE, 65536), (CLONE, 0)] {
            before.get_mut(&ino).expect("there").2.insert(start, Vec::new());
        }
        let store = open(&new).expect("opens").store;
        assert_eq!(contents(&*store), before);
        assert_eq!(store.digest(Ino(LARGE)).expect("readable"), digest);
        drop(store);
        let damaged = |finding: &Finding| finding.outcome == Outcome::Damaged;
        let found = look(&new, Repair::No).into_iter().filter(damaged).collect::<Vec<_>>();
        assert!(found.len() == 2 && found.iter().all(|finding| finding.subject == Subject::Bytes), "{found:?}");
    }
}

/// Segments that are gone cost the bytes in them, and their place takes no room in the new volume.
#[test]
fn files_whose_segment_is_gone_are_brought_with_what_is_known_of_them() {
    let directory = tempfile::tempdir().expect("a directory");
    let (path, new) = (sample_volume(&directory, BlockHome::Segments), directory.path().join("new"));
    std::fs::remove_file(path.join("segments/00000001.seg")).expect("removed");
    let told = salvaged(&path, &new).expect("brought");
    assert_eq!((told.files, told.damaged), (4, 3), "{:?}", told.missing);
    let segment = new.join("segments/00000001.seg").metadata().expect("there");
    assert!(segment.len() > 100_000 && segment.blocks() < 64, "{segment:?}");
    let found = look(&new, Repair::No);
    assert!(found.iter().all(|f| f.outcome == Outcome::Note || f.subject == Subject::Bytes), "{found:?}");
    let contents = contents(&*open(&new).expect("opens").store);
    assert!(contents[&LARGE].2.values().all(Vec::is_empty));
}

#[test]
fn what_is_in_the_write_ahead_log_is_brought() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, copy) = (sample_volume(&directory, home), directory.path().join("copy"));
        let store = open(&path).expect("opens").store;
        let header = store.header().expect("readable");
        let mut batch = Batch { commit: header.commit.next(), counters: header.counters, ..Batch::default() };
        let mut row = store.inodes(Ino(22), 1).expect("readable").remove(0);
        (row.inline, row.size, row.allocated) = (Some(weft_block::Slice::from(b"new".to_vec())), 3, 3);
        batch.counters.bytes_used -= 2;
        batch.inodes.push(InodeChange::Put(row));
        store.apply(&batch, Durability::Durable).expect("applied");
        // As a crash leaves it.
        let copied = std::process::Command::new("sh")
            .args(["-c", "cp -r \"$1\" \"$2\"; [ -d \"$1\" ] || cp \"$1-wal\" \"$2-wal\"", "sh"])
            .args([&path, &copy])
            .status();
        assert!(copied.expect("run").success());
        let new = directory.path().join("new");
        let told = salvaged(&copy, &new).expect("brought");
        assert_eq!(told.missing, []);
        let after = contents(&*open(&new).expect("opens").store);
        assert_eq!(after[&22].1.as_deref(), Some(&b"new"[..]));
        File::open(&path).expect("still there");
    }
}

#[test]
fn names_in_directories_whose_rows_are_gone_are_brought() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, new) = (sample_volume(&directory, home), directory.path().join("new"));
        let store = open(&path).expect("opens").store;
        let (before, listed) = (contents(&*store), names(&*store));
        drop(store);
        let connection = rusqlite::Connection::open(database(&path)).expect("opened");
        connection.execute_batch("DELETE FROM fileatt WHERE ino IN (1, 20, 25)").expect("edited");
        drop(connection);
        let told = salvaged(&path, &new).expect("brought");
        let missing = told.missing.iter().map(|m| (m.kind, String::from_utf8_lossy(&m.what).into_owned()));
        let expected = [("directory", "/"), ("directory", "/dir"), ("name", "/symlink")];
        assert_eq!(missing.collect::<Vec<_>>(), expected.map(|(kind, what)| (kind, what.to_owned())));
        let after = open(&new).expect("opens").store;
        let listed = listed.into_iter().filter(|row| row.ino.0 != 25).collect::<Vec<_>>();
        assert_eq!(names(&*after), listed);
        let brought = contents(&*after);
        assert_eq!(brought, before.into_iter().filter(|(ino, _)| *ino != 25).collect());
        let root = after.inodes(Ino::ROOT, 1).expect("readable").remove(0);
        assert_eq!((root.permissions, root.uid, root.size), (0o700, 0, 2));
    }
}

#[test]
fn a_file_whose_row_is_gone_is_made_of_its_blocks_for_root_alone() {
    for edit in ["DELETE FROM fileatt WHERE ino = 26", "UPDATE fileatt SET uid = 5 WHERE ino = 26"] {
        for home in HOMES {
            let directory = tempfile::tempdir().expect("a directory");
            let (path, new) = (sample_volume(&directory, home), directory.path().join("new"));
            let before = contents(&*open(&path).expect("opens").store);
            let connection = rusqlite::Connection::open(database(&path)).expect("opened");
            connection.execute_batch(edit).expect("edited");
            drop(connection);
            let told = salvaged(&path, &new).expect("brought");
            let [missing] = &told.missing[..] else { panic!("{:?}", told.missing) };
            assert!(missing.kind == "file" && missing.why.contains("may lack its end"), "{missing:?}");
            assert_eq!(told.unproved, 1);
            assert_eq!(look(&new, Repair::No), []);
            let after = open(&new).expect("opens").store;
            assert_eq!(contents(&*after)[&26], before[&26], "the blocks are all there is of it");
            let row = after.inodes(Ino(26), 1).expect("readable").remove(0);
            assert_eq!((row.permissions, row.uid, row.gid), (0o600, 0, 0));
        }
    }
}

/// Returns the reason that the file at `what` is missing, and the number of files that are not
/// proved whole.
fn judged(path: &Path, new: &Path, what: &str) -> (String, u64) {
    let told = salvaged(path, new).expect("brought");
    let of = |missing: &&Missing| missing.kind == "file" && missing.what == what.as_bytes();
    (told.missing.iter().find(of).expect("told").why.clone(), told.unproved)
}

/// The hash of the entry tells a hole from blocks that are gone, where there is one.
#[test]
fn a_file_made_of_its_blocks_is_called_whole_only_if_its_entry_proves_that() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = sample_volume(&directory, home);
        let before = contents(&*open(&path).expect("opens").store);
        edit(&path, &format!("DELETE FROM fileatt WHERE ino = {LARGE}"));
        let whole = directory.path().join("whole");
        let (why, unproved) = judged(&path, &whole, "/dir/large");
        assert!(unproved == 0 && why.ends_with("proves that they are all of its content"), "{why}");
        assert_eq!(contents(&*open(&whole).expect("opens").store)[&LARGE], before[&LARGE]);
        for (at, (gone, words)) in [
            (
                "DELETE FROM extents WHERE ino = 23 AND start = 65536",
                "its end is missing, or zeros stand for lost blocks",
            ),
            (
                "DELETE FROM extents WHERE ino = 23 AND start = 327680",
                "says that they are not all of its content: its end is missing",
            ),
            ("UPDATE naming SET digest = NULL", "it may lack its end"),
            (
                "INSERT INTO extents SELECT 23, 131072, length, block, since, -1 FROM extents WHERE ino = 24",
                "may be lost",
            ),
        ]
        .into_iter()
        .enumerate()
        {
            edit(&path, gone);
            weft_store::sqlite::seal(&path).expect("sealed");
            let (why, unproved) = judged(&path, &directory.path().join(format!("new {at}")), "/dir/large");
            assert!(unproved == 1 && why.ends_with(words) && !why.contains("proves"), "{gone}: {why}");
        }
    }
}

/// They are brought as a repair keeps them.
#[test]
fn blocks_that_no_file_names_are_brought_as_one_file() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, new) = (sample_volume(&directory, home), directory.path().join("new"));
        let before = contents(&*open(&path).expect("opens").store);
        // One of two, and the only one of a file that nothing names.
        edit(
            &path,
            &format!("DELETE FROM fileatt WHERE ino = {LARGE}; DELETE FROM extents WHERE ino = {LARGE} AND start = 0"),
        );
        edit(&path, &format!("DELETE FROM extents WHERE ino = {ORPHAN}"));
        let told = salvaged(&path, &new).expect("brought");
        let blocks = told.missing.iter().find(|missing| missing.kind == "block").expect("told");
        assert_eq!((blocks.what.as_slice(), told.nameless), (&b"of no file"[..], 1), "{:?}", told.missing);
        let words = ["2 in all, whole", "a file in /lost+found"];
        assert!(words.iter().all(|word| blocks.why.contains(word)), "{}", blocks.why);
        assert_eq!(look(&new, Repair::No), []);
        let after = open(&new).expect("opens").store;
        let name = |parent, name: &[u8]| after.name(parent, &Name::new(name).expect("valid")).expect("readable");
        let home = name(Ino::ROOT, b"lost+found").expect("made").ino;
        let [found] = &after.names(home, Cookie(0), 10).expect("readable")[..] else { panic!("one") };
        let content = &contents(&*after)[&found.ino.0].2;
        let expected = [(0, before[&LARGE].2[&0].clone()), (65536, before[&ORPHAN].2[&0].clone())];
        assert_eq!(*content, expected.into());
    }
}

pub fn edit(path: &Path, statements: &str) {
    let connection = rusqlite::Connection::open(database(path)).expect("opened");
    connection.execute_batch(statements).expect("edited");
}

/// A damaged digest costs no file that its rows, its blocks and its entries prove.
#[test]
fn a_file_whose_digest_is_damaged_is_brought_as_all_else_proves_it() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = sample_volume(&directory, home);
        let store = open(&path).expect("opens").store;
        let answers = |store: &dyn Store| {
            let digests = (1..64).map(|ino| store.digest(Ino(ino)).expect("readable")).collect::<Vec<_>>();
            (contents(store), names(store), digests)
        };
        let before = answers(&*store);
        drop(store);
        // A small file, a large one, a link, and one that no entry names.
        let damages = [
            ("UPDATE fileatt SET digest_sum = digest_sum + 1 WHERE ino IN (22, 23, 25, 26)", (3, 1)),
            ("UPDATE fileatt SET digest = 5", (4, 1)),
            ("UPDATE fileatt SET digest = zeroblob(32); UPDATE naming SET digest = zeroblob(32)", (0, 5)),
        ];
        for (at, (damage, counts)) in damages.into_iter().enumerate() {
            edit(&path, damage);
            let new = directory.path().join(format!("new {at}"));
            let told = salvaged(&path, &new).expect("brought");
            assert_eq!((told.by_entries, told.by_rows), counts, "{damage}: {:?}", told.missing);
            assert!(told.missing.iter().all(|missing| missing.kind == "digest"), "{damage}: {:?}", told.missing);
            assert_eq!(told.missing.len() as u64, counts.1);
            assert!(look(&new, Repair::No).iter().all(|finding| finding.outcome == Outcome::Note), "{damage}");
            assert!(answers(&*open(&new).expect("opens").store) == before, "{damage}");
        }
    }
}

/// Rows and blocks that are whole may still be of another file's moment: an entry's hash tells.
#[test]
fn a_file_whose_digest_is_damaged_and_whose_entry_says_another_is_not_brought() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, new) = (sample_volume(&directory, home), directory.path().join("new"));
        edit(&path, "UPDATE extents SET block = 3 - block WHERE ino = 23 AND start < 131072");
        weft_store::sqlite::seal(&path).expect("sealed");
        edit(&path, "UPDATE fileatt SET digest_sum = digest_sum + 1 WHERE ino = 23");
        let told = salvaged(&path, &new).expect("brought");
        let [missing] = &told.missing[..] else { panic!("{:?}", told.missing) };
        assert!(missing.kind == "file" && missing.why.contains("the hash of its entry"), "{missing:?}");
        assert!(!contents(&*open(&new).expect("opens").store).contains_key(&23));
    }
}

/// Rows in any page that a damaged list of free pages names are salvaged, if others prove them.
#[test]
fn pages_that_a_damaged_list_calls_free_are_read() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = sample_volume(&directory, home);
        let connection = rusqlite::Connection::open(database(&path)).expect("opened");
        let junk = "CREATE TABLE junk (b); INSERT INTO junk VALUES (zeroblob(50000)); DROP TABLE junk; \
                    PRAGMA wal_checkpoint(TRUNCATE)";
        connection.execute_batch(junk).expect("made");
        drop(connection);
        let store = open(&path).expect("opens").store;
        let (before, listed) = (contents(&*store), names(&*store));
        drop(store);
        let whole = std::fs::read(database(&path)).expect("read");
        let number = |at: usize| u32::from_be_bytes(whole[at..at + 4].try_into().expect("four bytes")) as usize;
        let (free, trunk) = (number(36), (number(32) - 1) * PAGE);
        assert!(free > 10 && number(trunk + 4) > 5);
        let is_leaf = |page: &usize| [10, 13].contains(&whole[(page - 1) * PAGE]);
        let mut told_of = 0;
        for page in (2..=whole.len() / PAGE - free).filter(is_leaf) {
            let mut bytes = whole.clone();
            bytes[trunk + 8..trunk + 12].copy_from_slice(&u32::try_from(page).expect("small").to_be_bytes());
            std::fs::write(database(&path), &bytes).expect("written");
            let new = directory.path().join(format!("new {page}"));
            let told = salvaged(&path, &new).expect("brought");
            let after = open(&new).expect("opens").store;
            let (found, found_names) = (contents(&*after), names(&*after));
            // No name proves an orphan: it is rebuilt from its blocks, and gets a name.
            for (ino, content) in &before {
                assert!(found.get(ino) == Some(content), "inode {ino}, page {page}: {:?}", told.missing);
            }
            for name in &listed {
                assert!(found_names.contains(name), "{name:?}, page {page}: {:?}", told.missing);
            }
            told_of += usize::from(told.missing.iter().any(|missing| missing.kind == "row"));
        }
        assert!(told_of >= 4, "{told_of}");
    }
}

/// Deleted rows lie in free pages as whole as ever, and stay deleted.
#[test]
fn rows_in_free_pages_that_nothing_lacks_stay_deleted() {
    let directory = tempfile::tempdir().expect("a directory");
    let (path, new) = (sample_volume(&directory, BlockHome::Database), directory.path().join("new"));
    let connection = rusqlite::Connection::open(database(&path)).expect("opened");
    let copy = "CREATE TABLE copy AS SELECT * FROM naming; DROP TABLE copy; \
                CREATE TABLE copy (ino INTEGER PRIMARY KEY, a, b, c); INSERT INTO copy SELECT ino, 1, 2, 3 FROM fileatt; \
                DROP TABLE copy; PRAGMA wal_checkpoint(TRUNCATE)";
    connection.execute_batch(copy).expect("made");
    drop(connection);
    let before = contents(&*open(&path).expect("opens").store);
    let told = salvaged(&path, &new).expect("brought");
    assert_eq!(told.missing, []);
    assert_eq!(contents(&*open(&new).expect("opens").store), before);
}
