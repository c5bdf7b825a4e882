//! Proofs that a directory of some digest holds, at some path, something of some digest.
//!
//! A proof has, for each directory on the way, the hashes beside the way through its tree: about as
//! many as the logarithm of the number of its entries. With them the digest of the first directory
//! follows from that of the last entry; nothing else is needed.

pub use crate::directory::{Sibling, Side};

use crate::directory::{DirectoryHasher, Entry};
use crate::{Digest, Kind};

/// More levels than bits in a name and its end there cannot be.
pub const SIBLINGS_MAX: usize = 256 * 8;

/// The way from a directory to one of its entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The entry's.
    pub name: Vec<u8>,
    /// Kind of the inode that it names.
    pub kind: Kind,
    /// The lower 12 bits of `st_mode`.
    pub permissions: u16,
    /// Entries of the directory.
    pub entries: u64,
    /// The hashes beside the way, from the top down: at most [`SIBLINGS_MAX`].
    pub siblings: Vec<Sibling>,
}

/// A proof that `steps`, one after another, lead to an inode with the digest `digest`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Steps from the first directory down.
    pub steps: Vec<Step>,
    /// Digest as an [`Entry`] has it.
    pub digest: Digest,
}

impl Step {
    /// Makes the step from the directory with these entries to the entry `name`. None if there is
    /// none.
    pub fn new<'a>(entries: impl IntoIterator<Item = Entry<'a>>, name: &[u8]) -> Option<Step> {
        let hasher = DirectoryHasher::new();
        let mut found = None;
        let look = |entry: Entry<'a>| {
            if entry.name == name {
                found = Some((entry.kind, entry.permissions));
            }
            entry
        };
        let leaves = hasher.leaves(entries.into_iter().map(look));
        let (kind, permissions) = found?;
        let siblings = hasher.siblings(&leaves, name);
        Some(Step { name: name.to_vec(), kind, permissions, entries: leaves.len() as u64, siblings })
    }

    /// The digest of the directory, if what the entry names has the digest `below`.
    fn directory(&self, hasher: &DirectoryHasher, below: Digest) -> Digest {
        let Step { name, kind, permissions, .. } = self;
        let mut value = hasher.entry(&Entry { name, kind: *kind, permissions: *permissions, digest: below });
        for Sibling { side, digest } in self.siblings.iter().rev() {
            value = match side {
                Side::Left => hasher.node(digest, &value),
                Side::Right => hasher.node(&value, digest),
            };
        }
        hasher.directory(self.entries, &value)
    }
}

impl Proof {
    /// The digest of the first directory: who trusts it knows the rest. None if this is no proof,
    /// whatever the digest: without a step, through what is no directory, or with too many hashes.
    pub fn root(&self) -> Option<Digest> {
        let (_, before) = self.steps.split_last()?;
        let is_way = before.iter().all(|step| step.kind == Kind::Directory);
        if !is_way || self.steps.iter().any(|step| step.siblings.len() > SIBLINGS_MAX) {
            return None;
        }
        let hasher = DirectoryHasher::new();
        Some(self.steps.iter().rev().fold(self.digest, |below, step| step.directory(&hasher, below)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{digest, directory};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn entries(names: &BTreeSet<Vec<u8>>, below: Option<(&[u8], Digest)>) -> Vec<(Vec<u8>, Kind, Digest)> {
        let of = |name: &Vec<u8>| match below {
            Some((at, digest)) if at == name => (name.clone(), Kind::Directory, digest),
            _ => (name.clone(), Kind::File, digest(name)),
        };
        names.iter().map(of).collect()
    }

    fn listed(entries: &[(Vec<u8>, Kind, Digest)]) -> impl Iterator<Item = Entry<'_>> {
        entries.iter().map(|(name, kind, digest)| Entry { name, kind: *kind, permissions: 0o644, digest: *digest })
    }

    fn names() -> impl Strategy<Value = BTreeSet<Vec<u8>>> {
        prop::collection::btree_set(prop::collection::vec(1u8.., 1..5), 1..200)
    }

    /// A directory in a directory, and the proof of an entry of the former.
    fn proof(above: &BTreeSet<Vec<u8>>, below: &BTreeSet<Vec<u8>>, at: prop::sample::Index) -> (Digest, Proof) {
        let name = at.get(&below.iter().collect::<Vec<_>>()).to_vec();
        let lower = entries(below, None);
        let between = at.get(&above.iter().collect::<Vec<_>>()).to_vec();
        let upper = entries(above, Some((&between, directory(listed(&lower)))));
        let steps =
            vec![Step::new(listed(&upper), &between).expect("there"), Step::new(listed(&lower), &name).expect("there")];
        (directory(listed(&upper)), Proof { steps, digest: digest(&name) })
    }

    proptest! {
        #[test]
        fn every_entry_can_be_proved_with_few_hashes(above in names(), below in names(), at: prop::sample::Index) {
            let (root, proof) = proof(&above, &below, at);
            prop_assert_eq!(proof.root(), Some(root));
            // As many as names of four bytes have bits, at most.
            prop_assert!(proof.steps.iter().all(|step| step.siblings.len() < 40));
        }

        #[test]
        fn a_proof_of_something_else_leads_to_another_root(
            (above, below) in (names(), names()),
            at: prop::sample::Index,
            change in 0..10,
            bit in 0..8u8,
            which: prop::sample::Index,
        ) {
            let (root, mut proof) = proof(&above, &below, at);
            let step = which.index(2);
            let step = &mut proof.steps[step];
            match change {
                0 => proof.digest[which.index(32)] ^= 1 << bit,
                1 => step.permissions ^= 1 << bit,
                2 => step.entries ^= 1 << bit,
                3 => { let at = which.index(step.name.len()); step.name[at] ^= 1 << bit; }
                4 => step.kind = Kind::Symlink,
                5 if !step.siblings.is_empty() => { let at = which.index(step.siblings.len()); step.siblings[at].digest[which.index(32)] ^= 1 << bit; }
                6 if !step.siblings.is_empty() => { step.siblings.remove(which.index(step.siblings.len())); }
                7 => step.siblings.push(Sibling { side: Side::Left, digest: [0; 32] }),
                8 if !step.siblings.is_empty() => {
                    let at = which.index(step.siblings.len());
                    let side = &mut step.siblings[at].side;
                    *side = if *side == Side::Left { Side::Right } else { Side::Left };
                }
                _ => { proof.steps.remove(which.index(2)); }
            }
            prop_assert_ne!(proof.root(), Some(root));
        }
    }

    #[test]
    fn what_is_not_there_cannot_be_proved() {
        let there = entries(&BTreeSet::from([b"a".to_vec(), b"b".to_vec()]), None);
        assert_eq!(Step::new(listed(&there), b"c"), None);
        assert_eq!(Proof { steps: Vec::new(), digest: [1; 32] }.root(), None);
    }
}
