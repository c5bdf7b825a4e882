//! A mount from beginning to end.

use crate::dispatch::Server;
use crate::latency_guard::LatencyGuard;
use crate::mount::{self, MountError, MountOptions};
use crate::notify::Notifier;
use crate::transport::device::Device;
use crate::transport::handshake::shake_hands;
use crate::transport::scheduling::{KeptOff, Scheduling};
use crate::transport::uring::Rings;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use weft_vfs::{Ino, Vfs};

/// How requests are served.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// How long the kernel may answer from what it was told. Only this daemon changes the volume,
    /// so it is long.
    pub valid: Duration,
    /// How requests come.
    pub transport: Transport,
    /// Where the thread runs that serves the device.
    pub placement: Placement,
    /// Whether the kernel keeps what programs write, and passes it on later: at the latest when the
    /// file is closed or synced. Fast, and after a crash what was written to open files may be
    /// missing although later operations are there.
    pub writeback: bool,
    /// Whether idle processors are kept from sleeping while requests come.
    pub keep_awake: bool,
    /// Whether threads that serve take the idle scheduling policy while requests come fast (where
    /// that is permitted), so that the kernel leaves programs on the processor where they are
    /// served.
    pub idle_policy: bool,
    /// Who keeps the locks of programs.
    pub locks: LockKeeper,
    /// Whether the kernel tells of opens even if no link of the volume wants that
    /// ([`weft_attributes::Attribute::Opens`]). Costs requests for each open and close.
    pub opens: bool,
    /// What tells programs where a file is lent in memory, by its attribute
    /// [`weft_attributes::Attribute::Lent`], if it is.
    pub inviter: Option<Inviter>,
}

/// Tells what whoever may read a file is told, to have it lent in memory.
#[derive(Clone)]
pub struct Inviter(pub Arc<Invite>);

/// Tells that of one file, for one user.
pub type Invite = dyn Fn(u32, Ino) -> std::io::Result<Vec<u8>> + Send + Sync;

impl fmt::Debug for Inviter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inviter")
    }
}

impl Default for SessionOptions {
    fn default() -> SessionOptions {
        SessionOptions {
            valid: Duration::from_secs(24 * 3600),
            transport: Transport::Automatic,
            placement: Placement::Follow,
            writeback: false,
            keep_awake: false,
            idle_policy: true,
            locks: LockKeeper::Kernel,
            opens: false,
            inviter: None,
        }
    }
}

/// Who keeps the locks of programs (fcntl(), flock(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKeeper {
    /// The kernel: right as long as only its programs use the volume.
    Kernel,
    /// The volume, so that those of others count, too. Costs requests for each open and close, and
    /// goes over the device: who waits for a lock would else take a place in a ring from whoever is
    /// to give it up.
    Volume,
}

/// How requests come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Over io_uring if the kernel offers that, else over the device.
    Automatic,
    /// Over `/dev/fuse`.
    Device,
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

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Placement::Follow => f.write_str("follow"),
            Placement::Free => f.write_str("free"),
            Placement::Processor(number) => write!(f, "{number}"),
        }
    }
}

/// A volume mounted at a directory. Dropping it unmounts, if nobody has yet.
pub struct Session {
    device: Arc<Device>,
    rings: Option<Rings>,
    directory: PathBuf,
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
        let file = Arc::new(mount::mount(&directory, mount)?);
        // Without it all is served as rightly.
        let scheduling = if options.idle_policy { Scheduling::new().ok() } else { None };
        let kept_off = scheduling.as_ref().zip(vfs.background_thread());
        let kept_off = kept_off.map(|(scheduling, thread)| scheduling.keep_off(thread));
        let server = Arc::new(Server::new(vfs, options, latency_guard, scheduling));
        server.is_shared.store(mount.is_shared(), Ordering::Relaxed);
        server.set_notifier(Notifier::new(file.clone()));
        let rings = shake_hands(&file, &server).map_err(|source| {
            // What cannot be served must not stay.
            let _ = mount::unmount(&directory, true);
            MountError::Refused { what: "mount at", path: directory.clone(), source }
        })?;
        if rings.is_none() {
            mount::read_further_ahead(&directory);
        }
        let device = Device::new(file, server.clone(), rings.is_some());
        Ok(Session { device, rings, directory, server, _kept_off: kept_off })
    }

    /// Serves until the file system is unmounted.
    pub fn run(mut self) -> std::io::Result<()> {
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

    /// What makes this answer nothing more, from any thread that does not serve it.
    pub fn leaver(&self) -> Leaver {
        Leaver { server: Arc::downgrade(&self.server) }
    }

    /// What tells the counters of this, from any thread.
    pub fn teller(&self) -> Teller {
        Teller { server: Arc::downgrade(&self.server) }
    }

    /// What unmounts this, from any thread.
    pub fn unmounter(&self) -> Unmounter {
        Unmounter { directory: self.directory.clone() }
    }
}

/// Tells the counters of a session.
#[derive(Clone)]
pub struct Teller {
    server: Weak<Server>,
}

impl Teller {
    /// All counters, as the attribute of the mount point tells them to its owner. None once the
    /// session has ended.
    pub fn stats(&self) -> Option<serde_json::Value> {
        Some(self.server.upgrade()?.stats(rustix::process::geteuid().as_raw()))
    }
}

/// Ends what a session answers, while it stays mounted.
#[derive(Clone)]
pub struct Leaver {
    server: Weak<Server>,
}

impl Leaver {
    /// Answers nothing more, and has the kernel forget all that it was told: what is mounted is
    /// dead then, also for whoever reads what was in the kernel's caches. Returns when it is so.
    /// Nothing happens if the session has ended.
    pub fn leave(&self) {
        if let Some(server) = self.server.upgrade() {
            server.leave();
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.device.has_ended() {
            // There is nobody to tell; the kernel aborts what is left when the device closes.
            let _ = mount::unmount(&self.directory, true);
        }
    }
}

/// Unmounts a session.
#[derive(Clone, Debug)]
pub struct Unmounter {
    directory: PathBuf,
}

impl Unmounter {
    /// Unmounts now, or, if it is in use, as soon as it no longer is. Nothing happens if somebody
    /// has already.
    pub fn unmount(&self) -> Result<(), MountError> {
        let unmounted = mount::unmount(&self.directory, false).or_else(|_| mount::unmount(&self.directory, true));
        if mount::is_mount_point(&self.directory) { unmounted } else { Ok(()) }
    }
}
