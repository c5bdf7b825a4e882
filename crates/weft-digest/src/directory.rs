//! Digests of directories: over the names in them, with kind, permissions and digest of what each names.
//!
//! The entries form a binary tree over the bits of their names' hashes, so that the digest does not depend on their order, one that
//! changes concerns as many nodes as the logarithm of their number, and a path of such nodes proves that one is there.
//! docs/digest.md has the definition and the argument that two directories of one digest are the same.

use crate::{Digest, Kind, digest};
use blake3::Hasher;

/// What the keys of the hashes are derived from: no hash of one use is one of another, nor one of a file.
const DIRECTORY_CONTEXT: &str = "weft 2026-11 directory";
const NODE_CONTEXT: &str = "weft 2026-11 directory node";
const ENTRY_CONTEXT: &str = "weft 2026-11 directory entry";

/// What a tree without entries hashes to.
const EMPTY: Digest = [0; 32];

/// An entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Its bytes.
    pub name: &'a [u8],
    /// Of what it names.
    pub kind: Kind,
    /// The lower 12 bits of `st_mode`.
    pub permissions: u16,
    /// Of a file: by what it is listed. Of a directory: its digest. Of a symbolic link: the digest of its target.
    /// Of a device: [`device`]. Of others: the digest of no bytes.
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
    let hashes = Hashes::new();
    let mut leaves: Vec<_> = entries.into_iter().map(|entry| (digest(entry.name), hashes.entry(&entry))).collect();
    leaves.sort_unstable_by_key(|(key, _)| *key);
    hashes.directory(leaves.len() as u64, &hashes.tree(&leaves, 0))
}

/// The hash of a name, and of the entry.
type Leaf = (Digest, Digest);

/// Whether a key has a 1 at bit `depth`.
pub(crate) fn is_right(key: &Digest, depth: usize) -> bool {
    key[depth / 8] >> (7 - depth % 8) & 1 == 1
}

/// Leaves in the order of their keys, which agree in the first `depth` bits, by the next.
fn split(leaves: &[Leaf], depth: usize) -> (&[Leaf], &[Leaf]) {
    assert!(depth < 256, "no two entries have one name");
    leaves.split_at(leaves.partition_point(|(key, _)| !is_right(key, depth)))
}

/// The hashes of the definition, their keys derived.
pub(crate) struct Hashes {
    directory: Hasher,
    node: Hasher,
    entry: Hasher,
}

impl Hashes {
    pub(crate) fn new() -> Hashes {
        let [directory, node, entry] = [DIRECTORY_CONTEXT, NODE_CONTEXT, ENTRY_CONTEXT].map(Hasher::new_derive_key);
        Hashes { directory, node, entry }
    }

    pub(crate) fn entry(&self, entry: &Entry<'_>) -> Digest {
        let mut hasher = self.entry.clone();
        hasher.update(&[entry.kind.letter()]).update(&entry.permissions.to_le_bytes()).update(&entry.digest);
        *hasher.update(entry.name).finalize().as_bytes()
    }

    pub(crate) fn node(&self, left: &Digest, right: &Digest) -> Digest {
        *self.node.clone().update(left).update(right).finalize().as_bytes()
    }

    pub(crate) fn directory(&self, entries: u64, tree: &Digest) -> Digest {
        *self.directory.clone().update(&entries.to_le_bytes()).update(tree).finalize().as_bytes()
    }

    /// Of leaves in the order of their keys, which agree in the first `depth` bits.
    fn tree(&self, leaves: &[Leaf], depth: usize) -> Digest {
        match leaves {
            [] => EMPTY,
            [(_, only)] => *only,
            leaves => {
                let (left, right) = split(leaves, depth);
                self.node(&self.tree(left, depth + 1), &self.tree(right, depth + 1))
            }
        }
    }

    /// The trees beside the way from the top to the leaf with `key`, in the order of that way.
    pub(crate) fn siblings(&self, mut leaves: &[Leaf], key: &Digest) -> Vec<Digest> {
        let mut siblings = Vec::new();
        while leaves.len() > 1 {
            let depth = siblings.len();
            let (left, right) = split(leaves, depth);
            let (own, other) = if is_right(key, depth) { (right, left) } else { (left, right) };
            siblings.push(self.tree(other, depth + 1));
            leaves = own;
        }
        siblings
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Content, FileHasher};
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
        ])
    }

    fn entries() -> impl Strategy<Value = Entries> {
        let name = prop::collection::vec(any::<u8>(), 1..20);
        prop::collection::btree_map(name, (kind(), 0u16..0o10000, any::<Digest>()), 0..60)
    }

    proptest! {
        #[test]
        fn the_order_of_entries_does_not_matter(entries in entries()) {
            prop_assert_eq!(of(entries.iter()), of(entries.iter().rev()));
        }

        #[test]
        fn any_change_of_an_entry_changes_it(
            entries in entries(),
            which: prop::sample::Index,
            change in 0..5,
            other: (Vec<u8>, Digest),
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

    fn hex(digest: Digest) -> String {
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Those of docs/digest.md.
    #[test]
    fn the_test_vectors_hold() {
        assert_eq!(hex(directory([])), "2d5a329df28e5f9ad1d03f9a90ebe66d1f6e072f50aab288841bdcfa04c65725");
        let run = Entry { name: b"run", kind: Kind::File, permissions: 0o4755, digest: digest(b"run") };
        let below = directory([run]);
        assert_eq!(hex(below), "e8bfa9ef9f5d5a5f978cae9c6dc5082b5e22af5bc85c4b63b057de430f0dadbb");
        let entries = [
            (&b"hello"[..], Kind::File, 0o644, digest(b"hello\n")),
            (b"directory", Kind::Directory, 0o755, below),
            (b"link", Kind::Symlink, 0o777, digest(b"hello")),
            (b"null", Kind::CharDevice, 0o666, device(1, 3)),
            (b"fifo", Kind::Fifo, 0o600, digest(b"")),
        ];
        let entries = entries.map(|(name, kind, permissions, digest)| Entry { name, kind, permissions, digest });
        assert_eq!(hex(directory(entries)), "49b5dc01c0d79442f9aaba80081dc3790c2a3ac5c275d61a478377f31689d19c");
        let mut holes = FileHasher::new(Content::IfListed);
        holes.zeros((257 << 22) + 5);
        let listed = holes.finish().listed;
        let holes = Entry { name: b"holes", kind: Kind::File, permissions: 0o644, digest: listed };
        assert_eq!(hex(directory([holes])), "aa9a7fcfafd482381730890d3bd0e74344994cc91d25585c30585d6cec2e534b");
    }

    #[test]
    fn a_directory_has_no_digest_that_a_file_may_have() {
        let mut bytes = 0u64.to_le_bytes().to_vec();
        bytes.extend(EMPTY);
        assert_ne!(directory([]), digest(&bytes));
    }
}
