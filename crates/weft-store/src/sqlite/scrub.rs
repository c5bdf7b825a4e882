//! Scrubbing: all blocks are read and verified, and all that is kept of digests compared with what
//! it follows from.
//!
//! Nothing is held meanwhile: the volume may be mounted and busy. Rows are read a few at a time; a
//! block that is not what it should be counts only if its row is still there afterwards, for space
//! of deleted blocks is given back.

mod files;

use super::blocks::{bytes_at_place, run_of};
use super::check::{Offender, path_of, survey};
use super::damaged_bytes::{DamagedBytes, DamagedPast, LOST, PAST_END};
use super::digests::Rows;
use super::lost_segments;
use super::open::{Beside, read_header};
use super::read::{self, sql};
use super::scan::Scan;
use super::segments::{PAGE as PAGE_BYTES, Segments};
use super::shape;
use super::waiting;
use crate::digests::{Digester, ZeroValues};
use crate::error::{Error, ErrorKind, Result};
use crate::finding::{Finding, Outcome, Progress};
use crate::overlay::Snapshot;
use crate::row::{BlockId, BlockRef, Ino, Place};
use crate::store::path_to;
use parking_lot::Mutex;
use rusqlite::Connection;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Blocks listed at once.
const PAGE: usize = 4096;

/// Reason for blocks that were read.
const OTHER_BYTES: &str = "has other bytes than were written";

/// Most findings about rows that are reported.
const FINDINGS_MAX: usize = 1000;

/// Runs of blocks read at once: more than there are processors, for most of them wait for the disk.
const THREADS: usize = 8;

fn failed(source: rusqlite::Error) -> Error {
    Error::Sqlite { what: "cannot read the database", source }
}

/// Scrubs the volume at `path`; tells what is damaged. Errors: `Unusable`, `Unavailable`, and what
/// keeps the scrub from going on.
pub fn scrub(path: &Path, progress: &mut dyn FnMut(Progress)) -> Result<Vec<Finding>> {
    let volume = Beside::open(path)?;
    let finding = |what: String| Finding::damage(what);
    // Before this process has the database open.
    if let Some(what) = files::foreign_wal(&volume)? {
        // What is read through it is of another state.
        return Ok(vec![finding(what)]);
    }
    let list = files::free_pages(&volume)?;
    // What keeps it from being told may be what the shape of the tables tells.
    let waiting = waiting::look(&volume);
    let connection = volume.connect()?;
    let (mut shaped, is_lacking) = shape::findings(&connection)?;
    shaped.retain(|finding| finding.outcome == Outcome::Damaged);
    shaped.extend(list.map(finding));
    if is_lacking {
        return Ok(shaped);
    }
    let lost = waiting?.lost;
    let segments = volume.segments();
    let block_size = u64::from(read_header(&connection)?.options.block_size);
    let scrub = Scrub { connection, segments, volume: &volume, block_size };
    let damaged = scrub.blocks(progress)?;
    let mut findings = scrub.rows()?;
    let are_rows_whole = findings.is_empty();
    findings.append(&mut shaped);
    if !damaged.is_empty() {
        findings.extend(scrub.lost_segments()?);
    }
    findings.extend(scrub.name(&damaged)?);
    progress(Progress { step: "digests", done: 0, total: 1 });
    if are_rows_whole {
        findings.extend(scrub.digests(progress)?);
    }
    progress(Progress { step: "digests", done: 1, total: 1 });
    findings.extend(lost.map(finding));
    Ok(findings)
}

struct Scrub<'a> {
    connection: Connection,
    segments: Option<Segments>,
    volume: &'a Beside,
    block_size: u64,
}

impl Scrub<'_> {
    /// Reads and verifies all blocks; tells those that are damaged.
    fn blocks(&self, progress: &mut dyn FnMut(Progress)) -> Result<BTreeSet<BlockId>> {
        let total = "SELECT coalesce(sum(length), 0) FROM blocks";
        let total = self.connection.query_row(total, (), |row| read::unsigned(row, 0)).map_err(failed)?;
        let (mut last, mut done, mut damaged) = (BlockId(0), 0, BTreeSet::new());
        loop {
            progress(Progress { step: "data", done, total });
            let (page, unreadable) = self.page(last, PAGE)?;
            let Some(end) = page.last().map(|block| block.id).max(unreadable.last().copied()) else {
                return Ok(damaged);
            };
            last = end;
            damaged.extend(unreadable);
            for block in verify(self.volume, self.segments.as_ref(), &page)? {
                // Gone meanwhile is not damaged.
                if self.block(block.id)? == Some(block) {
                    damaged.insert(block.id);
                }
            }
            done += page.iter().map(|block| u64::from(block.length)).sum::<u64>();
        }
    }

    /// The next `limit` blocks after `last`, and those of them whose rows cannot be read.
    fn page(&self, last: BlockId, limit: usize) -> Result<(Vec<BlockRef>, Vec<BlockId>)> {
        let next = "SELECT id, length, base, value, segment, position FROM blocks WHERE id > ?1 ORDER BY id LIMIT ?2";
        let mut statement = self.connection.prepare_cached(next).map_err(failed)?;
        let mut rows = statement.query((sql(last.0), sql(limit as u64))).map_err(failed)?;
        let (mut page, mut unreadable) = (Vec::new(), Vec::new());
        while let Some(row) = rows.next().map_err(failed)? {
            match read::block_ref(row, 0) {
                Ok(block) if u64::from(block.length) <= self.block_size => page.push(block),
                _ => unreadable.push(BlockId(read::unsigned(row, 0).map_err(failed)?)),
            }
        }
        Ok((page, unreadable))
    }

    fn block(&self, id: BlockId) -> Result<Option<BlockRef>> {
        let (page, unreadable) = self.page(BlockId(id.0 - 1), 1)?;
        let found = page.into_iter().find(|block| block.id == id);
        if unreadable.contains(&id) {
            Err(Error::Corrupt(format!("block {} has a damaged row", id.0)))
        } else {
            Ok(found)
        }
    }

    /// Rows that are damaged or gone, and what else breaks an invariant, as of one commit.
    fn rows(&self) -> Result<Vec<Finding>> {
        self.connection.execute_batch("BEGIN").map_err(failed)?;
        let header = read_header(&self.connection)?;
        let mut findings = Vec::new();
        for Offender { ino, name, what, subject } in survey(&self.connection, &header, FINDINGS_MAX)? {
            let path = ino.map(|ino| path_of(&self.connection, ino, name.as_deref())).transpose()?;
            findings.push(Finding::new(path, what, Outcome::Damaged).about(subject));
        }
        self.connection.execute_batch("COMMIT").map_err(failed)?;
        Ok(findings)
    }

    /// Returns findings that name the files of the damaged blocks.
    fn name(&self, damaged: &BTreeSet<BlockId>) -> Result<Vec<Finding>> {
        let mut found = DamagedBytes::default();
        if damaged.is_empty() {
            return Ok(Vec::new());
        }
        let all = "SELECT ino, start, block FROM extents ORDER BY ino, start";
        let mut statement = self.connection.prepare(all).map_err(failed)?;
        let mut rows = statement.query(()).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            let number = |column| read::unsigned(row, column).map_err(failed);
            let (ino, first, block) = (Ino(number(0)?), number(1)?, BlockId(number(2)?));
            if damaged.contains(&block) {
                let row = self.block(block).ok().flatten();
                let length = row.map_or(self.block_size, |row| u64::from(row.length));
                let why = row.map_or(OTHER_BYTES, |row| self.why(&row));
                found.add(sql(ino.0), sql(first)..sql(first + length), sql(block.0), why.into());
            }
        }
        let mut findings = found.findings(|ino| self.path(Ino(ino.unsigned_abs())))?;
        findings.extend(self.name_in_the_past(damaged)?);
        Ok(findings)
    }

    /// The same of blocks that earlier commits alone have.
    fn name_in_the_past(&self, damaged: &BTreeSet<BlockId>) -> Result<Vec<Finding>> {
        let all = "SELECT ino, since, until, block FROM extents_history \
                   WHERE block NOT IN (SELECT block FROM extents WHERE block IS NOT NULL) ORDER BY ino, since, start";
        let mut statement = self.connection.prepare(all).map_err(failed)?;
        let mut rows = statement.query(()).map_err(failed)?;
        let mut past = DamagedPast::default();
        while let Some(row) = rows.next().map_err(failed)? {
            let number = |column| row.get::<_, i64>(column).map_err(failed);
            let block = number(3)?;
            if damaged.contains(&BlockId(block.unsigned_abs())) {
                let found = self.block(BlockId(block.unsigned_abs())).ok().flatten();
                let why = found.map_or(OTHER_BYTES, |row| self.why(&row));
                past.add(number(0)?, number(1)?..number(2)?, block, why);
            }
        }
        past.findings(&self.connection)
    }

    /// The reason that the bytes of a block are not those that were written.
    fn why(&self, block: &BlockRef) -> &'static str {
        let (Place::Segment { segment, offset }, Some(segments)) = (block.place, &self.segments) else {
            return OTHER_BYTES;
        };
        match segments.size(segment) {
            Ok(size) if offset + u64::from(block.length) > size => PAST_END,
            Err(error) if error.kind() == ErrorKind::Corrupt => LOST,
            Ok(_) | Err(_) => OTHER_BYTES,
        }
    }

    /// Segment files that are lost.
    fn lost_segments(&self) -> Result<Vec<Finding>> {
        let lost = |segments| lost_segments::find_beside_a_mount(&self.connection, segments);
        Ok(lost_segments::findings(self.segments.as_ref().map(lost).transpose()?.unwrap_or_default()))
    }

    /// A path that leads to `ino`; `#` and its number if none does.
    fn path(&self, ino: Ino) -> Result<Vec<u8>> {
        let rows = Rows::of(&self.connection);
        path_to(ino, |ino| rows.names_of(ino))
    }

    /// Kept digests that are wrong. Each page is of one commit; between two pages no transaction
    /// holds back a checkpoint.
    fn digests(&self, progress: &mut dyn FnMut(Progress)) -> Result<Vec<Finding>> {
        if !read_header(&self.connection)?.options.digests {
            return Ok(Vec::new());
        }
        self.connection.execute_batch("BEGIN").map_err(failed)?;
        let digester = Digester::new(Arc::new(ZeroValues::default()));
        let rows = Rows {
            connection: &self.connection,
            segments: self.segments.as_ref(),
            wait: &|| (),
            elsewhere: None,
            keeping: None,
        };
        let scan = Scan { digester: &digester, rows: &rows, block_size: self.block_size };
        let mut findings = Vec::new();
        let total = "SELECT 2 * (SELECT count(*) FROM fileatt) + (SELECT count(*) FROM naming)";
        let total = self.connection.query_row(total, (), |row| read::unsigned(row, 0)).map_err(failed)?;
        let mut done = 0;
        let mut between = |rows| {
            self.connection.execute_batch("COMMIT").map_err(failed)?;
            // Others may add rows meanwhile.
            done = total.min(done + rows);
            progress(Progress { step: "digests", done, total });
            self.connection.execute_batch("BEGIN").map_err(failed)
        };
        for (ino, what) in scan.wrong(true, &mut between)? {
            findings.push(Finding::new(Some(self.path(ino)?), what, Outcome::Damaged));
        }
        self.connection.execute_batch("COMMIT").map_err(failed)?;
        Ok(findings)
    }
}

/// Returns those of `blocks` that are not what they should be, several read at once.
fn verify(volume: &Beside, segments: Option<&Segments>, blocks: &[BlockRef]) -> Result<Vec<BlockRef>> {
    let runs = runs(blocks);
    let (next, wrong, failure) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Mutex::new(None));
    let work = || -> Result<()> {
        let connection = volume.connect()?;
        while let Some(run) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let found = verify_run(segments, run, &connection)?;
            wrong.lock().extend(found);
        }
        Ok(())
    };
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                if let Err(error) = work() {
                    *failure.lock() = Some(error);
                }
            });
        }
    });
    match failure.into_inner() {
        Some(error) => Err(error),
        None => Ok(wrong.into_inner()),
    }
}

fn verify_run(segments: Option<&Segments>, run: &[BlockRef], connection: &Connection) -> Result<Vec<BlockRef>> {
    if let (Place::Segment { segment, offset }, Some(segments)) = (run[0].place, segments) {
        let lengths = run.iter().map(|block| block.length as usize).collect::<Vec<_>>();
        if offset.is_multiple_of(PAGE_BYTES)
            && let Some(read) = segments.read_run(segment, offset, &lengths)
        {
            let wrong = run.iter().zip(read).filter(|(block, bytes)| !block.verify(bytes));
            return Ok(wrong.map(|(block, _)| *block).collect());
        }
    }
    let mut wrong = Vec::new();
    for block in run {
        match bytes_at_place(connection, segments, block) {
            Ok(Some(bytes)) if block.verify(&bytes) => {}
            Ok(_) | Err(Error::Corrupt(_) | Error::Io { .. }) => wrong.push(*block),
            Err(error) => return Err(error),
        }
    }
    Ok(wrong)
}

/// Blocks that lie together, to be read at once.
fn runs(mut blocks: &[BlockRef]) -> Vec<&[BlockRef]> {
    let mut runs = Vec::new();
    while !blocks.is_empty() {
        let (run, rest) = blocks.split_at(run_of(blocks));
        runs.push(run);
        blocks = rest;
    }
    runs
}
