//! The daemon of a volume, as a program speaks to it.
//!
//! One connection for all files of a volume that a process has open. What it was lent is let go
//! when the last slice of it is dropped; the daemon is told of several together, at the latest
//! before it is asked for more.

use crate::lent::Lent;
use crate::process::PerProcess;
use crate::protocol::{
    INVITATION_BYTES_MAX, Invitation, PACKET_BYTES_MAX, Part, Reference, Reply, Request, VERSION, ZEROS,
};
use crate::socket::{receive, send};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt,
};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use weft_attributes::Attribute;
use weft_block::{Block, Rope};

/// References that are let go together.
const RELEASED_TOGETHER: usize = 16;

/// Arenas kept mapped although nothing of them is read.
const ARENAS_IDLE_MAX: usize = 64;

/// Longest time that a daemon may take to greet.
const GREETING: Duration = Duration::from_secs(2);

/// Bytes of one slice of zeros.
const ZERO_BYTES: usize = 1 << 20;

/// A connection.
#[derive(Debug)]
pub(crate) struct Daemon {
    socket: Arc<OwnedFd>,
    /// Process that owns the connection: a child that was forked has the socket, but must not
    /// speak.
    process: u32,
    /// True if the daemon is not to be spoken to any more. Memory that it lent stays.
    is_lost: AtomicBool,
    /// Taken from each request to its reply.
    arenas: Mutex<HashMap<u64, Arc<Lent>>>,
    /// References to release.
    released: Mutex<Vec<Reference>>,
    zeros: Block,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that can panic is done halfway under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn nonsense() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the daemon answers what makes no sense")
}

/// Reason why nothing was read in place.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The daemon says so.
    Errno(i32),
    /// There is no daemon to speak to, or no sense in what is said; it is not spoken to any more.
    Lost,
}

/// Opens `file` at the daemon of the volume that it lies in: that, and what it calls the file. None
/// if nothing of it is lent.
pub(crate) fn open(file: BorrowedFd<'_>) -> Option<(Arc<Daemon>, u32)> {
    let mut value = [0; INVITATION_BYTES_MAX];
    let len = rustix::fs::fgetxattr(file, Attribute::Lent.name(), &mut value).ok()?;
    let invitation = Invitation::decode(&value[..len])?;
    let daemon = named(&invitation.socket)?;
    let request = Request::Open { token: invitation.token };
    // Whatever keeps this from being, files can be read as ever.
    let (reply, _) = daemon.ask(&request, &mut locked(&daemon.arenas)).ok()?;
    if let Reply::Opened { file } = reply { Some((daemon, file)) } else { None }
}

/// Connections of this process, by the names of the daemons' sockets.
type Connections = Vec<(Vec<u8>, Weak<Daemon>)>;

/// The connection to the daemon whose socket is called so.
fn named(socket: &[u8]) -> Option<Arc<Daemon>> {
    // A child that was forked has connections of its own.
    static ALL: PerProcess<Mutex<Connections>> = PerProcess::new();
    let mut all = locked(ALL.get());
    all.retain(|(_, daemon)| daemon.upgrade().is_some_and(|daemon| daemon.is_usable()));
    if let Some(known) = all.iter().find(|(other, _)| *other == socket).and_then(|(_, daemon)| daemon.upgrade()) {
        return Some(known);
    }
    let daemon = Arc::new(Daemon::connect(socket).ok()?);
    all.push((socket.to_vec(), Arc::downgrade(&daemon)));
    Some(daemon)
}

impl Daemon {
    fn connect(name: &[u8]) -> io::Result<Daemon> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        connect(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
        // Rights are shown to it: it must be whom the system trusts, or this user.
        let peer = sockopt::socket_peercred(&socket)?.uid;
        if !peer.is_root() && peer != rustix::process::geteuid() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let daemon = Daemon {
            socket: Arc::new(socket),
            process: std::process::id(),
            is_lost: AtomicBool::new(false),
            arenas: Mutex::default(),
            released: Mutex::default(),
            zeros: Block::new(vec![0; ZERO_BYTES]),
        };
        // It may have no descriptor left to answer by.
        sockopt::set_socket_timeout(&daemon.socket, sockopt::Timeout::Recv, Some(GREETING))?;
        let greeted = daemon.ask(&Request::Hello { version: VERSION }, &mut locked(&daemon.arenas));
        sockopt::set_socket_timeout(&daemon.socket, sockopt::Timeout::Recv, None)?;
        match greeted {
            Ok((Reply::Hello, _)) => Ok(daemon),
            _ => Err(io::ErrorKind::ConnectionRefused.into()),
        }
    }

    /// Ends the use of `file`.
    pub(crate) fn close(&self, file: u32) {
        if self.is_own() {
            // If it cannot be told, it will see that nobody is there any more.
            let _ = self.tell(&Request::Close { file }, SendFlags::empty());
        }
    }

    /// Up to `len` bytes of `file` from `offset` on.
    pub(crate) fn read(self: &Arc<Daemon>, file: u32, offset: u64, len: usize) -> Result<Rope, Failure> {
        // First: in a child that was forked, a thread that only the parent has may hold the lock.
        if !self.is_usable() {
            return Err(Failure::Lost);
        }
        let request = Request::Read { file, offset, len: u32::try_from(len).unwrap_or(u32::MAX) };
        let mut arenas = locked(&self.arenas);
        self.forget_idle(&mut arenas).map_err(|_| self.lose())?;
        match self.ask(&request, &mut arenas)? {
            (Reply::Read { parts, lent }, files) => {
                self.rope(&parts, lent, files, &mut arenas).map_err(|_| self.lose())
            }
            _ => Err(self.lose()),
        }
    }

    /// Has it spoken to no more: what it thinks that this process has may not be what it has.
    fn lose(&self) -> Failure {
        self.is_lost.store(true, Ordering::Relaxed);
        Failure::Lost
    }

    fn rope(
        self: &Arc<Daemon>,
        parts: &[Part],
        lent: Vec<u64>,
        files: Vec<OwnedFd>,
        arenas: &mut HashMap<u64, Arc<Lent>>,
    ) -> io::Result<Rope> {
        if lent.len() != files.len() {
            return Err(nonsense());
        }
        for (number, file) in lent.into_iter().zip(files) {
            arenas.insert(number, Lent::map(file, self.socket.clone())?);
        }
        let mut rope = Rope::new();
        let mut run: Option<Referred> = None;
        for part in parts {
            if part.arena == ZEROS {
                rope.append(run.take().map(Referred::rope).unwrap_or_default());
                self.add_zeros(&mut rope, part.len)?;
                continue;
            }
            let next = self.referred(*part, arenas)?;
            match &mut run {
                // What lies together is one slice.
                Some(run) if run.precedes(&next) => run.join(next),
                _ => rope.append(run.replace(next).map(Referred::rope).unwrap_or_default()),
            }
        }
        rope.append(run.map(Referred::rope).unwrap_or_default());
        Ok(rope)
    }

    fn add_zeros(&self, rope: &mut Rope, len: u64) -> io::Result<()> {
        let mut left = usize::try_from(len).map_err(|_| nonsense())?;
        while left > 0 {
            let now = left.min(ZERO_BYTES);
            rope.push(self.zeros.slice(0..now));
            left -= now;
        }
        Ok(())
    }

    fn referred(self: &Arc<Daemon>, part: Part, arenas: &HashMap<u64, Arc<Lent>>) -> io::Result<Referred> {
        let len = usize::try_from(part.len).map_err(|_| nonsense())?;
        let start = usize::try_from(part.offset).map_err(|_| nonsense())?;
        let end = start.checked_add(len).ok_or_else(nonsense)?;
        let lent = arenas.get(&part.arena).ok_or_else(nonsense)?.clone();
        if end > lent.len() {
            return Err(nonsense());
        }
        let references = vec![Reference { arena: part.arena, offset: part.offset }];
        Ok(Referred { daemon: self.clone(), lent, start, end, references })
    }

    /// Unmaps arenas of which nothing is read, if they are many: the daemon lends them again if
    /// need be.
    fn forget_idle(&self, arenas: &mut HashMap<u64, Arc<Lent>>) -> io::Result<()> {
        let is_idle = |lent: &Arc<Lent>| Arc::strong_count(lent) == 1;
        if arenas.values().filter(|lent| is_idle(lent)).count() <= ARENAS_IDLE_MAX {
            return Ok(());
        }
        let idle: Vec<u64> = arenas.iter().filter(|(_, lent)| is_idle(lent)).map(|(number, _)| *number).collect();
        // After they were seen to be idle: what was read of them is to be let go by then.
        self.release(SendFlags::empty())?;
        for arena in idle {
            arenas.remove(&arena);
            self.tell(&Request::Forget { arena }, SendFlags::empty())?;
        }
        Ok(())
    }

    /// The reply to `request`, with what came with it. Whoever has the arenas' lock may ask.
    fn ask(&self, request: &Request, _: &mut HashMap<u64, Arc<Lent>>) -> Result<(Reply, Vec<OwnedFd>), Failure> {
        if !self.is_usable() {
            return Err(Failure::Lost);
        }
        let answered = || -> io::Result<(Reply, Vec<OwnedFd>)> {
            // The daemon may have no memory left but what is let go here.
            self.release(SendFlags::empty())?;
            self.tell(request, SendFlags::empty())?;
            let mut buffer = [0; PACKET_BYTES_MAX];
            let (len, files) = receive(self.socket.as_fd(), &mut buffer, RecvFlags::empty())?;
            Ok((Reply::decode(request, &buffer[..len]).ok_or_else(nonsense)?, files))
        };
        match answered() {
            Ok((Reply::Failed { errno }, _)) => Err(Failure::Errno(errno.cast_signed())),
            Ok(answer) => Ok(answer),
            Err(_) => Err(self.lose()),
        }
    }

    fn tell(&self, request: &Request, flags: SendFlags) -> io::Result<()> {
        send(self.socket.as_fd(), &request.encode(), &[], flags)
    }

    /// Tells what is to be let go.
    fn release(&self, flags: SendFlags) -> io::Result<()> {
        let mut released = locked(&self.released);
        if released.is_empty() {
            return Ok(());
        }
        let all = std::mem::take(&mut *released);
        for (at, some) in all.chunks(crate::protocol::RELEASED_MAX).enumerate() {
            if let Err(error) = self.tell(&Request::Release(some.to_vec()), flags) {
                released.extend_from_slice(&all[at * crate::protocol::RELEASED_MAX..]);
                return Err(error);
            }
        }
        Ok(())
    }

    fn is_own(&self) -> bool {
        self.process == std::process::id()
    }

    fn is_usable(&self) -> bool {
        self.is_own() && !self.is_lost.load(Ordering::Relaxed)
    }
}

/// Bytes of places next to each other that the daemon keeps as they are until it is told.
struct Referred {
    daemon: Arc<Daemon>,
    lent: Arc<Lent>,
    start: usize,
    end: usize,
    references: Vec<Reference>,
}

impl Referred {
    fn precedes(&self, next: &Referred) -> bool {
        Arc::ptr_eq(&self.lent, &next.lent) && self.end == next.start
    }

    fn join(&mut self, mut next: Referred) {
        self.end = next.end;
        self.references.append(&mut next.references);
    }

    fn rope(self) -> Rope {
        self.lent.touch(self.start..self.end);
        Rope::from(Block::of_owner(self).whole())
    }
}

impl AsRef<[u8]> for Referred {
    fn as_ref(&self) -> &[u8] {
        self.lent.slice(self.start..self.end)
    }
}

impl Drop for Referred {
    fn drop(&mut self) {
        if self.references.is_empty() || !self.daemon.is_own() {
            return;
        }
        let are_many = {
            let mut released = locked(&self.daemon.released);
            released.append(&mut self.references);
            released.len() >= RELEASED_TOGETHER
        };
        if are_many {
            // Dropping must not wait; what cannot be told now is told later.
            let _ = self.daemon.release(SendFlags::DONTWAIT);
        }
    }
}
