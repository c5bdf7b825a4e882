//! The process that decoders come from.
//!
//! Starting a program takes longer than most files take to decompress. So one process is started
//! and confined, and makes decoders by copying itself (fork(2)). It gets nothing that anybody
//! wrote: only memory for its copies. It can copy itself, tell the descriptor of a copy, and
//! compute; a copy can compute, and has given up the rest, and every file, before it sees the first
//! byte.
//!
//! Its standard input is a socket. It says first that it is ready, or why it cannot be ([`READY`],
//! [`REFUSED`]); then each request is one byte, with memory, and each answer one byte, with the
//! descriptor of the process.

use super::decoding::{Placement, decode};
use super::rings::Work;
use super::sandbox;
use crate::stages::codecs::Format;
use rustix::io::write;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer};
use rustix::net::{SendAncillaryMessage, SendFlags, recvmsg, sendmsg};
use rustix::process::{Pid, PidfdFlags, Signal, getpid, getppid, pidfd_open, set_parent_process_death_signal};
use seccompiler::{BpfProgram, apply_filter};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// The first argument of such a process.
pub(super) const WORD: &str = "decode-streams";

/// Asks for a decoder.
pub(super) const WANTED: u8 = 0;

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
        if libc::close_range(3, u32::MAX, 0) != 0 {
            return Err(io::Error::last_os_error());
        }
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
    }
    let placement = Placement::new()?;
    keep_little_memory();
    let decoding = match sandbox::forking(memory_bytes) {
        Ok(decoding) => decoding,
        Err(why) => {
            let said = [&[REFUSED], why.as_bytes()].concat();
            write(&control, &said)?;
            return Ok(());
        }
    };
    let this = getpid();
    write(&control, &[READY])?;
    while let Some((_, files)) = receive(&control)? {
        let Ok([memory]) = <[OwnedFd; 1]>::try_from(files) else {
            write(&control, &[REFUSED])?;
            continue;
        };
        // SAFETY: this process has no other threads.
        match unsafe { libc::fork() } {
            -1 => {
                write(&control, &[REFUSED])?;
            }
            0 => {
                drop(control);
                return be_decoder(this, memory, placement, &decoding);
            }
            pid => {
                let process = Pid::from_raw(pid).map(|pid| pidfd_open(pid, PidfdFlags::empty())).transpose()?;
                transmit(&control, READY, &[process.as_ref().ok_or(io::ErrorKind::NotFound)?.as_fd()])?;
            }
        }
    }
    Ok(())
}

/// Has copies of this process give memory of streams that have ended back, but for some MiB: they
/// wait for further ones. The allocator would otherwise keep as much as the largest has taken.
fn keep_little_memory() {
    #[cfg(target_env = "gnu")]
    for (option, bytes) in [(libc::M_MMAP_THRESHOLD, 1 << 20), (libc::M_TRIM_THRESHOLD, 4 << 20)] {
        // SAFETY: it sets an option of the allocator; no other thread is there.
        unsafe { libc::mallopt(option, bytes) };
    }
}

/// Sends a message of one byte, and `files`.
pub(super) fn transmit(to: impl AsFd, kind: u8, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(to, &[IoSlice::new(&[kind])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// A message of one byte, and up to one file with it. None at the end.
pub(super) fn receive(from: impl AsFd) -> io::Result<Option<(u8, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut kind = [0];
    let got = rustix::io::retry_on_intr(|| {
        recvmsg(&from, &mut [IoSliceMut::new(&mut kind)], &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let files = files.flatten().collect();
    Ok((got.bytes > 0).then_some((kind[0], files)))
}

/// Is a decoder, until it is ended. `nursery` is the process that it was copied from.
fn be_decoder(nursery: Pid, memory: OwnedFd, placement: Placement, decoding: &BpfProgram) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() != Some(nursery) {
        // It ended before that, and so has the process that all this is for.
        return Ok(());
    }
    let mut work = Work::of(&memory)?;
    drop(memory);
    apply_filter(decoding).map_err(io::Error::other)?;
    decode(&mut work, Some(placement), Format::decoder)
}
