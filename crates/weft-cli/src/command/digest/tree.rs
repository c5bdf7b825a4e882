//! Digests of whole trees, of any source.

use super::super::transfer::{Progress, Sender, in_parallel};
use crate::failure::agrees;
use anyhow::Result;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::ops::Range;
use weft_digest::{Content, Digest, Entry, FileHasher, Kind, device, digest, directory};
use weft_vfs::ListedEntry;

/// Source of files and directories.
pub trait Tree: Sync {
    /// Names one of them.
    type Node: Send;

    /// Lists all entries of a directory.
    fn entries(&self, directory: &Self::Node) -> Result<Vec<Listed<Self::Node>>>;

    /// Gives all bytes of a file to `hasher`. Returns their number.
    fn read(&self, file: &Self::Node, hasher: &mut FileHasher) -> Result<u64>;

    /// Returns the digest by which a directory lists `node`, if it is stored and need not be
    /// computed.
    fn kept(&self, _node: &Self::Node) -> Result<Option<Digest>> {
        Ok(None)
    }

    /// Returns all entries of a directory with stored digests, if all are stored.
    fn kept_entries(&self, _directory: &Self::Node) -> Result<Option<KeptEntries<Self::Node>>> {
        Ok(None)
    }

    /// Returns the BLAKE3 digest of the content of file `node`, if it is stored.
    fn kept_content(&self, _node: &Self::Node) -> Result<Option<Digest>> {
        Ok(None)
    }

    /// Returns the number of a directory that can have no second name, by which a directory that
    /// lies in itself is detected.
    fn number(&self, _directory: &Self::Node) -> Option<u64> {
        None
    }

    /// Fails if `directory` was `met` before.
    fn refuse_met(&self, directory: &Self::Node, met: &mut HashSet<u64>) -> Result<()> {
        let is_new = self.number(directory).is_none_or(|number| met.insert(number));
        let damage = || format!("{} lies in itself, or has two names: the volume is damaged", self.shown(directory));
        agrees(is_new, damage)?;
        Ok(())
    }

    /// Returns `node` for messages.
    fn shown(&self, _node: &Self::Node) -> String {
        "a directory".into()
    }

    /// Returns the target of a symbolic link.
    fn target(&self, link: &Self::Node) -> Result<Vec<u8>>;
}

/// Entries of a directory as they are stored.
pub type KeptEntries<N> = Vec<(ListedEntry, N)>;

/// An entry of a directory.
pub struct Listed<N> {
    pub name: Vec<u8>,
    pub kind: Kind,
    pub permissions: u16,
    /// Number of a device node, as Linux encodes it.
    pub rdev: u64,
    pub node: N,
}

/// A digest, and the kind of its file.
pub struct Found {
    pub digest: Digest,
    pub is_directory: bool,
}

/// Returns the digest of the content of file `node`, as stored or, with `all`, from all of its
/// bytes.
pub fn of_file<T: Tree>(tree: &T, node: &T::Node, all: bool, progress: &Progress) -> Result<Found> {
    let kept = if all { None } else { tree.kept_content(node)? };
    let digest = match kept {
        Some(digest) => digest,
        None => {
            let mut hasher = FileHasher::new(Content::Always);
            progress.file(tree.read(node, &mut hasher)?);
            hasher.finish().content.expect("it was asked for")
        }
    };
    Ok(Found { digest, is_directory: false })
}

/// Computes the digest by which a directory lists `listed`, which is no directory and has none
/// stored.
fn computed<T: Tree>(tree: &T, listed: &Listed<T::Node>) -> Result<Digest> {
    Ok(match listed.kind {
        Kind::Symlink | Kind::Transformation => digest(&tree.target(&listed.node)?),
        Kind::CharDevice | Kind::BlockDevice => device(rustix::fs::major(listed.rdev), rustix::fs::minor(listed.rdev)),
        Kind::File | Kind::Directory | Kind::Fifo | Kind::Socket => digest(&[]),
    })
}

/// Computes the digest by which a directory lists file `node`, from all of its bytes.
pub fn listed<T: Tree>(tree: &T, node: &T::Node, progress: &Progress) -> Result<Digest> {
    let mut hasher = FileHasher::new(Content::IfListed);
    progress.file(tree.read(node, &mut hasher)?);
    Ok(hasher.finish().listed)
}

/// Returns the digest by which a directory lists `item`, which is no directory: stored, or
/// computed.
pub fn kept_or_computed<T: Tree>(tree: &T, item: &Listed<T::Node>, progress: &Progress) -> Result<Digest> {
    match (tree.kept(&item.node)?, item.kind) {
        (Some(kept), _) => Ok(kept),
        (None, Kind::File) => listed(tree, &item.node, progress),
        (None, _) => computed(tree, item),
    }
}

/// An entry of a directory, its digest apart.
pub struct Known {
    pub name: Vec<u8>,
    pub kind: Kind,
    pub permissions: u16,
    /// Entries of a directory.
    pub entries: Range<usize>,
}

/// All below a directory, with digests.
pub struct Whole {
    all: Vec<Known>,
    /// Digests of the entries, in the same order.
    digests: Vec<Digest>,
    /// Entries of the top directory.
    top: Range<usize>,
}

impl Whole {
    /// Reads all below the directory `node`: files are read on several threads.
    pub fn of<T: Tree>(tree: &T, node: T::Node, progress: &Progress) -> Result<Whole> {
        let (mut all, mut top) = (Vec::new(), 0..0);
        let digests: Mutex<Vec<Digest>> = Mutex::default();
        in_parallel(
            |files| walk(tree, node, &mut all, &mut top, &digests, files),
            |(at, file): (usize, T::Node)| {
                let digest = listed(tree, &file, progress)?;
                digests.lock()[at] = digest;
                Ok(())
            },
        )?;
        let mut whole = Whole { all, digests: digests.into_inner(), top };
        // Entries come after the directory that lists them.
        for at in (0..whole.all.len()).rev().filter(|at| whole.all[*at].kind == Kind::Directory).collect::<Vec<_>>() {
            whole.digests[at] = directory(whole.entries(&whole.all[at].entries));
        }
        Ok(whole)
    }

    /// Returns the digest of the directory.
    pub fn digest(&self) -> Digest {
        directory(self.entries(&self.top))
    }

    /// Returns its entries.
    pub fn top(&self) -> &Range<usize> {
        &self.top
    }

    /// Returns these entries, with digests.
    pub fn known(&self, range: &Range<usize>) -> impl Iterator<Item = (&Known, &Digest)> {
        self.all[range.clone()].iter().zip(&self.digests[range.clone()])
    }

    fn entries(&self, range: &Range<usize>) -> impl Iterator<Item = Entry<'_>> {
        range.clone().map(|at| {
            let Known { name, kind, permissions, .. } = &self.all[at];
            Entry { name, kind: *kind, permissions: *permissions, digest: self.digests[at] }
        })
    }
}

/// Lists all below `node`, sets `top` to its own entries, and sends the files.
fn walk<T: Tree>(
    tree: &T,
    node: T::Node,
    all: &mut Vec<Known>,
    top: &mut Range<usize>,
    digests: &Mutex<Vec<Digest>>,
    files: &Sender<'_, (usize, T::Node)>,
) -> Result<()> {
    let mut waiting: Vec<(Option<usize>, _)> = vec![(None, node)];
    let mut met = HashSet::new();
    while let Some((of, directory)) = waiting.pop() {
        tree.refuse_met(&directory, &mut met)?;
        let entries = tree.entries(&directory)?;
        let start = all.len();
        let range = start..start + entries.len();
        match of {
            Some(of) => all[of].entries = range,
            None => *top = range,
        }
        for (at, entry) in (start..).zip(entries) {
            let own = computed(tree, &entry)?;
            digests.lock().push(own);
            let Listed { name, kind, permissions, node, .. } = entry;
            all.push(Known { name, kind, permissions, entries: 0..0 });
            match kind {
                Kind::Directory => waiting.push((Some(at), node)),
                Kind::File if !files.send((at, node))? => return Ok(()),
                _ => {}
            }
        }
    }
    Ok(())
}
