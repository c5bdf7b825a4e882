//! The tree of names, in memory.

use super::{Errno, Outcome};
use crate::protocol::arguments::Read;
use crate::protocol::{DATA_BYTES_MAX, Reply, Valid};
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::time::Duration;
use weft_vfs::{Attributes, Clock, Ino, Kind, Reach, SystemClock};

/// Number of the root, as the kernel knows it.
const ROOT: u64 = 1;

/// An inode.
pub(super) struct Node {
    pub(super) attributes: Attributes,
    /// The target of a symbolic link.
    pub(super) target: Vec<u8>,
    directory: Option<Directory>,
}

/// The entries of a directory.
struct Directory {
    parent: u64,
    names: HashMap<Vec<u8>, u64>,
    /// The same in the order in which they were made, by their places in listings.
    order: BTreeMap<u64, Vec<u8>>,
    places: HashMap<Vec<u8>, u64>,
}

impl Directory {
    fn new() -> Directory {
        Directory { parent: ROOT, names: HashMap::new(), order: BTreeMap::new(), places: HashMap::new() }
    }

    fn insert(&mut self, name: &[u8], number: u64, place: u64) {
        self.names.insert(name.into(), number);
        self.order.insert(place, name.into());
        self.places.insert(name.into(), place);
    }

    fn remove(&mut self, name: &[u8]) {
        self.names.remove(name);
        if let Some(place) = self.places.remove(name) {
            self.order.remove(&place);
        }
    }
}

impl Node {
    pub(super) fn new(kind: Kind, mode: u32, rdev: u32, (uid, gid): (u32, u32)) -> Node {
        let now = SystemClock.now();
        let is_directory = kind == Kind::Directory;
        let attributes = Attributes {
            ino: Ino(0),
            generation: 0,
            kind,
            permissions: mode & 0o7777,
            uid,
            gid,
            nlink: if is_directory { 2 } else { 1 },
            rdev,
            size: 0,
            allocated: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            computed: None,
            reach: Reach::Everybody,
        };
        Node { attributes, target: Vec::new(), directory: is_directory.then(Directory::new) }
    }

    pub(super) fn symlink(target: &[u8], owner: (u32, u32)) -> Node {
        let node = Node::new(Kind::Symlink, 0o777, 0, owner);
        let attributes = Attributes { size: target.len() as u64, ..node.attributes };
        Node { attributes, target: target.into(), ..node }
    }

    /// Something is written up to `end`.
    pub(super) fn reach_to(&mut self, end: u64) {
        self.attributes.size = self.attributes.size.max(end);
    }
}

/// All inodes, by their numbers.
pub(super) struct Nodes {
    all: HashMap<u64, Node>,
    /// The last number that was given to an inode or an entry.
    last: u64,
}

impl Nodes {
    /// Returns the root alone.
    pub(super) fn new() -> Nodes {
        let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let mut root = Node::new(Kind::Directory, 0o755, 0, owner);
        root.attributes.ino = Ino(ROOT);
        // Below are the places of `.` and `..` in listings.
        Nodes { all: HashMap::from([(ROOT, root)]), last: 2 }
    }

    pub(super) fn node(&self, number: u64) -> Outcome<&Node> {
        self.all.get(&number).ok_or(Errno(libc::ESTALE))
    }

    pub(super) fn node_mut(&mut self, number: u64) -> Outcome<&mut Node> {
        self.all.get_mut(&number).ok_or(Errno(libc::ESTALE))
    }

    fn directory(&self, number: u64) -> Outcome<&Directory> {
        self.node(number)?.directory.as_ref().ok_or(Errno(libc::ENOTDIR))
    }

    fn directory_mut(&mut self, number: u64) -> Outcome<&mut Directory> {
        self.node_mut(number)?.directory.as_mut().ok_or(Errno(libc::ENOTDIR))
    }

    /// Returns the number of the inode that has this name.
    pub(super) fn find(&self, directory: u64, name: &[u8]) -> Outcome<Option<u64>> {
        Ok(self.directory(directory)?.names.get(name).copied())
    }

    /// Makes `node`; returns its number.
    pub(super) fn make(&mut self, directory: u64, name: &[u8], mut node: Node) -> Outcome<u64> {
        if self.find(directory, name)?.is_some() {
            return Err(Errno(libc::EEXIST));
        }
        self.last += 1;
        let number = self.last;
        node.attributes.ino = Ino(number);
        if let Some(own) = &mut node.directory {
            own.parent = directory;
            self.node_mut(directory)?.attributes.nlink += 1;
        }
        self.directory_mut(directory)?.insert(name, number, number);
        self.all.insert(number, node);
        Ok(number)
    }

    pub(super) fn link(&mut self, number: u64, directory: u64, name: &[u8]) -> Outcome {
        if self.find(directory, name)?.is_some() {
            return Err(Errno(libc::EEXIST));
        }
        self.node_mut(number)?.attributes.nlink += 1;
        self.last += 1;
        let place = self.last;
        self.directory_mut(directory)?.insert(name, number, place);
        Ok(())
    }

    /// Removes a name of a directory that is empty, or of anything else.
    pub(super) fn remove(&mut self, directory: u64, name: &[u8], kind: Kind) -> Outcome {
        let number = self.find(directory, name)?.ok_or(Errno(libc::ENOENT))?;
        match (&self.node(number)?.directory, kind) {
            (Some(_), Kind::File) => return Err(Errno(libc::EISDIR)),
            (None, Kind::Directory) => return Err(Errno(libc::ENOTDIR)),
            (Some(own), _) if !own.names.is_empty() => return Err(Errno(libc::ENOTEMPTY)),
            _ => {}
        }
        self.directory_mut(directory)?.remove(name);
        let attributes = &mut self.node_mut(number)?.attributes;
        // Files that are open stay until the kernel forgets them.
        attributes.nlink = if kind == Kind::Directory { 0 } else { attributes.nlink - 1 };
        if kind == Kind::Directory {
            self.node_mut(directory)?.attributes.nlink -= 1;
        }
        Ok(())
    }

    pub(super) fn rename(&mut self, from: (u64, &[u8]), to: (u64, &[u8])) -> Outcome {
        let moved = self.find(from.0, from.1)?.ok_or(Errno(libc::ENOENT))?;
        let kind = if self.node(moved)?.directory.is_some() { Kind::Directory } else { Kind::File };
        match self.find(to.0, to.1)? {
            Some(there) if there == moved => return Ok(()),
            Some(_) => self.remove(to.0, to.1, kind)?,
            None => {}
        }
        self.directory_mut(from.0)?.remove(from.1);
        self.last += 1;
        let place = self.last;
        self.directory_mut(to.0)?.insert(to.1, moved, place);
        if let Some(own) = &mut self.node_mut(moved)?.directory {
            own.parent = to.0;
            self.node_mut(from.0)?.attributes.nlink -= 1;
            self.node_mut(to.0)?.attributes.nlink += 1;
        }
        Ok(())
    }

    /// The kernel forgets an inode.
    pub(super) fn forget(&mut self, number: u64) {
        if self.all.get(&number).is_some_and(|node| node.attributes.nlink == 0) {
            self.all.remove(&number);
        }
    }

    /// Lists a directory; with attributes, if those are `valid` for a time.
    pub(super) fn list(&self, number: u64, asked: &Read, valid: Option<Valid>, reply: &mut Reply) -> Outcome {
        let directory = self.directory(number)?;
        let size = (asked.size as usize).min(DATA_BYTES_MAX);
        for (place, number, name) in [(1, number, &b"."[..]), (2, directory.parent, b"..")] {
            if asked.offset < place {
                if valid.is_some() {
                    reply.no_entry(Duration::ZERO);
                }
                reply.dirent(number, place, libc::S_IFDIR, name);
            }
        }
        for (place, name) in directory.order.range((Bound::Excluded(asked.offset.max(2)), Bound::Unbounded)) {
            let number = directory.names[name];
            let attributes = &self.node(number)?.attributes;
            let before = reply.len();
            if let Some(valid) = valid {
                reply.entry_out(number, attributes, valid);
            }
            reply.dirent(number, *place, attributes.kind.mode_bits(), name);
            if reply.len() > size {
                reply.truncate(before);
                break;
            }
        }
        Ok(())
    }
}
