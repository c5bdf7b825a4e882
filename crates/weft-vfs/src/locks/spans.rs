//! Ranges that several hold of a file, in one order: whose are in the way of another is found in a
//! time that grows with the logarithm of their number.
//!
//! A treap (Aragon and Seidel, 1989) by the first bytes. Each node knows which range ends last of
//! all below it, and which one of those of anybody else: so whoever asks is led past their own.

use super::LockRange;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::ControlFlow;

/// Stands for one who holds something of the file.
pub(super) type HolderId = u64;

/// Reach of ranges: the last byte and the holder of the range that ends last, and the same for the
/// ranges of all other holders.
#[derive(Clone, Copy, Debug, Default)]
struct Reach {
    most: Option<(u64, HolderId)>,
    other: Option<(u64, HolderId)>,
}

impl Reach {
    fn add(&mut self, (last, of): (u64, HolderId)) {
        match self.most {
            Some((most, whose)) if whose == of => self.most = Some((most.max(last), of)),
            Some((most, _)) if last > most => {
                self.other = self.most;
                self.most = Some((last, of));
            }
            Some(_) if self.other.is_none_or(|(most, _)| last > most) => self.other = Some((last, of)),
            Some(_) => {}
            None => self.most = Some((last, of)),
        }
    }

    /// True if one that is not `me` reaches byte `first`.
    fn is_past(&self, first: u64, me: Option<HolderId>) -> bool {
        let reaches = |end: Option<(u64, HolderId)>| end.is_some_and(|(last, of)| last >= first && Some(of) != me);
        reaches(self.most) || reaches(self.other)
    }
}

struct Node {
    first: u64,
    of: HolderId,
    last: u64,
    priority: u64,
    reach: Reach,
    left: Tree,
    right: Tree,
}

type Tree = Option<Box<Node>>;

impl Node {
    fn key(&self) -> (u64, HolderId) {
        (self.first, self.of)
    }

    fn update(&mut self) {
        let mut reach = Reach::default();
        reach.add((self.last, self.of));
        for below in [&self.left, &self.right].into_iter().flatten() {
            [below.reach.most, below.reach.other].into_iter().flatten().for_each(|end| reach.add(end));
        }
        self.reach = reach;
    }
}

/// Those before `key`, and the others.
fn split(tree: Tree, key: (u64, HolderId)) -> (Tree, Tree) {
    let Some(mut node) = tree else { return (None, None) };
    if node.key() < key {
        let (before, after) = split(node.right.take(), key);
        node.right = before;
        node.update();
        (Some(node), after)
    } else {
        let (before, after) = split(node.left.take(), key);
        node.left = after;
        node.update();
        (before, Some(node))
    }
}

/// All of both; each of `one` comes before each of `other`.
fn join(one: Tree, other: Tree) -> Tree {
    match (one, other) {
        (Some(mut one), Some(mut other)) => {
            if one.priority > other.priority {
                one.right = join(one.right.take(), Some(other));
                one.update();
                return Some(one);
            }
            other.left = join(Some(one), other.left.take());
            other.update();
            Some(other)
        }
        (one, other) => one.or(other),
    }
}

/// The ranges. None of one holder overlap.
#[derive(Default)]
pub(super) struct Spans {
    root: Tree,
    /// State of the generator of priorities; it must be unpredictable.
    random: u64,
}

impl Spans {
    pub(super) fn insert(&mut self, range: LockRange, of: HolderId) {
        if self.random == 0 {
            self.random = RandomState::new().build_hasher().finish() | 1;
        }
        // SplitMix64 (Steele, Lea and Flood, 2014).
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ self.random >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let (first, last, priority) = (range.first(), range.last(), mixed ^ mixed >> 31);
        let mut node = Node { first, of, last, priority, reach: Reach::default(), left: None, right: None };
        node.update();
        let (before, after) = split(self.root.take(), node.key());
        self.root = join(join(before, Some(Box::new(node))), after);
    }

    /// Removes the range of `of` that begins at `first`.
    pub(super) fn remove(&mut self, first: u64, of: HolderId) {
        let (before, rest) = split(self.root.take(), (first, of));
        let (_it, after) = split(rest, (first, of + 1));
        self.root = join(before, after);
    }

    /// Gives `visit` each that has bytes of `range` and is not of `me`, by first bytes, until it
    /// breaks: whose it is and where it begins.
    pub(super) fn meeting(
        &self,
        range: LockRange,
        me: Option<HolderId>,
        visit: &mut impl FnMut(HolderId, u64) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        visit_tree(&self.root, range, me, visit)
    }
}

fn visit_tree(
    tree: &Tree,
    range: LockRange,
    me: Option<HolderId>,
    visit: &mut impl FnMut(HolderId, u64) -> ControlFlow<()>,
) -> ControlFlow<()> {
    #[cfg(test)]
    super::tests::VISITED.set(super::tests::VISITED.get() + 1);
    let Some(node) = tree else { return ControlFlow::Continue(()) };
    if !node.reach.is_past(range.first(), me) {
        return ControlFlow::Continue(());
    }
    visit_tree(&node.left, range, me, visit)?;
    if node.first > range.last() {
        return ControlFlow::Continue(());
    }
    if node.last >= range.first() && Some(node.of) != me {
        visit(node.of, node.first)?;
    }
    visit_tree(&node.right, range, me, visit)
}
