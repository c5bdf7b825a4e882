//! Files and directories of any file system.

use super::super::transfer::{CHUNK_BYTES, Progress, os};
use super::directory;
use super::list::unhex;
use super::tree::{Found, KeptEntries, Listed, Tree, of_file};
use crate::mounted;
use crate::proc_path::proc_path;
use crate::shown;
use anyhow::{Context, Result, anyhow, bail};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use weft_attributes::Attribute;
use weft_digest::{Content, Digest, FileHasher, Kind};
use weft_links::LinkOrder;
use weft_vfs::{ListedEntry, decode_entries};

/// Returns the digest of `path`; a symbolic link stands for its target, and `-` for standard input.
/// With `all`, from all bytes, not from stored digests.
pub fn digest(tree: &Plain, path: &Path, all: bool, progress: &Progress) -> Result<Found> {
    let path = if path == Path::new("-") { Path::new("/dev/stdin") } else { path };
    let node = find(path)?;
    refuse_named_pipe(path)?;
    if node.is_directory {
        Ok(Found { digest: directory::of(tree, node, all, progress)?.0, is_directory: true })
    } else {
        of_file(tree, &node, all, progress)
    }
}

/// Returns the digest by which a directory lists the file at `path`.
pub fn listed(path: &Path) -> Result<Digest> {
    let mut hasher = FileHasher::new(Content::IfListed);
    read(&mut File::open(path)?, &mut hasher)?;
    Ok(hasher.finish().listed)
}

/// Gives all bytes of the regular file at `path`, which is no symbolic link, to `take`.
pub fn read_file(path: &Path, mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(()),
            count => take(&buffer[..count])?,
        }
    }
}

/// Refuses a pipe that a file system names: nobody may ever write to it. One that a shell made for
/// `<(command)` has no name that leads to it.
fn refuse_named_pipe(path: &Path) -> Result<()> {
    let is_pipe = std::fs::metadata(path).is_ok_and(|status| status.file_type().is_fifo());
    if is_pipe && path.canonicalize().is_ok() {
        let (path, word) = (path.display(), shown::word(path.as_os_str()));
        bail!("{path} is a named pipe, which may never end; to read what is written to it: weft digest - < {word}");
    }
    Ok(())
}

/// Finds the file or directory at `path`.
pub fn find(path: &Path) -> Result<Node> {
    let status = std::fs::metadata(path)?;
    Ok(Node { path: path.to_path_buf(), device: status.dev(), is_directory: status.is_dir(), is_top: true })
}

/// The mounted file systems.
pub struct Plain {
    /// Devices of mounts that store digests. The attribute is not trusted on others.
    keeping: Vec<u64>,
}

/// A file, directory or other.
pub struct Node {
    path: PathBuf,
    device: u64,
    is_directory: bool,
    /// True for the one path whose symbolic link is followed.
    is_top: bool,
}

/// Most bytes of a path that the kernel is given: its own limit (PATH_MAX), less some for a prefix.
const PATH_BYTES_MAX: usize = 4000;

/// A path that the kernel takes.
struct Reached<'a> {
    path: Cow<'a, Path>,
    /// The directory that it begins in, unless it is the node's own.
    _directory: Option<OwnedFd>,
}

impl Node {
    /// Returns a path to it; a path that is too long for the kernel is walked, part by part.
    fn reach(&self) -> Result<Reached<'_>, Errno> {
        let mut directory: Option<OwnedFd> = None;
        let mut rest = self.path.as_os_str().as_bytes();
        while rest.len() > PATH_BYTES_MAX {
            let end = rest[..PATH_BYTES_MAX].iter().rposition(|byte| *byte == b'/').ok_or(Errno::NAMETOOLONG)?;
            let from = directory.as_ref().map_or(CWD, AsFd::as_fd);
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            directory = Some(rustix::fs::openat(from, os(&rest[..end]), flags, Mode::empty())?);
            rest = &rest[end + 1..];
        }
        let path = match &directory {
            None => Cow::Borrowed(&*self.path),
            Some(directory) => Cow::Owned(Path::new(&proc_path(directory)).join(os(rest))),
        };
        Ok(Reached { path, _directory: directory })
    }
}

impl Plain {
    /// Returns the present mounts.
    pub fn new() -> Plain {
        Plain { keeping: mounted::devices() }
    }

    /// Returns an attribute that a volume computes; none if this is no such volume, or it cannot be
    /// read.
    fn attribute(&self, node: &Node, attribute: Attribute<'_>, len: usize) -> Option<Vec<u8>> {
        if !self.keeping.contains(&node.device) {
            return None;
        }
        let (name, mut value) = (attribute.name(), vec![0; len]);
        let reached = node.reach().ok()?;
        let len = if node.is_top {
            rustix::fs::getxattr(&*reached.path, &*name, &mut value[..])
        } else {
            rustix::fs::lgetxattr(&*reached.path, &*name, &mut value[..])
        };
        // If it cannot be read, the content is, which then reports the error.
        value.truncate(len.ok()?);
        Some(value)
    }

    /// Returns its definition, if it is a transformation link.
    fn link_order(&self, node: &Node) -> Option<LinkOrder> {
        LinkOrder::decode(&self.attribute(node, Attribute::Link, 64 << 10)?)
    }

    fn digest(&self, node: &Node, attribute: Attribute<'_>) -> Option<Digest> {
        unhex(&self.attribute(node, attribute, 64)?)
    }
}

impl Tree for Plain {
    type Node = Node;

    fn entries(&self, directory: &Node) -> Result<Vec<Listed<Node>>> {
        let listed = || -> Result<_> {
            let mut listed = Vec::new();
            let reached = directory.reach()?;
            for entry in std::fs::read_dir(&reached.path)? {
                let entry = entry?;
                let (path, status) = (directory.path.join(entry.file_name()), entry.metadata()?);
                let kind = Kind::from_mode(status.mode())
                    .ok_or_else(|| anyhow!("{} is of an unknown kind", path.display()))?;
                let name = entry.file_name().into_vec();
                let node = Node { path, device: status.dev(), is_directory: status.is_dir(), is_top: false };
                let may_be_a_link = matches!(kind, Kind::File | Kind::Directory);
                let order = if may_be_a_link { self.link_order(&node) } else { None };
                let (kind, mode) = order.map_or((kind, status.mode()), |o| (Kind::Transformation, o.permissions));
                let permissions = (mode & 0o7777) as u16;
                listed.push(Listed { name, kind, permissions, rdev: status.rdev(), node });
            }
            Ok(listed)
        };
        listed().with_context(|| format!("cannot list {}", directory.path.display()))
    }

    fn kept(&self, node: &Node) -> Result<Option<Digest>> {
        Ok(self.digest(node, Attribute::ListedDigest))
    }

    fn kept_entries(&self, directory: &Node) -> Result<Option<KeptEntries<Node>>> {
        let (mut all, mut after) = (Vec::<(ListedEntry, Node)>::new(), 0);
        loop {
            let Some(page) = self.attribute(directory, Attribute::DigestEntries { after }, 64 << 10) else {
                return Ok(None);
            };
            let Some(page) = decode_entries(&page) else { return Ok(None) };
            let Some(last) = page.last() else { return Ok(Some(all)) };
            after = last.cookie.0;
            all.extend(page.into_iter().map(|entry| {
                let path = directory.path.join(OsStr::from_bytes(&entry.name));
                let is_directory = entry.kind == Kind::Directory;
                let node = Node { path, device: directory.device, is_directory, is_top: false };
                (entry, node)
            }));
        }
    }

    fn kept_content(&self, node: &Node) -> Result<Option<Digest>> {
        Ok(self.digest(node, Attribute::Digest))
    }

    fn read(&self, node: &Node, hasher: &mut FileHasher) -> Result<u64> {
        let follow = if node.is_top { OFlags::empty() } else { OFlags::NOFOLLOW };
        let open = || {
            let reached = node.reach()?;
            rustix::fs::open(&*reached.path, OFlags::RDONLY | OFlags::CLOEXEC | follow, Mode::empty())
        };
        let mut read = || -> Result<u64> { read(&mut File::from(open()?), hasher) };
        read().with_context(|| format!("cannot read {}", node.path.display()))
    }

    fn target(&self, link: &Node) -> Result<Vec<u8>> {
        if let Some(order) = self.link_order(link) {
            return Ok(order.definition.encode());
        }
        let target = link.reach().map_err(std::io::Error::from).and_then(|reached| std::fs::read_link(&reached.path));
        let target = target.with_context(|| format!("cannot read the link {}", link.path.display()))?;
        Ok(target.as_os_str().as_bytes().to_vec())
    }
}

fn read(file: &mut File, hasher: &mut FileHasher) -> Result<u64> {
    let status = file.metadata()?;
    let has_holes = status.is_file() && status.blocks() * 512 < status.size();
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut at = 0;
    loop {
        let end = if has_holes { skip_hole(file, &mut at, status.size(), hasher)? } else { u64::MAX };
        while at < end {
            let wanted = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
            let count = file.read(&mut buffer[..wanted])?;
            if count == 0 {
                return Ok(at);
            }
            hasher.update(&buffer[..count]);
            at += count as u64;
        }
    }
}

/// Goes to the next data from `at` on, and returns its end.
fn skip_hole(file: &File, at: &mut u64, size: u64, hasher: &mut FileHasher) -> Result<u64> {
    let data = match rustix::fs::seek(file, SeekFrom::Data(*at)) {
        Ok(data) => data,
        // The rest is a hole.
        Err(Errno::NXIO) => rustix::fs::seek(file, SeekFrom::Start(size.max(*at)))?,
        Err(error) => return Err(error.into()),
    };
    hasher.zeros(data - *at);
    *at = data;
    if data >= size {
        // Data that was added meanwhile is read to its end.
        return Ok(u64::MAX);
    }
    let end = rustix::fs::seek(file, SeekFrom::Hole(data))?;
    rustix::fs::seek(file, SeekFrom::Start(data))?;
    Ok(end)
}
