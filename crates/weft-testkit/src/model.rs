//! The reference file system: plain maps, every operation as POSIX words it, no thought of speed.

use std::collections::BTreeMap;
use weft_vfs::{AllocateMode, Caller, ErrorKind, Kind, MakeNode, RenameMode, SetAttributes, SetTime, Timestamp};

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
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last access; nothing but setting it moves it (`noatime`).
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of anything.
    pub ctime: Timestamp,
    /// Creation.
    pub btime: Timestamp,
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
    /// Number of times that it is held; it lives as long as it has links or is held.
    pub holds: u64,
}

/// The file system.
#[derive(Clone, Debug)]
pub struct Model {
    /// Nodes by identity; those gone are kept but not reachable.
    pub nodes: Vec<Node>,
    /// The time at which operations happen.
    pub now: Timestamp,
}

type Result<T> = std::result::Result<T, ErrorKind>;

impl Default for Model {
    fn default() -> Model {
        let now = Timestamp(0);
        Model { nodes: vec![node(Kind::Directory, 0o755, ROOT, now)], now }
    }
}

fn node(kind: Kind, permissions: u32, parent: NodeId, time: Timestamp) -> Node {
    Node {
        kind,
        permissions,
        uid: 0,
        gid: 0,
        atime: time,
        mtime: time,
        ctime: time,
        btime: time,
        nlink: if kind == Kind::Directory { 2 } else { 1 },
        content: Vec::new(),
        entries: BTreeMap::new(),
        xattrs: BTreeMap::new(),
        parent,
        holds: 0,
    }
}

impl Node {
    /// True if it has a name, is the root, or is held.
    pub fn is_live(&self) -> bool {
        self.nlink > 0 || self.holds > 0
    }

    /// Takes set-user-id away, and set-group-id where the group may execute.
    fn kill_privileges(&mut self) {
        let executable = self.permissions & 0o010 != 0;
        self.permissions &= if executable { !0o6000 } else { !0o4000 };
    }
}

fn check(name: &[u8]) -> Result<()> {
    if name.len() > 255 { Err(ErrorKind::NameTooLong) } else { Ok(()) }
}

impl Model {
    /// Returns live nodes that are `wanted`.
    pub fn live(&self, wanted: impl Fn(&Node) -> bool) -> Vec<NodeId> {
        (0..self.nodes.len()).filter(|id| self.nodes[*id].is_live() && wanted(&self.nodes[*id])).collect()
    }

    /// Nobody holds anything any more, as after a mount.
    pub fn release_all(&mut self) {
        for node in &mut self.nodes {
            node.holds = 0;
        }
    }

    fn is_directory(&self, id: NodeId) -> bool {
        self.nodes[id].kind == Kind::Directory
    }

    fn find(&self, directory: NodeId, name: &[u8]) -> Result<NodeId> {
        self.nodes[directory].entries.get(name).copied().ok_or(ErrorKind::NotFound)
    }

    /// Refuses new entries in `directory` once it was removed.
    fn may_add(&self, directory: NodeId) -> Result<()> {
        if self.nodes[directory].nlink == 0 { Err(ErrorKind::NotFound) } else { Ok(()) }
    }

    fn content_changed(&mut self, id: NodeId) {
        self.nodes[id].mtime = self.now;
        self.nodes[id].ctime = self.now;
    }

    fn attributes_changed(&mut self, id: NodeId) {
        self.nodes[id].ctime = self.now;
    }

    /// open(O_CREAT | O_EXCL), mkdir(), mknod(), symlink() with `content` as its target;
    /// open(O_TMPFILE) without a name: then it is held.
    pub fn make(
        &mut self,
        caller: Caller,
        directory: NodeId,
        name: Option<&[u8]>,
        new: MakeNode,
        content: &[u8],
    ) -> Result<NodeId> {
        name.map_or(Ok(()), check)?;
        self.may_add(directory)?;
        if name.is_some_and(|name| self.find(directory, name).is_ok()) {
            return Err(ErrorKind::Exists);
        }
        let id = self.nodes.len();
        let mut made = node(new.kind, new.permissions & !new.umask, directory, self.now);
        (made.uid, made.gid) = (caller.uid, caller.gid);
        made.content = content.to_vec();
        // A set-group-id directory gives its group to what is made in it, and the bit to
        // directories (Linux).
        if self.nodes[directory].permissions & 0o2000 != 0 {
            made.gid = self.nodes[directory].gid;
            made.permissions |= if new.kind == Kind::Directory { 0o2000 } else { 0 };
        }
        if name.is_none() {
            (made.nlink, made.holds) = (0, 1);
        }
        self.nodes.push(made);
        if let Some(name) = name {
            self.attach(directory, name, id);
        }
        Ok(id)
    }

    /// link().
    pub fn link(&mut self, id: NodeId, directory: NodeId, name: &[u8]) -> Result<()> {
        check(name)?;
        if self.is_directory(id) {
            return Err(ErrorKind::NotPermitted);
        }
        self.may_add(directory)?;
        if self.find(directory, name).is_ok() {
            return Err(ErrorKind::Exists);
        }
        self.attach(directory, name, id);
        self.nodes[id].nlink += 1;
        self.attributes_changed(id);
        Ok(())
    }

    /// unlink().
    pub fn unlink(&mut self, directory: NodeId, name: &[u8]) -> Result<()> {
        check(name)?;
        let id = self.find(directory, name)?;
        if self.is_directory(id) {
            return Err(ErrorKind::IsDirectory);
        }
        self.detach(directory, name);
        self.nodes[id].nlink -= 1;
        self.attributes_changed(id);
        Ok(())
    }

    /// rmdir().
    pub fn remove_directory(&mut self, directory: NodeId, name: &[u8]) -> Result<()> {
        check(name)?;
        let id = self.find(directory, name)?;
        if !self.is_directory(id) {
            return Err(ErrorKind::NotDirectory);
        }
        if !self.nodes[id].entries.is_empty() {
            return Err(ErrorKind::NotEmpty);
        }
        self.detach(directory, name);
        self.nodes[id].nlink = 0;
        self.attributes_changed(id);
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

    /// rename(), renameat2().
    pub fn rename(&mut self, from: (NodeId, &[u8]), to: (NodeId, &[u8]), mode: RenameMode) -> Result<()> {
        check(from.1)?;
        check(to.1)?;
        let moved = self.find(from.0, from.1)?;
        self.may_add(to.0)?;
        let target = self.find(to.0, to.1).ok();
        match (mode, target) {
            (RenameMode::NoReplace, Some(_)) => return Err(ErrorKind::Exists),
            (RenameMode::Exchange, None) => return Err(ErrorKind::NotFound),
            (_, Some(target)) if target == moved => return Ok(()),
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
            self.attributes_changed(moved);
            self.attributes_changed(target);
            return Ok(());
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
        self.attributes_changed(moved);
        Ok(())
    }

    /// renameat2() with `RENAME_WHITEOUT`; tells what took the old name, if anything moved.
    pub fn rename_leaving_whiteout(
        &mut self,
        caller: Caller,
        from: (NodeId, &[u8]),
        to: (NodeId, &[u8]),
        mode: RenameMode,
    ) -> Result<Option<NodeId>> {
        check(from.1)?;
        check(to.1)?;
        if mode == RenameMode::Exchange {
            return Err(ErrorKind::Invalid);
        }
        let is_same = self.find(from.0, from.1) == self.find(to.0, to.1);
        self.rename(from, to, mode)?;
        if is_same {
            return Ok(None);
        }
        let whiteout = MakeNode { kind: Kind::CharDevice, permissions: 0, umask: 0, rdev: 0 };
        self.make(caller, from.0, Some(from.1), whiteout, &[]).map(Some)
    }

    fn detach(&mut self, directory: NodeId, name: &[u8]) {
        let id = self.nodes[directory].entries.remove(name).expect("there");
        if self.is_directory(id) {
            self.nodes[directory].nlink -= 1;
        }
        self.content_changed(directory);
    }

    fn attach(&mut self, directory: NodeId, name: &[u8], id: NodeId) {
        self.nodes[directory].entries.insert(name.to_vec(), id);
        if self.is_directory(id) {
            self.nodes[directory].nlink += 1;
            self.nodes[id].parent = directory;
        }
        self.content_changed(directory);
    }

    /// chmod(), chown(), truncate(), utimensat().
    pub fn set_attributes(&mut self, id: NodeId, changes: SetAttributes) -> Result<()> {
        let now = self.now;
        let node = &mut self.nodes[id];
        match (changes.size, node.kind) {
            (Some(_), Kind::Directory) => return Err(ErrorKind::IsDirectory),
            (Some(_), kind) if kind != Kind::File => return Err(ErrorKind::Invalid),
            (Some(size), _) => {
                node.content.resize(usize::try_from(size).expect("small"), 0);
                node.mtime = now;
            }
            (None, _) => {}
        }
        let owner_changes = changes.uid.is_some() || changes.gid.is_some();
        node.permissions = changes.permissions.unwrap_or(node.permissions);
        node.uid = changes.uid.unwrap_or(node.uid);
        node.gid = changes.gid.unwrap_or(node.gid);
        if node.kind != Kind::Directory && owner_changes && changes.permissions.is_none() {
            node.kill_privileges();
        }
        let at = |time| match time {
            SetTime::Now => now,
            SetTime::To(time) => time,
        };
        node.atime = changes.atime.map_or(node.atime, at);
        node.mtime = changes.mtime.map_or(node.mtime, at);
        node.ctime = now;
        Ok(())
    }

    /// pwrite().
    pub fn write(&mut self, id: NodeId, offset: usize, data: &[u8], kill_privileges: bool) {
        self.content_changed(id);
        let node = &mut self.nodes[id];
        node.content.resize(node.content.len().max(offset + data.len()), 0);
        node.content[offset..offset + data.len()].copy_from_slice(data);
        if kill_privileges {
            node.kill_privileges();
        }
    }

    /// fallocate(). Allocating what the file has already changes no byte, but times and privileges.
    pub fn allocate(&mut self, id: NodeId, offset: usize, len: usize, mode: AllocateMode) {
        let content = &mut self.nodes[id].content;
        let (size, end) = (content.len(), offset + len);
        match mode {
            AllocateMode::KeepSize => {}
            AllocateMode::Extend => content.resize(size.max(end), 0),
            AllocateMode::PunchHole | AllocateMode::ZeroRangeKeepSize => {
                content[offset.min(size)..end.min(size)].fill(0);
            }
            AllocateMode::ZeroRange => {
                content.resize(size.max(end), 0);
                content[offset..end].fill(0);
            }
        }
        self.nodes[id].kill_privileges();
        self.content_changed(id);
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
            self.write(to.0, to.1, &bytes, true);
        }
        Ok(len)
    }

    /// setxattr().
    pub fn set_xattr(&mut self, id: NodeId, name: &[u8], value: &[u8]) {
        self.nodes[id].xattrs.insert(name.to_vec(), value.to_vec());
        self.attributes_changed(id);
    }

    /// removexattr().
    pub fn remove_xattr(&mut self, id: NodeId, name: &[u8]) -> Result<()> {
        self.nodes[id].xattrs.remove(name).ok_or(ErrorKind::NoAttribute)?;
        self.attributes_changed(id);
        Ok(())
    }
}
