//! Tables of a file's own: they hold the blocks of large files, which go with the table and leave
//! nothing to clean up.
//!
//! Blocks are assigned to one when they are written, and their rows in `blocks` say so: these have
//! no bytes then. A table is made in the transaction that first needs it. It goes in one of its own
//! after that which removed the last of its blocks: the server waits for readers of the table, a
//! backup perhaps, and no commit should. Until then it stands in the table `dropped`. That a table
//! stands there is no proof: before it goes, `blocks` is asked, under the lease and behind every
//! other writer, whether it needs the table.

use super::connection::{Call, Connection, Parameter};
use super::lease::holds;
use super::read::{int, unsigned};
use super::rights;
use super::statements as sql;
use crate::batch::NewBlock;
use crate::error::Result;
use crate::row::{BlockId, Ino};
use std::collections::BTreeSet;
use tokio_postgres::types::Type;

const WHAT: &str = "cannot drop the table of a file";

/// Tables that one transaction touches, at most: the server holds locks for each until its end, and
/// has room for some thousands.
pub(super) const TOUCHED_MAX: usize = 256;

/// Tables that are dropped together.
const DROPPED_TOGETHER: usize = 64;

/// The table that others are made like.
const LIKE: &str = "blocks_of";

/// Prefix of the names of files' own tables.
pub(super) const PREFIX: &str = "blocks_of_";

pub(super) fn table(owner: Ino) -> String {
    format!("{PREFIX}{}", owner.0)
}

/// Makes those of `owners` that are not there, for nobody else to read, as the role that owns the
/// volume (`rights::other_owner`). They are used again: they do not wait to be dropped any more.
pub(super) fn make(owners: BTreeSet<Ino>, role: Option<&str>) -> Vec<Call> {
    if owners.is_empty() {
        return Vec::new();
    }
    let made = rights::made_by(role, owners.iter().copied().map(make_text));
    let revoked = owners.iter().map(|owner| rights::revoke(&table(*owner)));
    let calls = made.into_iter().chain(revoked).map(|statement| Call::once(statement, Vec::new()));
    calls.chain(owners.iter().copied().map(keep)).collect()
}

/// Has it not wait to be dropped.
pub(super) fn keep(owner: Ino) -> Call {
    Call::new(sql::KEEP_OWN, vec![Box::new(int(owner.0))])
}

pub(super) fn make_text(owner: Ino) -> String {
    format!("CREATE TABLE IF NOT EXISTS {} (LIKE {LIKE} INCLUDING ALL)", table(owner))
}

pub(super) fn copy(owner: Ino) -> String {
    format!("COPY {} (id, bytes) FROM STDIN WITH (FORMAT binary)", table(owner))
}

/// Blocks $3 of a file, from $1 to $2.
pub(super) fn bytes(owner: Ino) -> String {
    format!(
        "SELECT id, bytes FROM {} WHERE OF_VOLUME AND id >= $1 AND id <= $2 AND id = ANY($3) ORDER BY id",
        table(owner)
    )
}

/// Takes over blocks of file $1 from byte $2 on.
pub(super) fn take_over(owner: Ino) -> String {
    format!(
        "INSERT INTO {} (id, bytes) SELECT id, bytes FROM blocks WHERE owner = $1 AND base >= $2 AND bytes IS NOT NULL",
        table(owner)
    )
}

/// Has the common table take back blocks of file $1 that stand before byte $2.
pub(super) fn take_back(owner: Ino) -> String {
    format!(
        "UPDATE blocks SET bytes = o.bytes FROM {} o WHERE blocks.owner = $1 AND blocks.base < $2 AND blocks.bytes IS NULL \
         AND o.id = blocks.id",
        table(owner)
    )
}

/// Removes blocks that were taken back.
pub(super) fn forget(owner: Ino) -> String {
    let table = table(owner);
    format!("DELETE FROM {table} USING blocks b WHERE b.owner = $1 AND b.base < $2 AND b.id = {table}.id")
}

pub(super) fn drop_text(owner: Ino) -> String {
    format!("DROP TABLE {}", table(owner))
}

/// Puts a few blocks.
pub(super) fn put(owner: Ino, blocks: &[NewBlock]) -> Call {
    let ids = blocks.iter().map(|new| int(new.id.0)).collect::<Vec<_>>();
    let bytes = blocks.iter().map(|new| new.bytes.to_vec()).collect::<Vec<_>>();
    let statement = format!("INSERT INTO {} (id, bytes) SELECT * FROM unnest($1::bigint[], $2::bytea[])", table(owner));
    let parameters: Vec<(Parameter, Type)> =
        vec![(Box::new(ids), Type::INT8_ARRAY), (Box::new(bytes), Type::BYTEA_ARRAY)];
    Call::once(statement, parameters)
}

/// Removes blocks.
pub(super) fn remove(owner: Ino, blocks: &[BlockId]) -> Call {
    let ids = blocks.iter().map(|id| int(id.0)).collect::<Vec<_>>();
    Call::once(format!("DELETE FROM {} WHERE id = ANY($1)", table(owner)), vec![(Box::new(ids), Type::INT8_ARRAY)])
}

/// The files' own tables as found when a volume is opened.
pub(super) struct OwnTables {
    /// Owners whose tables are to be dropped.
    pub(super) dropped: BTreeSet<Ino>,
}

impl OwnTables {
    pub(super) fn look(connection: &mut Connection) -> Result<OwnTables> {
        Ok(OwnTables { dropped: dropped(connection)? })
    }
}

/// The owners of tables that are to be dropped.
pub(super) fn dropped(connection: &mut Connection) -> Result<BTreeSet<Ino>> {
    let rows = connection.query(WHAT, sql::DROPPED, Vec::new())?;
    rows.iter().map(|row| Ok(Ino(unsigned(row, 0)?))).collect()
}

/// Returns those of `owners` whose tables are needed: rows of `blocks` have their bytes there, or
/// the file names blocks that have no rows any more, and whose bytes may be there.
pub(super) fn needed(connection: &mut Connection, owners: &[Ino]) -> Result<BTreeSet<Ino>> {
    let calls = owners.iter().map(|owner| Call::new(sql::NEEDS_OWN, vec![Box::new(int(owner.0))])).collect::<Vec<_>>();
    let found = connection.query_all(WHAT, &calls)?;
    let needed = owners.iter().zip(found).filter(|(_, rows)| !rows.is_empty());
    Ok(needed.map(|(owner, _)| *owner).collect())
}

/// Drops as many of the tables of `owners` as can be at once, and takes them out. Those that are
/// needed stay, and so does what says that they are to be dropped: a check tells of it.
pub(super) fn drop_tables(connection: &mut Connection, owners: &mut BTreeSet<Ino>, epoch: i64) -> Result<()> {
    let all = owners.iter().copied().collect::<Vec<_>>();
    for together in all.chunks(DROPPED_TOGETHER) {
        // A reader of one of them keeps it a little longer. Each statement sees the commits
        // before it began, whatever the role's settings say.
        connection.run(WHAT, "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '100ms'")?;
        match drop_together(connection, together, epoch) {
            Ok(Some(gone)) => owners.retain(|owner| !gone.contains(owner)),
            other => {
                if !connection.is_closed() {
                    connection.run(WHAT, "ROLLBACK")?;
                }
                return other.map(drop);
            }
        }
    }
    Ok(())
}

/// Drops the tables of `owners` that are not needed, and returns their owners. None, and nothing
/// may be committed, if the volume is not ours any more, so that somebody else may have made one of
/// these tables again, or if one was written to meanwhile.
fn drop_together(connection: &mut Connection, owners: &[Ino], epoch: i64) -> Result<Option<Vec<Ino>>> {
    if !holds(connection, epoch)? {
        return Ok(None);
    }
    let kept = needed(connection, owners)?;
    let gone = owners.iter().copied().filter(|owner| !kept.contains(owner)).collect::<Vec<_>>();
    if gone.is_empty() {
        connection.run(WHAT, "ROLLBACK")?;
        return Ok(Some(gone));
    }
    let tables = gone.iter().map(|owner| table(*owner)).collect::<Vec<_>>().join(", ");
    connection.run(WHAT, &format!("DROP TABLE IF EXISTS {tables}"))?;
    // That waited for writers to one: a commit of this daemon's that a broken connection has left
    // under way. Its rows are seen now, and nobody writes there any more.
    if !needed(connection, &gone)?.is_empty() {
        return Ok(None);
    }
    let ids = gone.iter().map(|owner| owner.0.to_string()).collect::<Vec<_>>().join(", ");
    connection.run(WHAT, &format!("DELETE FROM dropped WHERE owner IN ({ids}); COMMIT"))?;
    Ok(Some(gone))
}
