//! Personal nodes of links that some users may know of, and others not: one for each of those
//! users.
//!
//! The kernel shows a program that asks for it (`AT_STATX_DONT_SYNC`) the attributes that it last
//! got of a node, by any user's request, and each holder of a node can ask for them. So the node of
//! one user is not another's. Node numbers are sequential and mean nothing once the kernel has
//! forgotten them.

use parking_lot::Mutex;
use std::collections::HashMap;
use weft_vfs::Ino;

/// First number; the volume's inodes have lower ones.
const FIRST: u64 = 1 << 61;
/// First number after the personal ones, where entries of views begin ([`weft_vfs::is_virtual`]).
const END: u64 = 1 << 62;

/// The personal nodes that the kernel knows.
pub(super) struct PersonalNodes {
    table: Mutex<Table>,
}

struct Table {
    next: u64,
    by_number: HashMap<u64, Personal>,
    by_user: HashMap<(Ino, u32), u64>,
}

struct Personal {
    ino: Ino,
    user: u32,
    /// Lookups that the kernel counts for it.
    lookups: u64,
}

/// True if a node's number is that of a personal one.
pub(super) fn is_personal(number: u64) -> bool {
    (FIRST..END).contains(&number)
}

impl Default for PersonalNodes {
    fn default() -> PersonalNodes {
        let table = Table { next: FIRST, by_number: HashMap::new(), by_user: HashMap::new() };
        PersonalNodes { table: Mutex::new(table) }
    }
}

impl PersonalNodes {
    /// Returns the number of the node of `ino` for `user`, and counts a lookup of it.
    pub(super) fn tell(&self, ino: Ino, user: u32) -> u64 {
        let table = &mut *self.table.lock();
        let number = *table.by_user.entry((ino, user)).or_insert_with(|| {
            let number = table.next;
            table.next += 1;
            table.by_number.insert(number, Personal { ino, user, lookups: 0 });
            number
        });
        if let Some(node) = table.by_number.get_mut(&number) {
            node.lookups += 1;
        }
        number
    }

    /// Returns the inode of node `number` and its user; none if the kernel has forgotten it.
    pub(super) fn get(&self, number: u64) -> Option<(Ino, u32)> {
        self.table.lock().by_number.get(&number).map(|node| (node.ino, node.user))
    }

    /// Takes back `times` lookups of node `number`.
    pub(super) fn forget(&self, number: u64, times: u64) {
        let table = &mut *self.table.lock();
        let Some(node) = table.by_number.get_mut(&number) else { return };
        node.lookups = node.lookups.saturating_sub(times);
        if node.lookups == 0 {
            table.by_user.remove(&(node.ino, node.user));
            table.by_number.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_one_node_of_a_link_until_the_kernel_has_forgotten_it() {
        let nodes = PersonalNodes::default();
        let number = nodes.tell(Ino(7), 1000);
        assert_eq!((nodes.tell(Ino(7), 1000), is_personal(number)), (number, true));
        assert_ne!(nodes.tell(Ino(7), 0), number);
        assert_ne!(nodes.tell(Ino(8), 1000), number);
        nodes.forget(number, 1);
        assert_eq!(nodes.get(number), Some((Ino(7), 1000)));
        nodes.forget(number, 1);
        assert_eq!(nodes.get(number), None);
        assert_ne!(nodes.tell(Ino(7), 1000), number, "a number means one node for ever");
    }
}
