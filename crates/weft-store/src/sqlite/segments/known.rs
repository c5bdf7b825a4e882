//! The names of segment files, looked at before anything more is called durable.
//!
//! A file that was moved away takes what is written as long as it is open, and lasts until then.
//! One that has its name instead is not the volume's, whatever it holds: what is written there, or
//! given back, may be somebody else's. While no name in the directory changes, which its time of
//! change tells, one stat(2) is enough.

use crate::error::{Error, Result};
use crate::files::identity;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Device and number of an inode.
type Identity = (u64, u64);

/// Files that must stay where they are.
#[derive(Debug, Default)]
pub(super) struct Known {
    files: Mutex<BTreeMap<u32, Identity>>,
    /// The directory's time of change before all were found.
    looked: Mutex<Option<(i64, i64)>>,
}

impl Known {
    /// Segment `id` is the file of these attributes.
    pub(super) fn find(&self, id: u32, file: &Metadata) {
        self.files.lock().insert(id, (file.dev(), file.ino()));
    }

    /// Segment `id` was opened, at `path`, as `file`. Fails if it is another one than was found.
    pub(super) fn open(&self, id: u32, file: &File, path: &Path) -> Result<()> {
        let metadata = file.metadata();
        let metadata = metadata.map_err(|source| Error::Io { what: "cannot look at", path: path.into(), source })?;
        let identity = (metadata.dev(), metadata.ino());
        let known = *self.files.lock().entry(id).or_insert(identity);
        if known == identity { Ok(()) } else { Err(lost(path, true)) }
    }

    /// Segment `id` will be deleted.
    pub(super) fn forget(&self, id: u32) {
        self.files.lock().remove(&id);
    }

    /// Fails if one of the files in `directory`, whose paths `path` tells, is not where it was.
    pub(super) fn check(&self, directory: &Path, all: bool, path: impl Fn(u32) -> PathBuf) -> Result<()> {
        let changed = directory.metadata().ok().map(|metadata| (metadata.ctime(), metadata.ctime_nsec()));
        if !all && changed.is_some() && *self.looked.lock() == changed {
            return Ok(());
        }
        let files = self.files.lock().clone();
        for (id, wanted) in files {
            let found = identity(&path(id)).ok();
            if found == Some(wanted) {
                continue;
            }
            // It may have been deleted, or made again, meanwhile.
            if self.files.lock().get(&id) == Some(&wanted) {
                return Err(lost(&path(id), found.is_some()));
            }
        }
        *self.looked.lock() = changed;
        Ok(())
    }
}

fn lost(path: &Path, is_replaced: bool) -> Error {
    let what = if is_replaced { "another file has its name" } else { "it was removed or moved" };
    Error::Unusable(format!(
        "segment file {} is not where it was when the volume was opened ({what}): what is in it, and what is written \
         since, is not safe; move it back to where it was, or copy what is needed from the mount",
        path.display()
    ))
}
