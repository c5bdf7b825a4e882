//! Forgetting: versions that no kept commit sees, and what blocks lose with them.
//!
//! A version is seen by the commits from the one that wrote it up to the one before that which
//! replaced it. So those that lie between two neighbours among the kept commits, as a whole, go:
//! an index or the forks find them, however much is kept beside them.

use super::history::HistoryPlan;
use super::references::Found;
use super::{PostgresTransaction, WHAT};
use crate::error::Result;
use crate::history::emptied;
use crate::history::fork::forks_at;
use crate::history::kept::Kept;
use crate::postgres::connection::{Call, Parameter};
use crate::postgres::past;
use crate::postgres::read::{get, int, unsigned};
use crate::postgres::statements::history as sql;
use crate::postgres::write::column;
use crate::row::{CommitNo, Ino};
use tokio_postgres::Row;

/// Gaps that are looked at in one round trip.
const GAPS_TOGETHER: usize = 8;

/// Keys in one statement.
const KEYS_MAX: usize = 4096;

/// Versions of extents that are looked at together where all go.
const EXTENTS_MAX: i64 = 10_000;

/// Versions of one file that are emptied together.
const VERSIONS_MAX: usize = 1 << 24;

/// Statements that remove all there is.
const END: [&str; 6] =
    [sql::END_INODES, sql::END_CONTENT, sql::END_NAMES, sql::END_EXTENTS, sql::END_XATTRS, sql::END_PINS];

/// Keys of versions that go, by their columns.
#[derive(Default)]
struct Dead {
    /// Inode and commit.
    inodes: Vec<(i64, i64)>,
    content: Vec<(i64, i64)>,
    /// Fork, inode, name and commit.
    names: Vec<Named>,
    xattrs: Vec<Named>,
    /// Fork, inode, start and commit.
    extents: Vec<(i64, i64, i64, i64)>,
}

type Named = (i64, i64, Vec<u8>, i64);

impl PostgresTransaction<'_> {
    /// Has as many versions go as `kept` allows, and says there how far that is done.
    pub(super) fn forget(&mut self, kept: &mut Kept, now: CommitNo, plan: &mut HistoryPlan) -> Result<()> {
        let (mut left, gaps) = kept.gaps(now);
        let Some(history) = &mut kept.history else { return Ok(()) };
        let mut dead = Dead::default();
        'all: for together in gaps.chunks(GAPS_TOGETHER) {
            let calls = together.iter().flat_map(|gap| dead_of(*gap, history.swept, left)).collect::<Vec<_>>();
            let answers = self.writer.connection().query_all(WHAT, &calls)?;
            for ((_, end), of_gap) in together.iter().zip(answers.chunks(DEAD)) {
                if !dead.take(of_gap, &mut left, &mut plan.found)? {
                    break 'all;
                }
                history.swept = *end;
            }
        }
        plan.calls.extend(dead.calls());
        Ok(())
    }

    /// Empties all versions of `files`. `Corrupt` if one is damaged: nobody would see that any
    /// more.
    pub(super) fn empty_all(&mut self, files: &[Ino], plan: &mut HistoryPlan) -> Result<()> {
        let mut emptied = Vec::new();
        for ino in files {
            if self.empty(*ino, plan)? {
                emptied.push(int(ino.0));
            }
        }
        if emptied.is_empty() {
            return Ok(());
        }
        // No index finds extents by file: they are looked for once for all of them.
        let extents = self.writer.connection().query(WHAT, sql::EXTENTS_OF, vec![Box::new(emptied)])?;
        let mut dead = Dead::default();
        dead.take_extents(&extents, &mut plan.found)?;
        plan.calls.extend(dead.calls());
        Ok(())
    }

    /// Empties all versions of file `ino`, but their extents. False if there are none.
    fn empty(&mut self, ino: Ino, plan: &mut HistoryPlan) -> Result<bool> {
        let connection = self.writer.connection();
        let versions = past::versions(connection, ino, CommitNo(u64::MAX), VERSIONS_MAX)?;
        let Some((_, newest)) = versions.first() else { return Ok(false) };
        let content = connection.query(WHAT, sql::CONTENT_OF, vec![Box::new(int(ino.0))])?;
        let held = |row: &Row| Ok(CommitNo(unsigned(row, 0)?)..CommitNo(unsigned(row, 1)?));
        let mut content = content.iter().map(held).collect::<Result<Vec<_>>>()?;
        content.extend(emptied::beside_present(newest, &content));
        let columns = [
            column(&content, |_| int(ino.0)),
            column(&content, |held| int(held.start.0)),
            column(&content, |held| int(held.end.0)),
            column(&content, |held| emptied::content_sum(ino, held)),
        ];
        plan.calls.push(Call::new(sql::EMPTY_CONTENT, columns.into()));
        let columns = [
            column(&versions, |_| int(ino.0)),
            column(&versions, |(_, held)| int(held.end.0)),
            column(&versions, |(row, held)| emptied::row_sum(row, held)),
        ];
        plan.calls.push(Call::new(sql::EMPTY_INODES, columns.into()));
        Ok(true)
    }

    /// Has all versions and pins go.
    pub(super) fn forget_all(&mut self, plan: &mut HistoryPlan) -> Result<()> {
        let mut after = [i64::MIN; 4];
        loop {
            let parameters = after.into_iter().chain([EXTENTS_MAX]).map(|number| Box::new(number) as Parameter);
            let call = Call::new(sql::ALL_EXTENTS, parameters.collect());
            let rows = self.writer.connection().query_all(WHAT, &[call])?.pop().unwrap_or_default();
            let Some(last) = rows.last() else { break };
            after = [get(last, 14)?, get(last, 0)?, get(last, 1)?, get(last, 13)?];
            rows.iter().try_for_each(|row| plan.found.lose_version(row))?;
        }
        plan.calls.extend(END.map(|statement| Call::new(statement, Vec::new())));
        Ok(())
    }
}

/// Statements that look for versions in a gap.
const DEAD: usize = 5;

/// Returns the calls that ask for versions in a gap between kept commits, of which all that were
/// replaced up to `swept` are gone: one more of each kind than may go.
fn dead_of((begin, end): (CommitNo, CommitNo), swept: CommitNo, left: usize) -> [Call; DEAD] {
    let from = begin.max(swept);
    let limit = int(left as u64).saturating_add(1);
    let numbers = || [int(from.0), int(end.0), int(begin.0), limit].map(|number| Box::new(number) as Parameter);
    // Those that held when what is left begins. No version may begin before the gap.
    let forks = if from > begin { forks_at(from, end) } else { Vec::new() };
    let forks = forks.into_iter().filter(|fork| *fork > begin.0).map(int).collect::<Vec<_>>();
    let filed = |statement| {
        let forks = Box::new(forks.clone()) as Parameter;
        Call::new(statement, numbers().into_iter().chain([forks]).collect())
    };
    let by_commit = |statement| Call::new(statement, numbers().into());
    [
        by_commit(sql::DEAD_INODES),
        by_commit(sql::DEAD_CONTENT),
        filed(sql::DEAD_NAMES),
        filed(sql::DEAD_XATTRS),
        filed(sql::DEAD_EXTENTS),
    ]
}

/// The rows of `found` that may go while `left` is not used up; false if there are more.
fn within<'a>(found: &'a [Row], left: &mut usize) -> (&'a [Row], bool) {
    let count = found.len().min(*left);
    *left -= count;
    (&found[..count], count == found.len())
}

impl Dead {
    /// Takes in what was found in a gap, up to `left` rows; false if that is not all.
    fn take(&mut self, found: &[Vec<Row>], left: &mut usize, lost: &mut Found) -> Result<bool> {
        let [inodes, content, names, xattrs, extents] = found else { return Ok(false) };
        let pair = |row: &Row| Ok((get(row, 0)?, get(row, 1)?));
        let named = |row: &Row| Ok((get(row, 0)?, get(row, 1)?, get(row, 2)?, get(row, 3)?));
        let (inodes, all_inodes) = within(inodes, left);
        let (content, all_content) = within(content, left);
        let (names, all_names) = within(names, left);
        let (xattrs, all_xattrs) = within(xattrs, left);
        let (extents, all_extents) = within(extents, left);
        self.inodes.extend(inodes.iter().map(pair).collect::<Result<Vec<_>>>()?);
        self.content.extend(content.iter().map(pair).collect::<Result<Vec<_>>>()?);
        self.names.extend(names.iter().map(named).collect::<Result<Vec<Named>>>()?);
        self.xattrs.extend(xattrs.iter().map(named).collect::<Result<Vec<Named>>>()?);
        self.take_extents(extents, lost)?;
        Ok(all_inodes && all_content && all_names && all_xattrs && all_extents)
    }

    fn take_extents(&mut self, extents: &[Row], lost: &mut Found) -> Result<()> {
        for row in extents {
            self.extents.push((get(row, 14)?, get(row, 0)?, get(row, 1)?, get(row, 13)?));
            lost.lose_version(row)?;
        }
        Ok(())
    }

    /// Returns the calls that remove them.
    fn calls(&self) -> Vec<Call> {
        let mut calls = Vec::new();
        for (statement, keys) in [(sql::FORGET_INODES, &self.inodes), (sql::FORGET_CONTENT, &self.content)] {
            calls.extend(keys.chunks(KEYS_MAX).map(|keys| {
                Call::new(statement, vec![column(keys, |(ino, _)| *ino), column(keys, |(_, until)| *until)])
            }));
        }
        for (statement, keys) in [(sql::FORGET_NAMES, &self.names), (sql::FORGET_XATTRS, &self.xattrs)] {
            calls.extend(keys.chunks(KEYS_MAX).map(|keys| {
                let names = column(keys, |(_, _, name, _)| name.clone());
                let numbers = [column(keys, |(fork, ..)| *fork), column(keys, |(_, ino, ..)| *ino)];
                let until = column(keys, |(.., until)| *until);
                Call::new(statement, numbers.into_iter().chain([names, until]).collect())
            }));
        }
        calls.extend(self.extents.chunks(KEYS_MAX).map(|keys| {
            let columns = vec![
                column(keys, |(fork, ..)| *fork),
                column(keys, |(_, ino, ..)| *ino),
                column(keys, |(_, _, start, _)| *start),
                column(keys, |(.., until)| *until),
            ];
            Call::new(sql::FORGET_EXTENTS, columns)
        }));
        calls
    }
}
