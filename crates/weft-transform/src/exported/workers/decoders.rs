//! Decoders in processes of their own, as this process sees them.
//!
//! Each works on one stream and then ends: what one user's bytes have made of it meets nobody
//! else's. Some wait for streams that have not begun yet; those have seen no byte.
//!
//! Locks: that of the nursery may be taken by the thread that starts processes, so nobody who holds
//! it waits for that thread.

use super::channel::{Broken, Channel};
use super::message::Reply;
use super::nursery::{READY, REFUSED, WORD, receive, transmit};
use super::worker;
use crate::exported::library::{later, wait_for};
use crate::stage::StageError;
use crate::stages::codecs::Format;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};
use rustix::process::{Signal, pidfd_send_signal};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

/// Decoders at once, at most: those that somebody is in the middle of, and those that wait.
const DECODERS_MAX: usize = 128;

/// Bytes of memory that one may have beyond what it begins with: formats have bounds below that.
const MEMORY_BYTES: usize = 192 << 20;

/// Time for one order: that is for 128 KiB, or for as much of the input.
const CALL: Duration = Duration::from_mins(1);

/// Time that starting and copying the nursery may take.
const STARTING: Duration = Duration::from_secs(10);

/// Decoders of one format that wait for a stream.
const SPARE_MAX: usize = 3;

/// Tells why decoders run in this process and not in confined ones of their own; none if they do not.
pub fn why_unconfined() -> Option<&'static str> {
    static KERNEL: LazyLock<Option<&str>> = LazyLock::new(|| {
        const LANDLOCK_CREATE_RULESET_VERSION: libc::c_long = 1;
        const SECCOMP_GET_ACTION_AVAIL: libc::c_long = 2;
        let nothing = std::ptr::null::<u8>();
        let action = libc::SECCOMP_RET_ERRNO;
        // SAFETY: the first only tells a number; the second reads `action`.
        let (landlock, seccomp) = unsafe {
            let version = LANDLOCK_CREATE_RULESET_VERSION;
            let landlock = libc::syscall(libc::SYS_landlock_create_ruleset, nothing, 0_usize, version);
            let seccomp = libc::syscall(libc::SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0_usize, &raw const action);
            (landlock, seccomp)
        };
        match (landlock >= 1, seccomp == 0) {
            (false, _) => Some("the kernel has no Landlock"),
            (_, false) => Some("the kernel has no seccomp filters"),
            (true, true) => None,
        }
    });
    worker::program().map_or(Some("this program cannot run as another process"), |_| *KERNEL)
}

/// One of all that there may be.
struct Share(());

static ALL: AtomicUsize = AtomicUsize::new(0);

impl Share {
    fn one() -> Option<Share> {
        let more = |all: usize| (all < DECODERS_MAX).then_some(all + 1);
        ALL.try_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Share(()))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        ALL.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A process that decompresses one stream. It ends when this goes.
pub(in crate::exported) struct Decoder {
    channel: Channel,
    process: OwnedFd,
    _share: Share,
}

impl Drop for Decoder {
    fn drop(&mut self) {
        // It may have ended.
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
    }
}

impl Decoder {
    pub(in crate::exported) fn channel(&self) -> &Channel {
        &self.channel
    }

    /// The answer to the last order.
    pub(in crate::exported) fn reply(&self) -> Result<Reply, Broken> {
        self.channel.reply(CALL)
    }

    /// What an order comes to that is not answered.
    pub(in crate::exported) fn failure(broken: Broken) -> StageError {
        match broken {
            Broken::Ended => lost("the decoder's process has ended before its work"),
            Broken::Nonsense => lost("the decoder's process answers what makes no sense"),
            Broken::Late => StageError::Idle(CALL),
            Broken::Stopped => StageError::Paused,
            Broken::Unusable(error) => unusable(error),
        }
    }

    fn has_ended(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&self.process, PollFlags::IN)], Some(&now)) != Ok(0)
    }
}

fn lost(why: impl Into<String>) -> StageError {
    StageError::Lost(why.into())
}

fn unusable(error: impl Into<io::Error>) -> StageError {
    lost(format!("the process of a decoder cannot be used: {}", error.into()))
}

/// The process that decoders come from. It ends when this goes.
struct Nursery {
    child: Option<Child>,
    control: OwnedFd,
}

static NURSERY: Mutex<Option<Nursery>> = Mutex::new(None);

impl Drop for Nursery {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended.
            let _ = child.kill();
            wait_for(child);
        }
    }
}

impl Nursery {
    /// Starts one. Only the thread that starts processes may: when a thread ends, processes that it
    /// began are ended with it.
    fn start() -> Result<Nursery, StageError> {
        let program = worker::program().ok_or_else(|| lost("this program cannot run as another process"))?;
        let (control, other) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).map_err(unusable)?;
        set_socket_timeout(&control, Timeout::Recv, Some(STARTING)).map_err(unusable)?;
        let mut command = Command::new(program);
        command.args([WORD, &MEMORY_BYTES.to_string()]).env_clear().current_dir("/").process_group(0);
        command.stdin(Stdio::from(other)).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|error| lost(format!("cannot start a process: {error}")))?;
        let nursery = Nursery { child: Some(child), control };
        let mut said = [0; 512];
        let (count, _) = recv(&nursery.control, &mut said[..], RecvFlags::empty()).map_err(unusable)?;
        match said[..count].split_first() {
            Some((&READY, _)) => Ok(nursery),
            Some((_, why)) => Err(lost(String::from_utf8_lossy(why).into_owned())),
            None => Err(lost("the process that decoders come from has ended")),
        }
    }

    /// A new decoder. None if there can be no more processes.
    fn decoder(&self, format: Format, share: Share) -> io::Result<Option<Decoder>> {
        let (channel, socket, memory) = Channel::new()?;
        transmit(&self.control, format.number(), &[socket.as_fd(), memory.as_fd()])?;
        let Some((kind, files)) = receive(&self.control)? else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let process = files.into_iter().next().filter(|_| kind != REFUSED);
        Ok(process.map(|process| Decoder { channel, process, _share: share }))
    }
}

/// A decoder that has waited for a stream since then.
struct Spare {
    format: Format,
    decoder: Decoder,
    since: Instant,
}

static SPARE: Mutex<Vec<Spare>> = Mutex::new(Vec::new());

/// A decoder for a stream of this format.
pub(in crate::exported) fn take(format: Format) -> Result<Decoder, StageError> {
    let spare = loop {
        let mut spare = SPARE.lock();
        let at = spare.iter().position(|spare| spare.format == format);
        match at.map(|at| spare.remove(at).decoder) {
            Some(decoder) if decoder.has_ended() => {}
            taken => break taken,
        }
    };
    let decoder = spare.map_or_else(|| new(format), Ok)?;
    // Without it the next one only takes longer.
    later(move || prepare(format));
    Ok(decoder)
}

fn new(format: Format) -> Result<Decoder, StageError> {
    let share = Share::one().or_else(|| {
        // A process that waits is worth less than one that is wanted.
        drop(std::mem::take(&mut *SPARE.lock()));
        Share::one()
    });
    let too_many = || StageError::Busy(format!("{DECODERS_MAX} streams are decompressed already"));
    let mut share = Some(share.ok_or_else(too_many)?);
    let mut error = None;
    // One may have ended since it was last asked.
    for _ in 0..2 {
        let made = copy(format, &mut share);
        match made {
            Some(Ok(made)) => return made.ok_or_else(|| StageError::Busy("there can be no more processes".into())),
            Some(Err(ended)) => error = Some(ended),
            None => {}
        }
        if share.is_none() {
            share = Some(Share::one().ok_or_else(too_many)?);
        }
        start()?;
    }
    match copy(format, &mut share) {
        Some(Ok(made)) => made.ok_or_else(|| StageError::Busy("there can be no more processes".into())),
        _ => Err(error.map_or_else(|| lost("the process that decoders come from has ended"), unusable)),
    }
}

/// A decoder from the nursery; none if there is no nursery. One that fails is there no more.
fn copy(format: Format, share: &mut Option<Share>) -> Option<io::Result<Option<Decoder>>> {
    let mut nursery = NURSERY.lock();
    let made = nursery.as_ref()?.decoder(format, share.take()?);
    if made.is_err() {
        *nursery = None;
    }
    Some(made)
}

/// Has a nursery be there.
fn start() -> Result<(), StageError> {
    let (sender, receiver) = sync_channel(1);
    let begun = later(move || {
        let mut nursery = NURSERY.lock();
        let started = match &*nursery {
            Some(_) => Ok(()),
            None => Nursery::start().map(|started| *nursery = Some(started)),
        };
        drop(nursery);
        // The thread that wanted it may be gone.
        let _ = sender.send(started);
    });
    let stopped = || lost("there is no thread to start processes");
    if !begun {
        return Err(stopped());
    }
    receiver.recv().map_err(|_| stopped())?
}

/// Has as many wait for streams of this format as may.
fn prepare(format: Format) {
    let waiting = || SPARE.lock().iter().filter(|spare| spare.format == format).count();
    while waiting() < SPARE_MAX {
        let mut share = Share::one();
        match copy(format, &mut share) {
            Some(Ok(Some(decoder))) => SPARE.lock().push(Spare { format, decoder, since: Instant::now() }),
            _ => return,
        }
    }
}

/// Ends decoders that have waited longer than `time`.
pub(in crate::exported) fn drop_old(time: Duration) {
    let old: Vec<Spare> = SPARE.lock().extract_if(.., |spare| spare.since.elapsed() > time).collect();
    drop(old);
}
