//! Kept digests that are damaged.

use crate::check::{database, look};
use crate::contract::{new_volume, options};
use crate::sample::{NAMES, SPARSE, fill_large, fill_short};
use std::sync::Arc;
use weft_block::Rope;
use weft_store::sqlite::{self, open};
use weft_store::*;
use weft_store::{OpenOptions, postgres};
use weft_testkit::Cluster;

/// A check reports any flipped bit of stored digests, and its place; after its repair all is as
/// before.
#[test]
fn a_flipped_bit_of_what_is_kept_is_found_and_put_right() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = new_volume(&directory, BlockHome::Segments);
    fill_large(&*open(&path).expect("opened").store);
    let database = database(&path);
    let all = "SELECT * FROM (SELECT 'i', CAST(ino AS TEXT), hex(digest) FROM fileatt \
               UNION ALL SELECT 'n', parent || hex(name), hex(digest) FROM naming \
               UNION ALL SELECT 'b', parent || hex(prefix), hex(children) FROM branches \
               UNION ALL SELECT 'o', ino || '.' || level || '.' || idx, hex(children) FROM nodes) ORDER BY 1, 2";
    let kept = || -> Vec<(String, String, String)> {
        let connection = rusqlite::Connection::open(&database).expect("opened");
        let mut statement = connection.prepare(all).expect("prepared");
        let rows = statement.query_map((), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
        rows.and_then(Iterator::collect).expect("listed")
    };
    let damage = |repair| {
        let findings = look(&path, repair).into_iter().filter(|finding| finding.outcome != Outcome::Note);
        findings.map(|finding| finding.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(damage(Repair::No), Vec::<String>::new());
    let right = kept();
    assert!(["i", "n", "b", "o"].iter().all(|table| right.iter().any(|(kind, ..)| kind == table)));
    let of = |ino: u64| format!("ino = {ino}");
    let last = "number = (SELECT number FROM volume)";
    let flips = [
        ("fileatt", "digest", of(SPARSE), "/sparse: its digest"),
        ("fileatt", "digest", of(NAMES), "/names: its digest"),
        ("fileatt", "digest", of(Ino::ROOT.0), "/: its digest"),
        ("naming", "digest", "name = CAST('file7' AS BLOB)".into(), "/names: the hash of an entry"),
        ("branches", "children", "prefix = CAST('file1' AS BLOB)".into(), "/names: its digest"),
        ("branches", "children", "prefix = x''".into(), "/names: its digest"),
        ("nodes", "children", "level = 1 AND idx = 0".into(), "/sparse: its digest"),
        ("nodes", "children", "level = 2".into(), "/sparse: its digest"),
        ("commits", "root_digest", last.into(), "the row of commit"),
        ("commits", "previous_digest", last.into(), "the row of commit"),
    ];
    for (at, (table, column, which, expected)) in flips.iter().enumerate() {
        let connection = rusqlite::Connection::open(&database).expect("opened");
        let read = format!("SELECT {column} FROM {table} WHERE {which}");
        let before: Vec<u8> = connection.query_row(&read, (), |row| row.get(0)).expect("there");
        let mut bytes = before.clone();
        let byte = (at * 31 + 17) % bytes.len();
        bytes[byte] ^= 1 << (at % 8);
        let write = format!("UPDATE {table} SET {column} = ?1 WHERE {which}");
        assert_eq!(connection.execute(&write, (&bytes,)).expect("flipped"), 1);
        drop(connection);
        let found = damage(Repair::No);
        assert!(found.iter().any(|what| what.contains(expected)), "{table}: {found:?}");
        if *table == "commits" {
            // What was proved by a commit cannot be made up afterwards.
            let connection = rusqlite::Connection::open(&database).expect("opened");
            connection.execute(&write, (&before,)).expect("set back");
        } else {
            assert!(!damage(Repair::Yes).is_empty());
        }
        assert_eq!(damage(Repair::No), Vec::<String>::new());
        assert!(kept() == right, "{table}");
    }
}

/// A volume that can be edited by SQL, opened, and checked for findings of damage.
struct Edited<'a> {
    edit: &'a dyn Fn(&str),
    open: &'a dyn Fn() -> Arc<dyn Store>,
    damage: &'a dyn Fn() -> Vec<String>,
}

impl Edited<'_> {
    /// Writes block `index` of the file of many blocks. Returns the digests of that file and of the
    /// root.
    fn write(&self, index: u64, byte: u8) -> [Option<weft_digest::Digest>; 2] {
        let store = (self.open)();
        let header = store.header().expect("readable");
        let id = BlockId(header.counters.next_block);
        let length = if index == 5000 { 100 } else { 65536 };
        let new = NewBlock::new(id, Ino(SPARSE), Rope::from(vec![byte; length]), index * 65536);
        let batch = Batch {
            commit: header.commit.next(),
            counters: Counters { next_block: id.0 + 1, ..header.counters },
            extents: vec![ExtentChange::Put {
                ino: Ino(SPARSE),
                span: Span::of_block(index, 65536),
                block: new.at(Place::Database),
            }],
            blocks: vec![new],
            inodes: vec![InodeChange::Put(store.inodes(Ino(SPARSE), 1).expect("readable").remove(0))],
            ..Batch::default()
        };
        store.apply(&batch, Durability::Durable).expect("applied");
        [SPARSE, 1].map(|ino| store.digest(Ino(ino)).expect("readable"))
    }

    /// The tree of no entries is 32 zero bytes, which also stand for a hash that nobody knows.
    fn tells_of_an_empty_directory(&self) {
        let store = (self.open)();
        let header = store.header().expect("readable");
        let row = store.inodes(Ino(NAMES), 1).expect("readable").remove(0);
        let names = (0..200).map(|number| NameChange::Remove {
            parent: Ino(NAMES),
            name: Name::new(format!("file{number}").as_bytes()).expect("a name"),
        });
        let batch = Batch {
            commit: header.commit.next(),
            counters: header.counters,
            names: names.collect(),
            inodes: vec![InodeChange::Put(row)],
            ..Batch::default()
        };
        store.apply(&batch, Durability::Durable).expect("applied");
        assert_eq!(store.digest(Ino(NAMES)).expect("readable"), Some(weft_digest::directory([])));
    }

    fn is_told_only_where_it_follows(&self) {
        assert!(self.write(0, 1).iter().all(Option::is_some));
        // The block beside the one that is written next.
        (self.edit)("UPDATE blocks SET base = base + 1 WHERE base = 458752");
        assert_eq!(self.write(0, 2), [None; 2], "nobody knows");
        assert_eq!(self.write(5000, 3), [None; 2], "nor by what was kept before");
        (self.edit)("UPDATE blocks SET base = base - 1 WHERE base = 458753");
        let [file, root] = self.write(5000, 4);
        assert!(file.is_some() && root.is_some());
        assert_eq!((self.damage)(), Vec::<String>::new());
        for (at, gone) in
            ["level = 1 AND idx = 0", "level = 1 AND idx = 1", "level = 2", "level > 0"].iter().enumerate()
        {
            (self.edit)(&format!("DELETE FROM nodes WHERE {gone}"));
            for index in [0, 5000] {
                let told = self.write(index, u8::try_from(at).expect("few") + 10);
                assert!(told.iter().all(Option::is_some), "{gone}");
            }
            assert_eq!((self.damage)(), Vec::<String>::new(), "{gone}");
        }
        self.tells_of_an_empty_directory();
    }
}

/// The stored tree of a file is not believed once the file changed while a part of it was damaged.
#[test]
fn no_digest_is_made_of_what_is_stale_or_gone() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = new_volume(&directory, BlockHome::Database);
    fill_large(&*open(&path).expect("opened").store);
    let edit = |statement: &str| {
        let connection = rusqlite::Connection::open(database(&path)).expect("opened");
        connection.execute_batch(statement).expect("edited");
    };
    let damage = || damage(look(&path, Repair::No));
    let open = || -> Arc<dyn Store> { open(&path).expect("opened").store };
    Edited { edit: &edit, open: &open, damage: &damage }.is_told_only_where_it_follows();
}

#[test]
fn no_digest_is_made_of_what_is_stale_or_gone_in_postgresql() {
    let cluster = Cluster::shared();
    let address = cluster.address();
    postgres::create(&address, &options(BlockHome::Database), (0, 0), Timestamp(0)).expect("made");
    let open = || -> Arc<dyn Store> { postgres::open(&address, OpenOptions::default()).expect("opened") };
    fill_large(&*open());
    let schema = address.schema().to_owned();
    let edit = |statement: &str| drop(cluster.run(&format!("SET search_path TO {schema}; {statement}")));
    let check = CheckOptions { repair: Repair::No, read_data: false };
    let damage = || damage(postgres::check(&address, check, &mut |_| {}).expect("checked"));
    Edited { edit: &edit, open: &open, damage: &damage }.is_told_only_where_it_follows();
}

/// Nodes over blocks that a check would have to read, to tell what they should be.
struct Short<'a> {
    edit: &'a dyn Fn(&str),
    open: &'a dyn Fn() -> Arc<dyn Store>,
    check: &'a dyn Fn(CheckOptions) -> Vec<Finding>,
}

impl Short<'_> {
    fn are_checked_and_made_anew(&self) {
        fill_short(&*(self.open)());
        let digest = || (self.open)().digest(Ino(SPARSE)).expect("readable").expect("kept");
        let before = digest();
        let found = |repair, read_data| damage((self.check)(CheckOptions { repair, read_data }));
        assert_eq!(found(Repair::No, false), Vec::<String>::new());
        let damages = [
            "DELETE FROM nodes",
            "DELETE FROM nodes WHERE level = 1 AND idx = 0",
            "DELETE FROM nodes WHERE level = 2",
            "UPDATE nodes SET sum = sum + 1 WHERE level = 1 AND idx = 1",
        ];
        for (damage, read_data) in damages.into_iter().zip([false, true].into_iter().cycle()) {
            (self.edit)(damage);
            for read_data in [false, true] {
                let told = found(Repair::No, read_data);
                assert!(told.len() == 1 && told[0].contains("/sparse: its digest is kept, but"), "{damage}: {told:?}");
            }
            let told = found(Repair::Yes, read_data);
            assert!(told.len() == 1 && told[0].ends_with("(repaired)"), "{damage}: {told:?}");
            for read_data in [false, true] {
                assert_eq!(found(Repair::No, read_data), Vec::<String>::new(), "{damage}");
            }
            assert_eq!(digest(), before, "{damage}");
        }
    }
}

#[test]
fn nodes_over_short_blocks_are_checked_without_reading_these_and_made_anew() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("volume");
    let volume = VolumeOptions { block_size: 4096, inline_max: 4096, ..options(BlockHome::Segments) };
    sqlite::create(&path, &volume, (0, 0), Timestamp(0)).expect("made");
    let edit = |statement: &str| {
        let connection = rusqlite::Connection::open(database(&path)).expect("opened");
        connection.execute_batch(statement).expect("edited");
    };
    let open = || -> Arc<dyn Store> { open(&path).expect("opened").store };
    let check = |options| sqlite::check(&path, options, &mut |_| {}).expect("checked");
    Short { edit: &edit, open: &open, check: &check }.are_checked_and_made_anew();
}

#[test]
fn nodes_over_short_blocks_are_made_anew_in_postgresql() {
    let cluster = Cluster::shared();
    let address = cluster.address();
    let volume = VolumeOptions { block_size: 4096, inline_max: 4096, ..options(BlockHome::Database) };
    postgres::create(&address, &volume, (0, 0), Timestamp(0)).expect("made");
    let schema = address.schema().to_owned();
    let edit = |statement: &str| drop(cluster.run(&format!("SET search_path TO {schema}; {statement}")));
    let open = || -> Arc<dyn Store> { postgres::open(&address, OpenOptions::default()).expect("opened") };
    let check = |options| postgres::check(&address, options, &mut |_| {}).expect("checked");
    Short { edit: &edit, open: &open, check: &check }.are_checked_and_made_anew();
}

fn damage(findings: Vec<Finding>) -> Vec<String> {
    let findings = findings.into_iter().filter(|finding| finding.outcome != Outcome::Note);
    findings.map(|finding| finding.to_string()).collect()
}
