//! The extents of files, some at a time, however long or sparse a file is.

use crate::error::{Error, Result};
use crate::row::{BlockRef, Ino, Span};
use crate::store::{Nth, ReadMode, RowStore, Store};
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

/// Reads the bytes of an extent of `ino` whose block could not be read because of `error`. It may
/// have been split or merged since the extent was read: then others have the bytes, and the space
/// of the block may be given back.
pub(super) fn read_anew(
    store: &dyn Store,
    ino: Ino,
    (span, block): &(Span, BlockRef),
    error: Error,
) -> Result<Vec<u8>> {
    let block_size = u64::from(store.header()?.options.block_size);
    let found = store.extents(ino, span.start - span.start % block_size..span.end())?;
    if found.contains(&(*span, *block)) {
        return Err(error);
    }
    let mut bytes = vec![0; block.length as usize];
    for (other, part) in found.into_iter().filter(|(other, _)| other.overlaps(span)) {
        let read = store.read_block(&part, ReadMode::Blocking)?;
        let read = read.ok_or_else(|| Error::Bug("a wait for ever ended".into()))?;
        for (at, byte) in (other.start..).zip(read.iter()) {
            let place = at.checked_sub(span.start).and_then(|place| usize::try_from(place).ok());
            if let Some(place) = place.and_then(|place| bytes.get_mut(place)) {
                *place = *byte;
            }
        }
    }
    Ok(bytes)
}
