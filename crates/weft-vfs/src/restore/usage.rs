//! Bytes that files below a directory take: those of the present, and those that only the past has.
//!
//! A block counts once, for one of the files that have it. What was deleted counts where it had a
//! name last; a directory on the way may be gone, too.

use super::last_names::{LastNames, LastPlace};
use super::newest;
use super::path::{VolumePath, shown};
use super::rows::Rows;
use super::{Restoring, refused};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use weft_store::{
    BlockId, CommitNo, Cookie, Counted, Ino, InodeRow, Kind, NameKey, NameRow, PastCount, Store, no_history,
};

/// Versions that are read at once.
const VERSIONS_READ: usize = 1 << 13;

/// Inodes whose past is counted together: for more of them, all versions are looked at again.
const INODES_COUNTED: usize = 1 << 18;

/// Entries of a directory that are read at once.
const NAMES_READ: usize = 1 << 12;

/// Files whose blocks are asked for at once.
const FILES_READ: usize = 512;

/// Directories above an inode, at most: more are a circle of damaged rows.
const DEPTH_MAX: usize = 4096;

/// Bytes that something takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of content that is there now.
    pub present: u64,
    /// Bytes that only the past has.
    pub past: u64,
}

/// Bytes that a directory or file takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageBelow {
    /// All of them.
    pub all: Usage,
    /// Those of each name in the directory, there now or not.
    pub names: BTreeMap<Vec<u8>, Usage>,
    /// False if more of the past may be there: many of its blocks belong to several files.
    pub is_complete: bool,
}

/// Finds the bytes that `path` of `store`, a directory with all in it or a file, takes now; if
/// `with_past`, also those that only the past has, and `path` need not be there now.
pub fn usage_below(store: &dyn Store, path: &[u8], with_past: bool) -> Restoring<UsageBelow> {
    let path = VolumePath::parse(path)?;
    let top = top(store, &path, with_past)?;
    let mut walk = Walk {
        store,
        top,
        seen: FxHashSet::default(),
        blocks: FxHashSet::default(),
        places: FxHashMap::default(),
        found: UsageBelow { is_complete: true, ..UsageBelow::default() },
    };
    walk.present()?;
    if with_past {
        walk.past()?;
    }
    Ok(walk.found)
}

/// The place that is asked about.
struct Top {
    ino: Ino,
    is_directory: bool,
    /// True if it is there now.
    is_present: bool,
    /// The directory that it is in, and its name there; none of the root.
    place: Option<(Ino, Vec<u8>)>,
}

fn top(store: &dyn Store, path: &VolumePath, with_past: bool) -> Restoring<Top> {
    let (mut at, mut place, mut is_directory) = (Ino::ROOT, None, true);
    for name in path.names() {
        let entry = if is_directory { store.name(at, name)? } else { None };
        let Some(entry) = entry else {
            return match with_past {
                true => top_then(store, path),
                false => refused(format!("there is no {}; --history tells of what was there", shown(path.names()))),
            };
        };
        place = Some((at, name.as_bytes().to_vec()));
        (at, is_directory) = (entry.ino, entry.kind == Kind::Directory);
    }
    Ok(Top { ino: at, is_directory, is_present: true, place })
}

/// What was at `path` as of the last kept commit that had something there.
fn top_then(store: &dyn Store, path: &VolumePath) -> Restoring<Top> {
    let then = Rows::new(store, newest::last_with(store, path)?);
    let Some((above, _)) = path.split() else { return refused("the root is always there".into()) };
    let parent = if above.is_empty() { Ino::ROOT } else { then.directory(above)?.ino };
    match then.entry(path.names())? {
        Some(NameRow { ino, kind, name, .. }) => {
            let place = Some((parent, name.as_bytes().to_vec()));
            Ok(Top { ino, is_directory: kind == Kind::Directory, is_present: false, place })
        }
        None => refused(format!("there was no {}", shown(path.names()))),
    }
}

struct Walk<'a> {
    store: &'a dyn Store,
    top: Top,
    /// Inodes that were counted.
    seen: FxHashSet<Ino>,
    /// Blocks that were counted.
    blocks: FxHashSet<BlockId>,
    /// The name below the top by which each inode is found there.
    places: FxHashMap<Ino, Vec<u8>>,
    found: UsageBelow,
}

impl Walk<'_> {
    fn names(&self, directory: Ino) -> Restoring<Vec<NameRow>> {
        let (mut names, mut after) = (Vec::new(), Cookie(0));
        loop {
            let page = self.store.names(directory, after, NAMES_READ)?;
            let Some(last) = page.last() else { return Ok(names) };
            after = last.cookie;
            names.extend(page);
        }
    }

    /// Counts what is there now.
    fn present(&mut self) -> Restoring<()> {
        if !self.top.is_present {
            return Ok(());
        }
        if !self.top.is_directory {
            let bytes = self.bytes_of(&[self.top.ino])?;
            self.found.all.present = bytes.iter().sum();
            return Ok(());
        }
        let mut waiting = vec![(self.top.ino, None::<Vec<u8>>)];
        while let Some((directory, below)) = waiting.pop() {
            let (mut files, mut of) = (Vec::new(), Vec::new());
            for entry in self.names(directory)? {
                let child = below.clone().unwrap_or_else(|| entry.name.as_bytes().to_vec());
                self.found.names.entry(child.clone()).or_default();
                self.places.entry(entry.ino).or_insert_with(|| child.clone());
                if entry.kind == Kind::Directory {
                    waiting.push((entry.ino, Some(child)));
                } else if self.seen.insert(entry.ino) {
                    files.push(entry.ino);
                    of.push(child);
                }
            }
            for (bytes, child) in self.bytes_of(&files)?.into_iter().zip(of) {
                self.found.all.present += bytes;
                self.found.names.entry(child).or_default().present += bytes;
            }
        }
        Ok(())
    }

    /// The bytes of each of `files` that were not counted yet.
    fn bytes_of(&mut self, files: &[Ino]) -> Restoring<Vec<u64>> {
        let rows = self.rows(files)?;
        let blocks = self.extents(rows.values())?;
        let mut bytes = Vec::with_capacity(files.len());
        for ino in files {
            let Some(row) = rows.get(ino) else {
                bytes.push(0);
                continue;
            };
            let in_row = row.inline.as_ref().map_or(0, |content| content.len() as u64);
            let own = blocks.get(ino).into_iter().flatten();
            let new = own.filter(|(id, _)| self.blocks.insert(*id)).map(|(_, length)| length).sum::<u64>();
            bytes.push(in_row + new);
        }
        Ok(bytes)
    }

    /// The last commit, if history is kept: then rows are read many at a time.
    fn commit(&self) -> Restoring<Option<CommitNo>> {
        Ok(if self.store.history()?.is_some() { Some(self.store.header()?.commit) } else { None })
    }

    fn rows(&self, files: &[Ino]) -> Restoring<FxHashMap<Ino, InodeRow>> {
        let mut wanted = files.to_vec();
        wanted.sort_unstable();
        if let Some(commit) = self.commit()? {
            let rows = Rows::new(self.store, commit).inodes(&wanted)?;
            return Ok(rows.into_iter().map(|(ino, (row, _))| (ino, row)).collect());
        }
        let mut rows = FxHashMap::default();
        for ino in wanted {
            rows.extend(self.store.row_of(ino)?.map(|row| (ino, row)));
        }
        Ok(rows)
    }

    /// The blocks of those of `rows` that are files with blocks, each with its length.
    fn extents<'r>(&self, rows: impl Iterator<Item = &'r InodeRow>) -> Restoring<FxHashMap<Ino, Vec<(BlockId, u64)>>> {
        let has_blocks = |row: &&InodeRow| row.kind == Kind::File && row.inline.is_none() && row.allocated > 0;
        let files = rows.filter(has_blocks).map(|row| (row.ino, row.size)).collect::<Vec<_>>();
        let (commit, mut all) = (self.commit()?, FxHashMap::default());
        for some in files.chunks(FILES_READ) {
            let found = match commit {
                Some(commit) => self.store.all_extents_at(commit, some)?,
                None => some.iter().map(|(ino, end)| self.store.extents(*ino, 0..*end)).collect::<Result<_, _>>()?,
            };
            for ((ino, _), extents) in some.iter().zip(found) {
                let blocks = extents.into_iter().map(|(_, block)| (block.id, u64::from(block.length)));
                all.insert(*ino, blocks.collect());
            }
        }
        Ok(all)
    }

    /// Counts what only the past has.
    fn past(&mut self) -> Restoring<()> {
        let mut next = Some(Ino(0));
        while let Some(from) = next {
            let counted = Counted::ByInode(from, INODES_COUNTED);
            let mut count = PastCount::begin(self.store, counted)?.ok_or_else(no_history)?;
            while count.step(self.store, VERSIONS_READ)? {}
            let costs = count.end(self.store)?;
            self.found.is_complete &= costs.is_complete;
            self.past_of(&costs.by_inode)?;
            next = costs.next_inode;
        }
        Ok(())
    }

    /// Adds the bytes that the past alone has of some inodes.
    fn past_of(&mut self, costs: &BTreeMap<Ino, u64>) -> Restoring<()> {
        let costly = costs.keys().copied().collect::<Vec<_>>();
        let alive = self.rows(&costly)?;
        let mut last = LastNames::default();
        let mut after = Some(NameKey::default());
        while let Some(key) = after {
            after = last.read_more(self.store, &key, VERSIONS_READ, |ino| costs.contains_key(&ino))?;
        }
        for (ino, bytes) in costs {
            let is_alive = alive.get(ino).is_some_and(|row| row.nlink > 0);
            if *ino == self.top.ino {
                self.found.all.past += bytes;
                continue;
            }
            let Some(name) = self.place_of(*ino, is_alive, &last) else { continue };
            self.found.all.past += bytes;
            if let Some(name) = name {
                self.found.names.entry(name).or_default().past += bytes;
            }
        }
        Ok(())
    }

    /// The name below the top by which `ino` is or was found: none within of the top itself. None
    /// if it is elsewhere.
    fn place_of(&self, ino: Ino, is_alive: bool, last: &LastNames) -> Option<Option<Vec<u8>>> {
        if let Some(name) = self.places.get(&ino) {
            return Some(Some(name.clone()));
        }
        if is_alive {
            return None;
        }
        let mut at = ino;
        for _ in 0..DEPTH_MAX {
            let LastPlace { parent, name, .. } = last.place(at)?;
            let parent = *parent;
            if self.top.place.as_ref().is_some_and(|(above, own)| *above == parent && own == name) && at == ino {
                // Another one had the name of the top.
                return Some(None);
            }
            if parent == self.top.ino && self.top.is_directory {
                return Some(Some(name.clone()));
            }
            if let Some(name) = self.places.get(&parent) {
                return Some(Some(name.clone()));
            }
            at = parent;
        }
        None
    }
}
