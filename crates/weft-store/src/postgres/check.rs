//! Checking a volume in PostgreSQL, held or not: its blocks are read and verified here, its rows
//! are copied, as one commit left them, to where the rules of `sqlite::check` can be asked.

use super::address::Address;
use super::columns::{self, OLD_EXTENTS, VOLUME, VersionTable};
use super::connection::{Call, Connection};
use super::lease::{self, Lease, in_transaction};
use super::open::{hold, look};
use super::read::{self, get, int, unsigned};
use super::rights::{self, Task};
use super::{own, repair, shape, statements as sql, waiting};
use crate::engine::OpenOptions;
use crate::error::{Error, Result};
use crate::finding::{CheckOptions, Finding, Outcome, Progress, Repair};
use crate::row::{BlockId, BlockRef, CommitNo, Ino, OpNo, Place, Span};
use crate::shape::is_hopeless;
use crate::sqlite::{Copy, Elsewhere, check_copy};
use crate::sums;
use rusqlite::types::Value;
use std::cell::RefCell;
use std::collections::BTreeSet;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use weft_block::Block;

const WHAT: &str = "cannot check the volume";

/// Number of times that reading is restarted because a table has gone meanwhile.
const HOLDING_MAX: u32 = 8;

/// Rows copied between two reports of progress.
const REPORTED: u64 = 4096;

/// Checks the volume at `address`, as its last commit left it; `read_data` verifies all blocks. A
/// repair holds the volume meanwhile: it is made in the copy, and what changed there is changed in
/// the database, in one transaction. Errors: those of [`super::open`], and what keeps the check
/// from going on.
pub fn check(address: &Address, options: CheckOptions, progress: &mut dyn FnMut(Progress)) -> Result<Vec<Finding>> {
    let mut connection = look(address)?.0;
    let (lease, fault) = match options.repair {
        Repair::No => (None, lease::fault(&mut connection)?),
        Repair::Yes | Repair::Discard => {
            // Else nobody could hold it. Its last holder cannot any more.
            let fault = lease::mend(&mut connection)?;
            (Some(hold(address, &OpenOptions::default())?.0), fault)
        }
    };
    let outcome = if lease.is_some() { Outcome::Repaired } else { Outcome::Damaged };
    let fault = fault.map(|what| Finding::new(None, what, outcome));
    let misfits = shape::misfits(&mut connection)?;
    let shaped = misfits.iter().map(|misfit| misfit.finding(options.repair));
    if is_hopeless(&misfits) {
        return Ok(fault.into_iter().chain(shaped).collect());
    }
    if let Some(lease) = &lease {
        if shape::is_mendable(&misfits) {
            rights::refuse_lacking(&mut connection, address, Task::Alter)?;
        }
        in_transaction(&mut connection, lease.epoch(), |connection| shape::mend(connection, &misfits))?;
    }
    rights::refuse_lacking(&mut connection, address, Task::Read)?;
    let mut findings = check_tables(connection, (options, lease.as_ref()), progress)?;
    findings.splice(0..0, fault.into_iter().chain(shaped));
    Ok(findings)
}

fn check_tables(
    mut connection: Connection,
    (options, lease): (CheckOptions, Option<&Lease>),
    progress: &mut dyn FnMut(Progress),
) -> Result<Vec<Finding>> {
    hold_tables(&mut connection)?;
    // As of the commit that all else here is read of.
    let header = read::header(&mut connection)?;
    let mut bad = Vec::new();
    if options.read_data {
        damaged(&mut connection, progress, &mut bad)?;
    }
    let tables = own_tables(&mut connection, options, &mut bad)?;
    let waiting = waiting::verify(&mut connection, &header)?;
    let logged = (waiting.operations > 0).then(|| OpNo(header.counters.op.0 + waiting.operations));
    let directory = tempfile::tempdir();
    let directory =
        directory.map_err(|source| Error::Io { what: "cannot make", path: std::env::temp_dir(), source })?;
    let (path, before) = (directory.path().join("copy"), directory.path().join("before"));
    let copy = Copy::new(&path, &header.options)?;
    copy_rows(&mut connection, &copy, progress)?;
    copy.finish()?;
    if lease.is_some() {
        copy.duplicate(&before)?;
    }
    connection.run(WHAT, "COMMIT")?;
    let blocks = RefCell::new(connection);
    let read = |block: &BlockRef| read_block(&copy, &mut blocks.borrow_mut(), block);
    let elsewhere = Elsewhere { bad, logged, read: &read };
    let mut findings = check_copy(&path, options.repair, elsewhere, progress)?;
    if let Some(lease) = lease {
        copy.compare_with(&before)?;
        let fixed = header.fixed_sum();
        repair::write_back(&copy, &tables, &mut blocks.borrow_mut(), (lease.epoch(), fixed))?;
    }
    findings.extend(tables.findings(lease.is_some()));
    // No repair brings back what was logged.
    findings.extend(waiting.lost.map(Finding::damage));
    Ok(findings)
}

/// Reads a block whose place `copy` knows.
fn read_block(copy: &Copy, connection: &mut Connection, block: &BlockRef) -> Result<Block> {
    let mut place = None;
    copy.each("SELECT owner, own FROM owners WHERE id = ?1", &[int(block.id.0)], |row| {
        if let [Value::Integer(owner), Value::Integer(own)] = row[..] {
            let owner = Ino(owner.unsigned_abs());
            place = Some(if own != 0 { Place::Own(owner) } else { Place::File(owner) });
        }
        Ok(())
    })?;
    let place = place.ok_or_else(|| Error::Corrupt(format!("block {} has no row", block.id.0)))?;
    let mut found = None;
    read::blocks(connection, &[BlockRef { place, ..*block }], &mut |result| found = Some(result))?;
    found.ok_or_else(|| Error::Bug("one block was asked for".into()))?
}

fn copy_rows(connection: &mut Connection, copy: &Copy, progress: &mut dyn FnMut(Progress)) -> Result<()> {
    let tables = columns::all().collect::<Vec<_>>();
    let total = tables.len() as u64;
    for (done, table) in tables.iter().enumerate() {
        progress(Progress { step: "copying rows", done: done as u64, total });
        let (name, columns) = (table.name, table.copied());
        let all = format!("SELECT {} FROM {name}", columns.join(", "));
        connection.each(WHAT, &all, |row| copy.put(name, &columns, values(row)?))?;
    }
    // The rows of these tell more here than in a copy, and have other sums.
    for table in tables.iter().filter(|table| table.is_owned()) {
        let (name, key) = (table.name, table.copied_key());
        let all = format!("SELECT {}, sum, {} FROM {name}", key.join(", "), table.columns.join(", "));
        connection.each(WHAT, &all, |row| copy.take_over_sum(name, &key, table.sum, values(row)?))?;
    }
    copy_versions(connection, copy)?;
    connection.each(WHAT, "SELECT id, owner, bytes IS NULL FROM blocks", |row| {
        copy.put("owners", &["id", "owner", "own"], values(row)?)
    })?;
    let own = format!("SELECT {} FROM volume", VOLUME.join(", "));
    connection.each(WHAT, &own, |row| copy.set_volume(VOLUME, values(row)?))
}

/// Copies the versions of rows.
fn copy_versions(connection: &mut Connection, copy: &Copy) -> Result<()> {
    for VersionTable { name, columns, .. } in columns::of_versions().filter(|table| table.name != OLD_EXTENTS) {
        let all = format!("SELECT {} FROM {name}", columns.join(", "));
        connection.each(WHAT, &all, |row| copy.put(&name, &columns, values(row)?))?;
    }
    let all = format!("SELECT fork, ino, start, since, until, length, block, owner, sum FROM {OLD_EXTENTS}");
    let columns = ["fork", "ino", "start", "since", "until", "length", "block", "sum"];
    connection.each(WHAT, &all, |row| {
        let mut copied = values(row)?;
        copied.truncate(columns.len() - 1);
        copied.push(Value::Integer(copied_sum(row).unwrap_or(sums::NONE)));
        copy.put(OLD_EXTENTS, &columns, copied)
    })
}

/// The sum that the version of an extent has in a copy; none if it is damaged.
fn copied_sum(row: &Row) -> Option<i64> {
    let number = |column| unsigned(row, column).ok();
    let (ino, block, owner) = (Ino(number(1)?), number(6)?, Ino(number(7)?));
    let span = Span { start: number(2)?, length: u32::try_from(number(5)?).ok()? };
    let (since, until) = (CommitNo(number(3)?), CommitNo(number(4)?));
    let sum = sums::version(sums::owned_extent((ino, span), (owner, block), since), until);
    read::holds(row, 8, sum).then(|| sums::version(sums::extent(ino, span, block, since), until))
}

fn values(row: &Row) -> Result<Vec<Value>> {
    let value = |(at, column): (usize, &tokio_postgres::Column)| {
        Ok(match *column.type_() {
            Type::INT8 => get::<Option<i64>>(row, at)?.map_or(Value::Null, Value::Integer),
            Type::TEXT => get::<Option<String>>(row, at)?.map_or(Value::Null, Value::Text),
            Type::BOOL => Value::Integer(i64::from(get::<bool>(row, at)?)),
            _ => get::<Option<Vec<u8>>>(row, at)?.map_or(Value::Null, Value::Blob),
        })
    };
    row.columns().iter().enumerate().map(value).collect()
}

/// Blocks that are not as they were written, and what is wrong with them.
type Bad = Vec<(BlockId, &'static str)>;

/// Looks for blocks in the common table whose bytes are not those that were written.
fn damaged(connection: &mut Connection, progress: &mut dyn FnMut(Progress), bad: &mut Bad) -> Result<()> {
    let mut total = 0;
    connection.each(WHAT, "SELECT count(*) FROM blocks", |row| {
        total = unsigned(row, 0)?;
        Ok(())
    })?;
    let mut done = 0;
    connection.each(WHAT, "SELECT owner, id, length, base, value, bytes FROM blocks WHERE bytes IS NOT NULL", |row| {
        if done % REPORTED == 0 {
            progress(Progress { step: "data", done, total });
        }
        done += 1;
        verify(row, bad)
    })
}

fn verify(row: &Row, bad: &mut Bad) -> Result<()> {
    let (owner, id) = (Ino(unsigned(row, 0)?), BlockId(unsigned(row, 1)?));
    let (length, base, value) = (get::<i64>(row, 2)?, unsigned(row, 3)?, get::<Vec<u8>>(row, 4)?);
    let length = u32::try_from(length).ok().zip(value.try_into().ok());
    let block = length.map(|(length, value)| BlockRef { id, length, base, value, place: Place::File(owner) });
    let bytes = row.try_get::<_, &[u8]>(5).ok();
    if !block.zip(bytes).is_some_and(|(block, bytes)| block.verify(bytes)) {
        bad.push((id, "has other bytes than were written"));
    }
    Ok(())
}

/// Begins to read, and keeps what files have tables of their own for from being dropped meanwhile:
/// what a transaction sees stays as it is, but for tables.
fn hold_tables(connection: &mut Connection) -> Result<()> {
    for left in (0..HOLDING_MAX).rev() {
        connection.run(WHAT, sql::BEGIN_READING)?;
        let tables = there(connection)?;
        let look = |table: &String| Call::once(format!("SELECT 1 FROM {table} LIMIT 1"), Vec::new());
        match connection.query_all(WHAT, &tables.iter().map(look).collect::<Vec<_>>()) {
            // One was dropped before it was looked at.
            Err(Error::Postgres { source, .. }) if source.code() == Some(&SqlState::UNDEFINED_TABLE) && left > 0 => {
                connection.run(WHAT, "ROLLBACK")?;
            }
            looked => return looked.map(drop),
        }
    }
    Ok(())
}

/// Files' own tables that there are: also those that this role may not read. That is no damage, and
/// the server says so.
fn there(connection: &mut Connection) -> Result<BTreeSet<String>> {
    let mut tables = BTreeSet::new();
    let there = "SELECT tablename::text FROM pg_catalog.pg_tables WHERE schemaname = current_schema()";
    connection.each(WHAT, there, |row| {
        tables.extend(Some(get::<String>(row, 0)?).filter(|name| name.starts_with(own::PREFIX)));
        Ok(())
    })?;
    Ok(tables)
}

/// The files that have one.
fn owners(connection: &mut Connection) -> Result<Vec<Ino>> {
    let mut owners = Vec::new();
    connection.each(WHAT, "SELECT DISTINCT owner FROM blocks WHERE bytes IS NULL ORDER BY owner", |row| {
        owners.push(Ino(unsigned(row, 0)?));
        Ok(())
    })?;
    Ok(owners)
}

/// Looks at files' own tables: their blocks must be there and, if asked for, be what was written.
/// Tells the tables of no file.
fn own_tables(connection: &mut Connection, options: CheckOptions, bad: &mut Bad) -> Result<Unneeded> {
    let mut tables = there(connection)?;
    for owner in owners(connection)? {
        let (table, blocks) = (own::table(owner), format!("b.owner = {} AND b.bytes IS NULL", owner.0));
        let missing = match tables.remove(&table) {
            true => {
                format!("SELECT b.id FROM blocks b LEFT JOIN {table} o ON o.id = b.id WHERE {blocks} AND o.id IS NULL")
            }
            false => format!("SELECT b.id FROM blocks b WHERE {blocks}"),
        };
        let was_there = bad.len();
        connection.each(WHAT, &missing, |row| {
            bad.push((BlockId(unsigned(row, 0)?), "has no bytes"));
            Ok(())
        })?;
        if options.read_data && bad.len() == was_there {
            let all = format!(
                "SELECT b.owner, b.id, b.length, b.base, b.value, o.bytes FROM blocks b JOIN {table} o ON o.id = b.id WHERE {blocks}"
            );
            connection.each(WHAT, &all, |row| verify(row, bad))?;
        }
    }
    // Those that wait to be dropped are known.
    let dropped = own::dropped(connection)?;
    for owner in &dropped {
        tables.remove(&own::table(*owner));
    }
    let dropped = dropped.into_iter().collect::<Vec<_>>();
    let in_use = own::needed(connection, &dropped)?;
    Ok(Unneeded { stray: stray(connection, tables)?, in_use })
}

/// Tables of files that nothing is said to need.
pub(super) struct Unneeded {
    /// Tables of no file.
    pub(super) stray: Vec<String>,
    /// Files whose table is to be dropped although they need it.
    pub(super) in_use: BTreeSet<Ino>,
}

impl Unneeded {
    fn findings(self, is_repair: bool) -> impl Iterator<Item = Finding> {
        let outcome = move |without| if is_repair { Outcome::Repaired } else { without };
        let finding = move |what, without| Finding::new(None, what, outcome(without));
        let in_use = self.in_use.into_iter().map(|owner| {
            let table = own::table(owner);
            format!("the table {table} is said to be unused, by a row of the table dropped, but blocks need it")
        });
        let stray = self.stray.into_iter().map(|table| format!("the table {table} belongs to no file"));
        let in_use = in_use.map(move |what| finding(what, Outcome::Damaged));
        in_use.chain(stray.map(move |what| finding(what, Outcome::Note)))
    }
}

/// Returns those of `tables` that no file needs. A table whose blocks have no rows any more still
/// has their bytes.
fn stray(connection: &mut Connection, tables: BTreeSet<String>) -> Result<Vec<String>> {
    let mut stray = Vec::new();
    for table in tables {
        let owner = table.strip_prefix(own::PREFIX).and_then(|number| number.parse::<i64>().ok());
        let named = "(SELECT ino FROM extents WHERE owner = $1 LIMIT 1) UNION ALL \
                     (SELECT ino FROM extents_history WHERE owner = $1 LIMIT 1)";
        let is_named = match owner {
            Some(owner) => !connection.query(WHAT, named, vec![Box::new(owner)])?.is_empty(),
            None => false,
        };
        stray.extend(Some(table).filter(|_| !is_named));
    }
    Ok(stray)
}
