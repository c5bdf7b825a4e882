//! The file: a header, an index of what each slot holds, and the slots.
//!
//! All numbers are little endian. The header (4096 bytes): [`MAGIC`], the bytes of a slot and the
//! number of slots, four bytes each. The index has [`ENTRY_BYTES`] for each slot: the value of its
//! block, and the length, zero if there is none. Slots follow from a multiple of 4096 on. A slot's
//! bytes are written before its entry. An entry and its slot that do not belong together are found
//! out by hashing. A free slot is taken first. With none left, the next to be used again is the
//! first, from where the last one was found, that was not read since it was passed.

use crate::error::{Error, Result};
use crate::row::BlockRef;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use rustix::fs::{FlockOperation, OFlags, flock};
use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weft_block::{Block, Buffer, Rope};
use weft_digest::Value;

pub(super) const MAGIC: &[u8; 8] = b"WEFTDC01";

const HEADER_BYTES: u64 = 4096;

const ENTRY_BYTES: usize = 64;

/// Time to wait for another process to let go of the file: a process that lost the volume to this
/// one ends.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// Slots that a file has at most: each takes memory.
const SLOTS_MAX: u32 = 1 << 24;

/// Bytes of the index that are read at once.
const READ_BYTES: usize = 1 << 20;

/// The file and what is known of it.
pub(super) struct Slots {
    file: File,
    path: PathBuf,
    slot_bytes: u32,
    /// Offset of the first slot.
    first: u64,
    index: Mutex<Index>,
}

/// `places` names every slot that is in use and no other; the rest are in `free`, but for the one
/// that is being written.
struct Index {
    places: FxHashMap<Value, u32>,
    slots: Vec<Slot>,
    /// Slots that hold nothing, the next to be taken last.
    free: Vec<u32>,
    /// The slot that is looked at next when one is needed and none is free.
    hand: usize,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    value: Value,
    /// Zero if it is free.
    length: u32,
    was_read: bool,
}

impl Slot {
    fn encode(self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..32].copy_from_slice(&self.value);
        bytes[32..36].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Slot {
        let (value, rest) = bytes.split_first_chunk().expect("an entry is longer than a value");
        let (length, _) = rest.split_first_chunk().expect("an entry has a length");
        Slot { value: *value, length: u32::from_le_bytes(*length), was_read: false }
    }
}

fn header(slot_bytes: u32, count: u32) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES as usize];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&slot_bytes.to_le_bytes());
    bytes[12..16].copy_from_slice(&count.to_le_bytes());
    bytes
}

/// Slots that `bytes` have room for.
pub(super) fn count(bytes: u64, slot_bytes: u32) -> u32 {
    (bytes / u64::from(slot_bytes)).clamp(1, SLOTS_MAX.into()).try_into().expect("there are no more slots")
}

fn at(slot: usize) -> u64 {
    HEADER_BYTES + (slot * ENTRY_BYTES) as u64
}

impl Slots {
    /// Opens the file at `path`, or makes it, with slots of `slot_bytes` that take `bytes` in all.
    /// One of other sizes is emptied.
    pub(super) fn open(path: &Path, bytes: u64, slot_bytes: u32) -> Result<Slots> {
        Slots::lock_and_open(path, bytes, slot_bytes, LOCK_TIMEOUT)
    }

    pub(super) fn lock_and_open(path: &Path, bytes: u64, slot_bytes: u32, timeout: Duration) -> Result<Slots> {
        let io = |source| Error::Io { what: "cannot open the disk cache", path: path.into(), source };
        let directory = path.parent().unwrap_or(Path::new("."));
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(io)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(path).map_err(io)?;
        refuse_others(&file, path).map_err(io)?;
        lock(&file, path, timeout)?;
        let count = count(bytes, slot_bytes);
        let first = at(count as usize).next_multiple_of(HEADER_BYTES);
        let expected = header(slot_bytes, count);
        let size = first + u64::from(count) * u64::from(slot_bytes);
        let mut found = vec![0; expected.len()];
        let is_ours = file.metadata().map_err(io)?.len() == size
            && file.read_exact_at(&mut found, 0).is_ok()
            && found == expected;
        if !is_ours {
            // It takes no more of the disk than is written into it.
            file.set_len(0).and_then(|()| file.set_len(size)).map_err(io)?;
            file.write_all_at(&expected, 0).map_err(io)?;
        }
        Slots::of(file, path, slot_bytes, count, first).map_err(io)
    }

    fn of(file: File, path: &Path, slot_bytes: u32, count: u32, first: u64) -> std::io::Result<Slots> {
        let decode =
            |bytes: &[u8]| Some(Slot::decode(bytes)).filter(|slot| slot.length <= slot_bytes).unwrap_or_default();
        let mut slots = Vec::with_capacity(count as usize);
        let mut entries = vec![0; READ_BYTES.min(count as usize * ENTRY_BYTES)];
        while slots.len() < count as usize {
            let left = (count as usize - slots.len()) * ENTRY_BYTES;
            let entries = &mut entries[..READ_BYTES.min(left)];
            file.read_exact_at(entries, at(slots.len()))?;
            slots.extend(entries.chunks_exact(ENTRY_BYTES).map(decode));
        }
        let index = Mutex::new(Index::of(slots));
        Ok(Slots { file, path: path.into(), slot_bytes, first, index })
    }

    /// A file that cannot be written.
    #[cfg(test)]
    pub(super) fn read_only(path: &Path, bytes: u64, slot_bytes: u32) -> Slots {
        let whole = Slots::open(path, bytes, slot_bytes).expect("opens");
        Slots { file: File::open(path).expect("opens"), ..whole }
    }

    /// Overwrites some of the bytes of a block that is here.
    #[cfg(test)]
    pub(super) fn damage(&self, value: &Value) {
        let place = self.index.lock().places[value];
        self.file.write_all_at(b"no block has this", self.offset(place)).expect("written");
    }

    pub(super) fn has(&self, value: &Value) -> bool {
        self.index.lock().places.contains_key(value)
    }

    /// Slots in use, and all.
    pub(super) fn used(&self) -> (u64, u64) {
        let index = self.index.lock();
        (index.places.len() as u64, index.slots.len() as u64)
    }

    /// The bytes of `block`, if they are here and verify.
    pub(super) fn read(&self, block: &BlockRef) -> Option<Block> {
        let place = {
            let mut index = self.index.lock();
            let place = *index.places.get(&block.value)?;
            index.slots[place as usize].was_read = true;
            place
        };
        let mut bytes = Buffer::any(block.length as usize);
        let read = self.file.read_exact_at(&mut bytes, self.offset(place));
        if read.is_ok() && block.verify(&bytes) {
            return Some(bytes.freeze());
        }
        self.index.lock().free(&block.value, place);
        None
    }

    /// Puts `bytes`, which hash to `value`.
    pub(super) fn write(&self, value: Value, bytes: &Rope) -> Result<()> {
        let Some(length) = u32::try_from(bytes.len()).ok().filter(|length| (1..=self.slot_bytes).contains(length))
        else {
            return Ok(());
        };
        let place = {
            let mut index = self.index.lock();
            if index.places.contains_key(&value) {
                // Several readers missed it at once.
                return Ok(());
            }
            index.vacate()
        };
        let io = |source| Error::Io { what: "cannot write to the disk cache", path: self.path.clone(), source };
        let mut offset = self.offset(place);
        for slice in bytes.slices() {
            self.file.write_all_at(slice, offset).map_err(io)?;
            offset += slice.len() as u64;
        }
        let slot = Slot { value, length, was_read: false };
        self.file.write_all_at(&slot.encode(), at(place as usize)).map_err(io)?;
        let mut index = self.index.lock();
        index.slots[place as usize] = slot;
        index.places.insert(value, place);
        Ok(())
    }

    fn offset(&self, place: u32) -> u64 {
        self.first + u64::from(place) * u64::from(self.slot_bytes)
    }
}

impl Index {
    /// Builds the index of the slots as read from the file. Of several with one value the last
    /// counts.
    fn of(mut slots: Vec<Slot>) -> Index {
        let used = (0..).zip(&slots).filter(|(_, slot)| slot.length > 0);
        let places: FxHashMap<Value, u32> = used.map(|(place, slot)| (slot.value, place)).collect();
        let mut free = Vec::new();
        for (place, slot) in (0..).zip(&mut slots) {
            if slot.length == 0 || places.get(&slot.value) != Some(&place) {
                *slot = Slot::default();
                free.push(place);
            }
        }
        free.reverse();
        Index { places, slots, free, hand: 0 }
    }

    /// Frees the slot at `place`, whose bytes are not those of `value`: it is used before any that
    /// may be good. A slot that was replaced while it was read is another block's by now, and
    /// stays.
    fn free(&mut self, value: &Value, place: u32) {
        if self.places.get(value) == Some(&place) {
            self.places.remove(value);
            self.slots[place as usize] = Slot::default();
            self.free.push(place);
        }
    }

    /// A slot that holds nothing any more.
    fn vacate(&mut self) -> u32 {
        if let Some(place) = self.free.pop() {
            return place;
        }
        loop {
            let at = self.hand;
            self.hand = (at + 1) % self.slots.len();
            let slot = &mut self.slots[at];
            if std::mem::take(&mut slot.was_read) {
                continue;
            }
            self.places.remove(&std::mem::take(slot).value);
            return u32::try_from(at).expect("there are no more slots");
        }
    }
}

/// A file that is not ours alone may not be written: what is in it is for nobody else, and what is
/// overwritten might be somebody's.
fn refuse_others(file: &File, path: &Path) -> std::io::Result<()> {
    let metadata = file.metadata()?;
    let is_ours = metadata.is_file() && metadata.uid() == rustix::process::geteuid().as_raw();
    if is_ours && metadata.mode() & 0o077 == 0 {
        return Ok(());
    }
    let what = format!("{} is not a file of this user that nobody else may read", path.display());
    Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, what))
}

/// Has the file for this process alone.
#[expect(clippy::disallowed_methods, reason = "what is waited for is another process")]
fn lock(file: &File, path: &Path, timeout: Duration) -> Result<()> {
    let began = Instant::now();
    while flock(file, FlockOperation::NonBlockingLockExclusive).is_err() {
        if began.elapsed() >= timeout {
            return Err(Error::Unusable(format!("another process uses the disk cache {}", path.display())));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
