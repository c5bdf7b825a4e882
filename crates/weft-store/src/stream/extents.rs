//! The extents of files, some at a time, however long or sparse a file is.

use crate::error::Result;
use crate::row::{BlockRef, Ino, Span};
use crate::store::{Nth, RowStore};
use std::ops::Range;

/// Extents that are asked for together, where there may be more than that.
const TOGETHER: u64 = 4096;

/// Bytes of a file whose extents are asked for whatever their number.
const BYTES_TOGETHER: u64 = TOGETHER * (64 << 10);

/// Extents of a file.
type Extents = [(Span, BlockRef)];

/// Has `visit` look at the extents of `ino` in `range`, ascending, some at a time.
pub(super) fn visit(
    store: &(impl RowStore + ?Sized),
    ino: Ino,
    range: Range<u64>,
    visit: &mut dyn FnMut(&Extents) -> Result<()>,
) -> Result<()> {
    let mut at = range.start;
    while at < range.end {
        let next = match range.end - at > BYTES_TOGETHER {
            true => store.nth_extent(ino, at..range.end, Nth::FromStart(TOGETHER))?,
            false => None,
        };
        let end = next.unwrap_or(range.end);
        visit(&store.extents(ino, at..end)?)?;
        at = end;
    }
    Ok(())
}

/// Returns the bytes that the blocks of `ino` in `range` hold.
pub(super) fn bytes_in(store: &(impl RowStore + ?Sized), ino: Ino, range: Range<u64>) -> Result<u64> {
    let mut bytes = 0;
    visit(store, ino, range, &mut |extents| {
        bytes += extents.iter().map(|(_, block)| u64::from(block.length)).sum::<u64>();
        Ok(())
    })?;
    Ok(bytes)
}
