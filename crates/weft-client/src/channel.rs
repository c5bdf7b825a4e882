//! Channels that carry ropes from one process to another by reference.
//!
//! A channel goes one way, from a [`Sender`] to a [`Receiver`]. Each is one socket until it is
//! first used, so that a child may inherit it as it inherits an end of a pipe. Ropes arrive as they
//! were sent, one by one. What they are made of stays where it is: the sender fills memory that the
//! receiver maps ([`Sender::place`]), and memory that was lent to the sender, by a daemon or over
//! another channel, is sent on by reference.
//!
//! A channel belongs to one process at each end once it is used: a process that forks then leaves
//! it to one of the two.
//!
//! Shared memory holds the entries, which tell where bytes lie, and a bit for each ticket that
//! comes back when the receiver needs bytes no more (`ring`). The socket carries descriptors of
//! arenas, wakes who sleeps, and tells when the other end is gone, so that no wait lasts longer
//! than that. All that comes from the other end is checked.
//!
//! What may be lent on is guarded: each channel has a pipe, whose end for reading goes along with
//! bytes that the sender has from others, to whomever they are sent on. A sender that lost its
//! receiver does not give such bytes back before nobody has that end. The socket cannot be the
//! guard: its copies in other processes would hide from the sender that the receiver is gone.

mod announced;
mod control;
mod held;
mod packing;
mod receiver;
mod ring;
mod sender;
mod socket;

pub use receiver::Receiver;
pub use sender::Sender;

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Most bytes under way: sent and not yet received, but for one run of bytes that is longer.
/// Whoever sleeps wakes up while half of them are read, which takes 0.1 ms where a virtual
/// processor was halted: with 1 MiB a quarter less came through. No end spins before it sleeps:
/// where there was other work for the processors, 50 µs of it took half of the rate with 1 MiB, and
/// 200 µs nearly half of that with 4 MiB.
pub const WINDOW_BYTES: usize = 4 << 20;

/// Most bytes that a receiver can keep of a sender's own memory, unless the sender says otherwise.
pub const BUDGET_BYTES: usize = 256 << 20;

/// Bytes of a place.
pub const PLACE_BYTES: usize = 256 << 10;

/// Bytes from which on they are sent by reference if they can be: telling of fewer, and of their
/// return, takes longer than copying them.
pub const REFER_MIN: usize = 1 << 10;

/// In the fourth word of an entry, above the ticket: a rope ends here, there are no bytes (and no
/// ticket), this arena is forgotten.
const LAST: u64 = 1 << 32;
const EMPTY: u64 = 1 << 33;
const FORGET: u64 = 1 << 34;

/// Called whenever a signal interrupts a wait of an end. An error ends the wait, and is returned if
/// its kind is `Interrupted`.
pub type OnSignal = fn() -> io::Result<()>;

/// Signals interrupt no wait.
fn wait_on() -> io::Result<()> {
    Ok(())
}

/// A new channel within this process.
///
/// # Errors
/// What the system says: there may be too many open files.
pub fn channel() -> io::Result<(Sender, Receiver)> {
    let (sender, receiver) = sockets()?;
    Ok((Sender::of(sender)?, Receiver::of(receiver)?))
}

/// The ends of a new channel, to be used in other processes: that of the sender and that of the
/// receiver. They are closed by exec(2) unless that is changed.
///
/// # Errors
/// As [`channel`].
pub fn sockets() -> io::Result<(OwnedFd, OwnedFd)> {
    let memory = control::Control::make()?;
    // Whoever may read what the sender lends has the one end, and the sender the other.
    let (token, notices) = io::pipe()?;
    let (sender, receiver) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    socket::send_hello(&sender, socket::End::Receiver, memory.as_fd(), token.as_fd())?;
    socket::send_hello(&receiver, socket::End::Sender, memory.as_fd(), notices.as_fd())?;
    Ok((sender, receiver))
}

/// The receiver keeps all the memory that the sender may use, or all tickets, and waits for more:
/// neither would ever go on.
#[derive(Clone, Copy, Debug)]
pub struct KeptByReceiver {
    /// Bytes that it keeps.
    pub bytes: usize,
}

impl std::fmt::Display for KeptByReceiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "no room to send: the receiver keeps {} bytes of what it received, and waits for more", self.bytes)
    }
}

impl std::error::Error for KeptByReceiver {}

impl From<KeptByReceiver> for io::Error {
    fn from(kept: KeptByReceiver) -> io::Error {
        io::Error::new(io::ErrorKind::OutOfMemory, kept)
    }
}

/// A step of the protocol: tests kill processes at each of them.
#[cfg(not(test))]
#[inline(always)]
fn step() {}
#[cfg(test)]
use tests::step;

#[cfg(test)]
mod tests;
