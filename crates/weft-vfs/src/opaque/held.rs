//! The layer's side under the lock, as the state holds it: it is asked nothing as long as requests
//! are about other inodes.

use super::OpaqueState;
use std::mem;
use weft_store::Ino;
use weft_tree::{Mutation, Tree};

/// The layer, with what is known of it without asking.
pub(crate) struct Held {
    layer: Box<dyn OpaqueState>,
    /// True if mutations are to be told, as it said last.
    follows: bool,
    /// True if it was used since it said so.
    is_used: bool,
    /// True if it was used since it said what is outdated.
    may_have_outdated: bool,
    /// Set as long as the request that has the lock has not used it: true if that takes turns.
    begins: Option<bool>,
}

impl Held {
    pub(crate) fn new(layer: Box<dyn OpaqueState>) -> Held {
        Held { layer, follows: false, is_used: true, may_have_outdated: false, begins: None }
    }

    /// The layer, to be used.
    pub(crate) fn layer(&mut self) -> &mut dyn OpaqueState {
        (self.is_used, self.may_have_outdated) = (true, true);
        if let Some(takes_turns) = self.begins.take() {
            self.layer.begin(takes_turns);
        }
        &mut *self.layer
    }

    /// Another request has the lock, or none: what takes long stops if it `takes_turns`.
    pub(crate) fn begin(&mut self, takes_turns: bool) {
        self.begins = Some(takes_turns);
    }

    fn follows(&mut self) -> bool {
        if mem::take(&mut self.is_used) {
            self.follows = self.layer.follows();
        }
        self.follows
    }

    /// `mutation` is about to be performed.
    pub(crate) fn before(&mut self, tree: &Tree, mutation: &Mutation<'_>) {
        if self.follows() {
            self.layer().before(tree, mutation);
        }
    }

    /// `mutation` was performed.
    pub(crate) fn performed(&mut self, tree: &mut Tree, mutation: &Mutation<'_>) {
        if self.follows() {
            self.layer().performed(tree, mutation);
        }
        self.forget_deleted(tree);
    }

    /// Has the layer forget what it kept of inodes that are deleted.
    pub(crate) fn forget_deleted(&mut self, tree: &mut Tree) {
        if self.follows() {
            tree.deleted.drain(..).for_each(|ino| self.layer().deleted(ino));
        } else {
            tree.deleted.clear();
        }
    }

    /// Opaque inodes that somebody is to be told of.
    pub(crate) fn take_outdated(&mut self) -> Vec<Ino> {
        if mem::take(&mut self.may_have_outdated) { self.layer.take_outdated() } else { Vec::new() }
    }

    /// Bytes of memory that the layer takes.
    pub(crate) fn weight(&self) -> usize {
        self.layer.weight()
    }
}
