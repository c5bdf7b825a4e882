//! Names that inodes have and had, up to the root.
//!
//! No table finds the names that an inode lost. So they are collected level by level: those of
//! files from all versions of entries, then those of the directories that files were in, and so on.
//! What is collected takes a bounded memory. A path that is not known whole is like no pattern.

use rustc_hash::{FxHashMap, FxHashSet};
use weft_store::Ino;

/// Memory for names.
const BYTES_MAX: usize = 16 << 20;

/// Memory for an inode, or for a name beside its bytes.
const ENTRY_BYTES: usize = 64;

/// Names of an inode, at most: of one with more nobody knows all paths.
pub(super) const NAMES_MAX: usize = 16;

/// Names that are looked at for one file: versions of entries of different times may be a circle.
const STEPS_MAX: usize = 4096;

/// An entry of a directory.
type Place = (Ino, Box<[u8]>);

/// Names of files, and of directories that they are or were in.
#[derive(Default)]
pub(super) struct Places {
    /// None of those with too many names.
    known: FxHashMap<Ino, Option<Vec<Place>>>,
    /// Inodes of the level that is being collected.
    level: FxHashSet<Ino>,
    bytes: usize,
}

impl Places {
    /// Begins to collect the names of `files`.
    pub(super) fn of(files: &[Ino]) -> Places {
        Places { level: files.iter().copied().collect(), ..Places::default() }
    }

    /// Returns the inodes whose names are being collected.
    pub(super) fn level(&self) -> impl Iterator<Item = Ino> {
        self.level.iter().copied()
    }

    /// Adds a name that `ino` has or had, if that is being collected.
    pub(super) fn add(&mut self, ino: Ino, parent: Ino, name: &[u8]) {
        if !self.level.contains(&ino) {
            return;
        }
        let places = self.known.entry(ino).or_insert_with(|| Some(Vec::new()));
        let Some(all) =
            places.as_mut().filter(|all| !all.iter().any(|(above, own)| (*above, &**own) == (parent, name)))
        else {
            return;
        };
        self.bytes += ENTRY_BYTES + name.len();
        if all.len() >= NAMES_MAX || self.bytes > BYTES_MAX {
            *places = None;
        } else {
            all.push((parent, name.into()));
        }
    }

    /// Goes on with the directories that were found. False if the names of all are known.
    pub(super) fn next_level(&mut self) -> bool {
        let below = std::mem::take(&mut self.level);
        let places = below.iter().filter_map(|ino| self.known.get(ino)?.as_ref()).flatten();
        let above = places.map(|(parent, _)| *parent).filter(|ino| *ino != Ino::ROOT && !self.known.contains_key(ino));
        self.level = above.collect();
        // Those without a name are not asked about again.
        self.level.iter().for_each(|ino| drop(self.known.insert(*ino, Some(Vec::new()))));
        self.bytes += self.level.len() * ENTRY_BYTES;
        self.bytes <= BYTES_MAX && !self.level.is_empty()
    }

    /// True if all paths that `ino` has or may have had are known, and `is_excluded` of each: the
    /// names from the root.
    pub(super) fn all_are(&self, ino: Ino, is_excluded: &dyn Fn(&[&[u8]]) -> bool) -> bool {
        let mut steps = 0;
        // Names that are left to look at, each with the names below it.
        let mut left = vec![(ino, Vec::new())];
        while let Some((ino, below)) = left.pop() {
            let Some(Some(places)) = self.known.get(&ino) else { return false };
            steps += places.len().max(1);
            if places.is_empty() || steps > STEPS_MAX {
                return false;
            }
            for (parent, name) in places {
                let path = std::iter::once(&**name).chain(below.iter().copied()).collect::<Vec<_>>();
                if *parent != Ino::ROOT {
                    left.push((*parent, path));
                } else if !is_excluded(&path) {
                    return false;
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of inode 20, collected from entries: inode, directory, name.
    fn collected(entries: &[(u64, u64, &str)]) -> Places {
        let mut places = Places::of(&[Ino(20)]);
        loop {
            for (ino, parent, name) in entries {
                places.add(Ino(*ino), Ino(*parent), name.as_bytes());
            }
            if !places.next_level() {
                return places;
            }
        }
    }

    fn is_build(path: &[&[u8]]) -> bool {
        path.contains(&&b"target"[..])
    }

    #[test]
    fn a_file_is_excluded_if_it_was_in_all_of_its_places() {
        let root = Ino::ROOT.0;
        let inside = [(20, 30, "x"), (30, 31, "deep"), (31, root, "target"), (99, root, "x")];
        assert!(collected(&inside).all_are(Ino(20), &is_build));
        for other in [(20, root, "x"), (20, 40, "x"), (31, root, "src"), (30, root, "deep"), (30, 30, "round")] {
            let entries = inside.into_iter().chain([other]).collect::<Vec<_>>();
            assert!(!collected(&entries).all_are(Ino(20), &is_build), "{other:?}");
        }
        let twice = inside.into_iter().chain([(20, 31, "y"), (30, 31, "deeper")]).collect::<Vec<_>>();
        assert!(collected(&twice).all_are(Ino(20), &is_build));
        assert!(!collected(&[]).all_are(Ino(20), &is_build));
    }

    #[test]
    fn what_has_too_many_names_is_left_alone() {
        let names = (0..=NAMES_MAX).map(|number| format!("target{number}")).collect::<Vec<_>>();
        let entries = names.iter().map(|name| (20, Ino::ROOT.0, &name[..])).collect::<Vec<_>>();
        assert!(collected(&entries[1..]).all_are(Ino(20), &|_| true));
        assert!(!collected(&entries).all_are(Ino(20), &|_| true));
    }
}
