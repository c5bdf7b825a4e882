//! Files and directories of a volume that is not mounted.

use super::super::transfer::{CHUNK_BYTES, Place, Progress};
use super::tree::{Found, Listed, Tree, Whole, of_file};
use anyhow::{Context, Result, bail, ensure};
use weft_digest::{FileHasher, Kind};
use weft_vfs::{Caller, Cookie, ErrorKind, Ino, Vfs, Whence};

/// Entries listed at once.
const PAGE: usize = 1024;

/// What `place` names.
pub fn digest(place: &Place, progress: &Progress) -> Result<Found> {
    let (kind, node) = find(place)?;
    let tree = Stored(&place.opened.vfs);
    match kind {
        Kind::Directory => Ok(Whole::of(&tree, node, progress)?.found()),
        Kind::File => of_file(&tree, &node, progress),
        _ => bail!("it is neither a file nor a directory"),
    }
}

/// All below the directory that `place` names.
pub fn whole(place: &Place, progress: &Progress) -> Result<Whole> {
    let (kind, node) = find(place)?;
    ensure!(kind == Kind::Directory, "it is not a directory");
    Whole::of(&Stored(&place.opened.vfs), node, progress)
}

fn find(place: &Place) -> Result<(Kind, Node)> {
    let vfs = &*place.opened.vfs;
    let mut found = vfs.attributes(Ino::ROOT)?;
    for name in &place.path {
        let looked_up = vfs.lookup(Caller::ROOT, found.ino, name);
        found = looked_up.with_context(|| format!("there is no {} in the volume", String::from_utf8_lossy(name)))?;
    }
    Ok((found.kind, Node { ino: found.ino, size: found.size, path: place.path.join(&b'/') }))
}

struct Stored<'a>(&'a Vfs);

struct Node {
    ino: Ino,
    size: u64,
    path: Vec<u8>,
}

impl Node {
    fn shown(&self) -> String {
        format!("/{}", String::from_utf8_lossy(&self.path))
    }
}

impl Tree for Stored<'_> {
    type Node = Node;

    fn entries(&self, directory: &Node) -> Result<Vec<Listed<Node>>> {
        let (mut listed, mut after) = (Vec::new(), Cookie(0));
        loop {
            let page = self.0.read_directory_attributes(Caller::ROOT, directory.ino, after, PAGE);
            let page = page.with_context(|| format!("cannot list {}", directory.shown()))?;
            let Some((last, _)) = page.last() else { return Ok(listed) };
            after = last.cookie;
            listed.extend(page.iter().map(|(entry, attributes)| {
                let name = entry.name.as_bytes().to_vec();
                let path = [&directory.path[..], &name].join(&b'/');
                Listed {
                    name,
                    kind: attributes.kind,
                    permissions: (attributes.permissions & 0o7777) as u16,
                    rdev: u64::from(attributes.rdev),
                    node: Node { ino: attributes.ino, size: attributes.size, path },
                }
            }));
        }
    }

    fn read(&self, file: &Node, hasher: &mut FileHasher) -> Result<u64> {
        self.read_all(file, hasher).with_context(|| format!("cannot read {}", file.shown()))?;
        Ok(file.size)
    }

    fn target(&self, link: &Node) -> Result<Vec<u8>> {
        let target = self.0.read_symlink(link.ino);
        Ok(target.with_context(|| format!("cannot read the link {}", link.shown()))?.to_vec())
    }
}

impl Stored<'_> {
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
