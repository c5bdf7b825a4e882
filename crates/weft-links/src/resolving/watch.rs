//! Which links may give something else once something in the volume changes: for protocols whose
//! clients keep what they were told.
//!
//! A link is watched from when its attributes are told, or its content is read, until something
//! changes that they follow from: a file that it reads, a name on the way there, or rights. Then it
//! is outdated, once, until it is told or read again: a program that has it open reads on without
//! asking for attributes. As long as nobody has asked to be told, nothing is watched.

use crate::layer::Links;
use rustc_hash::{FxHashMap, FxHashSet};
use weft_store::{Ino, Name};
use weft_tree::{Mutation, NameKey, Tree};

/// The inodes that a mutation takes a name from, or gives another one for it.
pub(crate) type Renamed = [Option<Ino>; 2];

/// Causes of all links watched at once; if there are more, all links are outdated. One change may
/// outdate all of them under the lock of all requests.
const CAUSES_MAX: usize = 1 << 18;

/// A cause that a link depends on: an inode, and an aspect of it.
pub(crate) type Cause = (Ino, Of);

/// An aspect of an inode.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Of {
    /// Its content and attributes.
    Itself,
    /// The inode that this name in it names.
    Name(Name),
    /// The set of names in it.
    Names,
}

/// The watched links and their causes.
#[derive(Default)]
pub(crate) struct Watches {
    pub(crate) is_wanted: bool,
    /// Causes of each link.
    links: FxHashMap<Ino, Vec<Cause>>,
    /// Causes in `links`, in all.
    causes: usize,
    /// The links that follow from each.
    dependents: FxHashMap<Cause, FxHashSet<Ino>>,
    /// Links that somebody is to be told of.
    outdated: Vec<Ino>,
}

impl Watches {
    /// Watches `link`, which follows from `causes`.
    pub(crate) fn watch(&mut self, link: Ino, causes: &[Cause]) {
        if !self.is_wanted || self.links.get(&link).is_some_and(|known| known == causes) {
            return;
        }
        self.forget(link);
        if self.causes + causes.len() > CAUSES_MAX {
            self.causes = 0;
            self.dependents.clear();
            self.outdated.extend(self.links.drain().map(|(link, _)| link));
        }
        for cause in causes {
            self.dependents.entry(cause.clone()).or_default().insert(link);
        }
        self.causes += causes.len();
        self.links.insert(link, causes.to_vec());
    }

    fn forget(&mut self, link: Ino) {
        let causes = self.links.remove(&link).unwrap_or_default();
        self.causes -= causes.len();
        for cause in causes {
            if let Some(dependents) = self.dependents.get_mut(&cause) {
                dependents.remove(&link);
                if dependents.is_empty() {
                    self.dependents.remove(&cause);
                }
            }
        }
    }

    /// True if nobody is to be told of any link.
    pub(crate) fn are_none(&self) -> bool {
        self.links.is_empty()
    }

    /// Notes that `mutation` was performed, and took names from these inodes.
    pub(crate) fn performed(&mut self, mutation: &Mutation<'_>, renamed: Renamed) {
        if self.are_none() {
            return;
        }
        self.applied(mutation);
        renamed.into_iter().flatten().for_each(|ino| self.changed((ino, Of::Itself)));
    }

    fn applied(&mut self, mutation: &Mutation<'_>) {
        match mutation {
            Mutation::Make { parent, name, .. } => {
                name.iter().for_each(|(name, _)| self.named(*parent, name));
            }
            Mutation::Link { ino, parent, name, .. } => {
                self.changed((*ino, Of::Itself));
                self.named(*parent, name);
            }
            Mutation::Remove { parent, name, .. } => self.named(*parent, name),
            Mutation::Rename { from, to, .. } | Mutation::Whiteout { from, to, .. } => {
                self.named(from.0, &from.1);
                self.named(to.0, &to.1);
            }
            other => self.changed((other.ino(), Of::Itself)),
        }
    }

    /// Notes that `name` in `directory` names something else.
    fn named(&mut self, directory: Ino, name: &Name) {
        self.changed((directory, Of::Name(name.clone())));
        self.changed((directory, Of::Names));
    }

    /// Notes that `cause` is not what it was.
    pub(crate) fn changed(&mut self, cause: Cause) {
        for link in self.dependents.remove(&cause).unwrap_or_default() {
            self.forget(link);
            self.outdated.push(link);
        }
    }

    /// True if observers will be notified when `link` is outdated.
    pub(crate) fn is_watched(&self, link: Ino) -> bool {
        self.links.contains_key(&link)
    }

    /// The links that somebody is to be told of, if there are any.
    pub(crate) fn take_outdated(&mut self) -> Vec<Ino> {
        std::mem::take(&mut self.outdated)
    }
}

/// The inodes that lose a name by `mutation`, or get another one for it: when their attributes
/// changed is an attribute, too.
pub(crate) fn renamed_by(tree: &Tree, mutation: &Mutation<'_>) -> Renamed {
    let named = |parent: Ino, name: &Name| tree.names.peek(&NameKey(parent, name.as_bytes()))?.entry;
    let (one, other) = match mutation {
        Mutation::Remove { parent, name, .. } => (named(*parent, name), None),
        Mutation::Rename { from, to, .. } | Mutation::Whiteout { from, to, .. } => {
            (named(from.0, &from.1), named(to.0, &to.1))
        }
        Mutation::Make { .. }
        | Mutation::Link { .. }
        | Mutation::Attributes { .. }
        | Mutation::Write { .. }
        | Mutation::Zero { .. }
        | Mutation::Share { .. }
        | Mutation::Replace { .. }
        | Mutation::Xattr { .. } => (None, None),
    };
    [one, other].map(|entry| entry.map(|entry| entry.ino))
}

impl Links<'_> {
    /// True if the last reported state of link `ino` still holds, and observers will be notified
    /// when it no longer does.
    pub fn is_watched(&self, ino: Ino) -> bool {
        self.locked(|state| state.links.watches.is_watched(ino))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many causes, the first of which all links have.
    fn causes(count: u64) -> Vec<Cause> {
        (0..count).map(|number| (Ino(number), Of::Itself)).collect()
    }

    #[test]
    fn a_change_outdates_what_follows_from_it_once() {
        let mut watches = Watches { is_wanted: true, ..Watches::default() };
        watches.watch(Ino(101), &causes(3));
        watches.watch(Ino(102), &causes(2));
        watches.watch(Ino(102), &causes(2));
        assert_eq!(watches.causes, 5);
        watches.changed((Ino(2), Of::Itself));
        watches.changed((Ino(2), Of::Itself));
        assert_eq!(watches.take_outdated(), [Ino(101)]);
        watches.changed((Ino(0), Of::Itself));
        assert_eq!(watches.take_outdated(), [Ino(102)]);
        assert!(watches.causes == 0 && watches.links.is_empty() && watches.dependents.is_empty());
    }

    #[test]
    fn what_is_watched_is_bounded_by_all_causes_together() {
        let mut watches = Watches { is_wanted: true, ..Watches::default() };
        let each = causes(CAUSES_MAX as u64 / 4);
        (1..=4).for_each(|link| watches.watch(Ino(link), &each));
        assert!(watches.take_outdated().is_empty());
        watches.watch(Ino(5), &each);
        assert_eq!((watches.take_outdated().len(), watches.links.len(), watches.causes), (4, 1, each.len()));
    }
}
