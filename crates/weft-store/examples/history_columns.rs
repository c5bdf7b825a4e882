//! What the columns cost that history will need (`since`, the empty digests), while history is off:
//! the same rows put into the tables as they are and into tables without them, in turn.
//!
//! `cargo run --release -p weft-store --example history_columns -- DIRECTORY`; the directory is
//! used for databases that are deleted at the end.

use rusqlite::{Connection, Result, params};
use std::path::Path;
use std::time::{Duration, Instant};
use weft_store::{BlockHome, Timestamp, VolumeOptions, sqlite};

const ROUNDS: i64 = 9;
const ROWS: i64 = 50_000;

/// Tables, their columns without those for history, and the columns for history.
const TABLES: [(&str, &str, &[&str]); 3] = [
    (
        "fileatt",
        "ino, generation, mode, uid, gid, nlink, rdev, size, allocated, atime, mtime, ctime, btime, parent, xattrs",
        &["since", "digest"],
    ),
    ("naming", "parent, name, ino, kind, cookie", &["since"]),
    ("extents", "ino, start, length, block", &["since"]),
];

fn main() -> Result<()> {
    let place = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    let directory = tempfile::tempdir_in(place).expect("a directory");
    let with = open(&directory.path().join("with"))?;
    let without = open(&directory.path().join("without"))?;
    for view in ["files", "files_at", "history", "name_versions", "commit_list", "snapshots"] {
        without.execute_batch(&format!("DROP VIEW IF EXISTS {view}"))?;
    }
    for (table, _, columns) in TABLES {
        for column in columns {
            without.execute_batch(&format!("ALTER TABLE {table} DROP COLUMN {column}"))?;
        }
    }
    let mut times: [Vec<Duration>; 2] = Default::default();
    for round in 0..ROUNDS {
        times[0].push(commit(&with, round, true)?);
        times[1].push(commit(&without, round, false)?);
    }
    let [with_time, without_time] = times.map(|mut times| {
        times.sort();
        times[times.len() / 2].as_secs_f64()
    });
    println!("median of {ROUNDS} commits of {ROWS} inodes, names and extents each, in turn");
    println!("  time: {with_time:.3} s with the columns, {without_time:.3} s without: {:.3}", with_time / without_time);
    let (with, without) = (bytes(&with)?, bytes(&without)?);
    println!("  size: {with} bytes with the columns, {without} without: {:.3}", with as f64 / without as f64);
    Ok(())
}

fn open(path: &Path) -> Result<Connection> {
    let options = VolumeOptions { home: BlockHome::Database, ..VolumeOptions::default() };
    sqlite::create(path, &options, (0, 0), Timestamp(0)).expect("a volume");
    let connection = Connection::open(path)?;
    connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;")?;
    Ok(connection)
}

fn commit(connection: &Connection, round: i64, since: bool) -> Result<Duration> {
    let [inode, name, extent] = TABLES.map(|(table, columns, _)| {
        let (more, value) = if since { (", since", ", 7") } else { ("", "") };
        let places = (1..=columns.split(", ").count()).map(|i| format!("?{i}")).collect::<Vec<_>>().join(", ");
        format!("INSERT INTO {table} ({columns}{more}) VALUES ({places}{value})")
    });
    let start = Instant::now();
    let transaction = connection.unchecked_transaction()?;
    {
        let mut inodes = connection.prepare_cached(&inode)?;
        let mut names = connection.prepare_cached(&name)?;
        let mut extents = connection.prepare_cached(&extent)?;
        for ino in (0..ROWS).map(|row| 1000 + round * ROWS + row) {
            let now = 1_700_000_000_000_000_000 + ino;
            inodes.execute(params![ino, 5, 0o100644, 0, 0, 1, 0, 4096, 4096, now, now, now, now, 0, 0])?;
            names.execute(params![1, format!("file{ino:07}").as_bytes(), ino, 0o100000, ino])?;
            extents.execute(params![ino, 0, 65536, ino])?;
        }
    }
    transaction.commit()?;
    Ok(start.elapsed())
}

fn bytes(connection: &Connection) -> Result<i64> {
    connection.query_row("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size", [], |row| row.get(0))
}
