//! What links are computed from and what they keep, beside the tree and under its lock.

use crate::Version;
use crate::directories::entry::{MEMBERS_BYTES_MAX, MemberLink};
use crate::directories::members::Archives;
use crate::directories::shown::Shown;
use crate::options::LinkOptions;
use crate::resolving::Length;
use crate::resolving::resolve::Resolving;
use crate::resolving::watch::{Renamed, Watches, renamed_by};
use crate::writing::drafts::Drafts;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::sync::Arc;
use weft_store::Ino;
use weft_tree::{ClockMap, Mutation, Tree};

/// The state of links.
pub(crate) struct LinkState {
    /// Whose links work, and what they may do.
    pub(crate) options: Arc<LinkOptions>,
    /// True if the way in reports opens and closes of files.
    pub(crate) is_told_of_opens: bool,
    /// Drafts of links that are written as a whole.
    pub(crate) drafts: Drafts,
    /// Links that are being resolved.
    pub(crate) resolving: Resolving,
    /// Cached entries of views that have to be read for that.
    pub(crate) shown: Shown,
    /// Archives whose members are known.
    pub(crate) archives: Archives,
    /// Recently used links of members of archives.
    pub(crate) members: ClockMap<Ino, MemberLink>,
    /// Links that somebody keeps what they were told of.
    pub(crate) watches: Watches,
    /// Virtual inodes that nobody held when they were looked at.
    pub(crate) unheld: Unheld,
    /// The inodes that lose a name, or get another one, by the mutation that is performed.
    renamed: Renamed,
    /// Lengths of links' content, by its version.
    pub(crate) lengths: FxHashMap<Version, Length>,
}

/// Inodes that nobody held, in the order in which they were looked at, each once.
#[derive(Default)]
pub(crate) struct Unheld {
    pub(crate) order: VecDeque<Ino>,
    pub(crate) members: FxHashSet<Ino>,
}

impl LinkState {
    /// That of a volume just opened.
    pub(crate) fn new(options: Arc<LinkOptions>) -> LinkState {
        LinkState {
            options,
            is_told_of_opens: false,
            drafts: Drafts::default(),
            resolving: Resolving::default(),
            shown: Shown::default(),
            archives: Archives::default(),
            members: ClockMap::new(MEMBERS_BYTES_MAX).strictly(),
            watches: Watches::default(),
            unheld: Unheld::default(),
            renamed: Renamed::default(),
            lengths: FxHashMap::default(),
        }
    }

    /// True if something follows from mutations.
    pub(crate) fn follows(&self) -> bool {
        !(self.watches.are_none() && self.archives.are_none())
    }

    /// Notes what [`LinkState::performed`] has to know of the tree before `mutation`.
    pub(crate) fn before(&mut self, tree: &Tree, mutation: &Mutation<'_>) {
        self.renamed = if self.watches.are_none() { Renamed::default() } else { renamed_by(tree, mutation) };
    }

    /// Notes what follows from `mutation`, the operation that was performed last.
    pub(crate) fn performed(&mut self, tree: &Tree, mutation: &Mutation<'_>) {
        self.watches.performed(mutation, std::mem::take(&mut self.renamed));
        if !self.archives.are_none() && tree.has_just_changed(mutation.ino()) {
            self.archives.changed(mutation.ino());
        }
    }
}
