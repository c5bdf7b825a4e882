//! A volume as of a commit of the past, which is only read.

use crate::Name;
use crate::batch::Counters;
use crate::disk_cache::DiskCacheStats;
use crate::error::{Error, Result};
use crate::missing::{self, Blocks};
use crate::past::{PastStore, no_history};
use crate::round_trips::RoundTrips;
use crate::row::{BlockRef, CommitNo, CommitRow, Cookie, Ino, InodeRow, NameRow, Span};
use crate::store::{
    BlockStore, CommitStore, Durability, Header, Maintenance, Nth, ReadMode, RowStore, Space, Store, Transaction,
};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use weft_block::Block;
use weft_digest::{Digest, Kind, PIECE_BYTES, ZERO};

/// Most rows of blocks or names that are read at once.
const ROWS_MAX: u64 = 1 << 18;

/// Extents of a file.
type Extents = [(Span, BlockRef)];

/// Inodes whose commits are remembered, at most, in each half.
const WRITTEN_MAX: usize = 1 << 16;

/// Inodes that are read together if the commit of one is asked for.
const INODES_READ: usize = 64;

/// Numbers that are looked at for each inode that may be read with another one: entries of
/// directories take numbers, too.
const NEAR: u64 = 4;

/// Growth of the part of a file in which a block is looked for.
const WIDER: u64 = 32;

/// The rows of a store as of one commit, and its blocks. Nothing can be committed.
///
/// Access times are those that an inode's row had last, before something else of it changed. The
/// header tells the commit's number, and all else as it is now.
pub struct At {
    store: Arc<dyn Store>,
    commit: CommitNo,
    filter: Option<Arc<dyn PastFilter>>,
    /// The commits that wrote inodes which were read lately.
    written: Mutex<Written>,
}

/// Changes rows of the past before anybody sees them.
pub trait PastFilter: Send + Sync {
    /// Changes the row of an inode, whose extended attributes as they were `values` returns.
    fn inode(&self, row: &mut InodeRow, values: &dyn Fn() -> Result<Vec<(Name, Vec<u8>)>>) -> Result<()>;

    /// Changes the extended attributes of the inode that has the row `row`, which is as it was.
    fn xattrs(&self, row: &InodeRow, values: &mut Vec<(Name, Vec<u8>)>) -> Result<()>;
}

/// The commits that wrote some inodes, in two halves: the older one goes when the newer is full.
#[derive(Default)]
struct Written {
    newer: FxHashMap<Ino, CommitNo>,
    older: FxHashMap<Ino, CommitNo>,
}

impl Written {
    fn get(&self, ino: Ino) -> Option<CommitNo> {
        self.newer.get(&ino).or_else(|| self.older.get(&ino)).copied()
    }

    fn note(&mut self, rows: &[(InodeRow, CommitNo)]) {
        if self.newer.len() >= WRITTEN_MAX {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.extend(rows.iter().map(|(row, since)| (row.ino, *since)));
    }
}

impl At {
    /// `store` as of `commit`. `Unusable` if that commit is not kept.
    pub fn new(store: Arc<dyn Store>, commit: CommitNo) -> Result<At> {
        match store.is_kept(commit)? {
            true => Ok(At { store, commit, filter: None, written: Mutex::default() }),
            false => Err(not_kept(&*store, commit)?),
        }
    }

    /// The same, with rows as `filter` changes them.
    pub fn filtered(store: Arc<dyn Store>, commit: CommitNo, filter: Arc<dyn PastFilter>) -> Result<At> {
        Ok(At { filter: Some(filter), ..At::new(store, commit)? })
    }

    /// Returns the commit that wrote the row of `ino`. None if there is no such inode.
    pub fn since(&self, ino: Ino) -> Result<Option<CommitNo>> {
        if let Some(since) = self.written.lock().get(ino) {
            return Ok(Some(since));
        }
        self.versions(near(ino, INODES_READ), INODES_READ)?;
        Ok(self.written.lock().get(ino))
    }

    /// Reads inodes as they were, and remembers the commits that wrote them.
    fn versions(&self, inos: Range<Ino>, limit: usize) -> Result<Vec<(InodeRow, CommitNo)>> {
        let rows = self.store.inodes_at(self.commit, inos, limit)?;
        self.written.lock().note(&rows);
        Ok(rows)
    }

    /// Rows of inodes, as whoever reads may see them.
    fn shown_inodes(&self, inos: Range<Ino>, limit: usize) -> Result<Vec<InodeRow>> {
        let rows = self.versions(inos, limit)?;
        let mut rows = rows.into_iter().map(|(row, _)| row).collect::<Vec<_>>();
        if let Some(filter) = &self.filter {
            for row in &mut rows {
                let ino = row.ino;
                filter.inode(row, &|| self.store.xattrs_at(self.commit, ino))?;
            }
        }
        Ok(rows)
    }

    /// The row of `ino`, as it was.
    fn inode(&self, ino: Ino) -> Result<Option<InodeRow>> {
        Ok(self.store.row_at(self.commit, ino)?.map(|(row, _)| row))
    }

    /// Has `visit` look at the blocks of a file whose row is `row`, some at a time.
    fn visit_extents(&self, row: &InodeRow, visit: &mut dyn FnMut(&Extents)) -> Result<()> {
        let block_size = u64::from(self.store.header()?.options.block_size);
        let end = row.size.checked_next_multiple_of(block_size).unwrap_or(u64::MAX);
        // A file of many holes has few rows, which are read together.
        let has_few = row.allocated / block_size <= ROWS_MAX;
        let step = if has_few { end.max(1) } else { ROWS_MAX.saturating_mul(block_size) };
        let mut start = 0;
        while start < end {
            let next = start.saturating_add(step).min(end);
            visit(&self.extents(row.ino, start..next)?);
            start = next;
        }
        Ok(())
    }

    /// True if the file `row` has a piece of zeros alone: then its digest is not its content's
    /// (docs/reference/digest.md).
    fn has_zero_piece(&self, row: &InodeRow) -> Result<bool> {
        let piece_bytes = PIECE_BYTES as u64;
        let whole = row.size / piece_bytes;
        let (mut next, mut has_gap) = (0, false);
        self.visit_extents(row, &mut |extents| {
            for (span, _) in extents.iter().filter(|(_, block)| block.value != ZERO) {
                let piece = span.start / piece_bytes;
                has_gap |= piece > next && next < whole;
                next = next.max(piece + 1);
            }
        })?;
        Ok(has_gap || next < whole)
    }
}

/// The reason that `commit` cannot be read.
pub(super) fn not_kept(store: &dyn Store, commit: CommitNo) -> Result<Error> {
    let Some(history) = store.history()? else { return Ok(no_history()) };
    let last = store.header()?.commit;
    if commit > last {
        return Ok(not_there_yet(commit, last));
    }
    let first = history.first.0;
    let why = match store.pins()?.iter().any(|pin| pin.commit < history.first) {
        true => format!("all commits are kept from {first} on; 'weft history' lists the earlier ones"),
        false => format!("history begins with commit {first}"),
    };
    Ok(Error::Unusable(format!("commit {} is not kept: {why}", commit.0)))
}

/// The error of a commit that is later than the last one.
pub(super) fn not_there_yet(commit: CommitNo, last: CommitNo) -> Error {
    Error::Unusable(format!("there is no commit {} yet: the last one is {}", commit.0, last.0))
}

/// Numbers near `ino` that `limit` inodes may have. Those of inodes that are gone or came later may
/// lie behind them without end.
fn near(ino: Ino, limit: usize) -> Range<Ino> {
    ino..Ino(ino.0.saturating_add(NEAR.saturating_mul(limit as u64)))
}

impl RowStore for At {
    /// The header of then, as far as it is kept: no operation waits for its volume in a log.
    fn header(&self) -> Result<Header> {
        let header = self.store.header()?;
        let epoch = header.counters.epoch.next_multiple_of(2);
        Ok(Header { commit: self.commit, counters: Counters { epoch, ..header.counters }, ..header })
    }

    fn inodes(&self, from: Ino, limit: usize) -> Result<Vec<InodeRow>> {
        self.shown_inodes(from..Ino::MAX, limit)
    }

    fn inodes_near(&self, ino: Ino, limit: usize) -> Result<Vec<InodeRow>> {
        self.shown_inodes(near(ino, limit), limit)
    }

    fn row_of(&self, ino: Ino) -> Result<Option<InodeRow>> {
        Ok(self.shown_inodes(ino..ino.next(), 1)?.pop())
    }

    fn name(&self, parent: Ino, name: &Name) -> Result<Option<NameRow>> {
        self.store.name_at(self.commit, parent, name)
    }

    fn names(&self, parent: Ino, after: Cookie, limit: usize) -> Result<Vec<NameRow>> {
        self.store.names_at(self.commit, parent, after, limit)
    }

    fn extents(&self, ino: Ino, range: Range<u64>) -> Result<Vec<(Span, BlockRef)>> {
        self.store.extents_at(self.commit, ino, range)
    }

    /// Looks in parts of the file, each many times the one before: so it asks a few times where
    /// there is no such block, and reads some rows too many where it lies far off.
    fn nth_extent(&self, ino: Ino, range: Range<u64>, nth: Nth) -> Result<Option<u64>> {
        let (Nth::FromStart(skipped) | Nth::FromEnd(skipped)) = nth;
        let block_size = u64::from(self.store.header()?.options.block_size);
        let mut width = skipped.saturating_add(1).saturating_mul(block_size);
        loop {
            let part = match nth {
                Nth::FromStart(_) => range.start..range.start.saturating_add(width).min(range.end),
                Nth::FromEnd(_) => range.end.saturating_sub(width).max(range.start)..range.end,
            };
            let mut found = self.extents(ino, part.clone())?;
            if matches!(nth, Nth::FromEnd(_)) {
                found.reverse();
            }
            let block = usize::try_from(skipped).ok().and_then(|skipped| found.get(skipped));
            if block.is_some() || part == range {
                return Ok(block.map(|(span, _)| span.start));
            }
            width = width.saturating_mul(WIDER);
        }
    }

    fn refuse_missing_names(&self, directory: Ino) -> Result<()> {
        let Some(row) = self.inode(directory)? else { return Ok(()) };
        let (mut found, mut after) = (0, Cookie(0));
        loop {
            let names = self.names(directory, after, missing::LOOKED_AT_ONCE)?;
            let Some(last) = names.last() else { break };
            found += names.len() as u64;
            after = last.cookie;
        }
        missing::refuse_names(directory, found, row.size)
    }

    fn refuse_missing_blocks(&self, ino: Ino) -> Result<()> {
        let Some(row) = self.inode(ino)?.filter(|row| row.inline.is_none()) else { return Ok(()) };
        let mut held = 0;
        let mut count = |extents: &Extents| {
            held += extents.iter().map(|(_, block)| u64::from(block.length)).sum::<u64>();
        };
        self.visit_extents(&row, &mut count)?;
        missing::refuse_block(ino, &Blocks { allocated: row.allocated, held })
    }

    /// Those of the names that `ino` has now which it had then.
    fn names_of(&self, ino: Ino) -> Result<Vec<(Ino, Name)>> {
        let mut names = Vec::new();
        for (parent, name) in self.store.names_of(ino)? {
            if self.name(parent, &name)?.is_some_and(|row| row.ino == ino) {
                names.push((parent, name));
            }
        }
        Ok(names)
    }

    fn xattrs(&self, ino: Ino) -> Result<Vec<(Name, Vec<u8>)>> {
        let mut values = self.store.xattrs_at(self.commit, ino)?;
        if let Some(filter) = self.filter.as_ref().filter(|_| !values.is_empty())
            && let Some(row) = self.inode(ino)?
        {
            filter.xattrs(&row, &mut values)?;
        }
        Ok(values)
    }

    /// None: what had no name then may be open now.
    fn orphans(&self) -> Result<Vec<Ino>> {
        Ok(Vec::new())
    }

    fn digest(&self, ino: Ino) -> Result<Option<Digest>> {
        self.store.digest_at(self.commit, ino)
    }

    /// None of a file with a piece of zeros alone: only the digest that a directory lists is kept.
    fn content_digest(&self, ino: Ino) -> Result<Option<Digest>> {
        let Some(row) = self.inode(ino)?.filter(|row| row.kind == Kind::File) else { return Ok(None) };
        let Some(listed) = self.digest(ino)? else { return Ok(None) };
        let is_content = row.size <= PIECE_BYTES as u64 || !self.has_zero_piece(&row)?;
        Ok(is_content.then_some(listed))
    }

    fn commits(&self, from: CommitNo, limit: usize) -> Result<Vec<CommitRow>> {
        let mut commits = self.store.commits(from, limit)?;
        commits.retain(|row| row.number <= self.commit);
        Ok(commits)
    }
}

impl BlockStore for At {
    fn read_block(&self, block: &BlockRef, mode: ReadMode) -> Result<Option<Block>> {
        self.store.read_block(block, mode)
    }

    fn read_part(&self, block: &BlockRef, range: Range<usize>, mode: ReadMode) -> Result<Option<(usize, Block)>> {
        self.store.read_part(block, range, mode)
    }

    fn read_blocks(&self, blocks: &[BlockRef], visit: &mut dyn FnMut(usize, Result<Block>)) -> Result<()> {
        self.store.read_blocks(blocks, visit)
    }

    fn run_bytes(&self) -> u64 {
        self.store.run_bytes()
    }
}

impl CommitStore for At {
    fn lost(&self) -> Option<Error> {
        self.store.lost()
    }

    fn begin(&self, _durability: Durability) -> Result<Box<dyn Transaction + '_>> {
        Err(Error::Bug("a commit to the past".into()))
    }
}

impl Maintenance for At {
    fn is_remote(&self) -> bool {
        self.store.is_remote()
    }

    fn unanswered(&self) -> Option<Duration> {
        self.store.unanswered()
    }

    fn round_trips(&self) -> RoundTrips {
        self.store.round_trips()
    }

    fn disk_cache(&self) -> Option<DiskCacheStats> {
        self.store.disk_cache()
    }

    fn space(&self) -> Result<Space> {
        self.store.space()
    }

    fn notices(&self) -> Vec<String> {
        self.store.notices()
    }

    fn close(&self) -> Result<()> {
        self.store.close()
    }
}

impl PastStore for At {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Batch, ExtentChange, InodeChange, NewBlock};
    use crate::memory::MemoryStore;
    use crate::past::{HistoryChange, HistoryFor};
    use crate::row::{BlockId, Place, Timestamp};
    use crate::store::VolumeOptions;
    use weft_block::Rope;

    const FILE: Ino = Ino(16);

    /// A file of `size` bytes with a block of these bytes at each of these pieces, as of a commit.
    fn with_pieces(size: u64, pieces: &[(u64, u8)]) -> (At, InodeRow) {
        let store = MemoryStore::new(VolumeOptions::default());
        let header = store.header().expect("readable");
        let length = header.options.block_size;
        let row = InodeRow { ino: FILE, kind: Kind::File, size, ..InodeRow::new_root(0, 0, Timestamp(0)) };
        let mut batch = Batch { commit: header.commit.next(), counters: header.counters, ..Batch::default() };
        batch.history.push(HistoryChange::Keep("all forever".into(), HistoryFor::All));
        batch.inodes.push(InodeChange::Put(row.clone()));
        for ((piece, byte), id) in pieces.iter().zip(1..) {
            let new = NewBlock::new(BlockId(id), FILE, Rope::from(vec![*byte; 10]), 0);
            let (span, block) = (Span { start: piece * PIECE_BYTES as u64, length }, new.at(Place::Database));
            batch.extents.push(ExtentChange::Put { ino: FILE, span, block });
            batch.blocks.push(new);
        }
        store.apply(&batch, Durability::Durable).expect("applied");
        (At::new(Arc::new(store), batch.commit).expect("kept"), row)
    }

    #[test]
    fn a_piece_of_zeros_is_one_that_is_whole_and_has_no_other_byte() {
        let piece = PIECE_BYTES as u64;
        for (size, pieces, has) in [
            (3 * piece, &[(0, 1), (1, 1), (2, 1)][..], false),
            (3 * piece, &[(0, 1), (2, 1)], true),
            (3 * piece, &[(0, 1), (1, 0), (2, 1)], true),
            (3 * piece, &[(1, 1), (2, 1)], true),
            (3 * piece, &[(0, 1), (1, 1)], true),
            (2 * piece + 5, &[(0, 1), (1, 1)], false),
            (2 * piece + 5, &[(2, 1)], true),
        ] {
            let (at, row) = with_pieces(size, pieces);
            assert_eq!(at.has_zero_piece(&row).expect("readable"), has, "{size}: {pieces:?}");
        }
    }

    #[test]
    fn rows_that_are_missing_are_told() {
        let (at, row) = with_pieces(100, &[(0, 1)]);
        at.refuse_missing_blocks(FILE).expect("none is missing, as it has none by its row");
        at.refuse_missing_names(Ino::ROOT).expect("it is empty");
        let lacking = MemoryStore::new(VolumeOptions::default());
        let commit = CommitNo(2);
        let mut batch = Batch { commit, counters: lacking.header().expect("readable").counters, ..Batch::default() };
        batch.history.push(HistoryChange::Keep("all forever".into(), HistoryFor::All));
        batch.inodes.push(InodeChange::Put(InodeRow { allocated: 10, ..row }));
        batch.inodes.push(InodeChange::Put(InodeRow { size: 1, ..InodeRow::new_root(0, 0, Timestamp(0)) }));
        lacking.apply(&batch, Durability::Durable).expect("applied");
        let at = At::new(Arc::new(lacking), commit).expect("kept");
        assert!(matches!(at.refuse_missing_blocks(FILE), Err(Error::Corrupt(_))));
        assert!(matches!(at.refuse_missing_names(Ino::ROOT), Err(Error::Corrupt(_))));
    }

    #[test]
    fn a_commit_that_is_not_kept_is_refused_with_the_reason() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(VolumeOptions::default()));
        let refusal = |store: &Arc<dyn Store>, commit| match At::new(store.clone(), CommitNo(commit)) {
            Ok(_) => panic!("it is not kept"),
            Err(error) => error.to_string(),
        };
        assert!(refusal(&store, 1).contains("keeps no history"), "{}", refusal(&store, 1));
        let (at, _) = with_pieces(1, &[]);
        assert!(refusal(&at.store, 1).contains("history begins with commit 2"), "{}", refusal(&at.store, 1));
        assert!(refusal(&at.store, 3).contains("the last one is 2"), "{}", refusal(&at.store, 3));
    }
}
