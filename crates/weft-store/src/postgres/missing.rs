//! Entries and blocks whose rows are gone, in PostgreSQL.

use super::connection::Connection;
use super::read::{int, unsigned};
use super::statements;
use crate::error::Result;
use crate::missing::{self, Blocks};
use crate::row::Ino;

/// Said of statements that fail.
const WHAT: &str = "cannot read the database";

pub(super) fn names(connection: &mut Connection, directory: Ino) -> Result<()> {
    let rows = connection.query(WHAT, statements::MISSING_NAMES, vec![Box::new(int(directory.0))])?;
    match rows.first() {
        Some(row) => missing::refuse_names(directory, unsigned(row, 1)?, unsigned(row, 0)?),
        // Removed since.
        None => Ok(()),
    }
}

pub(super) fn block(connection: &mut Connection, (ino, index): (Ino, u64), block_size: u64) -> Result<()> {
    let statement = if connection.lies_apart { statements::MISSING_BLOCKS_APART } else { statements::MISSING_BLOCKS };
    let numbers = [ino.0, index, block_size].map(|number| Box::new(int(number)) as _);
    let rows = connection.query(WHAT, statement, numbers.into())?;
    match rows.first() {
        Some(row) if unsigned(row, 3)? == 0 => {
            let blocks = Blocks { size: unsigned(row, 0)?, allocated: unsigned(row, 1)?, held: unsigned(row, 2)? };
            missing::refuse_block((ino, index), block_size, &blocks)
        }
        // Removed, filled or shortened since.
        _ => Ok(()),
    }
}
