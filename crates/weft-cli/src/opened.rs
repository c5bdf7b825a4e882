//! A volume opened for operations, and let go of again.

use anyhow::{Context, Result};
use std::path::Path;
use std::sync::Arc;
use weft_store::log::IntentLog;
use weft_store::sqlite;
use weft_vfs::{Options, SystemClock, Vfs};

/// Bytes of the intent log: two halves, each for what the journal holds at most.
const LOG_BYTES: u64 = 32 << 20;

/// A volume opened for operations.
pub struct Opened {
    pub vfs: Arc<Vfs>,
    pub volume: sqlite::Volume,
    read_only: bool,
}

/// Opens a volume's store, with errors that say what to do.
pub fn open_store(path: &Path) -> Result<sqlite::Volume> {
    sqlite::open(path).with_context(|| format!("cannot open volume {}", path.display()))
}

impl Opened {
    /// Opens the volume at `path`.
    pub fn open(path: &Path, options: Options) -> Result<Opened> {
        let volume = open_store(path)?;
        let read_only = options.read_only;
        // Who only reads makes no log, but must see what one holds.
        let log = match read_only && !volume.layout.log.exists() {
            true => None,
            false => Some(IntentLog::open(&volume.layout.log, LOG_BYTES)?),
        };
        let vfs = Vfs::open(volume.store.clone(), log, options, Arc::new(SystemClock))
            .with_context(|| format!("cannot open volume {}", path.display()))?;
        Ok(Opened { vfs, volume, read_only })
    }

    /// Commits all and lets go of the volume.
    pub fn close(self) -> Result<()> {
        self.vfs
            .close()
            .context("not all changes could be committed; they are lost with this process unless they were synced")?;
        // After a crash the log holds what was synced, until someone has committed it.
        if self.volume.layout.segments.is_none() && !self.read_only {
            // All is in the one file now; what is left of the log says nothing.
            std::fs::remove_file(&self.volume.layout.log).context("cannot remove the empty intent log")?;
        }
        Ok(())
    }
}
