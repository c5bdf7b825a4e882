//! Rows that are gone as a whole, which other rows name or count.
//!
//! Nothing that is there is given up for them. A directory is rebuilt, as its names say what it
//! was. A block whose bytes are there gets a row if the digests of its files vouch for them.
//! Anything else stays damage until the user gives it up; an inode that a name still leads to then
//! keeps that name.

use super::damaged::{ATTRIBUTES as NO_ATTRIBUTES, BLOCKS, Lasting};
use super::rules::{Rule, rule};
use super::{Checker, failed};
use crate::digests::{Digester, ZeroValues};
use crate::error::{ErrorKind, Result};
use crate::finding::{Outcome, Repair, Subject};
use crate::row::{BlockId, BlockRef, Ino, Place};
use crate::sqlite::digests::Rows;
use crate::sqlite::extents::put_block;
use crate::sqlite::read;
use crate::sqlite::scan::{Proof, Scan};
use crate::sqlite::sums::COMMIT;
use crate::store::Header;
use rusqlite::OptionalExtension;
use std::sync::Arc;
use weft_block::Rope;
use weft_digest::Hashed;

/// Rows that nothing can be made of. Given up, blocks become zeros, files are made of the blocks
/// that are there, and names of nothing go.
pub(super) const LOST: &[Lasting] = &[
    (
        rule(
            "SELECT e.ino, NULL, printf('bytes %d to %d are damaged: block %d has no row', e.start, \
         e.start + e.length - 1, e.block) FROM extents e \
         WHERE NOT EXISTS (SELECT 1 FROM blocks b WHERE b.id = e.block) \
         AND NOT EXISTS (SELECT 1 FROM block_bytes y WHERE y.id = e.block)",
            &[
                "UPDATE fileatt SET allocated = (SELECT coalesce(sum(b.length), 0) FROM extents e \
             JOIN blocks b ON b.id = e.block WHERE e.ino = fileatt.ino) WHERE ino IN (SELECT e.ino FROM extents e \
             WHERE NOT EXISTS (SELECT 1 FROM blocks b WHERE b.id = e.block) \
             AND NOT EXISTS (SELECT 1 FROM block_bytes y WHERE y.id = e.block))",
                "DELETE FROM extents WHERE NOT EXISTS (SELECT 1 FROM blocks b WHERE b.id = extents.block) \
             AND NOT EXISTS (SELECT 1 FROM block_bytes y WHERE y.id = extents.block)",
            ],
        )
        .about(Subject::Bytes),
        BLOCKS,
    ),
    (
        rule(
            "SELECT f.ino, NULL, printf('rows of its blocks are gone: %d bytes are there of the %d that its row says', \
         coalesce(x.held, 0), f.allocated) FROM fileatt f LEFT JOIN (SELECT e.ino, sum(b.length) AS held, \
         count(*) AS named, count(b.id) AS found FROM extents e LEFT JOIN blocks b ON b.id = e.block GROUP BY e.ino) x \
         ON x.ino = f.ino WHERE f.mode & 61440 = 32768 AND f.inline IS NULL \
         AND f.allocated > coalesce(x.held, 0) AND coalesce(x.named, 0) = coalesce(x.found, 0)",
            &[
                "UPDATE fileatt SET allocated = (SELECT coalesce(sum(b.length), 0) FROM extents e JOIN blocks b ON b.id = e.block \
           WHERE e.ino = fileatt.ino) WHERE mode & 61440 = 32768 AND inline IS NULL",
            ],
        ),
        BLOCKS,
    ),
    (
        rule(
            "SELECT n.parent, n.name, CASE WHEN EXISTS (SELECT 1 FROM extents e WHERE e.ino = n.ino) THEN \
         printf('the entry names inode %d, whose row is gone, with owner, permissions, times and length; \
         %s', n.ino, CASE WHEN (SELECT sum(e.length) < max(e.start + e.length) FROM extents e WHERE e.ino = n.ino) THEN \
         'blocks of it are there, and where none is there are zeros, which may have been a hole or may be lost' \
         ELSE 'its blocks are there, and it may lack its end' END) \
         ELSE printf('the entry names inode %d, whose row is gone with all that it held', n.ino) END \
         FROM naming n WHERE n.kind <> 16384 AND NOT EXISTS (SELECT 1 FROM fileatt f WHERE f.ino = n.ino) \
         AND NOT EXISTS (SELECT 1 FROM naming c WHERE c.parent = n.ino)",
            &[
                "DELETE FROM naming WHERE kind <> 16384 AND NOT EXISTS (SELECT 1 FROM fileatt f WHERE f.ino = naming.ino) \
           AND NOT EXISTS (SELECT 1 FROM naming c WHERE c.parent = naming.ino) \
           AND NOT EXISTS (SELECT 1 FROM extents e WHERE e.ino = naming.ino)",
            ],
        ),
        "names of files go whose content is gone; others lose owner, permissions and times",
    ),
];

/// Extended attributes that are gone. Which they were is not known: without the list of its rights
/// a file would be its group's, so what has none any more is closed to all but its owner.
pub(super) const ATTRIBUTES: Lasting = (
    rule(
        "SELECT f.ino, NULL, printf('rows of its extended attributes are gone: %d are there of the %d that its row says', \
     (SELECT count(*) FROM xattr x WHERE x.ino = f.ino), f.xattrs) FROM fileatt f \
     WHERE f.xattrs > 0 AND f.xattrs > (SELECT count(*) FROM xattr x WHERE x.ino = f.ino)",
        &[
            "UPDATE fileatt SET mode = mode & 65472 WHERE mode & 61440 NOT IN (40960, 45056) AND xattrs > 0 \
         AND xattrs > (SELECT count(*) FROM xattr x WHERE x.ino = fileatt.ino) AND NOT EXISTS (SELECT 1 FROM xattr x \
         WHERE x.ino = fileatt.ino AND x.name = CAST('system.posix_acl_access' AS BLOB))",
            "UPDATE fileatt SET xattrs = (SELECT count(*) FROM xattr x WHERE x.ino = fileatt.ino) WHERE xattrs > 0 \
         AND xattrs > (SELECT count(*) FROM xattr x WHERE x.ino = fileatt.ino)",
        ],
    ),
    NO_ATTRIBUTES,
);

/// Rows that are rebuilt: of directories, the root among them.
pub(super) const REMADE: Rule = rule(
    "SELECT d.ino, NULL, printf('the directory''s row is gone, with owner, permissions and times; its %d entries are \
     there: a repair makes it anew for root alone', (SELECT count(*) FROM naming n WHERE n.parent = d.ino)) \
     FROM (SELECT ino FROM naming WHERE kind = 16384 UNION SELECT parent FROM naming UNION SELECT 1) d \
     WHERE typeof(d.ino) = 'integer' AND d.ino > 0 \
     AND NOT EXISTS (SELECT 1 FROM fileatt f WHERE f.ino = d.ino)",
    &[
        "INSERT INTO fileatt (ino, generation, mode, uid, gid, nlink, rdev, size, allocated, atime, mtime, ctime, btime, \
       parent, xattrs, since) SELECT d.ino, 0, 16832, 0, 0, \
       2 + (SELECT count(*) FROM naming n WHERE n.parent = d.ino AND n.kind = 16384), 0, \
       (SELECT count(*) FROM naming n WHERE n.parent = d.ino), 0, v.time, v.time, v.time, v.time, \
       CASE d.ino WHEN 1 THEN 1 ELSE coalesce((SELECT min(n.parent) FROM naming n WHERE n.ino = d.ino), 0) END, \
       (SELECT count(*) FROM xattr x WHERE x.ino = d.ino), v.number + 1 \
       FROM (SELECT ino FROM naming WHERE kind = 16384 UNION SELECT parent FROM naming UNION SELECT 1) d \
       CROSS JOIN (SELECT number, coalesce((SELECT max(time) FROM commits), created) AS time FROM volume) v \
       WHERE typeof(d.ino) = 'integer' AND d.ino > 0 \
     AND NOT EXISTS (SELECT 1 FROM fileatt f WHERE f.ino = d.ino)",
    ],
);

/// Blocks in the database whose row is gone, and whose bytes are not.
pub(super) const ROWLESS: Rule = rule(
    "SELECT e.ino, NULL, printf('the row of block %d, from byte %d on, is gone; its bytes \
    are there', e.block, e.start) FROM extents e \
    WHERE NOT EXISTS (SELECT 1 FROM blocks b WHERE b.id = e.block) \
    AND EXISTS (SELECT 1 FROM block_bytes y WHERE y.id = e.block)",
    &[],
);

/// Commits between others. Those before may have been forgotten in their time, and so may those of
/// which history keeps some.
pub(super) const COMMITS: Rule = rule(
    "SELECT NULL, NULL, CASE next - number WHEN 2 THEN printf('the row of commit %d is gone', number + 1) \
     ELSE printf('the rows of commits %d to %d are gone', number + 1, next - 1) END \
     FROM (SELECT number, lead(number) OVER (ORDER BY number) AS next FROM commits) WHERE next > number + 1 \
     AND next > coalesce((SELECT first FROM retention), 0)",
    &["DELETE FROM commits WHERE number <= (SELECT max(number) FROM \
       (SELECT number, lead(number) OVER (ORDER BY number) AS next FROM commits) WHERE next > number + 1 \
       AND next > coalesce((SELECT first FROM retention), 0))"],
);

/// The last commit, whose number is in the volume's own row.
pub(super) const LAST_COMMIT: Rule = rule(
    "SELECT NULL, NULL, printf('commit %d, the last one, has no row', number) FROM volume \
     WHERE NOT EXISTS (SELECT 1 FROM commits WHERE commits.number = volume.number)",
    &["INSERT INTO commits (number, time, op) \
       SELECT number, coalesce((SELECT max(time) FROM commits), created), op FROM volume"],
);

impl Checker<'_> {
    /// Rebuilds the rows for which other rows say enough. Names of inodes that are left without a
    /// row lead nowhere.
    pub(super) fn remake(&mut self, header: &Header) -> Result<()> {
        let is_any = |rule: &str| self.connection.prepare(rule).and_then(|mut found| found.exists(())).map_err(failed);
        let rowless = "SELECT 1 FROM extents WHERE ino NOT IN (SELECT ino FROM fileatt)";
        if is_any(REMADE.offenders)? || is_any(ROWLESS.offenders)? || is_any(rowless)? {
            self.reach()?;
        }
        self.apply_rule(&REMADE)?;
        self.rowless_bytes(header)?;
        self.rowless_files(header)
    }

    /// Makes rows for files that have a name and blocks, but no row.
    fn rowless_files(&mut self, header: &Header) -> Result<()> {
        let named = "SELECT DISTINCT n.ino FROM naming n JOIN extents e ON e.ino = n.ino \
                     WHERE n.ino NOT IN (SELECT ino FROM fileatt)";
        // A rule has told of them.
        for ino in self.numbers(named)? {
            self.make_file(ino, header)?;
            self.compare_with_entry(ino, header)?;
        }
        Ok(())
    }

    /// Reports if the hash of its entry is of the blocks of a file whose row is rebuilt.
    fn compare_with_entry(&mut self, ino: i64, header: &Header) -> Result<()> {
        if !header.options.digests {
            return Ok(());
        }
        let (what, outcome) = match self.scan(header, |scan| scan.proof_of_blocks(Ino(ino.unsigned_abs()))) {
            Ok(Proof::Entry) => ("proves that the blocks that are known are all of its content", Outcome::Note),
            Ok(Proof::Contradiction) => {
                ("says that the blocks that are known are not all of its content", self.repaired())
            }
            Ok(Proof::Rows) => return Ok(()),
            // Damage of its blocks is told by itself.
            Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(()),
            Err(error) => return Err(error),
        };
        self.find(ino, format!("the hash of its entry {what}"), outcome)
    }

    /// Gives rows to blocks whose bytes are there.
    fn rowless_bytes(&mut self, header: &Header) -> Result<()> {
        let named = "SELECT DISTINCT e.ino FROM extents e WHERE e.block NOT IN (SELECT id FROM blocks) \
                     AND e.block IN (SELECT id FROM block_bytes)";
        let files = self.numbers(named)?;
        self.apply_rule(&ROWLESS)?;
        let outcome = self.repaired();
        let told = self.findings.iter_mut().filter(|finding| finding.what.contains("; its bytes are there"));
        told.for_each(|finding| finding.outcome = outcome);
        self.give_rows()?;
        for ino in files {
            if self.is_vouched_for(Ino(ino.unsigned_abs()), header)? {
                continue;
            }
            if self.options.repair != Repair::Discard {
                self.is_damaged = true;
            }
            let what = "no digest vouches for the bytes of its blocks that have no row; 'weft check --repair --discard' \
                        takes them as they are";
            self.find(ino, what.into(), self.repaired())?;
        }
        Ok(())
    }

    /// Gives a row to all bytes in the database that have none.
    fn give_rows(&self) -> Result<()> {
        let lost =
            self.numbers("SELECT id FROM block_bytes WHERE id > 0 AND id NOT IN (SELECT id FROM blocks) ORDER BY id")?;
        for id in lost {
            let bytes = "SELECT bytes, coalesce((SELECT min(e.start) FROM extents e WHERE e.block = ?1), 0), \
                         (SELECT count(*) FROM extents e WHERE e.block = ?1) \
                         + (SELECT count(*) FROM extents_history e WHERE e.block = ?1) \
                         FROM block_bytes CROSS JOIN volume v \
                         WHERE block_bytes.id = ?1 AND typeof(bytes) = 'blob' \
                         AND length(bytes) BETWEEN 1 AND v.block_size";
            let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, Vec<u8>>(0)?, read::unsigned(row, 1)?, row.get(2)?));
            let found = self.connection.query_row(bytes, (id,), read).optional().map_err(failed)?;
            let Some((bytes, base, refs)) = found else { continue };
            let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            let Hashed { value, parts, .. } = Hashed::new(&Rope::from(bytes), base);
            let id = BlockId(id.unsigned_abs());
            put_block(&self.connection, &BlockRef { id, length, base, value, place: Place::Database }, refs, &parts)?;
        }
        Ok(())
    }

    /// True if the digest that is kept of a file is that of its content as it is now.
    fn is_vouched_for(&self, ino: Ino, header: &Header) -> Result<bool> {
        let digester = Digester::new(Arc::new(ZeroValues::default()));
        let rows = Rows::of(&self.connection);
        let scan = Scan { digester: &digester, rows: &rows, block_size: u64::from(header.options.block_size) };
        match scan.is_like(ino) {
            Err(error) if error.kind() == ErrorKind::Corrupt => Ok(false),
            like => like,
        }
    }

    /// Rows of commits that are gone: the last one, and some between others.
    pub(super) fn lost_commits(&mut self) -> Result<()> {
        if self.apply_rule(&LAST_COMMIT)? > 0 {
            // The digest of the root is still the one that it left.
            COMMIT.seal(&self.connection)?;
            self.chain_commit()?;
            COMMIT.seal(&self.connection)?;
        }
        let rule = if self.options.repair == Repair::Discard { COMMITS } else { COMMITS.only_told() };
        self.apply_rule(&rule).map(drop)
    }
}
