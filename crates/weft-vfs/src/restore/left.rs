//! What a restoration leaves as it is, though it was not there then: files in place of those whose
//! content is forgotten, and what is excluded from history, as nothing could bring either back.
//!
//! It is put into the tree of then as it is now, before anything else is planned.

use super::subtree::Subtree;
use crate::exclusions::Exclusion;
use rustc_hash::{FxHashMap, FxHashSet};
use weft_store::{Ino, Kind, Name, NameRow};

/// The trees of then, without forgotten files that are not there, and of now.
pub(super) struct Leaving<'a> {
    past: &'a mut Subtree,
    present: &'a Subtree,
    /// The paths of directories of now from the top of the tree.
    paths: FxHashMap<Ino, Vec<u8>>,
    /// Names in the path of the top.
    top: Vec<&'a [u8]>,
    /// Patterns of what is excluded.
    excluded: Vec<Exclusion>,
    /// Inodes that were put into the tree of then here.
    left: FxHashSet<Ino>,
}

impl<'a> Leaving<'a> {
    /// Of the tree whose top has the path `top`. What is excluded is not told apart where the top
    /// is excluded itself: it was asked for.
    pub(super) fn new(
        (past, present): (&'a mut Subtree, &'a Subtree),
        top: &'a [Name],
        excluded: Vec<Exclusion>,
    ) -> Leaving<'a> {
        let top = top.iter().map(Name::as_bytes).collect::<Vec<_>>();
        let is_asked_for = excluded.iter().any(|exclusion| exclusion.is_of(&top));
        let excluded = if is_asked_for { Vec::new() } else { excluded };
        let paths = if excluded.is_empty() { FxHashMap::default() } else { present.paths() };
        Leaving { past, paths, present, top, excluded, left: FxHashSet::default() }
    }

    /// Leaves what is in place of `forgotten` files, by directory and name, and what is excluded.
    pub(super) fn leave(&mut self, forgotten: &FxHashSet<(Ino, Name)>) {
        if forgotten.is_empty() && self.excluded.is_empty() {
            return;
        }
        let kept = self.past.order.clone().into_iter().filter(|ino| self.present.names.contains_key(ino));
        for directory in kept.collect::<Vec<_>>() {
            let then = self.past.names_of(directory).iter().map(|entry| entry.name.clone()).collect::<FxHashSet<_>>();
            for entry in self.present.names_of(directory).iter().filter(|entry| !then.contains(&entry.name)) {
                let is_in_place = forgotten.contains(&(directory, entry.name.clone())) && entry.kind != Kind::Directory;
                if is_in_place || self.is_excluded(entry) {
                    self.leave_all(entry);
                } else if !self.excluded.is_empty() {
                    self.leave_excluded_below(entry);
                }
            }
        }
    }

    fn is_excluded(&self, entry: &NameRow) -> bool {
        if self.excluded.is_empty() {
            return false;
        }
        let above = self.paths.get(&entry.parent).map_or(&b""[..], Vec::as_slice);
        let above = above.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        let path = self.top.iter().copied().chain(above).chain([entry.name.as_bytes()]).collect::<Vec<_>>();
        self.excluded.iter().any(|exclusion| exclusion.is_of(&path))
    }

    /// Leaves what `entry` names, with all in it. What was elsewhere then goes back there.
    fn leave_all(&mut self, entry: &NameRow) {
        let mut waiting = vec![entry];
        while let Some(entry) = waiting.pop() {
            if self.take(entry) {
                waiting.extend(self.present.names_of(entry.ino));
            }
        }
    }

    /// Leaves what is excluded of all in the directory that `entry` names, and the directories on
    /// the way to it.
    fn leave_excluded_below(&mut self, entry: &NameRow) {
        // Directories on the way from this one, each with entries that are to be looked at.
        let mut way = vec![(entry, self.present.names_of(entry.ino).iter())];
        while let Some((_, entries)) = way.last_mut() {
            let Some(next) = entries.next() else {
                way.pop();
                continue;
            };
            if !self.is_excluded(next) {
                way.push((next, self.present.names_of(next.ino).iter()));
                continue;
            }
            // One on the way that was elsewhere then goes back there, with all in it.
            let is_elsewhere = |ino: &Ino| self.past.inodes.contains_key(ino) && !self.left.contains(ino);
            if way.iter().any(|(directory, _)| is_elsewhere(&directory.ino)) {
                continue;
            }
            for (directory, _) in &way {
                if !self.left.contains(&directory.ino) {
                    self.take(directory);
                }
            }
            self.leave_all(next);
        }
    }

    /// Puts `entry`, and the inode that it names, into the tree of then; false if that inode was
    /// elsewhere then.
    fn take(&mut self, entry: &NameRow) -> bool {
        let Some(row) = self.present.inodes.get(&entry.ino) else { return false };
        let is_new = !self.past.inodes.contains_key(&entry.ino);
        if !is_new && !self.left.contains(&entry.ino) {
            return false;
        }
        let Some(names) = self.past.names.get_mut(&entry.parent) else { return false };
        names.push(entry.clone());
        self.past.entries += 1;
        *self.past.counts.entry(entry.ino).or_default() += 1;
        if is_new {
            if row.0.kind == Kind::Directory {
                self.past.names.insert(entry.ino, Vec::new());
            }
            self.past.inodes.insert(entry.ino, row.clone());
            self.past.order.push(entry.ino);
            self.left.insert(entry.ino);
        }
        is_new
    }
}
