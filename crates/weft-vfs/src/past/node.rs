//! Nodes of the past, and what tells them apart.

use weft_store::{CommitNo, Ino};

/// Bytes of a node as a protocol may keep it ([`PastNode::to_bytes`]).
pub const PAST_NODE_BYTES: usize = 1 + 3 * 8;

/// A node below `.weft`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PastNode {
    /// `.weft` of this directory.
    Entrance(Ino),
    /// `.weft/at` of it.
    Moments(Ino),
    /// A symbolic link in there, which says `@` and this number.
    Moment(Ino, CommitNo),
    /// An inode as it was.
    Inode(PastInode),
}

/// An inode as of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastInode {
    /// The commit.
    pub commit: CommitNo,
    /// The directory whose past was entered.
    pub top: Ino,
    /// The inode.
    pub ino: Ino,
}

impl PastNode {
    /// Its bytes, by which a protocol may name it.
    pub fn to_bytes(self) -> [u8; PAST_NODE_BYTES] {
        let (tag, numbers) = match self {
            PastNode::Entrance(directory) => (1, [directory.0, 0, 0]),
            PastNode::Moments(directory) => (2, [directory.0, 0, 0]),
            PastNode::Moment(directory, commit) => (3, [directory.0, commit.0, 0]),
            PastNode::Inode(PastInode { commit, top, ino }) => (4, [top.0, commit.0, ino.0]),
        };
        let mut bytes = [tag; PAST_NODE_BYTES];
        for (place, number) in bytes[1..].chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_be_bytes());
        }
        bytes
    }

    /// The node that has these bytes. None if no node has.
    pub fn from_bytes(bytes: &[u8; PAST_NODE_BYTES]) -> Option<PastNode> {
        let (tag, rest) = bytes.split_first()?;
        let mut numbers =
            rest.chunks_exact(8).map(|number| u64::from_be_bytes(number.try_into().expect("eight bytes")));
        let mut next = || numbers.next().unwrap_or_default();
        let (top, commit, ino) = (Ino(next()), CommitNo(next()), Ino(next()));
        match tag {
            1 => Some(PastNode::Entrance(top)),
            2 => Some(PastNode::Moments(top)),
            3 => Some(PastNode::Moment(top, commit)),
            4 => Some(PastNode::Inode(PastInode { commit, top, ino })),
            _ => None,
        }
    }
}

/// What the number of a node follows from: nodes with the same one are one inode to programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Identity {
    /// The node alone.
    Node(PastNode),
    /// The version of a file: commits that have the same one show the same inode.
    Version(Ino, CommitNo),
    /// It is another one each time.
    Single(u64),
}

impl Identity {
    pub(super) fn to_bytes(self) -> [u8; PAST_NODE_BYTES] {
        let (tag, first, second) = match self {
            Identity::Node(node) => return node.to_bytes(),
            Identity::Version(ino, since) => (5, ino.0, since.0),
            Identity::Single(count) => (6, count, 0),
        };
        let mut bytes = [0; PAST_NODE_BYTES];
        bytes[0] = tag;
        bytes[1..9].copy_from_slice(&first.to_be_bytes());
        bytes[9..17].copy_from_slice(&second.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_comes_back_from_its_bytes() {
        let (top, commit, ino) = (Ino(7), CommitNo(8), Ino(9));
        let inode = PastNode::Inode(PastInode { commit, top, ino });
        for node in [PastNode::Entrance(top), PastNode::Moments(top), PastNode::Moment(top, commit), inode] {
            assert_eq!(PastNode::from_bytes(&node.to_bytes()), Some(node));
        }
        assert_eq!(PastNode::from_bytes(&[0; PAST_NODE_BYTES]), None);
        assert_eq!(PastNode::from_bytes(&[5; PAST_NODE_BYTES]), None);
    }
}
