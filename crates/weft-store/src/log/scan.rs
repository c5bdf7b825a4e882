//! Finds the records of one mount in the intent log's file, and what is bad between them.

use super::sector::{Expected, NUMBER_MAX, ROOM, SECTOR, Seen, Stamp, VolumeId, number};
use super::slot::HEADER_BYTES;
use crate::row::{CommitNo, OpNo};
use std::fs::File;
use std::io::Result;
use std::os::unix::fs::FileExt;

/// Bytes of a record before its operations.
pub(super) const HEAD_BYTES: usize = 64;

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Operations.
    Operations,
    /// Bytes that a commit could not store: they belong on top of the rows.
    Carried,
}

/// The start of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: Kind,
    pub(super) first: OpNo,
    pub(super) last: OpNo,
    /// The durable commit that it follows, or, of carried bytes, the commit that lacks them.
    pub(super) commit: CommitNo,
    /// Up to which position all was known to be synced when it was written.
    pub(super) synced: u64,
    /// The position after the last record of carried bytes before it; 0: none.
    pub(super) carried: u64,
    pub(super) len: u64,
    /// CRC-32C of the operations: parts of two tries of one append are no record.
    pub(super) crc: u32,
}

impl Head {
    pub(super) fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        let kind = match self.kind {
            Kind::Operations => 0,
            Kind::Carried => 1,
        };
        let (synced, carried) = (self.synced, self.carried);
        let fields = [kind, self.first.0, self.last.0, self.commit.0, synced, carried, self.len, u64::from(self.crc)];
        for (place, field) in bytes.chunks_exact_mut(8).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Head> {
        let field = |index: usize| number(bytes, index * 8);
        let kind = match field(0) {
            0 => Kind::Operations,
            1 => Kind::Carried,
            _ => return None,
        };
        let (first, last, commit) = (OpNo(field(1)), OpNo(field(2)), CommitNo(field(3)));
        if (1..=6).any(|index| field(index) >= NUMBER_MAX) {
            return None;
        }
        let crc = u32::try_from(field(7)).ok()?;
        Some(Head { kind, first, last, commit, synced: field(4), carried: field(5), len: field(6), crc })
    }
}

/// Sectors that a record with `len` bytes of operations takes.
pub(super) fn sectors(len: u64) -> u64 {
    (len + HEAD_BYTES as u64).div_ceil(ROOM as u64)
}

/// A record in the stream, or a place where one may have been.
#[derive(Debug)]
pub(super) enum Item {
    Record {
        at: u64,
        end: u64,
        head: Head,
        bytes: Vec<u8>,
    },
    /// No record lies here; one may have.
    Bad {
        at: u64,
        end: u64,
        is_rotten: bool,
    },
}

impl Item {
    /// The head of a record of operations.
    pub(super) fn operations(&self) -> Option<&Head> {
        match self {
            Item::Record { head, .. } if head.kind == Kind::Operations => Some(head),
            Item::Record { .. } | Item::Bad { .. } => None,
        }
    }

    /// The head of a record.
    pub(super) fn head(&self) -> Option<&Head> {
        match self {
            Item::Record { head, .. } => Some(head),
            Item::Bad { .. } => None,
        }
    }
}

/// The records' part of the file.
pub(super) struct Halves {
    id: VolumeId,
    epoch: u64,
    half_bytes: u64,
    /// As many sectors of each as the file has.
    halves: [Vec<u8>; 2],
    /// The newest round in each half.
    rounds: [Option<u64>; 2],
    /// The highest epoch that sectors of this volume have.
    pub(super) epoch_max: u64,
}

impl Halves {
    /// Reads the halves, of `half_bytes` each; sectors that the file lacks read as blank.
    pub(super) fn read(file: &File, id: VolumeId, epoch: u64, half_bytes: u64) -> Result<Halves> {
        let size = file.metadata()?.len();
        let read = |half: u64| -> Result<Vec<u8>> {
            let start = HEADER_BYTES + half * half_bytes;
            let there = usize::try_from(size.saturating_sub(start).min(half_bytes)).expect("a half fits memory");
            let mut bytes = vec![0; there / SECTOR * SECTOR];
            file.read_exact_at(&mut bytes, start)?;
            Ok(bytes)
        };
        let halves = [read(0)?, read(1)?];
        let mut found = Halves { id, epoch, half_bytes, halves, rounds: [None; 2], epoch_max: 0 };
        for half in 0..2 {
            found.find_rounds(half);
        }
        Ok(found)
    }

    fn find_rounds(&mut self, half: usize) {
        let mut newest = None;
        for (sector, at) in self.halves[half].chunks_exact(SECTOR).zip((0..).step_by(SECTOR)) {
            let Some(stamp) = Stamp::read(&self.id, sector) else { continue };
            self.epoch_max = self.epoch_max.max(stamp.epoch);
            let place = half as u64 * self.half_bytes + at;
            if stamp.epoch == self.epoch && stamp.position % (2 * self.half_bytes) == place {
                newest = newest.max(Some(stamp.position / self.half_bytes));
            }
        }
        self.rounds[half] = newest;
    }

    /// Returns the newest round in either half.
    pub(super) fn newest(&self) -> Option<u64> {
        self.rounds[0].max(self.rounds[1])
    }

    fn half(&self, round: u64) -> &[u8] {
        &self.halves[usize::from(round % 2 == 1)]
    }

    fn look(&self, round: u64, at: usize) -> Seen {
        let expected =
            Expected { epoch: self.epoch, position: round * self.half_bytes + at as u64, ring: 2 * self.half_bytes };
        self.half(round).get(at..at + SECTOR).map_or(Seen::Old, |sector| expected.look(&self.id, sector))
    }

    /// True if the first record of `round` was written and has rotted.
    pub(super) fn begins_rotten(&self, round: u64) -> bool {
        let expected = Expected { epoch: self.epoch, position: round * self.half_bytes, ring: 2 * self.half_bytes };
        let sector = self.half(round).get(..SECTOR);
        sector
            .is_some_and(|sector| expected.claims(&self.id, sector) && expected.look(&self.id, sector) == Seen::Rotten)
    }

    /// All there is of `round` from byte `from` of its half on; at its end what may have followed.
    pub(super) fn scan(&self, round: u64, from: u64) -> Vec<Item> {
        let base = round * self.half_bytes;
        let len = usize::try_from(self.half_bytes).expect("a half fits memory");
        let there = self.half(round).len();
        let mut items = Vec::new();
        let mut at = usize::try_from(from).expect("in a half");
        while at < len {
            if let Some((head, bytes, end)) = self.record(round, at) {
                items.push(Item::Record { at: base + at as u64, end: base + end as u64, head, bytes });
                at = end;
                continue;
            }
            let next = (at + SECTOR..there).step_by(SECTOR).find(|next| self.record(round, *next).is_some());
            let is_rotten = self.is_rotten(round, at, next);
            let end = next.unwrap_or(len);
            items.push(Item::Bad { at: base + at as u64, end: base + end as u64, is_rotten });
            at = end;
        }
        items
    }

    /// True if any sector of what should be a record at `at` has rotted. All up to `next`, the next
    /// record, may be of it.
    fn is_rotten(&self, round: u64, at: usize, next: Option<usize>) -> bool {
        let own = match self.look(round, at) {
            Seen::Whole(0) => {
                let head = Head::decode(&self.half(round)[at..at + HEAD_BYTES]);
                let len = head.map_or(0, |head| head.len).min(self.half_bytes);
                at + usize::try_from(sectors(len)).expect("no longer than a half") * SECTOR
            }
            Seen::Whole(_) | Seen::Old | Seen::Rotten => at + SECTOR,
        };
        let end = next.unwrap_or(own).min(self.half(round).len());
        (at..end).step_by(SECTOR).any(|at| self.look(round, at) == Seen::Rotten)
    }

    /// The record at byte `at` of the half of `round`, if one is there and whole: its operations,
    /// and where it ends.
    fn record(&self, round: u64, at: usize) -> Option<(Head, Vec<u8>, usize)> {
        if self.look(round, at) != Seen::Whole(0) {
            return None;
        }
        let half = self.half(round);
        let head = Head::decode(&half[at..at + HEAD_BYTES])?;
        let len = usize::try_from(head.len).ok().filter(|len| *len <= half.len())?;
        let end = at + usize::try_from(sectors(head.len)).ok()? * SECTOR;
        if end > half.len() || head.last < head.first {
            return None;
        }
        let mut bytes = Vec::with_capacity(len + ROOM);
        for (index, at) in (at..end).step_by(SECTOR).enumerate() {
            if self.look(round, at) != Seen::Whole(u32::try_from(index).ok()?) {
                return None;
            }
            let skipped = if index == 0 { HEAD_BYTES } else { 0 };
            bytes.extend_from_slice(&half[at + skipped..at + ROOM]);
        }
        bytes.truncate(len);
        (crc32c::crc32c(&bytes) == head.crc).then_some((head, bytes, end))
    }
}
