//! Pages of a write-ahead log, which lie over those of the database.
//!
//! Of a whole log, or a torn one, the frames count that SQLite would take. Where a log is damaged,
//! frames behind the damage that are whole and of the same life of the log are taken as well, if it
//! is known of each damaged one which page it held: that page is then gone, unless a later frame
//! has it. Where it is not known, an older version of that page would pass for the newest one, so
//! that only the frames before the damage count.

use super::super::wal::{Judged, State, Wal};
use crate::error::{Error, Result};
use std::collections::{BTreeSet, HashMap};

/// Pages of a log.
pub(super) struct Overlay {
    wal: Wal,
    page_bytes: usize,
    /// Offsets of the frames of pages.
    frames: HashMap<u32, u64>,
    /// Pages whose newest version is damaged.
    lost: BTreeSet<u32>,
    count: u32,
}

impl Overlay {
    /// Reads the pages of `wal`, over a database with pages of `page_bytes`; and the reason that
    /// something of it is not used, if so.
    pub(super) fn read(wal: Wal, page_bytes: usize) -> Result<(Overlay, Option<String>)> {
        if let Some(other) = wal.page_bytes()?.filter(|other| *other != page_bytes) {
            return Err(Error::Corrupt(format!("its pages have {other} bytes, those of the database {page_bytes}")));
        }
        let (mut frames, mut pending, mut count) = (HashMap::new(), Vec::new(), 0);
        let found = wal.frames(u64::MAX, &mut |frame| {
            pending.push((frame.page, frame.offset));
            if frame.pages() > 0 {
                frames.extend(pending.drain(..));
                count = count.max(frame.pages());
            }
            Ok(())
        })?;
        let mut overlay = Overlay { wal, page_bytes, frames, lost: BTreeSet::new(), count };
        let Some(rot) = found.rot.map(|rot| rot.why) else { return Ok((overlay, None)) };
        let judged = overlay.wal.judge(page_bytes)?;
        let behind = judged.len() as u64;
        let told = if behind > found.committed && overlay.go_on(&judged) {
            let damaged = judged.iter().filter(|frame| frame.state != State::Whole).count();
            format!("{rot}; {} whole frames before and behind it are used", judged.len() - damaged)
        } else {
            format!(
                "{rot}; the {} whole frames before it are used, and commits behind them are missing",
                found.committed
            )
        };
        Ok((overlay, Some(told)))
    }

    /// Takes whole frames of a damaged log. False if the pages of the others are not known.
    fn go_on(&mut self, judged: &[Judged]) -> bool {
        let count = judged.iter().filter(|frame| frame.state == State::Whole).map(|frame| frame.pages).max();
        let count = count.unwrap_or(0);
        let is_known =
            |frame: &Judged| frame.state == State::Whole || frame.state == State::Damaged && frame.page <= count;
        if !judged.iter().all(is_known) {
            return false;
        }
        for frame in judged {
            if frame.state == State::Whole {
                self.lost.remove(&frame.page);
                self.frames.insert(frame.page, frame.offset);
            } else {
                self.frames.remove(&frame.page);
                self.lost.insert(frame.page);
            }
        }
        self.count = count;
        true
    }

    pub(super) fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Pages that the database has with it.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// True if it changes nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty() && self.lost.is_empty()
    }

    /// Reads page `number` if the log has it; tells whether it could be read.
    pub(super) fn page(&self, number: u32, bytes: &mut [u8]) -> Option<bool> {
        if self.lost.contains(&number) {
            return Some(false);
        }
        let offset = self.frames.get(&number)?;
        Some(self.wal.read_page(bytes, *offset).is_ok())
    }
}
