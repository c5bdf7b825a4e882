//! Bringing a volume of an older format to this one, in one transaction: an interruption leaves it
//! as it was.

mod extents;

use super::address::Address;
use super::connection::Connection;
use super::open::{self, connect, hold_any};
use super::read::{self, unsigned};
use super::rights::{self, Task};
use super::{FORMAT, lease, schema, seal};
use crate::digests::small;
use crate::engine::OpenOptions;
use crate::error::{Error, Result};
use crate::finding::Progress;
use crate::row::CommitNo;
use crate::sums;
use crate::tables::{self, Dialect, is_of_versions};
use crate::upgrade::{Upgrade, Upgraded};
use crate::views;

const WHAT: &str = "cannot upgrade the volume";

/// The format before rows had sums.
const WITHOUT_SUMS: u32 = 4;

/// The last format that keeps no versions of rows, the first that counts extended attributes.
const WITHOUT_VERSIONS: u32 = 6;

/// The formats that can be brought up. All of them have extents by the index of a block.
const OLD_FORMATS: &[u32] = &[WITHOUT_SUMS, 5, WITHOUT_VERSIONS, 7];

/// Has rows count their extended attributes, for which they had a flag.
const COUNTS: &[&str] = &[
    "ALTER TABLE fileatt RENAME COLUMN has_xattrs TO xattrs",
    "ALTER TABLE fileatt ALTER COLUMN xattrs TYPE bigint USING 0",
    "UPDATE fileatt SET xattrs = x.n FROM (SELECT ino, count(*) AS n FROM xattr GROUP BY ino) x WHERE x.ino = fileatt.ino",
];

/// Columns that format 5 has and format 4 has not.
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

/// Tables of row versions that those formats have, and nothing ever writes.
const OLD_HISTORY: &[&str] = &["fileatt_history", "naming_history", "extents_history", "xattr_history"];

/// Tables without versions of rows that came with them.
const NEW_TABLES: &[&str] = &["retention", "pins"];

/// The index that came with them, of a table that was there.
const NEW_INDEX: &str = "commits_time";

/// Makes the epoch even, by which no intent log is missed: programs of those formats counted mounts
/// one by one, and nothing waits in the log.
const WITHOUT_LOG: &str = "UPDATE volume SET epoch = epoch + epoch % 2 WHERE id = 1";

/// Brings the volume at `address`, which nobody may hold and which must have been unmounted
/// cleanly, to this format; or tells what that would take. Errors as of `sqlite::upgrade`.
pub fn upgrade(address: &Address, mode: Upgrade, progress: &mut dyn FnMut(Progress)) -> Result<Upgraded> {
    let mut connection = connect(address)?;
    let from = open::format(address, &mut connection)?;
    if from == FORMAT {
        return Err(Error::Unusable(format!("{address} has format {FORMAT} already; there is nothing to upgrade")));
    }
    if !OLD_FORMATS.contains(&from) {
        let known = OLD_FORMATS.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        return Err(Error::Unusable(format!(
            "{address} has format {from}, this program upgrades from these alone: {known}"
        )));
    }
    rights::refuse_lacking(&mut connection, address, Task::Alter)?;
    let (lease, connector) = hold_any(connection, address, &OpenOptions::default())?;
    let mut connection = connector.connect()?;
    refuse_waiting_operations(&mut connection, address)?;
    progress(Progress { step: "verifying rows", done: 0, total: 2 });
    if from <= WITHOUT_VERSIONS {
        refuse_old_history(&mut connection, address)?;
    }
    if from < WITHOUT_VERSIONS {
        verify(&mut connection, from)?;
    }
    let count =
        "SELECT (SELECT count(*) FROM fileatt) + (SELECT count(*) FROM naming) + (SELECT count(*) FROM extents)";
    let rows = connection.query(WHAT, count, Vec::new())?.first().map_or(Ok(0), |row| unsigned(row, 0))?;
    if mode == Upgrade::Now {
        progress(Progress { step: "writing rows", done: 1, total: 2 });
        lease::in_transaction(&mut connection, lease.epoch(), |connection| rewrite(connection, from))?;
        let owner = rights::other_owner(&mut connection);
        // People alone need them.
        let _ = schema::make_views(&mut connection, owner.as_deref());
    }
    progress(Progress { step: "writing rows", done: 2, total: 2 });
    Ok(Upgraded { from, to: FORMAT, rows, bytes_needed: None })
}

/// Changes the tables of format `from`, and the rows.
fn rewrite(connection: &mut Connection, from: u32) -> Result<()> {
    let set = "UPDATE volume SET format = $1 WHERE id = 1";
    connection.query(WHAT, set, vec![Box::new(i64::from(FORMAT))])?;
    let block_size = extents::block_size(connection)?;
    if from <= WITHOUT_VERSIONS {
        make_history(connection)?;
    }
    match from {
        WITHOUT_SUMS => extents::bring_up_unsummed(connection, block_size)?,
        from => extents::bring_up(connection, block_size, from > WITHOUT_VERSIONS)?,
    }
    if from >= WITHOUT_VERSIONS {
        // Other rows are what they were.
        return refuse_damaged_header(connection);
    }
    COUNTS.iter().try_for_each(|statement| connection.run(WHAT, statement))?;
    if from != WITHOUT_SUMS {
        // Other rows have the sums that they had.
        seal::seal_inodes(connection)?;
        refuse_damaged_header(connection)?;
        connection.run(WHAT, WITHOUT_LOG)?;
        return seal::seal_volume(connection);
    }
    connection.run(WHAT, WITHOUT_LOG)?;
    COLUMNS.iter().try_for_each(|statement| connection.run(WHAT, statement))?;
    let made = "UPDATE volume SET uuid = $1 WHERE id = 1";
    connection.query(WHAT, made, vec![Box::new(crate::uuid::new()?.to_vec())])?;
    connection.run(WHAT, "ALTER TABLE volume ALTER COLUMN uuid SET NOT NULL")?;
    seal::seal(connection)
}

fn refuse_damaged_header(connection: &mut Connection) -> Result<()> {
    let sum = "SELECT sum FROM volume WHERE id = 1";
    let sum = connection.query(WHAT, sum, Vec::new())?.first().map(|row| read::get::<i64>(row, 0)).transpose()?;
    match sum == Some(read::unverified_header(connection)?.sum()) {
        true => Ok(()),
        false => Err(Error::Corrupt("the row of the volume is damaged, so that it cannot be upgraded".into())),
    }
}

/// Refuses a volume with versions of rows: no program of those formats makes any.
fn refuse_old_history(connection: &mut Connection, address: &Address) -> Result<()> {
    for table in OLD_HISTORY {
        let any = format!("SELECT 1::bigint FROM {table} LIMIT 1");
        if !connection.query(WHAT, any, Vec::new())?.is_empty() {
            return Err(Error::Unusable(format!(
                "the table {table} of {address} has rows, which no Weft of its format writes; empty it, then upgrade"
            )));
        }
    }
    Ok(())
}

/// Makes the tables of history, as the role that owns the volume, in place of the old ones.
fn make_history(connection: &mut Connection) -> Result<()> {
    connection.run(WHAT, &format!("DROP TABLE {}", OLD_HISTORY.join(", ")))?;
    let is_new = |table: &str| is_of_versions(table) || NEW_TABLES.contains(&table);
    let made = tables::made(Dialect::Postgres).into_iter().filter(|made| is_new(&made.name)).collect::<Vec<_>>();
    let revoked = made.iter().map(|made| rights::revoke(&made.name)).collect::<Vec<_>>();
    let indices = tables::indices(Dialect::Postgres).into_iter();
    let indices = indices.filter(|(table, index)| is_new(table) || index.name == NEW_INDEX);
    let indices = indices.map(|(table, index)| index.text(&table, Dialect::Postgres));
    let statements = made.into_iter().map(|made| made.text).chain(revoked).chain(indices);
    let owner = rights::other_owner(connection);
    rights::made_by(owner.as_deref(), statements).iter().try_for_each(|statement| connection.run(WHAT, statement))
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

/// Verifies rows as far as format `from` allows: content that lies in them, sums of those that get
/// another, and that attributes are there where a flag says so.
fn verify(connection: &mut Connection, from: u32) -> Result<()> {
    let refused = |ino: u64, what: &str| {
        let advice = "so that it cannot be upgraded; 'weft check' of the weft that made it names it";
        Error::Corrupt(format!("inode {ino} {what}, {advice}"))
    };
    let lacking = "SELECT f.ino FROM fileatt f LEFT JOIN (SELECT DISTINCT ino FROM xattr) x ON x.ino = f.ino \
                   WHERE f.has_xattrs <> (x.ino IS NOT NULL) LIMIT 1";
    if let Some(row) = connection.query(WHAT, lacking, Vec::new())?.first() {
        let what = "has no extended attributes and says that it has, or the other way round";
        return Err(refused(unsigned(row, 0)?, what));
    }
    let columns = "ino, generation, mode, uid, gid, nlink, rdev, size, allocated, atime, mtime, ctime, btime, parent, \
                   has_xattrs::integer::bigint, inline, digest";
    if from == WITHOUT_SUMS {
        let all = format!("SELECT {columns} FROM fileatt WHERE inline IS NOT NULL AND digest IS NOT NULL");
        return connection.each(WHAT, &all, |row| {
            let inode = read::unverified_inode_row(row);
            let holds = inode.is_ok_and(|inode| read::digest(row, 16).ok().flatten() == Some(small(&inode)));
            if holds { Ok(()) } else { Err(refused(unsigned(row, 0)?, "has other content than was written")) }
        });
    }
    let all = format!("SELECT {columns}, since, sum FROM fileatt");
    connection.each(WHAT, &all, |row| {
        let sum = |inode| Ok::<_, Error>(sums::inode(&inode, CommitNo(unsigned(row, 17)?), None));
        let holds = read::unverified_inode_row(row).and_then(sum).is_ok_and(|sum| read::get(row, 18).ok() == Some(sum));
        if holds { Ok(()) } else { Err(refused(unsigned(row, 0)?, "has a damaged row")) }
    })
}

/// The tables of row versions of format 6.
const HISTORY_OF_6: &str = "
    CREATE TABLE fileatt_history (ino bigint NOT NULL, since bigint NOT NULL, until bigint NOT NULL, generation bigint NOT NULL,
        mode bigint NOT NULL, uid bigint NOT NULL, gid bigint NOT NULL, nlink bigint NOT NULL, rdev bigint NOT NULL,
        size bigint NOT NULL, allocated bigint NOT NULL, atime bigint NOT NULL, mtime bigint NOT NULL, ctime bigint NOT NULL,
        btime bigint NOT NULL, parent bigint NOT NULL, xattrs bigint NOT NULL, digest bytea, inline bytea, PRIMARY KEY (ino, since));
    CREATE TABLE naming_history (parent bigint NOT NULL, name bytea NOT NULL, since bigint NOT NULL, until bigint NOT NULL,
        ino bigint NOT NULL, kind bigint NOT NULL, cookie bigint NOT NULL, PRIMARY KEY (parent, name, since));
    CREATE TABLE extents_history (ino bigint NOT NULL, idx bigint NOT NULL, since bigint NOT NULL, until bigint NOT NULL,
        owner bigint NOT NULL, block bigint NOT NULL, PRIMARY KEY (ino, idx, since));
    CREATE TABLE xattr_history (ino bigint NOT NULL, name bytea NOT NULL, since bigint NOT NULL, until bigint NOT NULL,
        value bytea NOT NULL, PRIMARY KEY (ino, name, since))";

/// Brings the volume at `address` back to format 4, 5, 6 or 7: for tests of [`upgrade`].
#[doc(hidden)]
pub fn downgrade(address: &Address, to: u32) -> Result<()> {
    let mut connection = connect(address)?;
    connection.run(WHAT, "BEGIN")?;
    let block_size = extents::block_size(&mut connection)?;
    extents::take_back(&mut connection, block_size, to > WITHOUT_VERSIONS)?;
    if to <= WITHOUT_VERSIONS {
        take_back_history(&mut connection, to)?;
    }
    let set = "UPDATE volume SET format = $1 WHERE id = 1";
    connection.query(WHAT, set, vec![Box::new(i64::from(to))])?;
    connection.run(WHAT, "COMMIT")
}

/// Takes away what came after format `to`, which has no versions of rows.
fn take_back_history(connection: &mut Connection, to: u32) -> Result<()> {
    views::NAMES.iter().try_for_each(|view| connection.run(WHAT, &format!("DROP VIEW {view}")))?;
    let new = tables::names(Dialect::Postgres).filter(|table| is_of_versions(table));
    let new = new.chain(NEW_TABLES.iter().map(|table| (*table).to_owned())).collect::<Vec<_>>();
    connection.run(WHAT, &format!("DROP TABLE {}; DROP INDEX {NEW_INDEX}; {HISTORY_OF_6}", new.join(", ")))?;
    if to < WITHOUT_VERSIONS {
        connection.run(WHAT, "UPDATE fileatt SET xattrs = 1 WHERE xattrs > 1")?;
        seal::seal_inodes(connection)?;
        for table in ["fileatt", "fileatt_history"] {
            let flag = format!("ALTER TABLE {table} ALTER COLUMN xattrs TYPE boolean USING xattrs > 0");
            connection.run(WHAT, &flag)?;
            connection.run(WHAT, &format!("ALTER TABLE {table} RENAME COLUMN xattrs TO has_xattrs"))?;
        }
    }
    if to == WITHOUT_SUMS {
        for statement in COLUMNS {
            let words = statement.split(' ').collect::<Vec<_>>();
            connection.run(WHAT, &format!("ALTER TABLE {} DROP COLUMN {}", words[2], words[5]))?;
        }
    }
    Ok(())
}
