//! Pages of the database by their numbers, and as the last commit left them.
//!
//! They are read past SQLite, by files of this process: closing a file of the database drops
//! SQLite's locks on it, so that nothing may have it open.

use super::wal::Wal;
use crate::error::Result;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes of the header of a database.
const HEADER_BYTES: usize = 100;

/// Pages of a database, a bit each.
#[derive(Debug)]
pub(super) struct PageSet {
    bits: Vec<u8>,
    /// The last page that there is.
    last: u32,
}

impl PageSet {
    /// None of the pages 1 to `last`.
    pub(super) fn new(last: u32) -> PageSet {
        PageSet { bits: vec![0; last as usize / 8 + 1], last }
    }

    /// Adds `page`. False if it is there already, or beyond the last one.
    pub(super) fn insert(&mut self, page: u32) -> bool {
        let is_new = page > 0 && page <= self.last && !self.has(page);
        if is_new {
            self.bits[page as usize / 8] |= 1 << (page % 8);
        }
        is_new
    }

    /// True if `page` is one of them.
    pub(super) fn has(&self, page: u32) -> bool {
        self.bits.get(page as usize / 8).is_some_and(|bits| bits & 1 << (page % 8) != 0)
    }
}

/// The pages of a database as its last commit left them: in the file, or in the write-ahead log.
pub(super) struct Committed<'a> {
    file: &'a File,
    page_bytes: usize,
    last: u32,
    /// The log, and the offsets of the newest frames in it by their pages.
    wal: Option<(&'a Wal, BTreeMap<u32, u64>)>,
}

impl<'a> Committed<'a> {
    /// The pages of `file` by itself.
    pub(super) fn alone(file: &'a File) -> io::Result<Committed<'a>> {
        let page_bytes = page_bytes(&header(file)?);
        let last = u32::try_from(file.metadata()?.len() / page_bytes as u64).unwrap_or(u32::MAX);
        Ok(Committed { file, page_bytes, last, wal: None })
    }

    /// These pages with those of `wal` that were committed.
    pub(super) fn with(self, wal: &'a Wal) -> Result<Committed<'a>> {
        let (mut committed, mut begun) = (BTreeMap::new(), BTreeMap::new());
        let mut pages = None;
        wal.frames(u64::MAX, &mut |frame| {
            begun.insert(frame.page, frame.offset);
            if frame.pages() != 0 {
                committed.append(&mut begun);
                pages = Some(frame.pages());
            }
            Ok(())
        })?;
        Ok(Committed { last: pages.unwrap_or(self.last), wal: Some((wal, committed)), ..self })
    }

    /// Bytes of a page.
    pub(super) fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// The last page that there is.
    pub(super) fn last(&self) -> u32 {
        self.last
    }

    /// Reads page `number` into `page`, which is as long as one.
    pub(super) fn read(&self, number: u32, page: &mut [u8]) -> io::Result<()> {
        let frame = self.wal.as_ref().and_then(|(wal, frames)| Some((wal, *frames.get(&number)?)));
        match frame {
            Some((wal, offset)) => wal.read_page(page, offset).map_err(io::Error::other),
            None => self.file.read_exact_at(page, u64::from(number - 1) * self.page_bytes as u64),
        }
    }
}

/// The header of the database `file`.
pub(super) fn header(file: &File) -> io::Result<[u8; HEADER_BYTES]> {
    let mut header = [0; HEADER_BYTES];
    file.read_exact_at(&mut header, 0)?;
    Ok(header)
}

/// Bytes of a page, as `header` says (file format, 1.3.2).
fn page_bytes(header: &[u8]) -> usize {
    match u16::from_be_bytes([header[16], header[17]]) {
        1 => 65536,
        bytes => usize::from(bytes).max(512),
    }
}

/// The number at `at` in bytes of a database.
pub(super) fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}
