//! Paths to directories, by which a directory that lies in itself is detected.

use std::collections::HashSet;
use std::sync::Arc;
use weft_vfs::{Attributes, Ino};

/// Directories that were met. A directory outside of views has one name, so that it is met once.
#[derive(Default)]
pub struct Views {
    met: HashSet<Ino>,
}

/// Path from the outermost view to a directory that it shows; empty elsewhere.
pub type View = Option<Arc<Step>>;

/// A directory on such a path.
pub struct Step {
    ino: Ino,
    above: View,
}

impl Views {
    /// Returns the path to `directory` below `above`; none if it was met before.
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
