//! What was written to one block since the last commit, without reading what was there before.
//!
//! Bytes that came as a slice are kept as that until a write lies over a part of them.

use crate::tree::ROW_BYTES;
use std::ops::{Deref, Range};
use weft_block::{Buffer, Slice};

#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    start: usize,
    bytes: Bytes,
}

/// The bytes of a piece.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Bytes {
    /// To be edited.
    Own(Buffer),
    /// Shared with the journal, perhaps.
    Shared(Slice),
}

impl Bytes {
    fn is_own(&self) -> bool {
        matches!(self, Bytes::Own(_))
    }

    /// Its bytes to be edited; shared ones are copied first.
    fn own(&mut self) -> &mut Buffer {
        if let Bytes::Shared(slice) = self {
            *self = Bytes::Own(Buffer::copy_of(slice));
        }
        match self {
            Bytes::Own(buffer) => buffer,
            Bytes::Shared(_) => unreachable!("they were just copied"),
        }
    }

    fn freeze(self) -> Slice {
        match self {
            Bytes::Own(buffer) => buffer.freeze().whole(),
            Bytes::Shared(slice) => slice,
        }
    }

    /// The bytes `range`, copied if they may be edited yet.
    fn slice(&self, range: Range<usize>) -> Slice {
        match self {
            Bytes::Own(buffer) => Slice::from(buffer[range].to_vec()),
            Bytes::Shared(slice) => slice.slice(range),
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Own(buffer) => buffer,
            Bytes::Shared(slice) => slice,
        }
    }
}

impl Piece {
    fn end(&self) -> usize {
        self.start + self.bytes.len()
    }
}

/// Memory that a piece takes beside its bytes, about.
const PIECE_BYTES: usize = size_of::<Piece>() + 64;

/// The cost of so many bytes in so many pieces of a block.
fn cost(bytes: usize, pieces: usize) -> u64 {
    if pieces == 0 { 0 } else { ROW_BYTES + (bytes + pieces * PIECE_BYTES) as u64 }
}

/// Bytes at places of a block. Invariant: pieces are ascending, not empty and do not overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pieces {
    list: Vec<Piece>,
}

impl Pieces {
    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.list.iter().map(|piece| piece.bytes.len()).sum()
    }

    /// Bytes that count as dirty: however few are held, there is a block to make of them.
    pub fn cost(&self) -> u64 {
        cost(self.bytes(), self.list.len())
    }

    /// True if there are no pieces.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the end of the last piece; 0 without any.
    pub fn end(&self) -> usize {
        self.list.last().map_or(0, Piece::end)
    }

    /// Indices of the pieces that `range`, which is not empty, overlaps.
    fn overlapped(&self, range: &Range<usize>) -> Range<usize> {
        let from = self.list.partition_point(|piece| piece.end() <= range.start);
        let to = self.list.partition_point(|piece| piece.start < range.end);
        from..to
    }

    /// Puts `data` at `start`, over what was there, without copying it unless it lies over a part
    /// of a piece.
    pub fn share(&mut self, start: usize, data: &Slice) {
        let end = start + data.len();
        let overlapped = self.overlapped(&(start..end));
        if data.is_empty() || self.list[overlapped.clone()].iter().any(|piece| piece.start < start || piece.end() > end)
        {
            return self.write(start, data);
        }
        self.list.splice(overlapped, [Piece { start, bytes: Bytes::Shared(data.clone()) }]);
    }

    /// Puts `data` at `start`, over what was there.
    pub fn write(&mut self, start: usize, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let end = start + data.len();
        let Range { start: mut from, end: mut to } = self.overlapped(&(start..end));
        // It becomes one with what it touches, unless that would have to be copied.
        if from > 0 && self.list[from - 1].end() == start && self.list[from - 1].bytes.is_own() {
            from -= 1;
        }
        if self.list.get(to).is_some_and(|next| next.start == end && next.bytes.is_own()) {
            to += 1;
        }
        match &mut self.list[from..to] {
            [] => self.list.insert(from, Piece { start, bytes: Bytes::Own(Buffer::copy_of(data)) }),
            // The common case: appending to a piece, or writing inside it.
            [only] if only.start <= start => overlay(only.bytes.own(), start - only.start, data),
            touched => {
                let first = touched[0].start.min(start);
                let mut bytes = Buffer::with_capacity(touched[touched.len() - 1].end().max(end) - first);
                for piece in touched.iter() {
                    bytes.resize(piece.start.max(first) - first);
                    bytes.extend_from_slice(&piece.bytes);
                }
                overlay(&mut bytes, start - first, data);
                self.list.splice(from..to, [Piece { start: first, bytes: Bytes::Own(bytes) }]);
            }
        }
    }

    /// Forgets all bytes at `end` and after.
    pub fn truncate(&mut self, end: usize) {
        self.list.retain(|piece| piece.start < end);
        if let Some(last) = self.list.last_mut() {
            let len = last.bytes.len().min(end - last.start);
            if len < last.bytes.len() {
                // What is cut off a slice would stay in memory.
                last.bytes.own().resize(len);
            }
        }
    }

    /// The parts of `range` held here, with their bytes, ascending.
    pub fn within(&self, range: Range<usize>) -> impl Iterator<Item = (usize, Slice)> {
        let from = self.list.partition_point(|piece| piece.end() <= range.start);
        self.list[from..].iter().take_while(move |piece| piece.start < range.end).map(move |piece| {
            let start = piece.start.max(range.start);
            let end = piece.end().min(range.end);
            (start, piece.bytes.slice(start - piece.start..end - piece.start))
        })
    }

    /// Gives all pieces away as immutable slices, without copying.
    pub fn freeze(&mut self) -> Frozen {
        let freeze = |piece: Piece| (piece.start, piece.bytes.freeze());
        Frozen { list: std::mem::take(&mut self.list).into_iter().map(freeze).collect() }
    }

    /// Puts back below the present bytes what [`Pieces::freeze`] gave.
    pub fn thaw(&mut self, frozen: &Frozen) {
        let newer = std::mem::take(self);
        for (start, bytes) in &frozen.list {
            self.share(*start, bytes);
        }
        for piece in newer.list {
            self.share(piece.start, &piece.bytes.freeze());
        }
    }
}

/// Puts `data` at `at` of `bytes`, which reaches at least there, growing it as needed.
fn overlay(bytes: &mut Buffer, at: usize, data: &[u8]) {
    if at + data.len() > bytes.len() {
        let inside = bytes.len().saturating_sub(at);
        if inside == 0 {
            bytes.resize(at);
        }
        bytes[at..].copy_from_slice(&data[..inside]);
        bytes.extend_from_slice(&data[inside..]);
    } else {
        bytes[at..at + data.len()].copy_from_slice(data);
    }
}

/// Pieces on their way into a commit. Immutable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frozen {
    list: Vec<(usize, Slice)>,
}

impl Frozen {
    /// One piece at the start of a block.
    pub(crate) fn at_start(bytes: Slice) -> Frozen {
        Frozen { list: if bytes.is_empty() { Vec::new() } else { vec![(0, bytes)] } }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.list.iter().map(|(_, bytes)| bytes.len()).sum()
    }

    /// As [`Pieces::cost`].
    pub fn cost(&self) -> u64 {
        cost(self.bytes(), self.list.len())
    }

    /// Returns the end of the last piece; 0 without any.
    pub fn end(&self) -> usize {
        self.list.last().map_or(0, |(start, bytes)| start + bytes.len())
    }

    /// All bytes of `range` in one slice, if one piece holds them.
    pub fn whole(&self, range: Range<usize>) -> Option<Slice> {
        let (start, bytes) =
            self.list.iter().find(|(start, bytes)| *start <= range.start && range.end <= start + bytes.len())?;
        Some(bytes.slice(range.start - start..range.end - start))
    }

    /// True if pieces hold all bytes of `range`.
    pub fn covers(&self, range: Range<usize>) -> bool {
        let mut parts = self.within(range.clone());
        let end = parts.try_fold(range.start, |end, (start, bytes)| (end == start).then_some(start + bytes.len()));
        end == Some(range.end)
    }

    /// The parts of `range` held here, ascending.
    pub fn within(&self, range: Range<usize>) -> impl Iterator<Item = (usize, Slice)> + '_ {
        self.list.iter().filter_map(move |(start, bytes)| {
            let from = range.start.max(*start);
            let to = range.end.min(start + bytes.len());
            (from < to).then(|| (from, bytes.slice(from - start..to - start)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(pieces: &Pieces, len: usize) -> Vec<Option<u8>> {
        let mut bytes = vec![None; len];
        for (start, part) in pieces.within(0..len) {
            for (i, byte) in part.iter().enumerate() {
                bytes[start + i] = Some(*byte);
            }
        }
        bytes
    }

    proptest! {
        #[test]
        fn pieces_read_like_a_plain_array(
            writes in proptest::collection::vec(
                (0usize..90, proptest::collection::vec(any::<u8>(), 0..30), any::<bool>()), 0..12),
            cut in 0usize..130,
            frozen_after in 0usize..12,
        ) {
            let mut pieces = Pieces::default();
            let mut plain = vec![None; 130];
            let mut frozen = None;
            for (i, (start, data, is_shared)) in writes.iter().enumerate() {
                if i == frozen_after {
                    frozen = Some(pieces.freeze());
                }
                if *is_shared {
                    pieces.share(*start, &Slice::from(data.clone()));
                } else {
                    pieces.write(*start, data);
                }
                for (k, byte) in data.iter().enumerate() {
                    plain[start + k] = Some(*byte);
                }
            }
            if let Some(frozen) = frozen {
                pieces.thaw(&frozen);
            }
            prop_assert_eq!(read(&pieces, 130), plain.clone());
            pieces.truncate(cut);
            plain[cut..].fill(None);
            prop_assert_eq!(read(&pieces, 130), plain.clone());
            prop_assert!(pieces.list.windows(2).all(|pair| pair[0].end() <= pair[1].start));
            let last = pieces.freeze();
            for range in [0..130, 10..40, cut.min(50)..60] {
                prop_assert_eq!(last.covers(range.clone()), plain[range].iter().all(Option::is_some));
            }
        }
    }
}
