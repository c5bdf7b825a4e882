//! Compares the content of one file in any store with the digest that is kept of it, by the values
//! of its blocks: a block is read only where its value is of another position.

use super::{DigestRows, Digester, Inode, ZeroValues};
use crate::Name;
use crate::error::{Error, Result};
use crate::overlay::Snapshot;
use crate::row::{BlockRef, Ino, InodeRow, Span};
use crate::store::{ReadMode, Store};
use std::ops::Range;
use std::sync::Arc;
use weft_block::Block;
use weft_digest::{Digest, Kind};

/// Most blocks of a file whose rows are read together.
const BLOCKS_MAX: u64 = 1 << 20;

/// True if the content of the file `row`, as the last commit of `store` left it, is not what its
/// digest says. False where that is not known, and of files too large to tell.
pub fn contradicts_digest(store: &dyn Store, row: &InodeRow) -> Result<bool> {
    let options = store.header()?.options;
    let block_size = u64::from(options.block_size);
    let has_blocks = row.kind == Kind::File && row.inline.is_none() && row.allocated > 0;
    if !options.digests || !has_blocks || row.allocated / block_size > BLOCKS_MAX {
        return Ok(false);
    }
    let Some(kept) = store.digest(row.ino)? else { return Ok(false) };
    let rows = Stored { store, ino: row.ino, extents: store.extents(row.ino, 0..u64::MAX)? };
    let digester = Digester::new(Arc::new(ZeroValues::default()));
    let mut digests = digester.rebuild(&rows, block_size);
    rows.extents.iter().for_each(|(span, _)| digests.put(row.ino, *span));
    Ok(digests.inode(row)?.is_some_and(|digest| digest != kept))
}

/// The rows of one file. Nothing is kept.
struct Stored<'a> {
    store: &'a dyn Store,
    ino: Ino,
    /// Extents in their order.
    extents: Vec<(Span, BlockRef)>,
}

fn other() -> Error {
    Error::Bug("a comparison of one file asks for its blocks alone".into())
}

impl Snapshot for Stored<'_> {
    fn inode(&self, _ino: Ino) -> Result<Option<Inode>> {
        Ok(None)
    }
    fn leaving(&self, _ino: Ino) -> Result<Option<Inode>> {
        Err(other())
    }
    fn names_of(&self, _ino: Ino) -> Result<Vec<(Ino, Name)>> {
        Err(other())
    }
    fn entry(&self, _parent: Ino, _name: &Name) -> Result<Option<Digest>> {
        Err(other())
    }
    fn entries(&self, _parent: Ino, _prefix: &[u8], _limit: usize) -> Result<Vec<(Name, Option<Digest>)>> {
        Err(other())
    }
    fn branch(&self, _parent: Ino, _prefix: &[u8]) -> Result<Option<Vec<u8>>> {
        Err(other())
    }
    fn extents(&self, ino: Ino, range: Range<u64>) -> Result<Vec<(Span, BlockRef)>> {
        if ino != self.ino {
            return Err(other());
        }
        let before = |end: u64| self.extents.partition_point(|(span, _)| span.start < end);
        Ok(self.extents.get(before(range.start)..before(range.end)).unwrap_or_default().to_vec())
    }
    fn bytes(&self, block: &BlockRef) -> Result<Block> {
        let gone = || Error::Corrupt(format!("block {} is gone", block.id.0));
        self.store.read_block(block, ReadMode::Blocking)?.ok_or_else(gone)
    }
    fn node(&self, _ino: Ino, _level: u32, _index: u64) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }
    fn nodes(&self, _ino: Ino, _level: u32, _range: Range<u64>) -> Result<Vec<u64>> {
        Ok(Vec::new())
    }
}

impl DigestRows for Stored<'_> {
    fn set_digest(&self, _ino: Ino, _digest: Option<&Digest>) -> Result<()> {
        Err(other())
    }
    fn set_entry(&self, _parent: Ino, _name: &Name, _hash: Option<&Digest>) -> Result<()> {
        Err(other())
    }
    fn set_branch(&self, _parent: Ino, _prefix: &[u8], _branch: Option<&[u8]>) -> Result<()> {
        Err(other())
    }
    fn clear_branches(&self, _parent: Ino) -> Result<()> {
        Err(other())
    }
    fn set_node(&self, _ino: Ino, _level: u32, _index: u64, _node: Option<&[u8]>) -> Result<()> {
        Ok(())
    }
    fn clear_nodes(&self, _ino: Ino, _level: u32, _index: u64) -> Result<()> {
        Ok(())
    }
}
