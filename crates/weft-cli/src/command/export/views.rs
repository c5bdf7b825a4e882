//! Ways to directories, by which one that lies in itself is noticed.

use std::collections::HashSet;
use std::sync::Arc;
use weft_vfs::{Attributes, Ino};

/// Directories that were met. One that is no view has one name, so that it is met once.
#[derive(Default)]
pub struct Views {
    met: HashSet<Ino>,
}

/// The way from the outermost view to what a view shows; empty elsewhere.
pub type View = Option<Arc<Step>>;

/// A directory on a way.
pub struct Step {
    ino: Ino,
    above: View,
}

impl Views {
    /// The way to `directory`, which lies where `above` leads. None if it was met before.
    pub fn below(&mut self, above: Option<&View>, directory: &Attributes) -> Option<View> {
        let above = above.cloned().flatten();
        if above.is_none() && directory.computed.is_none() {
            return self.met.insert(directory.ino).then_some(None);
        }
        // Views may show a directory several times, but none within itself.
        let mut at = &above;
        while let Some(step) = at {
            if step.ino == directory.ino {
                return None;
            }
            at = &step.above;
        }
        Some(Some(Arc::new(Step { ino: directory.ino, above })))
    }
}
