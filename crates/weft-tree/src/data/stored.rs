//! What the store has of one block of a file: one block, or several for parts of it.

use std::ops::Range;
use std::sync::Arc;
use weft_store::{BlockId, BlockRef, Error, Result, Span};

/// The stored blocks of one block of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// One, for all of it.
    Whole(BlockRef),
    /// Several, for parts of it, ascending. What none is for is zeros.
    Parts(Arc<[Part]>),
}

/// A stored block for a part of a block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where in the block of the file it begins.
    pub start: u32,
    /// The bytes that it is for, a power of two: those past the end of the stored block are zeros.
    pub length: u32,
    /// The stored block.
    pub block: BlockRef,
}

impl Part {
    /// The bytes that it holds, counted from the start of the block of the file.
    pub fn bytes(&self) -> Range<usize> {
        self.start as usize..(self.start + self.block.length) as usize
    }
}

impl Stored {
    /// Groups extents of a file by its blocks, of `block_size` bytes. `Corrupt` if they overlap, or
    /// are none that a file can have.
    pub fn group(extents: &[(Span, BlockRef)], block_size: u64) -> Result<Vec<(u64, Stored)>> {
        let size = u32::try_from(block_size).expect("a block size");
        let index = |span: &Span| span.start / block_size;
        let is_valid = |(span, block): &(Span, BlockRef)| span.is_valid(size) && block.length <= span.length;
        let is_apart = |pair: &[(Span, BlockRef)]| pair[0].0.end() <= pair[1].0.start;
        if !extents.iter().all(is_valid) || !extents.windows(2).all(is_apart) {
            let what = "extents of a file overlap, or are none that it can have; 'weft check' tells more";
            return Err(Error::Corrupt(what.into()));
        }
        let of_blocks = extents.chunk_by(|(one, _), (next, _)| index(one) == index(next));
        Ok(of_blocks.map(|of_block| (index(&of_block[0].0), Stored::of(of_block, block_size))).collect())
    }

    fn of(extents: &[(Span, BlockRef)], block_size: u64) -> Stored {
        if let [(span, block)] = extents
            && u64::from(span.length) == block_size
        {
            return Stored::Whole(*block);
        }
        let start = |span: &Span| u32::try_from(span.start % block_size).expect("less than a block");
        let part = |(span, block): &(Span, BlockRef)| Part { start: start(span), length: span.length, block: *block };
        Stored::Parts(extents.iter().map(part).collect())
    }

    /// The extents of block `index` that it is, in a volume with blocks of `block_size` bytes.
    pub fn extents(&self, index: u64, block_size: u64) -> Vec<(Span, BlockRef)> {
        let start = index * block_size;
        match self {
            Stored::Whole(block) => {
                let length = u32::try_from(block_size).expect("a block size");
                vec![(Span { start, length }, *block)]
            }
            Stored::Parts(parts) => {
                let span = |part: &Part| Span { start: start + u64::from(part.start), length: part.length };
                parts.iter().map(|part| (span(part), part.block)).collect()
            }
        }
    }

    /// It as parts of a block of `block_size` bytes, ascending.
    pub fn parts(&self, block_size: usize) -> Vec<Part> {
        match self {
            Stored::Whole(block) => {
                let length = u32::try_from(block_size).expect("a block size");
                vec![Part { start: 0, length, block: *block }]
            }
            Stored::Parts(parts) => parts.to_vec(),
        }
    }

    /// The stored blocks, ascending.
    pub fn blocks(&self) -> impl Iterator<Item = &BlockRef> {
        let (whole, parts) = match self {
            Stored::Whole(block) => (Some(block), &[][..]),
            Stored::Parts(parts) => (None, &parts[..]),
        };
        whole.into_iter().chain(parts.iter().map(|part| &part.block))
    }

    /// The one stored block, if that is for all of it.
    pub fn whole(&self) -> Option<&BlockRef> {
        match self {
            Stored::Whole(block) => Some(block),
            Stored::Parts(_) => None,
        }
    }

    /// The end of the bytes that it holds; past it are zeros.
    pub fn end(&self) -> usize {
        match self {
            Stored::Whole(block) => block.length as usize,
            Stored::Parts(parts) => parts.last().map_or(0, |part| part.bytes().end),
        }
    }

    /// The bytes that its blocks take.
    pub fn taken(&self) -> u64 {
        self.blocks().map(|block| u64::from(block.length)).sum()
    }

    /// True if it is the same blocks, for the same parts.
    pub fn is_same(&self, other: &Stored) -> bool {
        let key = |stored: &Stored| -> Vec<(u32, u32, BlockId)> {
            match stored {
                Stored::Whole(block) => vec![(0, 0, block.id)],
                Stored::Parts(parts) => parts.iter().map(|part| (part.start, part.length, part.block.id)).collect(),
            }
        };
        key(self) == key(other)
    }

    /// Memory that it takes beside itself, about.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Stored::Whole(_) => 0,
            Stored::Parts(parts) => size_of_val(&parts[..]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_store::Place;

    fn extent(start: u64, length: u32, bytes: u32) -> (Span, BlockRef) {
        let block = BlockRef { id: BlockId(start), length: bytes, base: start, value: [1; 32], place: Place::Database };
        (Span { start, length }, block)
    }

    #[test]
    fn extents_are_grouped_by_blocks_and_come_back() {
        let extents = [
            extent(0, 65536, 65536),
            extent(65536, 32768, 32768),
            extent(65536 + 32768, 4096, 4096),
            extent(65536 + 61440, 4096, 100),
            extent(3 * 65536, 4096, 4096),
        ];
        let grouped = Stored::group(&extents, 65536).expect("in order");
        assert_eq!(grouped.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [0, 1, 3]);
        let ends = grouped.iter().map(|(_, stored)| (stored.end(), stored.taken())).collect::<Vec<_>>();
        assert_eq!(ends, [(65536, 65536), (61540, 32768 + 4096 + 100), (4096, 4096)]);
        let back = grouped.iter().flat_map(|(index, stored)| stored.extents(*index, 65536)).collect::<Vec<_>>();
        assert_eq!(back, extents);
        assert!(grouped[0].1.whole().is_some() && grouped[2].1.whole().is_none());
    }

    #[test]
    fn extents_that_overlap_or_that_no_file_has_are_damage() {
        for extents in [
            &[extent(0, 65536, 65536), extent(4096, 4096, 4096)][..],
            &[extent(4096, 8192, 8192)],
            &[extent(0, 2048, 2048)],
            &[extent(0, 12288, 12288)],
            &[extent(0, 131_072, 131_072)],
            &[extent(0, 4096, 4097)],
        ] {
            Stored::group(extents, 65536).expect_err("damage");
        }
    }
}
