//! Sums of rows in SQL: what makes them of columns, for statements that change or compare rows
//! without bringing them here.

use crate::error::{Error, Result};
use crate::sums::{self, MASK, Sum};
use crate::tables::{self, COUNTERS, Dialect};
use rusqlite::Connection;
use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::ValueRef;

/// A column that holds a sum.
pub(super) struct Summed {
    pub(super) table: &'static str,
    pub(super) column: &'static str,
    of: Of,
}

/// The values that a sum is of.
enum Of {
    /// The columns of the row that it covers.
    Row,
    /// The row's key and its digest.
    Digest,
    /// The volume's own row, whose sum has two parts.
    Volume,
}

const fn row(table: &'static str) -> Summed {
    Summed { table, column: "sum", of: Of::Row }
}

const fn digest(table: &'static str) -> Summed {
    Summed { table, column: "digest_sum", of: Of::Digest }
}

pub(super) const INODE: Summed = row("fileatt");
pub(super) const DIGEST: Summed = digest("fileatt");
pub(super) const NAME: Summed = row("naming");
pub(super) const ENTRY: Summed = digest("naming");
pub(super) const EXTENT: Summed = row("extents");
pub(super) const BLOCK: Summed = row("blocks");
pub(super) const XATTR: Summed = row("xattr");
pub(super) const BRANCH: Summed = row("branches");
pub(super) const NODE: Summed = row("nodes");
pub(super) const SEGMENT: Summed = row("segments");
pub(super) const FREED: Summed = row("freed");
pub(super) const COMMIT: Summed = row("commits");
pub(super) const RETENTION: Summed = row("retention");
pub(super) const PIN: Summed = row("pins");
pub(super) const VOLUME: Summed = Summed { table: "volume", column: "sum", of: Of::Volume };

/// All of them.
pub(super) const ALL: [&Summed; 15] = [
    &INODE, &DIGEST, &NAME, &ENTRY, &EXTENT, &BLOCK, &XATTR, &BRANCH, &NODE, &SEGMENT, &FREED, &COMMIT, &RETENTION,
    &PIN, &VOLUME,
];

fn failed(source: rusqlite::Error) -> Error {
    Error::Sqlite { what: "cannot make sums of rows", source }
}

impl Summed {
    /// The sum that a row should have.
    pub(super) fn expression(&self) -> String {
        let of = |name: Option<&str>, columns: Vec<&str>| {
            format!("weft_sum('{}', {})", name.unwrap_or_default(), columns.join(", "))
        };
        let table = tables::named(self.table).expect("a table that is described");
        match self.of {
            Of::Row => of(table.sum_name(Dialect::Sqlite), table.covered(Dialect::Sqlite)),
            Of::Digest => of(table.digest_sum_name(), table.covered_with_digest(Dialect::Sqlite)),
            Of::Volume => format!(
                "(weft_sum('volume', created, uuid, block_size, inline_max, home, bytes_max, inodes_max, digests, NULL) \
                 + {}) & {MASK}",
                of(Some("counters"), COUNTERS.to_vec())
            ),
        }
    }

    /// True if a row is as it was written.
    pub(super) fn holds(&self) -> String {
        format!("{} IS {}", self.column, self.expression())
    }

    /// Gives all rows the sums of what they hold now.
    pub(super) fn seal(&self, connection: &Connection) -> Result<()> {
        let (Summed { table, column, .. }, expression) = (self, self.expression());
        let statement = format!("UPDATE {table} SET {column} = {expression} WHERE {column} IS NOT {expression}");
        connection.execute(&statement, ()).map(drop).map_err(failed)
    }
}

/// Gives all rows the sums of what they hold now: those that a repair changed, where none was
/// damaged before.
pub(super) fn seal(connection: &Connection) -> Result<()> {
    ALL.iter().try_for_each(|summed| summed.seal(connection))
}

/// Has statements of `connection` make sums: `weft_sum(TABLE, VALUES…)`, and
/// `weft_references(CHANGE)`.
pub(super) fn register(connection: &Connection) -> Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    connection.create_scalar_function("weft_sum", -1, flags, sum).map_err(failed)?;
    let references = |context: &Context<'_>| match context.get_raw(0) {
        ValueRef::Integer(count) => Ok(Some(sums::references(count))),
        // Damage has none.
        _ => Ok(None),
    };
    connection.create_scalar_function("weft_references", 1, flags, references).map_err(failed)?;
    super::history::register(connection)
}

fn sum(context: &Context<'_>) -> rusqlite::Result<i64> {
    let table = context.get_raw(0).as_str()?;
    // References are counted by what is added to the sum of the rest.
    let counted = usize::from(matches!(table, "blocks" | "owned blocks"));
    let values = (1..context.len() - counted).map(|place| context.get_raw(place));
    let sum = values.fold(Sum::of(table), put).end();
    match context.get_raw(context.len() - 1) {
        ValueRef::Integer(refs) if counted > 0 => Ok(sums::add(sum, sums::references(refs))),
        // No row has it.
        _ if counted > 0 => Ok(-2),
        _ => Ok(sum),
    }
}

fn put(sum: Sum, value: ValueRef<'_>) -> Sum {
    match value {
        ValueRef::Null => sum.null(),
        ValueRef::Integer(number) => sum.int(number),
        ValueRef::Blob(bytes) => sum.bytes(bytes),
        ValueRef::Text(bytes) => sum.odd(b't', bytes),
        ValueRef::Real(number) => sum.odd(b'r', &number.to_le_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::ALL;

    /// The sums are a part of the format.
    #[test]
    fn sums_are_of_what_volumes_of_this_format_have_them_of() {
        let made = ALL.iter().map(|summed| format!("{}.{} = {}\n", summed.table, summed.column, summed.expression()));
        assert_eq!(made.collect::<String>(), include_str!("../../tests/data/sums-sqlite.txt"));
    }
}
