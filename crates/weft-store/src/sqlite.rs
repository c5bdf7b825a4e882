//! The embedded store: metadata in SQLite, blocks in segment files or in the same database.

use crate::{Result, Store, VolumeOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An open volume: exclusively held until dropped.
pub struct Volume {
    /// Its rows and blocks.
    pub store: Arc<dyn Store>,
    /// Where its intent log lies.
    pub log_path: PathBuf,
}

/// Makes a volume at `path` (nothing may be there yet but an empty directory): a directory for
/// `BlockHome::Segments`, one file for `BlockHome::Database`. It has a root directory owned by
/// `uid`:`gid` with permissions 0755, made by commit 1.
pub fn create(_path: &Path, _options: &VolumeOptions, _uid: u32, _gid: u32) -> Result<()> {
    todo!()
}

/// Opens the volume at `path` and holds it. Errors: `Locked`, `Unusable` (no such path, not a volume, newer
/// format, no permission).
pub fn open(_path: &Path) -> Result<Volume> {
    todo!()
}
