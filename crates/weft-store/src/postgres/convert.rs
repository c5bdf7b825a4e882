//! Another layout of a volume's blocks: a file at a time, each in a transaction of its own, so that
//! what an interruption leaves is a volume like any other, some of whose files lie as they did.

use super::address::Address;
use super::connection::{Call, Connection};
use super::lease::in_transaction;
use super::open::hold;
use super::read::{self, int, unsigned};
use super::rights::{self, Task};
use super::{own, statements as sql};
use crate::engine::OpenOptions;
use crate::error::Result;
use crate::finding::Progress;
use crate::row::Ino;
use tokio_postgres::types::Type;

const WHAT: &str = "cannot convert the volume";

/// Files that are asked for at a time.
const FILES_TOGETHER: i64 = 1000;

/// Has the blocks of the volume at `address`, which nobody may hold, lie as
/// [`crate::VolumeOptions::own_table_from`] says from now on. The server moves them; nothing of
/// them comes here.
pub fn convert(address: &Address, own_table_from: Option<u64>, progress: &mut dyn FnMut(Progress)) -> Result<()> {
    let (lease, connector) = hold(address, &OpenOptions::default())?;
    let mut connection = connector.connect()?;
    rights::refuse_lacking(&mut connection, address, Task::ServeOwnTables)?;
    let role = rights::other_owner(&mut connection);
    let from = own_table_from.map(int);
    let mut header = read::header(&mut connection)?;
    header.options.own_table_from = own_table_from;
    in_transaction(&mut connection, lease.epoch(), |connection| {
        connection.query(WHAT, sql::SET_LAYOUT, vec![Box::new(from), Box::new(header.sum())]).map(drop)
    })?;
    // What is empty goes first, if nobody reads it.
    let mut dropped = own::dropped(&mut connection)?;
    let _ = own::drop_tables(&mut connection, &mut dropped, lease.epoch());
    let total = connection.query(WHAT, sql::LAST_OWNER, Vec::new())?;
    let total = total.first().map_or(Ok(0), |row| unsigned(row, 0))?;
    let mut after = Ino(0);
    loop {
        let parameters: Vec<_> = vec![Box::new(int(after.0)) as _, Box::new(FILES_TOGETHER) as _];
        let owners = connection.query(WHAT, sql::OWNERS, parameters)?;
        let owners = owners.iter().map(|row| Ok(Ino(unsigned(row, 0)?))).collect::<Result<Vec<_>>>()?;
        let Some(last) = owners.last() else { return Ok(()) };
        after = *last;
        for owner in owners {
            progress(Progress { step: "files", done: owner.0, total });
            in_transaction(&mut connection, lease.epoch(), |connection| {
                move_blocks(connection, owner, from, role.as_deref())
            })?;
        }
    }
}

/// Moves those blocks of a file that do not lie where they should. A table that it takes is made by
/// `role`.
fn move_blocks(connection: &mut Connection, owner: Ino, from: Option<i64>, role: Option<&str>) -> Result<()> {
    let misplaced = vec![Box::new(int(owner.0)) as _, Box::new(from.unwrap_or(i64::MAX)) as _];
    let rows = connection.query(WHAT, sql::MISPLACED, misplaced)?;
    let count = |column| rows.first().map_or(Ok(0), |row| unsigned(row, column));
    let (to_own, to_common, own) = (count(0)?, count(1)?, count(2)?);
    let of = |text: String| {
        let from: i64 = from.unwrap_or(i64::MAX);
        Call::once(text, vec![(Box::new(int(owner.0)), Type::INT8), (Box::new(from), Type::INT8)])
    };
    let mut calls = Vec::new();
    if to_common > 0 {
        connection.query_all(WHAT, &[of(own::take_back(owner))])?;
        let may_drop = own == to_common && to_own == 0;
        // Bytes of a block may have been missing, or a row of one.
        match may_drop && own::needed(connection, &[owner])?.is_empty() {
            true => calls.extend([Call::once(own::drop_text(owner), Vec::new()), own::keep(owner)]),
            false => calls.push(of(own::forget(owner))),
        }
    }
    if to_own > 0 {
        // It may stand among those that are to be dropped: `make` takes it out.
        calls.extend(own::make([owner].into(), role));
        calls.push(of(own::take_over(owner)));
        calls.push(of(sql::LIES_ELSEWHERE.into()));
    }
    connection.query_all(WHAT, &calls).map(drop)
}
