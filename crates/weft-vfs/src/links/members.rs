//! Views of archives: their members, read where they lie.

use super::definition::{Link, LinkDefinition, Looks, Part, ViewKind};
use super::resolve::Resolved;
use super::unstored::{symlink_number, unstored_number};
use crate::attributes::DirEntry;
use crate::blocking::{self, Wait};
use crate::error::{ErrorKind, Result};
use crate::inode::Inode;
use crate::message::say;
use crate::state::State;
use crate::stop::Stop;
use crate::volume::Vfs;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;
use weft_block::{Rope, Slice};
use weft_store::{Cookie, Ino, InodeRow, Kind, Name, Timestamp};
use weft_transform::archive::{self, Kind as MemberKind, Member};
use weft_transform::{Keeps, Network, interrupt};

/// Bytes of an archive that are read at once while its members are looked for.
const READ_BYTES: usize = 64 << 10;

/// The error of who reads an archive for nobody any more: those who read would go on after
/// `Interrupted`.
const INTERRUPTED: io::ErrorKind = io::ErrorKind::BrokenPipe;

/// Bytes of memory that an index may take, and about how many of them an entry takes beside its name.
const INDEX_BYTES_MAX: usize = 256 << 20;
const NODE_BYTES: usize = 200;

/// Longest path of a member that is shown (`PATH_MAX`): no program could name a longer one.
const PATH_BYTES_MAX: usize = 4096;

/// Archives whose members are known, at most.
const INDEXES_MAX: usize = 8;

/// The members of some archives, by the version of a link to all of one; the one used last comes last.
#[derive(Default)]
pub(crate) struct Indexes(Mutex<Vec<(super::Version, Arc<Index>)>>);

/// The members of an archive, as a tree.
#[derive(Debug, Default)]
struct Index {
    /// Directories by their paths, without slashes around; the root is empty. Names in them, and what they name.
    directories: BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, Node>>,
    /// Bytes of memory that they take, about.
    bytes: usize,
}

#[derive(Clone, Debug)]
struct Node {
    kind: NodeKind,
    permissions: u32,
    changed: Option<i64>,
}

#[derive(Clone, Debug)]
enum NodeKind {
    Directory,
    Symlink(Vec<u8>),
    File { start: u64, stored: u64, size: u64, network: Option<String> },
}

impl Index {
    /// As a tree; refused if that takes too much memory, as of many long paths.
    fn new(members: Vec<Member>) -> io::Result<Index> {
        let mut index = Index::default();
        index.directories.entry(Vec::new()).or_default();
        for member in members {
            index.add(member);
            if index.bytes > INDEX_BYTES_MAX {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "its paths are too many and too long"));
            }
        }
        Ok(index)
    }

    fn directory(&mut self, path: Vec<u8>) -> &mut BTreeMap<Vec<u8>, Node> {
        let bytes = path.len() + NODE_BYTES;
        self.directories.entry(path).or_insert_with(|| {
            self.bytes += bytes;
            BTreeMap::new()
        })
    }

    /// Adds a member whose path leads somewhere within. What comes later wins, but for files in the place of directories that hold something.
    fn add(&mut self, member: Member) {
        let names = member.path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".");
        let names: Vec<&[u8]> = names.collect();
        if member.path.len() > PATH_BYTES_MAX {
            return;
        }
        let Some((name, parents)) = names.split_last() else { return };
        if names.iter().any(|name| Name::new(name).is_err()) {
            return;
        }
        let (kind, usual) = match member.kind {
            MemberKind::Directory => (NodeKind::Directory, 0o755),
            MemberKind::Symlink(target) => (NodeKind::Symlink(target), 0o777),
            MemberKind::File { start, stored, network, size } => {
                (NodeKind::File { start, stored, size, network }, 0o644)
            }
        };
        let mut path = Vec::new();
        for parent in parents {
            let made = Node { kind: NodeKind::Directory, permissions: 0o755, changed: None };
            let node = self.directory(path.clone()).entry(parent.to_vec()).or_insert(made.clone());
            if !matches!(node.kind, NodeKind::Directory) {
                *node = made;
            }
            path = joined(&path, parent);
            self.directory(path.clone());
        }
        let own = joined(&path, name);
        if matches!(kind, NodeKind::Directory) {
            self.directory(own);
        } else if self.directories.contains_key(&own) {
            return;
        }
        let node = Node { kind, permissions: member.permissions.unwrap_or(usual), changed: member.changed };
        self.bytes += name.len() + NODE_BYTES;
        self.directory(path).insert(name.to_vec(), node);
    }
}

impl Node {
    /// The number of what `view` shows at `path`, which is this one.
    fn number(&self, view: Ino, resolved: &Resolved, path: &[u8]) -> Ino {
        match self.kind {
            NodeKind::Symlink(_) => symlink_number(view, path, &resolved.source),
            _ => unstored_number(view, path),
        }
    }
}

fn joined(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() }
}

impl Vfs {
    /// As [`Vfs::look_up_in_view`], in a view of an archive.
    pub(super) fn look_up_member<T>(
        &self,
        view: Ino,
        resolved: &Resolved,
        name: &Name,
        then: impl Fn(&mut State, Ino) -> Result<T, Stop>,
    ) -> Result<T> {
        let index = self.index(view, resolved)?;
        let path = within(&resolved.link)?;
        let node =
            index.directories.get(path).and_then(|names| names.get(name.as_bytes())).ok_or(ErrorKind::NotFound)?;
        self.run(|state| {
            let ino = state.appear_member(view, resolved, &joined(path, name.as_bytes()), node)?;
            then(state, ino)
        })
    }

    /// As [`Vfs::read_directory`], of a view of an archive: by the order of names.
    pub(super) fn list_members(
        &self,
        view: Ino,
        resolved: &Resolved,
        after: Cookie,
        limit: usize,
    ) -> Result<Vec<DirEntry>> {
        let index = self.index(view, resolved)?;
        let path = within(&resolved.link)?;
        let names = index.directories.get(path).ok_or(ErrorKind::NotFound)?;
        // The first cookies are never given out.
        let first = Cookie(0).next().next().next();
        let seen = names.iter().zip(first.0..).skip_while(|(_, cookie)| *cookie <= after.0).take(limit);
        let entry = |((name, node), cookie): ((&Vec<u8>, &Node), u64)| {
            let kind = match node.kind {
                NodeKind::Directory => Kind::Directory,
                NodeKind::Symlink(_) => Kind::Symlink,
                NodeKind::File { .. } => Kind::File,
            };
            let ino = node.number(view, resolved, &joined(path, name));
            Ok(DirEntry { name: Name::new(name)?, ino, kind, cookie: Cookie(cookie) })
        };
        seen.map(entry).collect()
    }

    /// The members of the archive that `view` shows.
    fn index(&self, view: Ino, resolved: &Resolved) -> Result<Arc<Index>> {
        let version = resolved.source;
        let known = |indexes: &mut Vec<(super::Version, Arc<Index>)>| {
            let at = indexes.iter().position(|(known, _)| *known == version)?;
            let found = indexes.remove(at);
            indexes.push(found.clone());
            Some(found.1)
        };
        if let Some(index) = known(&mut self.indexes.0.lock()) {
            return Ok(index);
        }
        self.may_wait(Wait::Commit)?;
        let archive = resolved.data();
        let members = blocking::waiting(|| {
            self.computing(|| members(&mut Archive { vfs: self, ino: archive, at: 0, read: (0, Rope::new()) }))
        })?;
        if members.as_ref().is_err_and(|error| error.kind() == INTERRUPTED) {
            return Err(ErrorKind::Interrupted.into());
        }
        let index = members.and_then(Index::new).map_err(|error| {
            let path = self.path(view);
            // What follows a colon may be bytes of the archive, which are no business of whoever reads the log.
            let error = error.to_string();
            let why = error.split([':', '\n']).next().unwrap_or_default();
            say(format_args!("{} cannot be listed as an archive: {why}", String::from_utf8_lossy(&path)));
            ErrorKind::Io
        })?;
        if self.run(|state| state.resolve(view))?.source != version {
            // It was changed while it was read; whoever asks again sees it as it is.
            return Err(ErrorKind::Io.into());
        }
        let index = Arc::new(index);
        let mut indexes = self.indexes.0.lock();
        if indexes.len() >= INDEXES_MAX {
            indexes.remove(0);
        }
        indexes.push((version, index.clone()));
        Ok(index)
    }
}

fn within(link: &Link) -> Result<&[u8]> {
    match &link.looks {
        Some(Looks::Archive { within }) => Ok(within),
        _ => Err(ErrorKind::NotDirectory.into()),
    }
}

/// The members of an archive, which is of tar unless it begins as those of zip do.
fn members(archive: &mut Archive<'_>) -> io::Result<Vec<Member>> {
    let mut begin = [0; 4];
    let count = archive.read(&mut begin)?;
    archive.seek(SeekFrom::Start(0))?;
    if matches!(&begin[..count], b"PK\x03\x04" | b"PK\x05\x06") {
        archive::zip_members(archive)
    } else {
        archive::tar_members(archive)
    }
}

/// A file, as programs read one.
struct Archive<'a> {
    vfs: &'a Vfs,
    ino: Ino,
    at: u64,
    /// What was read last, and from where on.
    read: (u64, Rope),
}

impl Read for Archive<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (from, rope) = &self.read;
        if self.at < *from || self.at >= from + rope.len() as u64 {
            if interrupt::is_interrupted() {
                return Err(INTERRUPTED.into());
            }
            let rope = self.vfs.read(self.ino, self.at, READ_BYTES);
            self.read = (self.at, rope.map_err(|error| io::Error::from_raw_os_error(error.errno()))?);
        }
        let (from, rope) = &self.read;
        let mut skip = usize::try_from(self.at - from).expect("in what was read");
        for slice in rope.slices() {
            if skip < slice.len() {
                let bytes = &slice[skip..];
                let count = bytes.len().min(buffer.len());
                buffer[..count].copy_from_slice(&bytes[..count]);
                self.at += count as u64;
                return Ok(count);
            }
            skip -= slice.len();
        }
        Ok(0)
    }
}

impl Seek for Archive<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let beyond = || io::Error::from(io::ErrorKind::InvalidInput);
        self.at = match to {
            SeekFrom::Start(at) => at,
            SeekFrom::Current(by) => self.at.checked_add_signed(by).ok_or_else(beyond)?,
            SeekFrom::End(by) => {
                let attributes = self.vfs.run(|state| state.attributes_measured(self.ino));
                let size = attributes.map_err(|error| io::Error::from_raw_os_error(error.errno()))?.size;
                size.checked_add_signed(by).ok_or_else(beyond)?
            }
        };
        Ok(self.at)
    }
}

impl State {
    /// The inode of the member at `path`, as `view` shows it.
    fn appear_member(&mut self, view: Ino, resolved: &Resolved, path: &[u8], node: &Node) -> Result<Ino, Stop> {
        let owner = self.inode(resolved.data())?.row.clone();
        let ino = node.number(view, resolved, path);
        let definition = &resolved.link.definition;
        let (kind, inline, link) = match &node.kind {
            NodeKind::Symlink(target) => (Kind::Symlink, target.clone(), None),
            NodeKind::Directory => {
                let looks = Some(Looks::Archive { within: path.to_vec() });
                let link = Link { looks, ..resolved.link.like(definition.clone()) };
                (Kind::Transformation, Vec::new(), Some(link))
            }
            NodeKind::File { start, stored, size, network } => {
                let part = Part { start: *start, len: *stored, of: resolved.source };
                let link = member(&resolved.link, network.as_deref(), *size, part).ok_or(ErrorKind::NotSupported)?;
                (Kind::Transformation, [start.to_le_bytes(), stored.to_le_bytes()].concat(), Some(link))
            }
        };
        let inline = if link.is_some() { [&resolved.source[..], &inline].concat() } else { inline };
        let at = node.changed.map_or(owner.mtime, |seconds| Timestamp::from_parts(seconds, 0));
        // Who may read the archive may read all of it.
        let permissions = if kind == Kind::Symlink { 0o777 } else { node.permissions & 0o555 };
        let inline = Some(Slice::from(inline));
        let (nlink, xattrs, allocated) = (1, 0, 0);
        let parent = self.stored_view(view)?;
        let size = if let NodeKind::Symlink(target) = &node.kind { target.len() as u64 } else { owner.size };
        let row = InodeRow {
            ino,
            kind,
            permissions,
            nlink,
            inline,
            xattrs,
            parent,
            size,
            allocated,
            mtime: at,
            btime: at,
            ..owner
        };
        let mut inode = Inode::loaded(row);
        inode.link = link.map(Arc::new);
        self.put_unstored(inode);
        Ok(ino)
    }
}

/// A link to a member, of `size` bytes before what the view makes of it.
fn member(view: &Link, unpack: Option<&str>, size: u64, part: Part) -> Option<Link> {
    let Link { definition: view, data, modules, .. } = view;
    let is_plain = view.network == "identity";
    let network = if is_plain { unpack?.to_owned() } else { format!("{} | {}", unpack?, view.network) };
    let definition = LinkDefinition { network, view: ViewKind::File, ..view.clone() };
    let network = definition.parse()?;
    let keeps = network.keeps();
    let made = Network::known(&view.network).ok()?.keeps();
    // The archive tells how long what is unpacked is.
    let size = (made.length).then_some(size);
    let keeps = Keeps { place: keeps.place, length: keeps.length };
    Some(Link {
        definition,
        network,
        modules: modules.clone(),
        data: *data,
        keeps,
        inverse: None,
        looks: None,
        part: Some(part),
        size,
        of: None,
    })
}
