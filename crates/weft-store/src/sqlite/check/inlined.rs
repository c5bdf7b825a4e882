//! Content in damaged rows that a digest proves: it is kept where what those rows describe is given
//! up.

use super::{Checker, failed};
use crate::digests::{Digester, ZeroValues};
use crate::error::Result;
use crate::finding::Outcome;
use crate::overlay::Snapshot;
use crate::row::{Ino, InodeRow};
use crate::sqlite::digests::Rows;
use crate::sqlite::inlined::{MADE_ANEW, Suspect};
use crate::sqlite::put::put_inode;
use crate::sqlite::read::sql;
use crate::sqlite::sums::{INODE, NAME};
use crate::store::Header;
use rusqlite::Row;
use std::sync::Arc;
use weft_digest::{Digest, Kind};

/// A column of a damaged row, if it is a number that Weft may have written.
fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<u64>> {
    Ok(row.get_ref(column)?.as_i64().ok().and_then(|number| u64::try_from(number).ok()))
}

/// A damaged row, and what a whole name says that it is.
fn suspect(row: &Row<'_>) -> rusqlite::Result<(Suspect, Option<Kind>)> {
    let blob = |column| row.get_ref(column).map(|value| value.as_blob().ok());
    let ino = Ino(row.get::<_, i64>(0)?.unsigned_abs());
    let digest = blob(4)?.and_then(|bytes| Digest::try_from(bytes).ok());
    let digest = (digest, row.get_ref(5)?.as_i64().ok());
    let suspect = Suspect::new(ino, number(row, 1)?, number(row, 2)?, blob(3)?, digest);
    let named = number(row, 6)?.and_then(|mode| u32::try_from(mode).ok());
    Ok((suspect, named.and_then(Kind::from_mode)))
}

impl Checker<'_> {
    /// Rebuilds damaged rows around content in them that a digest proves.
    pub(super) fn keep_inlined(&mut self, header: &Header) -> Result<()> {
        for (suspect, kind) in self.suspects()? {
            let kind = kind.or(suspect.kind).unwrap_or(Kind::File);
            let Some((row, digest)) = self.proved(&suspect, kind)? else { continue };
            self.find(sql(row.ino.0), MADE_ANEW.into(), Outcome::Repaired)?;
            put_inode(&self.connection, header.commit.next(), &row, Some(&digest))?;
        }
        Ok(())
    }

    /// Damaged rows of inodes that have no blocks.
    fn suspects(&self) -> Result<Vec<(Suspect, Option<Kind>)>> {
        let query = format!(
            "SELECT f.ino, f.mode, f.size, f.inline, f.digest, f.digest_sum, \
             (SELECT kind FROM naming WHERE naming.ino = f.ino AND {} LIMIT 1) \
             FROM (SELECT * FROM fileatt WHERE NOT ({})) f \
             WHERE f.ino > 0 AND NOT EXISTS (SELECT 1 FROM extents e WHERE e.ino = f.ino)",
            NAME.holds(),
            INODE.holds(),
        );
        let mut statement = self.connection.prepare(&query).map_err(failed)?;
        let rows = statement.query_map((), suspect).map_err(failed)?;
        rows.collect::<rusqlite::Result<_>>().map_err(failed)
    }

    /// Returns the rebuilt row, with the names and attributes that are counted, if its content is
    /// proved.
    fn proved(&self, suspect: &Suspect, kind: Kind) -> Result<Option<(InodeRow, Digest)>> {
        let digester = Digester::new(Arc::new(ZeroValues::default()));
        let rows = Rows::of(&self.connection);
        let mut entries = Vec::new();
        for (parent, name) in rows.names_of(suspect.ino)? {
            entries.extend(rows.entry(parent, &name)?.map(|hash| (name, hash)));
        }
        let time = self.new_row(sql(suspect.ino.0))?.ctime;
        let Some((row, digest)) = suspect.prove(kind, &entries, &digester, time) else { return Ok(None) };
        let count = "SELECT max((SELECT count(*) FROM naming WHERE ino = ?1), 1), \
                     (SELECT count(*) FROM xattr WHERE ino = ?1)";
        let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let (nlink, xattrs) = self.connection.query_row(count, (sql(row.ino.0),), read).map_err(failed)?;
        Ok(Some((InodeRow { nlink, xattrs, ..row }, digest)))
    }
}
