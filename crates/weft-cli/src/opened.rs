//! A volume opened for operations, and let go of again.

use anyhow::{Context, Result};
use std::path::Path;
use std::sync::Arc;
use weft_store::log::{IntentLog, OperationLog};
use weft_store::postgres::OpenOptions;
use weft_store::sqlite::Layout;
use weft_store::{Location, Store};
use weft_vfs::{Options, SystemClock, Vfs};

/// Bytes of the intent log: two halves, each for what the journal holds at most.
const LOG_BYTES: u64 = 32 << 20;

/// A volume opened for operations.
pub struct Opened {
    pub vfs: Arc<Vfs>,
    pub store: Arc<dyn Store>,
    /// Its files, if it lies in files.
    pub layout: Option<Layout>,
    read_only: bool,
}

impl Opened {
    /// Opens the volume that `named` means.
    pub fn open(named: &Path, options: Options, hold: OpenOptions) -> Result<Opened> {
        let location = Location::parse(named)?;
        let context = || format!("cannot open volume {location}");
        let volume = location.open(hold).with_context(context)?;
        let read_only = options.read_only;
        // Who only reads makes no log, but must see what one holds.
        let file = match &volume.layout {
            Some(layout) if !read_only || layout.log.exists() => Some(IntentLog::open(&layout.log, LOG_BYTES)?),
            _ => None,
        };
        let log = volume.intents.map(OperationLog::Rows).or(file.map(OperationLog::File));
        let vfs = Vfs::open(volume.store.clone(), log, options, Arc::new(SystemClock)).with_context(context)?;
        Ok(Opened { vfs, store: volume.store, layout: volume.layout, read_only })
    }

    /// Commits all and lets go of the volume.
    pub fn close(self) -> Result<()> {
        self.vfs
            .close()
            .context("not all changes could be committed; they are lost with this process unless they were synced")?;
        // After a crash the log holds what was synced, until someone has committed it.
        if let Some(layout) = &self.layout
            && layout.segments.is_none()
            && !self.read_only
        {
            // All is in the one file now; what is left of the log says nothing.
            std::fs::remove_file(&layout.log).context("cannot remove the empty intent log")?;
        }
        Ok(())
    }
}
