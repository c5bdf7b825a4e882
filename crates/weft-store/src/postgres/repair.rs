//! Applies to the database the changes that a repair made in a copy of a volume's rows: all of them
//! in one transaction.

use super::check::Unneeded;
use super::columns::{self, OLD_EXTENTS, VOLUME, VersionTable};
use super::connection::{Call, Connection, Parameter};
use super::lease::in_transaction;
use super::read::int;
use super::statements as sql;
use crate::error::Result;
use crate::row::Ino;
use crate::sqlite::Copy;
use crate::tables::COUNTERS;
use bytes::BytesMut;
use rusqlite::types::Value;
use std::error::Error as StdError;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

const WHAT: &str = "cannot repair the volume";

/// Rows that are sent together.
const ROWS_TOGETHER: usize = 1000;

/// Brings the database to where `copy` is, which knows as `before` how it was. Of files' own tables
/// those go that nothing needs, and no others.
///
/// `fixed` is the sum of what the volume's row says that a repair does not change.
pub(super) fn write_back(
    copy: &Copy,
    own: &Unneeded,
    connection: &mut Connection,
    (epoch, fixed): (i64, i64),
) -> Result<()> {
    in_transaction(connection, epoch, |connection| {
        let mut sender = Sender { connection, calls: Vec::new() };
        // Rows that change go before any comes: positions pass from one name to another.
        let tables = columns::all().filter(|table| table.name != "blocks").collect::<Vec<_>>();
        let versions = columns::of_versions().collect::<Vec<_>>();
        for table in &tables {
            remove(copy, (table.name, &table.copied(), &table.copied_key()), &mut sender)?;
        }
        for VersionTable { name, columns, key } in &versions {
            remove(copy, (name, columns, key), &mut sender)?;
        }
        tables.iter().try_for_each(|table| put(copy, (table.name, &table.copied()), &mut sender))?;
        versions.iter().try_for_each(|table| put(copy, (&table.name, &table.columns), &mut sender))?;
        let gone = "SELECT o.owner, o.id FROM owners o JOIN before.blocks w ON w.id = o.id WHERE o.id NOT IN (SELECT id FROM main.blocks)";
        copy.each(gone, &[], |row| sender.send("DELETE FROM blocks WHERE owner = $1 AND id = $2", row))?;
        let changed = "SELECT b.refs, o.owner, o.id, \
                       weft_sum('owned blocks', o.owner, b.id, b.length, b.base, b.value, b.refs) \
                       FROM main.blocks b JOIN owners o ON o.id = b.id JOIN before.blocks w ON w.id = b.id \
                       WHERE w.refs <> b.refs";
        let set = "UPDATE blocks SET refs = $1, sum = $4 WHERE owner = $2 AND id = $3";
        copy.each(changed, &[], |row| sender.send(set, row))?;
        let volume = VOLUME.join(", ");
        let places = (1..=VOLUME.len()).map(|place| format!("{} = ${place}", VOLUME[place - 1]));
        let set = places.chain([format!("sum = ${}", VOLUME.len() + 1)]).collect::<Vec<_>>().join(", ");
        let set = format!("UPDATE volume SET {set} WHERE id = 1");
        let counters = format!("weft_sum('counters', {})", COUNTERS.join(", "));
        // `created` is of the volume, as all else that the other half is of.
        let all = format!("SELECT {volume}, ({counters} + ?1) & 4611686018427387903 FROM volume");
        copy.each(&all, &[fixed], |row| sender.send(&set, row))?;
        for table in &own.stray {
            sender.send(&format!("DROP TABLE {table}"), Vec::new())?;
        }
        let in_use = |owner: &Ino| sender.send(sql::KEEP_OWN, vec![Value::Integer(int(owner.0))]);
        own.in_use.iter().try_for_each(in_use)?;
        sender.flush()
    })
}

/// A table, its columns and its key, as a copy has them.
type Keyed<'a> = (&'a str, &'a [&'a str], &'a [&'a str]);

/// Removes rows that are gone or changed.
fn remove(copy: &Copy, (table, columns, key): Keyed<'_>, sender: &mut Sender<'_>) -> Result<()> {
    let all = columns.join(", ");
    let changed = format!(
        "SELECT {} FROM (SELECT {all} FROM before.{table} EXCEPT SELECT {all} FROM main.{table})",
        key.join(", ")
    );
    let is_key = key.iter().enumerate().map(|(at, column)| format!("{column} = ${}", at + 1));
    let statement = format!("DELETE FROM {table} WHERE {}", is_key.collect::<Vec<_>>().join(" AND "));
    copy.each(&changed, &[], |row| sender.send(&statement, row))
}

/// Puts rows that are new or changed.
fn put(copy: &Copy, (table, columns): (&str, &[&str]), sender: &mut Sender<'_>) -> Result<()> {
    let all = columns.join(", ");
    let changed = format!("SELECT {all} FROM main.{table} EXCEPT SELECT {all} FROM before.{table}");
    // The copy does not say of an extent whose block it names.
    let (changed, own) = match table {
        "extents" => (
            format!(
                "SELECT e.*, coalesce(o.owner, e.ino), \
                 weft_sum('owned extents', e.ino, e.start, e.length, coalesce(o.owner, e.ino), e.block, e.since) \
                 FROM ({changed}) e LEFT JOIN owners o ON o.id = e.block"
            ),
            ", owner, sum",
        ),
        OLD_EXTENTS => (
            format!(
                "SELECT {}, (weft_sum('owned extents', e.ino, e.start, e.length, coalesce(o.owner, e.ino), e.block, e.since) \
                 + weft_references(e.until)) & 4611686018427387903, coalesce(o.owner, e.ino) \
                 FROM ({changed}) e LEFT JOIN owners o ON o.id = e.block",
                columns
                    .iter()
                    .filter(|column| **column != "sum")
                    .map(|column| format!("e.{column}"))
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
            ", owner",
        ),
        _ => (changed, ""),
    };
    let count = columns.len() + own.matches(',').count();
    let places = (1..=count).map(|place| format!("${place}")).collect::<Vec<_>>().join(", ");
    let statement = format!("INSERT INTO {table} ({all}{own}) VALUES ({places})");
    copy.each(&changed, &[], |row| sender.send(&statement, row))
}

/// Sends statements, many at a time.
struct Sender<'a> {
    connection: &'a mut Connection,
    calls: Vec<Call>,
}

impl Sender<'_> {
    fn send(&mut self, statement: &str, row: Vec<Value>) -> Result<()> {
        let parameters = row.into_iter().map(|value| Box::new(Cell(value)) as Parameter).collect();
        self.calls.push(Call::new(statement.to_owned(), parameters));
        if self.calls.len() < ROWS_TOGETHER { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<()> {
        self.connection.query_all(WHAT, &std::mem::take(&mut self.calls)).map(|_| ())
    }
}

/// A value of the copy, as a column takes it.
#[derive(Debug)]
struct Cell(Value);

impl ToSql for Cell {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        match (&self.0, kind) {
            (Value::Null, _) => Ok(IsNull::Yes),
            (Value::Integer(number), &Type::BOOL) => (*number != 0).to_sql(kind, out),
            (Value::Integer(number), _) => number.to_sql(kind, out),
            (Value::Blob(bytes), _) => bytes.to_sql(kind, out),
            (Value::Text(text), _) => text.to_sql(kind, out),
            (Value::Real(_), _) => Err("no column has values of this kind".into()),
        }
    }

    fn accepts(kind: &Type) -> bool {
        [Type::INT8, Type::BYTEA, Type::BOOL, Type::TEXT].contains(kind)
    }

    to_sql_checked!();
}
