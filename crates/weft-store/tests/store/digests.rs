//! Kept digests that are damaged.

use crate::check::{database, look};
use crate::contract::new_volume;
use crate::sample::{NAMES, SPARSE, fill_large};
use weft_store::sqlite::open;
use weft_store::{BlockHome, Ino};
use weft_store::{Outcome, Repair};

/// Whatever bit of what is kept is flipped, a check says so, and where; after its repair all is as before.
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
