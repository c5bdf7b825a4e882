//! The way to a confined process: a socket for messages, and the memory that both share.

use super::area::Area;
use super::message::{BYTES, Order, Reply};
use crate::interrupt::{PERIOD, is_interrupted};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Time that the socket itself waits for an answer, before anything else is looked at.
pub(in crate::exported) const SOON: Duration = Duration::from_millis(1);

/// Reason why there is no answer.
#[derive(Debug)]
pub(in crate::exported) enum Broken {
    /// The process has closed its end, or has ended.
    Ended,
    /// It has not answered within the time.
    Late,
    /// Nobody waits for it any more. It may still answer.
    Stopped,
    /// Its answer makes no sense.
    Nonsense,
    Unusable(io::Error),
}

impl From<Errno> for Broken {
    fn from(error: Errno) -> Broken {
        match error {
            Errno::PIPE | Errno::CONNRESET => Broken::Ended,
            error => Broken::Unusable(error.into()),
        }
    }
}

/// This end of it.
pub(in crate::exported) struct Channel {
    socket: OwnedFd,
    area: Area,
}

impl Channel {
    /// A new one, and the socket and the memory for the other end.
    pub(in crate::exported) fn new() -> io::Result<(Channel, OwnedFd, OwnedFd)> {
        let (area, memory) = Area::new()?;
        let (socket, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(SOON))?;
        Ok((Channel { socket, area }, other, memory))
    }

    pub(in crate::exported) fn area(&self) -> &Area {
        &self.area
    }

    /// Has the process do something with the first `len` bytes of the memory.
    pub(in crate::exported) fn order(&self, len: usize, is_last: bool) -> Result<(), Broken> {
        let order = Order { len: u32::try_from(len).expect("fits into the area"), is_last };
        send(&self.socket, &order.encode(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
        Ok(())
    }

    /// The answer, if it comes within `time`.
    pub(in crate::exported) fn reply(&self, time: Duration) -> Result<Reply, Broken> {
        let begun = Instant::now();
        let mut bytes = [0; BYTES];
        loop {
            match recv(&self.socket, &mut bytes[..], RecvFlags::empty()) {
                Ok((0, _)) => return Err(Broken::Ended),
                Ok((count, _)) => return Reply::decode(&bytes[..count]).ok_or(Broken::Nonsense),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let left = time.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Err(Broken::Late);
            }
            self.wait(left)?;
        }
    }

    /// Waits for an answer, or so long, or a while.
    fn wait(&self, time: Duration) -> Result<(), Broken> {
        let time = time.min(PERIOD);
        let time = Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: time.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&time)) {
            Ok(0) if is_interrupted() => Err(Broken::Stopped),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// The next order that comes by `socket`, in the process that does it. None at the end.
pub(in crate::exported) fn next_order(socket: impl AsFd) -> io::Result<Option<Order>> {
    let mut bytes = [0; BYTES];
    let count = rustix::io::retry_on_intr(|| rustix::io::read(&socket, &mut bytes[..]))?;
    Ok(Order::decode(&bytes[..count]))
}
