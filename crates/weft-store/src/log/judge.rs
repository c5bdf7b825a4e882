//! Decides if a log and a database belong together, and which records a mount has to apply.
//!
//! A volume whose epoch is odd was not unmounted cleanly: without the log of just that mount it
//! lacks the operations synced since its last commit. Appends and syncs overlap, so a record that
//! is whole proves nothing of those before it; but each says up to where all was known to be synced
//! when it was written. A bad record below the highest such position, or a rotten one, is damage; a
//! bad one above was never acknowledged.

use super::scan::{Halves, Item, Kind};
use super::sector::SECTOR;
use super::slot::{HEADER_BYTES, Slot, Slots, Stage};
use super::{DataLoss, Record};
use crate::error::{Error, Result};
use crate::row::OpNo;
use crate::store::Header;
use std::fs::File;
use std::path::Path;

/// The state of the log as a mount finds it.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Operations after those of the database, without a gap.
    pub(super) records: Vec<Record>,
    /// Records that the last commit could not store; they come before those above.
    pub(super) carried: Vec<Record>,
    /// Place where the next mount's records may begin: none of those above is overwritten before
    /// its first commit.
    pub(super) start: u64,
    /// True if there is no room for them before that commit.
    pub(super) is_full: bool,
    /// True if the file holds nothing that is worth keeping, not even its size.
    pub(super) is_free: bool,
    /// The latest mount that left anything.
    pub(super) epoch_max: u64,
    /// The reason that the log and the database cannot be used together without losing synced
    /// operations.
    pub(super) lost: Option<DataLoss>,
    /// True if the log knows of commits that the database lacks.
    pub(super) is_ahead: bool,
}

impl Found {
    /// Nothing to apply; the whole file may be written over.
    fn free() -> Found {
        Found { is_free: true, ..Found::default() }
    }

    fn without(lost: DataLoss) -> Found {
        Found { lost: Some(lost), ..Found::free() }
    }

    /// The same, as the log knows of commits that the database lacks.
    fn ahead(lost: DataLoss) -> Found {
        Found { is_ahead: true, ..Found::without(lost) }
    }
}

/// True if a volume whose epoch is `epoch` needs its log.
pub fn needs_log(epoch: u64) -> bool {
    epoch % 2 == 1
}

/// Describes a volume that needs its log and has none at `path`.
pub(super) fn missing(path: &Path, header: &Header) -> DataLoss {
    let cause = format!(
        "the intent log {} is missing, and the volume was not unmounted cleanly: what was synced after commit {} is in \
         it alone",
        path.display(),
        header.commit.0
    );
    DataLoss::new(cause, "put the file back, or mount with --accept-loss, which gives that up")
}

/// Describes a log that is of another moment than the database with `header`, for this `cause`.
fn apart(cause: String, header: &Header) -> DataLoss {
    if !needs_log(header.counters.epoch) {
        let advice = "put the files of one moment together, or mount with --accept-loss, which keeps the database";
        return DataLoss::new(cause, advice);
    }
    let cost = format!("what was synced after commit {}", header.commit.0);
    let advice = format!(
        "put the files of one moment together; without them 'weft check --salvage VOLUME NEW' brings all that can be \
         verified to a new volume, and a mount with --accept-loss gives up {cost}"
    );
    DataLoss::new(cause, advice).costing(cost)
}

/// Looks at the log in `file`, of the volume that says `header` of itself.
pub(super) fn judge(path: &Path, file: &File, slots: &Slots, header: &Header) -> Result<Found> {
    let ours = slots.all().filter(|slot| slot.id == header.uuid);
    let epoch_max = ours.map(|slot| slot.epoch).max().unwrap_or(0);
    let found = look(path, file, slots, header)?;
    Ok(Found { epoch_max: found.epoch_max.max(epoch_max), ..found })
}

fn look(path: &Path, file: &File, slots: &Slots, header: &Header) -> Result<Found> {
    let epoch = header.counters.epoch;
    let is_needed = needs_log(epoch);
    let name = path.display();
    if slots.is_blank && !is_needed {
        return Ok(Found::free());
    }
    if slots.is_blank {
        return Ok(Found::without(missing(path, header)));
    }
    let ours = || slots.all().filter(|slot| slot.id == header.uuid);
    if ours().next().is_none() {
        let what = match slots.all().next() {
            Some(_) => "is the intent log of another volume",
            None => "is not an intent log, or its start is damaged",
        };
        return Ok(Found::without(apart(format!("{name} {what}"), header)));
    }
    if let Some(later) = ours().find(|slot| slot.epoch > epoch && slot.stage > Stage::Prepared) {
        let why = format!(
            "the database is older than its intent log {name}, or was used apart from it: it ends with commit {}, of mount \
             {epoch}, and the log goes on after commit {}, of mount {}",
            header.commit.0, later.commit, later.epoch
        );
        return Ok(Found::ahead(apart(why, header)));
    }
    if !is_needed {
        return Ok(Found::free());
    }
    let own = ours().find(|slot| slot.epoch == epoch);
    let is_begun = |slot: &Slot| slot.stage > Stage::Prepared || header.commit.0 <= slot.commit + 1;
    let Some(own) = own.filter(is_begun) else {
        let newest = ours().map(|slot| slot.epoch).max().unwrap_or(0);
        let why = if newest < epoch {
            format!(
                "the intent log {name} is older than the database, or was used apart from it: it is of mount {newest}, \
                 the database of mount {epoch}"
            )
        } else {
            format!("the intent log {name} is not of mount {epoch}, as the database is, or its start is damaged")
        };
        return Ok(Found::without(apart(why, header)));
    };
    let io = |source| Error::Io { what: "cannot read the intent log", path: path.into(), source };
    let len = file.metadata().map_err(io)?.len();
    let cut = (len < HEADER_BYTES + 2 * own.half_bytes).then_some(len);
    let halves = Halves::read(file, header.uuid, epoch, own.half_bytes).map_err(io)?;
    let prepared = ours().find(|slot| slot.epoch > epoch).map(|slot| slot.epoch);
    Ok(Walk { name: name.to_string(), slot: own, cut, prepared, halves, header }.found())
}

/// Goes through the records.
struct Walk<'a> {
    name: String,
    slot: Slot,
    /// Bytes of the file, if it lacks some.
    cut: Option<u64>,
    /// The epoch of a mount that has not made its first commit.
    prepared: Option<u64>,
    halves: Halves,
    header: &'a Header,
}

impl Walk<'_> {
    fn found(&self) -> Found {
        let mut found = Found { epoch_max: self.halves.epoch_max, ..Found::default() };
        found.start = self.walk(&self.items(), &mut found);
        found.is_free = found.records.is_empty() && found.carried.is_empty();
        // What a mount carries into its first commit lies there before that has happened; also of
        // tries before the last one, which had lower epochs.
        let latest = self.prepared.unwrap_or(0).max(self.slot.epoch);
        let is_later = self.halves.epoch_max > latest;
        if is_later && found.lost.is_none() {
            let (name, commit) = (&self.name, self.header.commit.0);
            found.is_ahead = true;
            let cause = format!(
                "the database is older than its intent log {name}, which has operations of mount {}; the database ends \
                 with commit {commit}, of mount {}",
                self.halves.epoch_max, self.slot.epoch
            );
            found.lost = Some(apart(cause, self.header));
        }
        // A record that no other one vouches for may have been in the part that is gone.
        if let Some(len) = self.cut.filter(|_| found.lost.is_none()) {
            let next = found.records.last().map_or(self.header.counters.op, |last| last.last).next();
            let what = format!("operation {} and what followed, if they were synced, cannot be read", next.0);
            found.lost = Some(self.bad(&format!("is cut short at byte {len}"), &what));
        }
        found
    }

    /// All that may be needed of the mount's stream, in its order.
    fn items(&self) -> Vec<Item> {
        let first = self.slot.start / self.slot.half_bytes;
        let from = |round: u64| if round == first { self.slot.start % self.slot.half_bytes } else { 0 };
        let newest = self.halves.newest().unwrap_or(first).max(first);
        let mut items = Vec::new();
        if newest > first {
            items = self.halves.scan(newest - 1, from(newest - 1));
        }
        items.extend(self.halves.scan(newest, from(newest)));
        if self.halves.begins_rotten(newest + 1) {
            let at = (newest + 1) * self.slot.half_bytes;
            items.push(Item::Bad { at, end: at, is_rotten: true });
        }
        items
    }

    /// Finds the operations to apply, and the reason that some are missing, if so. Returns the
    /// place of room that none of them takes.
    fn walk(&self, items: &[Item], found: &mut Found) -> u64 {
        let Some(ahead) = self.ahead(items) else { return self.take(items, found) };
        found.is_ahead = true;
        // A later commit may have operations that no record has: only those count that go on from
        // the database's own commit without a gap.
        let next = self.header.counters.op.next();
        let first = items.iter().filter_map(Item::operations).find(|head| head.last >= next);
        let mut start = 0;
        if first.is_some_and(|head| head.first <= next && head.commit <= self.header.commit) {
            start = self.take(items, found);
            // They may be of commits that the database lacks.
            found.carried.clear();
        }
        found.lost = Some(self.older(found.records.last(), &ahead));
        start
    }

    /// Describes a database that lacks a commit, as `ahead` says, and from which records up to
    /// `last` go on.
    fn older(&self, last: Option<&Record>, ahead: &str) -> DataLoss {
        let (name, commit, next) = (&self.name, self.header.commit.0, self.header.counters.op.next());
        let cause = format!(
            "the database is older than its intent log {name}: it ends with commit {commit}, and {ahead} (its \
             write-ahead log, -wal, may be lost)"
        );
        let Some(last) = last else { return apart(cause, self.header) };
        let cause =
            format!("{cause}; the log has operations {} to {}, which go on from that commit", next.0, last.last.0);
        let advice = "put the files of one moment together; without them 'weft check --salvage VOLUME NEW' brings all \
                      that can be verified to a new volume, and these operations, and a mount with --accept-loss \
                      applies them and gives up what followed";
        DataLoss::new(cause, advice).costing("what followed")
    }

    /// Describes a commit that the log knows of and the database lacks, if there is one.
    fn ahead(&self, items: &[Item]) -> Option<String> {
        let commit = self.header.commit;
        if self.slot.stage > Stage::Prepared && self.slot.commit > commit.0 {
            return Some(format!("the log names commit {}, which was durable", self.slot.commit));
        }
        let commits = items.iter().filter_map(Item::operations).map(|head| head.commit);
        commits.max().filter(|later| *later > commit).map(|later| format!("the log goes on after commit {}", later.0))
    }

    /// Takes the operations to apply, up to the first that cannot be read.
    fn take(&self, items: &[Item], found: &mut Found) -> u64 {
        let (commit, op) = (self.header.commit, self.header.counters.op);
        let heads = || items.iter().filter_map(Item::head);
        let synced = heads().map(|head| head.synced).max().unwrap_or(0);
        let seen = heads().filter(|head| head.kind == Kind::Operations).map(|head| head.last).max();
        let mut needed: Vec<(u64, u64)> = Vec::new();
        // No operation has to lie before them: what is bad on the way hides none.
        for item in items {
            if let Item::Record { at, end, head, bytes } = item
                && (head.kind, head.last) == (Kind::Carried, op)
                && head.commit <= commit
            {
                found.carried.push(Record { first: head.first, last: head.last, bytes: bytes.clone() });
                needed.push((*at, *end));
            }
        }
        let mut next = op.next();
        for (index, item) in items.iter().enumerate() {
            match item {
                Item::Record { head, .. } if head.kind == Kind::Carried => {}
                Item::Record { head, .. } if head.last < next => {}
                Item::Record { at, head, .. } if head.first > next => {
                    found.lost = Some(self.damage(*at, next, seen));
                    break;
                }
                Item::Record { at, end, head, bytes } => {
                    found.records.push(Record { first: head.first, last: head.last, bytes: bytes.clone() });
                    needed.push((*at, *end));
                    next = head.last.next();
                }
                Item::Bad { at, end, is_rotten } => {
                    let following = items[index + 1..].iter().find_map(Item::operations);
                    let hides_carried = |carried: u64| carried > *at && carried <= *end;
                    let is_damage = *is_rotten || *at < synced;
                    match following.filter(|head| head.first <= next) {
                        Some(head) if head.first == op.next() && hides_carried(head.carried) && is_damage => {}
                        Some(_) => continue,
                        None if is_damage => {}
                        // Nobody was told that it is safe.
                        None => break,
                    }
                    found.lost = Some(self.damage(*at, next, seen));
                    break;
                }
            }
        }
        needed.sort_unstable();
        let start = self.room_beside(&needed);
        let half = |at: u64| at / self.slot.half_bytes % 2;
        found.is_full =
            needed.iter().any(|(at, _)| half(*at) == half(start)) && start.is_multiple_of(self.slot.half_bytes);
        start
    }

    fn damage(&self, at: u64, next: OpNo, seen: Option<OpNo>) -> DataLoss {
        let byte = HEADER_BYTES + at % (2 * self.slot.half_bytes);
        let which = match seen.filter(|seen| *seen > next) {
            Some(seen) => format!("operations {} to {}", next.0, seen.0),
            None => format!("operation {} and what followed", next.0),
        };
        let how = match self.cut.filter(|len| byte + SECTOR as u64 > *len) {
            Some(len) => format!("is cut short at byte {len}"),
            None => format!("is damaged at byte {byte}"),
        };
        self.bad(&how, &format!("{which}, which were synced, cannot be read"))
    }

    fn bad(&self, how: &str, what: &str) -> DataLoss {
        let advice = "put back a copy of the file, or mount with --accept-loss, which gives them up";
        DataLoss::new(format!("the intent log {} {how}: {what}", self.name), advice)
    }

    /// The other half, or what follows in the half of the last of those `needed` if they lie in
    /// both. If they fill that one to its end, the start of the half that comes next.
    fn room_beside(&self, needed: &[(u64, u64)]) -> u64 {
        let half = self.slot.half_bytes;
        let Some((last, end)) = needed.last() else { return 0 };
        let of = |at: u64| at / half % 2;
        if needed.iter().all(|(at, _)| of(*at) == of(*last)) {
            return (1 - of(*last)) * half;
        }
        (of(*last) * half + (end - last / half * half)) % (2 * half)
    }
}
