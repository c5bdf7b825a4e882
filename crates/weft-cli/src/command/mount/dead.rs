//! The dead mount at a mount point while its daemon waits to reopen the volume.

use crate::command::stats::is_dead;
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Interval between checks that it is still there.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// A dead mount. Unless it is removed here, this process ends once another process has removed it:
/// nobody wants the volume there any more then.
pub struct Dead {
    directory: PathBuf,
    watched: Arc<()>,
}

impl Dead {
    /// Watches the dead mount at `directory`.
    pub fn watch(directory: &Path) -> Result<Dead> {
        if !is_dead(directory) {
            bail!("what was mounted at {} is unmounted", directory.display());
        }
        let dead = Dead { directory: directory.into(), watched: Arc::new(()) };
        let (directory, watched) = (dead.directory.clone(), Arc::downgrade(&dead.watched));
        let watch = move || {
            loop {
                let is_gone = !is_dead(&directory);
                // Asked for after that: it goes before the mount does.
                if watched.upgrade().is_none() {
                    return;
                }
                if is_gone {
                    tracing::info!("{} is unmounted; the volume is waited for no longer", directory.display());
                    std::process::exit(0);
                }
                #[expect(clippy::disallowed_methods, reason = "nobody is told that a dead mount is gone")]
                std::thread::sleep(LOOK_AGAIN);
            }
        };
        std::thread::Builder::new().name("weft-dead".into()).spawn(watch)?;
        Ok(dead)
    }

    /// Unmounts it, to make room for a live mount.
    pub fn remove(self) -> Result<()> {
        drop(self.watched);
        Ok(weft_fuse::unmount(&self.directory, true)?)
    }
}
