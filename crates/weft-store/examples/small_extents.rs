//! Rows of extents: what they take and cost where extents are of whole blocks and where they are
//! of 4 KiB, and what versions of them do.
//!
//! `cargo run --release -p weft-store --example small_extents -- DIRECTORY`; the directory is used
//! for databases that are deleted at the end.

use rusqlite::Connection;
use std::path::Path;
use std::time::{Duration, Instant};
use weft_block::Rope;
use weft_store::sqlite::SqliteStore;
use weft_store::*;

/// Extents of a file.
const EXTENTS: u64 = 1_000_000;

/// Commits that replace extents, and extents of each.
const COMMITS: u64 = 2000;
const REPLACED: u64 = 500;

/// Places that they are replaced at.
const PLACES: u64 = 100_000;

/// Commits that are forgotten.
const FORGOTTEN: u64 = 99;

const FILE: Ino = Ino(16);

fn main() -> Result<()> {
    let place = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    let directory = tempfile::tempdir_in(&place).expect("a directory");
    tables(directory.path()).expect("a table");
    for length in [64 << 10, 4 << 10] {
        println!("extents of {} KiB", length >> 10);
        versions(&directory.path().join(format!("{length}")), length)?;
    }
    Ok(())
}

/// The tables of extents by the index of a block, as format 7 has them, and by bytes.
fn tables(directory: &Path) -> rusqlite::Result<()> {
    for length in [64_u64 << 10, 4 << 10] {
        for (kind, columns, key) in
            [("index", "idx INTEGER", "idx"), ("byte", "start INTEGER, length INTEGER", "start")]
        {
            let connection = Connection::open(directory.join(format!("{kind}-{length}")))?;
            connection.execute_batch(&format!(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; CREATE TABLE extents (ino INTEGER, {columns}, \
                 block INTEGER, since INTEGER, sum INTEGER, PRIMARY KEY (ino, {key})) WITHOUT ROWID"
            ))?;
            let start = Instant::now();
            put(&connection, (kind == "byte").then_some(length))?;
            let seconds = start.elapsed().as_secs_f64();
            let bytes = connection.query_row(BYTES, [], |row| row.get::<_, i64>(0))?;
            println!("{EXTENTS} rows by {kind}, {} KiB each: {bytes} bytes, {seconds:.3} s", length >> 10);
        }
    }
    Ok(())
}

/// The bytes of a database.
const BYTES: &str = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size";

/// Puts rows of extents of `length` bytes, or by their index.
fn put(connection: &Connection, length: Option<u64>) -> rusqlite::Result<()> {
    connection.execute_batch("BEGIN")?;
    let places = if length.is_some() { "?2, ?3" } else { "?2" };
    let mut insert = connection.prepare(&format!("INSERT INTO extents VALUES (?1, {places}, ?4, 7, ?5)"))?;
    let number = |number: u64| i64::try_from(number).expect("below 2^63");
    for at in 0..EXTENTS {
        insert.raw_bind_parameter(1, number(FILE.0))?;
        insert.raw_bind_parameter(2, number(length.map_or(at, |length| at * length)))?;
        length.map_or(Ok(()), |length| insert.raw_bind_parameter(3, number(length)))?;
        insert.raw_bind_parameter(4, number(at + 1))?;
        // Sums look random.
        insert.raw_bind_parameter(5, number((at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 2))?;
        insert.raw_execute()?;
    }
    drop(insert);
    connection.execute_batch("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)")
}

fn next(store: &dyn Store) -> Result<Batch> {
    let header = store.header()?;
    let time = Timestamp(i64::try_from(header.commit.0).expect("few commits"));
    Ok(Batch { commit: header.commit.next(), time, counters: header.counters, ..Batch::default() })
}

/// Has commits replace extents of `length` bytes, all of which are one block, in a volume that
/// keeps history; then looks at a past commit, and has some commits forgotten.
fn versions(path: &Path, length: u32) -> Result<()> {
    let options = VolumeOptions { home: BlockHome::Database, digests: false, ..VolumeOptions::default() };
    sqlite::create(path, &options, (0, 0), Timestamp(0))?;
    let store = sqlite::open(path)?.store;
    let (mut batch, id) = (next(&*store)?, BlockId(1));
    let new = NewBlock::new(id, FILE, Rope::from(vec![1; 4096]), 0);
    let block = new.at(Place::Database);
    let size = PLACES * u64::from(length);
    let row = InodeRow { ino: FILE, kind: Kind::File, size, parent: Ino(0), ..InodeRow::new_root(0, 0, Timestamp(0)) };
    batch.counters.next_block = 2;
    batch.history.push(HistoryChange::Keep("all forever".into(), HistoryFor::All));
    batch.blocks.push(new);
    batch.inodes.push(InodeChange::Put(row));
    let span = |place: u64| Span { start: place * u64::from(length), length };
    batch.extents = (0..PLACES).map(|place| ExtentChange::Put { ino: FILE, span: span(place), block }).collect();
    store.apply(&batch, Durability::Eventual)?;
    let database = |store: &SqliteStore| -> Result<u64> {
        store.close()?;
        Ok(std::fs::metadata(path).map_or(0, |metadata| metadata.len()))
    };
    let before = database(&store)?;
    let start = Instant::now();
    for commit in 0..COMMITS {
        let mut batch = next(&*store)?;
        let places = (0..REPLACED).map(|at| (commit * REPLACED + at) * 7919 % PLACES);
        batch.extents = places.map(|place| ExtentChange::Put { ino: FILE, span: span(place), block }).collect();
        store.apply(&batch, Durability::Eventual)?;
    }
    let replaced = start.elapsed();
    let after = database(&store)?;
    let count = COMMITS * REPLACED;
    told(&format!("{count} versions over {COMMITS} commits"), replaced);
    println!("  {:.1} bytes a version", (after - before) as f64 / count as f64);
    let last = store.header()?.commit;
    for commit in [CommitNo(3), CommitNo(last.0 / 2), last] {
        let start = Instant::now();
        let found = store.extents_at(commit, FILE, 0..span(1000).start)?.len();
        told(&format!("{found} extents as of commit {}", commit.0), start.elapsed());
    }
    let mut batch = next(&*store)?;
    let first = CommitNo(2 + FORGOTTEN);
    batch.history.extend([HistoryChange::First(first), HistoryChange::Forget(usize::MAX >> 1)]);
    let start = Instant::now();
    store.apply(&batch, Durability::Eventual)?;
    told(&format!("forgetting {FORGOTTEN} commits"), start.elapsed());
    Ok(())
}

fn told(what: &str, time: Duration) {
    println!("  {what}: {:.3} s", time.as_secs_f64());
}
