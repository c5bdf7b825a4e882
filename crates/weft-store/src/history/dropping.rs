//! The price of another rule: the commits that are kept now, and would not be by it.

use super::due::{dense, is_whole};
use super::kept::refuse_end;
use super::rule::Rule;
use super::thinning::thin;
use crate::error::Result;
use crate::past::{History, PinKind};
use crate::row::{CommitNo, Timestamp};
use crate::store::Store;
use std::collections::BTreeSet;

/// The commits that another rule drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Commits that the present rule keeps and the other one does not. Zero if all of them have
    /// the same tree.
    pub commits: u64,
    /// The oldest commit that stays.
    pub oldest: CommitNo,
}

/// Commits that a rule keeps: `points`, and all from `first` on.
struct Kept {
    points: BTreeSet<CommitNo>,
    first: CommitNo,
}

/// Returns what would be dropped of the history of `store` by `rule` at `now`, or by ending it. It
/// is an estimate: commits that are in use stay as well. None if no history is kept. Errors:
/// `Unusable` if history cannot end; those of the store.
pub fn dropped(store: &dyn Store, rule: Option<&Rule>, now: Timestamp) -> Result<Option<Dropped>> {
    let Some(history) = store.history()? else { return Ok(None) };
    let pins = store.pins()?;
    let of_kind = |kind| pins.iter().filter(move |pin| pin.kind == kind);
    let snapshots = of_kind(PinKind::Snapshot).map(|pin| pin.commit).collect::<BTreeSet<_>>();
    let points = of_kind(PinKind::Point).filter(|pin| pin.commit < history.first);
    let points = points.map(|pin| (pin.commit, pin.made)).collect::<Vec<_>>();
    let last = store.header()?;
    let after = match rule {
        Some(rule) => kept(store, rule, &history, points.clone(), now)?,
        None => {
            refuse_end(of_kind(PinKind::Snapshot))?;
            Kept { points: BTreeSet::new(), first: last.commit }
        }
    };
    // A later program may know more words: what it keeps stays.
    let before = match history.rule.parse::<Rule>() {
        Ok(rule) => kept(store, &rule, &history, points, now)?,
        Err(_) => Kept { points: points.into_iter().map(|(commit, _)| commit).collect(), first: history.first },
    };
    let stays = |commit: &CommitNo| *commit >= after.first || after.points.contains(commit);
    let is_dropped = |commit: &CommitNo| !stays(commit) && !snapshots.contains(commit);
    let points = before.points.iter().filter(|commit| is_dropped(commit)).count() as u64;
    // Of a run that may be long only what stays in it is looked at.
    let run = before.first..after.first.max(before.first);
    let staying = after.points.union(&snapshots).filter(|commit| run.contains(commit)).count() as u64;
    let mut commits = points + (run.end.0 - run.start.0) - staying;
    let oldest_now = before.points.first().copied().unwrap_or(before.first);
    if store.commit_row(oldest_now)?.is_some_and(|row| row.op == last.counters.op) {
        commits = 0;
    }
    let oldest = after.points.first().into_iter().chain(snapshots.first()).copied();
    Ok(Some(Dropped { commits, oldest: oldest.fold(after.first, CommitNo::min) }))
}

/// Returns what `rule` keeps at `now`, as if passes went on until none is due.
fn kept(
    store: &dyn Store,
    rule: &Rule,
    history: &History,
    mut points: Vec<(CommitNo, Timestamp)>,
    now: Timestamp,
) -> Result<Kept> {
    let mut first = history.first;
    loop {
        let page = dense(store, rule, first, now)?;
        let is_last = !is_whole(&page);
        points.extend(page);
        let Some((last, _)) = points.last().copied() else { break };
        let stays = thin(rule, now, &points, last);
        let is_done = is_last || stays.first <= first;
        first = first.max(stays.first);
        let is_kept = |commit: &CommitNo| *commit >= stays.first || stays.points.binary_search(commit).is_ok();
        points.retain(|(commit, _)| *commit < first && is_kept(commit));
        if is_done {
            break;
        }
    }
    Ok(Kept { points: points.into_iter().map(|(commit, _)| commit).collect(), first })
}

#[cfg(test)]
mod tests;
