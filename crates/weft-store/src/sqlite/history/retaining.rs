//! The commits that are kept, and the removal of versions that none of them sees.
//!
//! A version held from the commit that wrote it up to the one that replaced it. Between two
//! neighbouring kept commits `p` and `s` nobody sees those with `since` > `p` and `until` <= `s`.

use crate::batch::Batch;
use crate::error::{Error, Result};
use crate::history::emptied;
use crate::history::kept::{COMMITS_KEPT, Kept};
use crate::past::{History, HistoryFor, Pin, PinKind};
use crate::references::References;
use crate::row::{BlockId, CommitNo, Ino, Timestamp};
use crate::sqlite::history::reading;
use crate::sqlite::read::{sql, unsigned};
use crate::sqlite::schema;
use crate::sums::{self, MASK};
use rusqlite::{Connection, OptionalExtension, Params};

fn failed(source: rusqlite::Error) -> Error {
    Error::Sqlite { what: "cannot change what is kept of the past", source }
}

fn damaged(what: &str) -> Error {
    Error::Corrupt(format!("the row of {what} is damaged; 'weft check' tells more"))
}

/// Reads what is kept of the past; none while history is off.
pub(in crate::sqlite) fn history(connection: &Connection) -> Result<Option<History>> {
    let statement = "SELECT rule, readers, first, swept, sum FROM retention WHERE id = 1";
    let mut statement = connection.prepare_cached(statement).map_err(failed)?;
    let read = |row: &rusqlite::Row<'_>| {
        let (Ok(rule), Ok(readers)) = (row.get::<_, String>(0), row.get::<_, String>(1)) else { return Ok(None) };
        let (first, swept) = (CommitNo(unsigned(row, 2)?), CommitNo(unsigned(row, 3)?));
        let history = HistoryFor::named(&readers).map(|readers| History { rule, readers, first, swept });
        let sum = row.get_ref(4)?.as_i64().ok();
        Ok(history.filter(|history| sum == Some(sums::retention(history))))
    };
    match statement.query_row((), read).optional().map_err(failed)? {
        None => Ok(None),
        Some(Some(history)) => Ok(Some(history)),
        Some(None) => Err(damaged("history")),
    }
}

/// Reads all pins, by commit.
pub(in crate::sqlite) fn pins(connection: &Connection) -> Result<Vec<Pin>> {
    let statement =
        "SELECT commit_number, kind, name, made, held_until, sum FROM pins ORDER BY commit_number, kind, name";
    let mut statement = connection.prepare_cached(statement).map_err(failed)?;
    let rows = statement.query_map((), |row| {
        let Some(kind) = PinKind::numbered(row.get(1)?) else { return Ok(None) };
        let (commit, name) = (CommitNo(unsigned(row, 0)?), row.get(2)?);
        let (made, held_until) = (Timestamp(row.get(3)?), row.get::<_, Option<i64>>(4)?.map(Timestamp));
        let pin = Pin { commit, kind, name, made, held_until };
        let sum: i64 = row.get(5)?;
        Ok((sum == sums::pin(&pin)).then_some(pin))
    });
    let rows = rows.map_err(failed)?.collect::<rusqlite::Result<Vec<_>>>().map_err(failed)?;
    rows.into_iter().map(|pin| pin.ok_or_else(|| damaged("a pin"))).collect()
}

/// Fails if rows as of `commit` may be gone: `Unusable`.
pub(in crate::sqlite) fn refuse_unkept(connection: &Connection, commit: CommitNo) -> Result<()> {
    let Some(history) = history(connection)? else { return Err(crate::past::no_history()) };
    if commit >= history.first {
        return Ok(());
    }
    let pinned = "SELECT EXISTS (SELECT 1 FROM pins WHERE commit_number = ?1)";
    let pinned = connection.prepare_cached(pinned).map_err(failed)?.query_row((sql(commit.0),), |row| row.get(0));
    if pinned.map_err(failed)? {
        return Ok(());
    }
    Err(Error::Unusable(format!("commit {} is not kept any more", commit.0)))
}

/// A commit that changes what is kept.
struct Retaining<'a> {
    connection: &'a Connection,
    batch: &'a Batch,
    references: &'a mut References<BlockId>,
}

/// Makes the changes of `batch` to `history`; counts what blocks lose by them. Returns what is kept
/// then.
pub(in crate::sqlite) fn change(
    connection: &Connection,
    history: Option<History>,
    batch: &Batch,
    references: &mut References<BlockId>,
) -> Result<Option<History>> {
    if batch.history.is_empty() {
        return Ok(history);
    }
    let mut kept = Kept::changed(history, pins(connection)?, batch)?;
    let mut retaining = Retaining { connection, batch, references };
    if kept.is_ended() {
        retaining.end()?;
    } else if kept.was_on() {
        retaining.empty_all(&kept.emptied)?;
        retaining.forget(&mut kept)?;
    }
    retaining.store(&kept)?;
    if batch.sets_history() {
        schema::make_views(connection)?;
    }
    Ok(kept.history)
}

impl Retaining<'_> {
    fn execute(&self, statement: &str, parameters: impl Params) -> Result<usize> {
        self.connection.prepare_cached(statement).map_err(failed)?.execute(parameters).map_err(failed)
    }

    /// Stores what is kept, as far as it is another than before.
    fn store(&self, kept: &Kept) -> Result<()> {
        for (commit, kind, name) in kept.gone_pins() {
            let remove = "DELETE FROM pins WHERE commit_number = ?1 AND kind = ?2 AND name = ?3";
            self.execute(remove, (sql(commit.0), kind.number(), name))?;
        }
        kept.new_pins().try_for_each(|pin| self.put_pin(pin))?;
        if !kept.has_other_history() {
            return Ok(());
        }
        let Some(history) = &kept.history else { return self.execute("DELETE FROM retention", ()).map(drop) };
        let put =
            "INSERT OR REPLACE INTO retention (id, rule, readers, first, swept, sum) VALUES (1, ?1, ?2, ?3, ?4, ?5)";
        let (first, swept) = (sql(history.first.0), sql(history.swept.0));
        let row = (&history.rule, history.readers.name(), first, swept, sums::retention(history));
        self.execute(put, row).map(drop)
    }

    fn put_pin(&self, pin: &Pin) -> Result<()> {
        let put = "INSERT OR REPLACE INTO pins (commit_number, kind, name, made, held_until, sum) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let held_until = pin.held_until.map(|time| time.0);
        let row = (sql(pin.commit.0), pin.kind.number(), &pin.name, pin.made.0, held_until, sums::pin(pin));
        self.execute(put, row).map(drop)
    }

    /// Removes all versions.
    fn end(&mut self) -> Result<()> {
        self.remove_extents("true", ())?;
        for table in ["content_history", "fileatt_history", "naming_history", "xattr_history"] {
            self.execute(&format!("DELETE FROM {table}"), ())?;
        }
        Ok(())
    }

    /// Empties all versions of `files`. `Corrupt` if one is damaged: nobody would see that any
    /// more.
    fn empty_all(&mut self, files: &[Ino]) -> Result<()> {
        let mut emptied = Vec::new();
        for ino in files {
            if self.empty(*ino)? {
                emptied.push(ino.0.to_string());
            }
        }
        // No index finds extents by file: they are looked for once for all of them.
        let which = "ino IN (SELECT value FROM json_each(?1))";
        if emptied.is_empty() {
            Ok(())
        } else {
            self.remove_extents(which, (format!("[{}]", emptied.join(",")),)).map(drop)
        }
    }

    /// Empties all versions of file `ino`, but their extents. False if there are none.
    fn empty(&self, ino: Ino) -> Result<bool> {
        let versions = reading::versions(self.connection, ino, CommitNo(u64::MAX), usize::MAX)?;
        let Some((_, newest)) = versions.first() else { return Ok(false) };
        let content = "SELECT since, until FROM content_history WHERE ino = ?1";
        let mut statement = self.connection.prepare_cached(content).map_err(failed)?;
        let held = |row: &rusqlite::Row<'_>| Ok(CommitNo(unsigned(row, 0)?)..CommitNo(unsigned(row, 1)?));
        let content = statement.query_map((sql(ino.0),), held).map_err(failed)?;
        let mut content = content.collect::<rusqlite::Result<Vec<_>>>().map_err(failed)?;
        content.extend(emptied::beside_present(newest, &content));
        for held in &content {
            let put = "INSERT OR REPLACE INTO content_history (ino, since, until, digest, inline, sum) \
                       VALUES (?1, ?2, ?3, NULL, NULL, ?4)";
            self.execute(put, (sql(ino.0), sql(held.start.0), sql(held.end.0), emptied::content_sum(ino, held)))?;
        }
        for (row, held) in &versions {
            let put = "UPDATE fileatt_history SET size = 0, allocated = 0, sum = ?3 WHERE ino = ?1 AND until = ?2";
            self.execute(put, (sql(ino.0), sql(held.end.0), emptied::row_sum(row, held)))?;
        }
        Ok(true)
    }

    /// Removes as many versions that no kept commit sees as `kept` allows, and says there how far
    /// that is done.
    fn forget(&mut self, kept: &mut Kept) -> Result<()> {
        let (mut left, gaps) = kept.gaps(self.batch.commit);
        let Some(history) = &mut kept.history else { return Ok(()) };
        for (before, next) in gaps {
            left -= self.forget_between(before, next, left)?.min(left);
            if left == 0 {
                break;
            }
            history.swept = next;
            self.forget_commits(before, next)?;
        }
        Ok(())
    }

    /// Removes up to `limit` versions that no commit but those between `before` and `next` sees;
    /// tells how many.
    fn forget_between(&mut self, before: CommitNo, next: CommitNo, limit: usize) -> Result<usize> {
        let (from, to) = (sql(before.0), sql(next.0));
        let rest = |removed: usize| sql(limit.saturating_sub(removed) as u64);
        let filed = "fork > ?1 AND fork < ?2 AND since > ?1 AND until <= ?2 LIMIT ?3";
        let some =
            format!("(fork, ino, start, until) IN (SELECT fork, ino, start, until FROM extents_history WHERE {filed})");
        let mut removed = self.remove_extents(&some, (from, to, rest(0)))?;
        for (table, key, which) in [
            ("naming_history", "fork, parent, name, until", filed),
            ("xattr_history", "fork, ino, name, until", filed),
            // What is left of these is verified by the content that goes after them.
            ("fileatt_history", "ino, until", "until > ?1 AND until <= ?2 AND since > ?1 LIMIT ?3"),
            ("content_history", "ino, until", "until > ?1 AND until <= ?2 AND since > ?1 LIMIT ?3"),
        ] {
            let statement = format!("DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {table} WHERE {which})");
            removed += self.execute(&statement, (from, to, rest(removed)))?;
        }
        Ok(removed)
    }

    /// Removes versions of extents; blocks lose the references of those that are whole.
    fn remove_extents(&mut self, which: &str, parameters: impl Params) -> Result<usize> {
        let statement = format!(
            "DELETE FROM extents_history WHERE {which} RETURNING block, \
             sum IS (weft_sum('extents', ino, start, length, block, since) + weft_references(until)) & {MASK}"
        );
        let mut statement = self.connection.prepare_cached(&statement).map_err(failed)?;
        let mut rows = statement.query(parameters).map_err(failed)?;
        let mut count = 0;
        while let Some(row) = rows.next().map_err(failed)? {
            count += 1;
            if row.get(1).map_err(failed)? {
                self.references.lose(BlockId(unsigned(row, 0).map_err(failed)?));
            }
        }
        Ok(count)
    }

    /// Forgets the commits between two that are kept, but the last ones.
    fn forget_commits(&self, before: CommitNo, next: CommitNo) -> Result<()> {
        let last = self.batch.commit.0.saturating_sub(COMMITS_KEPT);
        let statement = "DELETE FROM commits WHERE number > ?1 AND number < ?2 AND number <= ?3";
        self.execute(statement, (sql(before.0), sql(next.0), sql(last))).map(drop)
    }
}

/// Forgets commits that are neither kept nor among the last ones.
pub(in crate::sqlite) fn forget_old_commits(connection: &Connection, history: &History, last: CommitNo) -> Result<()> {
    let statement = "DELETE FROM commits WHERE number <= ?1 AND number < ?2 \
                     AND number NOT IN (SELECT commit_number FROM pins)";
    let old = last.0.saturating_sub(COMMITS_KEPT);
    let mut statement = connection.prepare_cached(statement).map_err(failed)?;
    statement.execute((sql(old), sql(history.swept.0))).map(drop).map_err(failed)
}
