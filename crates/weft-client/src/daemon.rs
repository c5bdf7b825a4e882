//! The daemon of a volume, as a program speaks to it.
//!
//! One connection for all files of a volume that a process has open. What it was lent is let go when the last slice of it is dropped; the daemon is told of
//! several together, at the latest before it is asked for more.

use crate::lent::Lent;
use crate::protocol::{
    ADDRESS_BYTES, ADDRESS_REQUEST, PACKET_BYTES_MAX, Part, Reference, Reply, Request, VERSION, ZEROS, decode_address,
};
use crate::socket::{receive, send};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt,
};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use weft_block::{Block, Rope};

/// References that are let go together.
const RELEASED_TOGETHER: usize = 16;

/// Arenas kept mapped although nothing of them is read.
const ARENAS_IDLE_MAX: usize = 64;

/// Bytes of one slice of zeros.
const ZERO_BYTES: usize = 1 << 20;

/// A connection.
#[derive(Debug)]
pub(crate) struct Daemon {
    socket: Arc<OwnedFd>,
    /// Whose it is: a child that was forked has the socket, but must not speak.
    process: u32,
    /// Taken from each request to its reply.
    arenas: Mutex<HashMap<u64, Arc<Lent>>>,
    /// What is to be let go.
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

/// What the daemon of the volume that `file` lies in is called; none if it shares nothing, or it is no file of a volume.
fn address(file: BorrowedFd<'_>) -> Option<Vec<u8>> {
    let mut bytes = [0u8; ADDRESS_BYTES];
    // SAFETY: the request says that it gives as many bytes as there are; what gives none returns an error.
    let told = unsafe { libc::ioctl(file.as_raw_fd(), libc::Ioctl::from(ADDRESS_REQUEST), bytes.as_mut_ptr()) };
    if told != 0 {
        return None;
    }
    decode_address(&bytes).map(<[u8]>::to_vec)
}

/// The connection to the daemon of the volume that `file` lies in; none if it shares nothing.
pub(crate) fn of(file: BorrowedFd<'_>) -> Option<Arc<Daemon>> {
    static ALL: Mutex<Vec<(Vec<u8>, Weak<Daemon>)>> = Mutex::new(Vec::new());
    let name = address(file)?;
    let process = std::process::id();
    let mut all = locked(&ALL);
    all.retain(|(_, daemon)| daemon.strong_count() > 0);
    let known = all.iter().filter(|(other, _)| *other == name).find_map(|(_, daemon)| daemon.upgrade());
    if let Some(known) = known.filter(|known| known.process == process) {
        return Some(known);
    }
    // Whatever keeps this from being, files can be read as ever.
    let daemon = Arc::new(Daemon::connect(&name).ok()?);
    all.push((name, Arc::downgrade(&daemon)));
    Some(daemon)
}

impl Daemon {
    fn connect(name: &[u8]) -> io::Result<Daemon> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        connect(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
        // Files are shown to it: it must be whom the system trusts, or this user.
        let peer = sockopt::socket_peercred(&socket)?.uid;
        if !peer.is_root() && peer != rustix::process::geteuid() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let daemon = Daemon {
            socket: Arc::new(socket),
            process: std::process::id(),
            arenas: Mutex::default(),
            released: Mutex::default(),
            zeros: Block::new(vec![0; ZERO_BYTES]),
        };
        let (reply, _) = daemon.ask(&Request::Hello { version: VERSION }, &[], &mut locked(&daemon.arenas))?;
        if reply == Reply::Hello { Ok(daemon) } else { Err(nonsense()) }
    }

    /// Opens `file`: what it is called, and whether it can be written to.
    pub(crate) fn open(&self, file: BorrowedFd<'_>) -> io::Result<(u32, bool)> {
        match self.ask(&Request::Open, &[file], &mut locked(&self.arenas))? {
            (Reply::Opened { file, is_writable }, _) => Ok((file, is_writable)),
            _ => Err(nonsense()),
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
    pub(crate) fn read(self: &Arc<Daemon>, file: u32, offset: u64, len: usize) -> io::Result<Rope> {
        let request = Request::Read { file, offset, len: u32::try_from(len).unwrap_or(u32::MAX) };
        let mut arenas = locked(&self.arenas);
        self.forget_idle(&mut arenas)?;
        let (Reply::Read { parts, lent }, descriptors) = self.ask(&request, &[], &mut arenas)? else {
            return Err(nonsense());
        };
        if lent.len() != descriptors.len() {
            return Err(nonsense());
        }
        for (number, descriptor) in lent.into_iter().zip(descriptors) {
            arenas.insert(number, Lent::map(descriptor, self.socket.clone())?);
        }
        let mut rope = Rope::new();
        let mut run: Option<Referred> = None;
        for part in parts {
            if part.arena == ZEROS {
                rope.append(run.take().map(Referred::rope).unwrap_or_default());
                self.add_zeros(&mut rope, part.len)?;
                continue;
            }
            let next = self.referred(part, &arenas)?;
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

    /// Writes `len` bytes of `memory` from `at` on to `offset` of `file`.
    pub(crate) fn write(
        &self,
        file: u32,
        offset: u64,
        (memory, at): (BorrowedFd<'_>, u64),
        len: usize,
    ) -> io::Result<()> {
        let len = u32::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
        let request = Request::Write { file, offset, len, at };
        match self.ask(&request, &[memory], &mut locked(&self.arenas))? {
            (Reply::Written, _) => Ok(()),
            _ => Err(nonsense()),
        }
    }

    /// Unmaps arenas of which nothing is read, if they are many: the daemon lends them again if need be.
    fn forget_idle(&self, arenas: &mut HashMap<u64, Arc<Lent>>) -> io::Result<()> {
        let is_idle = |lent: &Arc<Lent>| Arc::strong_count(lent) == 1;
        if arenas.values().filter(|lent| is_idle(lent)).count() <= ARENAS_IDLE_MAX {
            return Ok(());
        }
        self.release(SendFlags::empty())?;
        let idle: Vec<u64> = arenas.iter().filter(|(_, lent)| is_idle(lent)).map(|(number, _)| *number).collect();
        for arena in idle {
            arenas.remove(&arena);
            self.tell(&Request::Forget { arena }, SendFlags::empty())?;
        }
        Ok(())
    }

    /// The reply to `request`, with what came with it. Whoever has the arenas' lock may ask.
    fn ask(
        &self,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
        _: &mut HashMap<u64, Arc<Lent>>,
    ) -> io::Result<(Reply, Vec<OwnedFd>)> {
        if !self.is_own() {
            return Err(io::Error::other("a process cannot use files that another one opened"));
        }
        // The daemon may have no memory left but what is let go here.
        self.release(SendFlags::empty())?;
        send(self.socket.as_fd(), &request.encode(), descriptors, SendFlags::empty())?;
        let mut buffer = [0; PACKET_BYTES_MAX];
        let (len, descriptors) = receive(self.socket.as_fd(), &mut buffer, RecvFlags::empty())?;
        if len == 0 {
            return Err(io::Error::new(io::ErrorKind::ConnectionReset, "the daemon has ended"));
        }
        match Reply::decode(request, &buffer[..len]).ok_or_else(nonsense)? {
            Reply::Failed { errno } => Err(io::Error::from_raw_os_error(errno.cast_signed())),
            reply => Ok((reply, descriptors)),
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
