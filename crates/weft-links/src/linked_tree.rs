//! The tree together with what links are computed from, as one request has both under the lock.

use crate::state::LinkState;
use weft_tree::Tree;
use weft_vfs::State;

/// Both.
pub(crate) struct LinkedTree<'a> {
    pub(crate) tree: &'a mut Tree,
    pub(crate) links: &'a mut LinkState,
}

impl LinkedTree<'_> {
    /// Those of `state`, of a volume with links.
    pub(crate) fn of(state: &mut State) -> LinkedTree<'_> {
        let (links, tree) = state.layer().expect("the volume was opened with both sides of this layer");
        LinkedTree { tree, links }
    }
}
