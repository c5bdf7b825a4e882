//! Volumes that are being received: their format is none until all is there.

use super::FORMAT;
use super::address::Address;
use super::{open, read};
use crate::error::{Error, Result};

const WHAT: &str = "cannot receive into the volume";

/// The format of a volume that is not whole.
pub(super) const UNFINISHED: u32 = 0;

/// True if the schema of `address` is there.
pub(super) fn has_schema(address: &Address) -> Result<bool> {
    let there = "SELECT 1::bigint FROM information_schema.schemata WHERE schema_name = $1";
    let mut connection = open::connect(address)?;
    Ok(!connection.query(WHAT, there, vec![Box::new(address.schema.clone())])?.is_empty())
}

/// True if a volume is at `address` that is being received, or was.
pub(super) fn is_left(address: &Address) -> Result<bool> {
    Ok(has_schema(address)? && matches!(read::format(&mut open::connect(address)?), Ok(UNFINISHED)))
}

/// Has all be able to open the volume at `address`, which was being received.
pub(super) fn finish(address: &Address) -> Result<()> {
    let statement = "UPDATE volume SET format = $1 WHERE id = 1";
    open::connect(address)?.query(WHAT, statement, vec![Box::new(i64::from(FORMAT))]).map(drop)
}

/// Removes the tables of the volume at `address`, which was being received, and its schema, unless
/// that was there before.
pub(super) fn discard(address: &Address, had_schema: bool) -> Result<()> {
    if !had_schema {
        return open::remove(address);
    }
    let mut connection = open::connect(address)?;
    let tables = "SELECT tablename::text FROM pg_catalog.pg_tables WHERE schemaname = $1";
    let tables = connection.query(WHAT, tables, vec![Box::new(address.schema.clone())])?;
    let tables = tables.iter().map(|row| read::get::<String>(row, 0)).collect::<Result<Vec<_>>>()?;
    let dropped = tables.iter().map(|table| format!("DROP TABLE {}.\"{table}\" CASCADE", address.schema));
    connection.run(WHAT, &dropped.collect::<Vec<_>>().join("; "))
}

/// The refusal of the volume at `address`, which is not whole.
pub(super) fn refusal(address: &Address) -> Error {
    let schema = &address.schema;
    Error::Unusable(format!(
        "{address} is being received, or is what a 'weft receive' that ended early left; in the latter case receive the \
         same stream again, which goes on there, or remove it ('DROP SCHEMA {schema} CASCADE')"
    ))
}
