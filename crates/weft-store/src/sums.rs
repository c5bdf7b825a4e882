//! Checksums of rows: a row that is not as a commit wrote it is damage, however plausible it looks.
//!
//! A sum is SipHash-1-3 (Aumasson and Bernstein, 2012) under a key of zeros, of the table's name
//! and the row's columns, cut to 62 bits so that sums can be added in SQL. The encoding is the same
//! in both engines, and is part of the format (docs/reference/format.md, "Sums of rows"). Digests,
//! which change more often than the rows they stand in, have sums of their own. References to
//! blocks are counted by the database itself, so what they add to a sum can be added to it: a
//! change that follows damage keeps it visible.

use crate::batch::Counters;
use crate::past::{History, Pin};
use crate::row::{BlockRef, CommitNo, CommitRow, Ino, InodeRow, NameRow, Place, Span, Timestamp};
use crate::store::VolumeOptions;
use weft_digest::{Digest, Kind};

/// Sums are from 0 to this.
pub(crate) const MASK: i64 = (1 << 62) - 1;

/// The sum of a row that has no sum yet, which is damage.
pub(crate) const NONE: i64 = -1;

/// Bytes up to this many stand in what is summed as they are, longer ones by their BLAKE3 digest.
const BYTES_MAX: usize = 64;

/// One reference to a block in the sum of its row: odd, so that no other count gives the same.
const REFERENCE: i64 = 0x1e37_79b9_7f4a_7c15;

/// Bits that the first commit of content is shifted by in its sum, so that it is told from the
/// last one.
pub(crate) const CONTENT_SHIFT: u32 = 20;

/// A number as the database holds it.
fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A sum being made of the values of columns, one after another.
#[derive(Clone, Copy)]
pub(crate) struct Sum(SipHash);

impl Sum {
    /// The sum of a row of `table`, or of a part of one by its own name.
    pub(crate) fn of(table: &str) -> Sum {
        let mut hash = SipHash::new((0, 0));
        hash.write(table.as_bytes());
        hash.put(0, 1);
        Sum(hash)
    }

    pub(crate) fn null(mut self) -> Sum {
        self.kind(b'0');
        self
    }

    pub(crate) fn int(mut self, number: i64) -> Sum {
        self.kind(b'i');
        self.0.put(u64::from_le_bytes(number.to_le_bytes()), 8);
        self
    }

    pub(crate) fn unsigned(self, number: u64) -> Sum {
        self.int(int(number))
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Sum {
        if bytes.len() > BYTES_MAX {
            return self.digested(&weft_digest::digest(bytes));
        }
        self.kind(b'b');
        self.0.put(bytes.len() as u64, 1);
        self.0.write(bytes);
        self
    }

    /// Bytes that are longer than [`BYTES_MAX`], by their digest.
    fn digested(mut self, digest: &Digest) -> Sum {
        self.kind(b'd');
        self.0.write(digest);
        self
    }

    fn maybe(self, bytes: Option<&[u8]>) -> Sum {
        match bytes {
            Some(bytes) => self.bytes(bytes),
            None => self.null(),
        }
    }

    /// Adds a value that no column of a whole row holds: text and floating point, as damage leaves
    /// it.
    pub(crate) fn odd(mut self, kind: u8, bytes: &[u8]) -> Sum {
        self.kind(kind);
        self.bytes(bytes)
    }

    /// The sum of what kind the value is that follows.
    fn kind(&mut self, kind: u8) {
        self.0.put(kind.into(), 1);
    }

    pub(crate) fn end(self) -> i64 {
        cut(self.0.finish())
    }
}

fn cut(sum: u64) -> i64 {
    i64::try_from(sum & MASK.unsigned_abs()).expect("62 bits")
}

/// Two sums, or a sum and what changes it, as one.
pub(crate) fn add(sum: i64, other: i64) -> i64 {
    sum.wrapping_add(other) & MASK
}

/// The sum of an inode's row but its digest. `digest` is that of the inode, if it is known.
pub(crate) fn inode(row: &InodeRow, since: CommitNo, digest: Option<&Digest>) -> i64 {
    let sum = Sum::of("fileatt")
        .unsigned(row.ino.0)
        .int(row.generation.into())
        .int((row.kind.mode_bits() | row.permissions).into())
        .int(row.uid.into())
        .int(row.gid.into())
        .int(row.nlink.into())
        .int(row.rdev.into())
        .unsigned(row.size)
        .unsigned(row.allocated)
        .int(row.atime.0)
        .int(row.mtime.0)
        .int(row.ctime.0)
        .int(row.btime.0)
        .unsigned(row.parent.0)
        .int(row.xattrs.into())
        .unsigned(since.0);
    let sum = match (row.inline.as_deref(), digest) {
        // Without pieces of zeros a file is listed by the digest of its content, which need not be
        // hashed twice.
        (Some(inline), Some(digest))
            if row.kind == Kind::File && inline.len() as u64 == row.size && inline.len() > BYTES_MAX =>
        {
            sum.digested(digest)
        }
        (inline, _) => sum.maybe(inline),
    };
    sum.end()
}

/// The sum of an inode's digest.
pub(crate) fn digest(ino: Ino, digest: Option<&Digest>) -> i64 {
    Sum::of("digest").unsigned(ino.0).maybe(digest.map(|digest| &digest[..])).end()
}

/// The sum of a directory entry but its digest.
pub(crate) fn name(row: &NameRow, since: CommitNo) -> i64 {
    Sum::of("naming")
        .unsigned(row.parent.0)
        .bytes(row.name.as_bytes())
        .unsigned(row.ino.0)
        .int(row.kind.mode_bits().into())
        .unsigned(row.cookie.0)
        .unsigned(since.0)
        .end()
}

/// The sum of the digest of a directory entry.
pub(crate) fn entry(parent: Ino, name: &[u8], digest: Option<&Digest>) -> i64 {
    Sum::of("entry").unsigned(parent.0).bytes(name).maybe(digest.map(|digest| &digest[..])).end()
}

/// The sum of an extent.
pub(crate) fn extent(ino: Ino, span: Span, block: u64, since: CommitNo) -> i64 {
    let sum = Sum::of("extents").unsigned(ino.0).unsigned(span.start).unsigned(span.length.into());
    sum.unsigned(block).unsigned(since.0).end()
}

/// The sum of an extent in PostgreSQL, which tells whose block it is.
pub(crate) fn owned_extent((ino, span): (Ino, Span), (owner, block): (Ino, u64), since: CommitNo) -> i64 {
    let sum = Sum::of("owned extents").unsigned(ino.0).unsigned(span.start).unsigned(span.length.into());
    sum.unsigned(owner.0).unsigned(block).unsigned(since.0).end()
}

/// The same of an extent of format 7 or before, which has the index of a block.
pub(crate) fn owned_extent_by_index((ino, index): (Ino, u64), (owner, block): (Ino, u64), since: CommitNo) -> i64 {
    Sum::of("owned extents").unsigned(ino.0).unsigned(index).unsigned(owner.0).unsigned(block).unsigned(since.0).end()
}

/// The sum of a version that was replaced in commit `until`: that of its row, with the commit
/// added, so that a statement can make it without knowing the row.
pub(crate) fn version(row: i64, until: CommitNo) -> i64 {
    add(row, references(int(until.0)))
}

/// The same of content, which held from commit `since` on: of the sum of its digest.
pub(crate) fn content(digest: i64, since: CommitNo, until: CommitNo) -> i64 {
    add(version(digest, until), references(int(since.0).wrapping_shl(CONTENT_SHIFT)))
}

/// The sum of the row that says what is kept of the past ([`crate::History`]).
pub(crate) fn retention(history: &History) -> i64 {
    let sum =
        Sum::of("retention").int(1).odd(b't', history.rule.as_bytes()).odd(b't', history.readers.name().as_bytes());
    sum.unsigned(history.first.0).unsigned(history.swept.0).end()
}

/// The sum of a pin.
pub(crate) fn pin(pin: &Pin) -> i64 {
    let sum = Sum::of("pins").unsigned(pin.commit.0).int(pin.kind.number()).bytes(&pin.name).int(pin.made.0);
    match pin.held_until {
        Some(until) => sum.int(until.0).end(),
        None => sum.null().end(),
    }
}

/// The sum of a block with `refs` references. What verifies parts of it is not in it: that follows
/// from its value.
pub(crate) fn block(block: &BlockRef, refs: i64) -> i64 {
    let sum = Sum::of("blocks").unsigned(block.id.0).int(block.length.into()).unsigned(block.base).bytes(&block.value);
    let sum = match block.place {
        Place::Segment { segment, offset } => sum.int(segment.into()).unsigned(offset),
        Place::Database | Place::File(_) | Place::Own(_) => sum.null().null(),
    };
    add(sum.end(), references(refs))
}

/// The sum of a block of the file `owner` in PostgreSQL.
pub(crate) fn owned_block(owner: Ino, block: &BlockRef, refs: i64) -> i64 {
    let sum = Sum::of("owned blocks").unsigned(owner.0).unsigned(block.id.0);
    let sum = sum.int(block.length.into()).unsigned(block.base).bytes(&block.value).end();
    add(sum, references(refs))
}

/// Returns the part of `count` references in the sum of a block, which is added to it as they
/// change.
pub(crate) fn references(count: i64) -> i64 {
    count.wrapping_mul(REFERENCE) & MASK
}

/// The sum of an extended attribute.
pub(crate) fn xattr(ino: Ino, name: &[u8], value: &[u8], since: CommitNo) -> i64 {
    Sum::of("xattr").unsigned(ino.0).bytes(name).bytes(value).unsigned(since.0).end()
}

/// Returns the sum of a branch of names that begin alike.
pub(crate) fn branch(parent: Ino, prefix: &[u8], children: &[u8]) -> i64 {
    Sum::of("branches").unsigned(parent.0).bytes(prefix).bytes(children).end()
}

/// Returns the sum of a node of a file's tree.
pub(crate) fn node(ino: Ino, level: u32, index: u64, children: &[u8]) -> i64 {
    Sum::of("nodes").unsigned(ino.0).int(level.into()).unsigned(index).bytes(children).end()
}

/// The sum of a record of the intent log in PostgreSQL: of operations `first` to `last`.
pub(crate) fn intents(uuid: &[u8; 16], epoch: u64, (first, last): (u64, u64), operations: &[u8]) -> i64 {
    Sum::of("intents").bytes(uuid).unsigned(epoch).unsigned(first).unsigned(last).bytes(operations).end()
}

/// The sum of a commit.
pub(crate) fn commit(row: &CommitRow) -> i64 {
    let [root, previous] = [&row.root, &row.previous].map(|digest| digest.as_ref().map(|digest| &digest[..]));
    let sum = Sum::of("commits").unsigned(row.number.0).int(row.time.0).unsigned(row.op.0);
    sum.maybe(root).maybe(previous).end()
}

/// The sum of what the volume's row says that commits do not change; to be added to [`counters`].
pub(crate) fn volume(created: Timestamp, uuid: &[u8; 16], options: &VolumeOptions) -> i64 {
    let limit = |sum: Sum, limit: Option<u64>| match limit {
        Some(limit) => sum.unsigned(limit),
        None => sum.null(),
    };
    let sum = Sum::of("volume").int(created.0).bytes(uuid);
    let sum = sum.int(options.block_size.into()).int(options.inline_max.into());
    let sum = sum.odd(b't', options.home.name().as_bytes());
    let sum = limit(limit(sum, options.bytes_max), options.inodes_max).int(options.digests.into());
    limit(sum, options.own_table_from).end()
}

/// The sum of what commits change in the volume's row.
pub(crate) fn counters(number: CommitNo, counters: &Counters) -> i64 {
    let numbers = [counters.op.0, counters.next_id, counters.next_block, counters.epoch];
    let sum = Sum::of("counters").unsigned(number.0);
    let sum = numbers.into_iter().fold(sum, Sum::unsigned);
    sum.unsigned(counters.bytes_used).unsigned(counters.inodes_used).end()
}

/// SipHash-1-3 of bytes as they come.
#[derive(Clone, Copy)]
struct SipHash {
    v: [u64; 4],
    /// Bytes that do not fill a word yet, from the lowest on; zeros above.
    word: u64,
    /// Number of these bytes.
    filled: u32,
    /// Number of bytes in all.
    length: u64,
}

impl SipHash {
    fn new((k0, k1): (u64, u64)) -> SipHash {
        let v = [
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ];
        SipHash { v, word: 0, filled: 0, length: 0 }
    }

    /// Takes the lower `count` bytes of `value`, 1 to 8, above which it is zeros.
    #[inline]
    fn put(&mut self, value: u64, count: u32) {
        self.length += u64::from(count);
        self.word |= value << (8 * self.filled);
        let filled = self.filled + count;
        if filled < 8 {
            self.filled = filled;
            return;
        }
        self.compress(self.word);
        // What did not fit any more.
        self.word = value.checked_shr(8 * (8 - self.filled)).unwrap_or(0);
        self.filled = filled - 8;
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.put(u64::from_le_bytes(*word), 8));
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.put(u64::from_le_bytes(last), u32::try_from(rest.len()).unwrap_or(0));
        }
    }

    #[inline]
    fn compress(&mut self, word: u64) {
        self.v[3] ^= word;
        round(&mut self.v);
        self.v[0] ^= word;
    }

    fn finish(mut self) -> u64 {
        self.compress(self.word | self.length << 56);
        self.v[2] ^= 0xff;
        (0..3).for_each(|_| round(&mut self.v));
        self.v[0] ^ self.v[1] ^ self.v[2] ^ self.v[3]
    }
}

#[inline]
fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[2] = v[2].rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The standard library's hasher is SipHash-1-3 today, under the same key.
    #[test]
    fn sums_are_made_by_sip_hash() {
        use std::hash::Hasher;
        let bytes: Vec<u8> = (0..100u8).map(|number| number.wrapping_mul(7)).collect();
        for length in 0..bytes.len() {
            let bytes = &bytes[..length];
            let mut theirs = std::hash::DefaultHasher::new();
            theirs.write(bytes);
            for cut in [0, 1, length / 2, length] {
                let mut ours = SipHash::new((0, 0));
                ours.write(&bytes[..cut.min(length)]);
                ours.write(&bytes[cut.min(length)..]);
                assert_eq!(ours.finish(), theirs.finish(), "{length} bytes cut at {cut}");
            }
        }
        assert_eq!(Sum::of("t").int(1).end(), 2_842_738_835_772_624_048, "volumes have such sums");
    }

    #[test]
    fn a_sum_tells_values_and_their_places_apart() {
        let sums = [
            Sum::of("t").int(1).int(2).end(),
            Sum::of("t").int(2).int(1).end(),
            Sum::of("t").int(1).null().end(),
            Sum::of("t").bytes(b"a").bytes(b"b").end(),
            Sum::of("t").bytes(b"ab").bytes(b"").end(),
            Sum::of("t").bytes(&[7; 64]).end(),
            Sum::of("t").bytes(&[7; 65]).end(),
            Sum::of("t").odd(b't', b"ab").end(),
            Sum::of("u").int(1).int(2).end(),
            NONE,
        ];
        for (at, sum) in sums.iter().enumerate() {
            assert!(!sums[..at].contains(sum) && *sum <= MASK, "{at}");
        }
    }

    #[test]
    fn references_that_come_and_go_leave_the_sum_as_it_was() {
        let sum = Sum::of("blocks").int(1).end();
        let three = add(sum, references(3));
        assert_eq!(add(three, references(-3)), sum);
        assert_eq!(add(add(sum, references(1)), references(2)), three);
        assert_ne!(add(three, references(1)), three);
    }

    #[test]
    fn content_that_is_hashed_already_gives_the_same_sum() {
        let row = InodeRow {
            kind: Kind::File,
            size: 100,
            inline: Some(weft_block::Slice::from(vec![3; 100])),
            ..InodeRow::new_root(0, 0, Timestamp(5))
        };
        let digest = weft_digest::digest(&[3; 100]);
        assert_eq!(inode(&row, CommitNo(2), None), inode(&row, CommitNo(2), Some(&digest)));
    }
}
