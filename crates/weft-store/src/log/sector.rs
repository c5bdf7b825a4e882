//! Sectors of the intent log's file: 488 bytes of a record, and a stamp that tells which sector
//! this is.
//!
//! Disks write a sector of 512 bytes whole or not at all, so a sector that was not reached by a
//! write holds what was there before. The stamp lies at the end, where a copy arrives last: a
//! sector that was caught half written has the stamp of before, too. A sector that claims to be the
//! expected one, and is not what its checksum says, has rotted.

/// Bytes of a sector.
pub(super) const SECTOR: usize = 512;

/// Bytes of a record in one sector.
pub(super) const ROOM: usize = SECTOR - 24;

/// No number in a log is as large.
pub(super) const NUMBER_MAX: u64 = 1 << 62;

/// The volume that a log belongs to.
pub(super) type VolumeId = [u8; 16];

/// Tells one sector from all others that a log ever held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    /// Epoch of the mount.
    pub(super) epoch: u64,
    /// Position in the stream of the mount's records: the halves of the file take turns.
    pub(super) position: u64,
    /// Index of the sector in its record.
    pub(super) index: u32,
}

/// A sector, looked at where another one may have been expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// The expected one, of this index in its record.
    Whole(u32),
    /// Not written since: what was there before, or that in part.
    Old,
    /// Damage.
    Rotten,
}

impl Stamp {
    fn of(sector: &[u8]) -> (u32, Stamp) {
        let short = |at: usize| u32::from_le_bytes(sector[at..at + 4].try_into().expect("four bytes"));
        let stamp =
            Stamp { index: short(ROOM + 4), epoch: number(sector, ROOM + 8), position: number(sector, ROOM + 16) };
        (short(ROOM), stamp)
    }

    /// The stamp of a sector that is what its checksum says, if it is.
    pub(super) fn read(id: &VolumeId, sector: &[u8]) -> Option<Stamp> {
        let (crc, stamp) = Stamp::of(sector);
        let is_sound = (1..NUMBER_MAX).contains(&stamp.epoch) && stamp.position < NUMBER_MAX;
        (is_sound && crc == stamp.checksum(id, sector)).then_some(stamp)
    }

    fn checksum(self, id: &VolumeId, sector: &[u8]) -> u32 {
        let mut end = [0; 20];
        end[..4].copy_from_slice(&self.index.to_le_bytes());
        end[4..12].copy_from_slice(&self.epoch.to_le_bytes());
        end[12..].copy_from_slice(&self.position.to_le_bytes());
        let crc = crc32c::crc32c_append(crc32c::crc32c(id), &sector[..ROOM]);
        crc32c::crc32c_append(crc, &end)
    }

    /// Stamps `sector`, which holds its part of the record.
    pub(super) fn seal(self, id: &VolumeId, sector: &mut [u8]) {
        let crc = self.checksum(id, sector);
        sector[ROOM..ROOM + 4].copy_from_slice(&crc.to_le_bytes());
        sector[ROOM + 4..ROOM + 8].copy_from_slice(&self.index.to_le_bytes());
        sector[ROOM + 8..ROOM + 16].copy_from_slice(&self.epoch.to_le_bytes());
        sector[ROOM + 16..].copy_from_slice(&self.position.to_le_bytes());
    }
}

/// The number at `at`, little endian.
pub(super) fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The sector that is expected somewhere.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    pub(super) epoch: u64,
    pub(super) position: u64,
    /// Bytes of the stream after which the same place of the file is used again.
    pub(super) ring: u64,
}

impl Expected {
    /// Classifies `sector`.
    pub(super) fn look(self, id: &VolumeId, sector: &[u8]) -> Seen {
        let (crc, stamp) = Stamp::of(sector);
        if sector[ROOM..].iter().all(|byte| *byte == 0) {
            return Seen::Old;
        }
        if crc == stamp.checksum(id, sector) {
            let is_here = stamp.epoch == self.epoch && stamp.position == self.position;
            return if is_here { Seen::Whole(stamp.index) } else { Seen::Old };
        }
        if self.claims(id, sector) {
            return Seen::Rotten;
        }
        let of_a_mount_before = stamp.epoch > 0 && stamp.epoch < self.epoch;
        let is_place = stamp.position % self.ring == self.position % self.ring;
        let of_a_round_before = stamp.epoch == self.epoch && stamp.position < self.position && is_place;
        if of_a_mount_before || of_a_round_before { Seen::Old } else { Seen::Rotten }
    }

    /// True if `sector` says that it is the expected one, or is but for what it says.
    pub(super) fn claims(self, id: &VolumeId, sector: &[u8]) -> bool {
        let (crc, stamp) = Stamp::of(sector);
        let expected = Stamp { epoch: self.epoch, position: self.position, ..stamp };
        stamp == expected || crc == expected.checksum(id, sector)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: VolumeId = [7; 16];
    const HERE: Expected = Expected { epoch: 9, position: 5 << 9, ring: 8 << 9 };

    fn sealed(epoch: u64, position: u64, byte: u8) -> Vec<u8> {
        let mut sector = vec![byte; SECTOR];
        Stamp { epoch, position, index: 3 }.seal(&ID, &mut sector);
        sector
    }

    #[test]
    fn every_flipped_bit_of_the_expected_sector_is_rot() {
        let sector = sealed(HERE.epoch, HERE.position, 1);
        assert_eq!(HERE.look(&ID, &sector), Seen::Whole(3));
        for bit in 0..SECTOR * 8 {
            let mut flipped = sector.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(HERE.look(&ID, &flipped), Seen::Rotten, "bit {bit}");
        }
    }

    #[test]
    fn what_was_there_before_is_old_also_if_half_written_over() {
        let new = sealed(HERE.epoch, HERE.position, 1);
        let before = [vec![0; SECTOR], sealed(7, 11 << 9, 2), sealed(HERE.epoch, HERE.position + HERE.ring, 2)];
        for old in &before {
            assert_eq!(HERE.look(&ID, old), Seen::Old);
        }
        let later = Expected { position: HERE.position + HERE.ring, ..HERE };
        assert_eq!(later.look(&ID, &new), Seen::Old, "of the round before");
        for old in [&before[0], &before[1]] {
            for written in (8..=ROOM).step_by(8) {
                let half = [&new[..written], &old[written..]].concat();
                assert_eq!(HERE.look(&ID, &half), Seen::Old, "{written} bytes");
            }
        }
    }

    #[test]
    fn sectors_of_another_volume_are_not_this_ones() {
        assert_eq!(HERE.look(&[8; 16], &sealed(HERE.epoch, HERE.position, 1)), Seen::Rotten);
        assert_eq!(Stamp::read(&[8; 16], &sealed(HERE.epoch, HERE.position, 1)), None);
    }
}
