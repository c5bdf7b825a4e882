//! Pages of a write-ahead log, which lie over those of the database.
//!
//! Of a whole log, or a torn one, the frames count that SQLite would take. Where a log is damaged,
//! frames behind the damage that are whole and of the same life of the log are taken as well, if it
//! is known of each damaged one which page it held: of that page rows whose sums hold are left,
//! unless a later frame has it. Where it is not known, an older version of that page would pass for
//! the newest one, so that only the frames before the damage count.
//!
//! A commit writes its pages in the order of their numbers, the volume's row among them. That tells
//! the page of a frame whose number is damaged, if only one is left for it.

use crate::error::{Error, Result};
use crate::sqlite::gap::VOLUME_PAGE;
use crate::sqlite::wal::{Judged, State, Wal};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Pages of a log.
#[derive(Clone)]
pub(super) struct LogPages {
    wal: Arc<Wal>,
    page_bytes: usize,
    /// Offsets of the frames of pages.
    frames: HashMap<u32, u64>,
    /// Pages whose newest version is damaged. As in the database, rows in them count if their sums
    /// hold.
    damaged: BTreeSet<u32>,
    count: u32,
}

/// The pages of a log, as SQLite would take them, and with those behind damage.
pub(super) struct Log {
    pub(super) taken: LogPages,
    /// Whole frames that `taken` is of.
    pub(super) frames: u64,
    /// All whole frames, where commits lie behind those and it is known which pages are gone.
    pub(super) behind: Option<LogPages>,
    /// Number of those.
    pub(super) all: usize,
    /// The damage, if it cannot be what a power cut leaves.
    pub(super) damage: Option<String>,
    /// Descriptions of damage that the log itself puts right.
    pub(super) corrected: Vec<String>,
}

impl Log {
    /// Reads the pages of `wal`, over a database with pages of `page_bytes`.
    pub(super) fn read(mut wal: Wal, page_bytes: usize) -> Result<Log> {
        let corrected = wal.correct(page_bytes, super::holds)?;
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
        let judged = wal.judge(page_bytes)?;
        let taken = LogPages { wal: Arc::new(wal), page_bytes, frames, damaged: BTreeSet::new(), count };
        let behind = if judged.len() as u64 > found.committed { taken.go_on(judged) } else { None };
        let (behind, all) = behind.map_or((None, 0), |(behind, all)| (Some(behind), all));
        let damage = found.rot.map(|rot| rot.why);
        Ok(Log { taken, frames: found.committed, behind, all, damage, corrected })
    }
}

impl LogPages {
    /// The same with all whole frames of a damaged log, and their number. None if the pages of the
    /// others are not known.
    fn go_on(&self, mut judged: Vec<Judged>) -> Option<(LogPages, usize)> {
        infer_pages(&mut judged);
        let count = judged.iter().filter(|frame| frame.state == State::Whole).map(|frame| frame.pages).max();
        let count = count.unwrap_or(0);
        let is_known =
            |frame: &Judged| frame.state == State::Whole || frame.state == State::Damaged && frame.page <= count;
        if !judged.iter().all(is_known) {
            return None;
        }
        let (wal, page_bytes) = (self.wal.clone(), self.page_bytes);
        let mut all = LogPages { wal, page_bytes, frames: HashMap::new(), damaged: BTreeSet::new(), count };
        for frame in &judged {
            all.frames.insert(frame.page, frame.offset);
            if frame.state == State::Whole {
                all.damaged.remove(&frame.page);
            } else {
                all.damaged.insert(frame.page);
            }
        }
        Some((all, judged.iter().filter(|frame| frame.state == State::Whole).count()))
    }

    /// The log.
    pub(super) fn wal(&self) -> &Wal {
        &self.wal
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
        self.frames.is_empty()
    }

    /// True if the newest version of a page is damaged.
    pub(super) fn has_damaged(&self) -> bool {
        !self.damaged.is_empty()
    }

    /// Reads page `number` if the log has it; tells whether it could be read.
    pub(super) fn page(&self, number: u32, bytes: &mut [u8]) -> Option<bool> {
        let offset = self.frames.get(&number)?;
        Some(self.wal.read_page(bytes, *offset).is_ok())
    }
}

/// Finds the pages of frames that do not tell it, where only one is left.
fn infer_pages(judged: &mut [Judged]) {
    let unknown = |frame: &Judged| frame.state == State::Unknown;
    for at in (0..judged.len()).filter(|at| unknown(&judged[*at])).collect::<Vec<_>>() {
        let ends = |frame: &Judged| !unknown(frame) && frame.pages > 0;
        let start = judged[..at].iter().rposition(ends).map_or(0, |end| end + 1);
        let Some(end) = judged[at + 1..].iter().position(ends).map(|end| at + 1 + end) else { continue };
        let (before, behind) = (&judged[start..at], &judged[at + 1..=end]);
        let pages = || before.iter().chain(behind).map(|frame| frame.page);
        let is_ordered = pages().is_sorted_by(|one, other| one < other);
        if !is_ordered || before.iter().chain(behind).any(unknown) {
            continue;
        }
        let first = before.last().map_or(1, |frame| frame.page + 1);
        let mut left = first..behind[0].page;
        if left.contains(&VOLUME_PAGE) && pages().all(|page| page != VOLUME_PAGE) {
            left = VOLUME_PAGE..VOLUME_PAGE + 1;
        }
        if left.len() == 1 {
            judged[at] = Judged { state: State::Damaged, page: left.start, ..judged[at] };
        }
    }
}
