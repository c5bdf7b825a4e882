//! References to blocks in a commit: which extents go, and which blocks lose or gain by it.
//!
//! It knows extents and the rows of blocks, which it asks the server for, and no other rows.

use super::{PostgresTransaction, WHAT};
use crate::batch::{Batch, ExtentChange};
use crate::error::{Error, Result};
use crate::postgres::connection::Call;
use crate::postgres::read::{self, int, unsigned};
use crate::postgres::statements as sql;
use crate::postgres::write::{self, BlockRow, Home, References};
use crate::row::{BlockId, BlockRef, CommitNo, Ino};
use crate::sums;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;
use tokio_postgres::Row;

/// Removed files whose extents are asked for in one statement: their rows are in memory together.
const REMOVED_MAX: usize = 4096;

impl PostgresTransaction<'_> {
    /// Returns the home of a block of this batch, or of an older one.
    pub(super) fn home(&self, block: &BlockRef) -> Result<Home> {
        let unknown = || Error::Bug(format!("block {} has no place in this database", block.id.0));
        let own = self.new.get(&block.id).map(|new| (new.owner, block.id));
        own.or_else(|| write::home(block.place, block.id)).ok_or_else(unknown)
    }

    /// The ranges of extents that `batch` clears or replaces, of files that may have any and stay.
    pub(super) fn replaced(&self, batch: &Batch, put: &[(Ino, u64, Home)]) -> Vec<(Ino, Range<u64>)> {
        let mut replaced = Vec::new();
        for change in &batch.extents {
            if let ExtentChange::Clear { ino, range } = change {
                replaced.push((*ino, range.clone()));
            }
        }
        for (ino, index, _) in put {
            match replaced.last_mut() {
                Some((last, range)) if last == ino && range.contains(index) => {}
                Some((last, range)) if last == ino && range.end == *index => range.end += 1,
                _ => replaced.push((*ino, *index..*index + 1)),
            }
        }
        replaced.retain(|(ino, _)| *ino < self.writer.fresh);
        replaced
    }

    /// Counts the changes of references to blocks, those of this transaction included, as extents
    /// are `replaced` and files `removed`.
    pub(super) fn count(
        &mut self,
        replaced: &[(Ino, Range<u64>)],
        removed: &[i64],
        put: &[(Ino, u64, Home)],
    ) -> Result<Counted> {
        let ranges = replaced.iter().map(|(ino, range)| {
            Call::new(sql::PLACED, vec![Box::new(int(ino.0)), Box::new(int(range.start)), Box::new(int(range.end))])
        });
        let files = removed.chunks(REMOVED_MAX).map(|inos| Call::new(sql::PLACED_OF, vec![Box::new(inos.to_vec())]));
        let calls = ranges.chain(files).collect::<Vec<_>>();
        let (mut counted, mut seen) = (Counted::default(), HashSet::new());
        self.writer
            .connection()
            .take_all(WHAT, &calls, |_, rows| rows.iter().try_for_each(|row| counted.lose(row, &mut seen)))?;
        self.count_others(&mut counted)?;
        // How many name a block whose row is damaged is not known: it stays.
        let Counted { references, damaged, .. } = &mut counted;
        references.retain(|home, _| !damaged.contains(home));
        for (.., home) in put {
            *counted.references.entry(*home).or_insert(0) += 1;
        }
        Ok(counted)
    }

    /// Looks at the rows of other files' blocks that lose references.
    fn count_others(&mut self, counted: &mut Counted) -> Result<()> {
        let mut blocks = BTreeMap::<Ino, Vec<i64>>::new();
        for (owner, id) in std::mem::take(&mut counted.others) {
            blocks.entry(owner).or_default().push(int(id.0));
        }
        let owners = blocks.keys().copied().collect::<Vec<_>>();
        let call =
            |(owner, ids): (Ino, Vec<i64>)| Call::new(sql::OTHERS_REFS, vec![Box::new(int(owner.0)), Box::new(ids)]);
        let calls = blocks.into_iter().map(call).collect::<Vec<_>>();
        self.writer.connection().take_all(WHAT, &calls, |place, rows| {
            rows.iter().try_for_each(|row| counted.look((owners[place], BlockId(unsigned(row, 6)?)), row, 0))
        })
    }
}

/// Changes of the references to blocks.
#[derive(Default)]
pub(super) struct Counted {
    pub(super) references: References,
    /// Blocks in files' own tables that lose references, with the number they had.
    pub(super) own: BTreeMap<Home, i64>,
    /// Blocks of other files that lose references; the number they had is not known yet.
    others: BTreeSet<Home>,
    /// Blocks that lose some and have damaged rows.
    damaged: BTreeSet<Home>,
}

impl Counted {
    /// The extent of a row of [`sql::PLACED`], or one like it, goes. Ranges may overlap: `seen` has
    /// those that went.
    fn lose(&mut self, row: &Row, seen: &mut HashSet<(u64, u64)>) -> Result<()> {
        if !seen.insert((unsigned(row, 0)?, unsigned(row, 1)?)) {
            return Ok(());
        }
        let home = (Ino(unsigned(row, 2)?), BlockId(unsigned(row, 3)?));
        let extent = (Ino(unsigned(row, 0)?), unsigned(row, 1)?);
        let sum = sums::owned_extent(extent, (home.0, home.1.0), CommitNo(unsigned(row, 4)?));
        if !read::holds(row, 5, sum) {
            // It may name a block that others need.
            return Ok(());
        }
        *self.references.entry(home).or_insert(0) -= 1;
        if home.0 != extent.0 {
            self.others.insert(home);
            return Ok(());
        }
        self.look(home, row, 6)
    }

    /// The row of a block that loses references: columns from `first` on have these, its length,
    /// base, value and sum, and whether its bytes lie in a table of the file's own.
    fn look(&mut self, home: Home, row: &Row, first: usize) -> Result<()> {
        // What has no row has nothing to lose.
        let Some(refs) = read::get::<Option<i64>>(row, first)? else { return Ok(()) };
        match BlockRow::holds(home, refs, row, first + 1) {
            true if read::get(row, first + 5)? => drop(self.own.insert(home, refs)),
            true => {}
            false => drop(self.damaged.insert(home)),
        }
        Ok(())
    }
}
