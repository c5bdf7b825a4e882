//! SQLite's write-ahead log, read without SQLite (its file format:
//! <https://www.sqlite.org/fileformat2.html#walformat>).
//!
//! SQLite believes the log up to the first frame that is not whole, says nothing of what lies
//! behind, and deletes the evidence when it closes. Here the log is looked at before SQLite opens
//! it. A frame that is not whole is usually *torn*: its commit was on its way when the power went,
//! and some of its sectors never reached the disk. Commits that are only
//! [`crate::Durability::Eventual`] are synced together, later, so that whole frames behind a torn
//! one prove nothing. A frame is *rotten* if one byte of it is all that keeps its checksum from
//! being right: a sector that was not written differs by more, or is zeros. So is a log with frames
//! whose header is not whole, for SQLite syncs the header before it writes the first frame. Rot
//! that looks like a tear shows by the number of the last commit, which the intent log knows.
//!
//! SQLite goes on from the start of the log once all of it was copied. A sector that was not
//! written then holds what an older frame had there, often of the same page, and may differ by one
//! byte. So in all lives of the log but its first a frame may be torn that looks rotten
//! ([`super::torn`]).

mod corrected;

use super::layout::beside;
use crate::error::{Error, Result};
use crate::files;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes of a page where nothing tells: SQLite's own choice.
pub(super) const PAGE_DEFAULT: usize = 4096;

/// Bytes of the header of the log.
const HEADER_BYTES: usize = 32;

/// Bytes that a disk writes at once.
const SECTOR_BYTES: u64 = 512;

/// Bytes of the header of a frame.
const FRAME_HEADER_BYTES: usize = 24;

/// Frames that are read at once to be verified.
const VERIFIED_FRAMES: usize = 32;

/// The first four bytes; the last bit tells whether checksums are of big endian words.
const MAGIC: u32 = 0x377f_0682;

/// A sum over words: Fletcher's, of 32 bits each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum(u32, u32);

impl Sum {
    fn add(self, words: &[u8], big_endian: bool) -> Sum {
        let (pairs, _) = words.as_chunks::<8>();
        pairs.iter().fold(self, |Sum(a, b), pair| {
            let [first, second] = [0, 4].map(|at| word(pair, at, big_endian));
            let a = a.wrapping_add(first).wrapping_add(b);
            Sum(a, b.wrapping_add(second).wrapping_add(a))
        })
    }

    fn read(bytes: &[u8], at: usize) -> Sum {
        Sum(word(bytes, at, true), word(bytes, at + 4, true))
    }
}

fn word(bytes: &[u8], at: usize, big_endian: bool) -> u32 {
    let bytes = bytes[at..at + 4].try_into().expect("four bytes");
    if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
}

/// The header of the log.
#[derive(Clone, Copy, Debug)]
struct Header {
    page_bytes: usize,
    big_endian: bool,
    /// Number of times that SQLite restarted the log before.
    life: u32,
    salts: [u8; 8],
    sum: Sum,
}

impl Header {
    fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Header> {
        let magic = word(bytes, 0, true);
        let page_bytes = usize::try_from(word(bytes, 8, true)).ok()?;
        let big_endian = magic & 1 == 1;
        let sum = Sum::default().add(&bytes[..24], big_endian);
        let is_whole = magic & !1 == MAGIC
            && (512..=65536).contains(&page_bytes)
            && page_bytes.is_power_of_two()
            && sum == Sum::read(bytes, 24);
        let salts = bytes[16..24].try_into().expect("eight bytes");
        is_whole.then_some(Header { page_bytes, big_endian, life: word(bytes, 12, true), salts, sum })
    }
}

impl Header {
    /// The sum that follows `before` at a frame, if that is whole.
    fn follow(&self, before: Sum, frame: &[u8]) -> Option<Sum> {
        let right = self.sum_of(before, frame);
        let is_whole = frame[8..16] == self.salts && right == Sum::read(frame, 16) && word(frame, 0, true) != 0;
        is_whole.then_some(right)
    }

    /// Returns the state of the `frame` at `offset`, behind one with the sum `before`; its own sum
    /// may be the right one.
    fn state(&self, frame: &[u8], offset: u64, before: Sum, is_right: bool) -> State {
        let differing = frame[8..16].iter().zip(self.salts).filter(|(found, right)| **found != *right).count();
        match (differing, is_right) {
            (0 | 1, true) => State::Whole,
            (0, false) => {
                let suspect = Suspect { bytes: frame, offset, header: *self, right: self.sum_of(before, frame) };
                // The number of its page may be what is wrong.
                let is_page_known = suspect.wrong_word().is_none_or(|at| at >= 8);
                if is_page_known { State::Damaged } else { State::Unknown }
            }
            _ => State::Unknown,
        }
    }

    fn sum_of(&self, before: Sum, frame: &[u8]) -> Sum {
        before.add(&frame[..8], self.big_endian).add(&frame[FRAME_HEADER_BYTES..], self.big_endian)
    }
}

/// A whole frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<'a> {
    /// The first is 1.
    pub(super) number: u64,
    /// The page of the database that it holds.
    pub(super) page: u32,
    /// Its offset in the file.
    pub(super) offset: u64,
    /// All of it, as it lies in the file.
    pub(super) bytes: &'a [u8],
}

impl Frame<'_> {
    /// The page.
    pub(super) fn content(&self) -> &[u8] {
        &self.bytes[FRAME_HEADER_BYTES..]
    }

    /// Pages that the database has after it, if it ends a commit; else 0.
    pub(super) fn pages(&self) -> u32 {
        word(self.bytes, 4, true)
    }
}

/// A frame of a damaged log, judged by the sum that lies in the frame before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judged {
    pub(super) state: State,
    /// The page of the database that it says it holds.
    pub(super) page: u32,
    /// Its offset in the file.
    pub(super) offset: u64,
    /// Pages that the database has after it, if it ends a commit; else 0.
    pub(super) pages: u32,
}

/// The state of a frame of a damaged log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Whole,
    /// Its page is not as it was written.
    Damaged,
    /// Nor is it known which page that was.
    Unknown,
}

/// The content of a log, as SQLite would see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Whole frames, one after another from the first on.
    pub(super) frames: u64,
    /// The last of them that ends a commit, or 0.
    pub(super) committed: u64,
    /// Bytes up to the end of that.
    pub(super) bytes: u64,
    /// The damage that follows, if any.
    pub(super) rot: Option<Rot>,
}

/// Damage in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rot {
    pub(super) why: String,
    /// False if it may as well be a frame that was torn while it was written over an older one.
    pub(super) is_certain: bool,
}

/// The end of a log, as the index of the log tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    /// The number of the last frame, which is not 0.
    pub(super) frame: u32,
    pub(super) page_bytes: usize,
    pub(super) salts: [u8; 8],
    /// The two sums of that frame.
    pub(super) sums: [u32; 2],
}

/// A log, opened.
pub(super) struct Wal {
    file: File,
    path: PathBuf,
    /// Bytes that are read in the place of those in the file, by their offsets.
    corrections: BTreeMap<u64, u8>,
}

impl Wal {
    /// Returns the path of the log of a database.
    pub(super) fn path_of(database: &Path) -> PathBuf {
        beside(database, "-wal")
    }

    /// The log of `database`. None if there is none. SQLite locks nothing in it, so it may be
    /// closed at any time.
    pub(super) fn open(database: &Path) -> Result<Option<Wal>> {
        Wal::open_by(files::options().read(true).write(true), database)
    }

    /// The same, to look at it alone.
    pub(super) fn look(database: &Path) -> Result<Option<Wal>> {
        Wal::open_by(files::options().read(true), database)
    }

    fn open_by(options: &OpenOptions, database: &Path) -> Result<Option<Wal>> {
        let path = Wal::path_of(database);
        match files::open(options, &path) {
            Ok(file) => Ok(Some(Wal { file, path, corrections: BTreeMap::new() })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(source) => Err(Error::Io { what: "cannot open", path, source }),
        }
    }

    fn io(&self, what: &'static str) -> impl FnOnce(std::io::Error) -> Error {
        let path = self.path.clone();
        move |source| Error::Io { what, path, source }
    }

    fn size(&self) -> Result<u64> {
        Ok(self.file.metadata().map_err(self.io("cannot look at"))?.len())
    }

    /// Has `visit` look at each whole frame up to number `last`, in their order.
    pub(super) fn frames(&self, last: u64, visit: &mut dyn FnMut(Frame<'_>) -> Result<()>) -> Result<Found> {
        let size = self.size()?;
        let mut found = Found::default();
        if size < HEADER_BYTES as u64 {
            return Ok(found);
        }
        let mut header = [0; HEADER_BYTES];
        self.read(&mut header, 0)?;
        let Some(header) = Header::decode(&header) else {
            // Nor is one of zeros a header that was not written where frames follow.
            let is_rest = |header| Ok::<_, Error>(header != [0; HEADER_BYTES] || !self.judge(PAGE_DEFAULT)?.is_empty());
            let holds_frames = size > HEADER_BYTES as u64 && is_rest(header)?;
            found.rot = holds_frames.then(|| Rot { why: "its header is damaged".into(), is_certain: true });
            return Ok(found);
        };
        found.bytes = HEADER_BYTES as u64;
        let frame_bytes = FRAME_HEADER_BYTES + header.page_bytes;
        let mut bytes = vec![0; frame_bytes];
        let mut sum = header.sum;
        for (number, offset) in (1..=last).zip((HEADER_BYTES as u64..).step_by(frame_bytes)) {
            if offset + frame_bytes as u64 > size {
                break;
            }
            self.read(&mut bytes, offset)?;
            let Some(right) = header.follow(sum, &bytes) else {
                let right = header.sum_of(sum, &bytes);
                let why = rot(&Suspect { bytes: &bytes, offset, header, right });
                let rot = |why| Rot { why: format!("{why} of frame {number} is wrong"), is_certain: header.life == 0 };
                found.rot = why.map(rot);
                break;
            };
            visit(Frame { number, page: word(&bytes, 0, true), offset, bytes: &bytes })?;
            sum = right;
            found.frames = number;
            if word(&bytes, 4, true) != 0 {
                found.committed = number;
                found.bytes = offset + frame_bytes as u64;
            }
        }
        Ok(found)
    }

    /// The frames of a damaged log with pages of `page_bytes`, up to the last that is whole and
    /// ends a commit. Each sum goes on from the one before it, which lies in the frame before it,
    /// so that frames behind a damaged one can be told from it, and from those of an earlier life
    /// of the log by their salts.
    pub(super) fn judge(&self, page_bytes: usize) -> Result<Vec<Judged>> {
        let (size, frame_bytes) = (self.size()?, FRAME_HEADER_BYTES + page_bytes);
        let mut header = [0; HEADER_BYTES];
        let mut bytes = vec![0; frame_bytes];
        let first = HEADER_BYTES as u64;
        if size < first + frame_bytes as u64 {
            return Ok(Vec::new());
        }
        self.read(&mut header, 0)?;
        let guess = Header {
            page_bytes,
            big_endian: if word(&header, 0, true) & !1 == MAGIC {
                header[3] & 1 == 1
            } else {
                cfg!(target_endian = "big")
            },
            life: word(&header, 12, true),
            salts: self.guess_salts(frame_bytes)?,
            sum: Sum::read(&header, 24),
        };
        let header = Header::decode(&header).unwrap_or(guess);
        let mut judged = Vec::<Judged>::new();
        let mut before = [header.sum; 2];
        for offset in (first..).step_by(frame_bytes).take_while(|at| at + frame_bytes as u64 <= size) {
            self.read(&mut bytes, offset)?;
            let own = Sum::read(&bytes, 16);
            let (page, pages) = (word(&bytes, 0, true), word(&bytes, 4, true));
            let from = before.into_iter().find(|before| header.sum_of(*before, &bytes) == own && page != 0);
            let state = header.state(&bytes, offset, before[0], from.is_some());
            if let (Some(last), State::Whole) = (judged.last_mut(), state)
                && last.state == State::Damaged
                && from != Some(before[0])
            {
                // Only the sum in it was not as it was written.
                last.state = State::Whole;
            }
            judged.push(Judged { state, page, offset, pages });
            before = [own, header.sum_of(before[0], &bytes)];
        }
        let end = judged.iter().rposition(|frame| frame.state == State::Whole && frame.pages > 0);
        judged.truncate(end.map_or(0, |end| end + 1));
        Ok(judged)
    }

    /// The salts of the first of the frames of `frame_bytes` that has any.
    fn guess_salts(&self, frame_bytes: usize) -> Result<[u8; 8]> {
        let (size, mut header) = (self.size()?, [0; FRAME_HEADER_BYTES]);
        let offsets = (HEADER_BYTES as u64..).step_by(frame_bytes);
        for offset in offsets.take_while(|at| at + frame_bytes as u64 <= size) {
            self.read(&mut header, offset)?;
            if header[8..16] != [0; 8] {
                break;
            }
        }
        Ok(header[8..16].try_into().expect("eight bytes"))
    }

    /// Bytes of a page, as the header says, if that is whole.
    pub(super) fn page_bytes(&self) -> Result<Option<usize>> {
        if self.size()? < HEADER_BYTES as u64 {
            return Ok(None);
        }
        let mut header = [0; HEADER_BYTES];
        self.read(&mut header, 0)?;
        Ok(Header::decode(&header).map(|header| header.page_bytes))
    }

    /// Sees that the frames behind number `copied` up to number `last` are as SQLite wrote them.
    /// The first follows the sum that lies in the frame before it, so that none is read twice.
    pub(super) fn verify(&self, copied: u64, last: u64) -> Result<()> {
        if copied >= last {
            return Ok(());
        }
        let damaged = |what: String| {
            Error::Corrupt(format!(
                "{what} of the write-ahead log {} is not as it was written, so nothing is copied from it into the \
                 database: copy what you need from the mount, then unmount it",
                self.path.display()
            ))
        };
        let mut bytes = [0; HEADER_BYTES];
        self.read(&mut bytes, 0)?;
        let header = Header::decode(&bytes).ok_or_else(|| damaged("the header".into()))?;
        let frame_bytes = FRAME_HEADER_BYTES + header.page_bytes;
        let place = |number: u64| HEADER_BYTES as u64 + (number - 1) * frame_bytes as u64;
        let mut sum = header.sum;
        if copied > 0 {
            let mut bytes = [0; FRAME_HEADER_BYTES];
            self.read(&mut bytes, place(copied))?;
            sum = Sum::read(&bytes, 16);
        }
        let mut bytes = vec![0; frame_bytes * VERIFIED_FRAMES];
        let mut number = copied + 1;
        while number <= last {
            let count = usize::try_from(last - number + 1).map_or(VERIFIED_FRAMES, |count| count.min(VERIFIED_FRAMES));
            let read = &mut bytes[..count * frame_bytes];
            self.read(read, place(number))?;
            for frame in read.chunks_exact(frame_bytes) {
                sum = header.follow(sum, frame).ok_or_else(|| damaged(format!("frame {number}")))?;
                number += 1;
            }
        }
        Ok(())
    }

    /// True if the log has the frame that is the last one by its index.
    pub(super) fn has(&self, end: &End) -> Result<bool> {
        let frame_bytes = (FRAME_HEADER_BYTES + end.page_bytes) as u64;
        let at = HEADER_BYTES as u64 + u64::from(end.frame - 1) * frame_bytes;
        if self.size()? < at + frame_bytes {
            return Ok(false);
        }
        let mut bytes = [0; FRAME_HEADER_BYTES];
        self.read(&mut bytes, at)?;
        Ok(bytes[8..16] == end.salts && Sum::read(&bytes, 16) == Sum(end.sums[0], end.sums[1]))
    }

    fn read(&self, bytes: &mut [u8], at: u64) -> Result<()> {
        self.file.read_exact_at(bytes, at).map_err(self.io("cannot read"))?;
        for (place, byte) in self.corrections.range(at..at + bytes.len() as u64) {
            // Its place in a buffer is no larger than that.
            bytes[usize::try_from(place - at).expect("in the buffer")] = *byte;
        }
        Ok(())
    }

    /// The page in the frame at `offset`, which is as long as `page`.
    pub(super) fn read_page(&self, page: &mut [u8], offset: u64) -> Result<()> {
        self.read(page, offset + FRAME_HEADER_BYTES as u64)
    }

    /// Rewrites frames 1 to `last`, each verified, cuts off what follows and syncs the file.
    /// Without error, all of them are on the disk, whatever became of earlier writes. `visit` looks
    /// at each.
    pub(super) fn rewrite(&self, last: u64, visit: &mut dyn FnMut(Frame<'_>)) -> Result<()> {
        let mut header = [0; HEADER_BYTES];
        let mut end = 0;
        if last > 0 {
            self.read(&mut header, 0)?;
            self.file.write_all_at(&header, 0).map_err(self.io("cannot write"))?;
            let found = self.frames(last, &mut |frame| {
                visit(frame);
                self.file.write_all_at(frame.bytes, frame.offset).map_err(self.io("cannot write"))
            })?;
            if found.committed != last {
                let (path, whole) = (self.path.display(), found.frames);
                let what = format!("{path} lost writes: it has {whole} whole frames of {last}; unmount the volume");
                return Err(Error::Corrupt(what));
            }
            end = found.bytes;
        }
        // A commit that failed may lie there as a whole, and would be one after a crash.
        self.file.set_len(end).map_err(self.io("cannot cut"))?;
        self.file.sync_all().map_err(self.io("cannot sync"))
    }
}

/// A frame that is not whole.
struct Suspect<'a> {
    bytes: &'a [u8],
    /// Its offset in the file.
    offset: u64,
    header: Header,
    /// The sum that it should have.
    right: Sum,
}

/// Returns the part of a frame in which one byte is wrong, if that is all.
fn rot(frame: &Suspect<'_>) -> Option<&'static str> {
    let differing = |from: usize, expected: &[u8]| {
        let places = (from..).zip(&frame.bytes[from..]).zip(expected);
        places.filter(|((_, a), b)| a != b).map(|((at, _), _)| at).collect::<Vec<_>>()
    };
    let sum = [frame.right.0.to_be_bytes(), frame.right.1.to_be_bytes()].concat();
    // Numbers of pages, salts and checksums are not 0, and sectors end between them.
    if (0..FRAME_HEADER_BYTES).step_by(8).any(|at| !frame.was_written(at)) {
        return None;
    }
    match (&differing(8, &frame.header.salts)[..], &differing(16, &sum)[..]) {
        ([_], []) => Some("one byte in the salts"),
        ([], [_]) => Some("one byte in the checksum"),
        ([], _) if frame.wrong_word().is_some() => Some("one byte in the content"),
        _ => None,
    }
}

impl Suspect<'_> {
    /// True if anything but zeros lies in the sector of byte `at`: what was never written is zeros.
    /// SQLite writes header and page one after the other, so that a sector that both share may have
    /// been written in between.
    fn was_written(&self, at: usize) -> bool {
        let part = |at: usize| ((self.offset + at as u64) / SECTOR_BYTES, at < FRAME_HEADER_BYTES);
        self.bytes.iter().enumerate().any(|(other, byte)| *byte != 0 && part(other) == part(at))
    }

    /// Returns the offset of the word in which one changed byte would make the checksum right. A
    /// sector of zeros and a single other byte is taken for rot now and then, if it was not
    /// written: that is refused, and not lost.
    fn wrong_word(&self) -> Option<usize> {
        self.wrong_words(|at| self.was_written(at)).first().map(|(at, _)| *at)
    }

    /// The words among those that `may` be wrong in which one changed byte would make the checksum
    /// right, from the last one on, with their offsets and what they then are. The sums are linear:
    /// a change of a word by *d* changes both by *d* times a number that follows from the word's
    /// place alone. The numbers of some places differ by a multiple of 256 or more, so that a
    /// change of the highest byte may fit at several of them.
    fn wrong_words(&self, may: impl Fn(usize) -> bool) -> Vec<(usize, u32)> {
        let stored = Sum::read(self.bytes, 16);
        let wanted = (stored.0.wrapping_sub(self.right.0), stored.1.wrapping_sub(self.right.1));
        let places = (0..8).step_by(4).chain((FRAME_HEADER_BYTES..self.bytes.len()).step_by(4)).collect::<Vec<_>>();
        let mut found = Vec::new();
        // How a change by 1 of the first and of the second word of a pair shows in the sums after
        // the last pair.
        let (mut first, mut second) = ((1u32, 1u32), (0u32, 1u32));
        for pair in places.chunks_exact(2).rev() {
            for (weight, at) in [(first, pair[0]), (second, pair[1])] {
                let old = word(self.bytes, at, self.header.big_endian);
                let fits = |change: &u32| {
                    let differs = old ^ old.wrapping_add(*change);
                    let is_one_byte = differs.leading_zeros() / 8 + differs.trailing_zeros() / 8 == 3;
                    is_one_byte && (weight.0.wrapping_mul(*change), weight.1.wrapping_mul(*change)) == wanted
                };
                if let Some(change) = changes().find(fits)
                    && may(at)
                {
                    found.push((at, old.wrapping_add(change)));
                }
            }
            let through = |(a, b): (u32, u32)| {
                let a = a.wrapping_add(b);
                (a, b.wrapping_add(a))
            };
            (first, second) = (through(first), through(second));
        }
        found
    }
}

/// All ways in which a word changes if one byte of it does.
fn changes() -> impl Iterator<Item = u32> {
    (0..4).flat_map(|byte| (1..256u32).flat_map(move |by| [by << (8 * byte), (by << (8 * byte)).wrapping_neg()]))
}
