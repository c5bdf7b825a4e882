//! Traffic on the socket of a channel: its memory, arenas before the first entry that names them,
//! and calls to wake up.

use super::{OnSignal, step};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Most descriptors of a message: an arena and its guards.
const DESCRIPTORS_MAX: usize = 1 + crate::lent::GUARDS_MAX;

/// First word of each message.
const SENDER: u64 = u64::from_le_bytes(*b"weft sdr");
const RECEIVER: u64 = u64::from_le_bytes(*b"weft rcv");
const WAKE: u64 = u64::from_le_bytes(*b"weft wak");
const ARENA: u64 = u64::from_le_bytes(*b"weft are");

/// An end of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Sender,
    Receiver,
}

/// Message from one end to the other.
#[derive(Debug)]
pub(super) enum Message {
    /// You are this end of the channel with this memory. The last is a pipe: its end for reading
    /// belongs to whoever may read what the sender lends, its end for writing to the sender, who so
    /// learns when they are all gone.
    Hello(End, OwnedFd, OwnedFd),
    /// Look again.
    Wake,
    /// From now on this number means this arena, with these guards.
    Arena(u64, OwnedFd, Vec<OwnedFd>),
}

/// Result of a look at a socket.
#[derive(Debug)]
pub(super) enum Received {
    Message(Message),
    /// Nothing yet.
    Nothing,
    /// Nothing any more: nobody has the other end.
    Gone,
}

/// Tells the other end of `socket` what it is.
pub(super) fn send_hello(socket: &OwnedFd, end: End, memory: BorrowedFd<'_>, token: BorrowedFd<'_>) -> io::Result<()> {
    let kind = match end {
        End::Sender => SENDER,
        End::Receiver => RECEIVER,
    };
    Ok(send(socket.as_fd(), [kind, 0], &[memory, token])?)
}

/// Tells of an arena; waits until there is room for that.
pub(super) fn send_arena(
    socket: BorrowedFd<'_>,
    number: u64,
    arena: BorrowedFd<'_>,
    guards: &[BorrowedFd<'_>],
    on_signal: OnSignal,
) -> io::Result<()> {
    let descriptors: Vec<_> = std::iter::once(arena).chain(guards.iter().copied()).collect();
    loop {
        match send(socket, [ARENA, number], &descriptors) {
            Err(Errno::AGAIN) => wait(socket, PollFlags::OUT, on_signal)?,
            Err(error) => return Err(error.into()),
            Ok(()) => return Ok(()),
        };
    }
}

/// Wakes the other end. It need not hear that it is to wake where so much is unread that there is
/// no room: it wakes by that.
pub(super) fn send_wake(socket: BorrowedFd<'_>) -> io::Result<()> {
    match send(socket, [WAKE, 0], &[]) {
        // Nobody is there: whoever waits for something finds out.
        Ok(()) | Err(Errno::AGAIN | Errno::PIPE | Errno::CONNRESET) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn send(socket: BorrowedFd<'_>, words: [u64; 2], descriptors: &[BorrowedFd<'_>]) -> rustix::io::Result<()> {
    step();
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&words[0].to_le_bytes());
    bytes[8..].copy_from_slice(&words[1].to_le_bytes());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        let fits = control.push(SendAncillaryMessage::ScmRights(descriptors));
        assert!(fits, "there are no more descriptors than a message has");
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::io::retry_on_intr(|| sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, flags)).map(drop)
}

/// The next message, without waiting for it.
pub(super) fn receive(socket: BorrowedFd<'_>) -> io::Result<Received> {
    step();
    let mut bytes = [0; 17];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let message = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
            Ok(message) => break message,
            Err(Errno::AGAIN) => return Ok(Received::Nothing),
            // The other end went and had not read all: told once, and before what is left to be
            // read here.
            Err(Errno::INTR | Errno::CONNRESET) => {}
            Err(error) => return Err(error.into()),
        }
    };
    let descriptors = descriptors(&mut control);
    if message.bytes == 0 && descriptors.is_empty() {
        return Ok(Received::Gone);
    }
    if message.flags.intersects(ReturnFlags::CTRUNC | ReturnFlags::TRUNC) {
        return Err(garbage("a message on a channel's socket was too long, or this process has too many open files"));
    }
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
    if message.bytes != 16 {
        return Err(garbage("a message on a channel's socket has the wrong length"));
    }
    understand([word(0), word(8)], descriptors).map(Received::Message)
}

fn descriptors(control: &mut RecvAncillaryBuffer<'_>) -> Vec<OwnedFd> {
    let rights = |message| match message {
        RecvAncillaryMessage::ScmRights(rights) => Some(rights),
        _ => None,
    };
    control.drain().filter_map(rights).flatten().collect()
}

fn understand(words: [u64; 2], mut descriptors: Vec<OwnedFd>) -> io::Result<Message> {
    let guards = if descriptors.is_empty() { Vec::new() } else { descriptors.split_off(1) };
    match (words, descriptors.pop(), guards) {
        ([WAKE, 0], None, _) => Ok(Message::Wake),
        ([ARENA, number], Some(arena), guards) => Ok(Message::Arena(number, arena, guards)),
        ([kind @ (SENDER | RECEIVER), 0], Some(memory), mut tokens) if tokens.len() == 1 => {
            let end = if kind == SENDER { End::Sender } else { End::Receiver };
            Ok(Message::Hello(end, memory, tokens.remove(0)))
        }
        _ => Err(garbage("a message on a channel's socket makes no sense")),
    }
}

/// Waits until something can be read or written, or the other end is gone.
pub(super) fn wait(socket: BorrowedFd<'_>, events: PollFlags, on_signal: OnSignal) -> io::Result<()> {
    step();
    let mut polled = [PollFd::from_borrowed_fd(socket, events)];
    loop {
        match poll(&mut polled, None) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => on_signal()?,
            Err(error) => return Err(error.into()),
        }
    }
}

/// True if nobody has the other end of `file`, a socket or the end of a pipe that is written to.
pub(super) fn is_gone(file: BorrowedFd<'_>) -> io::Result<bool> {
    let mut polled = [PollFd::from_borrowed_fd(file, PollFlags::empty())];
    rustix::io::retry_on_intr(|| poll(&mut polled, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })))?;
    Ok(polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR))
}

/// Returns the error for a peer that broke the protocol.
pub(super) fn garbage(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// The memory of the channel of which `socket` is an end that was not used yet, and the pipe's end
/// that belongs to it.
pub(super) fn attach(socket: &OwnedFd, wanted: End) -> io::Result<(OwnedFd, OwnedFd)> {
    match receive(socket.as_fd())? {
        Received::Message(Message::Hello(end, memory, token)) if end == wanted => Ok((memory, token)),
        Received::Message(Message::Hello(..)) => {
            let (is, is_not) = match wanted {
                End::Sender => ("receiving", "sending"),
                End::Receiver => ("sending", "receiving"),
            };
            Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("this is the {is} end of a channel, not the {is_not} one"),
            ))
        }
        Received::Message(_) | Received::Nothing | Received::Gone => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "this is no end of a channel, or was used as one already"))
        }
    }
}
