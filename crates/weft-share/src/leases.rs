//! Leases of one program.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Weak};
use weft_block::Slice;
use weft_block::shared::{Arena, Pool};
use weft_client::protocol::{DESCRIPTORS_MAX, PARTS_MAX, Part, Reference, ZEROS};
use weft_vfs::SharedPart;

/// A place, by its arena and its number there.
type PlaceId = (u64, usize);

/// Most arenas that one program has.
const ARENAS_MAX: usize = 4096;

/// Places that a program may read. Dropped, nothing of them is ever written over, as the program
/// may still read them, unless it has let go of everything.
#[derive(Default)]
pub(crate) struct Leases {
    /// The slice that protects each place from reuse, and the number of times it was lent.
    places: HashMap<PlaceId, (Slice, u64)>,
    /// The arenas that it has.
    arenas: HashMap<u64, Known>,
    bytes: usize,
    is_let_go: bool,
}

struct Known {
    arena: Weak<Arena>,
    bytes: usize,
    place_bytes: usize,
    /// Places held there.
    held: usize,
}

/// Answer to a read.
#[derive(Default)]
pub(crate) struct Lending {
    pub(crate) parts: Vec<Part>,
    /// Arenas that the program does not have yet.
    pub(crate) new: Vec<Arc<Arena>>,
}

impl Leases {
    /// Bytes of all arenas in which it holds anything: nobody else has any use of those.
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
            let are_many = self.arenas.len() >= ARENAS_MAX;
            if let Entry::Vacant(unknown) = self.arenas.entry(number) {
                if lending.new.len() == DESCRIPTORS_MAX || are_many {
                    break;
                }
                let (bytes, place_bytes) = (arena.len(), pool.place_bytes());
                unknown.insert(Known { arena: Arc::downgrade(&arena), bytes, place_bytes, held: 0 });
                lending.new.push(arena);
            }
            lending.parts.push(Part { arena: number, offset: offset as u64, len: bytes.len() as u64 });
            let place = self.places.entry((number, offset / pool.place_bytes())).or_insert_with(|| {
                if let Some(known) = self.arenas.get_mut(&number) {
                    self.bytes += if known.held == 0 { known.bytes } else { 0 };
                    known.held += 1;
                }
                (bytes, 0)
            });
            place.1 += 1;
        }
        lending
    }

    /// Lets go of `reference` once; none if it was not held.
    pub(crate) fn release(&mut self, reference: Reference) -> Option<()> {
        let known = self.arenas.get_mut(&reference.arena)?;
        let id = (reference.arena, usize::try_from(reference.offset).ok()? / known.place_bytes);
        let (_, count) = self.places.get_mut(&id)?;
        *count -= 1;
        if *count == 0 {
            self.places.remove(&id);
            known.held -= 1;
            self.bytes -= if known.held == 0 { known.bytes } else { 0 };
        }
        Some(())
    }

    /// The program does not have `arena` any more; none if it still holds something there, or never
    /// had it.
    pub(crate) fn forget(&mut self, arena: u64) -> Option<()> {
        let is_held = self.arenas.get(&arena)?.held > 0;
        if is_held {
            return None;
        }
        self.arenas.remove(&arena).map(|_| ())
    }

    /// Takes back what was not given after all.
    pub(crate) fn take_back(&mut self, lending: &Lending) {
        for part in lending.parts.iter().filter(|part| part.arena != ZEROS) {
            self.release(Reference { arena: part.arena, offset: part.offset });
        }
        for arena in &lending.new {
            self.forget(arena.number());
        }
    }

    /// The program is gone, or has no use of any of this any more.
    pub(crate) fn let_go(&mut self) {
        self.is_let_go = true;
    }
}

impl Drop for Leases {
    fn drop(&mut self) {
        if self.is_let_go {
            return;
        }
        let held = self.arenas.values().filter(|known| known.held > 0);
        held.filter_map(|known| known.arena.upgrade()).for_each(|arena| arena.retire());
    }
}
