//! The outer form of a stream: bytes in frames, each with a checksum.
//!
//! A checksum covers the one before, so that no frame can be left out, doubled or moved. Nothing of
//! a frame is handed on before its checksum was compared.

use super::{ended_early, wrong};
use crate::error::{Error, Result};
use std::io::{Read, Write};
use weft_digest::{Digest, digest};

/// The first bytes of a stream.
const MAGIC: [u8; 8] = *b"WEFTSEND";

/// Version of the format of streams.
pub const STREAM_VERSION: u32 = 2;

/// Most bytes in a frame.
pub(super) const FRAME_BYTES_MAX: usize = 1 << 20;

/// Bytes before those of the frame in what its checksum covers: the checksum before, the length.
const COVERED_BEFORE: usize = 32 + 4;

fn cannot(what: &'static str) -> impl FnOnce(std::io::Error) -> Error {
    move |source| Error::Io { what, path: "the stream".into(), source }
}

/// Returns the bytes that a stream begins with.
fn start() -> [u8; 16] {
    let mut start = [0; 16];
    start[..8].copy_from_slice(&MAGIC);
    start[8..12].copy_from_slice(&STREAM_VERSION.to_le_bytes());
    start
}

/// Writes frames.
pub(super) struct FrameWriter<'a> {
    out: &'a mut dyn Write,
    /// The checksum of the last frame, room for the length, and the bytes of the next frame.
    covered: Vec<u8>,
    /// Bytes that were written.
    written: u64,
}

impl<'a> FrameWriter<'a> {
    /// Begins a stream.
    pub(super) fn new(out: &'a mut dyn Write) -> Result<FrameWriter<'a>> {
        let start = start();
        out.write_all(&start).map_err(cannot("cannot write"))?;
        let mut covered = Vec::with_capacity(COVERED_BEFORE + FRAME_BYTES_MAX);
        covered.extend_from_slice(&digest(&start));
        covered.extend_from_slice(&[0; 4]);
        Ok(FrameWriter { out, covered, written: start.len() as u64 })
    }

    /// Adds `bytes`.
    pub(super) fn put(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let room = COVERED_BEFORE + FRAME_BYTES_MAX - self.covered.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.covered.extend_from_slice(now);
            bytes = later;
            if self.covered.len() == COVERED_BEFORE + FRAME_BYTES_MAX {
                self.end_frame()?;
            }
        }
        Ok(())
    }

    fn end_frame(&mut self) -> Result<()> {
        let length = self.covered.len() - COVERED_BEFORE;
        if length == 0 {
            return Ok(());
        }
        let length = u32::try_from(length).expect("a frame is short");
        self.covered[32..COVERED_BEFORE].copy_from_slice(&length.to_le_bytes());
        let sum = digest(&self.covered);
        self.out.write_all(&self.covered[32..]).map_err(cannot("cannot write"))?;
        self.out.write_all(&sum).map_err(cannot("cannot write"))?;
        self.written += self.covered.len() as u64;
        self.covered.truncate(COVERED_BEFORE);
        self.covered[..32].copy_from_slice(&sum);
        Ok(())
    }

    /// Writes the rest. Returns the number of bytes in the stream.
    pub(super) fn finish(mut self) -> Result<u64> {
        self.end_frame()?;
        self.out.flush().map_err(cannot("cannot write"))?;
        Ok(self.written)
    }
}

/// Reads frames.
pub(super) struct FrameReader<R> {
    input: R,
    sum: Digest,
    /// As of [`FrameWriter`], of the frame that is being read.
    covered: Vec<u8>,
    /// Bytes of `covered` that were handed on.
    taken: usize,
    read: u64,
}

impl<R: Read> FrameReader<R> {
    /// Begins to read a stream.
    pub(super) fn new(mut input: R) -> Result<FrameReader<R>> {
        let mut found = [0; 16];
        let count = fill_up(&mut input, &mut found)?;
        let magic = count.min(MAGIC.len());
        match count {
            0 => return Err(Error::Unusable("nothing came, where a stream of 'weft send' should".into())),
            _ if found[..magic] != MAGIC[..magic] => {
                return Err(Error::Unusable("this is no stream of 'weft send'".into()));
            }
            _ if count < found.len() => return Err(ended_early()),
            _ => {}
        }
        let version = u32::from_le_bytes(found[8..12].try_into().expect("four bytes"));
        if version != STREAM_VERSION {
            return Err(Error::Unusable(format!(
                "the stream has version {version}, this program reads {STREAM_VERSION}; use the weft that sent it"
            )));
        }
        if found != start() {
            return Err(wrong("its first bytes are damaged"));
        }
        let sum = digest(&found);
        Ok(FrameReader { input, sum, covered: Vec::new(), taken: 0, read: found.len() as u64 })
    }

    /// Returns the number of bytes that were read.
    pub(super) fn read(&self) -> u64 {
        self.read
    }

    /// Fills `bytes` with the next ones.
    pub(super) fn take(&mut self, mut bytes: &mut [u8]) -> Result<()> {
        while !bytes.is_empty() {
            if self.taken == self.covered.len() && !self.next_frame()? {
                return Err(ended_early());
            }
            let count = bytes.len().min(self.covered.len() - self.taken);
            let (now, later) = bytes.split_at_mut(count);
            now.copy_from_slice(&self.covered[self.taken..self.taken + count]);
            self.taken += count;
            bytes = later;
        }
        Ok(())
    }

    /// Fails unless the stream ends here.
    pub(super) fn end(&mut self) -> Result<()> {
        match self.taken == self.covered.len() && !self.next_frame()? {
            true => Ok(()),
            false => Err(wrong("something follows its end")),
        }
    }

    /// Reads a frame. False at the end of the input.
    fn next_frame(&mut self) -> Result<bool> {
        let mut length = [0; 4];
        if read_some(&mut self.input, &mut length[..1])? == 0 {
            return Ok(false);
        }
        fill(&mut self.input, &mut length[1..])?;
        let count = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
        if count == 0 || count > FRAME_BYTES_MAX {
            return Err(wrong("the length of a part is damaged"));
        }
        self.covered.clear();
        self.covered.extend_from_slice(&self.sum);
        self.covered.extend_from_slice(&length);
        self.covered.resize(COVERED_BEFORE + count, 0);
        fill(&mut self.input, &mut self.covered[COVERED_BEFORE..])?;
        let mut sum = Digest::default();
        fill(&mut self.input, &mut sum)?;
        if digest(&self.covered) != sum {
            let at = self.read;
            return Err(wrong(&format!("the bytes behind byte {at} are not those that were sent")));
        }
        self.sum = sum;
        self.taken = COVERED_BEFORE;
        self.read += (COVERED_BEFORE + count) as u64;
        Ok(true)
    }
}

/// Reads up to as many bytes as `bytes` takes; none at the end.
fn read_some(input: &mut impl Read, bytes: &mut [u8]) -> Result<usize> {
    loop {
        match input.read(bytes) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            read => return read.map_err(cannot("cannot read")),
        }
    }
}

fn fill(input: &mut impl Read, bytes: &mut [u8]) -> Result<()> {
    if fill_up(input, bytes)? < bytes.len() { Err(ended_early()) } else { Ok(()) }
}

/// Fills `bytes` as far as there is something to read; returns how far.
fn fill_up(input: &mut impl Read, bytes: &mut [u8]) -> Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        match read_some(input, &mut bytes[filled..])? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = FrameWriter::new(&mut out).unwrap();
        bytes.chunks(700_001).for_each(|chunk| writer.put(chunk).unwrap());
        let written = writer.finish().unwrap();
        assert_eq!(written, out.len() as u64);
        out
    }

    fn read(stream: &[u8], count: usize) -> Result<Vec<u8>> {
        let mut reader = FrameReader::new(stream)?;
        let mut bytes = vec![0; count];
        reader.take(&mut bytes)?;
        reader.end()?;
        Ok(bytes)
    }

    #[test]
    fn frames_give_back_the_bytes_that_were_put() {
        for count in [0, 1, FRAME_BYTES_MAX - 1, FRAME_BYTES_MAX, FRAME_BYTES_MAX + 1, 3 * FRAME_BYTES_MAX] {
            let bytes: Vec<u8> = (0..count).map(|at| (at % 251) as u8).collect();
            assert_eq!(read(&framed(&bytes), count).unwrap(), bytes);
        }
    }

    #[test]
    fn each_changed_byte_and_each_early_end_is_seen() {
        let bytes = [7; 300];
        let stream = framed(&bytes);
        for at in 0..stream.len() {
            let mut changed = stream.clone();
            changed[at] ^= 1;
            read(&changed, 300).unwrap_err();
            read(&stream[..at], 300).unwrap_err();
        }
        let more = [&stream[..], &[0]].concat();
        read(&more, 300).unwrap_err();
    }

    #[test]
    fn frames_cannot_be_left_out_or_exchanged() {
        let bytes: Vec<u8> = (0..3 * FRAME_BYTES_MAX).map(|at| (at >> 20) as u8).collect();
        let stream = framed(&bytes);
        let frame = 4 + FRAME_BYTES_MAX + 32;
        let parts: Vec<_> = stream[16..].chunks(frame).collect();
        let without = [&stream[..16], parts[0], parts[2]].concat();
        read(&without, 2 * FRAME_BYTES_MAX).unwrap_err();
        let exchanged = [&stream[..16], parts[1], parts[0], parts[2]].concat();
        read(&exchanged, 3 * FRAME_BYTES_MAX).unwrap_err();
    }
}
