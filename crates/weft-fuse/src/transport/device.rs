//! Requests over `/dev/fuse`, served by one thread at a time.
//!
//! More than one reader costs metadata rate, so one thread reads and serves; when an operation is about to
//! wait, that thread's hook gives the reading role to a spare one and waits. Threads are bounded; when all
//! wait, requests queue in the kernel. Invariant: at most one thread has the role.

use super::EndOnPanic;
use super::lookout::Lookout;
use super::placement::Follower;
use super::scheduling::{Scheduling, Seat};
use crate::dispatch::Server;
use crate::protocol::{REQUEST_BYTES_MAX, Reply, Request};
use crate::session::Placement;
use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::IoSlice;
use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use weft_vfs::blocking::{Answer, Wait, set_hook};
use weft_vfs::computing::{Lane, set_lane};

/// Most threads that serve, waiting ones included.
const THREADS_MAX: usize = 64;

/// Most slices of data sent as they are: writev(2) takes 1024 pieces.
const SLICES_MAX: usize = 1000;

/// How often the kernel is asked which inodes it forgot, when nothing else comes over the device.
const FORGET_PERIOD: Duration = Duration::from_millis(10);

/// The device of one mount.
pub(crate) struct Device {
    file: Arc<File>,
    server: Arc<Server>,
    /// Whether only requests without a reply come here.
    beside_rings: bool,
    roles: Mutex<Roles>,
    /// Signalled when the role is free or all is over.
    free: Condvar,
    /// Gives the role away for a thread that takes long, and has not done so before.
    lookout: Arc<Lookout>,
    /// How many threads may compute.
    lane: Arc<Lane>,
}

/// Whether a thread has the role.
#[derive(Default)]
struct Role {
    held: Cell<bool>,
    /// Since then the lookout may give it away.
    watched: Cell<Option<NonZeroU64>>,
}

impl Role {
    /// Whether it has it, now that nobody gives it away for it any more.
    fn settle(&self, lookout: &Lookout) -> bool {
        if let Some(beginning) = self.watched.take()
            && !lookout.end(beginning)
        {
            self.held.set(false);
        }
        self.held.get()
    }
}

#[derive(Default)]
struct Roles {
    reading: bool,
    threads: usize,
    spare: usize,
    ended: Option<Result<(), Errno>>,
}

/// What reading a request gave.
enum Read {
    Request(usize),
    Nothing,
    Ended(Result<(), Errno>),
}

impl Device {
    pub(crate) fn new(file: Arc<File>, server: Arc<Server>, beside_rings: bool) -> Arc<Device> {
        let roles = Mutex::new(Roles::default());
        Arc::new(Device {
            file,
            server,
            beside_rings,
            roles,
            free: Condvar::new(),
            lookout: Lookout::new(),
            lane: Lane::new(THREADS_MAX),
        })
    }

    /// Whether the mount is gone.
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
        let scheduling = self.server.scheduling.as_ref();
        let seat = if self.beside_rings { None } else { scheduling.map(Scheduling::seat) };
        let beside = scheduling.filter(|_| self.beside_rings);
        let _kept_off = beside.map(|scheduling| scheduling.keep_off(rustix::thread::gettid()));
        let seat = Rc::new(RefCell::new(seat));
        self.install_hook(role.clone(), seat.clone());
        set_lane(self.lane.clone());
        let mut buffer = vec![0; REQUEST_BYTES_MAX];
        let mut reply = Reply::default();
        let placement = if self.beside_rings { Placement::Free } else { self.server.options.placement };
        let mut follower = Follower::new(placement);
        while self.take_role(&role) {
            while role.settle(&self.lookout) {
                match self.read(&mut buffer) {
                    Read::Request(len) => {
                        if let Some(seat) = &mut *seat.borrow_mut() {
                            seat.request_came();
                        }
                        self.serve_one(&buffer[..len], &mut reply, &mut follower);
                    }
                    Read::Nothing => {}
                    Read::Ended(how) => self.end(&role, how),
                }
            }
        }
        let mut roles = self.roles.lock();
        roles.threads -= 1;
        self.free.notify_all();
    }

    fn serve_one(&self, bytes: &[u8], reply: &mut Reply, follower: &mut Follower) {
        let Some(request) = Request::parse(bytes) else {
            return self.refuse(bytes);
        };
        follower.follow(request.header.pid);
        self.server.serve(&request, reply);
        if reply.is_wanted() {
            self.send(reply);
        } else if self.beside_rings {
            self.let_more_come();
        }
    }

    /// Answers what cannot be read, so that nobody waits for ever.
    fn refuse(&self, bytes: &[u8]) {
        weft_vfs::say(format_args!("the kernel sent a request of {} bytes that makes no sense", bytes.len()));
        if let Some(unique) = Request::unique_of(bytes) {
            let mut reply = Reply::default();
            reply.begin();
            reply.finish(unique, libc::EIO);
            self.send(&reply);
        }
    }

    /// Forgetting is not urgent, and a reader that waits for it is woken, on another processor, for each.
    fn let_more_come(&self) {
        #[expect(clippy::disallowed_methods, reason = "there is no event for `enough have come`")]
        thread::sleep(FORGET_PERIOD);
    }

    /// Before this thread waits, another takes over reading, or will if it takes long; neither it nor threads that help with a commit must
    /// inherit the idle policy.
    fn install_hook(self: &Arc<Device>, role: Rc<Role>, seat: Rc<RefCell<Option<Seat>>>) {
        let device = Arc::downgrade(self);
        set_hook(move |wait| {
            if wait == Wait::Rows {
                // As if they were at hand: requests behind this one are likely to need the same ones.
                return Answer::Wait;
            }
            if wait != Wait::Places
                && let Some(seat) = &mut *seat.borrow_mut()
            {
                seat.be_ordinary();
            }
            let Some(of) = device.upgrade() else { return Answer::Wait };
            if !role.settle(&of.lookout) {
                return Answer::Wait;
            }
            if matches!(wait, Wait::Places | Wait::Network) {
                let device = device.clone();
                let act = move || device.upgrade().iter().for_each(Device::give_role);
                role.watched.set(of.lookout.begin(act));
            }
            if role.watched.get().is_none() {
                role.held.set(false);
                of.give_role();
            }
            Answer::Wait
        });
    }

    fn give_role(self: &Arc<Device>) {
        let mut roles = self.roles.lock();
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

    /// Waits for the role; false when all is over.
    fn take_role(&self, role: &Role) -> bool {
        let mut roles = self.roles.lock();
        roles.spare += 1;
        while roles.reading && roles.ended.is_none() {
            self.free.wait(&mut roles);
        }
        roles.spare -= 1;
        if roles.ended.is_some() {
            return false;
        }
        roles.reading = true;
        role.held.set(true);
        true
    }

    fn end(&self, role: &Role, how: Result<(), Errno>) {
        role.held.set(false);
        let mut roles = self.roles.lock();
        roles.reading = false;
        roles.ended = Some(how);
        self.free.notify_all();
        drop(roles);
        // Nobody is left to be answered, and those who compute are waited for.
        self.server.vfs.stop_computing(true);
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
            Err(error) => weft_vfs::say(format_args!("the kernel refused a reply: {error}")),
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.lookout.stop();
    }
}
