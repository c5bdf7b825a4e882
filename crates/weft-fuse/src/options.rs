//! The ways in which a mount can be served.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use weft_vfs::Ino;

/// Options for serving requests.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Time for which the kernel may answer from its caches. Only this daemon changes the volume,
    /// so it is long.
    pub valid: Duration,
    /// Transport of requests.
    pub transport: Transport,
    /// Processor for the thread that serves the device.
    pub placement: Placement,
    /// True if the kernel caches writes and passes them on later: at the latest when the file is
    /// closed or synced. Fast, but after a crash writes to open files may be missing although later
    /// operations are there.
    pub writeback: bool,
    /// True if idle processors are kept from sleeping while requests come.
    pub keep_awake: bool,
    /// True if threads that serve take the idle scheduling policy while requests come fast (where
    /// that is permitted). The kernel then leaves programs on the processor where they are served.
    pub idle_policy: bool,
    /// Keeper of the locks of programs.
    pub locks: LockKeeper,
    /// True if the kernel reports opens even if no link of the volume needs that
    /// ([`weft_attributes::Attribute::Opens`]). Costs requests for each open and close.
    pub opens: bool,
    /// Source of the attribute [`weft_attributes::Attribute::Lent`], by which programs learn how a
    /// file is shared in memory; none if files are not shared.
    pub inviter: Option<Inviter>,
    /// The commit as of which the volume is shown, if it is one of the past.
    pub as_of_commit: Option<u64>,
}

/// Tells a program that may read a file how to get it as shared memory.
#[derive(Clone)]
pub struct Inviter(pub Arc<Invite>);

/// Returns the invitation to share one file with one user.
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
            as_of_commit: None,
        }
    }
}

/// Keeper of the locks of programs (fcntl(), flock(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKeeper {
    /// The kernel: right as long as only its programs use the volume.
    Kernel,
    /// The volume, so that locks of other clients count, too. Costs requests for each open and
    /// close. Requests go over the device: in a ring, a request that waits for a lock would take an
    /// entry that the holder may need to release it.
    Volume,
}

/// Transport of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Over io_uring if the kernel offers that, else over the device.
    Automatic,
    /// Over `/dev/fuse`.
    Device,
}

/// Processor of the serving thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// On the processor of the program it serves.
    Follow,
    /// On the processor that the kernel chooses.
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
