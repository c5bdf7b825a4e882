//! The server: a listening socket, a task for each connection, and the few threads that wait.
//!
//! A task reads its connection, has each call served where it stands, and sends the replies in the
//! order in which they are ready. A call that would wait for a disk goes to a thread that may wait.
//! A change that must be durable first goes to the thread that syncs for all at once. A connection
//! whose replies are not taken is not read from, so memory has a bound for each client.

mod calling;
mod connection;
mod datagrams;
mod locking;
mod notices;
pub(crate) mod outsiders;
mod peers;
mod portmapper;
pub(crate) mod record;
mod replay;
mod replies;
mod serving;
mod stable;
mod stream;
mod tls;
mod turns;
pub(crate) mod waits;

pub use tls::{TlsError, TlsFiles};

use crate::export::{Client, Exports, Transport};
use crate::locking::Locking;
use crate::portmap::PORT;
use crate::service::{ExportError, Service};
use connection::Connection;
use locking::{LockService, listening};
use outsiders::Evicted;
use parking_lot::Mutex;
use peers::{Guest, Peers};
use portmapper::Registered;
use replay::ReplayCache;
use rustix::net::sockopt;
use stable::Stabilizer;
use std::cell::Cell;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tls::Tls;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, watch};
use waits::Waits;
use weft_links::{Lane, set_lane};
use weft_vfs::blocking::{self, Answer, Wait};
use weft_vfs::{Error, Secret, Vfs};

/// Most connections at once; more wait in the system's queue.
const CONNECTIONS_MAX: usize = 8192;
/// Threads that wait for disks, at most.
const WAITING_THREADS_MAX: usize = 64;
/// Time for requests that are being served to end after a signal to stop.
const LAST_REPLIES: Duration = Duration::from_secs(5);
/// Pause before connections are taken again, after that failed.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Silence after which a client is asked whether it is still there.
const VANISHED: Duration = Duration::from_secs(300);

/// Options for serving a volume.
#[derive(Clone, Debug)]
pub struct Options {
    /// Address for clients to connect to.
    pub address: SocketAddr,
    /// Exports and their clients.
    pub exports: Exports,
    /// Files for TLS, if it is offered.
    pub tls: Option<TlsFiles>,
    /// Options of clients' locks, if they may lock files.
    pub locking: Option<LockOptions>,
}

/// Options of clients' locks. Clients find the lock service by a portmapper alone.
#[derive(Clone, Debug)]
pub struct LockOptions {
    /// Port of portmappers, this one and those of clients.
    pub portmapper: u16,
    /// Grace period in which clients may reclaim their locks after a restart.
    pub grace: Duration,
}

impl Default for LockOptions {
    fn default() -> LockOptions {
        LockOptions { portmapper: PORT, grace: Duration::from_secs(45) }
    }
}

/// Reason that a volume cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Address {
        /// The address.
        address: SocketAddr,
        /// Cause.
        source: io::Error,
    },
    /// A directory cannot be exported.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// TLS cannot be offered.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// There can be no portmapper.
    #[error("cannot use port {} of {} as portmapper: {source}", address.port(), address.ip())]
    Portmapper {
        /// The address that it would listen on, or listens on.
        address: SocketAddr,
        /// Cause.
        source: io::Error,
    },
    /// The machine's portmapper has another server registered.
    #[error("another server is there already for program {program}: end that one ('rpcinfo -p' lists them)")]
    Registered {
        /// The program's number.
        program: u32,
    },
    /// The volume cannot be read or written.
    #[error("cannot tell which clients had locks")]
    Clients(#[source] Box<Error>),
    /// The volume cannot keep the key that handles are made with.
    #[error("cannot store the key of file handles in the volume")]
    Key(#[source] Box<Error>),
    /// The system gives no threads or no random numbers.
    #[error("cannot start serving: {0}")]
    System(#[source] io::Error),
}

/// A volume that is being served. Dropping it ends that at once.
pub struct Server {
    address: SocketAddr,
    runtime: Mutex<Option<Runtime>>,
    stop: watch::Sender<bool>,
    connections: Arc<Semaphore>,
    shared: Arc<Shared>,
    registered: Option<Registered>,
}

/// State that all connections share.
struct Shared {
    service: Service,
    replays: ReplayCache,
    stable: Stabilizer,
    peers: Peers,
    waits: Waits,
    tls: Option<Tls>,
    stop: watch::Receiver<bool>,
}

/// Waits that a thread may do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum May {
    /// Nothing: it serves connections.
    NotWait,
    /// One append to the log.
    WaitForLog,
    /// Anything.
    Wait,
}

thread_local! {
    static MAY: Cell<May> = const { Cell::new(May::NotWait) };
}

/// Runs `operation`, which may wait as `may` says.
fn waiting<T>(may: May, operation: impl FnOnce() -> T) -> T {
    let before = MAY.replace(may);
    let result = operation();
    MAY.set(before);
    result
}

/// Decides if this thread may wait for `what`.
fn about_to_wait(what: Wait) -> Answer {
    match (MAY.get(), what) {
        (May::Wait, _) | (May::WaitForLog, Wait::Log) => Answer::Wait,
        (May::NotWait | May::WaitForLog, _) => Answer::GiveUp,
    }
}

impl Server {
    /// Begins to serve `vfs`.
    pub fn start(vfs: Arc<Vfs>, options: Options) -> Result<Server, ServerError> {
        let tls = options.tls.as_ref().map(Tls::new).transpose()?;
        let refused = |source| ServerError::Address { address: options.address, source };
        let listener = TcpListener::bind(options.address).map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        let secret = handle_secret(&vfs)?;
        let verifier = random::<8>().map_err(ServerError::System)?;
        let mut service = Service::new(vfs.clone(), options.exports, secret, verifier)?;
        let locks = options.locking.map(|locks| LockService::new(vfs.clone(), address, locks, &mut service));
        let locks = locks.transpose()?;
        let runtime = runtime().map_err(ServerError::System)?;
        let (stop, stopped) = watch::channel(false);
        let stable = Stabilizer::start(vfs).map_err(ServerError::System)?;
        let (replays, peers, waits) = (ReplayCache::default(), Peers::default(), Waits::default());
        let shared = Arc::new(Shared { service, replays, stable, peers, waits, tls, stop: stopped });
        let counted = Arc::downgrade(&shared);
        let counters = move || {
            let shared = counted.upgrade()?;
            Some(shared.peers.stats(address, &shared.service.refusals, &shared.service.calls))
        };
        shared.service.vfs.tell_of_nfs(counters);
        let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let registered = runtime.block_on(async {
            let listener = listening(listener).map_err(refused)?;
            tokio::spawn(accept(listener, shared.clone(), connections.clone()));
            tokio::spawn(serving::watch(Arc::downgrade(&shared)));
            match locks {
                Some(locks) => locks.start(&shared, &connections).await,
                None => Ok(None),
            }
        })?;
        Ok(Server { address, runtime: Mutex::new(Some(runtime)), stop, connections, shared, registered })
    }

    /// Returns the address that clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Looks for calls that have waited long, as after a second.
    #[cfg(test)]
    pub(crate) fn look(&self) {
        serving::look(&self.shared);
    }

    /// Returns the handle of `file` in the first export.
    #[cfg(test)]
    pub(crate) fn handle(&self, file: weft_vfs::FileId) -> Vec<u8> {
        let service = &self.shared.service;
        service.handle(&service.exports[0], file).to_vec()
    }

    /// Takes no more requests. Returns when those taken have been answered, or cannot be soon.
    pub fn stop(&self) {
        let Some(runtime) = self.runtime.lock().take() else { return };
        self.stop.send_replace(true);
        let all = u32::try_from(CONNECTIONS_MAX).expect("a small number");
        runtime.block_on(async {
            if let Some(registered) = &self.registered {
                registered.withdraw().await;
            }
            let ended = self.connections.acquire_many(all);
            // Replies still on their way are lost, as when a server is killed: clients ask again.
            let _ = tokio::time::timeout(LAST_REPLIES, ended).await;
        });
        runtime.shutdown_timeout(LAST_REPLIES);
        let forgotten = self.shared.service.locking.as_ref().map_or(Ok(()), Locking::forget_idle);
        if let Err(error) = forgotten {
            tracing::warn!("clients without locks cannot be forgotten: {error}");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.lock().take() {
            runtime.shutdown_background();
        }
    }
}

fn runtime() -> io::Result<Runtime> {
    // Computing leaves threads to calls that wait for disks.
    let lane = Lane::new(WAITING_THREADS_MAX);
    let started = move || {
        blocking::set_hook(about_to_wait);
        set_lane(lane.clone());
    };
    Builder::new_multi_thread()
        .thread_name("weft-nfs")
        .max_blocking_threads(WAITING_THREADS_MAX)
        .enable_io()
        .enable_time()
        .on_thread_start(started)
        .build()
}

/// Returns the volume's key for handles, made when it is first served. A read-only volume without
/// one gets a key for this run.
fn handle_secret(vfs: &Vfs) -> Result<Secret, ServerError> {
    const NAME: &str = "handles";
    let fresh = random::<32>().map_err(ServerError::System)?;
    match vfs.secret_or(NAME, fresh) {
        Err(error) if error.kind() == weft_vfs::ErrorKind::ReadOnly => Ok(fresh),
        kept => kept.map_err(|error| ServerError::Key(Box::new(error))),
    }
}

/// Returns bytes that nobody can guess.
fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    if filled == N { Ok(bytes) } else { Err(io::Error::other("too few random bytes")) }
}

/// Takes connections until the server stops.
async fn accept(listener: tokio::net::TcpListener, shared: Arc<Shared>, connections: Arc<Semaphore>) {
    let mut stop = shared.stop.clone();
    loop {
        let Ok(permit) = connections.clone().acquire_owned().await else { return };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                let client = client_of(&stream, peer);
                // An excess connection is closed: the client may try again when it has closed
                // others.
                let Some(admitted) = admit(&shared, &client) else { continue };
                let shared = shared.clone();
                tokio::spawn(async move {
                    serve(stream, client, admitted, shared).await;
                    drop(permit);
                });
            }
            // There were too many descriptors, or the client went away: others may still come.
            Err(_) => tokio::time::sleep(ACCEPT_AGAIN).await,
        }
    }
}

/// Counts a connection of `client`; none if it has its share. A connection that no rule lets in may
/// be evicted.
fn admit(shared: &Shared, client: &Client) -> Option<(Guest, Option<Evicted>)> {
    if shared.service.lets_in(client) {
        return shared.peers.admit(client.address).map(|guest| (guest, None));
    }
    let (guest, evicted) = shared.peers.admit_outsider(client.address);
    Some((guest, Some(evicted)))
}

/// Returns the client at the other end of `stream`, as it is without TLS.
fn client_of(stream: &TcpStream, peer: SocketAddr) -> Client {
    let local = stream.local_addr().map_or(peer.ip(), |local| local.ip()).to_canonical();
    let (address, port) = (peer.ip().to_canonical(), peer.port());
    Client { address, port, local, transport: Transport::Tcp, tls: false }
}

async fn serve(stream: TcpStream, client: Client, admitted: (Guest, Option<Evicted>), shared: Arc<Shared>) {
    // Replies are whole when they are written: nothing more is to be waited for.
    let _ = stream.set_nodelay(true);
    // A client that vanished must not keep its place for ever. If the options fail, serving works
    // as well.
    let _ = sockopt::set_socket_keepalive(&stream, true);
    let _ = sockopt::set_tcp_keepidle(&stream, VANISHED);
    let (guest, evicted) = admitted;
    let connection = Connection::new(stream, (client, guest), shared).run();
    match evicted {
        None => connection.await,
        Some(evicted) => tokio::select! {
            () = connection => {}
            _ = evicted => {}
        },
    }
}
