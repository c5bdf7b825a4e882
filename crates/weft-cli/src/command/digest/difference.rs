//! Differences of two trees, by their digests: only differing directories are visited.

use super::directory::{Boxed, Item};
use anyhow::Result;
use std::collections::BTreeMap;
use weft_digest::Kind;

/// Difference between an entry of the second tree and that of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is in the second alone.
    Added,
    /// It is in the first alone.
    Deleted,
    /// It is of another kind.
    Kind,
    /// It has other content; of a directory, the entries show this.
    Content,
    /// It has other permissions.
    Permissions,
}

/// An entry that differs.
#[derive(Debug, PartialEq, Eq)]
pub struct Difference {
    pub change: Change,
    /// From the top.
    pub path: Vec<u8>,
    /// In the second tree, or in the first if it is in that alone.
    pub kind: Kind,
}

/// What has a name in the first tree, and in the second.
pub type Pair<'a> = [Option<Item<'a>>; 2];

/// Returns all differences of two entries called `name`: those below, if both are directories.
pub fn of_entries(name: &[u8], pair: Pair<'_>) -> Result<Vec<Difference>> {
    match pair {
        [Some(Item { below: Some(first), .. }), Some(Item { below: Some(second), .. })] => differences(first, second),
        pair => Ok(changes(&pair).map(|(change, item)| Difference::of(change, name.to_vec(), item)).collect()),
    }
}

impl Difference {
    pub fn is_directory(&self) -> bool {
        self.kind == Kind::Directory
    }

    fn of(change: Change, path: Vec<u8>, item: &Item<'_>) -> Difference {
        Difference { change, path, kind: item.kind }
    }
}

/// Returns all differences, in the order of their paths.
pub fn differences<'a>(first: Boxed<'a>, second: Boxed<'a>) -> Result<Vec<Difference>> {
    let mut found = Vec::new();
    // Not by recursion: a volume may be deeper than a stack.
    let mut waiting = vec![([first, second], Vec::new())];
    while let Some((directories, above)) = waiting.pop() {
        for (name, pair) in pairs(&directories)? {
            let path = if above.is_empty() { name } else { [&above, &name[..]].join(&b'/') };
            found.extend(changes(&pair).map(|(change, item)| Difference::of(change, path.clone(), item)));
            if let [Some(old), Some(new)] = pair
                && old.digest != new.digest
                && let (Some(old), Some(new)) = (old.below, new.below)
            {
                waiting.push(([old, new], path));
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// Returns the entries of both by name.
fn pairs<'a>(directories: &[Boxed<'a>; 2]) -> Result<BTreeMap<Vec<u8>, Pair<'a>>> {
    let mut pairs: BTreeMap<Vec<u8>, Pair<'a>> = BTreeMap::new();
    for (side, directory) in directories.iter().enumerate() {
        for item in directory.entries()? {
            let slot = pairs.entry(item.name.clone()).or_default();
            slot[side] = Some(item);
        }
    }
    Ok(pairs)
}

/// Returns their differences, without those below.
fn changes<'a, 'b>(pair: &'b Pair<'a>) -> impl Iterator<Item = (Change, &'b Item<'a>)> {
    let changes = match pair {
        [Some(old), None] => [Some((Change::Deleted, old)), None],
        [None, Some(new)] => [Some((Change::Added, new)), None],
        [Some(old), Some(new)] if old.kind != new.kind => [Some((Change::Kind, new)), None],
        [Some(old), Some(new)] => [
            (old.permissions != new.permissions).then_some((Change::Permissions, new)),
            (old.digest != new.digest && new.kind != Kind::Directory).then_some((Change::Content, new)),
        ],
        [None, None] => [None, None],
    };
    changes.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::super::directory::of;
    use super::super::tree::{Listed, Tree};
    use super::*;
    use crate::command::transfer::Progress;
    use anyhow::bail;
    use proptest::prelude::*;
    use weft_digest::{Digest, FileHasher};

    #[derive(Clone, Debug, PartialEq)]
    enum Memory {
        File(u16, Vec<u8>),
        Directory(u16, BTreeMap<Vec<u8>, Memory>),
    }

    struct InMemory;

    impl Tree for InMemory {
        type Node = Memory;

        fn entries(&self, directory: &Memory) -> Result<Vec<Listed<Memory>>> {
            let Memory::Directory(_, entries) = directory else { bail!("no directory") };
            let listed = entries.iter().map(|(name, node)| {
                let (kind, permissions) = match node {
                    Memory::File(permissions, _) => (Kind::File, *permissions),
                    Memory::Directory(permissions, _) => (Kind::Directory, *permissions),
                };
                Listed { name: name.clone(), kind, permissions, rdev: 0, node: node.clone() }
            });
            Ok(listed.collect())
        }

        fn read(&self, file: &Memory, hasher: &mut FileHasher) -> Result<u64> {
            let Memory::File(_, bytes) = file else { bail!("no file") };
            hasher.update(bytes);
            Ok(bytes.len() as u64)
        }

        fn target(&self, _: &Memory) -> Result<Vec<u8>> {
            bail!("no link")
        }
    }

    fn trees() -> impl Strategy<Value = Memory> {
        let permissions = prop::sample::select(vec![0o644, 0o600]);
        let file =
            (permissions.clone(), prop::collection::vec(0u8..2, 0..2)).prop_map(|(p, bytes)| Memory::File(p, bytes));
        let tree = file.prop_recursive(3, 40, 4, move |inner| {
            let entries = prop::collection::btree_map(prop::collection::vec(b'a'..b'd', 1..3), inner, 0..4);
            (permissions.clone(), entries).prop_map(|(p, entries)| Memory::Directory(p, entries))
        });
        prop::collection::btree_map(prop::collection::vec(b'a'..b'd', 1..3), tree, 0..4)
            .prop_map(|entries| Memory::Directory(0, entries))
    }

    /// Changes `tree` as the differences to `other` say, taking added or changed entries from
    /// `other`.
    fn mended(tree: &Memory, other: &Memory, differences: &[Difference], above: &[u8]) -> Memory {
        let (Memory::Directory(_, old), Memory::Directory(permissions, new)) = (tree, other) else {
            panic!("directories")
        };
        let path = |name: &[u8]| if above.is_empty() { name.to_vec() } else { [above, name].join(&b'/') };
        let told = |name: &[u8], change| differences.iter().any(|d| d.change == change && d.path == path(name));
        let mut entries = BTreeMap::new();
        for (name, was) in old {
            let is = new.get(name);
            let whole = [Change::Kind, Change::Content].iter().any(|change| told(name, *change));
            let entry = match (was, is) {
                _ if told(name, Change::Deleted) => continue,
                (_, Some(is)) if whole => is.clone(),
                (Memory::Directory(p, _), Some(Memory::Directory(q, below))) => {
                    let permissions = if told(name, Change::Permissions) { *q } else { *p };
                    mended(was, &Memory::Directory(permissions, below.clone()), differences, &path(name))
                }
                (Memory::File(_, bytes), Some(is)) if told(name, Change::Permissions) => {
                    Memory::File(permissions_of(is), bytes.clone())
                }
                _ => was.clone(),
            };
            entries.insert(name.clone(), entry);
        }
        for (name, is) in new.iter().filter(|(name, _)| told(name, Change::Added)) {
            entries.insert(name.clone(), is.clone());
        }
        Memory::Directory(*permissions, entries)
    }

    fn permissions_of(node: &Memory) -> u16 {
        match node {
            Memory::File(permissions, _) | Memory::Directory(permissions, _) => *permissions,
        }
    }

    /// A tree that keeps the digests of some directories.
    struct Keeping;

    impl Tree for Keeping {
        type Node = Memory;

        fn entries(&self, directory: &Memory) -> Result<Vec<Listed<Memory>>> {
            InMemory.entries(directory)
        }

        fn read(&self, file: &Memory, hasher: &mut FileHasher) -> Result<u64> {
            InMemory.read(file, hasher)
        }

        fn target(&self, link: &Memory) -> Result<Vec<u8>> {
            InMemory.target(link)
        }

        fn kept(&self, node: &Memory) -> Result<Option<Digest>> {
            match node {
                Memory::Directory(_, entries) if entries.len() != 2 => {
                    Ok(Some(of(&InMemory, node.clone(), true, &Progress::new())?.0))
                }
                _ => Ok(None),
            }
        }
    }

    fn found(first: &Memory, second: &Memory) -> Vec<Difference> {
        let progress = Progress::new();
        let first = of(&InMemory, first.clone(), false, &progress).expect("memory is readable").1;
        let second = of(&Keeping, second.clone(), false, &progress).expect("memory is readable").1;
        differences(first, second).expect("memory is readable")
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn one_tree_and_the_differences_give_the_other(first in trees(), second in trees()) {
            let found = found(&first, &second);
            prop_assert_eq!(found.is_empty(), first == second);
            prop_assert_eq!(mended(&first, &second, &found, b""), second);
        }
    }
}
