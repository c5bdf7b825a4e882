//! Files and directories of a volume that is not mounted.

use super::super::transfer::{CHUNK_BYTES, Progress};
use super::directory;
use super::tree::{Found, KeptEntries, Listed, Tree, of_file};
use anyhow::{Context, Result, bail};
use std::sync::Arc;
use weft_digest::{Digest, FileHasher, Kind};
use weft_links::WithLinks;
use weft_store::ListedRow;
use weft_vfs::{Attributes, Caller, Cookie, ErrorKind, Ino, ListedEntry, Vfs, Whence};

/// Entries listed at once.
const PAGE: usize = 1024;

/// Returns the digest of the entry at `path`: with `all` from all bytes, not from stored digests.
pub fn digest(tree: &Stored, path: &[Vec<u8>], all: bool, progress: &Progress) -> Result<Found> {
    let (kind, node) = find(tree, path)?;
    match kind {
        Kind::Directory => Ok(Found { digest: directory::of(tree, node, all, progress)?.0, is_directory: true }),
        Kind::File => of_file(tree, &node, all, progress),
        _ => bail!("it is neither a file nor a directory"),
    }
}

/// Finds the entry at `path`.
pub fn find(tree: &Stored, path: &[Vec<u8>]) -> Result<(Kind, Node)> {
    let found = super::super::transfer::find(&tree.0, path)?;
    Ok((found.kind, Node { ino: found.ino, size: found.size, path: path.join(&b'/') }))
}

/// Returns the entry at `path` as its directory lists it; none if there is none.
pub fn item<'a>(
    tree: &'a Stored,
    path: &[Vec<u8>],
    all: bool,
    progress: &'a Progress,
) -> Result<Option<directory::Item<'a>>> {
    let found = match super::super::transfer::find(&tree.0, path) {
        Err(error) if is_absent(&error) => return Ok(None),
        found => found?,
    };
    let name = path.last().cloned().unwrap_or_default();
    let (ino, attributes) = (found.ino, if found.computed.is_some() { None } else { Some(found) });
    let listed = tree.listed(name, ino, attributes, path.join(&b'/'))?;
    listed.map(|listed| directory::item(tree, listed, all, progress)).transpose()
}

/// True if `error` says that there is no such path.
fn is_absent(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<weft_vfs::Error>().map(weft_vfs::Error::kind);
    kind.is_some_and(|kind| matches!(kind, ErrorKind::NotFound | ErrorKind::NotDirectory))
}

/// The content of a volume.
pub struct Stored(pub Arc<Vfs>);

/// A file, directory or other of it.
pub struct Node {
    ino: Ino,
    size: u64,
    path: Vec<u8>,
}

impl Node {
    fn shown(&self) -> String {
        let path = String::from_utf8_lossy(&self.path);
        // The path of an entry met on the way from the root begins with it already.
        format!("/{}", path.trim_start_matches('/'))
    }
}

impl Tree for Stored {
    type Node = Node;

    fn entries(&self, directory: &Node) -> Result<Vec<Listed<Node>>> {
        let (mut listed, mut after) = (Vec::new(), Cookie(0));
        loop {
            let page = self.0.read_directory_attributes(Caller::ROOT, directory.ino, after, PAGE);
            let page = page.with_context(|| format!("cannot list {}", directory.shown()))?;
            let Some((last, _)) = page.last() else { return Ok(listed) };
            after = last.cookie;
            for (entry, attributes) in page {
                let name = entry.name.as_bytes().to_vec();
                let path = [&directory.path[..], &name].join(&b'/');
                listed.extend(self.listed(name, entry.ino, attributes, path)?);
            }
        }
    }

    fn read(&self, file: &Node, hasher: &mut FileHasher) -> Result<u64> {
        self.read_all(file, hasher).with_context(|| format!("cannot read {}", file.shown()))?;
        Ok(file.size)
    }

    fn kept(&self, node: &Node) -> Result<Option<Digest>> {
        self.0.listed_digest(node.ino).with_context(|| format!("cannot tell the digest of {}", node.shown()))
    }

    fn kept_entries(&self, directory: &Node) -> Result<Option<KeptEntries<Node>>> {
        let (mut all, mut after) = (Vec::new(), Cookie(0));
        loop {
            let page = self.0.listed_entries(directory.ino, after);
            let page = page.with_context(|| format!("cannot list {}", directory.shown()))?;
            let Some(page) = page else { return Ok(None) };
            let Some(last) = page.last() else { return Ok(Some(all)) };
            after = last.name.cookie;
            for ListedRow { name: row, permissions, digest } in page {
                let Some(digest) = digest else { return Ok(None) };
                let name = row.name.as_bytes().to_vec();
                let node = Node { ino: row.ino, size: 0, path: [&directory.path[..], &name].join(&b'/') };
                let permissions = (permissions & 0o7777) as u16;
                all.push((ListedEntry { cookie: row.cookie, kind: row.kind, permissions, digest, name }, node));
            }
        }
    }

    fn number(&self, directory: &Node) -> Option<u64> {
        Some(directory.ino.0)
    }

    fn shown(&self, node: &Node) -> String {
        node.shown()
    }

    fn kept_content(&self, node: &Node) -> Result<Option<Digest>> {
        self.0.digest(node.ino).with_context(|| format!("cannot tell the digest of {}", node.shown()))
    }

    fn target(&self, link: &Node) -> Result<Vec<u8>> {
        if let Some(order) = self.0.links()?.link_order(link.ino)? {
            return Ok(order.definition.encode());
        }
        let target = self.0.read_symlink(link.ino);
        Ok(target.with_context(|| format!("cannot read the link {}", link.shown()))?.to_vec())
    }
}

impl Stored {
    /// The entry that has the inode `ino` and these attributes, a link none. None if it is gone.
    fn listed(
        &self,
        name: Vec<u8>,
        ino: Ino,
        attributes: Option<Attributes>,
        path: Vec<u8>,
    ) -> Result<Option<Listed<Node>>> {
        let (kind, permissions, rdev, size) = match attributes {
            Some(found) => (found.kind, found.permissions & 0o7777, found.rdev, found.size),
            None => match self.0.links()?.link_order(ino)? {
                Some(order) => (Kind::Transformation, order.permissions, 0, 0),
                None => return Ok(None),
            },
        };
        let (permissions, rdev) = (permissions as u16, u64::from(rdev));
        Ok(Some(Listed { name, kind, permissions, rdev, node: Node { ino, size, path } }))
    }

    fn read_all(&self, file: &Node, hasher: &mut FileHasher) -> Result<()> {
        let mut at = 0;
        while at < file.size {
            let data = match self.0.seek(file.ino, at, Whence::Data) {
                Ok(data) => data,
                // The rest is a hole.
                Err(error) if error.kind() == ErrorKind::NoData => file.size,
                Err(error) => return Err(error.into()),
            };
            hasher.zeros(data - at);
            at = data;
            let end = if at < file.size { self.0.seek(file.ino, at, Whence::Hole)? } else { at };
            while at < end {
                let wanted = usize::try_from(end - at).unwrap_or(usize::MAX).min(CHUNK_BYTES);
                let bytes = self.0.read(file.ino, at, wanted)?;
                bytes.slices().iter().for_each(|slice| hasher.update(slice));
                at += bytes.len() as u64;
            }
        }
        Ok(())
    }
}
