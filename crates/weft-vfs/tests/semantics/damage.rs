//! Rows that are damaged one at a time: what is read is right or an error, and whatever was there
//! is never absent.
//!
//! Some of all cases are tried, ever the same; with WEFT_SOAK=factor so many times more.

use crate::{DIRECTORY, FILE};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use weft_store::memory::MemoryStore;
use weft_store::postgres::{self, Address};
use weft_store::{
    Batch, BlockHome, CommitStore, Durability, InodeChange, InodeRow, OpenOptions, RowStore, Store, Timestamp,
    VolumeOptions, sqlite,
};
use weft_testkit::{Client, Cluster};
use weft_vfs::{Caller, Cookie, Error, ErrorKind, Ino, ManualClock, Options, SetXattr, Vfs};

const BLOCK: usize = 4096;

fn mount(store: Arc<dyn Store>) -> weft_vfs::Result<Arc<Vfs>> {
    let options = Options { background: false, ..Options::default() };
    Vfs::open(store, None, options, Arc::new(ManualClock::default()))
}

/// A volume as it was before it was damaged.
#[derive(Default)]
struct There {
    directories: BTreeMap<Ino, BTreeMap<Vec<u8>, Ino>>,
    files: BTreeMap<Ino, Vec<u8>>,
    attributes: BTreeMap<(Ino, Vec<u8>), Vec<u8>>,
    holes: Ino,
    small: Ino,
    large: Ino,
}

impl There {
    /// Fills a new volume: directories of fewer and of more entries than are read at once, a file
    /// with holes, one without, extended attributes.
    fn fill(store: Arc<dyn Store>) -> There {
        let vfs = mount(store).expect("opens");
        let mut there = There { directories: BTreeMap::from([(Ino::ROOT, BTreeMap::new())]), ..There::default() };
        there.small = there.directory(&vfs, b"small", 10);
        there.large = there.directory(&vfs, b"large", 70);
        there.holes = there.file(&vfs, b"holes", &[0, 1, 5], 9 * BLOCK + 100);
        let dense = there.file(&vfs, b"dense", &[0, 1, 2], 3 * BLOCK);
        for (ino, name) in [(there.holes, b"user.a"), (there.holes, b"user.b"), (dense, b"user.a")] {
            vfs.set_xattr(ino, name, b"its value", SetXattr::Any, false).expect("set");
            there.attributes.insert((ino, name.to_vec()), b"its value".to_vec());
        }
        vfs.close().expect("closed");
        there
    }

    fn directory(&mut self, vfs: &Vfs, name: &[u8], entries: usize) -> Ino {
        let ino = vfs.make(Caller::ROOT, Ino::ROOT, name, DIRECTORY).expect("made").ino;
        self.directories.entry(Ino::ROOT).or_default().insert(name.to_vec(), ino);
        for number in 0..entries {
            let name = format!("f{number}").into_bytes();
            let file = vfs.make(Caller::ROOT, ino, &name, FILE).expect("made").ino;
            self.directories.entry(ino).or_default().insert(name, file);
        }
        ino
    }

    fn file(&mut self, vfs: &Vfs, name: &[u8], blocks: &[usize], size: usize) -> Ino {
        let ino = vfs.make(Caller::ROOT, Ino::ROOT, name, FILE).expect("made").ino;
        self.directories.entry(Ino::ROOT).or_default().insert(name.to_vec(), ino);
        let mut content = vec![0; size];
        // What is left behind the last whole block.
        let rest = (!size.is_multiple_of(BLOCK)).then_some(size / BLOCK);
        for block in blocks.iter().copied().chain(rest) {
            let bytes = block * BLOCK..size.min((block + 1) * BLOCK);
            content[bytes.clone()].fill(b'a' + block as u8);
            vfs.write(ino, bytes.start as u64, &content[bytes], false).expect("written");
        }
        self.files.insert(ino, content);
        ino
    }

    /// Reads all of the volume. Names are looked up before directories are listed, or after.
    fn verify(&self, vfs: &Vfs, is_listed_first: bool) {
        let names = || self.directories.iter().for_each(|(ino, entries)| look_up(vfs, *ino, entries));
        if !is_listed_first {
            names();
        }
        self.directories.iter().for_each(|(ino, entries)| list(vfs, *ino, entries));
        names();
        for (ino, content) in &self.files {
            read(vfs, *ino, content);
        }
        for ((ino, name), value) in &self.attributes {
            match vfs.xattr(*ino, name) {
                Ok(read) => assert_eq!(read, *value),
                Err(error) => allowed(&error),
            }
        }
        for (ino, entries) in &self.directories {
            for name in entries.keys() {
                vfs.make(Caller::ROOT, *ino, name, FILE).expect_err("it is there");
            }
        }
    }
}

/// Damage may be told in many ways, but never as if there were nothing.
fn allowed(error: &Error) {
    assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Io), "{:?}: {error}", error.kind());
}

fn look_up(vfs: &Vfs, directory: Ino, entries: &BTreeMap<Vec<u8>, Ino>) {
    for (name, ino) in entries {
        match vfs.lookup(Caller::ROOT, directory, name) {
            Ok(found) => assert_eq!(found.ino, *ino),
            Err(error) => allowed(&error),
        }
    }
    let absent = vfs.lookup(Caller::ROOT, directory, b"absent").expect_err("no such name");
    assert!(
        absent.kind() == ErrorKind::NotFound || absent.kind() == ErrorKind::Corrupt || absent.kind() == ErrorKind::Io
    );
}

fn list(vfs: &Vfs, directory: Ino, entries: &BTreeMap<Vec<u8>, Ino>) {
    let (mut listed, mut after) = (BTreeMap::new(), Cookie(0));
    loop {
        match vfs.read_directory(directory, after, 16) {
            Err(error) => return allowed(&error),
            Ok(page) => {
                let Some(last) = page.last() else { break };
                after = last.cookie;
                for entry in page {
                    let name = entry.name.as_bytes().to_vec();
                    assert_eq!(entries.get(&name), Some(&entry.ino), "{name:?}");
                    listed.insert(name, entry.ino);
                }
            }
        }
    }
    assert_eq!(listed, *entries);
}

/// Reads each block, and writes over those that cannot be read.
fn read(vfs: &Vfs, ino: Ino, content: &[u8]) {
    for (block, expected) in content.chunks(BLOCK).enumerate() {
        let offset = (block * BLOCK) as u64;
        match vfs.read(ino, offset, BLOCK) {
            Ok(bytes) => assert_eq!(bytes.to_vec(), expected, "block {block}"),
            Err(error) => {
                allowed(&error);
                allowed(&vfs.write(ino, offset, &[7; BLOCK], false).expect_err("it may not be a hole"));
            }
        }
    }
}

/// So many of `all` as are tried usually, ever the same.
fn some<T>(all: &[T], usual: usize) -> impl Iterator<Item = (usize, &T)> {
    let soak = std::env::var("WEFT_SOAK").ok().and_then(|factor| factor.parse::<usize>().ok()).unwrap_or(1);
    let count = (usual * soak).min(all.len());
    (0..count).map(move |at| at * all.len() / count.max(1)).enumerate().map(|(at, chosen)| (at, &all[chosen]))
}

/// An engine's words.
struct Words {
    bytes: &'static str,
    hex: fn(&str) -> String,
    /// Columns of extents.
    extents: &'static [&'static str],
}

const SQLITE: Words = Words {
    bytes: "BLOB",
    hex: |hex| format!("x'{hex}'"),
    extents: &["ino", "start", "length", "block", "since", "sum"],
};

const POSTGRES: Words = Words {
    bytes: "bytea",
    hex: |hex| format!("'\\x{hex}'::bytea"),
    extents: &["ino", "start", "length", "owner", "block", "since", "sum"],
};

/// Statements that set one column of one row of `table`, which has `rows`.
fn edits(words: &Words, table: &str, rows: usize) -> Vec<String> {
    let (key, columns) = match table {
        "extents" => ("ino, start", words.extents),
        "naming" => ("parent, name", &["parent", "name", "ino", "kind", "cookie", "since", "sum"][..]),
        _ => ("ino, name", &["ino", "name", "value", "since", "sum"][..]),
    };
    let mut edits = Vec::new();
    for row in 0..rows {
        for column in columns {
            let other = (row + rows / 2) % rows;
            let others = format!("(SELECT {column} FROM {table} ORDER BY {key} LIMIT 1 OFFSET {other})");
            let values = if ["name", "value"].contains(column) {
                let (bytes, hex) = (words.bytes, words.hex);
                let shorter = format!("substr({column}, 1, length({column}) - 1)");
                let longer = |of: &str, by: &str| format!("CAST({of} || {} AS {bytes})", hex(by));
                vec![longer(&shorter, "39"), longer(&shorter, "7e"), longer(column, "30"), hex(""), others]
            } else {
                let fixed = ["0", "-1", "16383", "1048576", "4611686018427387904"].map(String::from);
                let near = ["+ 1", "- 1"].map(|by| format!("{column} {by}"));
                fixed.into_iter().chain(near).chain([others]).collect()
            };
            let which = format!("({key}) = (SELECT {key} FROM {table} ORDER BY {key} LIMIT 1 OFFSET {row})");
            edits.extend(values.iter().map(|value| format!("{table} SET {column} = {value} WHERE {which}")));
        }
    }
    edits
}

const TABLES: [(&str, usize); 3] = [("extents", 7), ("naming", 84), ("xattr", 3)];

/// A volume of one file, and what is there.
fn volume(path: &Path) -> There {
    let options =
        VolumeOptions { block_size: 4096, inline_max: 100, home: BlockHome::Database, ..VolumeOptions::default() };
    sqlite::create(path, &options, (0, 0), Timestamp(0)).expect("created");
    There::fill(sqlite::open(path).expect("opened").store)
}

/// Says which case it is that fails.
struct Case<'a>(&'a dyn std::fmt::Display);

impl Drop for Case<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("with this: {}", self.0);
        }
    }
}

#[test]
fn whatever_a_row_is_edited_to_nothing_is_read_wrong_or_absent() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("volume");
    let there = volume(&path);
    let whole = fs::read(&path).expect("read");
    for (table, rows) in TABLES {
        for (at, edit) in some(&edits(&SQLITE, table, rows), 110) {
            let _case = Case(edit);
            fs::write(&path, &whole).expect("written");
            sqlite::edit(&path, &format!("UPDATE OR IGNORE {edit}")).expect("edited");
            let Ok(volume) = sqlite::open(&path) else { continue };
            let Ok(vfs) = mount(volume.store) else { continue };
            there.verify(&vfs, at % 2 == 0);
        }
    }
}

/// The bytes of a database that hold cells of indices, and of tables whose rows lie in their keys.
fn used(database: &[u8]) -> Vec<Vec<usize>> {
    let size = match usize::from(u16::from_be_bytes([database[16], database[17]])) {
        1 => 65536,
        size => size,
    };
    let number = |at: usize| usize::from(u16::from_be_bytes([database[at], database[at + 1]]));
    let is_leaf = |page: &usize| {
        let (cells, first) = (number(page + 3), number(page + 5));
        database[*page] == 10 && cells > 0 && first >= 8 + 2 * cells && first < size
    };
    let bytes = |page: usize| {
        let header = page..page + 8 + 2 * number(page + 3);
        header.chain(page + number(page + 5)..page + size).collect()
    };
    (0..database.len()).step_by(size).filter(is_leaf).map(bytes).collect()
}

#[test]
fn whatever_bit_of_a_row_flips_nothing_is_read_wrong_or_absent() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("volume");
    let there = volume(&path);
    let whole = fs::read(&path).expect("read");
    let pages = used(&whole);
    assert!(pages.len() > 6, "{}", pages.len());
    for page in pages {
        let bits = page.iter().flat_map(|byte| (0..8).map(move |bit| (*byte, bit))).collect::<Vec<_>>();
        for (at, (byte, bit)) in some(&bits, 25) {
            let case = format!("bit {bit} of byte {byte}");
            let _case = Case(&case);
            let mut flipped = whole.clone();
            flipped[*byte] ^= 1 << bit;
            fs::write(&path, flipped).expect("written");
            let Ok(volume) = sqlite::open(&path) else { continue };
            let Ok(vfs) = mount(volume.store) else { continue };
            there.verify(&vfs, at % 2 == 0);
        }
    }
}

/// A volume in PostgreSQL whose rows can be damaged and set back.
struct InPostgres {
    address: Address,
    client: Client,
    there: There,
}

impl InPostgres {
    fn new(own_table_from: Option<u64>) -> InPostgres {
        let cluster = Cluster::shared();
        let address = cluster.address();
        let options = VolumeOptions {
            block_size: 4096,
            inline_max: 100,
            home: BlockHome::Database,
            own_table_from,
            ..VolumeOptions::default()
        };
        postgres::create(&address, &options, (0, 0), Timestamp(0)).expect("created");
        let there = There::fill(postgres::open(&address, OpenOptions::default()).expect("opened"));
        let client = cluster.client();
        let schema = address.schema().to_owned();
        client.run(&format!("SET search_path TO {schema}"));
        for (table, _) in TABLES {
            client.run(&format!("CREATE TEMP TABLE kept_{table} AS SELECT * FROM {table}"));
        }
        InPostgres { address, client, there }
    }

    fn edited(&self, edit: &str) -> Arc<Vfs> {
        let table = edit.split(' ').next().expect("a table");
        // Keys refuse some values.
        self.client.run(&format!(
            "DELETE FROM {table}; INSERT INTO {table} SELECT * FROM kept_{table}; \
             DO $$ BEGIN UPDATE {edit}; EXCEPTION WHEN unique_violation THEN NULL; END $$"
        ));
        mount(postgres::open(&self.address, OpenOptions::default()).expect("opened")).expect("opens")
    }

    fn restore(&self, table: &str) {
        self.client.run(&format!("DELETE FROM {table}; INSERT INTO {table} SELECT * FROM kept_{table}"));
    }
}

#[test]
fn whatever_a_row_in_postgresql_is_edited_to_nothing_is_read_wrong_or_absent() {
    let volume = InPostgres::new(None);
    for (table, rows) in TABLES {
        for (at, edit) in some(&edits(&POSTGRES, table, rows), 24) {
            let _case = Case(edit);
            volume.there.verify(&volume.edited(edit), at % 2 == 0);
        }
        volume.restore(table);
    }
    postgres::remove(&volume.address).expect("removed");
}

/// Looks at a file with holes whose first block has gone elsewhere.
fn what_it_left_is_no_hole(vfs: &Vfs, there: &There) {
    let corrupt = |offset: usize| vfs.read(there.holes, offset as u64, BLOCK).map(drop).map_err(|error| error.kind());
    assert_eq!(corrupt(0), Err(ErrorKind::Corrupt));
    assert_eq!(corrupt(3 * BLOCK), Err(ErrorKind::Corrupt), "what is a hole, nobody knows");
    let write = |data: &[u8]| vfs.write(there.holes, 0, data, false).map(drop).map_err(|error| error.kind());
    assert_eq!((write(&[7]), write(&[7; BLOCK])), (Err(ErrorKind::Corrupt), Err(ErrorKind::Corrupt)));
}

#[test]
fn a_block_whose_row_says_another_place_leaves_no_hole() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("volume");
    let there = volume(&path);
    let first = format!("ino = {} AND start", there.holes.0);
    for (from, to) in [(0, 1_i64 << 32), (1_i64 << 32, 16383), (16383, -125), (-125, 9)] {
        let change = format!("UPDATE OR REPLACE extents SET start = {to} WHERE {first} = {from}");
        sqlite::edit(&path, &change).expect("edited");
        what_it_left_is_no_hole(&mount(sqlite::open(&path).expect("opened").store).expect("opens"), &there);
    }
    for own_table_from in [None, Some(0)] {
        let volume = InPostgres::new(own_table_from);
        for to in [1_i64 << 32, -125, 1] {
            let edit = format!("extents SET start = {to} WHERE ino = {} AND start = 0", volume.there.holes.0);
            if to != 1 {
                what_it_left_is_no_hole(&volume.edited(&edit), &volume.there);
            }
        }
        volume.restore("extents");
        postgres::remove(&volume.address).expect("removed");
    }
}

/// Looks at `directory`, whose file `f5` is called `g5` by a damaged row.
fn a_damaged_name_is_not_free(vfs: &Vfs, directory: Ino, entries: usize) {
    let looked = |name: &[u8]| vfs.lookup(Caller::ROOT, directory, name).map(drop).map_err(|error| error.kind());
    for name in [&b"f5"[..], b"g5", b"absent"] {
        assert_eq!(looked(name), Err(ErrorKind::Corrupt));
    }
    assert_eq!(looked(b"f6"), Ok(()));
    let made = vfs.make(Caller::ROOT, directory, b"f5", FILE).expect_err("it is there");
    assert_eq!(made.kind(), ErrorKind::Corrupt);
    let renamed = vfs.rename((directory, b"f6"), (directory, b"f5"), weft_vfs::RenameMode::Replace);
    assert_eq!(renamed.map(drop).expect_err("it is there").kind(), ErrorKind::Corrupt);
    let (mut listed, mut after) = (0, Cookie(0));
    let error = loop {
        match vfs.read_directory(directory, after, 16) {
            Ok(page) => {
                after = page.last().expect("an error at the end").cookie;
                listed += page.len();
            }
            Err(error) => break error,
        }
    };
    assert_eq!((listed, error.kind()), (entries - 1, ErrorKind::Corrupt));
}

#[test]
fn a_damaged_name_is_not_free_and_hides_no_others() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("volume");
    let there = volume(&path);
    let change = "SET name = CAST('g5' AS BLOB) WHERE name = CAST('f5' AS BLOB)";
    sqlite::edit(&path, &format!("UPDATE naming {change}")).expect("edited");
    let volume = InPostgres::new(None);
    let in_files = mount(sqlite::open(&path).expect("opened").store).expect("opens");
    let in_postgres = volume.edited("naming SET name = 'g5' WHERE name = 'f5'");
    for (vfs, there) in [(in_files, &there), (in_postgres, &volume.there)] {
        a_damaged_name_is_not_free(&vfs, there.small, 10);
        a_damaged_name_is_not_free(&vfs, there.large, 70);
    }
    volume.restore("naming");
    postgres::remove(&volume.address).expect("removed");
}

/// A mount removes what counts no names and has none.
#[test]
fn a_root_that_counts_no_names_is_no_orphan() {
    let store = Arc::new(MemoryStore::new(VolumeOptions::default()));
    There::fill(store.clone());
    let header = store.header().expect("readable");
    let root = store.inodes(Ino::ROOT, 1).expect("readable").remove(0);
    let inodes = vec![InodeChange::Put(InodeRow { nlink: 0, ..root })];
    let batch = Batch { commit: header.commit.next(), counters: header.counters, inodes, ..Batch::default() };
    store.apply(&batch, Durability::Durable).expect("applied");
    for _ in 0..2 {
        let error = mount(store.clone()).err().expect("refused");
        assert_eq!(error.kind(), ErrorKind::Corrupt);
    }
    assert_eq!(store.inodes(Ino::ROOT, 1).expect("readable")[0].ino, Ino::ROOT);
}

/// Rows of a damaged volume, each of them whole, may say so.
#[test]
fn directories_that_lie_in_each_other_hold_up_no_rename() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("volume");
    let there = volume(&path);
    let (small, large) = (there.small.0, there.large.0);
    for (ino, parent) in [(small, large), (large, small)] {
        sqlite::edit(&path, &format!("UPDATE fileatt SET parent = {parent} WHERE ino = {ino}")).expect("edited");
    }
    sqlite::seal(&path).expect("sealed");
    let vfs = mount(sqlite::open(&path).expect("opened").store).expect("opens");
    vfs.make(Caller::ROOT, Ino::ROOT, b"third", DIRECTORY).expect("made");
    let renamed = vfs.rename((Ino::ROOT, b"third"), (there.small, b"third"), weft_vfs::RenameMode::Replace);
    assert_eq!(renamed.map(drop).expect_err("it has no place").kind(), ErrorKind::Corrupt);
}
