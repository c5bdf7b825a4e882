//! A volume's rows taken over from another engine, to be looked at where the rules of a check can
//! be asked.

use super::layout::Layout;
use super::open::{connect, create};
use crate::error::{Error, Result};
use crate::row::Timestamp;
use crate::store::{BlockHome, VolumeOptions};
use rusqlite::Connection;
use rusqlite::types::Value;
use std::path::Path;

fn failed(source: rusqlite::Error) -> Error {
    Error::Sqlite { what: "cannot copy rows", source }
}

/// Owners of blocks, and whether the blocks lie in a table of that file's own.
const OWNERS: &str = "CREATE TABLE owners (id INTEGER PRIMARY KEY, owner INTEGER NOT NULL, own INTEGER NOT NULL)";

/// A copy.
pub(crate) struct Copy {
    connection: Connection,
}

impl Copy {
    /// A new volume at `path`, without any rows but its own.
    pub(crate) fn new(path: &Path, options: &VolumeOptions) -> Result<Copy> {
        let options = VolumeOptions { home: BlockHome::Database, ..options.clone() };
        create(path, &options, (0, 0), Timestamp(0))?;
        let connection = connect(&Layout::of(path, BlockHome::Database).database, 64)?;
        let begin = "PRAGMA synchronous = OFF; BEGIN; DELETE FROM fileatt; DELETE FROM commits";
        connection.execute_batch(OWNERS).map_err(failed)?;
        connection.execute_batch(begin).map_err(failed)?;
        Ok(Copy { connection })
    }

    /// Puts a row of `columns`.
    pub(crate) fn put(&self, table: &str, columns: &[&str], row: Vec<Value>) -> Result<()> {
        let places = vec!["?"; columns.len()].join(", ");
        let statement = format!("INSERT INTO {table} ({}) VALUES ({places})", columns.join(", "));
        let mut statement = self.connection.prepare_cached(&statement).map_err(failed)?;
        statement.execute(rusqlite::params_from_iter(row)).map_err(failed)?;
        Ok(())
    }

    /// Changes the one row of the table `volume`.
    pub(crate) fn set_volume(&self, columns: &[&str], row: Vec<Value>) -> Result<()> {
        let set = columns.iter().map(|column| format!("{column} = ?")).collect::<Vec<_>>().join(", ");
        let statement = format!("UPDATE volume SET {set}");
        self.connection.execute(&statement, rusqlite::params_from_iter(row)).map_err(failed)?;
        Ok(())
    }

    /// Has a row of `table` be as damaged as it was elsewhere: gives it its own sum if the one it
    /// had there, of `summed`, is right. `row` is its key here, the sum, and what that is of.
    pub(crate) fn take_over_sum(&self, table: &str, key: &[&str], summed: &str, row: Vec<Value>) -> Result<()> {
        let places = (key.len() + 2..=row.len()).map(|place| format!("?{place}")).collect::<Vec<_>>().join(", ");
        let whole = format!("SELECT ?{} IS weft_sum('{summed}', {places})", key.len() + 1);
        let mut whole = self.connection.prepare_cached(&whole).map_err(failed)?;
        if whole.query_row(rusqlite::params_from_iter(&row), |row| row.get(0)).map_err(failed)? {
            let own = super::sums::ALL.iter().find(|own| own.table == table && own.column == "sum");
            let own = own.ok_or_else(|| Error::Bug(format!("rows of {table} have no sums")))?;
            let is_key = key.iter().enumerate().map(|(at, column)| format!("{column} = ?{}", at + 1));
            let is_key = is_key.collect::<Vec<_>>().join(" AND ");
            let set = format!("UPDATE {table} SET sum = {} WHERE {is_key}", own.expression());
            let mut set = self.connection.prepare_cached(&set).map_err(failed)?;
            set.execute(rusqlite::params_from_iter(&row[..key.len()])).map_err(failed)?;
        }
        Ok(())
    }

    /// All rows are there.
    pub(crate) fn finish(&self) -> Result<()> {
        super::sums::VOLUME.seal(&self.connection)?;
        self.connection.execute_batch("COMMIT").map_err(failed)
    }

    /// A copy of the copy at `path`, as it is.
    pub(crate) fn duplicate(&self, path: &Path) -> Result<()> {
        let path = path.to_str().ok_or_else(|| Error::Bug("a temporary file of a strange name".into()))?;
        self.connection.execute("VACUUM INTO ?1", (path,)).map(|_| ()).map_err(failed)
    }

    /// Has statements see what [`Copy::duplicate`] kept at `path`, as `before`.
    pub(crate) fn compare_with(&self, path: &Path) -> Result<()> {
        let path = path.to_str().ok_or_else(|| Error::Bug("a temporary file of a strange name".into()))?;
        self.connection.execute("ATTACH ?1 AS before", (path,)).map(|_| ()).map_err(failed)
    }

    /// Has `visit` look at each row of a query.
    pub(crate) fn each(
        &self,
        query: &str,
        parameters: &[i64],
        mut visit: impl FnMut(Vec<Value>) -> Result<()>,
    ) -> Result<()> {
        let mut statement = self.connection.prepare(query).map_err(failed)?;
        let columns = statement.column_count();
        let mut rows = statement.query(rusqlite::params_from_iter(parameters)).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            let values = (0..columns).map(|column| row.get(column)).collect::<rusqlite::Result<Vec<_>>>();
            visit(values.map_err(failed)?)?;
        }
        Ok(())
    }
}
