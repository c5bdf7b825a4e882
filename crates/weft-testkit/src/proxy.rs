//! A proxy between a store and its server that breaks connections, or has commits refused, on
//! request.

mod messages;

use crate::cluster::Cluster;
use messages::Messages;
use parking_lot::Mutex;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use weft_store::postgres::Address;

/// The fault to inject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// Nothing.
    Never,
    /// The connection breaks as soon as the server has committed, so many commits from now on (0:
    /// the next): the client never learns of it.
    AfterCommit(u32),
    /// The connection breaks when the client has sent so many more pieces (of whatever size): this
    /// one the server does not get.
    BeforePiece(u32),
    /// A commit, after so many from now on, is refused, as one that cannot be serialized (SQLSTATE
    /// 40001).
    Refuse(u32),
}

/// A socket of its own, from which everything is passed on to a server and back.
pub struct Proxy {
    directory: tempfile::TempDir,
    state: Arc<Mutex<State>>,
}

struct State {
    when: Break,
    broken: u32,
}

impl Proxy {
    /// Puts a proxy in front of `cluster`.
    pub fn new(cluster: &Cluster) -> Proxy {
        let directory = tempfile::tempdir().expect("a directory");
        let listener = UnixListener::bind(directory.path().join(SOCKET)).expect("bound");
        let state = Arc::new(Mutex::new(State { when: Break::Never, broken: 0 }));
        let (own, server) = (state.clone(), cluster.socket().join(SOCKET));
        // It ends with the program, which ends with the tests.
        thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let (state, server) = (own.clone(), server.clone());
                thread::spawn(move || serve(client, server, &state));
            }
        });
        Proxy { directory, state }
    }

    /// Returns the address, by way of this socket, of the volume that is at `url` of the server
    /// itself.
    pub fn address(&self, url: &str) -> Address {
        let options = url.rsplit_once('?').expect("a schema is named").1;
        let host = self.directory.path().display().to_string().replace('/', "%2F");
        Address::parse(&format!("postgres://postgres@{host}/postgres?{options}")).expect("an address")
    }

    /// Injects this fault once from now on.
    pub fn set(&self, when: Break) {
        self.state.lock().when = when;
    }

    /// Returns the number of faults so far.
    pub fn broken(&self) -> u32 {
        self.state.lock().broken
    }
}

const SOCKET: &str = ".s.PGSQL.5432";

/// Message of the server when it has committed (PostgreSQL documentation, "Message Formats",
/// CommandComplete).
const COMMITTED: &[u8] = b"C\0\0\0\x0bCOMMIT\0";

fn serve(client: UnixStream, server: PathBuf, state: &Arc<Mutex<State>>) {
    // A server that is away breaks the connection at once.
    let Ok(server) = UnixStream::connect(server) else { return };
    let clone = |stream: &UnixStream| stream.try_clone().expect("a descriptor");
    let (to_server, from_client, own) = (clone(&server), clone(&client), state.clone());
    let mut messages = Messages::default();
    let forth = move |bytes: &mut Vec<u8>| {
        let mut state = own.lock();
        *bytes = messages.take(bytes, || state.refuses());
        state.breaks_before_piece()
    };
    let forth = thread::spawn(move || pass(from_client, to_server, forth));
    pass(server, client, |bytes| state.lock().breaks_after_commit(bytes));
    let _ = forth.join();
}

/// Passes bytes on, as `change` leaves them, until either end closes or it says so; then both are
/// closed.
fn pass(mut from: UnixStream, mut to: UnixStream, mut change: impl FnMut(&mut Vec<u8>) -> bool) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(len) = from.read(&mut buffer) {
        let mut bytes = buffer[..len].to_vec();
        if len == 0 || change(&mut bytes) || to.write_all(&bytes).is_err() {
            break;
        }
    }
    // Either may be closed already.
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

impl State {
    fn breaks(&mut self) -> bool {
        self.when = Break::Never;
        self.broken += 1;
        true
    }

    fn refuses(&mut self) -> bool {
        match &mut self.when {
            Break::Refuse(0) => self.breaks(),
            Break::Refuse(left) => {
                *left -= 1;
                false
            }
            Break::Never | Break::AfterCommit(_) | Break::BeforePiece(_) => false,
        }
    }

    fn breaks_before_piece(&mut self) -> bool {
        match &mut self.when {
            Break::BeforePiece(0) => self.breaks(),
            Break::BeforePiece(left) => {
                *left -= 1;
                false
            }
            Break::Never | Break::AfterCommit(_) | Break::Refuse(_) => false,
        }
    }

    fn breaks_after_commit(&mut self, bytes: &[u8]) -> bool {
        let commits = bytes.windows(COMMITTED.len()).filter(|window| *window == COMMITTED).count() as u32;
        match &mut self.when {
            Break::AfterCommit(left) if *left < commits => self.breaks(),
            Break::AfterCommit(left) => {
                *left -= commits;
                false
            }
            Break::Never | Break::BeforePiece(_) | Break::Refuse(_) => false,
        }
    }
}
