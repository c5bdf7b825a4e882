//! Data flow between stages: slices that wait to be taken, and slices that were made.

use std::collections::VecDeque;
use weft_block::{Block, Buffer, Rope, Slice};

/// Bytes that a stage gives before it is asked whether it has more.
const OUTPUT_BYTES: usize = 256 << 10;
/// Bytes of small pieces that are put together.
const PIECE_BYTES: usize = 64 << 10;
/// Bytes below which copying is cheaper than remembering where they lie.
const SMALL_BYTES: usize = 512;

/// The first `len` bytes of `buffer`, in no more memory than they need: whoever keeps them may keep
/// many.
pub(crate) fn filled(mut buffer: Buffer, len: usize) -> Slice {
    if len < buffer.len() / 4 {
        return Block::copy_of(&buffer[..len]).whole();
    }
    buffer.resize(len);
    buffer.freeze().whole()
}

/// `slice` in no more memory than it needs, for those who keep many: a small part of a block keeps
/// all of the block.
pub(crate) fn compact(slice: Slice) -> Slice {
    if slice.as_block().is_some() { slice } else { Block::copy_of(&slice).whole() }
}

/// Input that a stage has not taken yet. No slice is empty.
#[derive(Debug, Default)]
pub(crate) struct Input {
    slices: VecDeque<Slice>,
    ends: bool,
    is_at_hand: bool,
}

impl Input {
    /// Adds all of `rope` at the end.
    pub(crate) fn append(&mut self, rope: &Rope) {
        self.slices.extend(rope.slices().iter().cloned());
    }

    /// Adds `slice` at the end.
    #[cfg(test)]
    pub(crate) fn push(&mut self, slice: Slice) {
        if !slice.is_empty() {
            self.slices.push_back(slice);
        }
    }

    /// Notes that more comes without waiting for somebody who sends it.
    pub(crate) fn more_is_at_hand(&mut self, is_at_hand: bool) {
        self.is_at_hand = is_at_hand;
    }

    pub(crate) fn is_more_at_hand(&self) -> bool {
        self.is_at_hand
    }

    /// Nothing will be added any more.
    pub(crate) fn end(&mut self) {
        self.ends = true;
    }

    /// True if all was taken, and nothing will come any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.ends && self.slices.is_empty()
    }

    /// True if nothing comes after the first `count` bytes.
    pub(crate) fn ends_with(&self, count: usize) -> bool {
        self.ends && self.slices.len() <= 1 && self.slices.front().map_or(0, |slice| slice.len()) == count
    }

    /// The first bytes.
    pub(crate) fn front(&self) -> Option<&Slice> {
        self.slices.front()
    }

    /// Takes the first bytes.
    pub(crate) fn take(&mut self) -> Option<Slice> {
        self.slices.pop_front()
    }

    /// Takes `count` of the first bytes, no more than [`Input::front`] has.
    pub(crate) fn skip(&mut self, count: usize) {
        if let Some(slice) = self.slices.pop_front()
            && count < slice.len()
        {
            self.slices.push_front(slice.slice(count..slice.len()));
        }
    }
}

/// Output that a stage has made.
#[derive(Debug, Default)]
pub(crate) struct Output {
    rope: Rope,
    /// Small pieces that are put together, after all in `rope`.
    pieces: Option<Buffer>,
}

impl Output {
    /// Adds bytes that lie somewhere already: by reference, but for a few among others that are
    /// copied.
    pub(crate) fn push(&mut self, slice: Slice) {
        if slice.len() < SMALL_BYTES && self.pieces.is_some() {
            return self.write(&slice);
        }
        self.close_piece();
        self.rope.push(slice);
    }

    /// Adds a copy of `bytes`.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let pieces = self.pieces.get_or_insert_default();
        pieces.extend_from_slice(bytes);
        if pieces.len() >= PIECE_BYTES {
            self.close_piece();
        }
    }

    /// True if there is enough for now.
    pub(crate) fn is_full(&self) -> bool {
        self.rope.len() + self.pieces.as_ref().map_or(0, |pieces| pieces.len()) >= OUTPUT_BYTES
    }

    /// True if nothing was added since all was taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.rope.is_empty() && self.pieces.is_none()
    }

    /// All that was added.
    pub(crate) fn take(&mut self) -> Rope {
        self.close_piece();
        std::mem::take(&mut self.rope)
    }

    fn close_piece(&mut self) {
        if let Some(pieces) = self.pieces.take() {
            self.rope.push(pieces.freeze().whole());
        }
    }
}
