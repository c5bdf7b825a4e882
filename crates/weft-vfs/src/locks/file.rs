//! The locks of one file.
//!
//! Whoever waits watches one who is in the way, and is looked at again when that one gives up bytes
//! of what is waited for, and not before.

use super::ranges::{Edit, Held, LockRange, Ranges};
use super::spans::{HolderId, Spans};
use super::{Conflict, Grant, LockClient, LockKind, LockMode, LockOwner, LockRequest, ShareBits, Then};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;

/// A request that waits.
pub(super) struct Waiting {
    pub(super) request: LockRequest,
    pub(super) then: Then,
    /// One who is in the way. None until it was looked for.
    watches: Option<HolderId>,
}

/// Ranges of the file that one owner holds.
struct Holder {
    id: HolderId,
    /// User who locked something first: all ranges count against that user.
    user: u32,
    /// By kind.
    ranges: [Ranges; 3],
}

/// Share reservation: access reserved for an owner, and access denied to others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub(super) user: u32,
    pub(super) access: ShareBits,
    pub(super) deny: ShareBits,
}

impl Share {
    /// Every way to reserve and deny, with its place in [`Reservations::counts`].
    fn all() -> impl Iterator<Item = (usize, Share)> {
        let bits = |of: usize| ShareBits { read: of & 1 != 0, write: of & 2 != 0 };
        (0..16).map(move |at| (at, Share { user: 0, access: bits(at), deny: bits(at >> 2) }))
    }

    fn place(self) -> usize {
        let bits = |bits: ShareBits| usize::from(bits.read) | usize::from(bits.write) << 1;
        bits(self.access) | bits(self.deny) << 2
    }
}

/// Reservations of the file. Looking for a conflict costs the same however many there are.
#[derive(Default)]
pub(super) struct Reservations {
    owners: HashMap<LockOwner, Share>,
    /// Owners who have reserved and denied the same.
    counts: [usize; 16],
}

impl Reservations {
    pub(super) fn get(&self, owner: &LockOwner) -> Option<Share> {
        self.owners.get(owner).copied()
    }

    /// True if another than `owner` is in the way of `wanted`.
    pub(super) fn deny(&self, owner: &LockOwner, wanted: Share) -> bool {
        let own = self.get(owner).map(Share::place);
        Share::all().any(|(at, theirs)| {
            let others = self.counts[at] - usize::from(own == Some(at));
            others > 0 && (theirs.access.meets(wanted.deny) || theirs.deny.meets(wanted.access))
        })
    }

    /// Has `owner` have reserved this; gives what it had.
    pub(super) fn insert(&mut self, owner: &LockOwner, share: Share) -> Option<Share> {
        let before = self.remove(owner);
        self.owners.insert(owner.clone(), share);
        self.counts[share.place()] += 1;
        before
    }

    pub(super) fn remove(&mut self, owner: &LockOwner) -> Option<Share> {
        let share = self.owners.remove(owner)?;
        self.counts[share.place()] -= 1;
        Some(share)
    }

    fn forget(&mut self, client: LockClient) {
        let counts = &mut self.counts;
        self.owners.retain(|owner, share| {
            let stays = owner.client != client;
            counts[share.place()] -= usize::from(!stays);
            stays
        });
    }
}

/// Result of a change of an owner's ranges.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    /// User against whom the ranges count.
    pub(super) user: u32,
    /// By how many there are more.
    pub(super) count: isize,
    /// The holder, if others may lock more than before.
    pub(super) freed: Option<HolderId>,
}

/// Clients choose the names of owners, so maps by these have a hash that nobody foresees.
#[derive(Default)]
pub(super) struct FileLocks {
    held: HashMap<LockOwner, Holder>,
    owners: FxHashMap<HolderId, LockOwner>,
    /// Holders so far.
    numbered: u64,
    /// All that is held, by kind and mode.
    spans: [[Spans; 2]; 3],
    /// By numbers, which ascend in the order in which they were asked for.
    waiting: BTreeMap<u64, Waiting>,
    /// The number of each request that waits.
    asked: HashMap<LockRequest, u64>,
    /// Requests that watch a holder.
    watched: FxHashMap<HolderId, BTreeSet<u64>>,
    pub(super) shares: Reservations,
}

impl LockKind {
    const ALL: [LockKind; 3] = [LockKind::Range, LockKind::File, LockKind::Either];

    fn sees(self, other: LockKind) -> bool {
        self == other || self == LockKind::Either || other == LockKind::Either
    }
}

impl LockMode {
    /// Modes that exclude this one.
    fn excluded_by(self) -> &'static [LockMode] {
        match self {
            LockMode::Shared => &[LockMode::Exclusive],
            LockMode::Exclusive => &[LockMode::Shared, LockMode::Exclusive],
        }
    }
}

impl FileLocks {
    /// Gives `visit` what is in the way of `request`, until it breaks: the holder, the kind, and
    /// the first byte.
    fn in_the_way(&self, request: &LockRequest, visit: &mut impl FnMut(HolderId, LockKind, u64) -> ControlFlow<()>) {
        let me = self.held.get(&request.owner).map(|holder| holder.id);
        for kind in LockKind::ALL.into_iter().filter(|kind| kind.sees(request.kind)) {
            for mode in request.mode.excluded_by() {
                let spans = &self.spans[kind as usize][*mode as usize];
                let mut visit = |of, first| visit(of, kind, first);
                if spans.meeting(request.range, me, &mut visit).is_break() {
                    return;
                }
            }
        }
    }

    /// One who is in the way of `request`.
    pub(super) fn blocker(&self, request: &LockRequest) -> Option<HolderId> {
        let mut found = None;
        self.in_the_way(request, &mut |of, _, _| {
            found = Some(of);
            ControlFlow::Break(())
        });
        found
    }

    /// Owners in the way of `request`, at most so many ranges of theirs.
    pub(super) fn blockers(&self, request: &LockRequest, max: usize) -> Vec<LockOwner> {
        let mut found = Vec::new();
        self.in_the_way(request, &mut |of, _, _| {
            found.extend(self.owners.get(&of).cloned());
            if found.len() < max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        found
    }

    /// Returns the conflict with `request` whose range begins first.
    pub(super) fn first_conflict(&self, request: &LockRequest) -> Option<Conflict> {
        let me = self.held.get(&request.owner).map(|holder| holder.id);
        let mut first: Option<(u64, HolderId, LockKind)> = None;
        for kind in LockKind::ALL.into_iter().filter(|kind| kind.sees(request.kind)) {
            for mode in request.mode.excluded_by() {
                let _ = self.spans[kind as usize][*mode as usize].meeting(request.range, me, &mut |of, at| {
                    if first.is_none_or(|(first, ..)| at < first) {
                        first = Some((at, of, kind));
                    }
                    ControlFlow::Break(())
                });
            }
        }
        let (at, of, kind) = first?;
        let owner = self.owners.get(&of)?;
        let (range, held) = self.held.get(owner)?.ranges[kind as usize].at(at)?;
        Some(Conflict { owner: owner.clone(), range, mode: held.mode, pid: held.pid })
    }

    /// Has `owner` hold `range` so, or not at all. What it holds first is `user`'s.
    pub(super) fn set(
        &mut self,
        (owner, user): (&LockOwner, u32),
        kind: LockKind,
        range: LockRange,
        held: Option<Held>,
    ) -> Change {
        if held.is_none() && !self.held.contains_key(owner) {
            return Change { user, count: 0, freed: None };
        }
        let FileLocks { held: holders, owners, numbered, spans, .. } = self;
        let holder = holders.entry(owner.clone()).or_insert_with(|| {
            *numbered += 1;
            owners.insert(*numbered, owner.clone());
            Holder { id: *numbered, user, ranges: Default::default() }
        });
        let (id, user, ranges) = (holder.id, holder.user, &mut holder.ranges[kind as usize]);
        let before = ranges.len();
        let mut frees = false;
        ranges.set(range, held, |edit| match edit {
            Edit::Remove(first, mode) => spans[kind as usize][mode as usize].remove(first, id),
            Edit::Insert(range, mode) => spans[kind as usize][mode as usize].insert(range, id),
            Edit::Replaced(before) => {
                let is_kept = held.is_some_and(|held| held.mode == LockMode::Exclusive || held.mode == before);
                frees |= !is_kept;
            }
        });
        let count = ranges.len().cast_signed() - before.cast_signed();
        if holder.ranges.iter().all(|ranges| ranges.len() == 0) {
            holders.remove(owner);
            owners.remove(&id);
        }
        Change { user, count, freed: frees.then_some(id) }
    }

    /// The user that all ranges of `owner` count for, if it holds any.
    pub(super) fn user_of(&self, owner: &LockOwner) -> Option<u32> {
        self.held.get(owner).map(|holder| holder.user)
    }

    /// The user that one more range counts for, if giving up `range` leaves `owner` two of one.
    pub(super) fn splits(&self, owner: &LockOwner, kind: LockKind, range: LockRange) -> Option<u32> {
        let holder = self.held.get(owner)?;
        let (met, _) = holder.ranges[kind as usize].meeting(range).next()?;
        (met.first() < range.first() && met.last() > range.last()).then_some(holder.user)
    }

    /// Returns the parts of `request`'s range that its owner holds since `grant` and has not asked
    /// for again.
    pub(super) fn granted(&self, request: &LockRequest, grant: Grant) -> Vec<(LockRange, Held)> {
        let holder = self.held.get(&request.owner);
        let ranges = holder.map(|holder| &holder.ranges[request.kind as usize]);
        let met = ranges.into_iter().flat_map(|ranges| ranges.meeting(request.range));
        met.filter(|(_, held)| held.grant == Some(grant)).collect()
    }

    /// The request that waits under `number`.
    pub(super) fn waiting(&self, number: u64) -> Option<&Waiting> {
        self.waiting.get(&number)
    }

    /// The numbers of all that wait.
    pub(super) fn all_waiting(&self) -> BTreeSet<u64> {
        self.waiting.keys().copied().collect()
    }

    /// The same request as `request`, if it waits.
    pub(super) fn same(&mut self, request: &LockRequest) -> Option<(u64, &mut Waiting)> {
        let number = *self.asked.get(&request.identity())?;
        Some((number, self.waiting.get_mut(&number)?))
    }

    /// Has `request` wait under `number`, which is higher than all before.
    pub(super) fn wait(&mut self, number: u64, request: LockRequest, then: Then) {
        self.asked.insert(request.identity(), number);
        self.waiting.insert(number, Waiting { request, then, watches: None });
        self.watch(number);
    }

    /// Has request `number`, which waits, watch one who is in its way. False if nobody is.
    fn watch(&mut self, number: u64) -> bool {
        let Some(waiting) = self.waiting.get(&number) else { return false };
        let (before, blocker) = (waiting.watches, self.blocker(&waiting.request));
        if before != blocker {
            before.into_iter().for_each(|of| self.unwatch(of, number));
            if let Some(of) = blocker {
                self.watched.entry(of).or_default().insert(number);
            }
            self.waiting.entry(number).and_modify(|waiting| waiting.watches = blocker);
        }
        blocker.is_some()
    }

    fn unwatch(&mut self, of: HolderId, number: u64) {
        if let Some(watching) = self.watched.get_mut(&of) {
            watching.remove(&number);
            if watching.is_empty() {
                self.watched.remove(&of);
            }
        }
    }

    /// Has request `number` wait no more, and gives it.
    pub(super) fn leave(&mut self, number: u64) -> Option<Waiting> {
        let waiting = self.waiting.remove(&number)?;
        self.asked.remove(&waiting.request.identity());
        waiting.watches.into_iter().for_each(|of| self.unwatch(of, number));
        Some(waiting)
    }

    /// Request `number` if nobody is in its way any more: then it waits no more.
    pub(super) fn grantable(&mut self, number: u64) -> Option<Waiting> {
        #[cfg(test)]
        super::tests::LOOKED.set(super::tests::LOOKED.get() + 1);
        if !self.waiting.contains_key(&number) || self.watch(number) {
            return None;
        }
        self.leave(number)
    }

    /// The requests that may be granted, or at least watch somebody else, now that holder `of` has
    /// given up `range`.
    pub(super) fn freed(&self, of: HolderId, range: LockRange) -> Vec<u64> {
        let wants = |number: &u64| self.waiting.get(number).is_some_and(|it| it.request.range.meets(range));
        self.watched.get(&of).into_iter().flatten().copied().filter(wants).collect()
    }

    /// Forgets all of `client`; gives the requests that may be granted now.
    pub(super) fn forget(&mut self, client: LockClient) -> BTreeSet<u64> {
        let gone: Vec<u64> = self
            .waiting
            .iter()
            .filter(|(_, it)| it.request.owner.client == client)
            .map(|(number, _)| *number)
            .collect();
        gone.into_iter().for_each(|number| drop(self.leave(number)));
        self.shares.forget(client);
        let owners: Vec<_> = self.held.keys().filter(|owner| owner.client == client).cloned().collect();
        let mut candidates = BTreeSet::new();
        for owner in owners {
            for kind in LockKind::ALL {
                let change = self.set((&owner, 0), kind, LockRange::ALL, None);
                change.freed.into_iter().for_each(|of| candidates.extend(self.freed(of, LockRange::ALL)));
            }
        }
        candidates
    }

    pub(super) fn is_unused(&self) -> bool {
        self.held.is_empty() && self.waiting.is_empty() && self.shares.owners.is_empty()
    }
}
