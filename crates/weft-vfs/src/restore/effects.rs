//! The effect of a restoration on each name, for people.
//!
//! Names are told apart by the directory that they are in, as the plan does, not by their paths:
//! what lies in a directory that moves back is not moved itself.

use super::numbers::{Mapped, Origin};
use super::report::{Effect, RestoreReport};
use super::subtree::Subtree;
use rustc_hash::{FxHashMap, FxHashSet};
use weft_store::{Ino, InodeRow, Name, NameRow};
use weft_tree::{Restoration, RestoredContent, RestoredInode};

/// The trees that a restoration is planned by.
pub(super) struct Trees<'a> {
    pub(super) past: &'a Subtree,
    pub(super) present: &'a Subtree,
    pub(super) mapped: &'a Mapped,
    /// Files of then without their content, which are in the report already.
    pub(super) forgotten: &'a FxHashSet<Ino>,
}

/// A directory, and a name in it.
type Place<'a> = (Ino, &'a Name);

/// Adds the effect of `restoration` on each name to `report`.
pub(super) fn add(trees: &Trees<'_>, restoration: &Restoration, report: &mut RestoreReport) {
    let top = restoration.parent.as_ref().map(|parent| (parent.row.ino, &parent.name));
    let changed = restoration.inodes.iter().filter(|inode| is_changed(inode)).map(|inode| inode.row.ino);
    let mut effects = Effects {
        changed: changed.collect(),
        coming: restoration.added.iter().map(place).collect(),
        going: Going::of(trees, restoration, top),
        report,
    };
    effects.add_names_of_then(trees, top);
    let Effects { coming, going, report, .. } = effects;
    going.add_rest(&coming, report);
    report.paths.sort_by(|one, other| one.path.cmp(&other.path));
}

fn place(row: &NameRow) -> Place<'_> {
    (row.parent, &row.name)
}

/// True if an inode that is there gets other content or attributes. Names that it gets or loses are
/// effects of their own.
fn is_changed(inode: &RestoredInode) -> bool {
    let Some(now) = &inode.present else { return false };
    let then =
        InodeRow { atime: now.atime, ctime: now.ctime, nlink: now.nlink, parent: now.parent, ..inode.row.clone() };
    then != *now || !matches!(inode.content, RestoredContent::Same) || inode.xattrs.is_some()
}

struct Effects<'a> {
    /// Inodes that get other content or attributes.
    changed: FxHashSet<Ino>,
    /// Names that come.
    coming: FxHashSet<Place<'a>>,
    going: Going<'a>,
    report: &'a mut RestoreReport,
}

impl Effects<'_> {
    /// Adds the effects on names that are there afterwards.
    fn add_names_of_then(&mut self, trees: &Trees<'_>, top: Option<Place<'_>>) {
        let Some(first) = trees.past.order.first() else { return };
        self.add_name(trees, (top, *first), &Vec::new());
        let paths = trees.past.paths();
        for directory in &trees.past.order {
            let parent = trees.mapped.of(*directory).0;
            for entry in trees.past.names_of(*directory) {
                let path = below(&paths[directory], &entry.name);
                self.add_name(trees, (Some((parent, &entry.name)), entry.ino), &path);
            }
        }
    }

    /// Adds the effect on the name of inode `ino` of then at `place`, which has `path`.
    fn add_name(&mut self, trees: &Trees<'_>, (place, ino): (Option<Place<'_>>, Ino), path: &Vec<u8>) {
        let (number, origin) = trees.mapped.of(ino);
        let is_changed = self.changed.contains(&number);
        let Some(place) = place.filter(|place| self.coming.contains(place)) else {
            match () {
                () if trees.forgotten.contains(&ino) => {}
                () if is_changed => self.report.add(Effect::Changed, Some(path), None),
                () => self.report.unchanged += 1,
            }
            return;
        };
        let from = if origin == Origin::Kept { self.going.take(number) } else { None };
        let effect = match &from {
            Some(_) if !is_changed => Effect::Moved,
            None if !self.going.names.contains_key(&place) => Effect::Back,
            // Something else has the name now.
            Some(_) | None => Effect::Changed,
        };
        self.report.add(effect, Some(path), from);
    }
}

/// Names that go.
struct Going<'a> {
    /// The path of each, if it is to be told.
    names: FxHashMap<Place<'a>, Vec<u8>>,
    /// Names of inodes that are there afterwards, too.
    moving: FxHashMap<Ino, Vec<Place<'a>>>,
    moved: FxHashSet<Place<'a>>,
}

impl<'a> Going<'a> {
    fn of(trees: &Trees<'_>, restoration: &'a Restoration, top: Option<Place<'_>>) -> Going<'a> {
        let paths = if restoration.removed.is_empty() { FxHashMap::default() } else { trees.present.paths() };
        let mut removed = restoration.removed.iter().collect::<Vec<_>>();
        removed.sort_unstable_by(|one, other| place(other).cmp(&place(one)));
        let (mut names, mut moving) = (FxHashMap::default(), FxHashMap::<Ino, Vec<Place<'a>>>::default());
        for row in removed {
            let is_top = top == Some(place(row));
            names.insert(place(row), if is_top { Vec::new() } else { below(&paths[&row.parent], &row.name) });
            if trees.mapped.keeps(row.ino) {
                moving.entry(row.ino).or_default().push(place(row));
            }
        }
        Going { names, moving, moved: FxHashSet::default() }
    }

    /// Takes a name of inode `ino`, which gets another one, and returns its path.
    fn take(&mut self, ino: Ino) -> Option<Vec<u8>> {
        let from = self.moving.get_mut(&ino)?.pop()?;
        self.moved.insert(from);
        self.names.get(&from).cloned()
    }

    /// Adds the names that nothing has afterwards.
    fn add_rest(self, coming: &FxHashSet<Place<'_>>, report: &mut RestoreReport) {
        let rest = self.names.iter().filter(|(place, _)| !self.moved.contains(*place) && !coming.contains(*place));
        let mut rest = rest.map(|(_, path)| path).collect::<Vec<_>>();
        rest.sort_unstable();
        rest.into_iter().for_each(|path| report.add(Effect::Removed, Some(path), None));
    }
}

/// The path of `name` in the directory at `above`.
fn below(above: &[u8], name: &Name) -> Vec<u8> {
    [above, b"/", name.as_bytes()].concat()
}
