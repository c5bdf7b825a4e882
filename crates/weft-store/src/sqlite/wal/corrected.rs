//! Damage in a write-ahead log that the log's own sums put right.
//!
//! Each sum goes on from the one before it, and the first from that in the log's header. A sum can
//! be followed back as well, from the first frame to the header, of which all but one number is
//! known: the database tells the size of a page, the frame the salts. One wrong byte in a frame
//! follows from the sum in it, unless several changes of one byte would give that sum. Then the
//! frame behind it tells if it is the sum that is wrong, and the rows in the page which change fits
//! them.
//!
//! The file stays as it is: what is put right is only read so, until it is written by
//! [`Wal::write_corrections`].

use super::{FRAME_HEADER_BYTES, HEADER_BYTES, Header, MAGIC, Sum, Suspect, Wal, rot, word};
use crate::error::Result;
use std::os::unix::fs::FileExt;

/// The version of the format of the log.
const VERSION: u32 = 3_007_000;

/// No log is restarted as often.
const LIVES_MAX: u32 = 1 << 24;

/// Judges a page: true if all that verifies itself in it is right.
pub(in crate::sqlite) type IsRight = fn(&[u8]) -> bool;

impl Sum {
    /// The sum from which adding `words` leads to this one.
    fn before(self, words: &[u8], big_endian: bool) -> Sum {
        let (pairs, _) = words.as_chunks::<8>();
        pairs.iter().rev().fold(self, |Sum(a, b), pair| {
            let [first, second] = [0, 4].map(|at| word(pair, at, big_endian));
            let b = b.wrapping_sub(second).wrapping_sub(a);
            Sum(a.wrapping_sub(first).wrapping_sub(b), b)
        })
    }
}

/// The header of a log with pages of `page_bytes` that begins with `frame`, if that follows any.
fn header_before(frame: &[u8], page_bytes: usize, big_endian: bool) -> Option<[u8; HEADER_BYTES]> {
    let mut header = [0; HEADER_BYTES];
    let fields = [MAGIC | u32::from(big_endian), VERSION, u32::try_from(page_bytes).ok()?];
    for (place, field) in header.chunks_exact_mut(4).zip(fields) {
        place.copy_from_slice(&field.to_be_bytes());
    }
    header[16..24].copy_from_slice(&frame[8..16]);
    let sum = Sum::read(frame, 16).before(&frame[FRAME_HEADER_BYTES..], big_endian).before(&frame[..8], big_endian);
    // What is missing is the number of the life, which counts once in the first sum and twice in
    // the second.
    let without = Sum::default().add(&header[..24], big_endian);
    let life = sum.0.wrapping_sub(without.0);
    let fits = sum.1.wrapping_sub(without.1) == life.wrapping_mul(2) && word(frame, 0, true) != 0;
    header[12..16].copy_from_slice(&if big_endian { life.to_be_bytes() } else { life.to_le_bytes() });
    header[24..28].copy_from_slice(&sum.0.to_be_bytes());
    header[28..].copy_from_slice(&sum.1.to_be_bytes());
    (fits && word(&header, 12, true) < LIVES_MAX).then_some(header)
}

/// A byte of a frame that is wrong: its offset in the frame, and the right one.
type WrongByte = (usize, u8);

impl Suspect<'_> {
    /// The one wrong byte of the frame, if it can be told; `next` is the frame behind it. The rows
    /// in the page decide between several.
    fn wrong_byte(&self, next: Option<&[u8]>, is_right: IsRight) -> Option<WrongByte> {
        rot(self)?;
        let differing = |from: usize, right: &[u8]| {
            let places = self.bytes[from..].iter().zip(right).enumerate();
            places.filter(|(_, (found, right))| found != right).map(|(at, (_, right))| (from + at, *right)).collect()
        };
        let salts: Vec<WrongByte> = differing(8, &self.header.salts);
        if let [salt] = salts[..] {
            return Some(salt);
        }
        let in_sum: Vec<WrongByte> = differing(16, &[self.right.0.to_be_bytes(), self.right.1.to_be_bytes()].concat());
        // The frame behind it goes on from the right sum.
        let goes_on = |sum: Sum| next.is_some_and(|next| self.header.follow(sum, next).is_some());
        let mut bytes = if goes_on(self.right) { Vec::new() } else { self.wrong_bytes() };
        if in_sum.len() == 1 && !goes_on(Sum::read(self.bytes, 16)) {
            bytes.extend(in_sum);
        }
        if bytes.len() > 1 {
            bytes.retain(|(at, byte)| {
                let mut frame = self.bytes.to_vec();
                frame[*at] = *byte;
                is_right(&frame[FRAME_HEADER_BYTES..])
            });
        }
        if let [byte] = bytes[..] { Some(byte) } else { None }
    }

    /// The bytes of the page or of its number of which one is wrong, if the sum of the frame is
    /// right.
    fn wrong_bytes(&self) -> Vec<WrongByte> {
        let byte_of = |(at, right): (usize, u32)| {
            let right = if self.header.big_endian { right.to_be_bytes() } else { right.to_le_bytes() };
            let place = (0..4).find(|place| self.bytes[at + place] != right[*place])?;
            Some((at + place, right[place]))
        };
        self.wrong_words(|_| true).into_iter().filter_map(byte_of).collect()
    }
}

impl Wal {
    /// Puts right what the sums of the log determine of its damage, so that it is read so from here
    /// on; says what. Pages have `page_bytes` bytes, and are judged by `is_right`.
    pub(in crate::sqlite) fn correct(&mut self, page_bytes: usize, is_right: IsRight) -> Result<Vec<String>> {
        let (size, frame_bytes, first) = (self.size()?, FRAME_HEADER_BYTES + page_bytes, HEADER_BYTES as u64);
        let (mut told, mut bytes) = (Vec::new(), vec![0; frame_bytes]);
        if size < first + frame_bytes as u64 {
            return Ok(told);
        }
        let mut header = [0; HEADER_BYTES];
        self.read(&mut header, 0)?;
        if Header::decode(&header).is_none() {
            self.read(&mut bytes, first)?;
            let anew = [false, true].into_iter().find_map(|is_big| header_before(&bytes, page_bytes, is_big));
            let Some(anew) = anew else { return Ok(told) };
            header = anew;
            self.corrections.extend((0..).zip(header));
            told.push("its header is damaged, and follows from its first frame".into());
        }
        let header = Header::decode(&header).filter(|header| header.page_bytes == page_bytes);
        let Some(header) = header else { return Ok(told) };
        let (mut sum, mut next) = (header.sum, bytes.clone());
        let fits = |(_, at): &(u64, u64)| at + frame_bytes as u64 <= size;
        for (number, offset) in (1..).zip((first..).step_by(frame_bytes)).take_while(fits) {
            self.read(&mut bytes, offset)?;
            if let Some(right) = header.follow(sum, &bytes) {
                sum = right;
                continue;
            }
            let behind = offset + frame_bytes as u64;
            let has_next = fits(&(number + 1, behind));
            if has_next {
                self.read(&mut next, behind)?;
            }
            let suspect = Suspect { bytes: &bytes, offset, header, right: header.sum_of(sum, &bytes) };
            let Some((at, byte)) = suspect.wrong_byte(has_next.then_some(&next), is_right) else { break };
            bytes[at] = byte;
            let Some(right) = header.follow(sum, &bytes) else { break };
            sum = right;
            self.corrections.insert(offset + at as u64, byte);
            told.push(format!(
                "byte {} is wrong, in frame {number}, whose sum tells the right one",
                offset + at as u64
            ));
        }
        Ok(told)
    }

    /// Writes what was put right to the file, durably.
    pub(in crate::sqlite) fn write_corrections(&self) -> Result<()> {
        for (at, byte) in &self.corrections {
            self.file.write_all_at(&[*byte], *at).map_err(self.io("cannot write"))?;
        }
        self.file.sync_all().map_err(self.io("cannot sync"))
    }
}
