//! Putting rows of inodes and entries, with their sums.

use super::read::sql;
use crate::error::{Error, Result};
use crate::row::{CommitNo, InodeRow, NameRow};
use crate::sums;
use rusqlite::Connection;
use weft_digest::Digest;

fn failed(source: rusqlite::Error) -> Error {
    Error::Sqlite { what: "cannot write the database", source }
}

/// Inserts or replaces an inode's row.
pub(super) fn put_inode(
    connection: &Connection,
    commit: CommitNo,
    row: &InodeRow,
    digest: Option<&Digest>,
) -> Result<()> {
    let statement = "INSERT OR REPLACE INTO fileatt (ino, generation, mode, uid, gid, nlink, rdev, size, allocated, \
                     atime, mtime, ctime, btime, parent, xattrs, since, sum, digest, digest_sum, inline) \
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)";
    let mut statement = connection.prepare_cached(statement).map_err(failed)?;
    statement
        .execute(rusqlite::params![
            sql(row.ino.0),
            row.generation,
            row.kind.mode_bits() | row.permissions,
            row.uid,
            row.gid,
            row.nlink,
            row.rdev,
            sql(row.size),
            sql(row.allocated),
            row.atime.0,
            row.mtime.0,
            row.ctime.0,
            row.btime.0,
            sql(row.parent.0),
            row.xattrs,
            sql(commit.0),
            sums::inode(row, commit, digest),
            digest.map(|digest| &digest[..]),
            sums::digest(row.ino, digest),
            row.inline.as_deref(),
        ])
        .map_err(failed)?;
    Ok(())
}

/// Inserts a directory entry, or replaces the one of the same parent and name.
pub(super) fn put_name(
    connection: &Connection,
    commit: CommitNo,
    row: &NameRow,
    digest: Option<&Digest>,
) -> Result<()> {
    let statement = "INSERT INTO naming (parent, name, ino, kind, cookie, since, sum, digest, digest_sum) \
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) \
                     ON CONFLICT (parent, name) DO UPDATE SET ino = excluded.ino, kind = excluded.kind, \
                     cookie = excluded.cookie, since = excluded.since, sum = excluded.sum, digest = excluded.digest, \
                     digest_sum = excluded.digest_sum";
    let mut put = connection.prepare_cached(statement).map_err(failed)?;
    let name = row.name.as_bytes();
    put.execute((
        sql(row.parent.0),
        name,
        sql(row.ino.0),
        row.kind.mode_bits(),
        sql(row.cookie.0),
        sql(commit.0),
        sums::name(row, commit),
        digest.map(|digest| &digest[..]),
        sums::entry(row.parent, name, digest),
    ))
    .map_err(failed)?;
    Ok(())
}
