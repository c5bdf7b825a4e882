//! Rules about blocks and segments, and reading all data.

use super::rules::{Rule, rule};
use super::{Checker, Progress, failed};
use crate::Error;
use crate::error::{ErrorKind, Result};
use crate::row::{BlockRef, Place};
use crate::sqlite::blocks::bytes_at_place;
use crate::sqlite::damaged_bytes::{DamagedBytes, DamagedPast, LOST, PAST_END};
use crate::sqlite::lost_segments;
use crate::sqlite::read::{self, sql, unsigned};
use crate::sqlite::segments::Segments;
use crate::store::{BlockHome, Header};

pub(super) const BLOCKS: &[Rule] = &[
    rule(
        "SELECT NULL, NULL, printf('block %d is named %d times, its row says %d', b.id, r.refs, b.refs) \
         FROM blocks b JOIN refs_of r ON r.block = b.id WHERE r.refs <> b.refs",
        &["UPDATE blocks SET refs = (SELECT refs FROM refs_of r WHERE r.block = blocks.id) \
           WHERE id IN (SELECT block FROM refs_of)"],
    ),
    rule(
        "SELECT NULL, NULL, printf('block %d does not lie where the volume keeps its blocks', id) FROM blocks \
         WHERE (segment IS NULL) <> (SELECT home = 'database' FROM volume)",
        &[],
    ),
];

/// Bytes a block takes in a segment: `segments::taken` in SQL.
pub(super) const SEGMENTS: &[Rule] = &[
    rule(
        "SELECT NULL, NULL, printf('block %d lies over the one after it, in segment %d at %d', id, segment, position) \
         FROM (SELECT id, segment, position, length, lead(position) OVER (PARTITION BY segment ORDER BY position) \
         AS next FROM blocks WHERE segment IS NOT NULL) \
         WHERE position + CASE WHEN length < 4096 THEN length ELSE (length + 4095) / 4096 * 4096 END > next",
        &[],
    ),
    rule(
        "SELECT NULL, NULL, printf('segment %d: %d bytes live up to %d, its row says otherwise', u.segment, u.live, u.end) \
         FROM (SELECT segment, sum(CASE WHEN length < 4096 THEN length ELSE (length + 4095) / 4096 * 4096 END) AS live, \
         max(position + length) AS end FROM blocks WHERE segment IS NOT NULL GROUP BY segment) u \
         LEFT JOIN segments s ON s.id = u.segment WHERE s.id IS NULL OR s.live <> u.live OR s.length < u.end",
        &["INSERT INTO segments (id, live, length) \
           SELECT segment, sum(CASE WHEN length < 4096 THEN length ELSE (length + 4095) / 4096 * 4096 END), \
           max(position + CASE WHEN length < 4096 THEN length ELSE (length + 4095) / 4096 * 4096 END) \
           FROM blocks WHERE segment IS NOT NULL GROUP BY segment \
           ON CONFLICT (id) DO UPDATE SET live = excluded.live, length = max(length, excluded.length)"],
    ),
    rule(
        "SELECT NULL, NULL, printf('segment %d holds nothing, its row says %d bytes', id, live) FROM segments \
         WHERE live <> 0 AND id NOT IN (SELECT segment FROM blocks WHERE segment IS NOT NULL)",
        &["UPDATE segments SET live = 0 WHERE id NOT IN (SELECT segment FROM blocks WHERE segment IS NOT NULL)"],
    ),
    rule(
        "SELECT NULL, NULL, printf('space to give back in segment %d at %d belongs to block %d', f.segment, f.position, b.id) \
         FROM freed f JOIN blocks b ON b.segment = f.segment \
         AND b.position < f.position + f.length AND b.position + b.length > f.position",
        &["DELETE FROM freed WHERE EXISTS (SELECT 1 FROM blocks b WHERE b.segment = freed.segment \
           AND b.position < freed.position + freed.length AND b.position + b.length > freed.position)"],
    ),
];

/// Files that name a damaged block. A block that is gone was reported before.
pub(super) const FILES: &str = "SELECT CAST(e.ino AS INTEGER), CAST(e.start AS INTEGER), \
    CAST(e.start + b.length AS INTEGER), CAST(e.block AS INTEGER), bad.why \
    FROM extents e JOIN blocks b ON b.id = e.block JOIN bad ON bad.block = e.block \
    ORDER BY e.ino, e.start";

/// Versions that name a damaged block which no file of the present has.
pub(super) const PAST_FILES: &str = "SELECT CAST(e.ino AS INTEGER), CAST(e.since AS INTEGER), CAST(e.until AS INTEGER), \
    CAST(e.block AS INTEGER), bad.why FROM extents_history e JOIN bad ON bad.block = e.block \
    WHERE e.block NOT IN (SELECT block FROM extents WHERE block IS NOT NULL) ORDER BY e.ino, e.since, e.start";

/// Counts the references to each block.
pub(super) const REFS: &str = "INSERT INTO refs_of SELECT block, count(*) FROM \
    (SELECT block FROM extents UNION ALL SELECT block FROM extents_history) GROUP BY block";

const MISSING_BYTES: &str = "INSERT INTO bad SELECT b.id, CASE WHEN y.id IS NULL THEN 'has no bytes' \
    ELSE 'has another length than its row says' END FROM blocks b LEFT JOIN block_bytes y ON y.id = b.id \
    WHERE b.segment IS NULL AND (y.id IS NULL OR typeof(y.bytes) <> 'blob' OR length(y.bytes) <> b.length)";

/// Blocks verified between two reports of progress.
const REPORTED: u64 = 256;

impl Checker<'_> {
    pub(super) fn blocks(&mut self, header: &Header) -> Result<()> {
        self.connection.execute_batch(REFS).map_err(failed)?;
        self.apply_rules(BLOCKS)?;
        self.parts()?;
        if let Some(elsewhere) = &self.elsewhere {
            for (id, why) in &elsewhere.bad {
                self.connection.execute("INSERT INTO bad VALUES (?1, ?2)", (sql(id.0), *why)).map_err(failed)?;
            }
            return self.files();
        }
        match header.options.home {
            BlockHome::Segments => {
                self.apply_rules(SEGMENTS)?;
                self.segment_files()?;
            }
            BlockHome::Database => self.connection.execute_batch(MISSING_BYTES).map_err(failed)?,
        }
        if self.options.read_data {
            self.read_data()?;
        }
        self.files()
    }

    /// Names the files with damaged blocks.
    fn files(&mut self) -> Result<()> {
        let mut damaged = DamagedBytes::default();
        {
            let mut statement = self.connection.prepare(FILES).map_err(failed)?;
            let mut rows = statement.query(()).map_err(failed)?;
            while let Some(row) = rows.next().map_err(failed)? {
                let number = |column| row.get::<_, i64>(column).map_err(failed);
                damaged.add(number(0)?, number(1)?..number(2)?, number(3)?, row.get(4).map_err(failed)?);
            }
        }
        let findings = damaged.findings(|ino| self.path(ino, None))?;
        self.findings.extend(findings);
        self.past_files()
    }

    /// Damaged blocks that earlier commits alone have.
    fn past_files(&mut self) -> Result<()> {
        let mut damaged = DamagedPast::default();
        {
            let mut statement = self.connection.prepare(PAST_FILES).map_err(failed)?;
            let mut rows = statement.query(()).map_err(failed)?;
            while let Some(row) = rows.next().map_err(failed)? {
                let number = |column| row.get::<_, i64>(column).map_err(failed);
                let why = row.get::<_, String>(4).map_err(failed)?;
                damaged.add(number(0)?, number(1)?..number(2)?, number(3)?, &why);
            }
        }
        let findings = damaged.findings(&self.connection)?;
        self.findings.extend(findings);
        Ok(())
    }

    /// Segment files that are lost, and blocks past the end of their segment's file.
    fn segment_files(&mut self) -> Result<()> {
        let Some(segments) = self.segments() else { return Ok(()) };
        self.segment_directory()?;
        if segments.directory().is_dir() {
            self.findings.extend(lost_segments::findings(lost_segments::find(&self.connection, &segments)?));
        }
        let used = "SELECT DISTINCT segment FROM blocks WHERE segment IS NOT NULL";
        let mut statement = self.connection.prepare(used).map_err(failed)?;
        let used = statement.query_map((), |row| row.get::<_, u32>(0)).map_err(failed)?;
        for segment in used.collect::<rusqlite::Result<Vec<_>>>().map_err(failed)? {
            let (why, size) = match segments.size(segment) {
                Ok(size) => (PAST_END, size),
                Err(error) if error.kind() == ErrorKind::Corrupt => (LOST, 0),
                Err(error) => return Err(error),
            };
            let statement = "INSERT INTO bad SELECT id, ?3 FROM blocks WHERE segment = ?1 AND position + length > ?2";
            self.connection.execute(statement, (segment, sql(size), why)).map_err(failed)?;
        }
        Ok(())
    }

    /// A directory of segments that is not there although rows name some.
    fn segment_directory(&mut self) -> Result<()> {
        let Some(directory) = self.layout.segments.clone().filter(|directory| !directory.is_dir()) else {
            return Ok(());
        };
        let named = "SELECT count(*) FROM (SELECT segment FROM blocks WHERE segment IS NOT NULL \
                     UNION SELECT id FROM segments UNION SELECT segment FROM freed)";
        let count = self.connection.query_row(named, (), |row| unsigned(row, 0)).map_err(failed)?;
        if count > 0 {
            let segments =
                if count == 1 { "1 segment that rows name".into() } else { format!("{count} segments that rows name") };
            self.volume_finding(format!(
                "the directory {} is missing, and with it {segments}: put it back from a copy of the same moment; \
                 'weft mount --accept-loss VOLUME DIRECTORY' goes on without the blocks that were in it",
                directory.display()
            ));
        }
        Ok(())
    }

    /// Reads every block that is there, and compares it with its value.
    fn read_data(&mut self) -> Result<()> {
        let segments = self.segments();
        let count = "SELECT count(*) FROM blocks";
        let total = self.connection.query_row(count, (), |row| unsigned(row, 0)).map_err(failed)?;
        let all = "SELECT id, length, base, value, segment, position FROM blocks WHERE id NOT IN (SELECT block FROM bad) \
                   ORDER BY segment, position, id";
        let mut statement = self.connection.prepare(all).map_err(failed)?;
        let mut rows = statement.query(()).map_err(failed)?;
        let (mut done, mut bad) = (0, Vec::new());
        while let Some(row) = rows.next().map_err(failed)? {
            // What cannot be read as a block's row was reported by a rule.
            let Ok(block) = read::block_ref(row, 0) else { continue };
            if let Some(why) = self.damage(&block, segments.as_ref())? {
                bad.push((block.id, why));
            }
            done += 1;
            if done % REPORTED == 0 {
                (self.progress)(Progress { step: "data", done, total });
            }
        }
        for (id, why) in bad {
            self.connection.execute("INSERT INTO bad VALUES (?1, ?2)", (sql(id.0), why)).map_err(failed)?;
        }
        Ok(())
    }

    /// Returns the damage to the bytes of a block, if any.
    fn damage(&self, block: &BlockRef, segments: Option<&Segments>) -> Result<Option<String>> {
        if matches!(block.place, Place::Segment { .. }) && segments.is_none() {
            // A rule says so.
            return Ok(None);
        }
        match bytes_at_place(&self.connection, segments, block) {
            Ok(bytes) if bytes.as_deref().is_some_and(|bytes| block.verify(bytes)) => Ok(None),
            Ok(_) => Ok(Some("has other bytes than were written".into())),
            Err(error @ (Error::Corrupt(_) | Error::Io { .. })) => Ok(Some(format!("cannot be read: {error}"))),
            Err(error) => Err(error),
        }
    }
}
