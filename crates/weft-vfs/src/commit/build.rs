//! Builds the blocks of a pending commit, what was written over what was there, and gives them to
//! the store.
//!
//! A block that is stored whole is made of all that it had, so the blocks of a commit may be many
//! times its changes: they are built a few at a time, while the store has others on their way to
//! the disk.

mod content;

use crate::volume::Vfs;
use content::{Bases, Built};
use rustc_hash::FxHashMap;
use std::num::NonZero;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::thread;
use weft_store::{BlockId, BlockRef, ExtentChange, Ino, MergedBlock, NewBlock, Span, SplitBlock, Transaction};
use weft_tree::{Error, ErrorKind, Job, JobReason, Layout, PartsLayout, PendingCommit, Result};

/// Bytes of blocks that are worth a thread of their own.
const BYTES_A_THREAD: usize = 1 << 20;

/// Bytes of blocks that are built, and stored, together. On the way to a server they lie in memory
/// until they are sent, three times as many, and beside them those that they take the place of.
const CHUNK_BYTES: usize = 8 << 20;

/// The blocks of some jobs; none for one whose base is damaged.
type AllBuilt = Result<Vec<Option<Built>>>;

/// Blocks that are put together, and the extents of those and of others.
#[derive(Default)]
struct Gathered {
    /// Blocks to be put.
    new: Vec<NewBlock>,
    /// Blocks of the jobs in turn; none for the next one of `new`.
    blocks: Vec<Option<BlockRef>>,
    /// The extents of those that are to be put, by their place among `blocks`.
    extents: Vec<(usize, (Ino, Span))>,
    /// Extents whose blocks take the place of others with the same bytes.
    merged: Vec<(usize, (Ino, Span))>,
}

impl Gathered {
    /// Adds a new block, for the extent `span` of the file it is written for.
    fn add(&mut self, span: Span, new: NewBlock) {
        self.extents.push((self.blocks.len(), (new.owner, span)));
        self.blocks.push(None);
        self.new.push(new);
    }

    /// Adds a new block that takes the place of others with the same bytes.
    fn add_merged(&mut self, span: Span, new: NewBlock) {
        self.merged.push((self.blocks.len(), (new.owner, span)));
        self.blocks.push(None);
        self.new.push(new);
    }

    /// Has the new blocks put, and adds the extents that name them to `changes`. Returns all
    /// blocks.
    fn put(self, transaction: &mut dyn Transaction, changes: &mut Changes) -> Result<Vec<BlockRef>> {
        let mut put = transaction.put_blocks(self.new)?.into_iter();
        let next = |known: Option<BlockRef>| known.or_else(|| put.next()).expect("one for each that was put");
        let blocks = self.blocks.into_iter().map(next).collect::<Vec<_>>();
        let extents = self.extents.into_iter();
        changes.extents.extend(extents.map(|(at, (ino, span))| ExtentChange::Put { ino, span, block: blocks[at] }));
        let merged = self.merged.into_iter();
        changes.merged.extend(merged.map(|(at, (ino, span))| MergedBlock { ino, span, block: blocks[at] }));
        Ok(blocks)
    }
}

/// Changes of a batch that come of its blocks.
#[derive(Default)]
struct Changes {
    extents: Vec<ExtentChange>,
    merged: Vec<MergedBlock>,
}

/// The extent for `length` bytes at `start` of block `index`.
fn span_in(index: u64, block_size: u32, start: u32, length: u32) -> Span {
    Span { start: Span::of_block(index, block_size).start + u64::from(start), length }
}

impl Vfs {
    /// Stores the blocks of a pending commit, and adds the extents that name them to its batch.
    /// What was written over a damaged block stays dirty: the rest of the volume must not wait for
    /// it. Tells where the blocks lie.
    pub(super) fn store_blocks(
        &self,
        pending: &mut PendingCommit,
        transaction: &mut dyn Transaction,
    ) -> Result<Vec<BlockRef>> {
        pending.begin_again();
        let (mut damaged, mut changes) = (Vec::new(), Changes::default());
        let mut stored = Vec::with_capacity(pending.jobs.len());
        for jobs in pending.jobs.chunks((CHUNK_BYTES / self.block_size as usize).max(1)) {
            let mut gathered = Gathered::default();
            for (job, built) in jobs.iter().zip(self.build_all(jobs)?) {
                match built {
                    None => damaged.push(job.order),
                    Some(built) => {
                        let is_alone = |id: BlockId| !pending.shares(id);
                        self.gather_job(job, built, &is_alone, transaction, (&mut gathered, &mut changes.extents))?;
                    }
                }
            }
            stored.extend(gathered.put(transaction, &mut changes)?);
        }
        pending.set_aside(&damaged);
        pending.batch.extents.extend(changes.extents);
        pending.batch.merged = changes.merged;
        Ok(stored)
    }

    /// Adds the blocks of `job` to those that are put together, and to `extents` the changes that
    /// they need. Those of which `is_alone` is true are put nowhere else.
    fn gather_job(
        &self,
        job: &Job,
        built: Built,
        is_alone: &dyn Fn(BlockId) -> bool,
        transaction: &mut dyn Transaction,
        (gathered, extents): (&mut Gathered, &mut Vec<ExtentChange>),
    ) -> Result<()> {
        let (splits, new, layout) = match (built, &job.layout) {
            (Built::Whole(new), _) => {
                gathered.add(Span::of_block(job.index, self.block_size), new);
                return Ok(());
            }
            (Built::Parts(splits, new), Layout::Parts(layout)) => (splits, new, layout),
            (Built::Parts(..), Layout::Whole(_)) => unreachable!("it is built as it is laid out"),
        };
        self.clear_extents(job, layout, extents);
        for split in splits {
            let is_alone = job.reason != JobReason::WrittenOverShared && is_alone(split.block.id);
            extents.extend(gather_split(job, split, is_alone, transaction, gathered)?);
        }
        for (part, new) in layout.new.iter().zip(new) {
            let span = span_in(job.index, self.block_size, part.start, part.length);
            if job.reason == JobReason::Merge { gathered.add_merged(span, new) } else { gathered.add(span, new) }
        }
        Ok(())
    }

    /// Adds the changes by which extents of `job` go that nothing is left of, and by which those
    /// come that the store does not know yet.
    fn clear_extents(&self, job: &Job, layout: &PartsLayout, extents: &mut Vec<ExtentChange>) {
        let block = Span::of_block(job.index, self.block_size);
        let mut clear = |range: Range<u32>| {
            let range = block.start + u64::from(range.start)..block.start + u64::from(range.end);
            extents.push(ExtentChange::Clear { ino: job.ino, range });
        };
        if job.reason == JobReason::WrittenOverShared {
            clear(0..self.block_size);
            let put = |part: &weft_tree::Part| {
                let span = span_in(job.index, self.block_size, part.start, part.length);
                ExtentChange::Put { ino: job.ino, span, block: part.block }
            };
            return extents.extend(layout.kept.iter().map(put));
        }
        layout.dropped.iter().cloned().for_each(clear);
    }

    /// Returns the locations of the blocks of a pending commit that the store has. Blocks that are
    /// not found there were damaged when it was stored.
    pub(super) fn stored_blocks(&self, pending: &mut PendingCommit) -> Result<Vec<BlockRef>> {
        pending.begin_again();
        let (mut stored, mut damaged) = (Vec::with_capacity(pending.jobs.len()), Vec::new());
        for jobs in pending.jobs.chunk_by(|one, next| one.ino == next.ino && one.index + 1 == next.index) {
            let span = |job: &Job| Span::of_block(job.index, self.block_size);
            let (first, last) = (span(&jobs[0]), span(&jobs[jobs.len() - 1]));
            let found = self.store.extents(jobs[0].ino, first.start..last.end())?;
            let found = found.into_iter().map(|(_, block)| (block.id, block)).collect::<FxHashMap<_, _>>();
            for job in jobs {
                let blocks = job.layout.ids().iter().map(|id| found.get(id).copied()).collect::<Option<Vec<_>>>();
                match blocks {
                    Some(blocks) => stored.extend(blocks),
                    None => damaged.push(job.order),
                }
            }
        }
        pending.set_aside(&damaged);
        Ok(stored)
    }

    /// Builds on several processors, if there is enough to do for them: on all while somebody waits
    /// for the commit, else on half of them, so that the programs that write get on.
    fn build_all(&self, jobs: &[Job]) -> AllBuilt {
        // Each thread reads what it needs; from a server all of it comes at once.
        let from_afar = self.store.is_remote().then(|| self.bases(jobs)).transpose()?;
        let build = |jobs: &[Job]| -> AllBuilt {
            let own = if from_afar.is_none() { self.bases(jobs)? } else { Bases::default() };
            let bases = from_afar.as_ref().unwrap_or(&own);
            Ok(jobs.iter().map(|job| self.build(job, bases)).collect())
        };
        let bytes: usize = jobs.iter().map(|job| job.len).sum();
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let is_awaited = self.awaiting.load(Ordering::Relaxed) > 0;
        let threads = (bytes / BYTES_A_THREAD).clamp(1, builders(processors, is_awaited));
        if threads == 1 {
            return build(jobs);
        }
        let mut parts = jobs.chunks(jobs.len().div_ceil(threads));
        let mine = parts.next().unwrap_or_default();
        thread::scope(|scope| {
            let others = parts.map(|part| scope.spawn(move || build(part))).collect::<Vec<_>>();
            let mut built = build(mine)?;
            for other in others {
                built.extend(other.join().expect("building does not panic")?);
            }
            Ok(built)
        })
    }

    /// Reads the base blocks that `jobs` need from the store, all together. They are not cached:
    /// hardly any reader will ask for them after the commit.
    fn bases(&self, jobs: &[Job]) -> Result<Bases> {
        let (mut bases, mut missing) = (Bases::default(), Vec::new());
        for job in jobs {
            for base in content::needed(job, self.block_size as usize) {
                match self.blocks.get(base.id) {
                    Some(block) => drop(bases.insert(base.id, Some(block))),
                    None => missing.push((base, job.ino)),
                }
            }
        }
        missing.sort_unstable_by_key(|(base, _)| (base.order(), base.id));
        missing.dedup_by_key(|(base, _)| base.id);
        let wanted = missing.iter().map(|(base, _)| *base).collect::<Vec<_>>();
        let mut failure = Ok(());
        let read = self.store.read_blocks(&wanted, &mut |at, read| {
            let block = read.map_err(|error| Error::from(error).about(missing[at].1));
            match block {
                Err(error) if error.kind() != ErrorKind::Corrupt => failure = Err(error),
                block => {
                    let whole = block.inspect_err(|error| {
                        self.report_failed("cannot store what was written over a damaged block", error);
                    });
                    bases.insert(wanted[at].id, whole.ok());
                }
            }
        });
        failure?;
        read?;
        Ok(bases)
    }
}

/// Returns the number of threads that build: those that write have the other processors, unless
/// they wait.
fn builders(processors: usize, is_awaited: bool) -> usize {
    if is_awaited { processors } else { processors.div_ceil(2) }
}

/// Has the store split a block where it lies, if nothing else names it, and else adds copies of the
/// parts that the file of `job` goes on with. Returns the changes by which the other extents go.
fn gather_split(
    job: &Job,
    split: SplitBlock,
    is_alone: bool,
    transaction: &mut dyn Transaction,
    gathered: &mut Gathered,
) -> Result<Vec<ExtentChange>> {
    let kept = job.layout.ids();
    let is_kept = |id: BlockId| kept.binary_search(&id).is_ok();
    let clear = |span: &Span| ExtentChange::Clear { ino: job.ino, range: span.range() };
    if is_alone && let Some(parts) = transaction.split_block(&split)? {
        gathered.blocks.extend(parts.into_iter().filter(|block| is_kept(block.id)).map(Some));
        let gone = split.parts.iter().filter(|(_, new)| !is_kept(new.id));
        return Ok(gone.map(|(span, _)| clear(span)).collect());
    }
    let cleared = clear(&split.span);
    let parts = split.parts.into_iter().filter(|(_, new)| is_kept(new.id));
    parts.for_each(|(span, new)| gathered.add(span, new));
    Ok(vec![cleared])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_that_nobody_waits_for_leaves_processors_to_those_who_write() {
        assert_eq!([1, 2, 3, 8].map(|processors| builders(processors, false)), [1, 1, 2, 4]);
        assert_eq!([1, 2, 3, 8].map(|processors| builders(processors, true)), [1, 2, 3, 8]);
    }
}
