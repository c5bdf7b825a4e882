//! Content of small files that is read for many of them at once, before it is sent: each question
//! to a server takes a round trip, and a tree has thousands of files.

use crate::error::Result;
use crate::row::{BlockId, BlockRef, CommitNo, Ino, InodeRow, Span};
use crate::store::Store;
use rustc_hash::FxHashMap;
use weft_block::Block;
use weft_digest::Kind;

/// Most bytes of a file that is read with others.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Bytes of files that are read at once, and most that are held; a last one may go beyond it.
const BYTES_TOGETHER: u64 = 4 << 20;

/// Extents and blocks that were read and are not sent yet.
#[derive(Default)]
pub(super) struct Ahead {
    extents: FxHashMap<Ino, Vec<(Span, BlockRef)>>,
    blocks: FxHashMap<BlockId, Block>,
}

impl Ahead {
    /// Forgets what there is, and reads what the first of `rows` need, but for blocks that
    /// `is_sent` has. Returns their number, which is one at least.
    pub(super) fn read(
        &mut self,
        (store, commit): (&dyn Store, CommitNo),
        rows: &[InodeRow],
        is_sent: impl Fn(BlockId) -> bool,
    ) -> Result<usize> {
        *self = Ahead::default();
        let (mut count, mut bytes, mut files) = (0, 0, Vec::new());
        for row in rows {
            if bytes >= BYTES_TOGETHER {
                break;
            }
            if has_blocks(row) && row.size <= FILE_BYTES_MAX {
                bytes += row.allocated;
                files.push((row.ino, row.size));
            }
            count += 1;
        }
        // One alone is read as it is sent.
        if files.len() < 2 {
            return Ok(count);
        }
        let all = store.all_extents_at(commit, &files)?;
        self.extents.extend(files.iter().map(|(ino, _)| *ino).zip(all));
        let mut blocks: Vec<BlockRef> = self.extents.values().flatten().map(|(_, block)| *block).collect();
        blocks.sort_unstable_by_key(|block| block.id);
        blocks.dedup_by_key(|block| block.id);
        blocks.retain(|block| !is_sent(block.id));
        store.read_blocks(&blocks, &mut |at, read| {
            // One that cannot be read is asked for again with its file, which is named then.
            if let Ok(block) = read {
                self.blocks.insert(blocks[at].id, block);
            }
        })?;
        Ok(count)
    }

    /// Takes the extents of `ino`, if they are here.
    pub(super) fn extents(&mut self, ino: Ino) -> Option<Vec<(Span, BlockRef)>> {
        self.extents.remove(&ino)
    }

    /// Takes the bytes of `blocks`, if all of them are here.
    pub(super) fn blocks(&mut self, blocks: &[BlockRef]) -> Option<Vec<Block>> {
        let are_here = blocks.iter().all(|block| self.blocks.contains_key(&block.id));
        are_here.then(|| blocks.iter().filter_map(|block| self.blocks.remove(&block.id)).collect())
    }
}

/// True if the content of `row` lies in blocks.
pub(super) fn has_blocks(row: &InodeRow) -> bool {
    row.kind == Kind::File && row.inline.is_none() && row.allocated > 0
}
