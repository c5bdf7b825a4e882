//! Builds the blocks of a pending commit, what was written over what was there, and gives them to
//! the store.
//!
//! A write of a few bytes makes a whole block, so the blocks of a commit may be many times its
//! changes: they are built a few at a time, while the store has others on their way to the disk.

use crate::volume::Vfs;
use rustc_hash::FxHashMap;
use std::num::NonZero;
use std::thread;
use weft_block::{Block, Buffer, Rope};
use weft_store::{BlockId, BlockRef, ExtentChange, NewBlock, Span, Transaction};
use weft_tree::{Error, ErrorKind, Job, Part, PendingCommit, Result, Stored};

/// Bytes of blocks that are worth a thread of their own.
const BYTES_A_THREAD: usize = 1 << 20;

/// Bytes of blocks that are built, and stored, together.
const CHUNK_BYTES: usize = 16 << 20;

/// The same on the way to a server: there they lie in memory until they are sent, three times as
/// many, and beside them those that they take the place of.
const CHUNK_BYTES_AFAR: usize = 8 << 20;

/// The blocks of some jobs; none for one whose base is damaged.
type Built = Result<Vec<Option<NewBlock>>>;

/// Blocks that are written over in part; none where it is damaged.
type Bases = FxHashMap<BlockId, Option<Block>>;

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
        let mut damaged = Vec::new();
        let mut stored = Vec::with_capacity(pending.jobs.len());
        let together = if self.store.is_remote() { CHUNK_BYTES_AFAR } else { CHUNK_BYTES };
        for jobs in pending.jobs.chunks((together / self.block_size as usize).max(1)) {
            let built = self.build_all(jobs)?;
            let without = jobs.iter().zip(&built).filter(|(_, block)| block.is_none());
            damaged.extend(without.map(|(job, _)| job.id));
            stored.extend(transaction.put_blocks(built.into_iter().flatten().collect())?);
        }
        pending.set_aside(&damaged);
        let put = |(job, block): (&Job, &BlockRef)| {
            let span = Span::of_block(job.index, self.block_size);
            ExtentChange::Put { ino: job.ino, span, block: *block }
        };
        pending.batch.extents.extend(pending.jobs.iter().zip(&stored).map(put));
        Ok(stored)
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
                match found.get(&job.id) {
                    Some(block) => stored.push(*block),
                    None => damaged.push(job.id),
                }
            }
        }
        pending.set_aside(&damaged);
        Ok(stored)
    }

    /// Builds on all processors, if there is enough to do for them.
    fn build_all(&self, jobs: &[Job]) -> Built {
        // Each thread reads what it needs; from a server all of it comes at once.
        let from_afar = self.store.is_remote().then(|| self.bases(jobs)).transpose()?;
        let build = |jobs: &[Job]| -> Built {
            let own = if from_afar.is_none() { self.bases(jobs)? } else { Bases::default() };
            let bases = from_afar.as_ref().unwrap_or(&own);
            Ok(jobs.iter().map(|job| self.build(job, bases)).collect())
        };
        let bytes: usize = jobs.iter().map(|job| job.len).sum();
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let threads = (bytes / BYTES_A_THREAD).clamp(1, processors);
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
        for job in jobs.iter().filter(|job| !job.pieces.covers(0..job.len)) {
            for base in job.base.iter().flat_map(Stored::blocks) {
                match self.blocks.get(base.id) {
                    Some(block) => drop(bases.insert(base.id, Some(block))),
                    None => missing.push((*base, job.ino)),
                }
            }
        }
        missing.sort_unstable_by_key(|(base, _)| base.id);
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

    /// None if it would have bytes of a damaged block.
    fn build(&self, job: &Job, bases: &Bases) -> Option<NewBlock> {
        let bytes = self.content(job, bases)?;
        Some(NewBlock::new(job.id, job.ino, bytes, job.index * u64::from(self.block_size)))
    }

    /// The bytes of a block; those that one piece holds are not copied.
    fn content(&self, job: &Job, bases: &Bases) -> Option<Rope> {
        if let Some(whole) = job.pieces.whole(0..job.len) {
            if self.options.keep_written
                && let Some(block) = whole.as_block()
            {
                self.blocks.insert(job.id, block.clone());
            }
            return Some(Rope::from(whole));
        }
        let mut bytes = match job.base.as_ref().filter(|_| !job.pieces.covers(0..job.len)) {
            Some(Stored::Whole(base)) => Buffer::copy_of(bases[&base.id].as_ref()?),
            Some(Stored::Parts(parts)) => joined(parts, bases)?,
            None => Buffer::with_capacity(job.len),
        };
        bytes.resize(job.len);
        for (start, piece) in job.pieces.within(0..job.len) {
            bytes[start..start + piece.len()].copy_from_slice(&piece);
        }
        let block = bytes.freeze();
        match job.base.as_ref().and_then(Stored::whole) {
            Some(base) => self.blocks.succeed(base.id, job.id, block.clone()),
            None => self.blocks.insert(job.id, block.clone()),
        }
        Some(Rope::from(block.whole()))
    }
}

/// The bytes of `parts` of a block, which become one. None if one of them is damaged.
fn joined(parts: &[Part], bases: &Bases) -> Option<Buffer> {
    let mut bytes = Buffer::with_capacity(parts.last().map_or(0, |part| part.bytes().end));
    for part in parts {
        bytes.resize(part.bytes().start);
        bytes.extend_from_slice(bases[&part.block.id].as_ref()?);
    }
    Some(bytes)
}
