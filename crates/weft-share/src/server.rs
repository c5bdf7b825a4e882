//! Connections: who may have one, and what all of them share.
//!
//! Locks: that of the connections, that of the tokens and that of the ledger, of which nobody takes
//! one who has another.

use crate::ledger::Ledger;
use crate::session::Session;
use crate::tokens::Tokens;
use parking_lot::{Condvar, Mutex};
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, shutdown, socket_with,
    sockopt,
};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weft_client::protocol::{Invitation, Token};
use weft_vfs::{Ino, Vfs, whose};

/// Limits on the resources of programs.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at once. The last quarter is for people who have none.
    pub connections_max: usize,
    /// Connections of one person at once, whatever user numbers they have ([`whose`]).
    pub connections_of_user_max: usize,
    /// Files that one connection has open.
    pub files_max: usize,
    /// Divisor of all memory for the share that one user's programs hold at most; 0: no limit.
    pub one_user_in: usize,
    /// The same divisor for one connection.
    pub one_connection_in: usize,
    /// Longest time for which a program may leave answers unread.
    pub unread: Duration,
    /// Longest time for which a program may be connected before it says hello.
    pub hello: Duration,
    /// Longest time for which a silent program may hold memory that others wait for.
    pub lease: Duration,
    /// Longest wait for memory when none is free. After that a program reads by copies, as usual.
    pub patience: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections_max: 512,
            connections_of_user_max: 128,
            files_max: 4096,
            one_user_in: 2,
            one_connection_in: 4,
            unread: Duration::from_secs(10),
            hello: Duration::from_secs(10),
            lease: Duration::from_secs(30),
            patience: Duration::from_millis(200),
        }
    }
}

/// A socket that programs find ([`Listener::name`]), where nobody answers yet.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    name: Vec<u8>,
}

impl Listener {
    /// A new one, by a name that nobody else has.
    ///
    /// # Errors
    /// What the system says.
    pub fn new() -> io::Result<Listener> {
        let mut number = [0u8; 16];
        rustix::rand::getrandom(&mut number, rustix::rand::GetRandomFlags::empty())?;
        let digits: String = number.iter().map(|byte| format!("{byte:02x}")).collect();
        let name = format!("weft/{digits}").into_bytes();
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        // It leaves nothing behind, however this ends; and who may connect follows from what is
        // shown.
        bind(&socket, &SocketAddrUnix::new_abstract_name(&name)?)?;
        listen(&socket, 64)?;
        Ok(Listener { socket, name })
    }

    /// Returns its name among abstract sockets (unix(7)).
    pub fn name(&self) -> &[u8] {
        &self.name
    }
}

/// Serves until it is stopped or dropped.
pub struct Server {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// State that all connections share.
pub(crate) struct Shared {
    pub(crate) vfs: Arc<Vfs>,
    /// The socket's name.
    name: Vec<u8>,
    tokens: Mutex<Tokens>,
    pub(crate) limits: Limits,
    pub(crate) ledger: Ledger,
    listener: OwnedFd,
    is_stopped: AtomicBool,
    connections: Mutex<Connections>,
    /// Signalled when memory may have become free.
    freed: Condvar,
}

#[derive(Default)]
struct Connections {
    next: u64,
    open: HashMap<u64, Connection>,
    threads: Vec<JoinHandle<()>>,
    /// Number of times that memory may have become free.
    freed: u64,
}

/// A connection, as the other connections see it.
struct Connection {
    /// Person whose program it is ([`whose`]).
    person: u32,
    socket: Arc<OwnedFd>,
    /// Bytes that it keeps from being used for anything else.
    bytes: usize,
    /// Time of its last request.
    spoke: Instant,
    /// True if its memory is to be taken back, as it was silent for too long while others waited.
    is_revoked: bool,
}

impl Server {
    /// Serves `vfs` to whoever connects to `listener`.
    ///
    /// # Errors
    /// What the system says if it gives no thread.
    pub fn start(listener: Listener, vfs: Arc<Vfs>, limits: Limits) -> io::Result<Server> {
        let shared = Arc::new(Shared {
            vfs,
            name: listener.name,
            tokens: Mutex::default(),
            limits,
            ledger: Ledger::default(),
            listener: listener.socket,
            is_stopped: AtomicBool::new(false),
            connections: Mutex::default(),
            freed: Condvar::new(),
        });
        let accepting = shared.clone();
        let thread = std::thread::Builder::new().name("weft-share".into()).spawn(move || accepting.accept())?;
        Ok(Server { shared, thread: Some(thread) })
    }

    /// Returns a function that makes invitations for a user and a file. An invitation tells the
    /// user's programs where to find this server, and that they may read the file: give it only to
    /// those who may.
    pub fn inviter(&self) -> impl Fn(u32, Ino) -> io::Result<Vec<u8>> + Send + Sync + use<> {
        let shared = self.shared.clone();
        move |user, ino| {
            let token = shared.tokens.lock().issue(user, ino)?;
            Ok(Invitation { token, socket: shared.name.clone() }.encode())
        }
    }

    /// Ends all connections, and waits for that.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.shared.is_stopped.store(true, Ordering::Release);
        // Whoever is about to accept returns.
        let _ = shutdown(&self.shared.listener, Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let threads = {
            let mut connections = self.shared.connections.lock();
            for connection in connections.open.values() {
                let _ = shutdown(&connection.socket, Shutdown::Both);
            }
            std::mem::take(&mut connections.threads)
        };
        self.shared.freed.notify_all();
        for thread in threads {
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// A connection that is counted as long as this lives.
pub(crate) struct Admitted {
    shared: Arc<Shared>,
    number: u64,
}

impl Shared {
    fn accept(self: &Arc<Shared>) {
        while !self.is_stopped.load(Ordering::Acquire) {
            match accept_with(&self.listener, SocketFlags::CLOEXEC) {
                Ok(socket) => {
                    if let Err(error) = self.admit(socket) {
                        tracing::warn!("a program cannot be lent memory: {error}");
                    }
                }
                Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNABORTED) => {}
                Err(_) if self.is_stopped.load(Ordering::Acquire) => return,
                // There are too many open files, say: those that are there may end.
                Err(error) => {
                    tracing::warn!("no program can be lent memory for now: {error}");
                    let mut connections = self.connections.lock();
                    self.freed.wait_for(&mut connections, Duration::from_secs(1));
                }
            }
        }
    }

    /// Serves `socket` on a thread of its own, unless there are too many: then it is closed.
    fn admit(self: &Arc<Shared>, socket: OwnedFd) -> io::Result<()> {
        let uid = sockopt::socket_peercred(&socket)?.uid.as_raw();
        // Whoever does not read what is answered does not keep a thread for ever.
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(self.limits.unread))?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(self.limits.hello))?;
        let (socket, person) = (Arc::new(socket), whose(uid));
        let mut locked = self.connections.lock();
        let connections = &mut *locked;
        connections.threads.retain(|thread| !thread.is_finished());
        let own = connections.open.values().filter(|connection| connection.person == person).count();
        let all_max = self.limits.connections_max;
        let all_max = if own == 0 { all_max } else { all_max - all_max / 4 };
        if connections.open.len() >= all_max || own >= self.limits.connections_of_user_max {
            return Ok(());
        }
        let number = connections.next;
        connections.next += 1;
        let connection = Connection { person, socket: socket.clone(), bytes: 0, spoke: now(), is_revoked: false };
        connections.open.insert(number, connection);
        drop(locked);
        let admitted = Admitted { shared: self.clone(), number };
        let session = Session::new(self.clone(), socket, uid, admitted);
        let thread = std::thread::Builder::new().name("weft-lend".into()).spawn(move || session.run())?;
        self.connections.lock().threads.push(thread);
        Ok(())
    }

    /// The file that a program of `user` that shows `token` may read. Once.
    pub(crate) fn invited(&self, token: &Token, user: u32) -> Option<Ino> {
        self.tokens.lock().take(token, user)
    }

    /// Most bytes that one user's programs hold at once.
    fn held_max(&self) -> usize {
        part(self.vfs.shared_bytes_max(), self.limits.one_user_in)
    }

    /// Most bytes that one connection holds at once.
    pub(crate) fn held_by_one_max(&self) -> usize {
        part(self.vfs.shared_bytes_max(), self.limits.one_connection_in)
    }

    /// True if programs of `uid` get no more memory, because they still have too much that the
    /// daemon let go of.
    pub(crate) fn is_lingering(&self, uid: u32) -> bool {
        self.ledger.lingering(whose(uid)) > self.held_by_one_max()
    }
}

fn part(all: usize, one_in: usize) -> usize {
    all.checked_div(one_in).unwrap_or(usize::MAX)
}

fn now() -> Instant {
    Instant::now()
}

impl Admitted {
    /// It said something.
    pub(crate) fn spoke(&self) {
        if let Some(own) = self.shared.connections.lock().open.get_mut(&self.number) {
            own.spoke = now();
        }
    }

    /// It holds so many bytes now; whoever waits for memory looks again if they are fewer.
    pub(crate) fn holds(&self, bytes: usize) {
        let mut connections = self.shared.connections.lock();
        let Some(own) = connections.open.get_mut(&self.number) else { return };
        let are_fewer = bytes < own.bytes;
        own.bytes = bytes;
        if are_fewer {
            connections.freed += 1;
            self.shared.freed.notify_all();
        }
    }

    /// Returns the number of times that memory may have become free. A caller that finds no memory
    /// can compare it later to see if some has come since.
    pub(crate) fn freed(&self) -> u64 {
        self.shared.connections.lock().freed
    }

    /// Returns the number of bytes that it may still take.
    pub(crate) fn bytes_left(&self) -> usize {
        let connections = self.shared.connections.lock();
        let Some(own) = connections.open.get(&self.number) else { return 0 };
        let of_user = connections.open.values().filter(|other| other.person == own.person);
        let of_user = of_user.map(|other| other.bytes).sum();
        let left_of_user = self.shared.held_max().saturating_sub(of_user);
        left_of_user.min(self.shared.held_by_one_max().saturating_sub(own.bytes))
    }

    /// True if it is to end although the program did not close it.
    pub(crate) fn is_ended(&self) -> bool {
        self.shared.is_stopped.load(Ordering::Acquire) || self.is_revoked()
    }

    /// True if its memory was taken back.
    pub(crate) fn is_revoked(&self) -> bool {
        self.shared.connections.lock().open.get(&self.number).is_none_or(|own| own.is_revoked)
    }

    /// Waits until memory may have become free since it had `freed` times, until `deadline`: false
    /// if that has passed. Takes back what somebody held for too long without a word.
    pub(crate) fn wait_for_memory(&self, freed: u64, deadline: Instant) -> bool {
        let mut connections = self.shared.connections.lock();
        if self.shared.is_stopped.load(Ordering::Acquire) || now() >= deadline {
            return false;
        }
        if connections.freed != freed {
            return true;
        }
        let lease = self.shared.limits.lease;
        let others = connections.open.iter_mut().filter(|(number, other)| **number != self.number && other.bytes > 0);
        // If nobody else has any, nobody else gives any back.
        let Some((_, idlest)) = others.min_by_key(|(_, other)| other.spoke) else { return false };
        let ends = idlest.spoke + lease;
        let mut until = deadline.min(ends);
        if ends <= now() {
            idlest.is_revoked = true;
            let _ = shutdown(&idlest.socket, Shutdown::Both);
            until = deadline;
        }
        self.shared.freed.wait_until(&mut connections, until);
        true
    }

    /// Returns the end of a wait that begins now.
    pub(crate) fn deadline(&self) -> Instant {
        now() + self.shared.limits.patience
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        {
            let mut connections = self.shared.connections.lock();
            connections.open.remove(&self.number);
            connections.freed += 1;
        }
        self.shared.freed.notify_all();
        self.shared.ledger.sweep();
    }
}
