//! The end of a channel that ropes are received from.

use super::announced::ARENAS_MAX;
use super::control::Control;
use super::held;
use super::ring::{Entry, Garbage, Popping, Ring};
use super::socket::{self, End, Message, Received};
use super::{EMPTY, FORGET, LAST, OnSignal, wait_on};
use crate::lent::{GUARDS_MAX, Lent};
use rustix::event::PollFlags;
use rustix::net::Shutdown;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use weft_block::{Block, Rope};

/// So many messages without any entry, or entries without any bytes, are more than a sender has
/// reason for.
const IDLE_MAX: usize = 4096;

/// Receives the ropes that are sent to the other end of a channel.
#[derive(Debug)]
pub struct Receiver {
    end: Arc<Returning>,
    ring: Popping<Control>,
    arenas: HashMap<u64, Arc<Lent>>,
    /// The part of a rope that came so far.
    partial: Rope,
    /// Since the last bytes.
    idle: usize,
    over: Option<Over>,
    on_signal: OnSignal,
}

/// Reason why nothing is received any more.
#[derive(Clone, Copy, Debug)]
enum Over {
    Ended,
    Reset,
    Garbage(&'static str),
    Failed,
}

/// Means to give tickets back. It lives as long as any bytes that were received.
#[derive(Debug)]
struct Returning {
    ring: Arc<Ring<Control>>,
    socket: OwnedFd,
    /// As long as a copy is open somewhere, the sender keeps what others lent to it.
    token: Arc<OwnedFd>,
    /// Tickets not given back.
    tickets: AtomicUsize,
}

/// Bytes that were received, until nobody needs them.
struct Bytes {
    lent: Arc<Lent>,
    offset: usize,
    len: usize,
    ticket: u32,
    end: Arc<Returning>,
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self.lent.slice(self.offset..self.offset + self.len)
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        self.end.tickets.fetch_sub(1, Ordering::Relaxed);
        self.end.ring.give_back(self.ticket);
        if self.end.ring.wakes_sender_by_return() {
            // Nobody can be told here; it fails only if the sender is gone, or the system has no
            // memory for 16 bytes.
            let _ = socket::send_wake(self.end.socket.as_fd());
        }
    }
}

impl Receiver {
    /// The receiving end of a channel that `socket` is ([`super::sockets`]), which was not used
    /// before.
    ///
    /// # Errors
    /// `InvalidInput` if it is none, or was used; `InvalidData` if what came with it is nothing
    /// that a channel is made of.
    pub fn of(socket: OwnedFd) -> io::Result<Receiver> {
        let (memory, token) = socket::attach(&socket, End::Receiver)?;
        let ring = Arc::new(Control::open(&memory)?);
        let tickets = AtomicUsize::new(0);
        let end = Arc::new(Returning { ring: ring.clone(), socket, token: Arc::new(token), tickets });
        let (ring, arenas, partial) = (Popping::of(ring), HashMap::new(), Rope::new());
        Ok(Receiver { end, ring, arenas, partial, idle: 0, over: None, on_signal: wait_on })
    }

    /// Has `on_signal` called when a signal interrupts [`Receiver::receive`]. If that ends the wait
    /// (kind `Interrupted`), nothing is lost: the next call goes on.
    pub fn on_signal(&mut self, on_signal: OnSignal) {
        self.on_signal = on_signal;
    }

    /// The next rope, as it was sent; none after the last one. Waits for it.
    ///
    /// Its bytes lie in memory of the sender's, which it cannot use again before they are dropped.
    /// A sender that is not to be trusted could change them meanwhile: whoever checks bytes of such
    /// a one and then relies on them makes a copy first.
    ///
    /// # Errors
    /// `ConnectionReset` if the sender went without saying that it was finished, `InvalidData` if
    /// it is none of Weft's; and what the system says. From then on every call gives the same.
    pub fn receive(&mut self) -> io::Result<Option<Rope>> {
        match self.over {
            None => {}
            Some(Over::Ended) => return Ok(None),
            Some(Over::Reset) => return Err(reset()),
            Some(Over::Garbage(why)) => return Err(socket::garbage(why)),
            Some(Over::Failed) => return Err(io::Error::other("receiving failed before")),
        }
        let received = self.next();
        match &received {
            Ok(Some(_)) => {}
            Ok(None) => self.end_with(Over::Ended),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.end.ring.receiver_is_awake(),
            Err(error) => self.end_with(match error.kind() {
                io::ErrorKind::ConnectionReset => Over::Reset,
                io::ErrorKind::InvalidData => Over::Garbage("the sender is none of Weft's"),
                _ => Over::Failed,
            }),
        }
        received
    }

    fn end_with(&mut self, over: Over) {
        self.over = Some(over);
        self.arenas.clear();
        self.partial = Rope::new();
    }

    fn next(&mut self) -> io::Result<Option<Rope>> {
        loop {
            if let Some(entry) = self.ring.pop().map_err(garbage)? {
                if self.ring.wakes_sender() {
                    socket::send_wake(self.end.socket.as_fd())?;
                }
                if self.take(entry)? {
                    return Ok(Some(std::mem::take(&mut self.partial)));
                }
            } else if !self.wait()? {
                return if self.partial.is_empty() {
                    Ok(None)
                } else {
                    Err(socket::garbage("the sender finished within a rope"))
                };
            }
        }
    }

    /// Does what `entry` says; whether that is all of a rope.
    fn take(&mut self, [number, offset, len, rest]: Entry) -> io::Result<bool> {
        let (ticket, flags) = (rest as u32, rest & !u64::from(u32::MAX));
        match flags {
            FORGET => {
                self.busy()?;
                let known = self.arenas.remove(&number);
                known.map(|_| false).ok_or_else(|| socket::garbage("the sender forgets what it did not announce"))
            }
            // Only a rope without bytes has nothing that tells of them.
            flags if flags == EMPTY | LAST && self.partial.is_empty() => Ok(true),
            0 | LAST => {
                let lent = self.arena(number)?;
                let bytes = self.bytes(lent, [offset, len], ticket)?;
                self.idle = 0;
                self.partial.push(Block::of_owner(bytes).whole());
                Ok(flags == LAST)
            }
            _ => Err(socket::garbage("the sender wrote an entry that means nothing")),
        }
    }

    fn bytes(&self, lent: Arc<Lent>, [offset, len]: [u64; 2], ticket: u32) -> io::Result<Bytes> {
        let within = |offset: usize, len: usize| offset.checked_add(len).is_some_and(|end| end <= lent.len());
        let (offset, len) = match (usize::try_from(offset), usize::try_from(len)) {
            (Ok(offset), Ok(len)) if len > 0 && within(offset, len) => (offset, len),
            _ => return Err(socket::garbage("the sender told of bytes that do not lie in their arena")),
        };
        let shape = self.ring.ring().shape();
        // Each ticket is for one run of bytes at a time, so there cannot be more.
        let tickets = self.end.tickets.fetch_add(1, Ordering::Relaxed);
        let bytes = Bytes { lent, offset, len, ticket, end: self.end.clone() };
        if ticket as usize >= shape.tickets || tickets >= shape.tickets {
            return Err(socket::garbage("the sender used a ticket that there is not"));
        }
        Ok(bytes)
    }

    /// The arena `number`: if it is unknown, the sender announced it before it told of bytes there.
    fn arena(&mut self, number: u64) -> io::Result<Arc<Lent>> {
        loop {
            if let Some(lent) = self.arenas.get(&number) {
                return Ok(lent.clone());
            }
            match socket::receive(self.end.socket.as_fd())? {
                Received::Message(message) => self.understand(message)?,
                Received::Nothing | Received::Gone => {
                    return Err(socket::garbage("the sender told of an arena that it did not announce"));
                }
            }
        }
    }

    fn understand(&mut self, message: Message) -> io::Result<()> {
        self.busy()?;
        match message {
            Message::Wake => Ok(()),
            Message::Arena(number, file, guards) => {
                // One is forgotten before another one is announced, and that entry is read before
                // this message.
                if self.arenas.len() > ARENAS_MAX || guards.len() > GUARDS_MAX {
                    return Err(socket::garbage("the sender announces more than there may be"));
                }
                let mut guards: Vec<_> = guards.into_iter().map(Arc::new).collect();
                if !guards.is_empty() {
                    // The sender has it from others: it must not give it back as long as anybody
                    // reads it whom it was sent on to from here.
                    guards.push(self.end.token.clone());
                }
                let before = self.arenas.insert(number, Lent::guarded(file, guards)?);
                before.map_or(Ok(()), |_| Err(socket::garbage("the sender announced an arena twice")))
            }
            Message::Hello(..) => Err(socket::garbage("the sender greets again")),
        }
    }

    /// Bounds what a sender can make this end do without getting anywhere.
    fn busy(&mut self) -> io::Result<()> {
        self.idle += 1;
        if self.idle > IDLE_MAX { Err(socket::garbage("the sender floods the channel")) } else { Ok(()) }
    }

    /// Waits until there is an entry, or there will be none: then it tells so.
    fn wait(&mut self) -> io::Result<bool> {
        let mut is_gone = false;
        loop {
            let finished = self.end.ring.is_finished();
            // What was put in before it finished, or went, is seen from here on.
            if self.ring.is_ready().map_err(garbage)? {
                self.end.ring.receiver_is_awake();
                return Ok(true);
            }
            if finished {
                return Ok(false);
            }
            if is_gone {
                return Err(reset());
            }
            is_gone = self.sleep()?;
        }
    }

    /// Sleeps until the sender calls, or something else is to be read; whether it is gone.
    fn sleep(&mut self) -> io::Result<bool> {
        // A sender that waits for memory may wait for what this process gave back to it by way of
        // another channel.
        held::sweep();
        let ring = &self.end.ring;
        let socket = self.end.socket.as_fd();
        ring.receiver_sleeps();
        if self.ring.is_ready().map_err(garbage)? || ring.is_finished() {
            return Ok(false);
        }
        // It is to see that everything that was sent is here, if that is why it waits.
        if ring.wakes_sender_by_sleep() {
            socket::send_wake(socket)?;
        }
        socket::wait(socket, PollFlags::IN, self.on_signal)?;
        match socket::receive(socket)? {
            // Not more than one: entries that come before the next must be read first.
            Received::Message(message) => self.understand(message).map(|()| false),
            Received::Nothing => Ok(false),
            Received::Gone => Ok(true),
        }
    }
}

#[cfg(test)]
impl Receiver {
    pub(super) fn shared(&self) -> &Arc<Ring<Control>> {
        &self.end.ring
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.end.ring.leave();
        // The socket stays open as long as bytes that were received are needed; the sender is to
        // know now.
        let _ = rustix::net::shutdown(&self.end.socket, Shutdown::Both);
    }
}

/// The socket: for whoever wants to know whether it is one. What it is ready for says nothing of
/// ropes.
impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.socket.as_fd()
    }
}

fn reset() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the sender went before it was finished")
}

fn garbage(garbage: Garbage) -> io::Error {
    socket::garbage(garbage.0)
}
