//! What links are computed from and what they keep, beside the tree and under its lock.

use super::entry::{MEMBERS_BYTES_MAX, MemberLink};
use super::resolve::{Length, Resolving};
use super::{Archives, Drafts, Shown, Version, Watches};
use crate::options::{Exported, LinkOwners, Options};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use weft_store::Ino;
use weft_tree::{ClockMap, Mutation, Tree};

/// The state of links.
pub(crate) struct LinkState {
    /// Users whose links show anything.
    pub(crate) owners: LinkOwners,
    /// Users whose links may run code of their own.
    pub(crate) exported: Exported,
    /// User whose links may use keys, beside the super-user's.
    pub(crate) keys_of: Option<u32>,
    /// True if the way in reports opens and closes of files.
    pub(crate) is_told_of_opens: bool,
    /// Drafts of links that are written as a whole.
    pub(crate) drafts: Drafts,
    /// Links that are being resolved.
    pub(crate) resolving: Resolving,
    /// Cached entries of views that have to be read for that.
    pub(super) shown: Shown,
    /// Archives whose members are known.
    pub(super) archives: Archives,
    /// Recently used links of members of archives.
    pub(crate) members: ClockMap<Ino, MemberLink>,
    /// Links that somebody keeps what they were told of.
    pub(crate) watches: Watches,
    /// Virtual inodes that nobody held when they were looked at.
    pub(super) unheld: Unheld,
    /// Lengths of links' content, by its version.
    pub(crate) lengths: FxHashMap<Version, Length>,
}

/// Inodes that nobody held, in the order in which they were looked at, each once.
#[derive(Default)]
pub(super) struct Unheld {
    pub(super) order: VecDeque<Ino>,
    pub(super) members: FxHashSet<Ino>,
}

/// The inodes that a mutation takes a name from, or gives another one for it.
pub(crate) type Renamed = [Option<Ino>; 2];

impl LinkState {
    /// That of a volume just opened.
    pub(crate) fn new(options: &Options) -> LinkState {
        LinkState {
            owners: options.links,
            exported: options.exported,
            keys_of: options.keys.as_ref().map(|keys| keys.uid),
            is_told_of_opens: false,
            drafts: Drafts::default(),
            resolving: Resolving::default(),
            shown: Shown::default(),
            archives: Archives::default(),
            members: ClockMap::new(MEMBERS_BYTES_MAX).strictly(),
            watches: Watches::default(),
            unheld: Unheld::default(),
            lengths: FxHashMap::default(),
        }
    }

    /// Returns what [`LinkState::performed`] has to know of the tree before `mutation`.
    pub(crate) fn before(&self, tree: &Tree, mutation: &Mutation<'_>) -> Renamed {
        if self.watches.are_none() { Renamed::default() } else { super::watch::renamed_by(tree, mutation) }
    }

    /// Notes what follows from `mutation`, the operation that was performed last.
    pub(crate) fn performed(&mut self, tree: &mut Tree, mutation: &Mutation<'_>, renamed: Renamed) {
        self.watches.performed(mutation, renamed);
        if !self.archives.are_none() && tree.has_just_changed(mutation.ino()) {
            self.archives.changed(mutation.ino());
        }
        self.forget_deleted(tree);
    }

    /// Forgets what was kept of inodes that are deleted.
    pub(crate) fn forget_deleted(&mut self, tree: &mut Tree) {
        tree.deleted.drain(..).for_each(|ino| self.archives.changed(ino));
    }
}
