//! Requests over `/dev/fuse`, served by one thread at a time.
//!
//! More than one reader costs metadata rate, so one thread reads and serves; when an operation is
//! about to wait, that thread's hook gives the reading role to a spare one and waits. Invariant: at
//! most one thread has the role.
//!
//! Every [`LOOK_AGAIN`] the thread with the role looks whether more requests have come than it has
//! served. Those are read, and served by turns of their users ([`super::turns`]). The number of
//! threads that wait is bounded; requests of a user who has as many as allowed are queued, too. A
//! thread that comes back from waiting serves one of them if the thread with the role waits for the
//! kernel. Requests that take no time, or end the waiting of others, are served when they are read.

use super::EndOnPanic;
use super::company::Watch;
use super::handler::Handler;
use super::placement::Follower;
use super::scheduling::{Scheduling, Seat};
use super::turns::{OTHERS, Queued, THREADS, Turns, Waits};
use super::user::User;
use super::watchdog::Watchdog;
use crate::options::Placement;
use crate::protocol::{Opcode, REQUEST_BYTES_MAX, Reply, Request};
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::IoSlice;
use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use weft_links::{Lane, set_lane};
use weft_vfs::blocking::{Answer, Wait, set_hook};

/// Most threads that serve: those that wait, and one that reads.
const THREADS_MAX: usize = THREADS + OTHERS + 1;

/// Interval between looks for requests that came while others were served.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Threads of one user for each processor that read blocks while several users ask.
const READERS: usize = 2;

/// Most slices of data sent as they are: writev(2) takes 1024 pieces.
const SLICES_MAX: usize = 1000;

/// Interval between reads of forgotten inodes, when nothing else comes over the device.
const FORGET_PERIOD: Duration = Duration::from_millis(10);

/// The device of one mount.
pub(crate) struct Device {
    file: Arc<File>,
    server: Arc<dyn Handler>,
    /// True if only requests without a reply come here.
    beside_rings: bool,
    roles: Mutex<Roles>,
    /// Copies of the counts of queued requests and taken threads in `roles`, readable without its
    /// lock.
    queued: AtomicUsize,
    taken: AtomicUsize,
    company: Watch,
    /// True if reads do not wait.
    is_nonblocking: AtomicBool,
    /// Signalled when the role is free, when a thread that is waited for was given back, or at the
    /// end.
    free: Condvar,
    /// Gives the role away for a thread that takes long without having done so itself.
    watchdog: Arc<Watchdog>,
    /// Bound of the threads that compute.
    lane: Arc<Lane>,
}

/// State of a thread in respect of the role.
#[derive(Default)]
struct Role {
    held: Cell<bool>,
    /// Beginning of the work during which the watchdog may give it away.
    watched: Cell<Option<NonZeroU64>>,
    /// User of the request that is served.
    user: Cell<Option<User>>,
    /// True if this thread is taken for that user.
    is_taken: Cell<bool>,
    waits: Cell<Waits>,
    /// Time of the last look for more requests.
    looked: Cell<Option<Instant>>,
}

impl Role {
    /// Stops the watchdog for this thread. True if the thread still has the role.
    fn settle(&self, watchdog: &Watchdog) -> bool {
        if let Some(beginning) = self.watched.take()
            && !watchdog.end(beginning)
        {
            self.held.set(false);
            self.is_taken.set(true);
        }
        self.held.get()
    }
}

struct Roles {
    reading: bool,
    /// True if the thread with the role waits for the kernel while requests are queued.
    sleeps: bool,
    threads: usize,
    spare: usize,
    ended: Option<Result<(), Errno>>,
    turns: Turns,
    /// User of the request that the watchdog watches.
    watched: Option<User>,
}

/// Next work of a thread.
enum Work {
    /// Read requests, with the role.
    Read,
    /// Serve this request, for which the thread is taken.
    Serve(User, Queued),
    /// End.
    End,
}

/// Buffers and state of a thread that serves.
struct Tools {
    buffer: Vec<u8>,
    reply: Reply,
    follower: Follower,
    seat: Rc<RefCell<Option<Seat>>>,
}

/// Outcome of reading a request.
enum Read {
    Request(usize),
    Nothing,
    Ended(Result<(), Errno>),
}

impl Device {
    pub(crate) fn new(file: Arc<File>, server: Arc<dyn Handler>, beside_rings: bool) -> Arc<Device> {
        // Where blocks come over a network, threads that wait for them take no processor.
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let readers_max = if server.waits_for_network() { THREADS } else { READERS * processors };
        let roles = Mutex::new(Roles {
            reading: false,
            sleeps: false,
            threads: 0,
            spare: 0,
            ended: None,
            turns: Turns::new(readers_max),
            watched: None,
        });
        Arc::new(Device {
            file,
            server,
            beside_rings,
            roles,
            queued: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
            company: Watch::default(),
            is_nonblocking: AtomicBool::new(false),
            free: Condvar::new(),
            watchdog: Watchdog::new(),
            lane: Lane::new(THREADS),
        })
    }

    /// True if the mount is gone.
    pub(crate) fn has_ended(&self) -> bool {
        self.roles.lock().ended.is_some()
    }

    /// Serves until the mount is gone. The error, if any, is why it ended otherwise.
    pub(crate) fn run(self: &Arc<Device>) -> Result<(), Errno> {
        self.roles.lock().threads = 1;
        self.serve();
        let mut roles = self.roles.lock();
        while roles.threads > 0 {
            self.free.wait(&mut roles);
        }
        roles.ended.unwrap_or(Ok(()))
    }

    fn serve(self: &Arc<Device>) {
        let _guard = EndOnPanic;
        let role = Rc::new(Role::default());
        let scheduling = self.server.scheduling();
        let seat = if self.beside_rings { None } else { scheduling.map(Scheduling::seat) };
        let beside = scheduling.filter(|_| self.beside_rings);
        let _kept_off = beside.map(|scheduling| scheduling.keep_off(rustix::thread::gettid()));
        let seat = Rc::new(RefCell::new(seat));
        self.install_hook(role.clone(), seat.clone());
        set_lane(self.lane.clone());
        let placement = if self.beside_rings { Placement::Free } else { self.server.options().placement };
        let (buffer, reply) = (vec![0; REQUEST_BYTES_MAX], Reply::default());
        let mut tools = Tools { buffer, reply, follower: Follower::new(placement), seat };
        loop {
            match self.next_work(&role) {
                Work::Read => {
                    while role.settle(&self.watchdog) {
                        self.serve_next(&role, &mut tools);
                    }
                }
                Work::Serve(user, request) => self.serve_queued(&role, &mut tools, user, request),
                Work::End => break,
            }
        }
        let mut roles = self.roles.lock();
        roles.threads -= 1;
        self.free.notify_all();
    }

    /// Serves the next request, with the role; queued ones come first.
    fn serve_next(&self, role: &Role, tools: &mut Tools) {
        let is_queued = self.queued.load(Ordering::Relaxed) > 0;
        if is_queued {
            let mut roles = self.roles.lock();
            if let Some((user, request)) = self.pop(&mut roles) {
                drop(roles);
                self.serve_queued(role, tools, user, request);
                return self.look(role, tools);
            }
            if !roles.turns.has_room() {
                // Too many requests are queued of users who have their share: first one must end
                // its waiting.
                self.free.wait(&mut roles);
                return;
            }
            roles.sleeps = true;
        }
        self.wait_in_reads(true);
        let read = self.read(&mut tools.buffer);
        if is_queued {
            self.roles.lock().sleeps = false;
        }
        match read {
            Read::Request(len) => {
                self.take_in(role, tools, len, self.queued.load(Ordering::Relaxed) > 0);
                self.look(role, tools);
            }
            Read::Nothing => {}
            Read::Ended(how) => self.end(role, how),
        }
    }

    /// Reads requests that have come meanwhile, if it is time to look.
    fn look(&self, role: &Role, tools: &mut Tools) {
        let now = Instant::now();
        let is_due = role.looked.get().is_none_or(|looked| now.duration_since(looked) >= LOOK_AGAIN);
        if !is_due || self.beside_rings || !role.settle(&self.watchdog) {
            return;
        }
        role.looked.set(Some(now));
        if !self.has_more() {
            return;
        }
        self.wait_in_reads(false);
        while role.settle(&self.watchdog) && self.roles.lock().turns.has_room() {
            match self.read(&mut tools.buffer) {
                Read::Request(len) => self.take_in(role, tools, len, true),
                Read::Nothing => return,
                Read::Ended(how) => self.end(role, how),
            }
        }
    }

    /// Serves the request that was read, of `len` bytes. Queues it if it `is_behind` others or its
    /// user has enough that wait.
    fn take_in(&self, role: &Role, tools: &mut Tools, len: usize, is_behind: bool) {
        let Some(request) = Request::parse(&tools.buffer[..len]) else {
            return self.refuse(&tools.buffer[..len]);
        };
        let header = request.header;
        let user = match Opcode::from_number(header.opcode) {
            Some(Opcode::Interrupt) if self.interrupts_queued(&request) => return,
            Some(Opcode::Interrupt | Opcode::Forget | Opcode::BatchForget | Opcode::NotifyReply) => User::Kernel,
            // They do not wait here, and have to be known before they can be interrupted.
            Some(Opcode::Getlk | Opcode::Setlk | Opcode::Setlkw) => User::of(&header),
            _ => {
                let user = User::of(&header);
                self.company.see(user);
                if is_behind || self.taken.load(Ordering::Relaxed) > 0 {
                    let mut roles = self.roles.lock();
                    if is_behind || !roles.turns.may_take(user, self.company.company()) {
                        let spare = roles.turns.spare();
                        roles.turns.push(user, Queued::new(&header, &mut tools.buffer, len, spare));
                        return self.count(&roles);
                    }
                }
                user
            }
        };
        role.user.set(Some(user));
        self.serve_one(&request, &mut tools.reply, &mut tools.follower, &tools.seat);
        self.settle(role);
    }

    fn serve_queued(&self, role: &Role, tools: &mut Tools, user: User, queued: Queued) {
        if queued.is_interrupted {
            self.server.interrupted(queued.unique());
        }
        role.user.set(Some(user));
        if let Some(request) = Request::parse(queued.bytes()) {
            self.serve_one(&request, &mut tools.reply, &mut tools.follower, &tools.seat);
        }
        self.settle(role);
        self.roles.lock().turns.reuse(queued);
    }

    /// Gives this thread back, if it was taken for the present request.
    fn settle(&self, role: &Role) {
        role.settle(&self.watchdog);
        if let Some(user) = role.user.take().filter(|_| role.is_taken.take()) {
            let mut roles = self.roles.lock();
            let had_room = roles.turns.has_room();
            roles.turns.give_back(user, role.waits.get());
            self.count(&roles);
            if !had_room {
                self.free.notify_all();
            }
        }
        role.waits.set(Waits::No);
    }

    /// Marks the queued request of a program that was sent a signal. False if it is not queued.
    fn interrupts_queued(&self, request: &Request<'_>) -> bool {
        let (mut body, is_any) = (request.body, self.queued.load(Ordering::Relaxed) > 0);
        is_any && body.u64().is_ok_and(|unique| self.roles.lock().turns.interrupt(unique))
    }

    fn pop(&self, roles: &mut Roles) -> Option<(User, Queued)> {
        let popped = roles.turns.pop(self.company.company());
        self.count(roles);
        popped
    }

    /// Publishes the counts of queued requests and taken threads.
    fn count(&self, roles: &Roles) {
        self.queued.store(roles.turns.len(), Ordering::Relaxed);
        self.taken.store(usize::try_from(roles.turns.taken()).unwrap_or(0), Ordering::Relaxed);
    }

    fn serve_one(
        &self,
        request: &Request<'_>,
        reply: &mut Reply,
        follower: &mut Follower,
        seat: &RefCell<Option<Seat>>,
    ) {
        if let Some(seat) = &mut *seat.borrow_mut() {
            seat.request_came(request.body.len());
        }
        follower.follow(request.header.pid);
        self.server.serve(request, reply);
        if reply.is_wanted() {
            self.send(reply);
        } else if self.beside_rings {
            self.let_more_come();
        }
    }

    /// Answers an unreadable request, so that nobody waits for ever.
    fn refuse(&self, bytes: &[u8]) {
        tracing::error!("the kernel sent a request of {} bytes that makes no sense", bytes.len());
        if let Some(unique) = Request::unique_of(bytes) {
            let mut reply = Reply::default();
            reply.begin();
            reply.finish(unique, libc::EIO);
            self.send(&reply);
        }
    }

    /// Waits for more requests. Forgetting is not urgent, and a waiting reader would be woken, on
    /// another processor, for each.
    fn let_more_come(&self) {
        #[expect(clippy::disallowed_methods, reason = "there is no event for `enough have come`")]
        thread::sleep(FORGET_PERIOD);
    }

    /// Installs the hook that runs before this thread waits. Another thread then takes over
    /// reading, or will if the wait takes long; neither it nor threads that help with a commit must
    /// inherit the idle policy.
    fn install_hook(self: &Arc<Device>, role: Rc<Role>, seat: Rc<RefCell<Option<Seat>>>) {
        let device = Arc::downgrade(self);
        set_hook(move |wait| {
            if wait == Wait::Rows {
                // Treated like cached ones: requests behind this one are likely to need the same
                // rows.
                return Answer::Wait;
            }
            if wait != Wait::Places
                && let Some(seat) = &mut *seat.borrow_mut()
            {
                seat.be_ordinary();
            }
            let Some(of) = device.upgrade() else { return Answer::Wait };
            if !role.settle(&of.watchdog) {
                of.waits_on(&role, wait);
                return Answer::Wait;
            }
            if matches!(wait, Wait::Places | Wait::Network) {
                of.roles.lock().watched = role.user.get();
                let device = device.clone();
                let act = move || device.upgrade().iter().for_each(Device::give_watched_role);
                role.watched.set(of.watchdog.begin(act));
            }
            if role.watched.get().is_none() {
                role.held.set(false);
                role.is_taken.set(true);
                of.give_role(&mut of.roles.lock(), role.user.get());
                of.waits_on(&role, wait);
            }
            Answer::Wait
        });
    }

    /// Notes that the request for which this thread is taken waits once more.
    fn waits_on(&self, role: &Role, wait: Wait) {
        let before = role.waits.get();
        let now = match (before, wait) {
            (Waits::No | Waits::Reads, Wait::Read) => Waits::Reads,
            _ => Waits::Otherwise,
        };
        if let Some(user) = role.user.get().filter(|_| now != before) {
            role.waits.set(now);
            self.roles.lock().turns.wait(user, before, now);
        }
    }

    fn give_watched_role(self: &Arc<Device>) {
        let mut roles = self.roles.lock();
        let user = roles.watched.take();
        self.give_role(&mut roles, user);
    }

    /// Gives the role away for the thread that serves a request of `user`.
    fn give_role(self: &Arc<Device>, roles: &mut Roles, user: Option<User>) {
        if let Some(user) = user {
            roles.turns.take(user, Waits::No);
            self.count(roles);
        }
        roles.reading = false;
        if roles.spare > 0 || roles.threads >= THREADS_MAX {
            self.free.notify_one();
            return;
        }
        roles.threads += 1;
        let device = self.clone();
        let started = thread::Builder::new().name("weft-fuse".into()).spawn(move || device.serve());
        if started.is_err() {
            // Requests wait until this thread is back.
            roles.threads -= 1;
        }
    }

    /// Waits for work.
    fn next_work(&self, role: &Role) -> Work {
        let mut roles = self.roles.lock();
        roles.spare += 1;
        let work = loop {
            if roles.ended.is_some() {
                break Work::End;
            }
            if !roles.reading {
                roles.reading = true;
                role.held.set(true);
                break Work::Read;
            }
            if roles.sleeps
                && let Some((user, request)) = self.pop(&mut roles)
            {
                roles.turns.take(user, Waits::No);
                self.count(&roles);
                role.is_taken.set(true);
                break Work::Serve(user, request);
            }
            self.free.wait(&mut roles);
        };
        roles.spare -= 1;
        work
    }

    fn end(&self, role: &Role, how: Result<(), Errno>) {
        role.held.set(false);
        let mut roles = self.roles.lock();
        roles.reading = false;
        roles.ended = Some(how);
        self.free.notify_all();
        drop(roles);
        self.server.ended();
    }

    /// True if a request is there to be read.
    fn has_more(&self) -> bool {
        let mut files = [PollFd::new(&self.file, PollFlags::IN)];
        poll(&mut files, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
    }

    /// Makes reads wait for a request, or not. For the thread with the role.
    fn wait_in_reads(&self, wait: bool) {
        if self.is_nonblocking.load(Ordering::Relaxed) != wait {
            return;
        }
        let set = fcntl_getfl(&self.file).and_then(|mut flags| {
            flags.set(OFlags::NONBLOCK, !wait);
            fcntl_setfl(&self.file, flags)
        });
        if set.is_ok() {
            self.is_nonblocking.store(!wait, Ordering::Relaxed);
        }
    }

    fn read(&self, buffer: &mut [u8]) -> Read {
        match rustix::io::read(&self.file, buffer) {
            Ok(0) => Read::Ended(Ok(())),
            Ok(len) => Read::Request(len),
            // The request was taken back, or a signal came.
            Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => Read::Nothing,
            // Unmounted, or the connection was aborted.
            Err(Errno::NODEV | Errno::CONNABORTED) => Read::Ended(Ok(())),
            Err(error) => Read::Ended(Err(error)),
        }
    }

    fn send(&self, reply: &Reply) {
        let slices = reply.data().slices();
        let result = match slices.len() {
            0 => rustix::io::write(&self.file, reply.head()),
            1..SLICES_MAX => {
                let mut parts: SmallVec<[IoSlice<'_>; 18]> = SmallVec::new();
                parts.push(IoSlice::new(reply.head()));
                parts.extend(slices.iter().map(|slice| IoSlice::new(slice)));
                rustix::io::writev(&self.file, &parts)
            }
            _ => {
                let data = reply.data().contiguous();
                rustix::io::writev(&self.file, &[IoSlice::new(reply.head()), IoSlice::new(&data)])
            }
        };
        match result {
            // The requester was killed meanwhile, or the mount is gone: the next read tells.
            Ok(_) | Err(Errno::NOENT | Errno::NODEV | Errno::INTR) => {}
            Err(error) => tracing::error!("the kernel refused a reply: {error}"),
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.watchdog.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::Server;
    use crate::options::SessionOptions;
    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
    use weft_store::VolumeOptions;
    use weft_store::memory::MemoryStore;
    use weft_vfs::{ManualClock, Options, Vfs};

    const GETATTR: u32 = Opcode::Getattr as u32;

    fn server() -> Arc<Server> {
        let store = Arc::new(MemoryStore::new(VolumeOptions::default()));
        let options = Options { background: false, ..Options::default() };
        let vfs = Vfs::open(store, None, options, Arc::new(ManualClock::default())).expect("opens");
        let options = SessionOptions { placement: Placement::Free, ..SessionOptions::default() };
        Arc::new(Server::new(vfs, options, None, None))
    }

    /// A request about the root, of a program of user `uid`.
    fn request(opcode: u32, unique: u64, uid: u32) -> Vec<u8> {
        let mut bytes = [56u32.to_ne_bytes(), opcode.to_ne_bytes()].concat();
        bytes.extend([unique, 1].iter().flat_map(|value| value.to_ne_bytes()));
        bytes.extend([uid, uid, 1, 0].iter().flat_map(|value: &u32| value.to_ne_bytes()));
        bytes.resize(56, 0);
        bytes
    }

    /// Serves what comes over a socket, which keeps messages apart as the kernel does. Returns the
    /// numbers of the requests in the order of the answers.
    fn answers(requests: &[Vec<u8>], replies: usize) -> Vec<u64> {
        let (flags, kind) = (SocketFlags::CLOEXEC, SocketType::SEQPACKET);
        let (kernel, daemon) = socketpair(AddressFamily::UNIX, kind, flags, None).expect("a pair");
        for bytes in requests {
            send(&kernel, bytes, SendFlags::empty()).expect("sent");
        }
        let device = Device::new(Arc::new(File::from(daemon)), server(), false);
        let serving = thread::spawn(move || device.run());
        let mut order = Vec::new();
        let mut reply = [0; 512];
        for _ in 0..replies {
            let len = rustix::io::read(&kernel, &mut reply).expect("read");
            order.push(Request::unique_of(&reply[..len]).expect("a reply"));
        }
        drop(kernel);
        serving.join().expect("no panic").expect("served to the end");
        order
    }

    /// Attack: a user's many programs ask all the time, and others wait for all of them.
    #[test]
    fn requests_that_came_while_one_was_served_are_served_by_turns_of_their_users() {
        let mut requests: Vec<_> = (1..=20).map(|unique| request(GETATTR, unique, 7)).collect();
        requests.extend((101..=103).map(|unique| request(GETATTR, unique, 8)));
        let order = answers(&requests, 23);
        assert_eq!(order[..8], [1, 2, 101, 3, 102, 4, 103, 5]);
        assert_eq!(order[8..], (6..=20).collect::<Vec<_>>());
    }

    /// A request that was given up is not waited for, and the kernel wants no answer.
    #[test]
    fn what_ends_waiting_overtakes_what_is_queued() {
        let mut requests: Vec<_> = (1..=5).map(|unique| request(GETATTR, unique, 7)).collect();
        let mut interrupt = request(Opcode::Interrupt as u32, 6, 7);
        interrupt[40..48].copy_from_slice(&4u64.to_ne_bytes());
        requests.push(interrupt);
        // Of an unknown opcode, and cut short: each is answered.
        requests.push(request(4000, 7, 8));
        requests.push(request(GETATTR, 8, 8)[..48].to_vec());
        assert_eq!(answers(&requests, 7), [1, 8, 2, 7, 3, 4, 5]);
    }
}
