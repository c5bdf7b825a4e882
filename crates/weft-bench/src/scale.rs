//! Size of an experiment's work.

use crate::arguments::Arguments;
use std::path::PathBuf;

/// Size of an experiment's work.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    /// Files in a directory.
    pub(crate) count: usize,
    /// MiB of a large file.
    pub(crate) size: usize,
    /// An archive with a source tree.
    pub(crate) tar: Option<PathBuf>,
    /// A source tree to pack where there is no archive.
    pub(crate) tree: Option<PathBuf>,
}

impl Scale {
    pub(crate) fn new(arguments: &Arguments, count: usize) -> Scale {
        Scale { count, size: arguments.size, tar: arguments.tar.clone(), tree: arguments.tree.clone() }
    }
}
