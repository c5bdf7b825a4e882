//! Stands before a server as pgbouncer does with `pool_mode = transaction`: each transaction of a
//! client has whichever session of the server is free.

use crate::cluster::Cluster;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io::{Read, Result, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use weft_store::postgres::Address;

const SOCKET: &str = ".s.PGSQL.5432";

/// Messages of a server to a client that it lets in: AuthenticationOk, then ReadyForQuery outside
/// of a transaction (PostgreSQL documentation, "Message Formats").
const WELCOME: &[u8] = b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";

/// ErrorResponse (XX000, internal error), as of a catalog that changes while it is read, and
/// ReadyForQuery.
const FAILURE: &[u8] = b"E\0\0\0\x26SERROR\0VERROR\0CXX000\0Mgone since\0\0Z\0\0\0\x05I";

/// A pooler with a socket of its own.
pub struct Pooler {
    directory: tempfile::TempDir,
}

/// Sessions of the server that no client uses now.
struct Pool {
    free: Mutex<VecDeque<UnixStream>>,
    changed: Condvar,
    /// True if the first query of each client fails.
    fails_first: bool,
}

impl Pooler {
    /// Puts a pooler in front of `cluster`, with so many `sessions`, which take turns.
    ///
    /// # Panics
    /// If the server lets nobody in.
    pub fn new(cluster: &Cluster, sessions: usize) -> Pooler {
        Pooler::begin(cluster, sessions, false)
    }

    /// Puts a pooler in front of `cluster`, with so many `sessions`, which fails the first query of
    /// each client.
    ///
    /// # Panics
    /// If the server lets nobody in.
    pub fn failing_first(cluster: &Cluster, sessions: usize) -> Pooler {
        Pooler::begin(cluster, sessions, true)
    }

    fn begin(cluster: &Cluster, sessions: usize, fails_first: bool) -> Pooler {
        let directory = tempfile::tempdir().expect("a directory");
        let listener = UnixListener::bind(directory.path().join(SOCKET)).expect("bound");
        let server = cluster.socket().join(SOCKET);
        let free = (0..sessions).map(|_| session(server.clone()).expect("a session")).collect();
        let pool = Arc::new(Pool { free: Mutex::new(free), changed: Condvar::new(), fails_first });
        // It ends with the program, which ends with the tests.
        thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let pool = pool.clone();
                // A client that goes ends it.
                thread::spawn(move || serve(client, &pool));
            }
        });
        Pooler { directory }
    }

    /// Returns the address, by way of this socket, of the volume that is at `url` of the server
    /// itself.
    ///
    /// # Panics
    /// If that is no URL of a volume.
    pub fn address(&self, url: &str) -> Address {
        let options = url.rsplit_once('?').expect("a schema is named").1;
        let host = self.directory.path().display().to_string().replace('/', "%2F");
        Address::parse(&format!("postgres://postgres@{host}/postgres?{options}")).expect("an address")
    }
}

/// A message: its kind, its length, and the rest. The first one of a client has no kind.
fn message(from: &mut UnixStream, has_kind: bool) -> Result<Vec<u8>> {
    let kind = usize::from(has_kind);
    let mut message = vec![0; kind + 4];
    from.read_exact(&mut message)?;
    let length = u32::from_be_bytes(message[kind..].try_into().expect("four bytes"));
    message.resize(kind + length as usize, 0);
    from.read_exact(&mut message[kind + 4..])?;
    Ok(message)
}

/// A session of the server's own superuser.
fn session(server: PathBuf) -> Result<UnixStream> {
    let mut stream = UnixStream::connect(server)?;
    let words = b"\0\x03\0\0user\0postgres\0database\0postgres\0client_encoding\0UTF8\0\0";
    stream.write_all(&u32::try_from(4 + words.len()).expect("few").to_be_bytes())?;
    stream.write_all(words)?;
    while message(&mut stream, true)?[0] != b'Z' {}
    Ok(stream)
}

fn serve(mut client: UnixStream, pool: &Pool) -> Result<()> {
    message(&mut client, false)?;
    client.write_all(WELCOME)?;
    let mut held = None;
    let mut is_failing = pool.fails_first;
    loop {
        // Up to where the server is asked to answer.
        let mut asked = Vec::new();
        loop {
            let next = message(&mut client, true)?;
            let kind = next[0];
            asked.extend(next);
            if matches!(kind, b'S' | b'Q' | b'X') {
                break;
            }
        }
        if asked[0] == b'X' {
            return Ok(());
        }
        if std::mem::take(&mut is_failing) {
            client.write_all(FAILURE)?;
            continue;
        }
        let mut server = held.take().unwrap_or_else(|| pool.take());
        server.write_all(&asked)?;
        let last = loop {
            let answer = message(&mut server, true)?;
            if answer[0] == b'Z' {
                break answer;
            }
            // If it has gone, the session is still there for others once it has answered.
            let _ = client.write_all(&answer);
        };
        // Before the client knows, who may tell by another connection which sessions are free.
        if last[5] == b'I' {
            pool.give(server)
        } else {
            held = Some(server)
        }
        let _ = client.write_all(&last);
    }
}

impl Pool {
    fn take(&self) -> UnixStream {
        let mut free = self.free.lock();
        loop {
            match free.pop_front() {
                Some(session) => return session,
                None => self.changed.wait(&mut free),
            }
        }
    }

    fn give(&self, session: UnixStream) {
        self.free.lock().push_back(session);
        self.changed.notify_one();
    }
}
