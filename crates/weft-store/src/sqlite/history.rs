//! The history of a volume in SQLite: versions of rows that commits replace, and rows as of earlier
//! commits.
//!
//! [`keeping`] files what a commit is about to replace, in its transaction; [`reading`] reads rows
//! as of a commit; [`retaining`] says which commits are kept, and removes versions that none of
//! those sees. `docs/reference/format.md` says what the tables mean.

pub(super) mod changes;
pub(super) mod costs;
pub(super) mod keeping;
pub(super) mod reading;
pub(super) mod retaining;

use crate::error::Result;
use crate::history::fork::fork;
use crate::row::CommitNo;
use rusqlite::Connection;
use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::ValueRef;

/// Has statements of `connection` file versions: `weft_fork(SINCE, UNTIL)`.
pub(super) fn register(connection: &Connection) -> Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    let made = connection.create_scalar_function("weft_fork", 2, flags, filed_under);
    made.map_err(|source| crate::Error::Sqlite { what: "cannot file versions", source })
}

/// The fork of a version. One whose first commit is damaged is filed under its last one: it must
/// not keep the commit from being made.
fn filed_under(context: &Context<'_>) -> rusqlite::Result<i64> {
    let until: i64 = context.get(1)?;
    let number = |place| match context.get_raw(place) {
        ValueRef::Integer(number) => u64::try_from(number).ok(),
        _ => None,
    };
    Ok(match (number(0), number(1)) {
        (Some(since), Some(until)) if 0 < since && since < until => {
            i64::try_from(fork(CommitNo(since), CommitNo(until))).unwrap_or(i64::MAX)
        }
        _ => until - 1,
    })
}
