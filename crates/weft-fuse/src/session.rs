//! A mount from beginning to end.

use crate::dispatch::Server;
use crate::mount::{self, MountError, MountOptions};
use crate::notify::Notifier;
use crate::transport::device::Device;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use weft_vfs::Vfs;

/// How requests are served.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// How long the kernel may answer from what it was told. Only this daemon changes the volume, so it is long.
    pub valid: Duration,
    /// Where the serving thread runs.
    pub placement: Placement,
    /// Name of the transport, for the counters.
    pub transport_name: &'static str,
}

impl Default for SessionOptions {
    fn default() -> SessionOptions {
        SessionOptions { valid: Duration::from_secs(24 * 3600), placement: Placement::Follow, transport_name: "device" }
    }
}

/// Where the serving thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// On the processor of the program it serves.
    Follow,
    /// Where the kernel puts it.
    Free,
    /// On this processor.
    Processor(usize),
}

/// A volume mounted at a directory.
pub struct Session {
    device: Arc<Device>,
    directory: PathBuf,
}

impl Session {
    /// Mounts `vfs` at `directory`. Requests wait until [`Session::run`].
    pub fn mount(
        vfs: Arc<Vfs>,
        directory: &Path,
        mount: &MountOptions,
        options: SessionOptions,
    ) -> Result<Session, MountError> {
        let directory = directory.canonicalize().map_err(|source| MountError::no_directory(directory, source))?;
        let file = mount::mount(&directory, mount)?;
        let server = Arc::new(Server::new(vfs, options));
        let copy = file.try_clone().map_err(MountError::Device)?;
        server.set_notifier(Notifier::new(copy));
        Ok(Session { device: Device::new(file, server), directory })
    }

    /// Serves until the file system is unmounted.
    pub fn run(&self) -> std::io::Result<()> {
        Ok(self.device.run()?)
    }

    /// What unmounts this, from any thread.
    pub fn unmounter(&self) -> Unmounter {
        Unmounter { directory: self.directory.clone() }
    }
}

/// Unmounts a session.
#[derive(Clone, Debug)]
pub struct Unmounter {
    directory: PathBuf,
}

impl Unmounter {
    /// Unmounts now, or, if it is in use, as soon as it no longer is.
    pub fn unmount(&self) -> Result<(), MountError> {
        mount::unmount(&self.directory, false).or_else(|_| mount::unmount(&self.directory, true))
    }
}
