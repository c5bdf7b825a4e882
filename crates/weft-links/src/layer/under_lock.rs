//! The side that the vfs asks under the lock of the state.

use crate::linked_tree::LinkedTree;
use crate::state::LinkState;
use weft_store::Ino;
use weft_tree::{Attributes, Mutation, Result, Stop, Tree};
use weft_vfs::opaque::{Detail, OpaqueState};

impl LinkState {
    fn with<'a>(&'a mut self, tree: &'a mut Tree) -> LinkedTree<'a> {
        LinkedTree { tree, links: self }
    }
}

impl OpaqueState for LinkState {
    fn begin(&mut self, takes_turns: bool) {
        self.resolving.begin(takes_turns);
    }

    fn attributes(&mut self, tree: &mut Tree, ino: Ino, detail: Detail) -> Result<Attributes, Stop> {
        let mut linked = self.with(tree);
        match detail {
            Detail::Usual => linked.attributes(ino),
            Detail::Measured => linked.attributes_measured(ino),
            Detail::AtOnce => linked.attributes_at_once(ino),
            Detail::Changed => linked.attributes_after(ino),
            Detail::Closed => linked.closed_attributes(ino),
            Detail::Guarded => linked.guarded_attributes(ino),
        }
    }

    fn permission_bits(&mut self, tree: &mut Tree, ino: Ino) -> Result<u32, Stop> {
        self.with(tree).permission_bits(ino)
    }

    fn prepare(&mut self, tree: &mut Tree, ino: Ino) -> Result<(), Stop> {
        self.with(tree).prepare(ino)
    }

    fn is_directory(&mut self, tree: &mut Tree, ino: Ino) -> Result<bool, Stop> {
        self.with(tree).looks_like_directory(ino)
    }

    fn permit_definition(&mut self, tree: &mut Tree, ino: Ino) -> Result<(), Stop> {
        self.with(tree).permit_definition(ino)
    }

    fn source_path(&mut self, tree: &mut Tree, ino: Ino) -> Result<Option<Vec<u8>>, Stop> {
        self.with(tree).shown_target(ino)
    }

    fn released(&mut self, tree: &mut Tree, ino: Ino) {
        self.with(tree).let_go(ino);
    }

    fn observed(&mut self) {
        self.watches.is_wanted = true;
    }

    fn told_of_opens(&mut self) {
        self.is_told_of_opens = true;
    }

    fn follows(&self) -> bool {
        LinkState::follows(self)
    }

    fn before(&mut self, tree: &Tree, mutation: &Mutation<'_>) {
        LinkState::before(self, tree, mutation);
    }

    fn performed(&mut self, tree: &Tree, mutation: &Mutation<'_>) {
        LinkState::performed(self, tree, mutation);
    }

    fn deleted(&mut self, ino: Ino) {
        self.archives.changed(ino);
    }

    fn take_outdated(&mut self) -> Vec<Ino> {
        self.watches.take_outdated()
    }

    fn weight(&self) -> usize {
        self.members.weight()
    }
}
