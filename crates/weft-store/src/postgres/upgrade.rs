//! Bringing a volume of format 4 to this one, in one transaction: an interruption leaves it as it
//! was.

use super::address::Address;
use super::connection::Connection;
use super::open::{OpenOptions, connect, hold_any};
use super::read::{self, unsigned};
use super::{FORMAT, lease, seal};
use crate::digests::small;
use crate::error::{Error, Result};
use crate::finding::Progress;
use crate::row::Ino;
use crate::upgrade::{Upgrade, Upgraded};

const WHAT: &str = "cannot upgrade the volume";

/// The format that can be brought up.
const OLD_FORMAT: u32 = 4;

/// Columns that this format has and the one before has not.
const COLUMNS: &[&str] = &[
    "ALTER TABLE volume ADD COLUMN uuid bytea",
    "ALTER TABLE volume ADD COLUMN sum bigint NOT NULL DEFAULT -1",
    "ALTER TABLE commits ADD COLUMN sum bigint NOT NULL DEFAULT -1",
    "ALTER TABLE fileatt ADD COLUMN sum bigint NOT NULL DEFAULT -1",
    "ALTER TABLE fileatt ADD COLUMN digest_sum bigint NOT NULL DEFAULT -1",
    "ALTER TABLE naming ADD COLUMN sum bigint NOT NULL DEFAULT -1",
    "ALTER TABLE naming ADD COLUMN digest_sum bigint NOT NULL DEFAULT -1",
    "ALTER TABLE extents ADD COLUMN sum bigint NOT NULL DEFAULT -1",
    "ALTER TABLE blocks ADD COLUMN sum bigint NOT NULL DEFAULT -1",
    "ALTER TABLE branches ADD COLUMN sum bigint NOT NULL DEFAULT -1",
    "ALTER TABLE nodes ADD COLUMN sum bigint NOT NULL DEFAULT -1",
    "ALTER TABLE xattr ADD COLUMN sum bigint NOT NULL DEFAULT -1",
];

/// Brings the volume at `address`, which nobody may hold and which must have been unmounted
/// cleanly, to this format; or tells what that would take. Errors as of `sqlite::upgrade`.
pub fn upgrade(address: &Address, mode: Upgrade, progress: &mut dyn FnMut(Progress)) -> Result<Upgraded> {
    let mut connection = connect(address)?;
    let from = read::format(&mut connection)?;
    if from == FORMAT {
        return Err(Error::Unusable(format!("{address} has format {FORMAT} already; there is nothing to upgrade")));
    }
    if from != OLD_FORMAT {
        return Err(Error::Unusable(format!(
            "{address} has format {from}, this program upgrades format {OLD_FORMAT} alone"
        )));
    }
    let (lease, connector) = hold_any(connection, address, &OpenOptions::default())?;
    let mut connection = connector.connect()?;
    refuse_waiting_operations(&mut connection, address)?;
    progress(Progress { step: "verifying rows", done: 0, total: 2 });
    verify(&mut connection)?;
    let count =
        "SELECT (SELECT count(*) FROM fileatt) + (SELECT count(*) FROM naming) + (SELECT count(*) FROM extents)";
    let rows = connection.query(WHAT, count, Vec::new())?.first().map_or(Ok(0), |row| unsigned(row, 0))?;
    if mode == Upgrade::Now {
        progress(Progress { step: "writing rows", done: 1, total: 2 });
        let uuid = crate::uuid::new()?.to_vec();
        lease::in_transaction(&mut connection, lease.epoch(), |connection| {
            COLUMNS.iter().try_for_each(|statement| connection.run(WHAT, statement))?;
            let made = "UPDATE volume SET uuid = $1, format = $2 WHERE id = 1";
            connection.query(WHAT, made, vec![Box::new(uuid), Box::new(i64::from(FORMAT))])?;
            connection.run(WHAT, "ALTER TABLE volume ALTER COLUMN uuid SET NOT NULL")?;
            seal::seal(connection)
        })?;
    }
    progress(Progress { step: "writing rows", done: 2, total: 2 });
    Ok(Upgraded { from, to: FORMAT, rows, bytes_needed: None })
}

/// Operations that were synced and not committed are in no row yet, and are encoded as the program
/// of that format does.
fn refuse_waiting_operations(connection: &mut Connection, address: &Address) -> Result<()> {
    let waiting =
        "SELECT i.last FROM intents i JOIN volume v ON v.epoch = i.epoch WHERE v.id = 1 AND i.last > v.op LIMIT 1";
    match connection.query(WHAT, waiting, Vec::new())?.is_empty() {
        true => Ok(()),
        false => Err(Error::Unusable(format!(
            "{address} was not unmounted cleanly; mount and unmount it once with the weft that made it, then upgrade it"
        ))),
    }
}

/// What format 4 can verify of rows: content that lies in them.
fn verify(connection: &mut Connection) -> Result<()> {
    let all = "SELECT ino, generation, mode, uid, gid, nlink, rdev, size, allocated, atime, mtime, ctime, btime, parent, has_xattrs, \
               inline, digest FROM fileatt WHERE inline IS NOT NULL AND digest IS NOT NULL";
    connection.each(WHAT, all, |row| {
        let holds = read::unverified_inode_row(row).is_ok_and(|inode| read::digest(row, 16).ok().flatten() == Some(small(&inode)));
        if holds {
            return Ok(());
        }
        let what = "has other content than was written, so that it cannot be upgraded; 'weft check' of the weft that made it names it";
        Err(Error::Corrupt(format!("inode {} {what}", Ino(unsigned(row, 0)?).0)))
    })
}

/// Brings the volume at `address` back to format 4: for tests of [`upgrade`].
#[doc(hidden)]
pub fn downgrade(address: &Address) -> Result<()> {
    let mut connection = connect(address)?;
    connection.run(WHAT, "BEGIN")?;
    for statement in COLUMNS {
        let words = statement.split(' ').collect::<Vec<_>>();
        connection.run(WHAT, &format!("ALTER TABLE {} DROP COLUMN {}", words[2], words[5]))?;
    }
    let set = "UPDATE volume SET format = $1 WHERE id = 1";
    connection.query(WHAT, set, vec![Box::new(i64::from(OLD_FORMAT))])?;
    connection.run(WHAT, "COMMIT")
}
