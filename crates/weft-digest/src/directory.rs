//! Digests of directories: over the names in them, with kind, permissions and digest of what each
//! names.
//!
//! The entries form a binary tree over the bits of their names, so that the digest does not depend
//! on their order, one that changes concerns only the nodes above it, and the hashes beside that
//! way prove that it is there. Names that are alike lie together, as they do in what is sorted by
//! name. docs/reference/digest.md has the definition and the argument that two directories of one
//! digest are the same.

use crate::{Digest, Kind, digest};
use blake3::Hasher;

/// The side of the path on which a hash lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Left of it.
    Left,
    /// Right of it.
    Right,
}

/// A hash beside the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sibling {
    /// Its side of the path.
    pub side: Side,
    /// The tree of all entries there.
    pub digest: Digest,
}

/// Contexts that the keys of the hashes are derived from: no hash of one use is one of another, nor
/// one of a file.
const DIRECTORY_CONTEXT: &str = "weft 2026-11 directory";
const NODE_CONTEXT: &str = "weft 2026-11 directory node";
const ENTRY_CONTEXT: &str = "weft 2026-11 directory entry";

/// Hash of a tree without entries.
const EMPTY: Digest = [0; 32];

/// An entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Its bytes.
    pub name: &'a [u8],
    /// Kind of the inode that it names.
    pub kind: Kind,
    /// The lower 12 bits of `st_mode`.
    pub permissions: u16,
    /// For a file: the digest by which it is listed. For a directory: its digest. For a symbolic
    /// link: the digest of its target. For a device: [`device`]. For others: the digest of no
    /// bytes.
    pub digest: Digest,
}

/// The digest of a device node.
pub fn device(major: u32, minor: u32) -> Digest {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&major.to_le_bytes());
    bytes[4..].copy_from_slice(&minor.to_le_bytes());
    digest(&bytes)
}

/// The digest of a directory. No two entries have one name.
pub fn directory<'a>(entries: impl IntoIterator<Item = Entry<'a>>) -> Digest {
    let hasher = DirectoryHasher::new();
    let leaves = hasher.leaves(entries);
    hasher.directory(leaves.len() as u64, &hasher.tree(&leaves))
}

/// A bit of a name: of a byte, from the highest down. A byte 0 ends the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bit {
    byte: usize,
    shift: u8,
}

impl Bit {
    /// The first in which two names differ.
    fn between(one: &[u8], other: &[u8]) -> Bit {
        let byte = one.iter().zip(other).take_while(|(one, other)| one == other).count();
        let differ = byte_at(one, byte) ^ byte_at(other, byte);
        assert!(differ != 0, "no two entries have one name");
        Bit { byte, shift: u8::try_from(differ.ilog2()).expect("below 8") }
    }

    fn is_set(self, name: &[u8]) -> bool {
        byte_at(name, self.byte) >> self.shift & 1 == 1
    }
}

fn byte_at(name: &[u8], index: usize) -> u8 {
    name.get(index).copied().unwrap_or(0)
}

/// Two or more leaves in the order of their names, by the first bit in which any two differ.
#[expect(clippy::type_complexity, reason = "two halves of one slice")]
fn split<N: AsRef<[u8]>>(leaves: &[(N, Digest)]) -> (Bit, (&[(N, Digest)], &[(N, Digest)])) {
    let (first, last) = (leaves.first().expect("two or more"), leaves.last().expect("two or more"));
    let bit = Bit::between(first.0.as_ref(), last.0.as_ref());
    (bit, leaves.split_at(leaves.partition_point(|(name, _)| !bit.is_set(name.as_ref()))))
}

/// The hashes of the definition, their keys derived.
pub struct DirectoryHasher {
    directory: Hasher,
    node: Hasher,
    entry: Hasher,
}

impl Default for DirectoryHasher {
    fn default() -> DirectoryHasher {
        DirectoryHasher::new()
    }
}

impl DirectoryHasher {
    /// Derives the keys: keep it.
    pub fn new() -> DirectoryHasher {
        let [directory, node, entry] = [DIRECTORY_CONTEXT, NODE_CONTEXT, ENTRY_CONTEXT].map(Hasher::new_derive_key);
        DirectoryHasher { directory, node, entry }
    }

    /// The hash of an entry: a leaf of the tree.
    pub fn entry(&self, entry: &Entry<'_>) -> Digest {
        let mut hasher = self.entry.clone();
        hasher.update(&[entry.kind.letter()]).update(&entry.permissions.to_le_bytes()).update(&entry.digest);
        *hasher.update(entry.name).finalize().as_bytes()
    }

    pub(crate) fn node(&self, left: &Digest, right: &Digest) -> Digest {
        *self.node.clone().update(left).update(right).finalize().as_bytes()
    }

    /// The digest of a directory of so many entries, from their tree.
    pub fn directory(&self, entries: u64, tree: &Digest) -> Digest {
        *self.directory.clone().update(&entries.to_le_bytes()).update(tree).finalize().as_bytes()
    }

    /// Names and hashes, in the order of the names.
    pub(crate) fn leaves<'a>(&self, entries: impl IntoIterator<Item = Entry<'a>>) -> Vec<(&'a [u8], Digest)> {
        let mut leaves = entries.into_iter().map(|entry| (entry.name, self.entry(&entry))).collect::<Vec<_>>();
        leaves.sort_unstable_by_key(|(name, _)| *name);
        leaves
    }

    /// The tree of leaves, each with its name, in the order of the names, no two alike. Leaves
    /// whose names begin alike may be given as one, by what is longer than what they share with any
    /// other, and their tree.
    pub fn tree<N: AsRef<[u8]>>(&self, leaves: &[(N, Digest)]) -> Digest {
        match leaves {
            [] => EMPTY,
            [(_, only)] => *only,
            leaves => {
                let (_, (left, right)) = split(leaves);
                self.node(&self.tree(left), &self.tree(right))
            }
        }
    }

    /// The trees beside the way from the top to the leaf of `name`, in the order of that way.
    pub(crate) fn siblings<N: AsRef<[u8]>>(&self, mut leaves: &[(N, Digest)], name: &[u8]) -> Vec<Sibling> {
        let mut siblings = Vec::new();
        while leaves.len() > 1 {
            let (bit, (left, right)) = split(leaves);
            let (side, other);
            (side, other, leaves) =
                if bit.is_set(name) { (Side::Left, left, right) } else { (Side::Right, right, left) };
            siblings.push(Sibling { side, digest: self.tree(other) });
        }
        siblings
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Content, FileHasher, hex};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    type Entries = BTreeMap<Vec<u8>, (Kind, u16, Digest)>;

    fn of<'a>(entries: impl Iterator<Item = (&'a Vec<u8>, &'a (Kind, u16, Digest))>) -> Digest {
        directory(entries.map(|(name, &(kind, permissions, digest))| Entry { name, kind, permissions, digest }))
    }

    fn kind() -> impl Strategy<Value = Kind> {
        prop::sample::select(vec![
            Kind::File,
            Kind::Directory,
            Kind::Symlink,
            Kind::Fifo,
            Kind::Socket,
            Kind::CharDevice,
            Kind::BlockDevice,
            Kind::Transformation,
        ])
    }

    fn entries() -> impl Strategy<Value = Entries> {
        let name = prop::collection::vec(1u8.., 1..20);
        prop::collection::btree_map(name, (kind(), 0u16..0o10000, any::<Digest>()), 0..60)
    }

    proptest! {
        #[test]
        fn the_order_of_entries_does_not_matter(entries in entries()) {
            prop_assert_eq!(of(entries.iter()), of(entries.iter().rev()));
        }

        #[test]
        fn what_begins_alike_may_be_given_as_one(
            names in prop::collection::btree_set(prop::collection::vec(1u8..4, 1..6), 0..60),
        ) {
            let hasher = DirectoryHasher::new();
            let leaves = names.iter().map(|name| (name.clone(), digest(name))).collect::<Vec<_>>();
            let by_first = leaves.chunk_by(|one, other| one.0[0] == other.0[0]);
            let grouped = by_first.map(|group| ([group[0].0[0]], hasher.tree(group))).collect::<Vec<_>>();
            prop_assert_eq!(hasher.tree(&grouped), hasher.tree(&leaves));
        }

        #[test]
        fn any_change_of_an_entry_changes_it(
            entries in entries(),
            which: prop::sample::Index,
            change in 0..5,
            other in (prop::collection::vec(1u8.., 1..20), any::<Digest>()),
            other_kind in kind(),
        ) {
            prop_assume!(!entries.is_empty());
            let before = of(entries.iter());
            let mut changed = entries.clone();
            let name = which.get(&entries.keys().collect::<Vec<_>>()).to_vec();
            let entry = changed.get_mut(&name).expect("there");
            match change {
                0 => entry.0 = other_kind,
                1 => entry.1 ^= 0o100,
                2 => entry.2 = other.1,
                3 => { changed.remove(&name); }
                _ => { let entry = changed.remove(&name).expect("there"); changed.insert(other.0, entry); }
            }
            prop_assert_eq!(of(changed.iter()) == before, changed == entries);
        }
    }

    /// The vectors are those of docs/reference/digest.md.
    #[test]
    fn the_test_vectors_hold() {
        assert_eq!(hex(&directory([])), "2d5a329df28e5f9ad1d03f9a90ebe66d1f6e072f50aab288841bdcfa04c65725");
        let run = Entry { name: b"run", kind: Kind::File, permissions: 0o4755, digest: digest(b"run") };
        let below = directory([run]);
        assert_eq!(hex(&below), "e8bfa9ef9f5d5a5f978cae9c6dc5082b5e22af5bc85c4b63b057de430f0dadbb");
        let entries = [
            (&b"hello"[..], Kind::File, 0o644, digest(b"hello\n")),
            (b"directory", Kind::Directory, 0o755, below),
            (b"link", Kind::Symlink, 0o777, digest(b"hello")),
            (b"null", Kind::CharDevice, 0o666, device(1, 3)),
            (b"fifo", Kind::Fifo, 0o600, digest(b"")),
        ];
        let entries = entries.map(|(name, kind, permissions, digest)| Entry { name, kind, permissions, digest });
        assert_eq!(hex(&directory(entries)), "2a4466e71789e0632ffce920d1a54468500cce34919eefe7857b26095e1ed09e");
        let mut holes = FileHasher::new(Content::IfListed);
        holes.zeros((1 << 22) + 5);
        let listed = holes.finish().listed;
        let holes = Entry { name: b"holes", kind: Kind::File, permissions: 0o644, digest: listed };
        assert_eq!(hex(&directory([holes])), "9614c1d897550b1bcc82d7ba80424e251e59e82a999ecbf563ef95ebf51c6710");
    }

    #[test]
    fn a_directory_has_no_digest_that_a_file_may_have() {
        let mut bytes = 0u64.to_le_bytes().to_vec();
        bytes.extend(EMPTY);
        assert_ne!(directory([]), digest(&bytes));
    }
}
