//! Entries and blocks whose rows are gone or damaged, in PostgreSQL.

use super::connection::{Call, Connection};
use super::read::{self, get, int, unsigned};
use super::statements;
use crate::error::Result;
use crate::missing::{self, Blocks, LOOKED_AT_MAX, LOOKED_AT_ONCE};
use crate::row::Ino;
use tokio_postgres::Row;

/// Said of statements that fail.
const WHAT: &str = "cannot read the database";

/// Counts the entries that a listing comes to, then looks at them: damaged ones among them are
/// reported as such.
pub(super) fn names(connection: &mut Connection, directory: Ino) -> Result<()> {
    let look = |after: i64| {
        let numbers = [int(directory.0), after, int(LOOKED_AT_ONCE as u64)];
        Call::new(statements::NAMES, numbers.map(|number| Box::new(number) as _).into())
    };
    let count = Call::new(statements::MISSING_NAMES, vec![Box::new(int(directory.0))]);
    let mut answers = connection.query_all(WHAT, &[count, look(0)])?.into_iter();
    let (counted, rows) = (answers.next().unwrap_or_default(), answers.next().unwrap_or_default());
    // None: removed since.
    let Some(row) = counted.first() else { return Ok(()) };
    let counted = unsigned(row, 0)?;
    missing::refuse_names(directory, unsigned(row, 1)?, counted)?;
    if counted > LOOKED_AT_MAX {
        return Ok(());
    }
    each(connection, rows, look, |row| read::name_row(row, directory).map(drop))
}

/// Counts the rows that lie in the file, then looks at them: damaged ones among them are reported
/// as such.
pub(super) fn block(connection: &mut Connection, ino: Ino, block_size: u64) -> Result<()> {
    let counting = if connection.lies_apart { statements::MISSING_BLOCKS_APART } else { statements::MISSING_BLOCKS };
    let look = |after: i64| {
        let parameters =
            vec![Box::new(int(ino.0)) as _, Box::new(after) as _, Box::new(int(LOOKED_AT_ONCE as u64)) as _];
        Call::new(statements::EXTENT_SUMS, parameters)
    };
    let counting = Call::new(counting, vec![Box::new(int(ino.0))]);
    let mut answers = connection.query_all(WHAT, &[counting, look(-1)])?.into_iter();
    let (counted, rows) = (answers.next().unwrap_or_default(), answers.next().unwrap_or_default());
    // None: removed or shortened since.
    let Some(row) = counted.first() else { return Ok(()) };
    let blocks = Blocks { allocated: unsigned(row, 0)?, held: unsigned(row, 1)? };
    missing::refuse_block(ino, &blocks)?;
    if blocks.allocated / block_size > LOOKED_AT_MAX {
        return Ok(());
    }
    each(connection, rows, look, |row| read::whole_extent(ino, row))
}

/// Does `check` on `rows` and on those that `look` asks for behind the last of them, which its
/// first column tells.
fn each(
    connection: &mut Connection,
    mut rows: Vec<Row>,
    look: impl Fn(i64) -> Call,
    check: impl Fn(&Row) -> Result<()>,
) -> Result<()> {
    loop {
        rows.iter().try_for_each(&check)?;
        match rows.last().filter(|_| rows.len() >= LOOKED_AT_ONCE) {
            Some(last) => rows = connection.query_all(WHAT, &[look(get(last, 0)?)])?.pop().unwrap_or_default(),
            None => return Ok(()),
        }
    }
}
