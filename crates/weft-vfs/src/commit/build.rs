//! Builds the blocks of a snapshot: what was written, over what was there.

use super::snapshot::{Job, Snapshot};
use crate::error::{Error, ErrorKind, Result};
use crate::volume::Vfs;
use std::num::NonZero;
use std::thread;
use weft_block::{Block, Rope, pool};
use weft_store::{BlockDigest, BlockRef, ExtentChange, NewBlock, Place};

/// Bytes of blocks that are worth a thread of their own.
const BYTES_A_THREAD: usize = 1 << 20;

/// A block's bytes and their digest.
type Built = (Rope, BlockDigest);

impl Vfs {
    /// Adds the snapshot's blocks, and the extents that name them, to its batch. What was written over a
    /// damaged block stays dirty: the rest of the volume must not wait for it.
    pub(super) fn build(&self, snapshot: &mut Snapshot) -> Result<()> {
        let built = self.build_all(&snapshot.jobs);
        let failed = |error: &Error| error.kind() != ErrorKind::Corrupt;
        if built.iter().any(|built| built.as_ref().is_err_and(failed)) {
            return built.into_iter().find_map(|built| built.err().filter(failed)).map_or(Ok(()), Err);
        }
        for (job, built) in std::mem::take(&mut snapshot.jobs).into_iter().zip(built) {
            match built {
                Ok((bytes, digest)) => {
                    let length = u32::try_from(job.len).expect("at most a block");
                    let block = BlockRef { id: job.id, length, digest, place: Place::Database };
                    snapshot.batch.extents.push(ExtentChange::Put { ino: job.ino, index: job.index, block });
                    snapshot.batch.blocks.push(NewBlock { id: job.id, bytes, digest });
                    snapshot.jobs.push(job);
                }
                Err(error) => {
                    self.report("cannot store what was written over a damaged block", &error);
                    snapshot.damaged.push(job);
                }
            }
        }
        Ok(())
    }

    /// Builds on all processors, if there is enough to do for them.
    fn build_all(&self, jobs: &[Job]) -> Vec<Result<Built>> {
        let build = |job| {
            let bytes = self.content(job)?;
            let digest = digest(&bytes);
            Ok((bytes, digest))
        };
        let bytes: usize = jobs.iter().map(|job| job.len).sum();
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let threads = (bytes / BYTES_A_THREAD).clamp(1, processors);
        if threads == 1 {
            return jobs.iter().map(build).collect();
        }
        let mut parts = jobs.chunks(jobs.len().div_ceil(threads));
        let mine = parts.next().unwrap_or_default();
        thread::scope(|scope| {
            let others = parts.map(|part| scope.spawn(move || part.iter().map(build).collect::<Vec<_>>()));
            let others = others.collect::<Vec<_>>();
            let mut built = mine.iter().map(build).collect::<Vec<_>>();
            for other in others {
                built.extend(other.join().expect("building does not panic"));
            }
            built
        })
    }

    /// The bytes of a block; those that one piece holds are not copied.
    fn content(&self, job: &Job) -> Result<Rope> {
        if let Some(whole) = job.pieces.whole(0..job.len) {
            return Ok(Rope::from(whole));
        }
        let mut bytes = match &job.base {
            Some(base) => pool::copy_of(&self.block(base).map_err(|error| error.about(job.ino))?),
            None => Vec::new(),
        };
        bytes.resize(job.len, 0);
        for (start, piece) in job.pieces.within(0..job.len) {
            bytes[start..start + piece.len()].copy_from_slice(&piece);
        }
        let block = Block::new(bytes);
        self.blocks.insert(job.id, block.clone());
        Ok(Rope::from(block.whole()))
    }
}

fn digest(bytes: &Rope) -> BlockDigest {
    let mut hasher = blake3::Hasher::new();
    for slice in bytes.slices() {
        hasher.update(slice);
    }
    *hasher.finalize().as_bytes()
}
