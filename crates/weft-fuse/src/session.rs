//! Sessions: a mount from beginning to end.

use crate::dispatch::Server;
use crate::latency_guard::LatencyGuard;
use crate::mount::{self, MountError, MountOptions, Subtype};
use crate::notify::Notifier;
use crate::options::SessionOptions;
use crate::transport::device::Device;
use crate::transport::handler::Handler;
use crate::transport::handshake::shake_hands;
use crate::transport::scheduling::{KeptOff, Scheduling};
use crate::transport::uring::Rings;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use weft_vfs::{Report, Vfs};

/// A directory at which requests are served. Dropping it unmounts, unless it is unmounted already.
pub(crate) struct Mounted {
    device: Arc<Device>,
    rings: Option<Rings>,
    directory: PathBuf,
}

impl Mounted {
    /// Begins to serve the mount at `directory`, of which `file` is the kernel's end. Requests wait
    /// until [`Mounted::run`].
    pub(crate) fn begin(file: Arc<File>, directory: PathBuf, handler: Arc<dyn Handler>) -> Result<Mounted, MountError> {
        let rings = shake_hands(&file, &handler).map_err(|source| {
            // A mount that cannot be served must not stay.
            let _ = mount::unmount(&directory, true);
            MountError::Refused { what: "mount at", path: directory.clone(), source }
        })?;
        if rings.is_none() {
            mount::read_further_ahead(&directory);
        }
        let device = Device::new(file, handler, rings.is_some());
        Ok(Mounted { device, rings, directory })
    }

    /// Serves until the file system is unmounted.
    pub(crate) fn run(mut self) -> std::io::Result<()> {
        if let Some(rings) = &self.rings {
            rings.start();
        }
        let result = self.device.run();
        if result.is_err() {
            // Else the queues would be served for ever.
            let _ = mount::unmount(&self.directory, true);
        }
        self.rings = None;
        Ok(result?)
    }

    /// True if requests come over io_uring.
    pub(crate) fn has_rings(&self) -> bool {
        self.rings.is_some()
    }

    /// Returns a handle that unmounts it, for any thread.
    pub(crate) fn unmounter(&self) -> Unmounter {
        Unmounter { directory: self.directory.clone() }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if !self.device.has_ended() {
            // There is nobody to tell; the kernel aborts what is left when the device closes.
            let _ = mount::unmount(&self.directory, true);
        }
    }
}

/// A volume mounted at a directory. Dropping it unmounts, unless it is unmounted already.
pub struct Session {
    mounted: Mounted,
    server: Arc<Server>,
    _kept_off: Option<KeptOff>,
}

impl Session {
    /// Mounts `vfs` at `directory`. Requests wait until [`Session::run`].
    pub fn mount(
        vfs: Arc<Vfs>,
        directory: &Path,
        mount: &MountOptions,
        options: SessionOptions,
    ) -> Result<Session, MountError> {
        let directory = mount::check_mount_point(directory)?;
        let latency_guard = options.keep_awake.then(LatencyGuard::new).transpose().map_err(MountError::Awake)?;
        let file = Arc::new(mount::mount(&directory, Subtype::Weft, mount)?);
        // Only speed depends on it.
        let scheduling = if options.idle_policy { Scheduling::new().ok() } else { None };
        let kept_off = scheduling.as_ref().zip(vfs.background_thread());
        let kept_off = kept_off.map(|(scheduling, thread)| scheduling.keep_off(thread));
        let server = Arc::new(Server::new(vfs, options, latency_guard, scheduling));
        server.is_shared.store(mount.is_shared(), Ordering::Relaxed);
        server.tell_what_is_kept();
        server.set_notifier(Notifier::new(file.clone()));
        let mounted = Mounted::begin(file, directory, server.clone())?;
        Ok(Session { mounted, server, _kept_off: kept_off })
    }

    /// Serves until the file system is unmounted.
    pub fn run(self) -> std::io::Result<()> {
        self.mounted.run()
    }

    /// Returns a handle that ends all answers of this session, for any thread that does not serve
    /// it.
    pub fn leaver(&self) -> Leaver {
        Leaver { server: Arc::downgrade(&self.server) }
    }

    /// Returns a handle to the counters of this session, for any thread.
    pub fn teller(&self) -> Teller {
        Teller { server: Arc::downgrade(&self.server) }
    }

    /// Returns a handle that unmounts this session, for any thread.
    pub fn unmounter(&self) -> Unmounter {
        self.mounted.unmounter()
    }
}

/// Reports the counters of a session.
#[derive(Clone)]
pub struct Teller {
    server: Weak<Server>,
}

impl Teller {
    /// Returns all counters; none once the session has ended.
    pub fn report(&self) -> Option<Report> {
        Some(self.server.upgrade()?.report())
    }
}

/// Ends the answers of a session, while it stays mounted.
#[derive(Clone)]
pub struct Leaver {
    server: Weak<Server>,
}

impl Leaver {
    /// Answers nothing more, and makes the kernel drop everything it has cached. The mount is dead
    /// when this returns, also for reads that the kernel's caches could serve. Nothing happens if
    /// the session has ended.
    pub fn leave(&self) {
        if let Some(server) = self.server.upgrade() {
            server.leave();
        }
    }
}

/// Unmounts a session.
#[derive(Clone, Debug)]
pub struct Unmounter {
    directory: PathBuf,
}

impl Unmounter {
    /// Unmounts now or, if it is in use, as soon as it no longer is. Nothing happens if it is
    /// unmounted already.
    pub fn unmount(&self) -> Result<(), MountError> {
        let unmounted = mount::unmount(&self.directory, false).or_else(|_| mount::unmount(&self.directory, true));
        if mount::is_mount_point(&self.directory) { unmounted } else { Ok(()) }
    }
}
