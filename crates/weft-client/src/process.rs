//! State that a child process does not share with its parent after fork(2).
//!
//! The child has a copy of all memory, but only of the thread that forked. A lock that another
//! thread held stays locked in the child for ever. And what the parent holds is the parent's to
//! give back: a child that does it, too, takes it away from the parent.

use std::sync::OnceLock;

/// A value for each process: a child begins with a new one, and never touches its parent's.
pub(crate) struct PerProcess<T> {
    first: OnceLock<Box<Node<T>>>,
}

/// The value of one process. Those of its children follow.
struct Node<T> {
    process: u32,
    value: T,
    next: OnceLock<Box<Node<T>>>,
}

impl<T: Default> PerProcess<T> {
    pub(crate) const fn new() -> PerProcess<T> {
        PerProcess { first: OnceLock::new() }
    }

    /// Returns the value of this process.
    pub(crate) fn get(&self) -> &T {
        let process = std::process::id();
        let mut slot = &self.first;
        loop {
            let new = || Box::new(Node { process, value: T::default(), next: OnceLock::new() });
            let node = slot.get_or_init(new);
            if node.process == process {
                return &node.value;
            }
            slot = &node.next;
        }
    }
}
