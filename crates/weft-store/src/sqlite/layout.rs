//! Which files make up a volume.

use crate::error::{Error, Result};
use crate::store::{BlockHome, Space};
use std::path::{Path, PathBuf};

/// Paths of a volume's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The volume as the user names it: a directory, or one file.
    pub volume: PathBuf,
    /// The database.
    pub database: PathBuf,
    /// Directory of the segments, if blocks lie there.
    pub segments: Option<PathBuf>,
    /// The intent log.
    pub log: PathBuf,
    /// What is locked to hold the volume.
    pub hold: PathBuf,
}

/// Most blocks that ext4 keeps for what it must write itself (`ext4_set_resv_clusters`).
const EXT4_RESERVED_MAX: u64 = 4096;

impl Layout {
    /// Of a volume at `path` whose blocks lie at `home`.
    pub fn of(path: &Path, home: BlockHome) -> Layout {
        let volume = path.to_path_buf();
        match home {
            BlockHome::Segments => Layout {
                database: path.join("meta.sqlite"),
                segments: Some(path.join("segments")),
                log: path.join("intents"),
                hold: path.join("lock"),
                volume,
            },
            BlockHome::Database => {
                let mut log = path.as_os_str().to_owned();
                log.push("-intents");
                Layout { database: volume.clone(), segments: None, log: log.into(), hold: volume.clone(), volume }
            }
        }
    }

    /// Of the volume that is there: a directory or a file.
    pub fn find(path: &Path) -> Result<Layout> {
        let metadata = std::fs::metadata(path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => {
                Error::Unusable(format!("there is no volume at {}; make one with 'weft init'", path.display()))
            }
            _ => Error::Io { what: "cannot open", path: path.into(), source },
        })?;
        let home = if metadata.is_dir() { BlockHome::Segments } else { BlockHome::Database };
        Ok(Layout::of(path, home))
    }

    /// Space of the file system the volume lies in.
    pub(super) fn space(&self) -> Result<Space> {
        let stat = rustix::fs::statvfs(&self.database).map_err(|errno| Error::Io {
            what: "cannot tell the space at",
            path: self.database.clone(),
            source: errno.into(),
        })?;
        let blocks = if rustix::process::geteuid().is_root() {
            // What is free and not available is kept for the super-user, but for some that ext4 gives to nobody (its
            // `reserved_clusters`). How many of which it does not tell.
            stat.f_bfree - stat.f_bfree.saturating_sub(stat.f_bavail).min(EXT4_RESERVED_MAX)
        } else {
            stat.f_bavail
        };
        Ok(Space { bytes_total: stat.f_blocks * stat.f_frsize, bytes_free: blocks * stat.f_frsize })
    }
}
