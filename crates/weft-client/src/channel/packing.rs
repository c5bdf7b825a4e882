//! Bytes that are copied to be sent: one after the other into places, so that small ones do not
//! take a place each.

use std::sync::Arc;
use weft_block::shared::Place;

/// Alignment of bytes that do not belong together: they may be read and written at the same time.
const APART: usize = 64;

/// A place, and whoever refers to what was copied there.
#[derive(Debug)]
struct Packed {
    place: Place,
    /// One for each that the receiver has, and this one.
    parts: Arc<()>,
}

impl Packed {
    fn is_free(&self) -> bool {
        Arc::strong_count(&self.parts) == 1
    }
}

/// Places to copy to.
#[derive(Debug, Default)]
pub(super) struct Packing {
    open: Option<Packed>,
    used: usize,
    /// Those with no room left, until the last part is back.
    full: Vec<Packed>,
}

impl Packing {
    /// True if a place is needed before anything can be copied.
    pub(super) fn needs_place(&mut self) -> bool {
        match &self.open {
            Some(open) if open.is_free() => {
                self.used = 0;
                false
            }
            Some(open) => self.used == open.place.len(),
            None => true,
        }
    }

    /// Copies to `place` from now on.
    pub(super) fn begin(&mut self, place: Place) {
        self.full.extend(self.open.replace(Packed { place, parts: Arc::default() }));
        self.used = 0;
    }

    /// Gives up places of which all parts are back.
    pub(super) fn give_up(&mut self) {
        self.full.retain(|packed| !packed.is_free());
    }

    /// Copies as many of `bytes` as there is room for. Tells where they lie, how many, and what
    /// keeps them there.
    pub(super) fn copy(&mut self, bytes: &[u8]) -> (&[u8], Arc<()>) {
        let Some(open) = &mut self.open else { return (&[], Arc::default()) };
        let len = bytes.len().min(open.place.len() - self.used);
        weft_block::copied(len);
        let range = self.used..self.used + len;
        self.used = range.end;
        open.place[range.clone()].copy_from_slice(&bytes[..len]);
        (&open.place[range], open.parts.clone())
    }

    /// Begins a new part: bytes copied next do not belong to those copied before.
    pub(super) fn part(&mut self) {
        if let Some(open) = &self.open {
            self.used = self.used.next_multiple_of(APART).min(open.place.len());
        }
    }
}
