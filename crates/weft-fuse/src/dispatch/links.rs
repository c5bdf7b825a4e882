//! The numbers by which the kernel knows transformation links.
//!
//! To the kernel each content that a link has is an inode of its own, so that what it keeps of one is never taken for another, without anybody having to tell
//! it what to forget. It asks for a link by name each time one is used, and gets the number of the content that the link has then.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;
use weft_vfs::{Attributes, Ino};

/// Numbers of inodes have 63 bits (SQL's are signed), those from here on are given out by [`LinkNodes`].
const FIRST: u64 = 1 << 63;

/// How long the kernel may answer from what it was told of a link's attributes: those who have it open look at them again and again.
const VALID: Duration = Duration::from_secs(1);

/// The links that the kernel knows.
#[derive(Default)]
pub(super) struct LinkNodes(Mutex<Table>);

#[derive(Default)]
struct Table {
    nodes: HashMap<u64, Node>,
    numbers: HashMap<(Ino, u64), u64>,
    given: u64,
}

struct Node {
    ino: Ino,
    computed: u64,
    /// How often the kernel was told of it.
    lookups: u64,
}

/// How the kernel is told of an inode.
pub(crate) struct Told {
    /// By this number.
    pub(crate) node: u64,
    /// How long its name may be taken to mean it.
    pub(crate) entry_valid: Duration,
    pub(crate) attributes_valid: Duration,
}

impl LinkNodes {
    /// How the kernel is told of what has `attributes`, once more; of what is no link so that it holds for `valid`.
    pub(super) fn tell(&self, attributes: &Attributes, valid: Duration) -> Told {
        let Some(computed) = attributes.computed else {
            return Told { node: attributes.ino.0, entry_valid: valid, attributes_valid: valid };
        };
        let mut table = self.0.lock();
        let Table { nodes, numbers, given } = &mut *table;
        let number = *numbers.entry((attributes.ino, computed)).or_insert_with(|| {
            *given += 1;
            FIRST + *given
        });
        let node = nodes.entry(number).or_insert(Node { ino: attributes.ino, computed, lookups: 0 });
        node.lookups += 1;
        Told { node: number, entry_valid: Duration::ZERO, attributes_valid: attributes_valid(attributes, valid) }
    }

    /// The inode that the kernel means by `number`.
    pub(super) fn ino(&self, number: u64) -> Ino {
        if number < FIRST {
            return Ino(number);
        }
        // What it was never told of is as gone as what it forgot.
        self.0.lock().nodes.get(&number).map_or(Ino(number), |node| node.ino)
    }

    /// The kernel takes back having been told `count` times of `number`. Tells which inode that is.
    pub(super) fn forget(&self, number: u64, count: u64) -> Ino {
        if number < FIRST {
            return Ino(number);
        }
        let mut table = self.0.lock();
        let Some(node) = table.nodes.get_mut(&number) else { return Ino(number) };
        let (ino, computed) = (node.ino, node.computed);
        node.lookups = node.lookups.saturating_sub(count);
        if node.lookups == 0 {
            table.nodes.remove(&number);
            table.numbers.remove(&(ino, computed));
        }
        ino
    }
}

/// Whether the kernel means a link, or an entry of a view, by `number`.
pub(super) fn is_link(number: u64) -> bool {
    number >= FIRST
}

/// How long the kernel may answer from `attributes`; from those of what is no link, for `valid`.
pub(super) fn attributes_valid(attributes: &Attributes, valid: Duration) -> Duration {
    match attributes.computed {
        None => valid,
        // It leads nowhere, for now.
        Some(0) => Duration::ZERO,
        Some(_) => VALID.min(valid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_vfs::{Kind, Timestamp};

    fn attributes(ino: u64, computed: Option<u64>) -> Attributes {
        let at = Timestamp(0);
        let (permissions, uid, gid, nlink, rdev, size, allocated) = (0o644, 0, 0, 1, 0, 0, 0);
        Attributes {
            ino: Ino(ino),
            generation: 0,
            kind: Kind::File,
            permissions,
            uid,
            gid,
            nlink,
            rdev,
            size,
            allocated,
            atime: at,
            mtime: at,
            ctime: at,
            btime: at,
            computed,
        }
    }

    #[test]
    fn each_content_has_a_number_until_it_is_forgotten() {
        let nodes = LinkNodes::default();
        let valid = Duration::from_secs(9);
        let tell = |ino, computed| nodes.tell(&attributes(ino, computed), valid).node;
        assert_eq!(tell(7, None), 7);
        let (first, second) = (tell(7, Some(1)), tell(7, Some(2)));
        assert!(first >= FIRST && second >= FIRST && first != second);
        assert_eq!(tell(7, Some(1)), first);
        assert_eq!((nodes.ino(first), nodes.ino(second), nodes.ino(7)), (Ino(7), Ino(7), Ino(7)));
        assert_eq!(nodes.forget(first, 1), Ino(7));
        assert_eq!(tell(7, Some(1)), first);
        assert_eq!(nodes.forget(first, 2), Ino(7));
        assert_eq!(nodes.ino(first), Ino(first), "nobody knows it any more");
        assert_ne!(tell(7, Some(1)), first);
    }
}
