//! The tree of a directory's entries: from their hashes, and stored branches of names that begin
//! alike.
//!
//! Where more than [`LEAVES_MAX`] names of a directory begin with some prefix, a *branch* is stored
//! for it: for each byte that follows the prefix the number of those names and their tree. So a
//! change looks at a branch for each byte of its name until few names are left, and at those.

use super::DigestRows;
use crate::Name;
use crate::error::{Error, Result};
use crate::row::Ino;
use std::collections::BTreeMap;
use weft_digest::{Digest, DirectoryHasher};

/// Names that need no branch.
pub(crate) const LEAVES_MAX: usize = 64;

/// Bytes of a branch's child: the byte that follows, the number of names, their tree.
const CHILD_BYTES: usize = 1 + 8 + 32;

/// Some of a directory's entries: those that begin alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Subtree {
    entries: u64,
    tree: Digest,
}

/// Subtrees by the byte that follows their common prefix; 0 where nothing does.
type Children = BTreeMap<u8, Subtree>;

type Leaf = (Name, Digest);

/// Stands for the hash of an entry that has none, and for the tree of what such an entry is in. No
/// bytes hash to it.
const UNKNOWN: Digest = [0; 32];

/// Updates the stored branches of the entries of `parent` after `changed`, names in order, each
/// once; returns the directory's digest. None if an entry has no hash.
pub(super) fn update(
    rows: &dyn DigestRows,
    hasher: &DirectoryHasher,
    parent: Ino,
    changed: &[Name],
) -> Result<Option<Digest>> {
    let Subtree { entries, tree } = Tree { rows, hasher, parent }.update(&[], changed)?;
    // The tree of no entries is of the same bytes.
    Ok((entries == 0 || tree != UNKNOWN).then(|| hasher.directory(entries, &tree)))
}

struct Tree<'a> {
    rows: &'a dyn DigestRows,
    hasher: &'a DirectoryHasher,
    parent: Ino,
}

/// The byte of `name` after its first `len`.
fn byte_after(name: &Name, len: usize) -> u8 {
    name.as_bytes().get(len).copied().unwrap_or(0)
}

/// Returns `prefix` with `byte` appended.
fn extended(prefix: &[u8], byte: u8) -> Vec<u8> {
    [prefix, &[byte]].concat()
}

impl Tree<'_> {
    /// Updates the entries that begin with `prefix`; `changed` among them may be others than
    /// before.
    fn update(&self, prefix: &[u8], changed: &[Name]) -> Result<Subtree> {
        let Some(branch) = self.rows.branch(self.parent, prefix)? else {
            let few = self.leaves(prefix, LEAVES_MAX + 1)?;
            if few.len() <= LEAVES_MAX {
                return Ok(self.few(&few));
            }
            return self.build(prefix, &self.leaves(prefix, usize::MAX)?);
        };
        let mut children = self.decode(&branch)?;
        for alike in changed.chunk_by(|one, other| byte_after(one, prefix.len()) == byte_after(other, prefix.len())) {
            let byte = byte_after(&alike[0], prefix.len());
            let child = self.child(prefix, byte, alike)?;
            match child.entries {
                0 => children.remove(&byte),
                _ => children.insert(byte, child),
            };
        }
        self.keep(prefix, &children)
    }

    fn child(&self, prefix: &[u8], byte: u8, changed: &[Name]) -> Result<Subtree> {
        if byte != 0 {
            return self.update(&extended(prefix, byte), changed);
        }
        // The name ends here: there is one at most, the first of those that begin so.
        let mut first = self.leaves(prefix, 1)?;
        first.retain(|(name, _)| *name == changed[0]);
        Ok(self.few(&first))
    }

    fn few(&self, leaves: &[Leaf]) -> Subtree {
        if leaves.iter().any(|(_, hash)| *hash == UNKNOWN) {
            return Subtree { entries: leaves.len() as u64, tree: UNKNOWN };
        }
        let leaves = leaves.iter().map(|(name, hash)| (name.as_bytes(), *hash)).collect::<Vec<_>>();
        Subtree { entries: leaves.len() as u64, tree: self.hasher.tree(&leaves) }
    }

    fn leaves(&self, prefix: &[u8], limit: usize) -> Result<Vec<Leaf>> {
        let entries = self.rows.entries(self.parent, prefix, limit)?;
        if !entries.is_sorted_by(|(one, _), (other, _)| one < other) {
            return Err(Error::Corrupt(format!("the names in directory {} are not in order", self.parent.0)));
        }
        Ok(entries.into_iter().map(|(name, hash)| (name, hash.unwrap_or(UNKNOWN))).collect())
    }

    /// Makes the branches of `leaves`, all that begin with `prefix`, where nothing is stored.
    fn build(&self, prefix: &[u8], leaves: &[Leaf]) -> Result<Subtree> {
        if leaves.len() <= LEAVES_MAX {
            return Ok(self.few(leaves));
        }
        let after = |(name, _): &Leaf| byte_after(name, prefix.len());
        let mut children = Children::new();
        for alike in leaves.chunk_by(|one, other| after(one) == after(other)) {
            let byte = after(&alike[0]);
            children.insert(byte, self.build(&extended(prefix, byte), alike)?);
        }
        self.keep(prefix, &children)
    }

    /// Keeps the branch, if there are names enough.
    fn keep(&self, prefix: &[u8], children: &Children) -> Result<Subtree> {
        let entries = children.values().map(|child| child.entries).sum();
        let many = entries > LEAVES_MAX as u64;
        let branch = many.then(|| encode(children));
        self.rows.set_branch(self.parent, prefix, branch.as_deref())?;
        if children.values().any(|child| child.tree == UNKNOWN) {
            return Ok(Subtree { entries, tree: UNKNOWN });
        }
        let trees = children.iter().map(|(byte, child)| ([*byte], child.tree)).collect::<Vec<_>>();
        Ok(Subtree { entries, tree: self.hasher.tree(&trees) })
    }

    fn decode(&self, branch: &[u8]) -> Result<Children> {
        let (children, rest) = branch.as_chunks::<CHILD_BYTES>();
        let child = |bytes: &[u8; CHILD_BYTES]| {
            let [byte, entries @ ..] = bytes;
            let (count, tree) = entries.split_at(8);
            let entries = u64::from_le_bytes(count.try_into().expect("8 bytes"));
            (*byte, Subtree { entries, tree: tree.try_into().expect("32 bytes") })
        };
        // Sums of what no directory holds must not overflow.
        let children = children.iter().map(child).collect::<Children>();
        let sane = rest.is_empty() && children.values().all(|child| child.entries <= u64::from(u32::MAX) * 256);
        let damaged = || Error::Corrupt(format!("what is kept of names in directory {} is damaged", self.parent.0));
        if sane { Ok(children) } else { Err(damaged()) }
    }
}

fn encode(children: &Children) -> Vec<u8> {
    let child = |(byte, child): (&u8, &Subtree)| {
        let mut bytes = vec![*byte];
        bytes.extend(child.entries.to_le_bytes());
        bytes.extend(child.tree);
        bytes
    };
    children.iter().flat_map(child).collect()
}
