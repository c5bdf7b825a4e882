//! The locks of one file.

use super::ranges::{Held, LockRange, Ranges};
use super::{Conflict, Grant, LockClient, LockKind, LockMode, LockOwner, LockRequest, ShareBits, Then};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// A request that waits.
pub(super) struct Waiting {
    pub(super) request: LockRequest,
    pub(super) then: Then,
}

#[derive(Default)]
pub(super) struct FileLocks {
    held: FxHashMap<(LockOwner, LockKind), Ranges>,
    /// In the order in which they were asked for.
    pub(super) waiting: VecDeque<Waiting>,
    /// What is reserved for whom, and what denied to others.
    pub(super) shares: FxHashMap<LockOwner, (ShareBits, ShareBits)>,
}

impl LockKind {
    fn sees(self, other: LockKind) -> bool {
        self == other || self == LockKind::Either || other == LockKind::Either
    }
}

impl FileLocks {
    /// What is in the way of `request`.
    pub(super) fn conflicts<'a>(&'a self, request: &'a LockRequest) -> impl Iterator<Item = Conflict> + 'a {
        let others = self.held.iter().filter(|((owner, kind), _)| *owner != request.owner && kind.sees(request.kind));
        others.flat_map(move |((owner, _), ranges)| {
            let met = ranges.meeting(request.range);
            let excludes = |held: &Held| request.mode == LockMode::Exclusive || held.mode == LockMode::Exclusive;
            let met = met.filter(move |(_, held)| excludes(held));
            met.map(|(range, held)| Conflict { owner: owner.clone(), range, mode: held.mode, pid: held.pid })
        })
    }

    /// Has `owner` hold `range` so, or not at all. By how many it holds more ranges then.
    pub(super) fn set(&mut self, owner: &LockOwner, kind: LockKind, range: LockRange, held: Option<Held>) -> isize {
        let key = (owner.clone(), kind);
        let ranges = self.held.entry(key.clone()).or_default();
        let before = ranges.len();
        ranges.set(range, held);
        let after = ranges.len();
        if after == 0 {
            self.held.remove(&key);
        }
        after.cast_signed() - before.cast_signed()
    }

    /// What the owner of `request` holds of its range since `grant`, not having asked for it again.
    pub(super) fn granted(&self, request: &LockRequest, grant: Grant) -> Vec<(LockRange, Held)> {
        let ranges = self.held.get(&(request.owner.clone(), request.kind));
        let met = ranges.into_iter().flat_map(|ranges| ranges.meeting(request.range));
        met.filter(|(_, held)| held.grant == Some(grant)).collect()
    }

    /// Forgets all of `client`.
    pub(super) fn forget(&mut self, client: LockClient) {
        self.held.retain(|(owner, _), _| owner.client != client);
        self.waiting.retain(|waiting| waiting.request.owner.client != client);
        self.shares.retain(|owner, _| owner.client != client);
    }

    pub(super) fn is_unused(&self) -> bool {
        self.held.is_empty() && self.waiting.is_empty() && self.shares.is_empty()
    }
}
