//! One connection: what a program asks for, and what it gets.

use crate::holdings::Holdings;
use crate::server::{Admitted, Shared};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::net::{RecvFlags, SendFlags};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use weft_block::Buffer;
use weft_block::shared::Pool;
use weft_client::protocol::{PACKET_BYTES_MAX, PARTS_MAX, Reply, Request, VERSION};
use weft_client::socket::{receive, send};
use weft_vfs::{Ino, say};

/// Most bytes that one request reads or writes.
const BYTES_MAX: usize = 16 << 20;

/// Bytes written to a file at once.
const WRITTEN_AT_ONCE: usize = 1 << 20;

/// A file that a program has open.
struct Open {
    ino: Ino,
    pool: Arc<Pool>,
    is_writable: bool,
}

/// Why a connection ends although the program has not closed it.
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
    holdings: Holdings,
    admitted: Admitted,
}

impl Session {
    pub(crate) fn new(shared: Arc<Shared>, socket: Arc<OwnedFd>, uid: u32, admitted: Admitted) -> Session {
        let (files, holdings) = (HashMap::new(), Holdings::default());
        Session { shared, socket, uid, files, next: 0, is_greeted: false, holdings, admitted }
    }

    /// Serves until the program closes the connection or breaks the rules.
    pub(crate) fn run(mut self) {
        match self.serve() {
            Ok(()) => {}
            Err(End::Nonsense) => {
                say(format_args!("a program of user {} asks what makes no sense; its connection is closed", self.uid));
            }
            Err(End::System(_)) if self.admitted.is_revoked() => {}
            Err(End::System(error)) => {
                say(format_args!("the connection to a program of user {} broke: {error}", self.uid));
            }
        }
        if self.admitted.is_revoked() {
            // It may still read what it was lent.
            self.holdings.retire();
            say(format_args!("a program of user {} held shared memory for too long", self.uid));
        }
        // Before others are told that there may be room.
        self.files.clear();
        self.holdings = Holdings::default();
    }

    fn serve(&mut self) -> Result<(), End> {
        let mut buffer = vec![0; PACKET_BYTES_MAX];
        loop {
            let (len, descriptors) = match receive(self.socket.as_fd(), &mut buffer, RecvFlags::empty()) {
                Ok((0, _)) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
                received => received?,
            };
            self.admitted.spoke();
            let request = Request::decode(&buffer[..len]).ok_or(End::Nonsense)?;
            let answer = self.answer(&request, descriptors)?;
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

    /// What is answered, if anything is, and with which descriptors.
    fn answer(&mut self, request: &Request, given: Vec<OwnedFd>) -> Result<Option<(Answer, Vec<OwnedFd>)>, End> {
        let greets = matches!(request, Request::Hello { .. });
        let wanted = usize::from(matches!(request, Request::Open | Request::Write { .. }));
        if greets == self.is_greeted || given.len() != wanted {
            return Err(End::Nonsense);
        }
        let given = given.into_iter().next();
        let answer = match (request, given) {
            (Request::Hello { version: VERSION }, _) => {
                self.is_greeted = true;
                Ok(Reply::Hello)
            }
            (Request::Hello { .. }, _) => Err(libc::EPROTONOSUPPORT),
            (Request::Open, Some(file)) => self.open(&file),
            (Request::Write { file, offset, len, at }, Some(memory)) => {
                self.write(*file, *offset, *len, (&memory, *at))
            }
            (Request::Read { file, offset, len }, _) => return self.read(*file, *offset, *len).map(Some),
            (Request::Release(released), _) => {
                for reference in released {
                    self.holdings.release(*reference).ok_or(End::Nonsense)?;
                }
                self.admitted.holds(self.holdings.bytes());
                return Ok(None);
            }
            (Request::Forget { arena }, _) => {
                self.holdings.forget(*arena).ok_or(End::Nonsense)?;
                return Ok(None);
            }
            (Request::Close { file }, _) => {
                self.files.remove(file).ok_or(End::Nonsense)?;
                self.shared.ledger.sweep();
                return Ok(None);
            }
            (Request::Open | Request::Write { .. }, None) => return Err(End::Nonsense),
        };
        Ok(Some((answer, Vec::new())))
    }

    /// Opens what `shown` is a descriptor of: whoever has it may read, and write if it may.
    fn open(&mut self, shown: &OwnedFd) -> Answer {
        let flags = fcntl_getfl(shown).map_err(|error| error.raw_os_error())?;
        // What was opened only to be named was not asked for rights (open(2), O_PATH).
        let is_readable = matches!(flags & OFlags::RWMODE, mode if mode == OFlags::RDONLY || mode == OFlags::RDWR);
        if flags.contains(OFlags::PATH) || !is_readable {
            return Err(libc::EBADF);
        }
        let ino = (self.shared.identify)(shown.as_fd()).ok_or(libc::EXDEV)?;
        if self.files.len() >= self.shared.limits.files_max {
            return Err(libc::EMFILE);
        }
        if self.shared.is_lingering(self.uid) {
            return Err(libc::ENOBUFS);
        }
        let pool = self.shared.vfs.shared_pool(ino).ok_or(libc::EOPNOTSUPP)?;
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        let is_writable = flags & OFlags::RWMODE == OFlags::RDWR && !flags.contains(OFlags::APPEND);
        self.files.insert(number, Open { ino, pool, is_writable });
        Ok(Reply::Opened { file: number, is_writable })
    }

    fn read(&mut self, file: u32, offset: u64, len: u32) -> Result<(Answer, Vec<OwnedFd>), End> {
        let open = self.files.get(&file).ok_or(End::Nonsense)?;
        let (ino, pool) = (open.ino, open.pool.clone());
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
            let seen = self.shared.vfs.seen(ino, None);
            match self.shared.vfs.read_shared(seen, &pool, offset, len) {
                Ok(Some(parts)) => break parts,
                Ok(None) if self.admitted.wait_for_memory(freed, deadline) => {}
                Ok(None) => return Ok((Err(libc::ENOBUFS), Vec::new())),
                Err(error) => return Ok((Err(error.errno()), Vec::new())),
            }
        };
        let lending = self.holdings.lend(&pool, parts);
        self.admitted.holds(self.holdings.bytes());
        let mut descriptors = Vec::new();
        for arena in &lending.new {
            self.shared.ledger.given(self.uid, arena)?;
            descriptors.push(arena.reader()?);
        }
        let lent = lending.new.iter().map(|arena| arena.number()).collect();
        Ok((Ok(Reply::Read { parts: lending.parts, lent }), descriptors))
    }

    /// Writes what lies in `memory` from a place on. It is copied before anybody looks at it, so that nobody changes it meanwhile.
    fn write(&mut self, file: u32, offset: u64, len: u32, (memory, at): (&OwnedFd, u64)) -> Answer {
        let open = self.files.get(&file).filter(|open| open.is_writable).ok_or(libc::EBADF)?;
        // Reading from anything else might take for ever.
        rustix::fs::fcntl_get_seals(memory).map_err(|_| libc::EINVAL)?;
        let mut left = (len as usize).min(BYTES_MAX);
        if left < len as usize {
            return Err(libc::EMSGSIZE);
        }
        let seen = self.shared.vfs.seen(open.ino, None);
        let (mut from, mut to) = (at, offset);
        while left > 0 {
            let mut buffer = Buffer::any(left.min(WRITTEN_AT_ONCE));
            let read = rustix::io::pread(memory, &mut buffer[..], from).map_err(|error| error.raw_os_error())?;
            if read == 0 {
                return Err(libc::EINVAL);
            }
            weft_block::copied(read);
            let written = self.shared.vfs.write_shared(seen, to, &buffer[..read], self.uid != 0);
            written.map_err(|error| error.errno())?;
            left -= read;
            from = from.saturating_add(read as u64);
            to = to.saturating_add(read as u64);
        }
        Ok(Reply::Written)
    }
}
