//! What one program was lent.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Weak};
use weft_block::Slice;
use weft_block::shared::{Arena, Pool};
use weft_client::protocol::{DESCRIPTORS_MAX, PARTS_MAX, Part, Reference, ZEROS};
use weft_vfs::SharedPart;

/// A place, by its arena and its number there.
type PlaceId = (u64, usize);

/// Places that a program may read.
#[derive(Default)]
pub(crate) struct Holdings {
    /// What keeps each as it is, and how often it was lent.
    places: HashMap<PlaceId, (Slice, u64)>,
    /// The arenas that it has, and how long their places are.
    arenas: HashMap<u64, Known>,
    bytes: usize,
}

struct Known {
    arena: Weak<Arena>,
    place_bytes: usize,
}

/// What a read is answered with.
#[derive(Default)]
pub(crate) struct Lending {
    pub(crate) parts: Vec<Part>,
    /// Arenas that the program does not have yet.
    pub(crate) new: Vec<Arc<Arena>>,
}

impl Holdings {
    /// Bytes of all places held.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Lends `parts`, which lie in `pool`, as far as one answer tells of them.
    pub(crate) fn lend(&mut self, pool: &Pool, parts: Vec<SharedPart>) -> Lending {
        let mut lending = Lending::default();
        for part in parts.into_iter().take(PARTS_MAX) {
            let bytes = match part {
                SharedPart::Zeros(len) => {
                    lending.parts.push(Part { arena: ZEROS, offset: 0, len: len as u64 });
                    continue;
                }
                SharedPart::Bytes(bytes) => bytes,
            };
            let (arena, offset) = pool.find(&bytes).expect("what is shared lies in the pool of its file");
            let number = arena.number();
            if let Entry::Vacant(unknown) = self.arenas.entry(number) {
                if lending.new.len() == DESCRIPTORS_MAX {
                    break;
                }
                unknown.insert(Known { arena: Arc::downgrade(&arena), place_bytes: pool.place_bytes() });
                lending.new.push(arena);
            }
            lending.parts.push(Part { arena: number, offset: offset as u64, len: bytes.len() as u64 });
            let place = self.places.entry((number, offset / pool.place_bytes())).or_insert_with(|| {
                self.bytes += pool.place_bytes();
                (bytes, 0)
            });
            place.1 += 1;
        }
        lending
    }

    /// Lets go of `reference` once; none if it was not held.
    pub(crate) fn release(&mut self, reference: Reference) -> Option<()> {
        let place_bytes = self.arenas.get(&reference.arena)?.place_bytes;
        let id = (reference.arena, usize::try_from(reference.offset).ok()? / place_bytes);
        let (_, count) = self.places.get_mut(&id)?;
        *count -= 1;
        if *count == 0 {
            self.places.remove(&id);
            self.bytes -= place_bytes;
        }
        Some(())
    }

    /// The program does not have `arena` any more; none if it still holds something there, or never had it.
    pub(crate) fn forget(&mut self, arena: u64) -> Option<()> {
        if self.places.keys().any(|(number, _)| *number == arena) {
            return None;
        }
        self.arenas.remove(&arena).map(|_| ())
    }

    /// Sees that nothing held is ever written over, also after it is taken back.
    pub(crate) fn retire(&self) {
        for (number, known) in &self.arenas {
            if self.places.keys().any(|(arena, _)| arena == number)
                && let Some(arena) = known.arena.upgrade()
            {
                arena.retire();
            }
        }
    }
}
