//! Directories with digests of their entries, looked at one by one: where digests are stored,
//! unvisited directories are not read.

use super::super::transfer::Progress;
use super::tree::{Listed, Tree, Whole, kept_or_computed};
use anyhow::{Context, Result};
use std::cell::RefCell;
use std::collections::HashSet;
use std::ops::Range;
use std::rc::Rc;
use weft_digest::{Digest, Entry, Kind, Proof, Step};
use weft_vfs::ListedEntry;

/// An entry.
pub struct Item<'a> {
    pub name: Vec<u8>,
    pub kind: Kind,
    pub permissions: u16,
    pub digest: Digest,
    /// Content of a directory.
    pub below: Option<Boxed<'a>>,
}

/// A directory of any kind of tree.
pub type Boxed<'a> = Box<dyn Directory<'a> + 'a>;

/// A directory.
pub trait Directory<'a> {
    /// Its entries, in no order.
    fn entries(&self) -> Result<Vec<Item<'a>>>;
}

/// Returns the directory `node` with its digest: as stored or, where digests are not stored or
/// `all` is set, from everything below.
pub fn of<'a, T: Tree>(tree: &'a T, node: T::Node, all: bool, progress: &'a Progress) -> Result<(Digest, Boxed<'a>)> {
    of_below(tree, node, all, (progress, &Rc::default()))
}

/// Returns the entry `listed`, as a directory that holds it does.
pub fn item<'a, T: Tree>(tree: &'a T, listed: Listed<T::Node>, all: bool, progress: &'a Progress) -> Result<Item<'a>> {
    item_below(tree, listed, all, (progress, &Rc::default()))
}

/// Does the same as [`item`] for one below directories that were met.
fn item_below<'a, T: Tree>(
    tree: &'a T,
    listed: Listed<T::Node>,
    all: bool,
    (progress, met): (&'a Progress, &Met),
) -> Result<Item<'a>> {
    let (digest, below) = match listed.kind {
        Kind::Directory => {
            let (digest, below) = of_below(tree, listed.node, all, (progress, met))?;
            (digest, Some(below))
        }
        Kind::File if all => (super::tree::listed(tree, &listed.node, progress)?, None),
        _ => (kept_or_computed(tree, &listed, progress)?, None),
    };
    Ok(Item { name: listed.name, kind: listed.kind, permissions: listed.permissions, digest, below })
}

/// Does the same as [`of`] for a directory below those that were met.
fn of_below<'a, T: Tree>(
    tree: &'a T,
    node: T::Node,
    all: bool,
    (progress, met): (&'a Progress, &Met),
) -> Result<(Digest, Boxed<'a>)> {
    let kept = if all { None } else { tree.kept(&node)? };
    if let Some(digest) = kept {
        return Ok((digest, Box::new(Kept { tree, node, progress, met: met.clone() })));
    }
    let whole = Whole::of(tree, node, progress)?;
    let (digest, range) = (whole.digest(), whole.top().clone());
    Ok((digest, Box::new(Part { whole: Rc::new(whole), range })))
}

/// A directory of which all is known.
struct Part {
    whole: Rc<Whole>,
    range: Range<usize>,
}

impl<'a> Directory<'a> for Part {
    fn entries(&self) -> Result<Vec<Item<'a>>> {
        let known = self.whole.known(&self.range);
        Ok(known
            .map(|(known, digest)| {
                let part = || Part { whole: self.whole.clone(), range: known.entries.clone() };
                let below = (known.kind == Kind::Directory).then(|| Box::new(part()) as Boxed<'a>);
                let (name, kind, permissions) = (known.name.clone(), known.kind, known.permissions);
                Item { name, kind, permissions, digest: *digest, below }
            })
            .collect())
    }
}

/// Numbers of directories whose entries were listed.
type Met = Rc<RefCell<HashSet<u64>>>;

/// A directory with stored digests.
struct Kept<'a, T: Tree> {
    tree: &'a T,
    node: T::Node,
    progress: &'a Progress,
    met: Met,
}

impl<'a, T: Tree> Directory<'a> for Kept<'a, T> {
    fn entries(&self) -> Result<Vec<Item<'a>>> {
        self.tree.refuse_met(&self.node, &mut self.met.borrow_mut())?;
        let item = |listed| item_below(self.tree, listed, false, (self.progress, &self.met));
        let Some(kept) = self.tree.kept_entries(&self.node)? else {
            return self.tree.entries(&self.node)?.into_iter().map(item).collect();
        };
        let (tree, progress, met) = (self.tree, self.progress, &self.met);
        let item = |(entry, node): (ListedEntry, T::Node)| {
            let ListedEntry { name, kind, permissions, digest, .. } = entry;
            let below = (kind == Kind::Directory)
                .then(|| Box::new(Kept { tree, node, progress, met: met.clone() }) as Boxed<'a>);
            Item { name, kind, permissions, digest, below }
        };
        Ok(kept.into_iter().map(item).collect())
    }
}

/// Returns a proof of the entry at `path`, a name for each directory on the way.
pub fn prove<'a>(top: Boxed<'a>, path: &[Vec<u8>]) -> Result<Proof> {
    let (mut steps, mut digest, mut directory) = (Vec::new(), None, Some(top));
    for name in path {
        let shown = String::from_utf8_lossy(name);
        let entries = directory.with_context(|| format!("what should hold {shown} is not a directory"))?.entries()?;
        let listed = entries.iter().map(|Item { name, kind, permissions, digest, .. }| Entry {
            name,
            kind: *kind,
            permissions: *permissions,
            digest: *digest,
        });
        let step = Step::new(listed, name);
        steps.push(step.with_context(|| format!("there is no {shown}"))?);
        let found = entries.into_iter().find(|item| item.name == *name).expect("there is a way to it");
        digest = Some(found.digest);
        directory = found.below;
    }
    Ok(Proof { steps, digest: digest.context("the path has no names")? })
}
