//! Builds the blocks of a snapshot: what was written, over what was there.

use super::snapshot::{Job, Snapshot};
use crate::error::{ErrorKind, Result};
use crate::volume::Vfs;
use weft_block::{Block, Rope};
use weft_store::{BlockRef, ExtentChange, NewBlock, Place};

impl Vfs {
    /// Adds the snapshot's blocks, and the extents that name them, to its batch. What was written over a
    /// damaged block stays dirty: the rest of the volume must not wait for it.
    pub(super) fn build(&self, snapshot: &mut Snapshot) -> Result<()> {
        let mut jobs = Vec::with_capacity(snapshot.jobs.len());
        let mut waiting = std::mem::take(&mut snapshot.jobs).into_iter();
        while let Some(job) = waiting.next() {
            let bytes = match self.content(&job) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    self.report("cannot store what was written over a damaged block", &error);
                    snapshot.damaged.push(job);
                    continue;
                }
                Err(error) => {
                    jobs.push(job);
                    jobs.extend(waiting);
                    snapshot.jobs = jobs;
                    return Err(error);
                }
            };
            let digest = digest(&bytes);
            let length = u32::try_from(job.len).expect("at most a block");
            let block = BlockRef { id: job.id, length, digest, place: Place::Database };
            snapshot.batch.extents.push(ExtentChange::Put { ino: job.ino, index: job.index, block });
            snapshot.batch.blocks.push(NewBlock { id: job.id, bytes, digest });
            jobs.push(job);
        }
        snapshot.jobs = jobs;
        Ok(())
    }

    /// The bytes of a block; those that one piece holds are not copied.
    fn content(&self, job: &Job) -> Result<Rope> {
        if let Some(whole) = job.pieces.whole(0..job.len) {
            return Ok(Rope::from(whole));
        }
        let mut bytes = match &job.base {
            Some(base) => self.block(base).map_err(|error| error.about(job.ino))?.to_vec(),
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

fn digest(bytes: &Rope) -> weft_store::BlockDigest {
    let mut hasher = blake3::Hasher::new();
    for slice in bytes.slices() {
        hasher.update(slice);
    }
    *hasher.finalize().as_bytes()
}
