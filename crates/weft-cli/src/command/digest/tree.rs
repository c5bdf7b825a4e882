//! Digests of whole trees, wherever they are read from.

use super::super::transfer::{Progress, Sender, in_parallel};
use anyhow::Result;
use parking_lot::Mutex;
use std::ops::Range;
use weft_digest::{Content, Digest, Entry, FileHasher, Kind, device, digest, directory};

/// Where files and directories are read from.
pub trait Tree: Sync {
    /// Names one of them.
    type Node: Send;

    /// All entries of a directory.
    fn entries(&self, directory: &Self::Node) -> Result<Vec<Listed<Self::Node>>>;

    /// Gives all bytes of a file to `hasher`; tells how many.
    fn read(&self, file: &Self::Node, hasher: &mut FileHasher) -> Result<u64>;

    /// The target of a symbolic link.
    fn target(&self, link: &Self::Node) -> Result<Vec<u8>>;
}

/// An entry of a directory.
pub struct Listed<N> {
    pub name: Vec<u8>,
    pub kind: Kind,
    pub permissions: u16,
    /// Of a device node, as Linux encodes it.
    pub rdev: u64,
    pub node: N,
}

/// A digest, and what it is of.
pub struct Found {
    pub digest: Digest,
    pub is_directory: bool,
}

/// The digest of the file `node`.
pub fn of_file<T: Tree>(tree: &T, node: &T::Node, progress: &Progress) -> Result<Found> {
    let mut hasher = FileHasher::new(Content::Always);
    progress.file(tree.read(node, &mut hasher)?);
    let digest = hasher.finish().content.expect("it was asked for");
    Ok(Found { digest, is_directory: false })
}

/// An entry whose directory is not hashed yet.
struct Waiting {
    name: Vec<u8>,
    kind: Kind,
    permissions: u16,
    /// Those of a directory.
    entries: Range<usize>,
}

/// The digest of the directory `node`: files are read on several threads.
pub fn of_directory<T: Tree>(tree: &T, node: T::Node, progress: &Progress) -> Result<Found> {
    let mut all: Vec<Waiting> = Vec::new();
    let mut top = 0..0;
    let digests: Mutex<Vec<Digest>> = Mutex::default();
    in_parallel(
        |files| walk(tree, node, &mut all, &mut top, &digests, files),
        |(at, file): (usize, T::Node)| {
            let mut hasher = FileHasher::new(Content::IfListed);
            progress.file(tree.read(&file, &mut hasher)?);
            digests.lock()[at] = hasher.finish().listed;
            Ok(())
        },
    )?;
    let mut digests = digests.into_inner();
    // Entries come after the directory that lists them.
    for at in (0..all.len()).rev().filter(|at| all[*at].kind == Kind::Directory) {
        digests[at] = of_entries(&all, &digests, all[at].entries.clone());
    }
    Ok(Found { digest: of_entries(&all, &digests, top), is_directory: true })
}

fn of_entries(all: &[Waiting], digests: &[Digest], entries: Range<usize>) -> Digest {
    directory(entries.map(|at| {
        let Waiting { name, kind, permissions, .. } = &all[at];
        Entry { name, kind: *kind, permissions: *permissions, digest: digests[at] }
    }))
}

/// Lists all below `node`, tells which entries are its own, and sends the files.
fn walk<T: Tree>(
    tree: &T,
    node: T::Node,
    all: &mut Vec<Waiting>,
    top: &mut Range<usize>,
    digests: &Mutex<Vec<Digest>>,
    files: &Sender<'_, (usize, T::Node)>,
) -> Result<()> {
    let mut waiting: Vec<(Option<usize>, _)> = vec![(None, node)];
    while let Some((of, directory)) = waiting.pop() {
        let entries = tree.entries(&directory)?;
        let start = all.len();
        let range = start..start + entries.len();
        match of {
            Some(of) => all[of].entries = range,
            None => *top = range,
        }
        for (at, Listed { name, kind, permissions, rdev, node }) in (start..).zip(entries) {
            all.push(Waiting { name, kind, permissions, entries: 0..0 });
            let own = match kind {
                Kind::Symlink => digest(&tree.target(&node)?),
                Kind::CharDevice | Kind::BlockDevice => device(rustix::fs::major(rdev), rustix::fs::minor(rdev)),
                Kind::File | Kind::Directory | Kind::Fifo | Kind::Socket => digest(&[]),
            };
            digests.lock().push(own);
            match kind {
                Kind::Directory => waiting.push((Some(at), node)),
                Kind::File if !files.send((at, node))? => return Ok(()),
                _ => {}
            }
        }
    }
    Ok(())
}
