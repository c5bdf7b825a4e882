//! Decoders in processes of their own, as this process sees them.
//!
//! Each works for one owner of links, on one stream after the other, and ends when it has waited
//! too long for the next: bytes of one user's links meet none of another's. One that fails, is late
//! or makes no sense is ended at once. Some wait that have no owner yet; those have seen no byte.
//!
//! The memory that one may have counts for the network that it works for, and for its owner while
//! it waits. It begins with little, and asks before it takes more; the kernel gives it no more than
//! was counted, whatever it does (`RLIMIT_AS`).
//!
//! Locks: nobody holds two of those here, but for that of the shares, which is taken last. That of
//! the nursery may be taken by the thread that starts processes, so nobody who holds it waits for
//! that thread.

use super::channel::Broken;
use super::nursery::{LIMIT, Message, READY, REFUSED, WANTED, WORD, receive, transmit};
use super::rings::{Feed, here};
use super::worker;
use crate::account::{Account, InMemory};
use crate::exported::library::{later, wait_for};
use crate::stage::StageError;
use crate::stages::codecs::Format;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};
use rustix::process::{Signal, pidfd_send_signal};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

/// Decoders at once, at most: those that somebody is in the middle of, and those that wait; and
/// those of one owner.
const DECODERS_MAX: usize = 128;
const OF_ONE_MAX: usize = 64;

/// Decoders that wait for further streams, at most, in all and of one owner, and for how long.
const WARM_MAX: usize = 16;
const WARM_OF_ONE_MAX: usize = 4;
const WARM_TIME: Duration = Duration::from_secs(10);

/// Time after which a decoder gets no further stream.
const USED_TIME: Duration = Duration::from_mins(1);

/// Decoders that wait for an owner, and for how long.
const SPARE_MAX: usize = 3;
const SPARE_TIME: Duration = Duration::from_mins(1);

/// Bytes of memory that one may have beyond what it begins with: formats have bounds below that.
const MEMORY_BYTES: u32 = 192 << 20;

/// Parts of that memory: bytes for the rings and the allocator, and bytes that a stream may take
/// without asking.
const BESIDE_BYTES: u32 = 4 << 20;
const FREE_BYTES: u32 = 1 << 20;

/// Bytes of memory that one begins with.
pub(super) const BEGINNING_BYTES: u32 = BESIDE_BYTES + FREE_BYTES;

/// Bytes of memory that a stream is given at once, if there are so many.
const GRANTED_BYTES: u32 = 4 << 20;

/// Bytes of memory that streams of a decoder may take which waits for further ones, at most: so
/// much counts for its owner meanwhile.
const WARM_BYTES: u32 = 12 << 20;

/// Time in which one must have taken or made something, if it can.
const CALL: Duration = Duration::from_mins(1);

/// Time that starting and copying the nursery may take.
const STARTING: Duration = Duration::from_secs(10);

/// Tells why decoders run in this process and not in confined ones of their own; none if they do
/// not.
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

/// One of all decoders that there may be, and of those of an owner once it has one.
struct Share(Option<u32>);

struct Shares {
    all: usize,
    of: BTreeMap<u32, usize>,
}

static SHARES: Mutex<Shares> = Mutex::new(Shares { all: 0, of: BTreeMap::new() });

impl Share {
    fn one() -> Option<Share> {
        let mut shares = SHARES.lock();
        (shares.all < DECODERS_MAX).then(|| {
            shares.all += 1;
            Share(None)
        })
    }

    /// Counts it as one of `owner`'s. False if that one has enough.
    fn give(&mut self, owner: u32) -> bool {
        let mut shares = SHARES.lock();
        let of = shares.of.entry(owner).or_default();
        let is_given = *of < OF_ONE_MAX;
        if is_given {
            *of += 1;
            self.0 = Some(owner);
        }
        is_given
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut shares = SHARES.lock();
        shares.all -= 1;
        if let Some(owner) = self.0
            && let Some(of) = shares.of.get_mut(&owner)
        {
            *of -= 1;
            if *of == 0 {
                shares.of.remove(&owner);
            }
        }
    }
}

/// A process that decompresses streams of one owner. It ends when this goes.
pub(in crate::exported) struct Decoder {
    feed: Feed,
    process: OwnedFd,
    /// The processor where its last stream began.
    processor: usize,
    /// Since when it has an owner.
    used: Option<Instant>,
    /// The number of the process.
    number: u32,
    /// Bytes of memory that its streams may take, and what counts for that once it has an owner.
    granted: u32,
    memory: Option<InMemory>,
    share: Share,
}

impl Drop for Decoder {
    fn drop(&mut self) {
        // It may have ended.
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
    }
}

impl Decoder {
    pub(in crate::exported) fn feed(&mut self) -> &mut Feed {
        &mut self.feed
    }

    /// Waits until the process has done something.
    pub(in crate::exported) fn wait(&mut self) -> Result<(), Broken> {
        self.feed.wait(&self.process, CALL)
    }

    /// Lets the stream take `bytes` of memory. `Memory` if those are too many.
    pub(in crate::exported) fn grant(&mut self, bytes: usize) -> Result<(), StageError> {
        let most = MEMORY_BYTES - BESIDE_BYTES;
        let bytes = u32::try_from(bytes).ok().filter(|bytes| *bytes <= most);
        let bytes = bytes.ok_or_else(|| Decoder::failure(Broken::Nonsense))?;
        let memory = self.memory.as_mut().ok_or(StageError::Memory)?;
        let granted = [bytes.next_multiple_of(GRANTED_BYTES).min(most), bytes];
        let granted = granted.into_iter().find(|granted| count(memory, *granted)).ok_or(StageError::Memory)?;
        // Its number may be another process's once it has ended.
        if self.has_ended() {
            return Err(Decoder::failure(Broken::Ended));
        }
        limit(self.number, BESIDE_BYTES + granted)?;
        self.granted = granted;
        self.feed.grant(granted);
        Ok(())
    }

    /// Counts the memory that it may have for the network that this thread runs. None if it has
    /// too much for that.
    fn counted(mut self) -> Option<Decoder> {
        self.memory = None;
        let mut memory = Account::now().memory();
        count(&mut memory, self.granted).then(|| {
            self.memory = Some(memory);
            self
        })
    }

    /// Returns the error for an order that is not answered.
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

/// Counts the memory of a decoder whose stream may take `granted` bytes. Those that wait are worth
/// less, of whomever they are.
fn count(memory: &mut InMemory, granted: u32) -> bool {
    let bytes = (BESIDE_BYTES + granted) as usize;
    memory.raise(bytes) || {
        let waiting = std::mem::take(&mut *WARM.lock());
        let were_some = !waiting.is_empty();
        drop(waiting);
        were_some && memory.raise(bytes)
    }
}

/// Lets the process of this number have so many bytes of memory beyond what it began with.
fn limit(number: u32, bytes: u32) -> Result<(), StageError> {
    let mut nursery = NURSERY.lock();
    let limited = nursery.as_ref().map(|nursery| nursery.limit(number, bytes));
    match limited {
        Some(Ok(true)) => Ok(()),
        // A process that is gone has ended with the one before.
        Some(Ok(false)) | None => Err(Decoder::failure(Broken::Ended)),
        Some(Err(error)) => {
            *nursery = None;
            Err(unusable(error))
        }
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
    fn decoder(&self, share: Share) -> io::Result<Option<Decoder>> {
        let (feed, memory) = Feed::new()?;
        let (answer, files) = self.ask(Message { kind: WANTED, ..Message::default() }, &[memory.as_fd()])?;
        let process = files.into_iter().next().filter(|_| answer.kind != REFUSED);
        let (number, granted, memory) = (answer.process, FREE_BYTES, None);
        let decoder =
            |process| Decoder { feed, process, processor: usize::MAX, used: None, number, granted, memory, share };
        Ok(process.map(decoder))
    }

    /// Lets a process of that number have so many bytes of memory; false if there is none.
    fn limit(&self, number: u32, bytes: u32) -> io::Result<bool> {
        let (answer, _) = self.ask(Message { kind: LIMIT, process: number, bytes }, &[])?;
        Ok(answer.kind == READY)
    }

    fn ask(&self, message: Message, files: &[BorrowedFd<'_>]) -> io::Result<(Message, Vec<OwnedFd>)> {
        transmit(&self.control, message, files)?;
        receive(&self.control)?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

/// A decoder that waits for a stream since then.
struct Waiting {
    decoder: Decoder,
    since: Instant,
}

impl Waiting {
    fn new(decoder: Decoder) -> Waiting {
        Waiting { decoder, since: Instant::now() }
    }

    fn is_of(&self, owner: u32) -> bool {
        self.decoder.share.0 == Some(owner)
    }
}

/// Those that have seen no byte, and belong to nobody.
static SPARE: Mutex<Vec<Waiting>> = Mutex::new(Vec::new());

/// Those that have decompressed streams of links of their owner, and do so for nobody else.
static WARM: Mutex<Vec<Waiting>> = Mutex::new(Vec::new());

/// A decoder for a stream of this format, of a link of `owner`.
pub(in crate::exported) fn take(format: Format, owner: u32) -> Result<Decoder, StageError> {
    let processor = here();
    let mut decoder = match warm(owner, processor).and_then(Decoder::counted) {
        Some(decoder) => decoder,
        None => {
            let mut memory = Account::now().memory();
            if !count(&mut memory, FREE_BYTES) {
                return Err(StageError::Memory);
            }
            let mut decoder = match spare(owner) {
                Some(decoder) => decoder,
                None => new(owner)?,
            };
            // Without it the next one only takes longer.
            later(prepare);
            decoder.memory = Some(memory);
            decoder
        }
    };
    decoder.processor = processor;
    decoder.used.get_or_insert_with(Instant::now);
    decoder.feed.begin(format, processor, decoder.granted);
    Ok(decoder)
}

/// Has a decoder wait for further streams of its owner; its last one need not be done.
pub(in crate::exported) fn give_back(decoder: Decoder) {
    let Some(owner) = decoder.share.0 else { return };
    // Links that are gone have no owner, and nothing in common.
    let is_large = decoder.granted > WARM_BYTES;
    if owner == u32::MAX || is_large || decoder.used.is_none_or(|used| used.elapsed() > USED_TIME) {
        return;
    }
    if !decoder.feed.is_free() {
        decoder.feed.stop();
    }
    let mut warm = WARM.lock();
    let of_owner = |waiting: &Waiting| waiting.is_of(owner);
    let is_first = warm.is_empty();
    let oldest = if warm.iter().filter(|waiting| of_owner(waiting)).count() >= WARM_OF_ONE_MAX {
        warm.iter().position(of_owner)
    } else {
        (warm.len() >= WARM_MAX).then_some(0)
    };
    let gone = oldest.map(|oldest| warm.remove(oldest));
    warm.push(Waiting::new(decoder));
    drop(warm);
    drop(gone);
    if is_first {
        // That thread looks more often from now on whether one has waited long enough.
        later(|| ());
    }
}

/// One that has decompressed for `owner` before, and is there and free: of several the last that
/// began on this processor.
fn warm(owner: u32, processor: usize) -> Option<Decoder> {
    loop {
        let mut warm = WARM.lock();
        let is_free = |waiting: &Waiting| waiting.is_of(owner) && waiting.decoder.feed.is_free();
        let at = warm
            .iter()
            .rposition(|waiting| waiting.decoder.processor == processor && is_free(waiting))
            .or_else(|| warm.iter().rposition(is_free))?;
        let decoder = warm.remove(at).decoder;
        drop(warm);
        if !decoder.has_ended() {
            return Some(decoder);
        }
    }
}

/// One that has seen no byte, for `owner`; none if there is none, or that one has enough.
fn spare(owner: u32) -> Option<Decoder> {
    loop {
        let mut decoder = SPARE.lock().pop()?.decoder;
        if decoder.has_ended() {
            continue;
        }
        if decoder.share.give(owner) {
            return Some(decoder);
        }
        SPARE.lock().push(Waiting::new(decoder));
        return None;
    }
}

/// A share of `owner`'s. Processes that wait are worth less than one that is wanted.
fn share(owner: u32) -> Result<Share, StageError> {
    let busy = |count, whose| StageError::Busy(format!("{count} streams{whose} are decompressed already"));
    let share = Share::one().or_else(|| {
        let spare = std::mem::take(&mut *SPARE.lock());
        let warm = std::mem::take(&mut *WARM.lock());
        drop((spare, warm));
        Share::one()
    });
    let mut share = share.ok_or_else(|| busy(DECODERS_MAX, ""))?;
    if !share.give(owner) {
        let waiting: Vec<Waiting> = WARM.lock().extract_if(.., |waiting| waiting.is_of(owner)).collect();
        drop(waiting);
        if !share.give(owner) {
            return Err(busy(OF_ONE_MAX, " of this owner"));
        }
    }
    Ok(share)
}

/// A new one for `owner`.
fn new(owner: u32) -> Result<Decoder, StageError> {
    let mut error = None;
    // The nursery may have ended since it was last asked.
    for _ in 0..3 {
        match copy(share(owner)?) {
            Some(Ok(made)) => return made.ok_or_else(|| StageError::Busy("there can be no more processes".into())),
            Some(Err(ended)) => error = Some(ended),
            None => {}
        }
        start()?;
    }
    Err(error.map_or_else(|| lost("the process that decoders come from has ended"), unusable))
}

/// A decoder from the nursery; none if there is no nursery. One that fails is there no more.
fn copy(share: Share) -> Option<io::Result<Option<Decoder>>> {
    let mut nursery = NURSERY.lock();
    let made = nursery.as_ref()?.decoder(share);
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

/// Has as many wait that have seen no byte as may.
fn prepare() {
    let gone: Vec<Waiting> = SPARE.lock().extract_if(.., |waiting| waiting.decoder.has_ended()).collect();
    drop(gone);
    while SPARE.lock().len() < SPARE_MAX {
        match Share::one().and_then(copy) {
            Some(Ok(Some(decoder))) => SPARE.lock().push(Waiting::new(decoder)),
            _ => return,
        }
    }
}

/// Ends decoders that have waited long enough. Tells when to do that again, if there are others.
pub(in crate::exported) fn drop_old() -> Option<Duration> {
    let is_old = |time: Duration| move |waiting: &mut Waiting| waiting.since.elapsed() > time;
    let warm: Vec<Waiting> = WARM.lock().extract_if(.., is_old(WARM_TIME)).collect();
    let spare: Vec<Waiting> = SPARE.lock().extract_if(.., is_old(SPARE_TIME)).collect();
    drop((warm, spare));
    (!WARM.lock().is_empty()).then_some(WARM_TIME / 2)
}
