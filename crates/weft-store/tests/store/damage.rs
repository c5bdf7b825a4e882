//! Volumes with damaged files: errors, never a panic, never wrong bytes.

use crate::check::{database, sample_volume};
use crate::compare::{damaged_state, state};
use crate::contract::{HOMES, config};
use proptest::prelude::*;
use rusqlite::types::Value;
use std::fs;
use std::path::Path;
use weft_store::ErrorKind;
use weft_store::sqlite::{check, open};
use weft_store::{CheckOptions, Outcome, Repair};

/// Does all that can be done with a volume. What it gives back does not matter: `state` itself
/// holds that no block has other bytes than were written.
fn use_all(path: &Path) {
    if let Ok(volume) = open(path) {
        let _ = damaged_state(&*volume.store);
    }
    for repair in [Repair::No, Repair::Yes] {
        if let Err(error) = check(path, CheckOptions { repair, read_data: true }, &mut |_| {}) {
            assert_ne!(error.kind(), ErrorKind::Bug, "{error}");
        }
    }
    if let Ok(volume) = open(path) {
        let _ = damaged_state(&*volume.store);
    }
}

/// Removes row `n` (modulo their number) of `table`.
fn remove_row(path: &Path, table: &str, n: usize) {
    let connection = rusqlite::Connection::open(database(path)).expect("opened");
    let keys = match table {
        "naming" => "parent || '/' || hex(name)",
        "extents" => "ino || '/' || start",
        "xattr" => "ino || '/' || hex(name)",
        "fileatt" => "ino",
        _ => "id",
    };
    let all = format!("SELECT {keys} FROM {table} ORDER BY 1");
    let all: Vec<rusqlite::types::Value> = connection
        .prepare(&all)
        .and_then(|mut statement| statement.query_map((), |row| row.get(0))?.collect())
        .expect("listed");
    if !all.is_empty() {
        let remove = format!("DELETE FROM {table} WHERE {keys} = ?1");
        connection.execute(&remove, (&all[n % all.len()],)).expect("removed");
    }
}

/// Puts `value` into column `column` of row `n` of `table` (modulo their numbers), if the table
/// takes it.
fn edit_row(path: &Path, table: &str, (n, column): (usize, usize), value: &Value) {
    let connection = rusqlite::Connection::open(database(path)).expect("opened");
    let listed = |query: &str| -> Vec<String> {
        let mut statement = connection.prepare(query).expect("prepared");
        statement.query_map((), |row| row.get(0)).and_then(Iterator::collect).expect("listed")
    };
    let columns = listed(&format!("SELECT name FROM pragma_table_info('{table}')"));
    let keys = listed(&format!("SELECT name FROM pragma_table_info('{table}') WHERE pk > 0"));
    let key = keys.iter().map(|key| format!("quote({key})")).collect::<Vec<_>>().join(" || '/' || ");
    let rows = listed(&format!("SELECT {key} FROM {table} ORDER BY 1"));
    if !rows.is_empty() {
        let column = &columns[column % columns.len()];
        let edit = format!("UPDATE OR IGNORE {table} SET {column} = ?1 WHERE {key} = ?2");
        // Keys and columns that may not be NULL refuse some values.
        let _ = connection.execute(&edit, (value, &rows[n % rows.len()]));
    }
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        prop_oneof![Just(-1), Just(0), Just(i64::MAX), any::<i64>(), 0..100i64].prop_map(Value::Integer),
        any::<f64>().prop_map(Value::Real),
        ".{0,8}".prop_map(Value::Text),
        proptest::collection::vec(any::<u8>(), 0..40).prop_map(Value::Blob),
    ]
}

const TABLES: [&str; 7] = ["fileatt", "naming", "extents", "blocks", "block_bytes", "xattr", "segments"];

const EDITED: [&str; 10] =
    ["fileatt", "naming", "extents", "blocks", "block_bytes", "xattr", "segments", "freed", "commits", "volume"];

proptest! {
    #![proptest_config(config(64))]
    #[test]
    fn flipped_bits_give_errors_and_no_panic(
        flips in proptest::collection::vec((any::<prop::sample::Index>(), 0..8u8), 1..20),
        home in prop::sample::select(&HOMES),
    ) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = sample_volume(&directory, home);
        let mut bytes = fs::read(database(&path)).expect("read");
        for (at, bit) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        fs::write(database(&path), bytes).expect("written");
        use_all(&path);
    }

    #[test]
    fn edited_columns_give_errors_and_no_panic(
        edits in proptest::collection::vec((prop::sample::select(&EDITED), any::<(usize, usize)>(), value()), 1..4),
        home in prop::sample::select(&HOMES),
    ) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = sample_volume(&directory, home);
        for (table, place, value) in &edits {
            edit_row(&path, table, *place, value);
        }
        use_all(&path);
    }

    #[test]
    fn truncated_files_give_errors_and_no_panic(
        to: prop::sample::Index,
        of_segment: bool,
        home in prop::sample::select(&HOMES),
    ) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = sample_volume(&directory, home);
        let segment = path.join("segments/00000001.seg");
        let file = if of_segment && segment.exists() { segment } else { database(&path) };
        let length = usize::try_from(fs::metadata(&file).expect("there").len()).expect("small");
        let file = fs::OpenOptions::new().write(true).open(&file).expect("opened");
        file.set_len(to.index(length) as u64).expect("cut");
        use_all(&path);
    }

    #[test]
    fn removed_rows_are_found_and_one_repair_is_enough(
        rows in proptest::collection::vec((prop::sample::select(&TABLES), any::<usize>()), 1..6),
        home in prop::sample::select(&HOMES),
    ) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = sample_volume(&directory, home);
        for (table, n) in &rows {
            remove_row(&path, table, *n);
        }
        for repair in [Repair::Yes, Repair::Discard] {
            let repair = || check(&path, CheckOptions { repair, read_data: true }, &mut |_| {});
            repair().expect("checked");
            let again = repair().expect("checked");
            let again: Vec<_> = again.iter().filter(|finding| finding.outcome == Outcome::Repaired).collect();
            prop_assert!(again.is_empty(), "left over: {:?}", again);
        }
        if let Ok(volume) = open(&path) {
            let _ = state(&*volume.store);
        }
    }
}
