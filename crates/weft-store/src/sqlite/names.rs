//! The names of an open volume's files, looked at before anything more is called durable.
//!
//! All files stay open, so a volume that is removed, moved or moved to another file system under
//! its daemon would take whatever is written, and lose it. A look costs a stat(2) for each file.

use super::layout::Layout;
use crate::error::{Error, Result};
use crate::files::identity;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Device and number of an inode.
type Identity = (u64, u64);

/// Files that must stay where they are.
pub(super) struct Names {
    volume: PathBuf,
    files: Vec<(PathBuf, OnceLock<Identity>)>,
}

impl Names {
    /// Makes the names of the volume of `layout`. The database and the segments count as they are
    /// now, the write-ahead log from the first look on. A volume goes on without its intent log.
    pub(super) fn of(layout: &Layout) -> Names {
        let now = |path: &PathBuf| (path.clone(), identity(path).map_or_else(|_| OnceLock::new(), OnceLock::from));
        let mut files = vec![now(&layout.database)];
        files.extend(layout.segments.as_ref().map(now));
        files.push((layout.wal(), OnceLock::new()));
        Names { volume: layout.volume.clone(), files }
    }

    /// Makes no names: nothing is written.
    pub(super) fn none() -> Names {
        Names { volume: PathBuf::new(), files: Vec::new() }
    }

    /// Fails if a file has lost its name, or another one has it.
    pub(super) fn check(&self) -> Result<()> {
        for (path, known) in &self.files {
            let found = identity(path).ok();
            let wanted = match found {
                Some(found) => Some(*known.get_or_init(|| found)),
                None => known.get().copied(),
            };
            if found != wanted {
                let what = if found.is_some() { "another file has its name" } else { "it was removed or moved" };
                return Err(Error::Unusable(format!(
                    "{} is not the file any more that the volume {} was opened with ({what}): nothing written since is \
                     safe; copy what is needed from the mount, or move the volume back to where it was",
                    path.display(),
                    self.volume.display()
                )));
            }
        }
        Ok(())
    }
}
