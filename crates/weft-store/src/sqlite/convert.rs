//! Rewriting a volume with the other home for its blocks.
//!
//! The rows are copied by SQLite, the blocks one after another, each verified. The new database
//! calls itself a volume only once it is whole, so that what an interruption leaves is never taken
//! for one.

use super::aside::leave_wal;
use super::blocks::bytes_at_place;
use super::check::{path_of, refuse_damage};
use super::digests::Rows;
use super::extents::put_block;
use super::foreign::Alone;
use super::held::Held;
use super::layout::Layout;
use super::lost_wal;
use super::making::Making;
use super::medium::refuse_read_only;
use super::open::{connect, create, hold, read_header, remove};
use super::read::{self, sql, unsigned};
use super::scan::{OTHER_CONTENT, Scan};
use super::schema::APPLICATION_ID;
use super::segments::{Segments, Tail, taken};
use super::sums;
use crate::batch::NewBlock;
use crate::digests::{Digester, ZeroValues};
use crate::error::{Error, Result};
use crate::finding::Progress;
use crate::log::{IntentLog, needs_log};
use crate::row::{BlockId, BlockRef, Ino, Place, Timestamp};
use crate::store::{BlockHome, Header, VolumeOptions};
use rusqlite::Connection;
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use weft_block::{Block, Rope};

/// Tables copied as they are. `segments` and `freed` tell of the old home only.
const TABLES: [&str; 15] = [
    "volume",
    "commits",
    "fileatt",
    "naming",
    "extents",
    "branches",
    "nodes",
    "xattr",
    "retention",
    "pins",
    "content_history",
    "fileatt_history",
    "naming_history",
    "extents_history",
    "xattr_history",
];

/// Bytes of blocks copied in one transaction.
const CHUNK_BYTES: u64 = 32 << 20;

fn failed(source: rusqlite::Error) -> Error {
    Error::Sqlite { what: "cannot copy the database", source }
}

/// Copies the volume at `path`, which must not be mounted and stays as it is, to `new`, with its
/// blocks at `home`. Every block is verified on the way: `Corrupt` if one is damaged. Leaves
/// nothing behind if it fails.
pub fn convert(path: &Path, new: &Path, home: BlockHome, progress: &mut dyn FnMut(Progress)) -> Result<()> {
    convert_as(&Making::default(), path, new, home, progress)
}

/// Does that, and has `making` know how far it is.
pub(super) fn convert_as(
    making: &Making,
    path: &Path,
    new: &Path,
    home: BlockHome,
    progress: &mut dyn FnMut(Progress),
) -> Result<()> {
    // Of both volumes: the new one is in a directory of the same owner's.
    let (layout, _rights) = Layout::enter(path)?;
    layout.refuse_elsewhere(new)?;
    refuse_read_only(&layout)?;
    let _hold = hold(&layout)?;
    lost_wal::refusal(&layout, &layout)?.map_or(Ok(()), Err)?;
    let alone = Alone::look(&layout);
    let old = connect(&layout.database, 8)?;
    leave_wal(&layout, &old)?;
    let header = read_header(&old)?;
    alone.refuse_foreign(&old, &layout)?;
    refuse_waiting_operations(&layout, &header)?;
    refuse_damage(&old, &header)?;
    refuse_other_content(&old, &layout, &header)?;
    let options = VolumeOptions { home, ..header.options.clone() };
    making.begin(|| create(new, &options, (0, 0), Timestamp(0)))?;
    let target = Layout::of(new, home);
    let copied = hold(&target).and_then(|_hold| {
        let new = connect(&target.database, 32)?;
        copy_rows(&new, &layout, home)?;
        Copy { old, from: Segments::of(&layout), new: &new, progress }.blocks(&target)?;
        let whole = "PRAGMA synchronous = FULL; PRAGMA wal_checkpoint(TRUNCATE)";
        new.execute_batch(whole).map_err(failed)?;
        new.pragma_update(None, "application_id", APPLICATION_ID).map_err(failed)?;
        new.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").map_err(failed)?;
        new.close().map_err(|(_, source)| failed(source))
    });
    if copied.is_err() {
        making.end(|| remove(&target, true));
    }
    copied
}

/// Refuses a volume with operations that were synced but not committed: they are in no row yet.
pub(super) fn refuse_waiting_operations(layout: &Layout, header: &Header) -> Result<()> {
    let unclean = |why: &str| {
        let volume = layout.volume.display();
        Error::Unusable(format!("{volume} was not unmounted cleanly and {why}; mount and unmount it first"))
    };
    let Some(mut log) = IntentLog::read(&layout.log)? else {
        let is_clean = !needs_log(header.counters.epoch);
        return if is_clean { Ok(()) } else { Err(unclean("its intent log is missing")) };
    };
    log.check(header)?;
    if log.records().is_empty() && log.carried().is_empty() {
        return Ok(());
    }
    Err(unclean("has operations in its intent log"))
}

/// Refuses content that is not what its digest says: in the copy it would look as good as any.
fn refuse_other_content(old: &Connection, layout: &Layout, header: &Header) -> Result<()> {
    if !header.options.digests {
        return Ok(());
    }
    let digester = Digester::new(Arc::new(ZeroValues::default()));
    let segments = layout.segments.clone().map(Segments::new_to_read);
    let rows = Rows { connection: old, segments: segments.as_ref(), wait: &|| (), elsewhere: None, keeping: None };
    let scan = Scan { digester: &digester, rows: &rows, block_size: u64::from(header.options.block_size) };
    // The values of blocks are in their rows; each block is verified by them on the way.
    let unlike = scan.contradictions(true)?;
    let Some(ino) = unlike.keys().next() else { return Ok(()) };
    let path = path_of(old, sql(ino.0), None)?;
    Err(Error::Corrupt(format!("{}: {OTHER_CONTENT}", String::from_utf8_lossy(&path))))
}

/// A path as SQLite takes it: its bytes.
struct Bytes<'a>(&'a Path);

impl ToSql for Bytes<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Text(self.0.as_os_str().as_bytes())))
    }
}

fn copy_rows(new: &Connection, old: &Layout, home: BlockHome) -> Result<()> {
    new.pragma_update(None, "application_id", 0).map_err(failed)?;
    let held = Held::at(&old.database)?;
    new.execute("ATTACH DATABASE ?1 AS old", (Bytes(&held.path),)).map_err(failed)?;
    new.execute_batch("BEGIN IMMEDIATE").map_err(failed)?;
    for table in TABLES {
        let copy = format!("DELETE FROM main.{table}; INSERT INTO main.{table} SELECT * FROM old.{table}");
        new.execute_batch(&copy).map_err(failed)?;
    }
    // Both may be used from now on, so they must not be taken for each other. The new one has no
    // log to be opened with.
    let own = (home.name(), crate::uuid::new()?);
    new.execute("UPDATE volume SET home = ?1, uuid = ?2, epoch = epoch + epoch % 2", own).map_err(failed)?;
    sums::VOLUME.seal(new)?;
    new.execute_batch("COMMIT; DETACH DATABASE old").map_err(failed)
}

fn damaged(block: &BlockRef) -> Error {
    Error::Corrupt(format!("block {} is damaged; 'weft check --read-data' tells whose it is", block.id.0))
}

/// Blocks on their way.
struct Copy<'a> {
    old: Connection,
    from: Option<Segments>,
    new: &'a Connection,
    progress: &'a mut dyn FnMut(Progress),
}

impl Copy<'_> {
    fn blocks(&mut self, target: &Layout) -> Result<()> {
        let into = target.segments.clone().map(Segments::new);
        let total = "SELECT count(*) FROM blocks";
        let total = self.old.query_row(total, (), |row| unsigned(row, 0)).map_err(failed)?;
        let (mut last, mut done) = (BlockId(0), 0);
        let mut tail = Tail { segment: 1, length: 0 };
        loop {
            (self.progress)(Progress { step: "blocks", done, total });
            let chunk = self.chunk(last)?;
            let Some((block, _)) = chunk.last() else { return Ok(()) };
            last = block.id;
            done += chunk.len() as u64;
            tail = self.store(&chunk, into.as_ref(), tail)?;
        }
    }

    /// The next blocks after `last`, with how often each is referred to.
    fn chunk(&self, last: BlockId) -> Result<Vec<(NewBlock, i64)>> {
        let next = "SELECT id, length, base, value, segment, position, refs FROM blocks WHERE id > ?1 ORDER BY id";
        let mut statement = self.old.prepare_cached(next).map_err(failed)?;
        let mut rows = statement.query((sql(last.0),)).map_err(failed)?;
        let (mut blocks, mut bytes) = (Vec::new(), 0);
        while bytes < CHUNK_BYTES
            && let Some(row) = rows.next().map_err(failed)?
        {
            let block = read::block_ref(row, 0).map_err(failed)?;
            let refs = row.get(6).map_err(failed)?;
            bytes += u64::from(block.length);
            let bytes = self.content(&block)?;
            if !block.verify(&bytes) {
                return Err(damaged(&block));
            }
            let new = NewBlock::new(block.id, Ino::ROOT, Rope::from(bytes.whole()), block.base);
            blocks.push((new, refs));
        }
        Ok(blocks)
    }

    fn content(&self, block: &BlockRef) -> Result<Block> {
        bytes_at_place(&self.old, self.from.as_ref(), block)?.ok_or_else(|| damaged(block))
    }

    fn store(&self, chunk: &[(NewBlock, i64)], into: Option<&Segments>, tail: Tail) -> Result<Tail> {
        let blocks: Vec<NewBlock> = chunk.iter().map(|(block, _)| block.clone()).collect();
        let (places, tail) = match into {
            Some(segments) => {
                let (places, tail) = Segments::assign(tail, &blocks);
                segments.append(&blocks, &places)?;
                segments.sync(&places)?;
                (places, tail)
            }
            None => (vec![Place::Database; blocks.len()], tail),
        };
        self.new.execute_batch("BEGIN IMMEDIATE").map_err(failed)?;
        let bytes = "INSERT INTO block_bytes (id, bytes) VALUES (?1, ?2)";
        let mut bytes = self.new.prepare_cached(bytes).map_err(failed)?;
        let segment = "INSERT INTO segments (id, length, live, sum) VALUES (?1, ?2, ?3, weft_sum('segments', ?1, ?2, ?3)) \
                       ON CONFLICT (id) DO UPDATE SET length = max(length, excluded.length), live = live + excluded.live, \
                       sum = weft_sum('segments', id, max(length, excluded.length), live + excluded.live)";
        let mut segment_row = self.new.prepare_cached(segment).map_err(failed)?;
        for ((block, refs), place) in chunk.iter().zip(places) {
            let (id, length) = (sql(block.id.0), block.bytes.len() as u64);
            match place {
                Place::Database | Place::File(_) | Place::Own(_) => bytes.execute((id, &block.bytes.contiguous()[..])),
                Place::Segment { segment, offset } => {
                    let end = sql(offset + taken(length));
                    segment_row.execute((segment, end, sql(taken(length))))
                }
            }
            .map_err(failed)?;
            put_block(self.new, &block.at(place), *refs, &block.parts)?;
        }
        self.new.execute_batch("COMMIT; PRAGMA wal_checkpoint(PASSIVE)").map_err(failed)?;
        Ok(tail)
    }
}
