//! The commits that are kept, and the removal of versions that none of them sees.
//!
//! A version held from the commit that wrote it up to the one that replaced it. Between two
//! neighbouring kept commits `p` and `s` nobody sees those with `since` > `p` and `until` <= `s`.

use crate::batch::Batch;
use crate::error::{Error, Result};
use crate::past::{History, HistoryChange, HistoryFor, Pin, PinKind};
use crate::references::References;
use crate::row::{BlockId, CommitNo, Timestamp};
use crate::sqlite::read::{sql, unsigned};
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

/// What is kept, as a commit changes it.
pub(in crate::sqlite) struct Retaining<'a> {
    connection: &'a Connection,
    history: Option<History>,
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
    let mut retaining = Retaining { connection, history, batch, references };
    batch.history.iter().try_for_each(|change| retaining.change(change))?;
    Ok(retaining.history)
}

impl Retaining<'_> {
    fn execute(&self, statement: &str, parameters: impl Params) -> Result<usize> {
        self.connection.prepare_cached(statement).map_err(failed)?.execute(parameters).map_err(failed)
    }

    fn change(&mut self, change: &HistoryChange) -> Result<()> {
        if let HistoryChange::Keep(rule, readers) = change {
            let at = self.batch.commit;
            let (first, swept) = self.history.as_ref().map_or((at, at), |history| (history.first, history.swept));
            return self.put(History { rule: rule.clone(), readers: *readers, first, swept });
        }
        let Some(history) = self.history.clone() else {
            let is_refused = matches!(change, HistoryChange::Pin(_));
            return if is_refused { Err(crate::past::no_history()) } else { Ok(()) };
        };
        match change {
            HistoryChange::Keep(..) => Ok(()),
            HistoryChange::End => self.end(),
            HistoryChange::Pin(pin) => self.pin(pin, &history),
            HistoryChange::Unpin(commit, kind, name) => self.unpin((*commit, *kind, name), history),
            HistoryChange::First(first) if *first > self.batch.commit => {
                Err(Error::Unusable(format!("there is no commit {} yet", first.0)))
            }
            HistoryChange::First(first) => self.put(History { first: history.first.max(*first), ..history }),
            HistoryChange::Forget(limit) => self.forget(*limit, history),
        }
    }

    fn put(&mut self, history: History) -> Result<()> {
        let statement =
            "INSERT OR REPLACE INTO retention (id, rule, readers, first, swept, sum) VALUES (1, ?1, ?2, ?3, ?4, ?5)";
        let (first, swept) = (sql(history.first.0), sql(history.swept.0));
        let row = (&history.rule, history.readers.name(), first, swept, sums::retention(&history));
        self.execute(statement, row)?;
        self.history = Some(history);
        Ok(())
    }

    /// Removes all versions, and what says that some are kept.
    fn end(&mut self) -> Result<()> {
        if let Some(pin) = pins(self.connection)?.into_iter().find(|pin| pin.kind == PinKind::Snapshot) {
            return Err(Error::Unusable(format!(
                "history cannot end while there are snapshots: {}; delete them first",
                String::from_utf8_lossy(&pin.name)
            )));
        }
        self.remove_extents("true", ())?;
        for table in ["content_history", "fileatt_history", "naming_history", "xattr_history", "pins", "retention"] {
            self.execute(&format!("DELETE FROM {table}"), ())?;
        }
        self.history = None;
        Ok(())
    }

    fn pin(&mut self, pin: &Pin, history: &History) -> Result<()> {
        let pins = pins(self.connection)?;
        let is_kept = (history.first..=self.batch.commit).contains(&pin.commit)
            || pins.iter().any(|other| other.commit == pin.commit);
        if !is_kept {
            return Err(Error::Unusable(format!("commit {} is not kept any more", pin.commit.0)));
        }
        let is_same = |other: &&Pin| (other.commit, other.kind, &other.name) == (pin.commit, pin.kind, &pin.name);
        if pins.iter().find(is_same).is_some_and(|old| old.held_until > pin.held_until) {
            return Err(Error::Unusable(format!(
                "snapshot '{}' is held for longer",
                String::from_utf8_lossy(&pin.name)
            )));
        }
        let statement = "INSERT OR REPLACE INTO pins (commit_number, kind, name, made, held_until, sum) \
                         VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let held_until = pin.held_until.map(|time| time.0);
        let row = (sql(pin.commit.0), pin.kind.number(), &pin.name, pin.made.0, held_until, sums::pin(pin));
        self.execute(statement, row).map(drop)
    }

    fn unpin(&mut self, (commit, kind, name): (CommitNo, PinKind, &[u8]), history: History) -> Result<()> {
        let pins = pins(self.connection)?;
        let is_it = |pin: &&Pin| (pin.commit, pin.kind, &pin.name[..]) == (commit, kind, name);
        let Some(pin) = pins.iter().find(is_it) else { return Ok(()) };
        if pin.held_until.is_some_and(|until| until > self.batch.time) {
            return Err(Error::Unusable(format!("snapshot '{}' is held", String::from_utf8_lossy(name))));
        }
        self.execute(
            "DELETE FROM pins WHERE commit_number = ?1 AND kind = ?2 AND name = ?3",
            (sql(commit.0), kind.number(), name),
        )?;
        // What lies around it is one gap now.
        let before = pins.iter().map(|pin| pin.commit).filter(|other| *other < commit).max().unwrap_or_default();
        let swept = history.swept.min(before);
        if pins.iter().filter(|pin| pin.commit == commit).count() == 1 && swept != history.swept {
            self.put(History { swept, ..history })?;
        }
        Ok(())
    }

    /// Removes versions that no kept commit sees, of up to `limit` rows.
    fn forget(&mut self, limit: usize, history: History) -> Result<()> {
        let kept = pins(self.connection)?.into_iter().map(|pin| pin.commit).filter(|commit| *commit < history.first);
        let mut kept = kept.chain([history.first]).collect::<Vec<_>>();
        kept.dedup();
        let (mut before, mut left, mut swept) = (CommitNo(0), limit, history.swept);
        for next in kept {
            if next > swept && left > 0 {
                left -= self.forget_between(before, next, left)?.min(left);
                if left > 0 {
                    swept = next;
                    self.forget_commits(before, next)?;
                }
            }
            before = next;
        }
        if swept == history.swept { Ok(()) } else { self.put(History { swept, ..history }) }
    }

    /// Removes up to `limit` versions that no commit but those between `before` and `next` sees;
    /// tells how many.
    fn forget_between(&mut self, before: CommitNo, next: CommitNo, limit: usize) -> Result<usize> {
        let (from, to) = (sql(before.0), sql(next.0));
        let rest = |removed: usize| sql(limit.saturating_sub(removed) as u64);
        let filed = "fork > ?1 AND fork < ?2 AND since > ?1 AND until <= ?2 LIMIT ?3";
        let some =
            format!("(fork, ino, idx, until) IN (SELECT fork, ino, idx, until FROM extents_history WHERE {filed})");
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
             sum IS (weft_sum('extents', ino, idx, block, since) + weft_references(until)) & {MASK}"
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
        let last = self.batch.commit.0.saturating_sub(super::super::apply::COMMITS_KEPT);
        let statement = "DELETE FROM commits WHERE number > ?1 AND number < ?2 AND number <= ?3";
        self.execute(statement, (sql(before.0), sql(next.0), sql(last))).map(drop)
    }
}

/// Forgets commits that are neither kept nor among the last ones.
pub(in crate::sqlite) fn forget_old_commits(connection: &Connection, history: &History, last: CommitNo) -> Result<()> {
    let statement = "DELETE FROM commits WHERE number <= ?1 AND number < ?2 \
                     AND number NOT IN (SELECT commit_number FROM pins)";
    let old = last.0.saturating_sub(super::super::apply::COMMITS_KEPT);
    let mut statement = connection.prepare_cached(statement).map_err(failed)?;
    statement.execute((sql(old), sql(history.swept.0))).map(drop).map_err(failed)
}
