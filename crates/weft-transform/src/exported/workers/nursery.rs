//! The process that decoders come from.
//!
//! Starting a program takes longer than most files take to decompress. So one process is started
//! and confined, and makes decoders by copying itself (fork(2)). It gets nothing that anybody
//! wrote: only memory for its copies. It can copy itself, tell the descriptor of a copy, and
//! compute; a copy can compute, and has given up the rest, and every file, before it sees the first
//! byte.
//!
//! Its standard input is a socket. It says first that it is ready, or why it cannot be ([`READY`],
//! [`REFUSED`]); then each request and each answer is a [`Message`].

use super::decoders::BEGINNING_BYTES;
use super::decoding::{Placement, decode};
use super::rings::Work;
use super::sandbox::{self, Forking};
use crate::exported::close_all_but_standard;
use crate::stages::codecs::Format;
use rustix::io::write;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer};
use rustix::net::{SendAncillaryMessage, SendFlags, recvmsg, sendmsg};
use rustix::process::{Pid, PidfdFlags, Signal, getpid, getppid, pidfd_open, set_parent_process_death_signal};
use seccompiler::apply_filter;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// The first argument of such a process.
pub(super) const WORD: &str = "decode-streams";

/// Asks for a decoder that has the memory which comes with the message; the answer comes with the
/// descriptor of its process, and its number.
pub(super) const WANTED: u8 = 0;

/// Lets the decoder of this number have so many bytes of memory beyond what it began with.
pub(super) const LIMIT: u8 = 2;

/// Begins an answer.
pub(super) const READY: u8 = 1;
pub(super) const REFUSED: u8 = 0;

/// Makes decoders, until nobody wants any more, or is one.
pub(super) fn run(memory_bytes: usize) -> io::Result<()> {
    // SAFETY: the process that started this one has given it this file, for this. Nothing else in
    // it uses the file: it has only begun.
    let control = unsafe { OwnedFd::from_raw_fd(0) };
    // SAFETY: nothing in this process uses other files yet; and copies that have ended are to be
    // gone, for which no handler is installed.
    unsafe {
        close_all_but_standard()?;
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
    }
    let placement = Placement::new()?;
    keep_little_memory();
    let forking = match sandbox::forking(memory_bytes) {
        Ok(forking) => forking,
        Err(why) => {
            let said = [&[REFUSED], why.as_bytes()].concat();
            write(&control, &said)?;
            return Ok(());
        }
    };
    let this = getpid();
    write(&control, &[READY])?;
    while let Some((message, files)) = receive(&control)? {
        let of = |kind| Message { kind, ..message };
        let memory = match <[OwnedFd; 1]>::try_from(files) {
            Ok([memory]) => memory,
            Err(_) => {
                let copy = Pid::from_raw(message.process.cast_signed()).filter(|_| message.kind == LIMIT);
                let is_done = copy.is_some() && forking.limit(copy, message.bytes).is_ok();
                transmit(&control, of(if is_done { READY } else { REFUSED }), &[])?;
                continue;
            }
        };
        // SAFETY: this process has no other threads.
        match unsafe { libc::fork() } {
            -1 => transmit(&control, of(REFUSED), &[])?,
            0 => {
                drop(control);
                return be_decoder(this, memory, placement, &forking);
            }
            pid => {
                let process = Pid::from_raw(pid).map(|pid| pidfd_open(pid, PidfdFlags::empty())).transpose()?;
                let process = process.as_ref().ok_or(io::ErrorKind::NotFound)?;
                transmit(&control, Message { process: pid.cast_unsigned(), ..of(READY) }, &[process.as_fd()])?;
            }
        }
    }
    Ok(())
}

/// Has copies of this process give memory of streams that have ended back, but for some MiB: they
/// wait for further ones. The allocator would otherwise keep as much as the largest has taken.
fn keep_little_memory() {
    #[cfg(target_env = "gnu")]
    for (option, bytes) in [(libc::M_MMAP_THRESHOLD, 1 << 20), (libc::M_TRIM_THRESHOLD, 2 << 20)] {
        // SAFETY: it sets an option of the allocator; no other thread is there.
        unsafe { libc::mallopt(option, bytes) };
    }
}

/// A request or an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) kind: u8,
    /// The number of a decoder's process.
    pub(super) process: u32,
    pub(super) bytes: u32,
}

/// Bytes of a message.
const MESSAGE_BYTES: usize = 9;

impl Message {
    fn encode(self) -> [u8; MESSAGE_BYTES] {
        let mut bytes = [self.kind; MESSAGE_BYTES];
        bytes[1..5].copy_from_slice(&self.process.to_le_bytes());
        bytes[5..].copy_from_slice(&self.bytes.to_le_bytes());
        bytes
    }

    fn decode(bytes: [u8; MESSAGE_BYTES]) -> Message {
        let [kind, a, b, c, d, rest @ ..] = bytes;
        Message { kind, process: u32::from_le_bytes([a, b, c, d]), bytes: u32::from_le_bytes(rest) }
    }
}

/// Sends a message, and `files` with it.
pub(super) fn transmit(to: impl AsFd, message: Message, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(to, &[IoSlice::new(&message.encode())], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// A message, and up to one file with it. None at the end.
pub(super) fn receive(from: impl AsFd) -> io::Result<Option<(Message, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; MESSAGE_BYTES];
    let got = rustix::io::retry_on_intr(|| {
        recvmsg(&from, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let files = files.flatten().collect();
    Ok((got.bytes > 0).then_some((Message::decode(bytes), files)))
}

/// Is a decoder, until it is ended. `nursery` is the process that it was copied from.
fn be_decoder(nursery: Pid, memory: OwnedFd, placement: Placement, forking: &Forking) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() != Some(nursery) {
        // It ended before that, and so has the process that all this is for.
        return Ok(());
    }
    let mut work = Work::of(&memory)?;
    drop(memory);
    forking.limit(None, BEGINNING_BYTES)?;
    apply_filter(&forking.of_copies).map_err(io::Error::other)?;
    decode(&mut work, Some(placement), Format::decoder)
}
