//! The changes that are due by the rule of a volume, as time passes.

use super::rule::Rule;
use super::thinning::{Thinned, thin};
use crate::error::Result;
use crate::past::{History, HistoryChange, Pin, PinKind};
use crate::row::{CommitNo, Timestamp};
use crate::store::Store;
use std::collections::BTreeSet;

/// Commits that one pass looks at, at most.
const COMMITS_MAX: u64 = 10_000;

/// Rows of versions that one pass removes, at most.
const ROWS_MAX: usize = 5_000;

/// Commits before the last one that do not yield: each time that others do is a commit itself.
const LAST_KEPT: u64 = 2;

/// Returns the changes by which `store` keeps what its rule says at `now`, and the commits
/// `in_use`: as much of them as one commit should make. None if there is nothing to do.
pub fn due(store: &dyn Store, now: Timestamp, in_use: &[CommitNo]) -> Result<Vec<HistoryChange>> {
    let Some(history) = store.history()? else { return Ok(Vec::new()) };
    let pins = store.pins()?;
    // A later program may know more words: what it keeps stays.
    let mut changes = match history.rule.parse::<Rule>() {
        Ok(rule) => thinned(store, &rule, (&history, &pins), now, in_use)?,
        Err(_) => Vec::new(),
    };
    if !changes.is_empty() || history.swept < history.first {
        changes.push(HistoryChange::Forget(ROWS_MAX));
    }
    Ok(changes)
}

/// Returns the change that removes some of the versions of `store` that no kept commit sees: the
/// part of [`due`] that needs no time. None if there are none.
pub fn sweeping(store: &dyn Store) -> Result<Vec<HistoryChange>> {
    let is_left = store.history()?.is_some_and(|history| history.swept < history.first);
    Ok(is_left.then_some(HistoryChange::Forget(ROWS_MAX)).into_iter().collect())
}

/// Returns the changes that make room, where the present needs it: history yields, the oldest
/// first. Nothing that a user asked to be kept goes. None if nothing else is left.
pub fn yielding(store: &dyn Store) -> Result<Vec<HistoryChange>> {
    let Some(history) = store.history()? else { return Ok(Vec::new()) };
    let points = store.pins()?.into_iter().filter(|pin| pin.kind == PinKind::Point).collect::<Vec<_>>();
    let last = store.header()?.commit;
    let mut changes = points.iter().take(points.len().div_ceil(2)).map(unpin).collect::<Vec<_>>();
    if changes.is_empty() && history.first.0 + LAST_KEPT < last.0 {
        // Half of what is left, so that a few passes yield all but what they themselves commit.
        let step = (last.0 - history.first.0).div_ceil(2);
        changes.push(HistoryChange::First(CommitNo(history.first.0 + step)));
    }
    if !changes.is_empty() || history.swept < history.first {
        changes.push(HistoryChange::Forget(usize::MAX));
    }
    Ok(changes)
}

fn unpin(pin: &Pin) -> HistoryChange {
    HistoryChange::Unpin(pin.commit, pin.kind, pin.name.clone())
}

fn thinned(
    store: &dyn Store,
    rule: &Rule,
    (history, pins): (&History, &[Pin]),
    now: Timestamp,
    in_use: &[CommitNo],
) -> Result<Vec<HistoryChange>> {
    let points = pins.iter().filter(|pin| pin.kind == PinKind::Point).collect::<Vec<_>>();
    let mut candidates = points.iter().map(|pin| (pin.commit, pin.made)).collect::<Vec<_>>();
    candidates.retain(|(commit, _)| *commit < history.first);
    candidates.extend(dense(store, rule, history.first, now)?);
    let Some((last, _)) = candidates.last().copied() else { return Ok(Vec::new()) };
    let Thinned { first, points: stay } = thin(rule, now, &candidates, last);
    let stay = stay.into_iter().chain(in_use.iter().copied()).collect::<BTreeSet<_>>();
    let pinned = points.iter().map(|pin| pin.commit).collect::<BTreeSet<_>>();
    let is_new = |commit: &CommitNo| stay.contains(commit) && !pinned.contains(commit) && *commit < first;
    let new = candidates.iter().filter(|(commit, _)| is_new(commit));
    let new = new.map(|(commit, made)| {
        let (kind, name) = (PinKind::Point, Vec::new());
        HistoryChange::Pin(Pin { commit: *commit, kind, name, made: *made, held_until: None })
    });
    let mut changes = new.collect::<Vec<_>>();
    // Those at or after `first` are not needed to keep their commits.
    changes.extend(points.into_iter().filter(|pin| !stay.contains(&pin.commit) && pin.commit < first).map(unpin));
    if first > history.first {
        changes.push(HistoryChange::First(first));
    }
    Ok(changes)
}

/// Returns `first`, the [`History::first`], and the commits after it that `all` does not reach any
/// more, with the one that held when its reach begins: the first ones of them, if they are many. If
/// none of them changed the tree, `first` alone: to drop those gives nothing back and takes a
/// commit, which would be dropped in turn, for ever, by a volume that nobody uses.
pub(super) fn dense(
    store: &dyn Store,
    rule: &Rule,
    first: CommitNo,
    now: Timestamp,
) -> Result<Vec<(CommitNo, Timestamp)>> {
    // There is none before the earliest time.
    let horizon = Timestamp(i64::try_from(rule.dense().horizon(now)).unwrap_or(i64::MIN));
    let end = store.commit_at(horizon)?.map_or(first, |row| row.number.max(first));
    let count = (end.0 - first.0 + 1).min(COMMITS_MAX);
    let mut commits = store.commits(first, usize::try_from(count).expect("few"))?;
    commits.retain(|row| row.number <= end);
    if count < COMMITS_MAX && commits.windows(2).all(|pair| pair[0].op == pair[1].op) {
        commits.truncate(1);
    }
    Ok(commits.into_iter().map(|row| (row.number, row.time)).collect())
}

/// True if `page`, of [`dense`], is as long as one may be: there may be more.
pub(super) fn is_whole(page: &[(CommitNo, Timestamp)]) -> bool {
    page.len() as u64 == COMMITS_MAX
}

#[cfg(test)]
mod tests;
