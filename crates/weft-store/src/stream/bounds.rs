//! The bounds of what a part says of itself: its counters, times, digest and snapshots.
//!
//! A stream is data from elsewhere. What a receiver adopted of it once stays: counters never go
//! back, commits keep their times, and a snapshot that is held cannot be deleted.

use super::record::{Part, Snapshot};
use super::wrong;
use crate::Name;
use crate::error::{Error, Result};
use crate::past::{Moment, Pin, PinKind};
use crate::row::Timestamp;
use crate::store::Store;
use rustc_hash::FxHashSet;

/// Most that the next number for an inode or a cookie may be. No volume comes to it: at a million
/// new files a second that takes four years. What a mount gives out after it is still far below
/// the numbers of virtual inodes.
pub(super) const NEXT_ID_MAX: u64 = 1 << 47;

/// Most that the number of a commit may be.
pub(super) const COUNTER_MAX: u64 = 1 << 62;

/// Numbers below this are the root's, and those of cookies of `.` and `..`.
pub(super) const FIRST_ID: u64 = 16;

const DAY: i64 = 86_400 * 1_000_000_000;

/// Lead that the clock of a sender may have, in nanoseconds.
const AHEAD_MAX: i64 = DAY;

/// Most time that a hold may last from now on, in nanoseconds.
const HOLD_MAX: i64 = 3653 * DAY;

/// Refuses a part that no volume sends to `store` at the time `now`.
pub(super) fn refuse_part(part: &Part, store: &dyn Store, now: Timestamp) -> Result<()> {
    refuse_numbers(part)?;
    refuse_later(part.to.time, now)?;
    if part.to.root.is_none() && store.header()?.options.digests {
        return Err(Error::Unusable("the stream has no digest of its tree, and the volume here keeps digests".into()));
    }
    refuse_snapshots(part, now)
}

fn refuse_numbers(part: &Part) -> Result<()> {
    if !(FIRST_ID..=NEXT_ID_MAX).contains(&part.next_id) {
        return Err(wrong(&format!("the next inode would have number {}, which none can have", part.next_id)));
    }
    let numbers = part.from.iter().chain([&part.to]).map(|commit| commit.number.0);
    match numbers.into_iter().find(|number| *number > COUNTER_MAX) {
        Some(number) => Err(wrong(&format!("it has a commit {number}, and none has such a number"))),
        None => Ok(()),
    }
}

/// Refuses a time that is later than `now`, as the clock of the sender tells it. Moved to now it
/// would be another commit than the sender knows. Taken as it is, it would be the time of all
/// commits up to then, and no rule of history would tell them apart.
pub(super) fn refuse_later(time: Timestamp, now: Timestamp) -> Result<()> {
    match time.0 > now.0.saturating_add(AHEAD_MAX) {
        true => Err(Error::Unusable(
            "the stream is of a time in the future, by more than a day: the clock here or of the volume that was sent \
             is wrong"
                .into(),
        )),
        false => Ok(()),
    }
}

/// Refuses snapshots that no volume could make.
fn refuse_snapshots(part: &Part, now: Timestamp) -> Result<()> {
    let mut names = FxHashSet::default();
    for Snapshot { name, made, .. } in &part.snapshots {
        let is_name = Name::new(name).is_ok() && std::str::from_utf8(name).is_ok_and(Moment::can_name_snapshot);
        if !is_name || !names.insert(name) {
            let shown = name.escape_ascii();
            return Err(wrong(&format!("a snapshot has the name '{shown}', which none can have, or another one has")));
        }
        refuse_later(*made, now)?;
    }
    Ok(())
}

/// Refuses a snapshot with the name of one that is in `store`.
pub(super) fn refuse_taken_names(part: &Part, store: &dyn Store) -> Result<()> {
    if part.snapshots.is_empty() || store.history()?.is_none() {
        return Ok(());
    }
    let is_taken =
        |pin: &Pin| pin.kind == PinKind::Snapshot && part.snapshots.iter().any(|snapshot| snapshot.name == pin.name);
    match store.pins()?.iter().find(|pin| is_taken(pin)) {
        Some(pin) => Err(Error::Unusable(format!(
            "there is a snapshot '{}' already: give one of the two another name ('weft snapshot rename')",
            pin.name.escape_ascii()
        ))),
        None => Ok(()),
    }
}

/// Shortens holds to what a receiver takes at the time `now`. A hold is a promise of the sender,
/// which nobody who receives it can take back.
pub(super) fn shorten_holds(part: &mut Part, now: Timestamp) {
    let most = Timestamp(now.0.saturating_add(HOLD_MAX));
    part.snapshots
        .iter_mut()
        .for_each(|snapshot| snapshot.held_until = snapshot.held_until.map(|until| until.min(most)));
}
