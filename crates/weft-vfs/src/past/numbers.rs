//! Numbers by which nodes of the past are known while the volume is mounted.
//!
//! A number is a hash of what the node is, so that it is the same after a restart. Should another
//! node have it, the next hash is taken. Those that the kernel holds stay; of the others the last
//! ones are remembered ([`UNHELD_MAX`]).

use super::node::{Identity, PastInode, PastNode};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::collections::{BTreeSet, VecDeque};
use weft_store::Ino;
use weft_tree::{FIRST_PAST, Holds};

/// Numbers that nobody holds and that are remembered, at most.
const UNHELD_MAX: usize = 1 << 16;

pub(super) struct Numbers {
    uuid: [u8; 16],
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    known: FxHashMap<Ino, Known>,
    /// Numbers of each inode of the present that has any.
    of_inode: BTreeSet<(Ino, Ino)>,
    /// Numbers that nobody held when they were given, in that order.
    unheld: VecDeque<Ino>,
    /// Nodes that were each one of their own so far.
    singles: u64,
}

struct Known {
    identity: Identity,
    node: PastNode,
    /// The one by which it was found before that.
    other: Option<PastNode>,
    holds: u64,
    /// Times that it is among those that nobody held.
    queued: u64,
}

impl Table {
    fn forget(&mut self, number: Ino) {
        if let Some(Known { node: PastNode::Inode(PastInode { ino, .. }), .. }) = self.known.remove(&number) {
            self.of_inode.remove(&(ino, number));
        }
    }

    fn limit(&mut self) {
        while self.unheld.len() > UNHELD_MAX {
            let Some(oldest) = self.unheld.pop_front() else { return };
            let Some(known) = self.known.get_mut(&oldest) else { continue };
            known.queued = known.queued.saturating_sub(1);
            if known.holds == 0 && known.queued == 0 {
                self.forget(oldest);
            }
        }
    }
}

impl Numbers {
    pub(super) fn new(uuid: [u8; 16]) -> Numbers {
        Numbers { uuid, table: Mutex::default() }
    }

    pub(super) fn node(&self, number: Ino) -> Option<PastNode> {
        self.table.lock().known.get(&number).map(|known| known.node)
    }

    /// Another node of the same identity, of a commit that may be kept where that one is not.
    pub(super) fn other(&self, number: Ino) -> Option<PastNode> {
        self.table.lock().known.get(&number).and_then(|known| known.other)
    }

    /// Identity of a node that is another one each time.
    pub(super) fn single(&self) -> Identity {
        let mut table = self.table.lock();
        table.singles += 1;
        Identity::Single(table.singles)
    }

    /// The number of `node`, which is `identity`.
    pub(super) fn give(&self, identity: Identity, node: PastNode, holds: Holds) -> Ino {
        let table = &mut *self.table.lock();
        let number = (0u64..)
            .map(|attempt| self.hash(identity, attempt))
            .find(|number| table.known.get(number).is_none_or(|known| known.identity == identity))
            .expect("not all numbers are taken");
        let known = table.known.entry(number).or_insert_with(|| {
            if let PastNode::Inode(PastInode { ino, .. }) = node {
                table.of_inode.insert((ino, number));
            }
            Known { identity, node, other: None, holds: 0, queued: 0 }
        });
        // A version is looked for in the commit by which it was found last: others may be gone.
        if known.node != node {
            known.other = Some(std::mem::replace(&mut known.node, node));
        }
        if holds == Holds::Counted {
            known.holds += 1;
        } else if known.holds == 0 {
            known.queued += 1;
            table.unheld.push_back(number);
        }
        table.limit();
        number
    }

    /// Notes one more hold of `number`.
    pub(super) fn hold(&self, number: Ino) {
        if let Some(known) = self.table.lock().known.get_mut(&number) {
            known.holds += 1;
        }
    }

    /// Notes that `count` holds of `number` are gone.
    pub(super) fn release(&self, number: Ino, count: u64) {
        let mut table = self.table.lock();
        let Some(known) = table.known.get_mut(&number) else { return };
        known.holds = known.holds.saturating_sub(count);
        if known.holds == 0 {
            table.forget(number);
        }
    }

    /// Numbers by which `ino` of the present is known as it was.
    pub(super) fn of(&self, ino: Ino) -> Vec<Ino> {
        let table = self.table.lock();
        table.of_inode.range((ino, Ino(0))..=(ino, Ino(u64::MAX))).map(|(_, number)| *number).collect()
    }

    /// All numbers.
    pub(super) fn all(&self) -> Vec<Ino> {
        self.table.lock().known.keys().copied().collect()
    }

    fn hash(&self, identity: Identity, attempt: u64) -> Ino {
        let bytes = [&self.uuid[..], &attempt.to_be_bytes(), &identity.to_bytes()].concat();
        let digest = weft_digest::digest(&bytes);
        let (first, _) = digest.split_first_chunk().expect("a digest is longer");
        Ino(FIRST_PAST | u64::from_be_bytes(*first) >> 3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_store::CommitNo;
    use weft_tree::is_past;

    fn inode(commit: u64, ino: u64) -> PastNode {
        PastNode::Inode(PastInode { commit: CommitNo(commit), top: Ino::ROOT, ino: Ino(ino) })
    }

    #[test]
    fn a_version_has_one_number_and_is_found_by_the_commit_that_came_last() {
        let numbers = Numbers::new([1; 16]);
        let version = Identity::Version(Ino(5), CommitNo(2));
        let first = numbers.give(version, inode(3, 5), Holds::Counted);
        assert!(is_past(first));
        assert_eq!(numbers.give(version, inode(4, 5), Holds::Counted), first);
        assert_eq!((numbers.node(first), numbers.other(first)), (Some(inode(4, 5)), Some(inode(3, 5))));
        let other = numbers.give(Identity::Version(Ino(5), CommitNo(4)), inode(4, 5), Holds::Counted);
        assert_ne!(other, first);
        assert_eq!(numbers.of(Ino(5)).len(), 2);
        numbers.release(first, 1);
        assert!(numbers.node(first).is_some(), "it is held once more");
        numbers.release(first, 1);
        assert_eq!((numbers.node(first), numbers.of(Ino(5))), (None, vec![other]));
        // The same in another process.
        assert_eq!(Numbers::new([1; 16]).give(version, inode(3, 5), Holds::None), first);
        assert_ne!(Numbers::new([2; 16]).give(version, inode(3, 5), Holds::None), first);
    }

    #[test]
    fn of_numbers_that_nobody_holds_the_last_ones_are_remembered() {
        let numbers = Numbers::new([0; 16]);
        let held = numbers.give(Identity::Node(inode(1, 1)), inode(1, 1), Holds::Counted);
        let first = numbers.give(Identity::Node(inode(1, 2)), inode(1, 2), Holds::None);
        for ino in 0..UNHELD_MAX as u64 {
            let node = inode(2, ino);
            numbers.give(Identity::Node(node), node, Holds::None);
        }
        assert_eq!(numbers.node(first), None);
        assert!(numbers.node(held).is_some());
        assert_eq!(numbers.table.lock().known.len(), UNHELD_MAX + 1);
    }

    #[test]
    fn a_number_that_is_given_again_counts_from_then_on() {
        let numbers = Numbers::new([0; 16]);
        let give = |ino| numbers.give(Identity::Node(inode(1, ino)), inode(1, ino), Holds::None);
        let again = give(0);
        for ino in 1..UNHELD_MAX as u64 {
            give(ino);
        }
        assert_eq!(give(0), again);
        let next = give(UNHELD_MAX as u64);
        assert!(numbers.node(again).is_some(), "others were given before it");
        assert!(numbers.node(next).is_some());
    }

    #[test]
    fn what_is_another_one_each_time_has_another_number() {
        let numbers = Numbers::new([0; 16]);
        let node = PastNode::Moment(Ino::ROOT, CommitNo(1));
        let give = || numbers.give(numbers.single(), node, Holds::Counted);
        assert_ne!(give(), give());
    }
}
