//! Digests in a commit: they follow from the rows that the server has under the batch's changes.
//!
//! It knows rows as [`crate::overlay`] has them, and sends nothing that changes any.

use super::PostgresTransaction;
use crate::batch::{Batch, ExtentChange, InodeChange, NameChange};
use crate::digests::{CommitDigests, Digester};
use crate::error::Result;
use crate::overlay::{Changes, Snapshot};
use crate::postgres::digests::{Known, Rows, Stored};
use crate::postgres::prefetch::prefetch;
use crate::row::{BlockId, Ino};
use weft_digest::Digest;

/// The digests of a commit, worked out.
pub(super) struct Digested {
    /// The changes of the batch, and of digests that follow from them.
    pub(super) changes: Changes,
    /// Rows that are known, to be remembered if the commit happens.
    pub(super) known: Known,
    /// The root's digest, if the volume keeps any.
    pub(super) root: Option<Digest>,
}

impl PostgresTransaction<'_> {
    /// Works out the digests that the commit of `batch` changes.
    pub(super) fn digested(&mut self, batch: &Batch) -> Result<Digested> {
        let writer = &mut *self.writer;
        let mut known = std::mem::take(&mut writer.known);
        let connection = writer.connection.as_mut().expect("no blocks are on their way any more");
        let rows = Rows::new(Stored::new(connection, &mut known, writer.fresh));
        self.kept.values().for_each(|new| rows.put_block(new.id, new.bytes.clone()));
        if writer.digester.is_some() {
            prefetch(rows.snapshot(), batch, writer.block_size)?;
        }
        let alone = self.new.iter().filter_map(|(id, new)| Some((*id, new.alone?)));
        let alone = alone.chain(batch.alone.iter().copied());
        change(writer.digester.as_ref(), &rows, batch, alone, writer.block_size)?;
        let root = match &writer.digester {
            Some(_) => rows.inode(Ino::ROOT)?.and_then(|inode| inode.digest),
            None => None,
        };
        let changes = rows.into_changes();
        Ok(Digested { changes, known, root })
    }
}

/// Passes all changes of `batch` to `rows`, and updates digests.
fn change(
    digester: Option<&Digester>,
    rows: &Rows<'_>,
    batch: &Batch,
    alone: impl Iterator<Item = (BlockId, Digest)>,
    block_size: u64,
) -> Result<()> {
    let mut digests = digester.map(|digester| digester.begin(rows, block_size));
    change_extents(rows, batch, digests.as_mut());
    if let Some(digests) = &mut digests {
        alone.for_each(|(id, digest)| digests.alone(id, digest));
    }
    change_inodes(rows, batch, digests.as_mut())?;
    change_names(rows, batch, digests.as_mut())?;
    digests.map_or(Ok(()), CommitDigests::finish)
}

fn change_extents(rows: &Rows<'_>, batch: &Batch, mut digests: Option<&mut CommitDigests<'_>>) {
    let mut puts = Vec::new();
    for change in &batch.extents {
        match change {
            ExtentChange::Clear { ino, range } => {
                rows.clear_extents(*ino, range.clone());
                if let Some(digests) = &mut digests {
                    digests.clear(*ino, range.clone());
                }
            }
            ExtentChange::Put { ino, span, block } => puts.push((*ino, *span, *block)),
        }
    }
    puts.sort_unstable_by_key(|(ino, span, _)| (*ino, *span));
    for (ino, span, block) in puts {
        rows.put_extent(ino, span, block);
        if let Some(digests) = &mut digests {
            digests.put(ino, span);
        }
    }
}

fn change_inodes(rows: &Rows<'_>, batch: &Batch, mut digests: Option<&mut CommitDigests<'_>>) -> Result<()> {
    let mut inodes = Vec::new();
    for change in &batch.inodes {
        match change {
            InodeChange::Put(row) => inodes.push(row),
            InodeChange::Remove(ino) => {
                if let Some(digests) = &mut digests {
                    digests.remove(*ino)?;
                }
                rows.remove_inode(*ino);
            }
        }
    }
    for row in inodes {
        let digest = digests.as_mut().map(|digests| digests.inode(row)).transpose()?.flatten();
        rows.put_inode(row, digest);
    }
    Ok(())
}

fn change_names(rows: &Rows<'_>, batch: &Batch, mut digests: Option<&mut CommitDigests<'_>>) -> Result<()> {
    let mut names = Vec::new();
    for change in &batch.names {
        match change {
            NameChange::Put(row) => names.push(row),
            NameChange::Remove { parent, name } => {
                rows.remove_name(*parent, name);
                if let Some(digests) = &mut digests {
                    digests.remove_name(*parent, name);
                }
            }
        }
    }
    for row in names {
        let hash = digests.as_mut().map(|digests| digests.name(row)).transpose()?.flatten();
        rows.put_name(row, hash);
    }
    Ok(())
}
