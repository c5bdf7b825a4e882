//! Prefetch for small files that are read, and directories that are listed, one after the other, as
//! a search of a tree does: rows of the next ones come along with the answer for one of them, in
//! the same round trip. While files that came along are asked for, a thread that has nothing else
//! to do can prefetch the next ones.
//!
//! Prefetched rows are used once, or dropped when more come or a commit ends: rows may be others
//! then.

use super::read::{self, Others, unsigned};
use crate::error::Result;
use crate::row::{BlockId, BlockRef, Ino, NameRow, Span};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use tokio_postgres::Row;
use weft_block::Block;

/// Steps between numbers asked for in order, and the size of a prefetch.
struct Steps {
    /// Numbers between one and the next, at most.
    near: u64,
    /// Numbers that come along, at first and at most.
    span: Range<u64>,
}

/// Files or directories asked for in order before more is believed to follow.
const BELIEVED: u32 = 2;

/// Length of a run in order after which more makes no difference.
const SURE: u32 = 32;

/// Decay of the count of requests in order after a jump to somewhere else: a reader that walks a
/// tree jumps at times and then goes on in order.
const DOUBT: u32 = 4;

/// Steps of files made one after the other.
const FILES: Steps = Steps { near: 64, span: 8..64 };

/// Steps of directories: between them are the files in them.
const DIRECTORIES: Steps = Steps { near: 512, span: 64..1024 };

/// Extents that come along, at most.
pub(super) const EXTENTS_MAX: usize = 256;

/// Entries that come along, at most.
pub(super) const NAMES_MAX: usize = 1024;

/// Bytes of a block that comes along, at most.
pub(super) const BLOCK_BYTES_MAX: i64 = 64 << 10;

/// Prefetched rows and blocks.
#[derive(Default)]
pub(super) struct Prefetcher {
    state: Mutex<State>,
    /// Signalled when what was on its way is here, or does not come.
    arrived: Condvar,
}

#[derive(Default)]
struct State {
    /// Counts commits.
    age: u64,
    files: Order,
    /// Whole files.
    extents: BTreeMap<Ino, Vec<(Span, BlockRef)>>,
    /// Blocks of these files.
    blocks: HashMap<BlockId, (Ino, Block)>,
    /// The last of these files.
    last: Option<Ino>,
    /// Files after it, which are to be brought.
    due: Option<Wanted>,
    /// The first and last of those that somebody is bringing.
    coming: Option<(Ino, Ino)>,
    directories: Order,
    /// Whole directories.
    names: BTreeMap<Ino, Vec<NameRow>>,
}

/// The order of requests.
#[derive(Default)]
struct Order {
    last: Option<Ino>,
    in_order: u32,
    span: u64,
}

impl Order {
    /// `ino` is asked for, and here already or not; tells what is to come along, itself and `span`
    /// numbers after it, if anything.
    fn ask(&mut self, ino: Ino, is_here: bool, steps: &Steps) -> Option<(Ino, Ino)> {
        let Steps { near, span } = steps;
        let follows = self.last.is_some_and(|last| last < ino && ino.0 - last.0 <= *near);
        if follows {
            self.in_order = (self.in_order + 1).min(SURE);
        } else {
            self.in_order /= DOUBT;
            self.span = (self.span / 2).max(span.start);
        }
        self.last = Some(ino);
        if self.in_order < BELIEVED {
            self.span = span.start;
            return None;
        }
        if is_here {
            return None;
        }
        let wanted = (ino, Ino(ino.0.saturating_add(self.span)));
        self.widen(steps);
        Some(wanted)
    }

    /// More comes along the next time.
    fn widen(&mut self, steps: &Steps) {
        self.span = (2 * self.span).min(steps.span.end);
    }
}

/// A range to prefetch.
pub(super) struct Wanted {
    age: u64,
    /// The first number and the last.
    pub(super) span: (Ino, Ino),
}

impl Wanted {
    /// All of them, with nothing yet.
    fn all<T>(&self) -> BTreeMap<Ino, Vec<T>> {
        (self.span.0.0..=self.span.1.0).map(|ino| (Ino(ino), Vec::new())).collect()
    }
}

impl Prefetcher {
    /// The extents of `ino` in `range`, if they came along; else which files are to come along with
    /// them, if any. Waits for those that somebody is bringing.
    pub(super) fn extents(&self, ino: Ino, range: &Range<u64>) -> Result<Vec<(Span, BlockRef)>, Option<Wanted>> {
        let mut state = self.state.lock();
        while state.coming.is_some_and(|(first, last)| (first..=last).contains(&ino)) {
            self.arrived.wait(&mut state);
        }
        let here = state.extents.remove(&ino);
        let wanted = state.files.ask(ino, here.is_some(), &FILES);
        if here.is_some() {
            state.go_on(ino);
        }
        match here {
            Some(extents) => Ok(extents.into_iter().filter(|(span, _)| range.contains(&span.start)).collect()),
            None => Err(wanted.map(|span| Wanted { age: state.age, span })),
        }
    }

    /// The first `limit` entries of `parent`, if they came along; else which directories are to
    /// come along with them, if any.
    pub(super) fn names(&self, parent: Ino, limit: usize) -> Result<Vec<NameRow>, Option<Wanted>> {
        let mut state = self.state.lock();
        let here = state.names.remove(&parent);
        let wanted = state.directories.ask(parent, here.is_some(), &DIRECTORIES);
        match here {
            Some(names) => Ok(names.into_iter().take(limit).collect()),
            // Its own are asked for anyhow, and may be very many.
            None => Err(wanted.map(|(first, last)| Wanted { age: state.age, span: (first.next(), last) })),
        }
    }

    /// Takes in entries that came along.
    pub(super) fn keep_names(&self, wanted: &Wanted, rows: &[Row]) -> Result<()> {
        let (mut names, mut damaged) = (wanted.all(), BTreeSet::new());
        for row in rows {
            let parent = Ino(unsigned(row, 6)?);
            match read::name_row(row, parent) {
                Ok(name) => names.entry(parent).or_default().push(name),
                // A listing of it reports the damage.
                Err(_) => {
                    damaged.insert(parent);
                }
            }
        }
        names.retain(|parent, _| !damaged.contains(parent));
        if let Some(row) = rows.last().filter(|_| rows.len() >= NAMES_MAX) {
            names.split_off(&Ino(unsigned(row, 6)?));
        }
        let mut state = self.state.lock();
        if state.age == wanted.age {
            state.names = names;
        }
        Ok(())
    }

    /// True if there are files to prefetch.
    pub(super) fn is_due(&self) -> bool {
        self.state.lock().due.is_some()
    }

    /// Has `bring` ask for the files that are due, if there are any.
    pub(super) fn bring(&self, bring: impl FnOnce(&Wanted) -> Result<(Vec<Row>, Others)>) -> Result<()> {
        /// However bringing ends, nobody waits for it then.
        struct Coming<'a>(&'a Prefetcher);
        impl Drop for Coming<'_> {
            fn drop(&mut self) {
                self.0.state.lock().coming = None;
                self.0.arrived.notify_all();
            }
        }
        let wanted = {
            let mut state = self.state.lock();
            let Some(wanted) = state.due.take() else { return Ok(()) };
            state.coming = Some(wanted.span);
            wanted
        };
        let coming = Coming(self);
        let (rows, others) = bring(&wanted)?;
        let along = Along::of(&wanted, &rows, &others)?;
        let mut state = self.state.lock();
        if state.age == wanted.age {
            let (first, asked) = (wanted.span.0, state.files.last.unwrap_or(wanted.span.0));
            // A reader that reads elsewhere now needs nothing cached where it read before.
            state.forget_before(asked.clamp(Ino(first.0.saturating_sub(FILES.span.end)), first));
            state.keep(along);
        }
        drop(state);
        drop(coming);
        Ok(())
    }

    /// Takes in extents that came along, in place of those before.
    pub(super) fn keep_extents(&self, wanted: &Wanted, rows: &[Row], others: &Others) -> Result<()> {
        let along = Along::of(wanted, rows, others)?;
        let mut state = self.state.lock();
        if state.age == wanted.age {
            state.forget_before(Ino(u64::MAX));
            state.keep(along);
        }
        Ok(())
    }

    /// The bytes of a block, if they came along.
    pub(super) fn block(&self, id: BlockId) -> Option<Block> {
        self.state.lock().blocks.remove(&id).map(|(_, block)| block)
    }

    /// A commit has ended: what came along may be old.
    pub(super) fn forget(&self) {
        let mut state = self.state.lock();
        state.age += 1;
        state.forget_before(Ino(u64::MAX));
        state.names.clear();
    }
}

impl State {
    /// `ino` was here and is asked for: more is due.
    fn go_on(&mut self, ino: Ino) {
        let Some(last) = self.last.filter(|last| ino <= *last && last.0 - ino.0 <= self.files.span) else { return };
        if self.due.is_none() && self.coming.is_none() {
            let span = (last.next(), Ino(last.0.saturating_add(self.files.span)));
            self.due = Some(Wanted { age: self.age, span });
            self.files.widen(&FILES);
        }
    }

    /// Drops prefetched files before `ino`, and the plan for those after it.
    fn forget_before(&mut self, ino: Ino) {
        self.extents = self.extents.split_off(&ino);
        self.blocks.retain(|_, (owner, _)| *owner >= ino);
        (self.due, self.last) = (None, None);
    }

    fn keep(&mut self, along: Along) {
        self.last = along.last;
        self.extents.extend(along.extents);
        self.blocks.extend(along.blocks);
    }
}

/// Files that came along.
struct Along {
    extents: BTreeMap<Ino, Vec<(Span, BlockRef)>>,
    blocks: HashMap<BlockId, (Ino, Block)>,
    last: Option<Ino>,
}

impl Along {
    fn of(wanted: &Wanted, rows: &[Row], others: &Others) -> Result<Along> {
        let mut extents = wanted.all();
        let (mut blocks, mut damaged) = (HashMap::new(), BTreeSet::new());
        for row in rows {
            let ino = Ino(unsigned(row, 0)?);
            // A reader of it gets the error.
            let Ok((span, block)) = read::extent(row, others) else {
                damaged.insert(ino);
                continue;
            };
            if let Some(bytes) = read::along(row, &block, others)
                && block.verify(bytes)
            {
                blocks.insert(block.id, (ino, Block::copy_of(bytes)));
            }
            extents.entry(ino).or_default().push((span, block));
        }
        if let Some(row) = rows.last().filter(|_| rows.len() >= EXTENTS_MAX) {
            // There may be more of the last one, and of those after it.
            extents.split_off(&Ino(unsigned(row, 0)?));
        }
        let last = extents.last_key_value().map(|(ino, _)| *ino);
        extents.retain(|ino, _| !damaged.contains(ino));
        blocks.retain(|_, (ino, _)| extents.contains_key(ino));
        Ok(Along { extents, blocks, last })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_asked_for_in_order_bring_more_along_and_others_do_not() {
        let prefetcher = Prefetcher::default();
        let ask = |ino| prefetcher.extents(Ino(ino), &(0..10)).expect_err("nothing came along yet");
        for ino in [5, 4, 100, 99, 1000, 7] {
            assert!(ask(ino).is_none());
        }
        assert!(ask(8).is_none());
        assert_eq!(ask(9).expect("three in order").span, (Ino(9), Ino(17)));
        assert_eq!(ask(18).expect("and more").span, (Ino(18), Ino(34)));
        assert!(ask(2).is_none());
        for ino in 3..100 {
            ask(ino);
        }
        assert_eq!(ask(2000).expect("one jump after many in order").span, (Ino(2000), Ino(2032)));
        assert!(ask(100).is_some() && ask(1000).is_none(), "two more");
    }

    #[test]
    fn what_came_along_serves_once_and_not_beyond_a_commit() {
        let prefetcher = Prefetcher::default();
        let come = || {
            let wanted = [7, 8, 9].map(|ino| prefetcher.extents(Ino(ino), &(0..10))).into_iter().next_back();
            wanted.expect("asked").expect_err("not yet").expect("wanted")
        };
        prefetcher.keep_extents(&come(), &[], &Others::new()).expect("taken");
        assert_eq!(prefetcher.extents(Ino(10), &(0..10)).map_err(|_| ()), Ok(Vec::new()));
        assert!(prefetcher.extents(Ino(10), &(0..10)).is_err(), "once");
        prefetcher.forget();
        assert!(prefetcher.extents(Ino(11), &(0..10)).is_err(), "a commit has ended");
        let late = come();
        prefetcher.forget();
        prefetcher.keep_extents(&late, &[], &Others::new()).expect("taken");
        assert!(prefetcher.extents(Ino(11), &(0..10)).is_err(), "it was read before the commit");
    }
}
