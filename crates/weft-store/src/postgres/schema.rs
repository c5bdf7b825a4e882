//! The schema of a new volume: the tables that [`crate::tables`] describes, in the part of SQL that
//! engines which speak PostgreSQL's protocol share, and a view for people.
//!
//! Each primary key begins with the column by which such an engine may distribute the table: what
//! belongs to a file, or to a directory, lies together. (A file's own table, made like `blocks_of`,
//! is not distributed.) There are no foreign keys, no triggers, no sequences: ids come from the one
//! daemon that holds the volume.

use super::connection::Connection;
use super::rights;
use crate::error::Result;
use crate::tables::{self, Dialect};
use crate::views;

/// The files with their paths.
const FILES: &str = "CREATE VIEW files AS
WITH RECURSIVE tree (path, ino) AS (
    SELECT '/'::text, 1::bigint
    UNION ALL
    SELECT CASE tree.path WHEN '/' THEN '/' ELSE tree.path || '/' END || encode(naming.name, 'escape'), naming.ino
    FROM tree JOIN naming ON naming.parent = tree.ino
)
SELECT tree.path,
    fileatt.ino,
    CASE fileatt.mode & 61440
        WHEN 32768 THEN 'file' WHEN 16384 THEN 'directory' WHEN 40960 THEN 'symlink' WHEN 45056 THEN 'transformation'
        WHEN 4096 THEN 'fifo' WHEN 49152 THEN 'socket' WHEN 8192 THEN 'char device' ELSE 'block device'
    END AS kind,
    fileatt.mode & 4095 AS permissions,
    fileatt.uid, fileatt.gid, fileatt.nlink, fileatt.size, fileatt.allocated,
    to_timestamp(fileatt.mtime / 1e9) AS mtime,
    to_timestamp(fileatt.ctime / 1e9) AS ctime,
    to_timestamp(fileatt.btime / 1e9) AS btime,
    encode(fileatt.digest, 'hex') AS digest
FROM tree JOIN fileatt ON fileatt.ino = tree.ino";

/// Returns the statements that make a new volume's tables, indices and view, each alone.
pub(super) fn statements() -> Vec<String> {
    tables::statements(Dialect::Postgres).into_iter().chain([FILES.to_owned()]).collect()
}

/// Makes the views of the past where they are not there yet, in a transaction of its own, as
/// property of the volume's `owner` if that is another role. An error is none of the volume's: the
/// role may lack the right, and an engine the features.
pub(super) fn make_views(connection: &mut Connection, owner: Option<&str>) -> Result<()> {
    let made = views::statements(Dialect::Postgres);
    let made = made.into_iter().flat_map(|(name, statement)| [statement, rights::revoke(name)]);
    // Somebody may be reading by them for long.
    let brief = ["SET LOCAL lock_timeout = '2s'".to_owned()];
    let statements = brief.into_iter().chain(rights::made_by(owner, made)).collect::<Vec<_>>();
    connection.run("cannot make the views of the past", &statements.join(";\n"))
}

/// Statements that make PostgreSQL store rows better, and that other engines may refuse: each is
/// tried alone. Blocks are neither compressed (they are hashed and mostly compressed already) nor
/// stored in the row's page; what a short fsync logs is, as rows of 2 KiB for it elsewhere cost
/// more; tables whose rows come and go are vacuumed soon.
pub(super) const TUNING: &[&str] = &[
    "ALTER TABLE blocks ALTER COLUMN bytes SET STORAGE EXTERNAL",
    "ALTER TABLE blocks_of ALTER COLUMN bytes SET STORAGE EXTERNAL",
    "ALTER TABLE blocks SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0, \
     toast.autovacuum_vacuum_scale_factor = 0.05, toast.autovacuum_vacuum_cost_delay = 0)",
    "ALTER TABLE fileatt SET (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0)",
    "ALTER TABLE naming SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0)",
    "ALTER TABLE extents SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0)",
    "ALTER TABLE intents ALTER COLUMN bytes SET STORAGE EXTERNAL",
    "ALTER TABLE intents SET (toast_tuple_target = 8160)",
    "ALTER TABLE intents SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0)",
    "ALTER TABLE volume SET (fillfactor = 10, autovacuum_vacuum_threshold = 500)",
    "ALTER TABLE lease SET (fillfactor = 10, autovacuum_vacuum_threshold = 500)",
];

#[cfg(test)]
mod tests {
    use super::statements;

    #[test]
    fn the_schema_is_to_the_letter_what_volumes_of_this_format_have() {
        let made: String = statements().iter().map(|text| format!("{text};\n")).collect();
        assert_eq!(made, include_str!("../../tests/data/schema-postgres.sql"));
    }
}
