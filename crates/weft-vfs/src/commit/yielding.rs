//! The bytes that history would yield to the present: df(1) counts them as free.
//!
//! They are counted in the background (`background`), and counted anew now and then while commits
//! are made, the more seldom the longer it takes. What is given back meanwhile is taken off. What
//! commits add to the past is not known before the next count, and nothing is known after a change
//! of snapshots or a restoration: then less is told than there is, never more.

use super::background::Turn;
use crate::volume::Vfs;
use parking_lot::Mutex;
use std::time::Duration;
use weft_store::{CommitNo, Counted, HistoryChange, PastCount, PinKind};
use weft_tree::Result;

/// Versions that are read at once.
const VERSIONS: usize = 1 << 8;

/// Steps of a count that somebody waits for.
const STEPS_MAX: usize = 64;

/// Time between two counts, in nanoseconds.
const COUNT_EVERY: i64 = 10_000_000_000;

/// Share of the time that counts may take: one part in so many.
const SHARE: i64 = 100;

/// Snapshots that a message names.
const NAMED_MAX: usize = 3;

/// Bytes that may become free while there still is no room.
const STILL_SHORT: u64 = 1 << 20;

/// What is known of the bytes that history would yield.
#[derive(Default)]
pub(crate) struct Yielding {
    known: Option<Known>,
    counting: Option<Counting>,
    /// Time before which no other count begins.
    next_at: i64,
    /// The reason that there is no room, and the bytes that were free then.
    no_room: Option<(String, u64)>,
    /// The last commit when it was found out whether snapshots hold any, and the answer: requests
    /// that are refused one after the other count once.
    held: Option<(CommitNo, bool)>,
}

/// The result of a count.
struct Known {
    bytes: u64,
    /// Bytes that the store had given back when it began.
    given_back: u64,
    /// The last commit then.
    commit: CommitNo,
}

/// A count under way.
struct Counting {
    count: PastCount,
    begun: Known,
    took: Duration,
}

/// True if `change` changes what snapshots hold, or ends all of the past.
pub(super) fn changes_pinned(change: &HistoryChange) -> bool {
    match change {
        HistoryChange::Pin(pin) => pin.kind == PinKind::Snapshot,
        HistoryChange::Unpin(_, kind, _) => *kind == PinKind::Snapshot,
        HistoryChange::End => true,
        // What it gives back is counted as that.
        HistoryChange::Empty(_) => false,
        HistoryChange::Keep(..) | HistoryChange::Rename(..) | HistoryChange::First(_) | HistoryChange::Forget(_) => {
            false
        }
    }
}

impl Vfs {
    /// Bytes that history would yield, as far as they are known. None if they are not.
    pub(crate) fn yieldable(&self) -> Option<u64> {
        let given_back = self.store.given_back()?;
        if self.needs_past() {
            return None;
        }
        let yielding = self.yielding.lock();
        let known = yielding.known.as_ref()?;
        Some(known.bytes.saturating_sub(given_back.saturating_sub(known.given_back)))
    }

    /// Has the bytes counted anew that history would yield, after a commit that changed what
    /// snapshots hold, or brought something of the past back.
    pub(crate) fn forget_yieldable(&self) {
        let mut yielding = self.yielding.lock();
        (yielding.known, yielding.counting, yielding.next_at, yielding.no_room) = (None, None, 0, None);
    }

    /// Counts for a while, if a count is due. What fails is tried again later.
    pub(super) fn count_yieldable(&self, turn: &Turn<'_>) {
        if let Err(error) = self.try_count_yieldable(turn) {
            tracing::debug!("the bytes that history would yield are not counted: {error}");
            let mut yielding = self.yielding.lock();
            (yielding.counting, yielding.next_at) = (None, self.now().0.saturating_add(COUNT_EVERY));
        }
    }

    fn try_count_yieldable(&self, turn: &Turn<'_>) -> Result<()> {
        let Some(given_back) = self.store.given_back() else { return Ok(()) };
        let taken = self.yielding.lock().counting.take();
        let mut counting = match taken {
            Some(counting) => counting,
            None => match self.begin_count(given_back)? {
                Some(counting) => counting,
                None => return Ok(()),
            },
        };
        let before = turn.took();
        let has_more = loop {
            let has_more = counting.count.step(&*self.store, VERSIONS)?;
            if !has_more || turn.is_over() {
                break has_more;
            }
        };
        counting.took += turn.took().saturating_sub(before);
        if has_more {
            // A change of snapshots meanwhile has it begin again.
            let mut yielding = self.yielding.lock();
            if yielding.next_at != 0 {
                yielding.counting = Some(counting);
            }
            return Ok(());
        }
        let Counting { count, begun, took } = counting;
        let bytes = count.end(&*self.store)?.blocks.unpinned;
        let pause = i64::try_from(took.as_nanos()).unwrap_or(i64::MAX).saturating_mul(SHARE).max(COUNT_EVERY);
        let mut yielding = self.yielding.lock();
        if yielding.next_at != 0 {
            yielding.known = Some(Known { bytes, ..begun });
            yielding.next_at = self.now().0.saturating_add(pause);
        }
        Ok(())
    }

    /// Begins a count if one is due.
    fn begin_count(&self, given_back: u64) -> Result<Option<Counting>> {
        let commit = self.store.header()?.commit;
        let now = self.now().0;
        {
            let mut yielding = self.yielding.lock();
            let is_same = yielding.known.as_ref().is_some_and(|known| known.commit == commit);
            if is_same || now < yielding.next_at {
                return Ok(None);
            }
            // Not 0: that says that it is not known.
            yielding.next_at = now.max(1);
        }
        let Some(count) = PastCount::begin(&*self.store, Counted::Blocks)? else {
            self.yielding.lock().known = None;
            return Ok(None);
        };
        Ok(Some(Counting { count, begun: Known { bytes: 0, given_back, commit }, took: Duration::ZERO }))
    }

    /// Notes that there is no room, and nothing that history could yield: if snapshots are the
    /// reason, the log and the counters name them.
    pub(super) fn note_no_room(&self, free: u64) -> Result<()> {
        if !self.past.is_kept() {
            return Ok(());
        }
        let pins = self.store.pins()?.into_iter().filter(|pin| pin.kind == PinKind::Snapshot).collect::<Vec<_>>();
        let name = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let named = pins.iter().take(NAMED_MAX).map(|pin| format!("'{}'", name(&pin.name))).collect::<Vec<_>>();
        if named.is_empty() || !self.do_snapshots_hold_any()? {
            return Ok(());
        }
        let more = pins.len() - named.len();
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let (snapshots, keep) = if pins.len() == 1 { ("snapshot", "keeps") } else { ("snapshots", "keep") };
        let why = format!(
            "there is no room left: {snapshots} {}{more} {keep} all of the history that there is; 'weft snapshot delete' \
             gives its space back",
            named.join(", ")
        );
        let mut yielding = self.yielding.lock();
        if yielding.no_room.as_ref().is_none_or(|(before, _)| *before != why) {
            tracing::warn!("{why}");
        }
        yielding.no_room = Some((why, free));
        Ok(())
    }

    /// True if snapshots hold bytes that the present has not, or there is too much to count.
    fn do_snapshots_hold_any(&self) -> Result<bool> {
        let commit = self.store.header()?.commit;
        if let Some((_, hold)) = self.yielding.lock().held.filter(|(as_of, _)| *as_of == commit) {
            return Ok(hold);
        }
        let hold = self.count_held()?;
        self.yielding.lock().held = Some((commit, hold));
        Ok(hold)
    }

    fn count_held(&self) -> Result<bool> {
        let Some(mut count) = PastCount::begin(&*self.store, Counted::All)? else { return Ok(false) };
        for _ in 0..STEPS_MAX {
            if !count.step(&*self.store, VERSIONS)? {
                return Ok(count.end(&*self.store)?.all().pinned > 0);
            }
        }
        Ok(true)
    }

    /// The reason that there is no room, if that is so while so many bytes are `free`.
    pub(crate) fn no_room(&self, free: u64) -> Option<String> {
        let yielding = self.yielding.lock();
        let (why, before) = yielding.no_room.as_ref()?;
        (free <= before.saturating_add(STILL_SHORT)).then(|| why.clone())
    }
}

/// The state behind its lock.
pub(crate) type YieldingState = Mutex<Yielding>;
