//! Fetches from the store what an operation lacks.
//!
//! A read that spans the end of a commit may be older than what the commit made clean, so it is
//! thrown away and the operation asks again. Otherwise what changed meanwhile is still in memory,
//! and wins.

use super::Vfs;
use crate::state::State;
use std::ops::{ControlFlow, Range};
use weft_store::{Cookie, Ino, Name, Nth};
use weft_tree::{ErrorKind, Miss, PART_BLOCKS, Result, Stored};

/// Inodes read at once: numbers near each other were made together and are used together.
const INODES_READ: usize = 128;

/// The same, when those that were missing lately were not near each other.
const INODES_READ_APART: usize = 16;

/// The same, when several were near each other and a server is waited for.
const INODES_READ_AFAR: usize = 512;

/// So many.
const SEVERAL: u32 = 4;

/// By how much one that is not near the one before lessens how many were: whoever goes through a
/// tree jumps at times and then goes on.
const DOUBT: u32 = 4;

/// Ancestors of a directory that are read when one of them is missing.
const ANCESTORS_READ: usize = 1 << 10;

/// Entries of a directory that are read when one of them is looked for, at most.
const NAMES_READ: usize = 64;

/// Largest number of blocks of a file with holes, and of entries of a directory, for which the
/// store is asked about missing rows before a missing row counts as a hole, or a missing name as
/// free. Checking more takes too long.
const COUNTED_MAX: u64 = 1 << 18;

/// Inodes that were missing lately.
pub(crate) struct Locality {
    last: Ino,
    /// Counter of inodes that were near the one before.
    near: u32,
    /// Number of inodes read at once.
    read: usize,
}

impl Default for Locality {
    fn default() -> Locality {
        Locality { last: Ino(0), near: 0, read: INODES_READ }
    }
}

impl Locality {
    /// Tells how many inodes to read at once now that `ino` is missing, from a store that is far
    /// away or not.
    fn miss(&mut self, ino: Ino, is_far: bool) -> usize {
        let last = std::mem::replace(&mut self.last, ino);
        let is_near = ino.0.wrapping_sub(last.0) <= 2 * self.read.max(INODES_READ) as u64;
        self.near = if is_near { self.near.saturating_add(1) } else { self.near / DOUBT };
        self.read = match self.near {
            0 => INODES_READ_APART,
            SEVERAL.. if is_far => INODES_READ_AFAR,
            _ => INODES_READ,
        };
        self.read
    }
}

impl Vfs {
    pub(super) fn load(&self, miss: &Miss) -> Result<()> {
        match miss {
            Miss::Inode(ino) => self.load_inodes(*ino),
            Miss::Ancestors(ino) => self.load_ancestors(*ino),
            Miss::Name(parent, name) => self.load_name(*parent, name),
            Miss::Extents(ino, range) => {
                self.load_extents(*ino, &self.first_extents(*ino, range)?)?;
                if let Some(ahead) = self.read_ahead.as_ref().filter(|_| self.store.wants_more()) {
                    ahead.prefetch();
                }
                Ok(())
            }
            Miss::LastExtents(ino, range) => self.load_extents(*ino, &self.last_extents(*ino, range)?),
            Miss::Xattrs(ino) => {
                self.learning(|| Ok(self.store.xattrs(*ino)?), |state, rows| state.tree.learn_xattrs(*ino, rows))
            }
            Miss::Rest
            | Miss::Turn
            | Miss::Room(_)
            | Miss::Commit
            | Miss::Space
            | Miss::Length(_)
            | Miss::Shown(..) => Ok(()),
        }
    }

    /// The part of `range` of a file that is read at once.
    fn first_extents(&self, ino: Ino, range: &Range<u64>) -> Result<Range<u64>> {
        if range.end - range.start <= PART_BLOCKS {
            return Ok(range.clone());
        }
        let next = self.store.nth_extent(ino, self.bytes_of(range), Nth::FromStart(PART_BLOCKS))?;
        // A block has fewer extents than that.
        Ok(range.start..next.map_or(range.end, |byte| byte / u64::from(self.block_size)))
    }

    /// The same at its end.
    fn last_extents(&self, ino: Ino, range: &Range<u64>) -> Result<Range<u64>> {
        let first = self.store.nth_extent(ino, self.bytes_of(range), Nth::FromEnd(PART_BLOCKS - 1))?;
        Ok(first.map_or(range.start, |byte| byte / u64::from(self.block_size))..range.end)
    }

    /// The bytes of the blocks of these indices.
    fn bytes_of(&self, indices: &Range<u64>) -> Range<u64> {
        let byte = |index: u64| index.saturating_mul(self.block_size.into());
        byte(indices.start)..byte(indices.end)
    }

    fn load_extents(&self, ino: Ino, range: &Range<u64>) -> Result<()> {
        self.learning(
            || self.extents(ino, range),
            |state, rows| {
                state.tree.learn_extents(ino, range.clone(), rows);
            },
        )
    }

    /// The stored blocks of `ino` in `range`. Before one that is not there counts as a hole, the
    /// store is asked whether rows of the file are gone: once while it is in memory.
    fn extents(&self, ino: Ino, range: &Range<u64>) -> Result<Vec<(u64, Stored)>> {
        let bytes = self.bytes_of(range);
        let rows = self.store.extents(ino, bytes.clone())?;
        let missing = rows.iter().try_fold(bytes.start, |end, (span, _)| match span.start == end {
            true => ControlFlow::Continue(span.end()),
            false => ControlFlow::Break(end),
        });
        let (ControlFlow::Continue(missing) | ControlFlow::Break(missing)) = missing;
        let ask = |state: &mut State| {
            let block_size = state.tree.block_size();
            let inode = state.tree.inodes.peek(&ino)?;
            let is_whole = inode.data.as_ref().is_some_and(|data| data.is_whole);
            let end = bytes.end.min(inode.row.size);
            let is_dense = inode.row.allocated >= inode.row.size;
            let is_countable = is_dense || inode.row.allocated / block_size <= COUNTED_MAX;
            Some(missing < end && !is_whole && is_countable)
        };
        if ask(&mut self.state.lock()) == Some(true) {
            self.store.refuse_missing_blocks(ino)?;
            if let Some(inode) = self.state.lock().tree.inodes.get(&ino).filter(|inode| !inode.dead) {
                inode.data().is_whole = true;
            }
        }
        Ok(Stored::group(&rows, self.block_size.into())?)
    }

    /// Loads an entry; of a small directory all entries, as more lookups there are likely.
    fn load_name(&self, parent: Ino, name: &Name) -> Result<()> {
        let is_small =
            self.state.lock().tree.inodes.peek(&parent).is_some_and(|inode| inode.row.size <= NAMES_READ as u64);
        let mut may_lack_some = false;
        if is_small {
            let mut is_whole = false;
            self.learning(
                || {
                    let rows = match self.store.names(parent, Cookie(0), NAMES_READ + 1) {
                        // One damaged entry must not hide the others: this one is looked for alone.
                        Err(error) if error.kind() == weft_store::ErrorKind::Corrupt => return Ok(None),
                        rows => rows?,
                    };
                    is_whole = rows.len() <= NAMES_READ;
                    Ok(Some(rows))
                },
                |state, rows| {
                    state.tree.name_misses += 1;
                    if let Some(rows) = rows.filter(|rows| rows.len() <= NAMES_READ) {
                        // Gone meanwhile, it needs no entries.
                        may_lack_some = matches!(state.tree.learn_list(parent, &rows), Ok(false));
                    }
                },
            )?;
            if is_whole && !may_lack_some {
                return Ok(());
            }
        }
        self.learning(
            || match self.store.name(parent, name)? {
                // It may be the entry that is gone, or damaged.
                None => self.refuse_missing_names(parent, COUNTED_MAX).map(|()| None),
                row => Ok(row),
            },
            |state, row| {
                state.tree.learn_name(parent, name, row);
            },
        )
    }

    /// Fails if rows of entries of `directory` are gone or damaged, unless it has more than `most`
    /// entries. The store is asked once while the directory is in memory.
    pub(crate) fn refuse_missing_names(&self, directory: Ino, most: u64) -> Result<()> {
        let ask = |state: &mut State| {
            let inode = state.tree.inodes.peek(&directory)?;
            let is_whole = inode.directory.as_ref().is_some_and(|known| known.is_whole);
            Some(inode.stored && inode.row.size <= most && !is_whole)
        };
        if ask(&mut self.state.lock()) == Some(true) {
            self.store.refuse_missing_names(directory)?;
            if let Some(inode) = self.state.lock().tree.inodes.get(&directory).filter(|inode| !inode.dead) {
                inode.directory().is_whole = true;
            }
        }
        Ok(())
    }

    fn load_inodes(&self, ino: Ino) -> Result<()> {
        // No volume has it, so no store is asked: what a request names may be any number.
        if ino >= Ino::MAX {
            return Err(crate::Error::new(ErrorKind::Stale, ino));
        }
        let mut found = false;
        let count = self.state.lock().locality.miss(ino, self.store.is_remote());
        self.learning(
            || {
                let rows = match self.store.inodes_near(ino, count) {
                    // Rows that were not asked for must not hide this one.
                    Err(error) if count > 1 && error.kind() == weft_store::ErrorKind::Corrupt => {
                        self.store.inodes(ino, 1)?
                    }
                    rows => rows?,
                };
                found = rows.first().is_some_and(|row| row.ino == ino);
                Ok(rows)
            },
            |state, rows| {
                for row in rows {
                    state.tree.learn_inode(row, ino);
                }
                state.tree.inode_misses += 1;
            },
        )?;
        let known = found || self.state.lock().tree.inodes.peek(&ino).is_some();
        if known { Ok(()) } else { Err(self.absent(ino)?) }
    }

    /// Loads a directory and ancestors of it. The operation walks from where it began each time, so
    /// it would take a time that grows with the square of the depth if it was given one each time.
    fn load_ancestors(&self, ino: Ino) -> Result<()> {
        let parent = |ino| self.state.lock().tree.inodes.peek(&ino).map(|inode| inode.row.parent);
        let mut at = ino;
        for _ in 0..ANCESTORS_READ {
            at = match parent(at) {
                Some(above) => above,
                None => {
                    self.load_inodes(at)?;
                    // A commit has ended meanwhile: the operation asks again.
                    let Some(above) = parent(at) else { break };
                    above
                }
            };
            if at == Ino::ROOT {
                break;
            }
        }
        Ok(())
    }

    /// Tells why `ino` has no row: it was removed, or a name leads to it, and its row is gone.
    fn absent(&self, ino: Ino) -> Result<crate::Error> {
        if self.store.names_of(ino)?.is_empty() {
            return Ok(crate::Error::new(ErrorKind::Stale, ino));
        }
        let path = weft_store::path_to(ino, |ino| self.store.names_of(ino))?;
        let what = format!(
            "the row of {} is gone; unmount the volume, see what 'weft check' tells, and restore it from a copy or have \
             'weft check --repair' bring back what can be; with --discard that removes the name if nothing can",
            String::from_utf8_lossy(&path)
        );
        Ok(crate::Error::from(weft_store::Error::Corrupt(what)).about(ino))
    }

    /// Fails if the root has no row, so that nothing could be reached.
    pub(super) fn refuse_rootless(&self) -> Result<()> {
        // Nothing is kept of what is read: who recovers decides what becomes of it.
        Ok(weft_store::refuse_rootless(&self.store.inodes(Ino::ROOT, 1)?)?)
    }

    /// Reads rows and takes them in, unless a commit has ended meanwhile. Nothing is forgotten for
    /// them: the operation may need what it loaded before.
    fn learning<T>(&self, read: impl FnOnce() -> Result<T>, learn: impl FnOnce(&mut State, T)) -> Result<()> {
        let finished = self.state.lock().tree.finished;
        let rows = read()?;
        let mut state = self.state.lock();
        if state.tree.finished == finished {
            learn(&mut state, rows);
        }
        Ok(())
    }
}
