//! The schema of a new volume: the tables that [`crate::tables`] describes, and a view for people.

use crate::error::{Error, Result};
use crate::tables::{self, Dialect};
use crate::views;
use rusqlite::{Connection, ErrorCode};

/// Marks a SQLite database as a Weft volume (`PRAGMA application_id`): "Weft".
pub(super) const APPLICATION_ID: u32 = 0x5765_6674;

/// The files with their paths.
const FILES: &str = "CREATE VIEW files AS
WITH RECURSIVE tree (path, ino) AS (
    SELECT '/', 1
    UNION ALL
    SELECT CASE tree.path WHEN '/' THEN '/' ELSE tree.path || '/' END || CAST(naming.name AS TEXT), naming.ino
    FROM tree JOIN naming ON naming.parent = tree.ino
)
SELECT tree.path,
    fileatt.ino,
    CASE fileatt.mode & 61440
        WHEN 32768 THEN 'file' WHEN 16384 THEN 'directory' WHEN 40960 THEN 'symlink' WHEN 45056 THEN 'transformation'
        WHEN 4096 THEN 'fifo' WHEN 49152 THEN 'socket' WHEN 8192 THEN 'char device' ELSE 'block device'
    END AS kind,
    printf('%04o', fileatt.mode & 4095) AS permissions,
    fileatt.uid, fileatt.gid, fileatt.nlink, fileatt.size, fileatt.allocated,
    fileatt.mtime / 1e9 AS mtime, fileatt.ctime / 1e9 AS ctime, fileatt.btime / 1e9 AS btime,
    fileatt.digest
FROM tree JOIN fileatt ON fileatt.ino = tree.ino";

/// Returns the statements that make a new volume's tables, indices and view. The database keeps
/// their text.
pub(super) fn statements() -> String {
    let made = tables::statements(Dialect::Sqlite);
    made.iter().map(String::as_str).chain([FILES]).map(|text| format!("{text};\n")).collect()
}

/// Makes the views of the past where they are not there yet. A name that something else of the
/// user's has is left to that.
pub(super) fn make_views(connection: &Connection) -> Result<()> {
    for (_, statement) in views::statements(Dialect::Sqlite) {
        match connection.execute_batch(&statement) {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::Unknown) => {}
            made => made.map_err(|source| Error::Sqlite { what: "cannot make the views of the past", source })?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::statements;

    #[test]
    fn the_schema_is_to_the_letter_what_volumes_of_this_format_have() {
        assert_eq!(statements(), include_str!("../../tests/data/schema-sqlite.sql"));
    }
}
