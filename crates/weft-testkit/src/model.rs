//! The reference file system: plain maps, every operation as POSIX words it, no thought of speed.

use std::collections::BTreeMap;
use weft_vfs::{ErrorKind, Kind, RenameMode};

/// Identity of a node in the model.
pub type NodeId = usize;

/// The root directory.
pub const ROOT: NodeId = 0;

/// An inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Kind.
    pub kind: Kind,
    /// Permission bits.
    pub permissions: u32,
    /// Links, as stat() tells them.
    pub nlink: u32,
    /// Content of a file, target of a symbolic link.
    pub content: Vec<u8>,
    /// Entries of a directory.
    pub entries: BTreeMap<Vec<u8>, NodeId>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The directory that holds a directory.
    pub parent: NodeId,
}

/// The file system.
#[derive(Clone, Debug)]
pub struct Model {
    /// Nodes by identity; those without a link are kept but not reachable.
    pub nodes: Vec<Node>,
}

type Result<T> = std::result::Result<T, ErrorKind>;

impl Default for Model {
    fn default() -> Model {
        Model { nodes: vec![node(Kind::Directory, 0o755, ROOT)] }
    }
}

fn node(kind: Kind, permissions: u32, parent: NodeId) -> Node {
    let nlink = if kind == Kind::Directory { 2 } else { 1 };
    let (content, entries, xattrs) = Default::default();
    Node { kind, permissions, nlink, content, entries, xattrs, parent }
}

impl Model {
    /// Nodes that have a name, or are the root, of which `wanted` holds.
    pub fn live(&self, wanted: impl Fn(&Node) -> bool) -> Vec<NodeId> {
        (0..self.nodes.len()).filter(|id| self.nodes[*id].nlink > 0 && wanted(&self.nodes[*id])).collect()
    }

    fn is_directory(&self, id: NodeId) -> bool {
        self.nodes[id].kind == Kind::Directory
    }

    fn find(&self, directory: NodeId, name: &[u8]) -> Result<NodeId> {
        self.nodes[directory].entries.get(name).copied().ok_or(ErrorKind::NotFound)
    }

    /// open(O_CREAT | O_EXCL), mkdir(), mknod(), symlink() with `content` as its target.
    pub fn make(
        &mut self,
        directory: NodeId,
        name: &[u8],
        kind: Kind,
        permissions: u32,
        content: &[u8],
    ) -> Result<NodeId> {
        if self.find(directory, name).is_ok() {
            return Err(ErrorKind::Exists);
        }
        let id = self.nodes.len();
        self.nodes.push(Node { content: content.to_vec(), ..node(kind, permissions, directory) });
        self.nodes[directory].entries.insert(name.to_vec(), id);
        if kind == Kind::Directory {
            self.nodes[directory].nlink += 1;
        }
        Ok(id)
    }

    /// link().
    pub fn link(&mut self, id: NodeId, directory: NodeId, name: &[u8]) -> Result<()> {
        if self.is_directory(id) {
            return Err(ErrorKind::NotPermitted);
        }
        if self.find(directory, name).is_ok() {
            return Err(ErrorKind::Exists);
        }
        self.nodes[directory].entries.insert(name.to_vec(), id);
        self.nodes[id].nlink += 1;
        Ok(())
    }

    /// unlink().
    pub fn unlink(&mut self, directory: NodeId, name: &[u8]) -> Result<()> {
        let id = self.find(directory, name)?;
        if self.is_directory(id) {
            return Err(ErrorKind::IsDirectory);
        }
        self.nodes[directory].entries.remove(name);
        self.nodes[id].nlink -= 1;
        Ok(())
    }

    /// rmdir().
    pub fn remove_directory(&mut self, directory: NodeId, name: &[u8]) -> Result<()> {
        let id = self.find(directory, name)?;
        if !self.is_directory(id) {
            return Err(ErrorKind::NotDirectory);
        }
        if !self.nodes[id].entries.is_empty() {
            return Err(ErrorKind::NotEmpty);
        }
        self.nodes[directory].entries.remove(name);
        self.nodes[directory].nlink -= 1;
        self.nodes[id].nlink = 0;
        Ok(())
    }

    fn is_below(&self, place: NodeId, directory: NodeId) -> bool {
        let mut at = place;
        while at != ROOT {
            if at == directory {
                return true;
            }
            at = self.nodes[at].parent;
        }
        directory == ROOT
    }

    /// rename(), renameat2(). Tells whether anything changed.
    pub fn rename(&mut self, from: (NodeId, &[u8]), to: (NodeId, &[u8]), mode: RenameMode) -> Result<bool> {
        let moved = self.find(from.0, from.1)?;
        let target = self.find(to.0, to.1).ok();
        match (mode, target) {
            (RenameMode::NoReplace, Some(_)) => return Err(ErrorKind::Exists),
            (RenameMode::Exchange, None) => return Err(ErrorKind::NotFound),
            (_, Some(target)) if target == moved => return Ok(false),
            _ => {}
        }
        if self.is_directory(moved) && self.is_below(to.0, moved) {
            return Err(ErrorKind::Invalid);
        }
        if mode == RenameMode::Exchange {
            let target = target.expect("checked above");
            if self.is_directory(target) && self.is_below(from.0, target) {
                return Err(ErrorKind::Invalid);
            }
            self.detach(from.0, from.1);
            self.detach(to.0, to.1);
            self.attach(to.0, to.1, moved);
            self.attach(from.0, from.1, target);
            return Ok(true);
        }
        if let Some(target) = target {
            match (self.is_directory(moved), self.is_directory(target)) {
                (true, false) => return Err(ErrorKind::NotDirectory),
                (false, true) => return Err(ErrorKind::IsDirectory),
                (true, true) => self.remove_directory(to.0, to.1)?,
                (false, false) => self.unlink(to.0, to.1)?,
            }
        }
        self.detach(from.0, from.1);
        self.attach(to.0, to.1, moved);
        Ok(true)
    }

    fn detach(&mut self, directory: NodeId, name: &[u8]) {
        let id = self.nodes[directory].entries.remove(name).expect("there");
        if self.is_directory(id) {
            self.nodes[directory].nlink -= 1;
        }
    }

    fn attach(&mut self, directory: NodeId, name: &[u8], id: NodeId) {
        self.nodes[directory].entries.insert(name.to_vec(), id);
        if self.is_directory(id) {
            self.nodes[directory].nlink += 1;
            self.nodes[id].parent = directory;
        }
    }

    /// pwrite().
    pub fn write(&mut self, id: NodeId, offset: usize, data: &[u8]) {
        let content = &mut self.nodes[id].content;
        content.resize(content.len().max(offset + data.len()), 0);
        content[offset..offset + data.len()].copy_from_slice(data);
    }

    /// truncate().
    pub fn resize(&mut self, id: NodeId, size: usize) {
        self.nodes[id].content.resize(size, 0);
    }

    /// fallocate() with zeros in the range; the size grows if `grow`.
    pub fn zero(&mut self, id: NodeId, offset: usize, len: usize, grow: bool) {
        let content = &mut self.nodes[id].content;
        if grow {
            content.resize(content.len().max(offset + len), 0);
        }
        let size = content.len();
        content[offset.min(size)..(offset + len).min(size)].fill(0);
    }

    /// copy_file_range().
    pub fn copy(&mut self, from: (NodeId, usize), to: (NodeId, usize), len: usize) -> Result<usize> {
        let source = &self.nodes[from.0].content;
        let len = len.min(source.len().saturating_sub(from.1));
        if from.0 == to.0 && from.1 < to.1 + len && to.1 < from.1 + len {
            return Err(ErrorKind::Invalid);
        }
        if len > 0 {
            let bytes = source[from.1..from.1 + len].to_vec();
            self.write(to.0, to.1, &bytes);
        }
        Ok(len)
    }
}
