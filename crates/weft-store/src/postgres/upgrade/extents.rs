//! Extents of older formats: by the index of a block, each of a whole block.
//!
//! Their keys change where they are, so that whoever may read the tables still may. Sums are made
//! before, while the old key finds the rows.

use super::WHAT;
use crate::error::{Error, Result};
use crate::postgres::connection::{Connection, Parameter};
use crate::postgres::read::{self, get, unsigned};
use crate::postgres::write::column;
use crate::row::{CommitNo, Ino, Span};
use crate::sums;
use tokio_postgres::Row;

/// Rows that are read and changed together.
const ROWS_TOGETHER: usize = 10_000;

/// A table of extents, and the columns of its key, that of the place first among equals.
struct Table {
    name: &'static str,
    key: &'static [&'static str],
    /// True if its rows were replaced by later commits.
    is_of_versions: bool,
}

const EXTENTS: Table = Table { name: "extents", key: &["ino", PLACE], is_of_versions: false };

const VERSIONS: Table = Table { name: "extents_history", key: &["fork", "ino", PLACE, "until"], is_of_versions: true };

/// Stands for the column that says where an extent is.
const PLACE: &str = "PLACE";

/// The column of older formats, and that of this one.
const COLUMNS: [&str; 2] = ["idx", "start"];

/// Makes the sums of a row with the index of a block, and with the bytes.
type Sums = (i64, i64);

/// The tables, with versions if the volume has any.
fn tables(has_versions: bool) -> impl Iterator<Item = &'static Table> {
    [&EXTENTS].into_iter().chain(has_versions.then_some(&VERSIONS))
}

/// Brings the extents of a volume with blocks of `block_size` bytes to this format, where rows have
/// sums.
pub(super) fn bring_up(connection: &mut Connection, block_size: u32, has_versions: bool) -> Result<()> {
    for table in tables(has_versions) {
        table.change_sums(connection, COLUMNS[0], &|row| sums_of(table, row, block_size, 1))?;
        table.rekey(connection, block_size)?;
    }
    Ok(())
}

/// The same where rows have none yet.
pub(super) fn bring_up_unsummed(connection: &mut Connection, block_size: u32) -> Result<()> {
    EXTENTS.rekey(connection, block_size)
}

/// Makes them again what they were: for tests.
pub(super) fn take_back(connection: &mut Connection, block_size: u32, has_versions: bool) -> Result<()> {
    for table in tables(has_versions) {
        table.change_sums(connection, COLUMNS[1], &|row| {
            sums_of(table, row, block_size, block_size.into()).map(|(old, new)| (new, old))
        })?;
        table.rekey_by_index(connection, block_size)?;
    }
    Ok(())
}

/// The sums of `row` of `table`, whose place is counted in units of `unit`-th parts of a block.
fn sums_of(table: &Table, row: &Row, block_size: u32, unit: u64) -> Result<Sums> {
    let (ino, index, owner, block) =
        (Ino(unsigned(row, 0)?), unsigned(row, 1)? / unit, Ino(unsigned(row, 2)?), unsigned(row, 3)?);
    let since = CommitNo(unsigned(row, 4)?);
    let (old, new) = (
        sums::owned_extent_by_index((ino, index), (owner, block), since),
        sums::owned_extent((ino, Span::of_block(index, block_size)), (owner, block), since),
    );
    if !table.is_of_versions {
        return Ok((old, new));
    }
    let until = CommitNo(unsigned(row, 6)?);
    Ok((sums::version(old, until), sums::version(new, until)))
}

impl Table {
    fn key(&self, place: &'static str) -> Vec<&'static str> {
        self.key.iter().map(|column| if *column == PLACE { place } else { *column }).collect()
    }

    /// Gives all rows another sum, a page of them at a time; `sums` tells the present one and the
    /// new one. `Corrupt` if a row is damaged; a version stays damaged.
    fn change_sums(
        &self,
        connection: &mut Connection,
        place: &'static str,
        sums: &dyn Fn(&Row) -> Result<Sums>,
    ) -> Result<()> {
        let (name, key) = (self.name, self.key(place));
        let listed = key.join(", ");
        let until = if self.is_of_versions { ", until, fork" } else { "" };
        let parameters = |from: usize| {
            (from..from + key.len()).map(|number| format!("${number}::bigint")).collect::<Vec<_>>().join(", ")
        };
        let page = format!(
            "SELECT ino, {place}, owner, block, since, sum{until} FROM {name} WHERE ({listed}) > ({}) \
             ORDER BY {listed} LIMIT {ROWS_TOGETHER}",
            parameters(1)
        );
        let is_key = key.iter().map(|column| format!("t.{column} = d.{column}")).collect::<Vec<_>>().join(" AND ");
        let arrays = (1..=key.len() + 1).map(|number| format!("${number}::bigint[]")).collect::<Vec<_>>().join(", ");
        let set =
            format!("UPDATE {name} t SET sum = d.other FROM unnest({arrays}) AS d ({listed}, other) WHERE {is_key}");
        let mut after = vec![i64::MIN; key.len()];
        loop {
            let parameters = after.iter().map(|number| Box::new(*number) as Parameter).collect();
            let rows = connection.query(WHAT, page.clone(), parameters)?;
            let Some(last) = rows.last() else { return Ok(()) };
            after = self.key_of(last)?;
            let keys = rows.iter().map(|row| self.key_of(row)).collect::<Result<Vec<_>>>()?;
            let others = rows.iter().map(|row| self.changed_sum(row, sums(row)?)).collect::<Result<Vec<_>>>()?;
            let mut columns = (0..key.len()).map(|at| column(&keys, |key| key[at])).collect::<Vec<_>>();
            columns.push(column(&others, |sum| *sum));
            connection.query(WHAT, set.clone(), columns)?;
        }
    }

    /// The second of the sums of `row`, if it has the first one.
    fn changed_sum(&self, row: &Row, (old, new): Sums) -> Result<i64> {
        if read::holds(row, 5, old) {
            return Ok(new);
        }
        if self.is_of_versions {
            return Ok(sums::NONE);
        }
        let (ino, place) = (get::<i64>(row, 0)?, get::<i64>(row, 1)?);
        Err(Error::Corrupt(format!(
            "inode {ino} has a damaged row of its block {place}, so that it cannot be upgraded; 'weft check' of the weft \
             that made it names it"
        )))
    }

    /// The key of a row.
    fn key_of(&self, row: &Row) -> Result<Vec<i64>> {
        let columns: &[usize] = if self.is_of_versions { &[7, 0, 1, 6] } else { &[0, 1] };
        columns.iter().map(|column| get(row, *column)).collect()
    }

    /// Has the rows say what bytes they cover.
    fn rekey(&self, connection: &mut Connection, block_size: u32) -> Result<()> {
        let Table { name, .. } = self;
        let (from, to) = (COLUMNS[0], COLUMNS[1]);
        self.change_key(connection, (from, to), &format!("{to} * {block_size}"))?;
        connection.run(WHAT, &format!("ALTER TABLE {name} ADD COLUMN length bigint NOT NULL DEFAULT {block_size}"))?;
        connection.run(WHAT, &format!("ALTER TABLE {name} ALTER COLUMN length DROP DEFAULT"))
    }

    /// Has the rows say which block they are.
    fn rekey_by_index(&self, connection: &mut Connection, block_size: u32) -> Result<()> {
        connection.run(WHAT, &format!("ALTER TABLE {} DROP COLUMN length", self.name))?;
        let (from, to) = (COLUMNS[1], COLUMNS[0]);
        self.change_key(connection, (from, to), &format!("{to} / {block_size}"))
    }

    /// Renames the column of the key and gives it another value. Without the key, as rows get those
    /// of others meanwhile.
    fn change_key(&self, connection: &mut Connection, (from, to): (&str, &'static str), value: &str) -> Result<()> {
        let (name, key) = (self.name, self.key(to).join(", "));
        for statement in [
            format!("ALTER TABLE {name} DROP CONSTRAINT {name}_pkey"),
            format!("ALTER TABLE {name} RENAME COLUMN {from} TO {to}"),
            format!("UPDATE {name} SET {to} = {value}"),
            format!("ALTER TABLE {name} ADD PRIMARY KEY ({key})"),
        ] {
            connection.run(WHAT, &statement)?;
        }
        Ok(())
    }
}

/// The size of the blocks of the volume, whatever its format.
pub(super) fn block_size(connection: &mut Connection) -> Result<u32> {
    let size = "SELECT block_size FROM volume WHERE id = 1";
    let size = connection.query(WHAT, size, Vec::new())?.first().map(|row| unsigned(row, 0)).transpose()?;
    let size = size.and_then(|size| u32::try_from(size).ok()).filter(|size| size.is_power_of_two());
    size.ok_or_else(|| Error::Corrupt("the row of the volume is damaged, so that it cannot be upgraded".into()))
}
