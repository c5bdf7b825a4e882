//! The encoding of records: a letter, the length of the rest in four bytes, the rest. Numbers are
//! little endian. `docs/reference/stream.md` says what stands where.

use super::frame::{FrameReader, FrameWriter};
use super::record::{Part, Record, Snapshot, StreamCommit, StreamCounts, StreamVolume};
use super::wrong;
use crate::Name;
use crate::error::Result;
use crate::past::HistoryFor;
use crate::row::{CommitNo, Cookie, Ino, InodeRow, Span, Timestamp};
use crate::store::{BlockHome, VolumeOptions};
use std::io::Read;
use weft_block::Slice;
use weft_digest::{Digest, Kind, digest};

/// Most bytes in a record: a block of the largest size, and what stands before it.
const RECORD_BYTES_MAX: usize = (4 << 20) + 4096;

/// Most snapshots of one commit.
const SNAPSHOTS_MAX: u32 = 1 << 16;

/// Writes records into frames.
pub(super) struct RecordWriter<'a> {
    frames: FrameWriter<'a>,
    body: Vec<u8>,
    /// Counts since the last part began.
    pub(super) counts: StreamCounts,
}

impl<'a> RecordWriter<'a> {
    pub(super) fn new(frames: FrameWriter<'a>) -> RecordWriter<'a> {
        RecordWriter { frames, body: Vec::new(), counts: StreamCounts::default() }
    }

    pub(super) fn put(&mut self, record: &Record) -> Result<()> {
        self.counts.count(record);
        self.body.clear();
        let letter = encode(record, &mut self.body);
        let length = u32::try_from(self.body.len()).expect("records are bounded by what a volume holds");
        self.frames.put(&[letter])?;
        self.frames.put(&length.to_le_bytes())?;
        self.frames.put(&self.body)
    }

    /// Ends a part. Returns its counts.
    pub(super) fn end_part(&mut self) -> Result<StreamCounts> {
        let counts = std::mem::take(&mut self.counts);
        self.put(&Record::PartEnd(counts))?;
        Ok(counts)
    }

    pub(super) fn finish(mut self) -> Result<u64> {
        self.put(&Record::End)?;
        self.frames.finish()
    }
}

/// Reads records from frames.
pub(super) struct RecordReader<R> {
    frames: FrameReader<R>,
    body: Vec<u8>,
    pub(super) counts: StreamCounts,
    position: Position,
}

/// A place between two records of a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Position {
    /// Records of the part before it.
    pub(super) records: u64,
    /// CRC-32C of those, access times apart: they may be others when the same commit is sent again.
    pub(super) sum: u32,
}

impl Position {
    fn pass(&mut self, (letter, body): (u8, &[u8]), record: &Record) {
        let of_row;
        let body = match record {
            Record::Inode { row, .. } => {
                of_row = row_digest(row);
                &of_row[..]
            }
            _ => body,
        };
        self.records += 1;
        self.sum = crc32c::crc32c_append(crc32c::crc32c_append(self.sum, &[letter]), body);
    }
}

impl<R: Read> RecordReader<R> {
    pub(super) fn new(frames: FrameReader<R>) -> RecordReader<R> {
        RecordReader { frames, body: Vec::new(), counts: StreamCounts::default(), position: Position::default() }
    }

    /// Begins a part.
    pub(super) fn begin_part(&mut self) {
        (self.counts, self.position) = (StreamCounts::default(), Position::default());
    }

    /// Returns the place behind the last record.
    pub(super) fn position(&self) -> Position {
        self.position
    }

    /// Returns the number of bytes that were read.
    pub(super) fn read(&self) -> u64 {
        self.frames.read()
    }

    pub(super) fn next(&mut self) -> Result<Record> {
        let mut head = [0; 5];
        self.frames.take(&mut head)?;
        let length = u32::from_le_bytes(head[1..].try_into().expect("four bytes"));
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > RECORD_BYTES_MAX {
            return Err(wrong("a record is longer than any can be"));
        }
        self.body.resize(length, 0);
        self.frames.take(&mut self.body)?;
        let mut bytes = Bytes(&self.body);
        let record = decode(head[0], &mut bytes)?;
        if !bytes.0.is_empty() {
            return Err(wrong("a record is longer than what it holds"));
        }
        self.counts.count(&record);
        self.position.pass((head[0], &self.body), &record);
        Ok(record)
    }

    /// Fails unless the stream ends here.
    pub(super) fn end(&mut self) -> Result<()> {
        self.frames.end()
    }
}

/// Returns the digest of the row of an inode, but for its access time.
pub(super) fn row_digest(row: &InodeRow) -> Digest {
    let mut bytes = Vec::new();
    put_row(&mut bytes, &InodeRow { atime: Timestamp(0), ..row.clone() });
    digest(&bytes)
}

fn put(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_short(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_span(out: &mut Vec<u8>, span: Span) {
    put(out, span.start);
    put_short(out, span.length);
}

fn put_time(out: &mut Vec<u8>, time: Timestamp) {
    out.extend_from_slice(&time.0.to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_short(out, u32::try_from(bytes.len()).expect("bounded by what a volume holds"));
    out.extend_from_slice(bytes);
}

fn put_some<T>(out: &mut Vec<u8>, value: Option<T>, put: impl FnOnce(&mut Vec<u8>, T)) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        put(out, value);
    }
}

fn put_digest(out: &mut Vec<u8>, digest: Digest) {
    out.extend_from_slice(&digest);
}

fn put_row(out: &mut Vec<u8>, row: &InodeRow) {
    put(out, row.ino.0);
    out.push(row.kind.letter());
    for number in [row.generation, row.permissions, row.uid, row.gid, row.nlink, row.rdev, row.xattrs] {
        put_short(out, number);
    }
    [row.size, row.allocated, row.parent.0].into_iter().for_each(|number| put(out, number));
    [row.atime, row.mtime, row.ctime, row.btime].into_iter().for_each(|time| put_time(out, time));
    put_some(out, row.inline.as_ref(), |out, inline| put_bytes(out, inline));
}

fn put_commit(out: &mut Vec<u8>, commit: StreamCommit) {
    put(out, commit.number.0);
    put_time(out, commit.time);
    put_some(out, commit.root, put_digest);
}

fn put_volume(out: &mut Vec<u8>, volume: &StreamVolume) {
    let VolumeOptions { block_size, inline_max, home, bytes_max, inodes_max, digests, own_table_from } = volume.options;
    out.extend_from_slice(&volume.uuid);
    put_time(out, volume.created);
    put_short(out, block_size);
    put_short(out, inline_max);
    out.extend([home == BlockHome::Segments, digests, volume.in_files].map(u8::from));
    [bytes_max, inodes_max, own_table_from].into_iter().for_each(|number| put_some(out, number, put));
    put_some(out, volume.history.as_ref(), |out, (rule, readers)| {
        put_bytes(out, rule.as_bytes());
        put_bytes(out, readers.name().as_bytes());
    });
}

fn put_part(out: &mut Vec<u8>, part: &Part) {
    put_some(out, part.from, put_commit);
    put_commit(out, part.to);
    put(out, part.next_id);
    put(out, part.bytes_about);
    put_short(out, u32::try_from(part.snapshots.len()).expect("few snapshots of one commit"));
    for snapshot in &part.snapshots {
        put_bytes(out, &snapshot.name);
        put_time(out, snapshot.made);
        put_some(out, snapshot.held_until, put_time);
    }
}

/// Encodes `record` into `out`; returns its letter.
fn encode(record: &Record, out: &mut Vec<u8>) -> u8 {
    match record {
        Record::Volume(volume) => put_volume(out, volume),
        Record::Part(part) => put_part(out, part),
        Record::Inode { base, row } => {
            put_some(out, *base, put_digest);
            put_row(out, row);
        }
        Record::Xattr { name, value } => {
            put_bytes(out, name.as_bytes());
            put_some(out, value.as_ref(), |out, value| put_bytes(out, value));
        }
        Record::Clear { range } => [range.start, range.end].into_iter().for_each(|number| put(out, number)),
        Record::Block { span, base, bytes } => {
            put_span(out, *span);
            put(out, *base);
            out.extend_from_slice(bytes);
        }
        Record::Shared { span, ino, at } => {
            put_span(out, *span);
            [ino.0, *at].into_iter().for_each(|number| put(out, number));
        }
        Record::Gone { ino, base } => {
            put(out, ino.0);
            put_digest(out, *base);
        }
        Record::Directory { ino } => put(out, ino.0),
        Record::Name { name, ino, kind, cookie } => {
            put(out, ino.0);
            out.push(kind.letter());
            put(out, cookie.0);
            out.extend_from_slice(name.as_bytes());
        }
        Record::NoName { name } => out.extend_from_slice(name.as_bytes()),
        Record::PartEnd(counts) => {
            let StreamCounts { inodes, gone, names, blocks, bytes } = *counts;
            [inodes, gone, names, blocks, bytes].into_iter().for_each(|number| put(out, number));
        }
        Record::End => {}
    }
    letter(record)
}

fn letter(record: &Record) -> u8 {
    match record {
        Record::Volume(_) => b'v',
        Record::Part(_) => b'p',
        Record::Inode { .. } => b'i',
        Record::Xattr { .. } => b'x',
        Record::Clear { .. } => b'c',
        Record::Block { .. } => b'b',
        Record::Shared { .. } => b's',
        Record::Gone { .. } => b'g',
        Record::Directory { .. } => b'd',
        Record::Name { .. } => b'n',
        Record::NoName { .. } => b'm',
        Record::PartEnd(_) => b'e',
        Record::End => b'z',
    }
}

/// The rest of a record.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) =
            self.0.split_at_checked(count).ok_or_else(|| wrong("a record is shorter than what it holds"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.take(N)?.try_into().expect("as many as were asked for"))
    }

    fn byte(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    fn flag(&mut self) -> Result<bool> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(wrong("a flag is neither 0 nor 1")),
        }
    }

    fn short(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// A number that a volume can hold.
    fn number(&mut self) -> Result<u64> {
        let number = u64::from_le_bytes(self.array()?);
        match i64::try_from(number) {
            Ok(_) => Ok(number),
            Err(_) => Err(wrong("a number is negative or too large")),
        }
    }

    fn span(&mut self) -> Result<Span> {
        Ok(Span { start: self.number()?, length: self.short()? })
    }

    fn time(&mut self) -> Result<Timestamp> {
        Ok(Timestamp(i64::from_le_bytes(self.array()?)))
    }

    fn bytes(&mut self) -> Result<&'a [u8]> {
        let count = self.short()?;
        self.take(usize::try_from(count).unwrap_or(usize::MAX))
    }

    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    fn some<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<Option<T>> {
        if self.flag()? { read(self).map(Some) } else { Ok(None) }
    }

    fn ino(&mut self) -> Result<Ino> {
        self.number().map(Ino)
    }

    fn kind(&mut self) -> Result<Kind> {
        Kind::from_letter(self.byte()?).ok_or_else(|| wrong("there is a kind of file that it does not know"))
    }

    fn commit(&mut self) -> Result<StreamCommit> {
        let number = CommitNo(self.number()?);
        Ok(StreamCommit { number, time: self.time()?, root: self.some(Self::array)? })
    }

    fn name(&mut self) -> Result<Name> {
        let bytes = self.rest();
        Name::new(bytes).map_err(|why| wrong(&format!("there is an entry '{}': {why}", bytes.escape_ascii())))
    }

    fn row(&mut self) -> Result<InodeRow> {
        let (ino, kind) = (self.ino()?, self.kind()?);
        let mut shorts = [0; 7];
        for short in &mut shorts {
            *short = self.short()?;
        }
        let [generation, permissions, uid, gid, nlink, rdev, xattrs] = shorts;
        let (size, allocated, parent) = (self.number()?, self.number()?, self.ino()?);
        let (atime, mtime, ctime, btime) = (self.time()?, self.time()?, self.time()?, self.time()?);
        let inline = self.some(|bytes| Ok(Slice::from(bytes.bytes()?.to_vec())))?;
        if permissions > 0o7777 {
            return Err(wrong(&format!("the permissions of inode {} are none", ino.0)));
        }
        Ok(InodeRow {
            ino,
            generation,
            kind,
            permissions,
            uid,
            gid,
            nlink,
            rdev,
            size,
            allocated,
            atime,
            mtime,
            ctime,
            btime,
            parent,
            xattrs,
            inline,
        })
    }

    fn volume(&mut self) -> Result<StreamVolume> {
        let (uuid, created) = (self.array()?, self.time()?);
        let (block_size, inline_max) = (self.short()?, self.short()?);
        let home = if self.flag()? { BlockHome::Segments } else { BlockHome::Database };
        let (digests, in_files) = (self.flag()?, self.flag()?);
        let (bytes_max, inodes_max) = (self.some(Self::number)?, self.some(Self::number)?);
        let own_table_from = self.some(Self::number)?;
        let history = self.some(Self::history)?;
        let options = VolumeOptions { block_size, inline_max, home, bytes_max, inodes_max, digests, own_table_from };
        options.check()?;
        Ok(StreamVolume { uuid, created, options, in_files, history })
    }

    fn history(&mut self) -> Result<(String, HistoryFor)> {
        let unknown = || wrong("its rule of history is none");
        let rule = std::str::from_utf8(self.bytes()?).map_err(|_| unknown())?.to_owned();
        let readers = std::str::from_utf8(self.bytes()?).ok().and_then(HistoryFor::named).ok_or_else(unknown)?;
        rule.parse::<crate::Rule>().map_err(|_| unknown())?;
        Ok((rule, readers))
    }

    fn part(&mut self) -> Result<Part> {
        let (from, to) = (self.some(Self::commit)?, self.commit()?);
        let (next_id, bytes_about) = (self.number()?, self.number()?);
        let count = self.short()?;
        if count > SNAPSHOTS_MAX {
            return Err(wrong("it has too many snapshots of one commit"));
        }
        let snapshots = (0..count).map(|_| self.snapshot()).collect::<Result<_>>()?;
        Ok(Part { from, to, next_id, bytes_about, snapshots })
    }

    fn snapshot(&mut self) -> Result<Snapshot> {
        Ok(Snapshot { name: self.bytes()?.to_vec(), made: self.time()?, held_until: self.some(Self::time)? })
    }

    fn counts(&mut self) -> Result<StreamCounts> {
        let (inodes, gone, names) = (self.number()?, self.number()?, self.number()?);
        Ok(StreamCounts { inodes, gone, names, blocks: self.number()?, bytes: self.number()? })
    }

    fn xattr(&mut self) -> Result<Record> {
        let name = Name::of_xattr(self.bytes()?).map_err(|why| wrong(&format!("an attribute: {why}")))?;
        Ok(Record::Xattr { name, value: self.some(|bytes| Ok(bytes.bytes()?.to_vec()))? })
    }
}

fn decode(letter: u8, bytes: &mut Bytes<'_>) -> Result<Record> {
    Ok(match letter {
        b'v' => Record::Volume(bytes.volume()?),
        b'p' => Record::Part(bytes.part()?),
        b'i' => Record::Inode { base: bytes.some(Bytes::array)?, row: bytes.row()? },
        b'x' => bytes.xattr()?,
        b'c' => Record::Clear { range: bytes.number()?..bytes.number()? },
        b'b' => Record::Block { span: bytes.span()?, base: bytes.number()?, bytes: bytes.rest().to_vec() },
        b's' => Record::Shared { span: bytes.span()?, ino: bytes.ino()?, at: bytes.number()? },
        b'g' => Record::Gone { ino: bytes.ino()?, base: bytes.array()? },
        b'd' => Record::Directory { ino: bytes.ino()? },
        b'n' => {
            let (ino, kind, cookie) = (bytes.ino()?, bytes.kind()?, Cookie(bytes.number()?));
            Record::Name { ino, kind, cookie, name: bytes.name()? }
        }
        b'm' => Record::NoName { name: bytes.name()? },
        b'e' => Record::PartEnd(bytes.counts()?),
        b'z' => Record::End,
        _ => return Err(wrong("there is a record that this program does not know")),
    })
}
