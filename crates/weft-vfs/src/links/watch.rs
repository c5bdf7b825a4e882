//! Which links may give something else once something in the volume changes: for protocols whose clients keep what they were told.
//!
//! A link is watched from when its attributes are told until something changes that they, or its content, follow from: a file that it reads, a name on
//! the way there, or rights. Then it is outdated, once, until it is told again. As long as nobody has asked to be told, nothing is watched.

use crate::mutation::Mutation;
use crate::observe::Change;
use crate::volume::Vfs;
use rustc_hash::FxHashMap;
use weft_store::{Ino, Name};

/// Links watched at once; if there are more, all are outdated.
const WATCHED_MAX: usize = 1 << 16;

/// What a link follows from, and what of it.
pub(crate) type Cause = (Ino, Of);

/// What of an inode.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Of {
    /// Its content and attributes.
    Itself,
    /// What this name in it names.
    Name(Name),
    /// Which names there are in it.
    Names,
}

/// What is watched.
#[derive(Default)]
pub(crate) struct Watches {
    pub(crate) is_wanted: bool,
    /// What each link follows from.
    links: FxHashMap<Ino, Vec<Cause>>,
    /// The links that follow from each.
    dependents: FxHashMap<Cause, Vec<Ino>>,
    /// Links that somebody is to be told of.
    outdated: Vec<Ino>,
}

impl Watches {
    /// Watches `link`, which follows from `causes`.
    pub(super) fn watch(&mut self, link: Ino, causes: &[Cause]) {
        if !self.is_wanted || self.links.get(&link).is_some_and(|known| known == causes) {
            return;
        }
        self.forget(link);
        if self.links.len() >= WATCHED_MAX {
            self.dependents.clear();
            self.outdated.extend(self.links.drain().map(|(link, _)| link));
        }
        for cause in causes {
            let dependents = self.dependents.entry(cause.clone()).or_default();
            if !dependents.contains(&link) {
                dependents.push(link);
            }
        }
        self.links.insert(link, causes.to_vec());
    }

    fn forget(&mut self, link: Ino) {
        for cause in self.links.remove(&link).unwrap_or_default() {
            if let Some(dependents) = self.dependents.get_mut(&cause) {
                dependents.retain(|other| *other != link);
                if dependents.is_empty() {
                    self.dependents.remove(&cause);
                }
            }
        }
    }

    /// Notes that `mutation` was applied.
    pub(crate) fn applied(&mut self, mutation: &Mutation<'_>) {
        if self.links.is_empty() {
            return;
        }
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
    pub(super) fn changed(&mut self, cause: Cause) {
        for link in self.dependents.get(&cause).cloned().unwrap_or_default() {
            self.forget(link);
            self.outdated.push(link);
        }
    }

    /// Whether somebody will be told when `link` is outdated.
    fn is_watched(&self, link: Ino) -> bool {
        self.links.contains_key(&link)
    }

    /// The links that somebody is to be told of, if there are any.
    pub(crate) fn take_outdated(&mut self) -> Vec<Ino> {
        std::mem::take(&mut self.outdated)
    }
}

impl Vfs {
    /// Whether what was told of link `ino` last is still so, and somebody will be told when it is not.
    pub fn is_watched(&self, ino: Ino) -> bool {
        self.state.lock().watches.is_watched(ino)
    }

    /// Tells those who asked of links that are outdated.
    pub(crate) fn announce_outdated(&self, links: Vec<Ino>) {
        if !links.is_empty() {
            let seen = |ino| self.pushed_onto(ino).unwrap_or(ino);
            self.announce_to_all(links.into_iter().map(|ino| Change::Link { ino: seen(ino) }));
        }
    }
}
