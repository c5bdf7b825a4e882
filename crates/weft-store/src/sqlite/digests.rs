//! The rows that digests need, in SQLite.

use super::blocks::bytes_at_place;
use super::history::keeping::Keeping;
use super::read::{self, digest, sql, unsigned};
use super::segments::Segments;
use crate::Name;
use crate::digests::{DigestRows, Inode, after};
use crate::error::{Error, Result};
use crate::overlay::Snapshot;
use crate::row::{BlockRef, Ino, Span};
use crate::sums;
use rusqlite::{Connection, OptionalExtension, Params, Row};
use std::ops::Range;
use weft_block::Block;
use weft_digest::{Digest, Kind};

impl<'a> Rows<'a> {
    /// The rows of the present in the database of `connection`, without the blocks in segments.
    pub(super) fn of(connection: &'a Connection) -> Rows<'a> {
        Rows { connection, segments: None, wait: &|| (), elsewhere: None, keeping: None }
    }
}

fn failed(source: rusqlite::Error) -> Error {
    Error::Sqlite { what: "cannot keep digests", source }
}

/// Rows of the transaction that `connection` has begun.
pub(super) struct Rows<'a> {
    pub(super) connection: &'a Connection,
    pub(super) segments: Option<&'a Segments>,
    /// Returns when the blocks of this transaction lie in the segments.
    pub(super) wait: &'a dyn Fn(),
    /// Reads blocks, if they do not lie here.
    pub(super) elsewhere: Option<&'a ReadElsewhere<'a>>,
    /// Keeps what is replaced, if history is on.
    pub(super) keeping: Option<Keeping<'a>>,
}

/// Reads the bytes of a block from where they lie.
pub(crate) type ReadElsewhere<'a> = dyn Fn(&BlockRef) -> Result<Block> + 'a;

fn name(row: &Row<'_>, column: usize) -> Result<Name> {
    let bytes = row.get_ref(column).map_err(failed)?.as_blob().unwrap_or_default();
    Name::new(bytes).map_err(|_| Error::Corrupt("a directory entry has no name that Weft writes".into()))
}

/// The hash of entry `name` of `parent` in column `first`, with its sum in the next one; none where
/// it is damaged.
pub(super) fn hash(row: &Row<'_>, first: usize, parent: Ino, name: &[u8]) -> rusqlite::Result<Option<Digest>> {
    let sum = row.get_ref(first + 1)?.as_i64().ok();
    Ok(digest(row, first)?.filter(|digest| sum == Some(sums::entry(parent, name, Some(digest)))))
}

impl Rows<'_> {
    fn execute(&self, statement: &str, parameters: impl Params) -> Result<()> {
        self.connection.prepare_cached(statement).map_err(failed)?.execute(parameters).map_err(failed)?;
        Ok(())
    }

    /// Returns the stored data of a subtree, verified by its `sum`.
    fn blob(&self, statement: &str, parameters: impl Params, sum: impl Fn(&[u8]) -> i64) -> Result<Option<Vec<u8>>> {
        let mut statement = self.connection.prepare_cached(statement).map_err(failed)?;
        let read = |row: &Row<'_>| Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, i64>(1)?));
        match statement.query_row(parameters, read).optional().map_err(failed)? {
            Some((kept, own)) if own == sum(&kept) => Ok(Some(kept)),
            Some(_) => Err(Error::Corrupt("what is kept of a subtree of digests is damaged".into())),
            None => Ok(None),
        }
    }
}

impl Snapshot for Rows<'_> {
    fn inode(&self, ino: Ino) -> Result<Option<Inode>> {
        let statement = "SELECT mode, size, parent, digest, digest_sum, \
                         sum IS weft_sum('fileatt', ino, generation, mode, uid, gid, nlink, rdev, size, allocated, \
                         atime, mtime, ctime, btime, parent, xattrs, since, inline) FROM fileatt WHERE ino = ?1";
        let mut statement = self.connection.prepare_cached(statement).map_err(failed)?;
        let read = |row: &Row<'_>| {
            if !row.get::<_, bool>(5)? {
                return Ok(None);
            }
            let digest = read::digest_and_sum(row, 3, ino)?;
            Ok(Some((row.get::<_, u32>(0)?, unsigned(row, 1)?, unsigned(row, 2)?, digest)))
        };
        let found = statement.query_row((sql(ino.0),), read).optional().map_err(failed)?.flatten();
        Ok(found.and_then(|(mode, size, parent, digest)| {
            let kind = Kind::from_mode(mode)?;
            Some(Inode { kind, permissions: mode & 0o7777, size, parent: Ino(parent), digest })
        }))
    }

    fn names_of(&self, ino: Ino) -> Result<Vec<(Ino, Name)>> {
        let statement = "SELECT parent, name FROM naming INDEXED BY naming_inode WHERE ino = ?1";
        let mut statement = self.connection.prepare_cached(statement).map_err(failed)?;
        let mut rows = statement.query((sql(ino.0),)).map_err(failed)?;
        let mut names = Vec::new();
        while let Some(row) = rows.next().map_err(failed)? {
            names.push((Ino(unsigned(row, 0).map_err(failed)?), name(row, 1)?));
        }
        Ok(names)
    }

    fn entry(&self, parent: Ino, name: &Name) -> Result<Option<Digest>> {
        let statement = "SELECT digest, digest_sum FROM naming WHERE parent = ?1 AND name = ?2";
        let mut statement = self.connection.prepare_cached(statement).map_err(failed)?;
        let found = statement.query_row((sql(parent.0), name.as_bytes()), |row| hash(row, 0, parent, name.as_bytes()));
        Ok(found.optional().map_err(failed)?.flatten())
    }

    fn entries(&self, parent: Ino, prefix: &[u8], limit: usize) -> Result<Vec<(Name, Option<Digest>)>> {
        let open =
            "SELECT name, digest, digest_sum FROM naming WHERE parent = ?1 AND name >= ?2 ORDER BY name LIMIT ?3";
        let closed = "SELECT name, digest, digest_sum FROM naming WHERE parent = ?1 AND name >= ?2 AND name < ?4 ORDER BY name LIMIT ?3";
        let (directory, limit, end) = (sql(parent.0), sql(limit as u64), after(prefix));
        let statement = if end.is_some() { closed } else { open };
        let mut statement = self.connection.prepare_cached(statement).map_err(failed)?;
        let mut rows = match end {
            Some(end) => statement.query((directory, prefix, limit, end)),
            None => statement.query((directory, prefix, limit)),
        }
        .map_err(failed)?;
        let mut entries = Vec::new();
        while let Some(row) = rows.next().map_err(failed)? {
            let name = name(row, 0)?;
            let hash = hash(row, 1, parent, name.as_bytes()).map_err(failed)?;
            entries.push((name, hash));
        }
        Ok(entries)
    }

    fn branch(&self, parent: Ino, prefix: &[u8]) -> Result<Option<Vec<u8>>> {
        let statement = "SELECT children, sum FROM branches WHERE parent = ?1 AND prefix = ?2";
        self.blob(statement, (sql(parent.0), prefix), |children| sums::branch(parent, prefix, children))
    }

    fn extents(&self, ino: Ino, range: Range<u64>) -> Result<Vec<(Span, BlockRef)>> {
        read::extents(self.connection, ino, &range)
    }

    fn bytes(&self, block: &BlockRef) -> Result<Block> {
        if let Some(read) = self.elsewhere {
            return read(block);
        }
        (self.wait)();
        let bytes = bytes_at_place(self.connection, self.segments, block)?;
        let damaged = || Error::Corrupt(format!("block {} has other bytes than were written", block.id.0));
        bytes.filter(|bytes| block.verify(bytes)).ok_or_else(damaged)
    }

    fn node(&self, ino: Ino, level: u32, index: u64) -> Result<Option<Vec<u8>>> {
        let statement = "SELECT children, sum FROM nodes WHERE ino = ?1 AND level = ?2 AND idx = ?3";
        self.blob(statement, (sql(ino.0), level, sql(index)), |children| sums::node(ino, level, index, children))
    }

    fn nodes(&self, ino: Ino, level: u32, range: Range<u64>) -> Result<Vec<u64>> {
        let statement = "SELECT idx FROM nodes WHERE ino = ?1 AND level = ?2 AND idx >= ?3 AND idx < ?4 ORDER BY idx";
        let mut statement = self.connection.prepare_cached(statement).map_err(failed)?;
        let parameters = (sql(ino.0), level, sql(range.start), sql(range.end));
        let rows = statement.query_map(parameters, |row| unsigned(row, 0)).map_err(failed)?;
        rows.collect::<rusqlite::Result<_>>().map_err(failed)
    }
}

impl DigestRows for Rows<'_> {
    fn set_digest(&self, ino: Ino, digest: Option<&Digest>) -> Result<()> {
        self.keeping.map_or(Ok(()), |keeping| keeping.digest(ino, digest))?;
        let statement = "UPDATE fileatt SET digest = ?2, digest_sum = ?3 WHERE ino = ?1";
        self.execute(statement, (sql(ino.0), digest.map(|digest| &digest[..]), sums::digest(ino, digest)))
    }

    fn set_entry(&self, parent: Ino, name: &Name, hash: Option<&Digest>) -> Result<()> {
        let statement = "UPDATE naming SET digest = ?3, digest_sum = ?4 WHERE parent = ?1 AND name = ?2";
        let sum = sums::entry(parent, name.as_bytes(), hash);
        self.execute(statement, (sql(parent.0), name.as_bytes(), hash.map(|hash| &hash[..]), sum))
    }

    fn set_branch(&self, parent: Ino, prefix: &[u8], branch: Option<&[u8]>) -> Result<()> {
        let put = "INSERT OR REPLACE INTO branches (parent, prefix, children, sum) VALUES (?1, ?2, ?3, ?4)";
        let remove = "DELETE FROM branches WHERE parent = ?1 AND prefix = ?2";
        match branch {
            Some(branch) => self.execute(put, (sql(parent.0), prefix, branch, sums::branch(parent, prefix, branch))),
            None => self.execute(remove, (sql(parent.0), prefix)),
        }
    }

    fn clear_branches(&self, parent: Ino) -> Result<()> {
        self.execute("DELETE FROM branches WHERE parent = ?1", (sql(parent.0),))
    }

    fn set_node(&self, ino: Ino, level: u32, index: u64, node: Option<&[u8]>) -> Result<()> {
        let put = "INSERT OR REPLACE INTO nodes (ino, level, idx, children, sum) VALUES (?1, ?2, ?3, ?4, ?5)";
        let remove = "DELETE FROM nodes WHERE ino = ?1 AND level = ?2 AND idx = ?3";
        match node {
            Some(node) => self.execute(put, (sql(ino.0), level, sql(index), node, sums::node(ino, level, index, node))),
            None => self.execute(remove, (sql(ino.0), level, sql(index))),
        }
    }

    fn clear_nodes(&self, ino: Ino, level: u32, index: u64) -> Result<()> {
        let statement = "DELETE FROM nodes WHERE ino = ?1 AND level = ?2 AND idx >= ?3";
        self.execute(statement, (sql(ino.0), level, sql(index)))
    }
}
