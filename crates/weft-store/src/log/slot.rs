//! The header of the intent log's file: what its last two mounts say of themselves, each twice.
//!
//! A mount writes its own over the older one before its first commit, so that until that commit is
//! durable the log of the mount before can still be read.

use super::sector::{NUMBER_MAX, SECTOR, VolumeId, number};
use std::fs::File;
use std::io::Result;
use std::os::unix::fs::FileExt;

/// Bytes before the records.
pub(super) const HEADER_BYTES: u64 = 8192;

const MAGIC: &[u8; 8] = b"WEFTLOG2";

/// Offsets of each of the two slots and of its copy.
const PLACES: [[usize; 2]; 2] = [[0, 2048], [4096, 6144]];

/// The stage that a mount has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// The commit that begins its epoch may not have happened yet.
    Prepared,
    /// It has happened.
    Begun,
    /// The volume was unmounted: all is in the database.
    Closed,
}

/// Bytes in segments behind all that the database knows of when a volume was unmounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Behind {
    /// Nobody looked.
    #[default]
    Unknown,
    /// Nothing.
    Nothing,
    /// Something that is to stay there: somebody may want it back.
    Kept,
}

/// Offset of [`Behind`] in a slot.
const BEHIND: usize = 496;

/// One mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) id: VolumeId,
    pub(super) epoch: u64,
    /// Bytes of each half.
    pub(super) half_bytes: u64,
    /// Position of the first record.
    pub(super) start: u64,
    pub(super) stage: Stage,
    /// The last durable commit when this was written.
    pub(super) commit: u64,
    pub(super) behind: Behind,
}

impl Slot {
    fn encode(&self) -> [u8; SECTOR] {
        let mut bytes = [0; SECTOR];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..24].copy_from_slice(&self.id);
        let stage = match self.stage {
            Stage::Prepared => 1,
            Stage::Begun => 2,
            Stage::Closed => 3,
        };
        let fields = [self.epoch, self.half_bytes, self.start, stage, self.commit];
        for (place, field) in bytes[24..].chunks_exact_mut(8).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        bytes[BEHIND] = match self.behind {
            Behind::Unknown => 0,
            Behind::Nothing => 1,
            Behind::Kept => 2,
        };
        let crc = crc32c::crc32c(&bytes[..SECTOR - 4]);
        bytes[SECTOR - 4..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; SECTOR]) -> Option<Slot> {
        let crc = crc32c::crc32c(&bytes[..SECTOR - 4]).to_le_bytes();
        if &bytes[..8] != MAGIC || bytes[SECTOR - 4..] != crc {
            return None;
        }
        let stage = match number(bytes, 48) {
            1 => Stage::Prepared,
            2 => Stage::Begun,
            3 => Stage::Closed,
            _ => return None,
        };
        let (epoch, half_bytes, start) = (number(bytes, 24), number(bytes, 32), number(bytes, 40));
        let is_sound =
            half_bytes > 0 && half_bytes % SECTOR as u64 == 0 && half_bytes < 1 << 40 && start < 2 * half_bytes;
        let commit = number(bytes, 56);
        let is_sound = is_sound && epoch < NUMBER_MAX && commit < NUMBER_MAX;
        let id = bytes[8..24].try_into().expect("sixteen bytes");
        let behind = match bytes[BEHIND] {
            1 => Behind::Nothing,
            2 => Behind::Kept,
            _ => Behind::Unknown,
        };
        is_sound.then_some(Slot { id, epoch, half_bytes, start, stage, commit, behind })
    }
}

/// The header as it was found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slots {
    pub(super) slots: [Option<Slot>; 2],
    /// True if nothing was ever written here.
    pub(super) is_blank: bool,
}

impl Slots {
    /// Reads the header of a file of `size` bytes.
    pub(super) fn read(file: &File, size: u64) -> Result<Slots> {
        let mut header = vec![0; usize::try_from(size.min(HEADER_BYTES)).expect("a few")];
        file.read_exact_at(&mut header, 0)?;
        let mut found = Slots { is_blank: header.iter().all(|byte| *byte == 0), ..Slots::default() };
        for (slot, places) in found.slots.iter_mut().zip(PLACES) {
            for at in places {
                let Some((bytes, _)) = header.get(at..).and_then(<[u8]>::split_first_chunk::<SECTOR>) else { continue };
                let age = |slot: &Slot| (slot.epoch, slot.stage, slot.commit);
                let newer = Slot::decode(bytes).filter(|new| slot.is_none_or(|old| age(new) > age(&old)));
                *slot = newer.or(*slot);
            }
        }
        Ok(found)
    }

    /// Returns the slot of the mount of `epoch`, if it is still there.
    pub(super) fn of(&self, epoch: u64) -> Option<Slot> {
        self.all().find(|slot| slot.epoch == epoch)
    }

    /// All there are.
    pub(super) fn all(&self) -> impl Iterator<Item = Slot> {
        self.slots.into_iter().flatten()
    }

    /// Writes `new` into its own place if it has one, else where nothing is, or the mount that is
    /// not `kept`'s.
    pub(super) fn write(&mut self, file: &File, new: Slot, kept: u64) -> Result<()> {
        let at = |found: &dyn Fn(&Option<Slot>) -> bool| self.slots.iter().position(found);
        let own = at(&|slot| slot.is_some_and(|slot| slot.epoch == new.epoch));
        let free = || at(&|slot| slot.is_none_or(|slot| slot.epoch != kept && slot.id != new.id));
        let oldest = || {
            let others = (0..2).filter(|at| self.slots[*at].is_none_or(|slot| slot.epoch != kept));
            others.min_by_key(|at| self.slots[*at].map_or(0, |slot| slot.epoch)).unwrap_or(0)
        };
        let index = own.or_else(free).unwrap_or_else(oldest);
        for place in PLACES[index] {
            file.write_all_at(&new.encode(), place as u64)?;
        }
        self.slots[index] = Some(new);
        self.is_blank = false;
        Ok(())
    }
}
