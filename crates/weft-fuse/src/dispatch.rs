//! Translates each request to the operation it asks for, and the result to the reply.

mod closed;
mod content;
mod directories;
mod entries;
mod init;
mod inodes;
mod leaving;
mod links;
mod locks;
mod opens;
mod past;
mod personal;
mod privileges;
mod pushed;
mod refusing;
#[cfg(test)]
mod tests;
mod xattrs;

pub(crate) use init::WANTED;
pub use refusing::{REFUSE_CHANGES, TAKE_CHANGES};

use crate::latency_guard::LatencyGuard;
use crate::notify::Notifier;
use crate::options::{LockKeeper, SessionOptions};
use crate::protocol::arguments::Read;
use crate::protocol::{Body, CutShort, Header, Offer, Opcode, Reply, Request};
use crate::transport::handler::{Handler, Served, Via};
use crate::transport::scheduling::Scheduling;
use closed::Door;
use links::Forgetting;
use locks::{MountLocks, OnConflict};
use parking_lot::Mutex;
use personal::PersonalNodes;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use weft_links::WithLinks;
use weft_vfs::{
    Asker, Caller, Error, ErrorKind, Holds, Ino, Latency, LatencyHistogram, Nonces, Observer, Requester, Vfs, WorkBy,
    set_requester,
};

/// Reason that a request fails.
pub(crate) enum Failure {
    /// The operation failed.
    Vfs(Error),
    /// This errno.
    Errno(i32),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Vfs(error)
    }
}

impl From<CutShort> for Failure {
    fn from(_: CutShort) -> Failure {
        Failure::Errno(libc::EINVAL)
    }
}

impl Failure {
    pub(crate) fn errno(&self) -> i32 {
        match self {
            Failure::Vfs(error) => error.errno(),
            Failure::Errno(errno) => *errno,
        }
    }
}

pub(crate) type Outcome = Result<(), Failure>;

/// Serves requests of one mount.
pub(crate) struct Server {
    pub(crate) vfs: Arc<Vfs>,
    options: SessionOptions,
    latency_guard: Option<LatencyGuard>,
    /// Seats for the threads that serve, if they take the idle policy.
    scheduling: Option<Scheduling>,
    /// Tells the kernel of changes that it cannot infer.
    notifier: OnceLock<Arc<Notifier>>,
    /// Locks of programs, if the volume keeps them.
    locks: Option<MountLocks>,
    /// True if the volume has links that need to know of opens.
    opens: bool,
    /// True if several users share the mount.
    pub(crate) is_shared: AtomicBool,
    /// True once the next mount will report opens, because links are closed for lack of that.
    has_asked_for_opens: AtomicBool,
    /// Openers of links that are read past the page cache or written, by the number of the open.
    openers: Mutex<HashMap<u64, Asker>>,
    /// Number of opens so far.
    opened: AtomicU64,
    /// Links that are open to be written as a whole, by the number of the open.
    drafts: Mutex<HashMap<u64, Ino>>,
    /// Nonces that prove that a program means to control the volume; none if there is no
    /// randomness.
    nonces: Option<Nonces>,
    links: Arc<Forgetting>,
    personal: PersonalNodes,
    /// True if requests come over io_uring.
    over_rings: AtomicBool,
    /// True if another daemon has taken the volume, so this one answers nothing any more.
    has_left: AtomicBool,
    /// True if the kernel can forget all names at once.
    forgets_names: AtomicBool,
    /// Bytes of content given to the kernel, which copies them.
    bytes_given: AtomicU64,
    /// Time that requests take, by opcode.
    latencies: Box<[LatencyHistogram]>,
    /// Requests by the process that makes them.
    processes: WorkBy<u32>,
}

impl Handler for Server {
    fn options(&self) -> &SessionOptions {
        &self.options
    }

    fn scheduling(&self) -> Option<&Scheduling> {
        self.scheduling.as_ref()
    }

    fn waits_for_network(&self) -> bool {
        self.vfs.may_be_taken()
    }

    fn init(&self, offer: &Offer, via: Via, reply: &mut Reply) -> Result<(), i32> {
        Server::init(self, offer, via, reply).map_err(|failure| failure.errno())
    }

    fn begins(&self, via: Via) {
        self.over_rings.store(via == Via::Rings, Ordering::Relaxed);
    }

    fn serve(&self, request: &Request<'_>, reply: &mut Reply) -> Served {
        self.serve_request(request, reply)
    }

    fn interrupted(&self, unique: u64) {
        self.end_computing(unique);
    }

    fn ended(&self) {
        // Threads that compute are waited for.
        if let Ok(links) = self.vfs.links() {
            links.stop_computing(true);
        }
    }
}

impl Server {
    pub(crate) fn new(
        vfs: Arc<Vfs>,
        options: SessionOptions,
        latency_guard: Option<LatencyGuard>,
        scheduling: Option<Scheduling>,
    ) -> Server {
        let opens = vfs
            .wants_opens()
            .inspect_err(|error| tracing::warn!("cannot tell whether links want to know of opens: {error}"));
        // Without links nothing follows from opens.
        let opens = vfs.links().is_ok() && (options.opens || opens.unwrap_or(false));
        if opens {
            vfs.tells_of_opens();
        }
        let locks = (options.locks == LockKeeper::Volume).then(|| MountLocks::new(vfs.clone()));
        Server {
            vfs,
            options,
            latency_guard,
            scheduling,
            notifier: OnceLock::new(),
            locks,
            opens,
            is_shared: AtomicBool::new(true),
            has_asked_for_opens: AtomicBool::new(false),
            openers: Mutex::default(),
            opened: AtomicU64::new(1),
            drafts: Mutex::default(),
            nonces: Nonces::new().ok(),
            links: Arc::default(),
            personal: PersonalNodes::default(),
            over_rings: AtomicBool::new(false),
            has_left: AtomicBool::new(false),
            forgets_names: AtomicBool::new(false),
            bytes_given: AtomicU64::new(0),
            latencies: (0..64).map(|_| LatencyHistogram::default()).collect(),
            processes: WorkBy::default(),
        }
    }

    /// Sets the notifier that tells the kernel of changes, also of those made outside this mount.
    /// Once.
    pub(crate) fn set_notifier(&self, notifier: Notifier) {
        let notifier = Arc::new(notifier);
        let observer: Arc<dyn Observer> = notifier.clone();
        self.vfs.observe(&observer);
        // Without it the kernel keeps nothing of links.
        if self.links.tell_through(notifier.clone()).is_ok() {
            let links: Arc<dyn Observer> = self.links.clone();
            self.vfs.observe(&links);
            notifier.leave_all();
        }
        // A second one would be for the same mount.
        let _ = self.notifier.set(notifier);
    }

    /// Makes the kernel ask for the attributes of `ino` again.
    fn attributes_changed(&self, ino: Ino) {
        if let Some(notifier) = self.notifier.get() {
            notifier.attributes_changed(ino);
        }
    }

    /// Returns the time that requests took so far, by the name of what they ask for.
    pub(crate) fn latencies(&self) -> impl Iterator<Item = (&'static str, Latency)> + '_ {
        let all = Opcode::ALL.iter().map(|opcode| (opcode.name(), self.latencies[*opcode as usize].latency()));
        all.filter(|(_, latency)| latency.count() > 0)
    }

    fn serve_request(&self, request: &Request<'_>, reply: &mut Reply) -> Served {
        if let Some(latency_guard) = &self.latency_guard {
            latency_guard.request_came();
        }
        let begun = Instant::now();
        reply.begin();
        let header = request.header;
        let Some(opcode) = Opcode::from_number(header.opcode) else {
            reply.finish(header.unique, libc::ENOSYS);
            return Served::Done;
        };
        set_requester(Requester {
            user: weft_vfs::whose(header.uid),
            thread: (header.pid != 0).then_some(header.pid),
            number: Some(header.unique),
            host: None,
        });
        let (outcome, outdated) = links::outdating(|| {
            self.refuse_left(opcode)?;
            self.dispatch(opcode, &header, request.body, reply)
        });
        self.links.settle_soon(&self.vfs, Ino(header.nodeid), &outdated);
        let errno = match outcome {
            Ok(()) => 0,
            Err(Failure::Vfs(error)) if error.kind() == ErrorKind::WouldBlock => return Served::WouldBlock,
            Err(failure) => {
                if let Failure::Vfs(error) = &failure {
                    self.log_failure(opcode, &header, request.body, error);
                }
                self.errno(&failure)
            }
        };
        self.count(opcode, header.pid, begun);
        if !reply.data().is_empty() {
            self.bytes_given.fetch_add(reply.data().len() as u64, Ordering::Relaxed);
        }
        reply.finish(header.unique, errno);
        Served::Done
    }

    /// Counts a request that `process` made (0: none that this one can see), and that came at
    /// `begun`.
    fn count(&self, opcode: Opcode, process: u32, begun: Instant) {
        let ended = Instant::now();
        self.latencies[opcode as usize].add(ended - begun);
        self.processes.add(process, begun, ended);
    }

    /// Returns the errno of `failure`. Programs ask again after `EINTR`, for as long as it takes:
    /// where all computing was stopped for an unmount, that would keep the mount.
    fn errno(&self, failure: &Failure) -> i32 {
        match failure.errno() {
            libc::EINTR if self.vfs.links().is_ok_and(|links| links.is_stopped()) => libc::ECANCELED,
            errno => errno,
        }
    }

    /// Logs the failure and its place, unless programs expect such an answer.
    fn log_failure(&self, opcode: Opcode, header: &Header, body: Body<'_>, error: &Error) {
        if !matches!(error.kind(), ErrorKind::Io | ErrorKind::Corrupt) {
            return;
        }
        if error.kind() == ErrorKind::Corrupt {
            weft_vfs::met_damage();
        }
        // WRITE begins like READ.
        let asked = matches!(opcode, Opcode::Read | Opcode::Write).then(|| Read::parse(body).ok()).flatten();
        let range = asked.map_or_else(String::new, |Read { offset, size, .. }| {
            format!(" of bytes {offset} to {}", offset.saturating_add(u64::from(size).saturating_sub(1)))
        });
        let path = self.node(header.nodeid).map_or_else(Vec::new, |node| self.vfs.path(node.ino));
        let (name, path) = (opcode.name(), String::from_utf8_lossy(&path));
        tracing::error!(user = header.uid, "{name}{range} of {path} failed: {error}");
    }

    /// Does what the request asks for. `EINVAL` if its arguments are cut short.
    fn dispatch(&self, opcode: Opcode, header: &Header, body: Body<'_>, reply: &mut Reply) -> Outcome {
        let number = header.nodeid;
        if opcode == Opcode::Forget {
            return self.forget(number, body, reply);
        }
        let Some(node) = self.node(number) else { return Err(Failure::Errno(libc::ESTALE)) };
        let ino = node.ino;
        let header = &Header { nodeid: ino.0, ..*header };
        let caller = Caller { uid: header.uid, gid: header.gid, holds: Holds::Counted };
        let _asking = closed::asker(header).asks();
        self.refuse_change_of_past(ino, opcode)?;
        if node.door == Door::Closed {
            return self.dispatch_closed(opcode, header, (caller, node), body, reply);
        }
        match opcode {
            // A second one is nothing the kernel sends.
            Opcode::Init => self.init(&Offer::parse(body)?, Via::Device, reply),
            Opcode::Lookup => self.lookup(caller, ino, body, reply),
            Opcode::Forget => self.forget(number, body, reply),
            Opcode::BatchForget => self.batch_forget(body, reply),
            Opcode::Getattr => self.getattr(header, node, body, reply),
            Opcode::Setattr => self.setattr(header, node, body, reply),
            Opcode::Readlink => self.readlink(ino, reply),
            Opcode::Symlink => self.symlink(caller, ino, body, reply),
            Opcode::Mknod => self.mknod(caller, ino, body, reply),
            Opcode::Mkdir => self.mkdir(caller, ino, body, reply),
            Opcode::Tmpfile => self.tmpfile(caller, ino, body, reply),
            Opcode::Unlink => self.unlink(ino, body),
            Opcode::Rmdir => self.rmdir(ino, body),
            Opcode::Rename => self.rename(ino, body),
            Opcode::Rename2 => self.rename2(caller, ino, body),
            Opcode::Link => self.link(caller, ino, body, reply),
            Opcode::Read => self.read(header, ino, body, reply),
            Opcode::Write => self.write(header, ino, body, reply),
            Opcode::Fallocate => self.fallocate(header, ino, body),
            Opcode::Lseek => self.lseek(ino, body, reply),
            Opcode::CopyFileRange | Opcode::CopyFileRange64 => self.copy_file_range(opcode, header, body, reply),
            Opcode::Fsync => self.fsync(header, body),
            Opcode::Fsyncdir => self.fsyncdir(header),
            Opcode::Syncfs => self.vfs.sync().map_err(Failure::from),
            Opcode::Statfs => self.statfs(reply),
            Opcode::Setxattr => self.setxattr(caller, ino, body),
            Opcode::Getxattr => self.getxattr(caller, ino, body, reply),
            Opcode::Listxattr => self.listxattr(caller, ino, body, reply),
            Opcode::Removexattr => self.removexattr(ino, body),
            Opcode::Opendir => self.opendir(ino, reply),
            Opcode::Readdir => self.readdir(header, ino, body, reply),
            Opcode::Readdirplus => self.readdirplus(header, caller, ino, body, reply),
            Opcode::Open => self.open(header, node, body, reply),
            Opcode::Flush => self.flush(header, ino, body),
            Opcode::Release => self.release(ino, body),
            Opcode::Releasedir | Opcode::Destroy => Ok(()),
            Opcode::Getlk => self.getlk(header, body, reply),
            Opcode::Setlk => self.setlk(OnConflict::Fail, header, body, reply),
            Opcode::Setlkw => self.setlk(OnConflict::Wait, header, body, reply),
            // The kernel needs no answer.
            Opcode::Interrupt => {
                reply.cancel();
                self.interrupt(body)
            }
            Opcode::NotifyReply => {
                reply.cancel();
                Ok(())
            }
            Opcode::Ioctl => self.ioctl(caller, ino, body, reply),
            Opcode::Statx => self.statx(header, node, reply),
            // The kernel then does these itself: they need no state here.
            Opcode::Create
            | Opcode::Access
            | Opcode::Bmap
            | Opcode::Poll
            | Opcode::SetupMapping
            | Opcode::RemoveMapping => Err(Failure::Errno(libc::ENOSYS)),
        }
    }
}
