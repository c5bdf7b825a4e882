//! The process that decoders come from, and a decoder in its own process.
//!
//! Starting a program takes longer than most files take to decompress. So one process is started and
//! confined, and makes decoders by copying itself (fork(2)). It gets nothing that anybody wrote:
//! only sockets and memory for its copies. It can copy itself, tell the descriptor of a copy, and
//! compute; a copy can compute, and has given up the rest before it reads the first order. No copy
//! works on a second stream.
//!
//! Its standard input is a socket. It says first that it is ready, or why it cannot be ([`READY`],
//! [`REFUSED`]); then each request is one byte, the format, with a socket and memory, and each
//! answer one byte, with the descriptor of the process.

use super::area::{AREA_BYTES, Area, INPUT_BYTES};
use super::channel::next_order;
use super::message::{Order, Reply};
use super::sandbox;
use crate::stage::StageError;
use crate::stages::codecs::{Codec, Format, cut_off};
use rustix::io::write;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer};
use rustix::net::{SendAncillaryMessage, SendFlags, recvmsg, sendmsg};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, set_parent_process_death_signal};
use seccompiler::{BpfProgram, apply_filter};
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// The first argument of such a process.
pub(super) const WORD: &str = "decode-streams";

/// Begins an answer.
pub(super) const READY: u8 = 1;
pub(super) const REFUSED: u8 = 0;

/// Parts of the memory in which a decoder is given bytes, one after the other, and how long one is.
pub(in crate::exported) const INPUTS: usize = 2;
pub(in crate::exported) const INPUT_PART_BYTES: usize = INPUT_BYTES / INPUTS;

/// Parts in which it gives others, and how long one is. It works ahead in all but one of them.
pub(in crate::exported) const OUTPUTS: usize = 4;
const OUTPUT_PART_BYTES: usize = (AREA_BYTES - INPUT_BYTES) / OUTPUTS;

/// Makes decoders, until nobody wants any more, or is one.
pub(super) fn run(memory_bytes: usize) -> io::Result<()> {
    // SAFETY: the process that started this one has given it this file, for this. Nothing else in it
    // uses the file: it has only begun.
    let control = unsafe { OwnedFd::from_raw_fd(0) };
    // SAFETY: nothing in this process uses other files yet; and copies that have ended are to be
    // gone, for which no handler is installed.
    unsafe {
        if libc::close_range(3, u32::MAX, 0) != 0 {
            return Err(io::Error::last_os_error());
        }
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
    }
    let computing = match sandbox::forking(memory_bytes) {
        Ok(computing) => computing,
        Err(why) => {
            let said = [&[REFUSED], why.as_bytes()].concat();
            write(&control, &said)?;
            return Ok(());
        }
    };
    write(&control, &[READY])?;
    while let Some((kind, files)) = receive(&control)? {
        let (Some(format), Ok([socket, area])) = (Format::of(kind), <[OwnedFd; 2]>::try_from(files)) else {
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
                return decode(format, &socket, area, &computing);
            }
            pid => {
                let process = Pid::from_raw(pid).map(|pid| pidfd_open(pid, PidfdFlags::empty())).transpose()?;
                transmit(&control, READY, &[process.as_ref().ok_or(io::ErrorKind::NotFound)?.as_fd()])?;
            }
        }
    }
    Ok(())
}

/// Sends a message of one byte, and `files`.
pub(super) fn transmit(to: impl AsFd, kind: u8, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(to, &[IoSlice::new(&[kind])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// A message of one byte, and up to two files with it. None at the end.
pub(super) fn receive(from: impl AsFd) -> io::Result<Option<(u8, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
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

/// Is a decoder, until the other end is closed.
fn decode(format: Format, socket: &OwnedFd, area: OwnedFd, computing: &BpfProgram) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let mut mapped = Area::of(&area)?;
    drop(area);
    apply_filter(computing).map_err(io::Error::other)?;
    let mut decoder = Decoding::new(format.decoder());
    while let Some(order) = next_order(socket)? {
        let reply = decoder.follow(&mut mapped, order);
        rustix::io::write(socket, &reply.encode())?;
    }
    Ok(())
}

/// A stream that is decompressed.
///
/// Orders may be sent ahead. Each is about at most one part of the input and one of the output: what
/// is given for the order lies in the next part of the output, and unless there is more of it
/// (`has_more`), the oldest part of the input is done, if there is any.
struct Decoding {
    codec: Box<dyn Codec>,
    /// Bytes of the parts of the input that were not taken yet.
    rest: VecDeque<Range<usize>>,
    next_input: usize,
    next_output: usize,
    is_last: bool,
    /// What it fails with once the bytes before that are passed on.
    error: Option<StageError>,
}

impl Decoding {
    fn new(codec: Box<dyn Codec>) -> Decoding {
        Decoding { codec, rest: VecDeque::new(), next_input: 0, next_output: 0, is_last: false, error: None }
    }

    /// Takes new bytes if there are any, and makes others of those that it has.
    fn follow(&mut self, area: &mut Area, order: Order) -> Reply {
        let len = usize::try_from(order.len).expect("a length of memory");
        if len > 0 {
            let start = self.next_input * INPUT_PART_BYTES;
            self.rest.push_back(start..start + len.min(INPUT_PART_BYTES));
            self.next_input = (self.next_input + 1) % INPUTS;
        }
        self.is_last |= order.is_last;
        let at = self.next_output * OUTPUT_PART_BYTES;
        self.next_output = (self.next_output + 1) % OUTPUTS;
        // SAFETY: the other process writes to no part of the input of which it was not told that it
        // is done, and reads no part of the output that it has ordered something for.
        let (from, to) = unsafe { area.parts() };
        let to = &mut to[at..at + OUTPUT_PART_BYTES];
        let mut made = 0;
        let stopped = match self.error.take() {
            Some(error) => Err(error),
            None => self.make(from, to, &mut made),
        };
        let has_ended = matches!(stopped, Ok(true));
        if let Err(error) = stopped {
            if made == 0 {
                return area.failed(error.to_string().as_bytes());
            }
            self.error = Some(error);
        }
        let has_more = !has_ended && (self.error.is_some() || made == OUTPUT_PART_BYTES);
        if !has_more {
            self.rest.pop_front();
        }
        Reply::Given { range: INPUT_BYTES + at..INPUT_BYTES + at + made, has_more, has_ended }
    }

    /// Makes what there is room for of the first part of the input. True once all is done.
    fn make(&mut self, from: &[u8], to: &mut [u8], made: &mut usize) -> Result<bool, StageError> {
        let is_last = self.is_last && self.rest.len() <= 1;
        let mut none = 0..0;
        let rest = self.rest.front_mut().unwrap_or(&mut none);
        while *made < to.len() {
            let bytes = &from[rest.clone()];
            if bytes.is_empty() && !is_last {
                break;
            }
            let step = self.codec.step(bytes, is_last, &mut to[*made..])?;
            rest.start += step.taken;
            *made += step.made;
            if step.is_done {
                return Ok(true);
            }
            if step.taken == 0 && step.made == 0 && is_last {
                return Err(cut_off());
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stages::codecs::Step;

    /// Gives each byte twice, and fails at a zero.
    struct Twice;

    impl Codec for Twice {
        fn step(&mut self, input: &[u8], is_last: bool, output: &mut [u8]) -> Result<Step, StageError> {
            let taken = input.len().min(output.len() / 2).min(1000);
            if input[..taken].contains(&0) {
                return Err(StageError::data("a zero"));
            }
            for (to, byte) in output.chunks_exact_mut(2).zip(&input[..taken]) {
                to.fill(*byte);
            }
            Ok(Step { taken, made: 2 * taken, is_done: is_last && taken == input.len() })
        }
    }

    #[test]
    fn what_is_ordered_ahead_lies_elsewhere_and_errors_come_after_what_was_made() {
        let (mut area, _file) = Area::new().unwrap();
        let mut decoding = Decoding::new(Box::new(Twice));
        let mut input = vec![b'x'; INPUT_BYTES];
        input[INPUT_BYTES - 1] = 0;
        area.put(0, &input);
        let len = u32::try_from(INPUT_PART_BYTES).unwrap();
        let (mut made, mut before, mut done, mut orders) = (0, VecDeque::new(), 0, 0);
        let said = loop {
            let is_new = orders < INPUTS;
            orders += 1;
            match decoding.follow(&mut area, Order { len: if is_new { len } else { 0 }, is_last: false }) {
                Reply::Given { range, has_more, .. } => {
                    assert!(!before.contains(&range.start), "it may still be copied");
                    assert!(area.copy(range.clone()).iter().all(|byte| *byte == b'x'));
                    made += range.len();
                    done += usize::from(!has_more);
                    before.push_back(range.start);
                    before.drain(..before.len().saturating_sub(OUTPUTS - 1));
                }
                Reply::Failed { range } => break area.copy(range),
            }
        };
        assert_eq!((&said[..], done), (&b"a zero"[..], 1));
        assert!(made > 2 * (INPUT_BYTES - 1001), "{made}");
    }
}
