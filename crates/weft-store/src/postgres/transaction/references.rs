//! References to blocks in a commit: the rows that [`crate::references`] plans with, asked of the
//! server, and what it decides about blocks.
//!
//! It knows extents and the rows of blocks, and no other rows.

use super::history::HistoryPlan;
use super::{PostgresTransaction, WHAT};
use crate::batch::Batch;
use crate::error::{Error, Result};
use crate::postgres::connection::Call;
use crate::postgres::read::{self, int, unsigned};
use crate::postgres::statements as sql;
use crate::postgres::write::{self, BlockRow, Home};
use crate::references::{BlockState, ExtentPlan, Fate, Merging, References};
use crate::row::{BlockId, BlockRef, CommitNo, Ino, Span};
use crate::sums;
use std::collections::{BTreeMap, BTreeSet};
use tokio_postgres::Row;

/// Removed files whose extents are asked for in one statement: their rows are in memory together.
const REMOVED_MAX: usize = 4096;

/// The changes of extents, and of the references to blocks that follow.
pub(super) struct Plan {
    pub(super) extents: ExtentPlan<Home>,
    pub(super) references: References<Home>,
    /// Blocks that nothing names any more.
    pub(super) dead: BTreeSet<Home>,
    /// Blocks among these that lie in files' own tables.
    pub(super) dead_in_own: BTreeSet<Home>,
}

impl PostgresTransaction<'_> {
    /// Plans the changes of `batch`, blocks of this transaction included. Versions of extents that
    /// are kept name the same blocks as before.
    pub(super) fn plan(&mut self, batch: &Batch, history: &mut HistoryPlan) -> Result<Plan> {
        let extents = ExtentPlan::of(batch, self.writer.fresh, Merging::AsPut, |block| self.home(block))?;
        let mut found = std::mem::take(&mut history.found);
        if !history.keeps {
            self.losing(&extents, &mut found)?;
        }
        self.find_others(&mut found)?;
        found.plan(extents)
    }

    /// Returns the home of a block of this batch, or of an older one.
    fn home(&self, block: &BlockRef) -> Result<Home> {
        let unknown = || Error::Bug(format!("block {} has no place in this database", block.id.0));
        let own = self.new.get(&block.id).map(|new| (new.owner, block.id));
        own.or_else(|| write::home(block.place, block.id)).ok_or_else(unknown)
    }

    /// Asks for the extents that go, with the rows of the blocks that lie with them.
    fn losing(&mut self, extents: &ExtentPlan<Home>, found: &mut Found) -> Result<()> {
        let ranges = extents.replaced.iter().map(|(ino, range)| {
            Call::new(sql::PLACED, vec![Box::new(int(ino.0)), Box::new(int(range.start)), Box::new(int(range.end))])
        });
        let of = |inos: &[Ino]| inos.iter().map(|ino| int(ino.0)).collect::<Vec<_>>();
        let files = extents.removed.chunks(REMOVED_MAX);
        let files = files.map(|inos| Call::new(sql::PLACED_OF, vec![Box::new(of(inos))]));
        let calls = ranges.chain(files).collect::<Vec<_>>();
        let mut take = |_, rows: Vec<Row>| rows.iter().try_for_each(|row| found.lose(row));
        self.writer.connection().take_all(WHAT, &calls, &mut take)
    }

    /// Asks for the rows of other files' blocks that lose references.
    fn find_others(&mut self, found: &mut Found) -> Result<()> {
        let mut blocks = BTreeMap::<Ino, Vec<i64>>::new();
        for (owner, id) in std::mem::take(&mut found.others) {
            blocks.entry(owner).or_default().push(int(id.0));
        }
        let owners = blocks.keys().copied().collect::<Vec<_>>();
        let call =
            |(owner, ids): (Ino, Vec<i64>)| Call::new(sql::OTHERS_REFS, vec![Box::new(int(owner.0)), Box::new(ids)]);
        let calls = blocks.into_iter().map(call).collect::<Vec<_>>();
        self.writer.connection().take_all(WHAT, &calls, |place, rows| {
            rows.iter().try_for_each(|row| found.look((owners[place], BlockId(unsigned(row, 6)?)), row, 0))
        })
    }
}

/// Blocks that lose references, as the server has them.
#[derive(Default)]
pub(super) struct Found {
    references: References<Home>,
    /// Whole rows, with the number of references before.
    whole: BTreeMap<Home, i64>,
    damaged: BTreeSet<Home>,
    /// Blocks among those with whole rows that lie in files' own tables.
    in_own: BTreeSet<Home>,
    /// Blocks of other files; their rows are not known yet.
    others: BTreeSet<Home>,
}

impl Found {
    /// The extent of a row of [`sql::PLACED`], or one like it, goes.
    fn lose(&mut self, row: &Row) -> Result<()> {
        self.lose_with(row, |sum| sum)
    }

    /// The same of the version of an extent, which has the commit that replaced it behind these
    /// columns.
    pub(super) fn lose_version(&mut self, row: &Row) -> Result<()> {
        let until = CommitNo(unsigned(row, 13)?);
        self.lose_with(row, |sum| sums::version(sum, until))
    }

    fn lose_with(&mut self, row: &Row, kept_as: impl Fn(i64) -> i64) -> Result<()> {
        let home = (Ino(unsigned(row, 2)?), BlockId(unsigned(row, 3)?));
        let span = Span { start: unsigned(row, 1)?, length: read::number(row, 12)? };
        let extent = (Ino(unsigned(row, 0)?), span);
        let sum = sums::owned_extent(extent, (home.0, home.1.0), CommitNo(unsigned(row, 4)?));
        if !read::holds(row, 5, kept_as(sum)) {
            return Ok(());
        }
        self.references.lose(home);
        if home.0 != extent.0 {
            self.others.insert(home);
            return Ok(());
        }
        self.look(home, row, 6)
    }

    /// The row of a block that loses references: columns from `first` on have these, its length,
    /// base, value and sum, and whether its bytes lie in a table of the file's own.
    fn look(&mut self, home: Home, row: &Row, first: usize) -> Result<()> {
        let Some(refs) = read::get::<Option<i64>>(row, first)? else { return Ok(()) };
        if !BlockRow::holds(home, refs, row, first + 1) {
            self.damaged.insert(home);
            return Ok(());
        }
        self.whole.insert(home, refs);
        if read::get(row, first + 5)? {
            self.in_own.insert(home);
        }
        Ok(())
    }

    fn plan(mut self, extents: ExtentPlan<Home>) -> Result<Plan> {
        // How many name a block whose row is damaged is not known.
        self.damaged.iter().for_each(|home| self.references.forget(*home));
        extents.put.iter().for_each(|(.., home)| self.references.gain(*home));
        let mut dead = BTreeSet::new();
        for (home, change) in self.references.changed().filter(|(_, change)| *change < 0) {
            let row =
                self.whole.get(&home).map_or(BlockState::Missing, |refs| BlockState::Whole { left: refs + change });
            if row.fate(home.1, change)? == Fate::Dies {
                dead.insert(home);
            }
        }
        // One that gets as many as it loses does not change.
        let dead_in_own = dead.intersection(&self.in_own).copied().collect();
        Ok(Plan { extents, references: self.references, dead, dead_in_own })
    }
}
