//! Salvages of volumes with an older copy of a page in the place of another one, as a disk leaves
//! it that misplaces a write.

use crate::check::{database, sample_volume};
use crate::contract::HOMES;
use crate::crash::copy;
use crate::moments::Mount;
use crate::salvage::{Contents, contents, edit, salvaged};
use crate::salvage_logs::commit;
use crate::sample::LARGE;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use weft_store::log::Loss;
use weft_store::sqlite::{open, seal};
use weft_store::*;

const PAGE: usize = 4096;

/// The page with all rows of `table`.
fn page_of(path: &Path, table: &str) -> usize {
    let connection = rusqlite::Connection::open(database(path)).expect("opened");
    let root = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
    let page: u32 = connection.query_row(root, (table,), |row| row.get(0)).expect("a table");
    page as usize
}

fn read_page(path: &Path, page: usize) -> Vec<u8> {
    let bytes = fs::read(database(path)).expect("read");
    let page = &bytes[(page - 1) * PAGE..page * PAGE];
    assert!([10, 13].contains(&page[0]), "a leaf");
    page.to_vec()
}

/// Puts `content` in the place of the page of an index that is empty.
fn misplace(path: &Path, page: usize, content: &[u8]) {
    assert_eq!(read_page(path, page)[3..5], [0, 0], "it is empty");
    let file = OpenOptions::new().write(true).open(database(path)).expect("opens");
    file.write_all_at(content, ((page - 1) * PAGE) as u64).expect("written");
}

/// The attributes of an inode.
type Attributes = Vec<(Name, Vec<u8>)>;

/// The content and the attributes of all that is in a volume.
fn all(store: &dyn Store) -> (Contents, Vec<Attributes>) {
    (contents(store), (1..64).map(|ino| store.xattrs(Ino(ino)).expect("readable")).collect())
}

#[test]
fn an_older_row_of_the_volume_costs_no_log_wherever_it_lies() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, killed) = (sample_volume(&directory, home), directory.path().join("killed"));
        let old = read_page(&path, 2);
        let place = page_of(&path, "xattr_history");
        let store = open(&path).expect("opened").store;
        commit(&*store, 0..4);
        store.close().expect("closed");
        drop(store);
        let mut mount = Mount::begin(&path, Loss::Refuse);
        commit(&*mount.store, 4..8);
        mount.name(mount.store.header().expect("readable").commit);
        mount.append(b"synced");
        let (expected, header) = (all(&*mount.store), mount.store.header().expect("readable"));
        copy(&path, &killed);
        mount.copy_log(&killed);
        misplace(&killed, place, &old);
        let new = directory.path().join("new");
        let told = salvaged(&killed, &new).expect("brought");
        let is_of_logs = |missing: &&sqlite::Missing| ["write-ahead log", "operations"].contains(&missing.kind);
        assert_eq!((told.missing.iter().find(is_of_logs), told.waiting), (None, 1));
        let store = open(&new).expect("opens").store;
        assert_eq!(all(&*store), expected);
        assert!(store.header().expect("readable").commit >= header.commit);
    }
}

/// A file that was cut has no more of its end, and one that lost an attribute does not have it.
#[test]
fn older_rows_do_not_win_wherever_they_lie() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = sample_volume(&directory, home);
        let tables = ["volume", "fileatt", "naming", "extents", "xattr", "commits"];
        let old = tables.map(|table| read_page(&path, page_of(&path, table)));
        let store = open(&path).expect("opened").store;
        let header = store.header().expect("readable");
        let mut batch = Batch { commit: header.commit.next(), counters: header.counters, ..Batch::default() };
        let row = store.inodes(Ino(LARGE), 1).expect("readable").remove(0);
        batch.counters.bytes_used -= 100;
        let (size, allocated) = (2 << 16, row.allocated - 100);
        batch.inodes.push(InodeChange::Put(InodeRow { size, allocated, xattrs: 0, ..row }));
        batch.extents.push(ExtentChange::Clear { ino: Ino(LARGE), range: 2 << 16..u64::MAX });
        let name = Name::of_xattr(b"user.a/b").expect("a valid name");
        batch.xattrs.push(XattrChange { ino: Ino(LARGE), name, value: None });
        store.apply(&batch, Durability::Durable).expect("applied");
        let expected = all(&*store);
        store.close().expect("closed");
        drop(store);
        let place = page_of(&path, "xattr_history");
        let empty = read_page(&path, place);
        for (table, old) in tables.into_iter().zip(old) {
            misplace(&path, place, &old);
            let new = directory.path().join(format!("new {table}"));
            let told = salvaged(&path, &new).expect("brought");
            let is_gone = |missing: &&sqlite::Missing| ["file", "attributes"].contains(&missing.kind);
            assert_eq!(told.missing.iter().find(is_gone), None, "{table}");
            let store = open(&new).expect("opens").store;
            assert!(all(&*store) == expected, "{table}");
            assert!(store.header().expect("readable").commit >= header.commit.next(), "{table}");
            let file = OpenOptions::new().write(true).open(database(&path)).expect("opens");
            file.write_all_at(&empty, ((place - 1) * PAGE) as u64).expect("put back");
        }
    }
}

/// The one of several copies is taken that holds what the block's value says.
#[test]
fn a_copy_of_a_block_or_of_its_row_that_is_wrong_hides_none_that_is_right() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, new) = (sample_volume(&directory, home), directory.path().join("new"));
        let expected = all(&*open(&path).expect("opens").store);
        edit(&path, "UPDATE blocks SET base = base + 65536");
        seal(&path).expect("sealed");
        edit(
            &path,
            "CREATE TABLE wrong (id INTEGER PRIMARY KEY, a, b, c, d, e, f, g, h); \
             INSERT INTO wrong SELECT * FROM blocks; \
             CREATE TABLE rotten (id INTEGER PRIMARY KEY, bytes); \
             INSERT INTO rotten SELECT id, zeroblob(100) FROM blocks; \
             UPDATE blocks SET base = base - 65536",
        );
        seal(&path).expect("sealed");
        let told = salvaged(&path, &new).expect("brought");
        assert_eq!(told.missing.iter().find(|missing| missing.kind == "file"), None);
        assert!(all(&*open(&new).expect("opens").store) == expected);
    }
}
