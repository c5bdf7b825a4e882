//! Gives rows the sums of what they hold: those of a volume of a format without sums, and of tests
//! that make what no Weft writes.

use super::columns::{self, Table};
use super::connection::{Call, Connection};
use super::read::{self, get, int, unsigned};
use crate::error::{Error, Result};
use crate::sums::{self, Sum};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

const WHAT: &str = "cannot make sums of rows";

/// Rows that are read and changed together.
const ROWS_TOGETHER: usize = 1000;

/// A column that holds a sum: its table, what the sum is of, and how many of those columns are the
/// row's key.
struct Summed {
    table: &'static str,
    column: &'static str,
    name: &'static str,
    columns: Vec<&'static str>,
    key: usize,
}

/// The columns of `table` that hold sums.
fn summed(table: Table) -> impl Iterator<Item = Summed> {
    let of = |column, name, columns| Summed { table: table.name, column, name, columns, key: table.key };
    let digest = table.digest.map(|name| of("digest_sum", name, [table.key(), &["digest"]].concat()));
    [of("sum", table.sum, table.columns.clone())].into_iter().chain(digest)
}

/// Gives all rows the sums of what they hold now.
pub(super) fn seal(connection: &mut Connection) -> Result<()> {
    columns::all().flat_map(summed).try_for_each(|summed| summed.seal(connection))?;
    seal_volume(connection)
}

/// Gives the volume's own row the sum of what it holds now.
pub(super) fn seal_volume(connection: &mut Connection) -> Result<()> {
    let sum = read::unverified_header(connection)?.sum();
    connection.query(WHAT, "UPDATE volume SET sum = $1 WHERE id = 1", vec![Box::new(sum)]).map(drop)
}

/// Gives the rows of inodes the sums of what they hold now, but not their digests.
pub(super) fn seal_inodes(connection: &mut Connection) -> Result<()> {
    let inodes = columns::all().filter(|table| table.name == "fileatt").flat_map(summed);
    inodes.filter(|summed| summed.column == "sum").try_for_each(|summed| summed.seal(connection))
}

impl Summed {
    /// A page of rows at a time, in the order of their keys.
    fn seal(&self, connection: &mut Connection) -> Result<()> {
        let Summed { table, columns, key, .. } = self;
        let keys = columns[..*key].join(", ");
        let mut after: Option<Vec<Key>> = None;
        loop {
            let places = (1..=*key).map(|place| format!("${place}")).collect::<Vec<_>>().join(", ");
            let from = after.as_ref().map(|_| format!("WHERE ({keys}) > ({places})")).unwrap_or_default();
            let page =
                format!("SELECT {} FROM {table} {from} ORDER BY {keys} LIMIT {ROWS_TOGETHER}", columns.join(", "));
            let parameters = after.iter().flatten().map(Key::parameter).collect();
            let rows = connection.query_all(WHAT, &[Call::once(page, parameters)])?.pop().unwrap_or_default();
            let Some(last) = rows.last() else { return Ok(()) };
            after = Some((0..*key).map(|place| Key::of(last, place)).collect::<Result<_>>()?);
            let calls = rows.iter().map(|row| self.set(row)).collect::<Result<Vec<_>>>()?;
            connection.query_all(WHAT, &calls)?;
        }
    }

    fn set(&self, row: &Row) -> Result<Call> {
        let is_key = self.columns[..self.key].iter().enumerate().map(|(at, column)| format!("{column} = ${}", at + 2));
        let is_key = is_key.collect::<Vec<_>>().join(" AND ");
        let statement = format!("UPDATE {} SET {} = $1 WHERE {is_key}", self.table, self.column);
        let mut parameters: Vec<(super::connection::Parameter, Type)> = vec![(Box::new(self.sum(row)?), Type::INT8)];
        for place in 0..self.key {
            parameters.push(Key::of(row, place)?.parameter());
        }
        Ok(Call::once(statement, parameters))
    }

    fn sum(&self, row: &Row) -> Result<i64> {
        let is_counted = self.name == "owned blocks";
        let count = self.columns.len() - usize::from(is_counted);
        let sum = (0..count).try_fold(Sum::of(self.name), |sum, place| {
            Ok::<_, Error>(match *row.columns()[place].type_() {
                Type::INT8 => match get::<Option<i64>>(row, place)? {
                    Some(number) => sum.int(number),
                    None => sum.null(),
                },
                Type::TEXT => sum.odd(b't', get::<String>(row, place)?.as_bytes()),
                Type::BOOL => sum.int(get::<bool>(row, place)?.into()),
                _ => match get::<Option<Vec<u8>>>(row, place)? {
                    Some(bytes) => sum.bytes(&bytes),
                    None => sum.null(),
                },
            })
        })?;
        let refs = if is_counted { get(row, count)? } else { 0 };
        Ok(sums::add(sum.end(), sums::references(refs)))
    }
}

/// A value of a key.
enum Key {
    Number(u64),
    Bytes(Vec<u8>),
}

impl Key {
    fn of(row: &Row, place: usize) -> Result<Key> {
        Ok(match *row.columns()[place].type_() {
            Type::INT8 => Key::Number(unsigned(row, place)?),
            _ => Key::Bytes(get(row, place)?),
        })
    }

    fn parameter(&self) -> (super::connection::Parameter, Type) {
        match self {
            Key::Number(number) => (Box::new(int(*number)), Type::INT8),
            Key::Bytes(bytes) => (Box::new(bytes.clone()), Type::BYTEA),
        }
    }
}
