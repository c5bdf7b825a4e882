//! The last names that inodes lost. No table finds them by inode, so all versions of entries are
//! read.

use rustc_hash::FxHashMap;
use weft_store::{CommitNo, Ino, NameKey, Result, Store};

/// The last name that an inode lost.
pub(super) struct LastPlace {
    /// The commit that took it.
    until: CommitNo,
    /// The directory that it was in.
    pub(super) parent: Ino,
    /// The name.
    pub(super) name: Vec<u8>,
}

/// The last names of directories, and of inodes that are asked about.
#[derive(Default)]
pub(super) struct LastNames(FxHashMap<Ino, LastPlace>);

impl LastNames {
    /// The last name that `ino` lost.
    pub(super) fn place(&self, ino: Ino) -> Option<&LastPlace> {
        self.0.get(&ino)
    }

    /// Reads up to `limit` more versions of entries, behind the one of key `after`: those of
    /// directories, and of inodes for which `is_asked` is true. Returns the key of the last one;
    /// none once there are none.
    pub(super) fn read_more(
        &mut self,
        store: &dyn Store,
        after: &NameKey,
        limit: usize,
        is_asked: impl Fn(Ino) -> bool,
    ) -> Result<Option<NameKey>> {
        let names = store.past_names(after, limit)?;
        let end = names.last().map(|name| name.key.clone());
        for name in names.into_iter().filter(|name| name.is_directory || is_asked(name.ino)) {
            let NameKey { parent, name: spelt, until, .. } = name.key;
            if self.place(name.ino).is_none_or(|known| known.until < until) {
                self.0.insert(name.ino, LastPlace { until, parent, name: spelt });
            }
        }
        Ok(end)
    }
}
