//! One connection: what a program asks for, and what it gets.

use crate::leases::{Leases, Lending};
use crate::server::{Admitted, Shared};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendFlags, recv};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use weft_block::shared::Pool;
use weft_client::protocol::{PACKET_BYTES_MAX, PARTS_MAX, Reply, Request, Token, VERSION};
use weft_client::socket::send;
use weft_vfs::{Asker, Ino, whose};

/// Most bytes that one request reads.
const BYTES_MAX: usize = 16 << 20;

/// A file that a program has open.
struct Open {
    ino: Ino,
    pool: Arc<Pool>,
}

/// Reason why a connection ends although the program has not closed it.
enum End {
    /// It does not keep to the protocol.
    Nonsense,
    /// The system says so.
    System(io::Error),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> End {
        End::System(error)
    }
}

/// A reply, or an errno.
type Answer = Result<Reply, i32>;

/// A connection, served by one thread.
pub(crate) struct Session {
    shared: Arc<Shared>,
    socket: Arc<OwnedFd>,
    uid: u32,
    files: HashMap<u32, Open>,
    next: u32,
    is_greeted: bool,
    leases: Leases,
    admitted: Admitted,
}

impl Session {
    pub(crate) fn new(shared: Arc<Shared>, socket: Arc<OwnedFd>, uid: u32, admitted: Admitted) -> Session {
        let (files, leases) = (HashMap::new(), Leases::default());
        Session { shared, socket, uid, files, next: 0, is_greeted: false, leases, admitted }
    }

    /// Serves until the program closes the connection or breaks the rules.
    pub(crate) fn run(mut self) {
        match self.serve() {
            Ok(()) => {}
            Err(End::Nonsense) => {
                tracing::warn!(
                    user = self.uid,
                    "a program of user {} asks what makes no sense; its connection is closed",
                    self.uid
                );
            }
            Err(End::System(_)) if self.admitted.is_revoked() => {}
            Err(End::System(error)) => {
                tracing::warn!(user = self.uid, "the connection to a program of user {} broke: {error}", self.uid);
            }
        }
        if self.admitted.is_revoked() {
            tracing::warn!(user = self.uid, "a program of user {} held shared memory for too long", self.uid);
        }
        // Before others are told that there may be room.
        self.files.clear();
        self.leases = Leases::default();
    }

    fn serve(&mut self) -> Result<(), End> {
        let mut buffer = vec![0; PACKET_BYTES_MAX];
        loop {
            // Descriptors that come along are for the kernel to close: some file systems could have
            // this wait for ever if it did.
            let received = rustix::io::retry_on_intr(|| recv(&*self.socket, &mut buffer[..], RecvFlags::TRUNC));
            let len = match received {
                // The kernel says the same of one that is to end.
                Ok((_, 0)) if self.admitted.is_ended() => return Ok(()),
                // It is gone, and may have gone before it read all answers.
                Ok((_, 0)) | Err(Errno::CONNRESET) => {
                    self.leases.let_go();
                    return Ok(());
                }
                Ok((_, len)) => len,
                // It has had time enough to say hello.
                Err(Errno::AGAIN) if !self.is_greeted => return Ok(()),
                Err(error) => return Err(End::System(error.into())),
            };
            self.admitted.spoke();
            let request = buffer.get(..len).and_then(Request::decode).ok_or(End::Nonsense)?;
            let answer = self.answer(&request)?;
            if self.admitted.is_revoked() {
                return Ok(());
            }
            if let Some((answer, given)) = answer {
                let reply = answer.unwrap_or_else(|errno| Reply::Failed { errno: errno.unsigned_abs() });
                let given: Vec<_> = given.iter().map(AsFd::as_fd).collect();
                match send(self.socket.as_fd(), &reply.encode(), &given, SendFlags::empty()) {
                    Err(error)
                        if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) =>
                    {
                        return Ok(());
                    }
                    sent => sent?,
                }
            }
        }
    }

    /// Returns the answer, if there is one, with its descriptors.
    fn answer(&mut self, request: &Request) -> Result<Option<(Answer, Vec<OwnedFd>)>, End> {
        let greets = matches!(request, Request::Hello { .. });
        if greets == self.is_greeted {
            return Err(End::Nonsense);
        }
        let answer = match request {
            Request::Hello { version: VERSION } => {
                self.is_greeted = true;
                // From now on it may be silent for as long as it likes.
                set_socket_timeout(&*self.socket, Timeout::Recv, None).map_err(|error| End::System(error.into()))?;
                Ok(Reply::Hello)
            }
            Request::Hello { .. } => Err(libc::EPROTONOSUPPORT),
            Request::Open { token } => self.open(token),
            Request::Read { file, offset, len } => return self.read(*file, *offset, *len).map(Some),
            Request::Release(released) => {
                for reference in released {
                    self.leases.release(*reference).ok_or(End::Nonsense)?;
                }
                self.admitted.holds(self.leases.bytes());
                return Ok(None);
            }
            Request::Forget { arena } => {
                self.leases.forget(*arena).ok_or(End::Nonsense)?;
                return Ok(None);
            }
            Request::Close { file } => {
                self.files.remove(file).ok_or(End::Nonsense)?;
                self.shared.ledger.sweep();
                return Ok(None);
            }
        };
        Ok(Some((answer, Vec::new())))
    }

    /// Opens the file that whoever has `token` may read.
    fn open(&mut self, token: &Token) -> Answer {
        let ino = self.shared.invited(token, self.uid).ok_or(libc::EACCES)?;
        if self.files.len() >= self.shared.limits.files_max {
            return Err(libc::EMFILE);
        }
        if self.shared.is_lingering(self.uid) {
            return Err(libc::ENOBUFS);
        }
        let pool = self.shared.vfs.shared_pool(ino).ok_or(libc::EOPNOTSUPP)?;
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        self.files.insert(number, Open { ino, pool });
        Ok(Reply::Opened { file: number })
    }

    fn read(&mut self, file: u32, offset: u64, len: u32) -> Result<(Answer, Vec<OwnedFd>), End> {
        let open = self.files.get(&file).ok_or(End::Nonsense)?;
        // What is pushed onto a file is not for those who map what is below.
        let seen = self.shared.vfs.seen(open.ino, None);
        let pool = if seen == open.ino { Some(open.pool.clone()) } else { self.shared.vfs.shared_pool(seen) };
        // Whatever is in it, all who read the file have it in hand.
        let _asking = Asker::Anybody.asks();
        let Some(pool) = pool else { return Ok((Err(libc::EOPNOTSUPP), Vec::new())) };
        let deadline = self.admitted.deadline();
        let block_bytes = pool.block_bytes();
        // The first block may be read from its middle on.
        let within = usize::try_from(offset % block_bytes as u64).expect("in a block");
        let parts = loop {
            let (freed, left) = (self.admitted.freed(), self.admitted.bytes_left());
            let places = (left / pool.place_bytes()).min(PARTS_MAX / 2);
            if places == 0 {
                // Only it, or its user's other programs, can do something about that.
                return Ok((Err(libc::ENOBUFS), Vec::new()));
            }
            let len = (len as usize).min(BYTES_MAX).min(places * block_bytes - within);
            match self.shared.vfs.read_shared(seen, &pool, offset, len) {
                Ok(Some(parts)) => break parts,
                Ok(None) if self.admitted.wait_for_memory(freed, deadline) => {}
                Ok(None) => return Ok((Err(libc::ENOBUFS), Vec::new())),
                Err(error) => return Ok((Err(error.errno()), Vec::new())),
            }
        };
        let lending = self.leases.lend(&pool, parts);
        let descriptors = if lending.parts.is_empty() { Ok(Vec::new()) } else { self.give(&lending) };
        let Ok(descriptors) = descriptors else {
            // There are too many open files, or its user has enough that the daemon knows nothing
            // of.
            self.leases.take_back(&lending);
            return Ok((Err(libc::ENOBUFS), Vec::new()));
        };
        self.admitted.holds(self.leases.bytes());
        let lent = lending.new.iter().map(|arena| arena.number()).collect();
        Ok((Ok(Reply::Read { parts: lending.parts, lent }), descriptors))
    }

    /// Descriptors of the arenas that the program has not.
    fn give(&self, lending: &Lending) -> io::Result<Vec<OwnedFd>> {
        if !lending.new.is_empty() && self.shared.is_lingering(self.uid) {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let mut descriptors = Vec::new();
        for arena in &lending.new {
            self.shared.ledger.given(whose(self.uid), arena)?;
            descriptors.push(arena.reader()?);
        }
        Ok(descriptors)
    }
}
