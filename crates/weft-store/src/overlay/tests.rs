//! An overlay gives what the rows give to which its changes were made.

use super::*;
use crate::row::{Cookie, Timestamp};
use proptest::prelude::*;

/// Rows in plain maps.
#[derive(Clone, Default)]
struct Plain(RefCell<Maps>);

#[derive(Clone, Default)]
struct Maps {
    inodes: BTreeMap<Ino, Inode>,
    names: BTreeMap<(Ino, Name), (Ino, Option<Digest>)>,
    branches: BTreeMap<(Ino, Bytes), Bytes>,
    nodes: BTreeMap<(Ino, u32, u64), Bytes>,
}

#[derive(Clone, Debug)]
enum Change {
    PutInode(Ino, u64),
    RemoveInode(Ino),
    PutName(Ino, Name, Ino),
    RemoveName(Ino, Name),
    Digest(Ino, Option<u8>),
    Entry(Ino, Name, Option<u8>),
    Branch(Ino, Name, Option<u8>),
    ClearBranches(Ino),
    Node(Ino, u32, u64, Option<u8>),
    ClearNodes(Ino, u32, u64),
}

impl Snapshot for Plain {
    fn inode(&self, ino: Ino) -> Result<Option<Inode>> {
        Ok(self.0.borrow().inodes.get(&ino).copied())
    }
    fn names_of(&self, ino: Ino) -> Result<Vec<(Ino, Name)>> {
        let maps = self.0.borrow();
        Ok(maps.names.iter().filter(|(_, (named, _))| *named == ino).map(|(key, _)| key.clone()).collect())
    }
    fn entry(&self, parent: Ino, name: &Name) -> Result<Option<Digest>> {
        Ok(self.0.borrow().names.get(&(parent, name.clone())).and_then(|(_, hash)| *hash))
    }
    fn entries(&self, parent: Ino, prefix: &[u8], limit: usize) -> Result<Vec<(Name, Option<Digest>)>> {
        let maps = self.0.borrow();
        let own = maps
            .names
            .iter()
            .filter(|((directory, name), _)| *directory == parent && name.as_bytes().starts_with(prefix));
        Ok(own.take(limit).map(|((_, name), (_, hash))| (name.clone(), *hash)).collect())
    }
    fn branch(&self, parent: Ino, prefix: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.0.borrow().branches.get(&(parent, prefix.to_vec())).cloned())
    }
    fn extents(&self, _ino: Ino, _range: Range<u64>) -> Result<Vec<(Span, BlockRef)>> {
        Ok(Vec::new())
    }
    fn bytes(&self, block: &BlockRef) -> Result<Block> {
        Err(Error::Bug(format!("block {} is not looked at here", block.id.0)))
    }
    fn node(&self, ino: Ino, level: u32, index: u64) -> Result<Option<Vec<u8>>> {
        Ok(self.0.borrow().nodes.get(&(ino, level, index)).cloned())
    }
    fn nodes(&self, ino: Ino, level: u32, range: Range<u64>) -> Result<Vec<u64>> {
        let maps = self.0.borrow();
        Ok(maps
            .nodes
            .range((ino, level, range.start)..(ino, level, range.end))
            .map(|((.., index), _)| *index)
            .collect())
    }
}

fn digest(of: Option<u8>) -> Option<Digest> {
    of.map(|byte| [byte; 32])
}

/// The row of inode `ino`, a file of `size` bytes.
fn row(ino: Ino, size: u64) -> InodeRow {
    InodeRow { ino, size, ..InodeRow::new_root(0, 0, Timestamp(0)) }
}

impl Plain {
    fn has(&self, parent: Ino, name: &Name) -> bool {
        self.0.borrow().names.contains_key(&(parent, name.clone()))
    }

    fn change(&self, change: &Change) {
        let maps = &mut *self.0.borrow_mut();
        match change.clone() {
            Change::PutInode(ino, size) => {
                let InodeRow { kind, permissions, parent, .. } = row(ino, size);
                maps.inodes.insert(ino, Inode { kind, permissions, size, parent, digest: digest(Some(1)) });
            }
            Change::RemoveInode(ino) => drop(maps.inodes.remove(&ino)),
            Change::PutName(parent, name, ino) => drop(maps.names.insert((parent, name), (ino, digest(Some(2))))),
            Change::RemoveName(parent, name) => drop(maps.names.remove(&(parent, name))),
            Change::Digest(ino, to) => {
                maps.inodes.entry(ino).and_modify(|inode| inode.digest = digest(to));
            }
            Change::Entry(parent, name, to) => {
                maps.names.entry((parent, name)).and_modify(|(_, hash)| *hash = digest(to));
            }
            Change::Branch(parent, prefix, to) => {
                let key = (parent, prefix.as_bytes().to_vec());
                match to {
                    Some(byte) => drop(maps.branches.insert(key, vec![byte])),
                    None => drop(maps.branches.remove(&key)),
                }
            }
            Change::ClearBranches(ino) => maps.branches.retain(|(parent, _), _| *parent != ino),
            Change::Node(ino, level, index, Some(byte)) => drop(maps.nodes.insert((ino, level, index), vec![byte])),
            Change::Node(ino, level, index, None) => drop(maps.nodes.remove(&(ino, level, index))),
            Change::ClearNodes(ino, level, from) => {
                maps.nodes.retain(|(own, at, index), _| (*own, *at) != (ino, level) || *index < from);
            }
        }
    }
}

fn apply(overlay: &Overlay<Plain>, change: &Change) {
    match change {
        Change::PutInode(ino, size) => overlay.put_inode(&row(*ino, *size), digest(Some(1))),
        Change::RemoveInode(ino) => overlay.remove_inode(*ino),
        Change::PutName(parent, name, ino) => {
            let row = NameRow { parent: *parent, name: name.clone(), ino: *ino, kind: Kind::File, cookie: Cookie(1) };
            overlay.put_name(&row, digest(Some(2)));
        }
        Change::RemoveName(parent, name) => overlay.remove_name(*parent, name),
        Change::Digest(ino, to) => overlay.set_digest(*ino, digest(*to).as_ref()).expect("kept"),
        Change::Entry(parent, name, to) => overlay.set_entry(*parent, name, digest(*to).as_ref()).expect("kept"),
        Change::Branch(parent, prefix, to) => {
            overlay.set_branch(*parent, prefix.as_bytes(), to.map(|byte| vec![byte]).as_deref()).expect("kept");
        }
        Change::ClearBranches(ino) => overlay.clear_branches(*ino).expect("kept"),
        Change::Node(ino, level, index, to) => {
            overlay.set_node(*ino, *level, *index, to.map(|byte| vec![byte]).as_deref()).expect("kept");
        }
        Change::ClearNodes(ino, level, from) => overlay.clear_nodes(*ino, *level, *from).expect("kept"),
    }
}

fn change() -> impl Strategy<Value = Change> {
    let ino = || (1u64..4).prop_map(Ino);
    let name = || "[xy]{1,2}".prop_map(|name| Name::new(name.as_bytes()).expect("a name"));
    let byte = || prop::option::of(3u8..6);
    prop_oneof![
        (ino(), 0u64..9).prop_map(|(ino, size)| Change::PutInode(ino, size)),
        ino().prop_map(Change::RemoveInode),
        (ino(), name(), ino()).prop_map(|(parent, name, ino)| Change::PutName(parent, name, ino)),
        (ino(), name()).prop_map(|(parent, name)| Change::RemoveName(parent, name)),
        (ino(), byte()).prop_map(|(ino, to)| Change::Digest(ino, to)),
        (ino(), name(), byte()).prop_map(|(parent, name, to)| Change::Entry(parent, name, to)),
        (ino(), name(), byte()).prop_map(|(parent, prefix, to)| Change::Branch(parent, prefix, to)),
        ino().prop_map(Change::ClearBranches),
        (ino(), 0u32..2, 0u64..4, byte()).prop_map(|(ino, level, index, to)| Change::Node(ino, level, index, to)),
        (ino(), 0u32..2, 0u64..4).prop_map(|(ino, level, from)| Change::ClearNodes(ino, level, from)),
    ]
}

/// All that the rows say.
fn all(rows: &dyn Snapshot) -> String {
    let names: Vec<Name> =
        ["x", "y", "xx", "xy", "yx", "yy"].iter().map(|name| Name::new(name.as_bytes()).expect("a name")).collect();
    let mut said = Vec::new();
    for ino in (1..4).map(Ino) {
        let mut names_of = rows.names_of(ino).expect("read");
        names_of.sort_unstable();
        said.push(format!("{:?} {names_of:?}", rows.inode(ino).expect("read")));
        for name in &names {
            let branch = rows.branch(ino, name.as_bytes()).expect("read");
            said.push(format!("{:?} {branch:?}", rows.entry(ino, name).expect("read")));
        }
        for (prefix, limit) in [("", 9), ("", 2), ("x", 9), ("x", 1), ("y", 2)] {
            said.push(format!("{:?}", rows.entries(ino, prefix.as_bytes(), limit).expect("read")));
        }
        for level in 0..2 {
            let nodes: Vec<_> = (0..4).map(|index| rows.node(ino, level, index).expect("read")).collect();
            said.push(format!("{nodes:?} {:?}", rows.nodes(ino, level, 1..3).expect("read")));
        }
    }
    said.join("\n")
}

proptest! {
    #[test]
    fn an_overlay_gives_what_changed_rows_give(
        below in prop::collection::vec(change(), 0..40), above in prop::collection::vec(change(), 0..40),
    ) {
        let plain = Plain::default();
        below.iter().for_each(|change| plain.change(change));
        let overlay = Overlay::new(plain.clone());
        for change in &above {
            // Whoever keeps a hash knows that there is the entry.
            if matches!(change, Change::Entry(parent, name, _) if !plain.has(*parent, name)) {
                continue;
            }
            plain.change(change);
            apply(&overlay, change);
            prop_assert_eq!(all(&overlay), all(&plain), "after {:?}", change);
        }
    }
}
