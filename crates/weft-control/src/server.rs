//! Connections to the control socket and to the address of metrics: who may have one, how many, and
//! for how long.
//!
//! One thread each with a runtime of its own, which serves nothing else, so nothing here delays a
//! request of the volume.

use crate::COMMIT_MAX;
use crate::answers::{ASKING_MAX, Answers, Asker, open_router, router};
use crate::directory::{self, DirectoryError};
use crate::files::WORKING_MAX;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use rustix::process::{Gid, geteuid, getgroups};
use std::convert::Infallible;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use weft_vfs::Credentials;

/// Most connections at once; more are refused.
const CONNECTIONS_MAX: usize = 256;

/// The answer to those.
const TOO_MANY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 26\r\n\r\ntoo many connections here\n";

/// Time within which a client must send the head of its request.
const HEAD_MAX: Duration = Duration::from_secs(5);

/// Most bytes of the head of a request, and most lines of it.
const HEAD_BYTES_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 32;

/// Time that a connection may last: as long as its request, its answer and both ways take.
const CONNECTION_MAX: Duration = COMMIT_MAX.saturating_add(Duration::from_secs(10));

/// Time that requests have that are there when no more are taken.
const DRAIN_MAX: Duration = Duration::from_secs(5);

/// Time to wait before connections are accepted again, after that failed.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Bytes of the stack of the serving thread.
const STACK_BYTES: usize = 512 << 10;

/// True for a connection that lasts as long as its client likes: that of a session.
#[derive(Clone, Default)]
pub(crate) struct Lasts(Arc<AtomicBool>);

impl Lasts {
    /// It is such a connection.
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The reason that there is no control socket.
#[derive(Debug)]
pub enum StartError {
    /// There is no directory for it.
    Directory(DirectoryError),
    /// It cannot be made.
    System(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Directory(error) => error.fmt(f),
            StartError::System(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StartError {}

/// A control socket that is served. It is removed when this is dropped, or stopped.
pub struct Server {
    path: PathBuf,
    answers: Answers,
    running: Running,
}

impl Server {
    /// Makes the socket of a daemon and gives `answers` there. The daemon must hold its volume:
    /// sockets of the volume that nobody listens at are removed. Must be called after the process
    /// has gone to the background, as it starts a thread.
    pub fn start(answers: &Answers) -> Result<Server, StartError> {
        Server::start_in(&directory::made().map_err(StartError::Directory)?, answers)
    }

    fn start_in(directory: &Path, answers: &Answers) -> Result<Server, StartError> {
        let daemon = answers.daemon();
        let (listener, path) = directory::listen(directory, &daemon.id, daemon.kind).map_err(StartError::System)?;
        let (router, lasting) = (router(answers), answers.sessions().clone());
        let running = listener.set_nonblocking(true).and_then(|()| {
            Running::start(
                "weft-control",
                move || lasting.connections(),
                async move |places, phase| {
                    let listener = UnixListener::from_std(listener)?;
                    accept(async || Ok(listener.accept().await?.0), asker, router, places, phase).await;
                    Ok(())
                },
            )
        });
        let running = running.inspect_err(|_| drop(std::fs::remove_file(&path))).map_err(StartError::System)?;
        Ok(Server { path, answers: answers.clone(), running })
    }

    /// Returns the path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The daemon will end once no program has a session with it: [`Server::end_when_unused`]
    /// follows.
    pub fn will_end_when_unused(&self) {
        self.answers.sessions().will_end_when_unused();
    }

    /// Does `unused` once no program has a session with the daemon, which takes no more of them
    /// then.
    pub fn end_when_unused(&self, unused: impl FnOnce() + Send + 'static) {
        self.answers.sessions().end_when_unused(unused);
    }

    /// Removes the socket, and answers nothing more but the requests that are there already, for
    /// which it waits a little. Those that take longer are not done any more. Sessions go on.
    pub fn stop(&self) {
        self.answers.sessions().close();
        // First, so that nobody is left waiting there.
        let _ = std::fs::remove_file(&self.path);
        self.running.drain();
        self.answers.end_work();
    }

    /// Tells programs, after [`Server::stop`], that the daemon has ended, and the reason that not
    /// all is committed, if that is so.
    pub fn end(&self, failed: Option<&str>) {
        self.answers.sessions().tell_end(failed);
        self.running.stop();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// An address at which the metrics and the health of a daemon are told to anybody.
pub struct MetricsServer(Running);

impl MetricsServer {
    /// Gives those of `answers` that anybody may have to whoever connects to `listener`. Must be
    /// called after the process has gone to the background, as it starts a thread.
    ///
    /// Errors: there is no thread for it.
    pub fn start(answers: &Answers, listener: std::net::TcpListener) -> io::Result<MetricsServer> {
        listener.set_nonblocking(true)?;
        let router = open_router(answers);
        let anybody = |_: &_| Some(Credentials { uid: u32::MAX, gid: u32::MAX, groups: Vec::new() });
        let running = Running::start(
            "weft-metrics",
            || 0,
            async move |places, phase| {
                let listener = TcpListener::from_std(listener)?;
                accept(async || Ok(listener.accept().await?.0), anybody, router, places, phase).await;
                Ok(())
            },
        );
        running.map(MetricsServer)
    }

    /// Answers nothing more.
    pub fn stop(&self) {
        self.0.stop();
    }
}

/// A thread that serves, until it is stopped or dropped.
struct Running {
    phase: watch::Sender<Phase>,
    /// Closed once the connections are answered.
    drained: Mutex<mpsc::Receiver<Infallible>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The life of such a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// It takes connections.
    Serving,
    /// It takes none, and answers those that it has. Sessions go on.
    Draining,
    /// It ends.
    Ending,
}

impl Running {
    /// Has a thread of its own do what `serves` says; of its connections as many as `lasting` tells
    /// last until the end.
    fn start<F: Future<Output = io::Result<()>>>(
        name: &str,
        lasting: impl Fn() -> usize + Send + 'static,
        serves: impl FnOnce(Arc<Semaphore>, watch::Receiver<Phase>) -> F + Send + 'static,
    ) -> io::Result<Running> {
        let runtime = runtime(name)?;
        let (told, mut phase) = watch::channel(Phase::Serving);
        let (draining, drained) = mpsc::channel();
        let serves = move || {
            runtime.block_on(async {
                let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
                if let Err(error) = serves(places.clone(), phase.clone()).await {
                    tracing::warn!("questions to this daemon are not answered: {error}");
                    // It fails if nobody is left to tell.
                    let _ = phase.wait_for(|phase| *phase >= Phase::Draining).await;
                }
                answered(&places, lasting()).await;
                drop(draining);
                // It fails if nobody is left to tell.
                let _ = phase.wait_for(|phase| *phase == Phase::Ending).await;
                answered(&places, 0).await;
            });
            // A commit that does not end is not waited for.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name(name.into()).stack_size(STACK_BYTES).spawn(serves)?;
        Ok(Running { phase: told, drained: Mutex::new(drained), thread: Mutex::new(Some(thread)) })
    }

    /// Takes no more connections, and waits until those that are there are answered.
    fn drain(&self) {
        self.go_to(Phase::Draining);
        // It ends with an error, as nothing is sent.
        let _ = self.drained.lock().recv();
    }

    fn stop(&self) {
        self.go_to(Phase::Ending);
        let thread = self.thread.lock().take();
        // One that has ended has nothing to tell.
        let _ = thread.map(JoinHandle::join);
    }

    fn go_to(&self, next: Phase) {
        self.phase.send_if_modified(|phase| {
            let is_later = *phase < next;
            *phase = next.max(*phase);
            is_later
        });
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Waits until all connections but `lasting` of them have been answered: not for long.
async fn answered(places: &Semaphore, lasting: usize) {
    let others = CONNECTIONS_MAX.saturating_sub(lasting);
    let _ = timeout(DRAIN_MAX, places.acquire_many(u32::try_from(others).unwrap_or(u32::MAX))).await;
}

fn runtime(name: &str) -> io::Result<Runtime> {
    Builder::new_current_thread()
        .thread_name(name)
        .max_blocking_threads(ASKING_MAX + WORKING_MAX + 1)
        .enable_io()
        .enable_time()
        .build()
}

/// Answers connections by `router`, of those of whom `asker` tells, until no more are to be taken,
/// and then those that are there.
async fn accept<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
    next: impl AsyncFn() -> io::Result<S>,
    asker: impl Fn(&S) -> Option<Credentials>,
    router: Router,
    places: Arc<Semaphore>,
    mut phase: watch::Receiver<Phase>,
) {
    loop {
        let taken = tokio::select! {
            biased;
            taken = next() => taken,
            _ = phase.wait_for(|phase| *phase >= Phase::Draining) => return,
        };
        let Ok(stream) = taken else {
            // Too many descriptors: others may be closed.
            tokio::time::sleep(ACCEPT_AGAIN).await;
            continue;
        };
        // Somebody else's: nothing is told.
        let Some(asker) = asker(&stream) else { continue };
        match places.clone().try_acquire_owned() {
            Ok(place) => {
                let lasts = Lasts::default();
                let router = router.clone().layer(Extension(lasts.clone()));
                let router = router.layer(Extension(Asker(asker.uid))).layer(Extension(Arc::new(asker)));
                tokio::spawn(async move {
                    let answered = answer(stream, router);
                    tokio::pin!(answered);
                    // One that takes too long, or makes no sense, is closed.
                    if timeout(CONNECTION_MAX, &mut answered).await.is_err() && lasts.0.load(Ordering::Relaxed) {
                        let _ = answered.await;
                    }
                    drop(place);
                });
            }
            Err(_) => refuse(stream).await,
        }
    }
}

/// Says that too many are here. Nothing is waited for: the answer fits into the buffer of a new
/// connection.
async fn refuse<S: AsyncWrite + Unpin>(mut stream: S) {
    let _ = timeout(ACCEPT_AGAIN, stream.write_all(TOO_MANY)).await;
    let _ = timeout(ACCEPT_AGAIN, stream.shutdown()).await;
}

/// Returns who asks over `stream`, if that is this user or root. This user has the groups of this
/// process, which such a process could have do anything in any case.
fn asker(stream: &UnixStream) -> Option<Credentials> {
    let peer = stream.peer_cred().ok()?;
    let groups = || getgroups().unwrap_or_default().into_iter().map(Gid::as_raw).collect();
    let asker = || Credentials { uid: peer.uid(), gid: peer.gid(), groups: groups() };
    (peer.uid() == 0 || peer.uid() == geteuid().as_raw()).then(asker)
}

/// Answers one request.
async fn answer<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(stream: S, router: Router) -> hyper::Result<()> {
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_MAX)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::{Daemon, Kind};
    use crate::client::{Answer, Method, Unanswered, ask};
    use serde_json::json;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream as Client;
    use std::sync::Weak;
    use weft_vfs::{Report, Stats};

    const SOON: Duration = Duration::from_secs(30);

    fn answers() -> Answers {
        let daemon = Daemon {
            kind: Kind::Mount,
            id: [1; 16],
            volume: "/v".into(),
            server: None,
            engine: "sqlite",
            place: "/m".into(),
            read_only: false,
            as_of: None,
            vfs: Weak::new(),
            counters: Box::new(|| {
                let volume = Stats { commit_error: Some("no\nspace".into()), ..Stats::default() };
                Some(Report { transport: "device", volume, ..Report::default() })
            }),
        };
        Answers::new(daemon)
    }

    fn started() -> (tempfile::TempDir, Server) {
        let directory = tempfile::tempdir().expect("a directory");
        let server = Server::start_in(directory.path(), &answers()).expect("started");
        (directory, server)
    }

    fn get(server: &Server, target: &str) -> Answer {
        ask(&server.path, Method::Get, target, SOON).expect("answered")
    }

    #[test]
    fn each_question_has_its_answer_and_nothing_else_has_one() {
        let (_directory, server) = started();
        let answer = |code, body: &str| Answer { code, body: format!("{body}\n") };
        assert_eq!(get(&server, "/healthz"), answer(200, "ok"));
        assert_eq!(get(&server, "/readyz"), answer(503, "the last commit failed: no\\nspace"));
        let stats: serde_json::Value = serde_json::from_str(&get(&server, "/stats").body).expect("JSON");
        assert_eq!((&stats["transport"], &stats["volume"]["commit_error"]), (&json!("device"), &json!("no\nspace")));
        // Its volume is gone.
        assert_eq!(get(&server, "/status").code, 503);
        assert_eq!(ask(&server.path, Method::Post, "/commit", SOON).expect("answered").code, 503);
        assert_eq!((get(&server, "/commit").code, get(&server, "/").code), (405, 404));
        // It is a mount, which is unmounted.
        assert_eq!(ask(&server.path, Method::Post, "/stop", SOON).expect("answered").code, 409);
        let path = server.path.clone();
        server.stop();
        assert!(!path.exists());
        assert!(matches!(ask(&path, Method::Get, "/healthz", SOON), Err(Unanswered::Gone)));
    }

    /// Returns the answer to `bytes`, read until the connection is closed.
    fn said(server: &Server, bytes: &[u8]) -> String {
        let mut client = Client::connect(&server.path).expect("connected");
        // It may be closed before all is written.
        let _ = client.write_all(bytes);
        let mut said = Vec::new();
        let _ = client.read_to_end(&mut said);
        String::from_utf8_lossy(&said).into_owned()
    }

    #[test]
    fn garbage_large_heads_and_bodies_are_refused() {
        let (_directory, server) = started();
        assert!(said(&server, &[0xff; 100_000]).starts_with("HTTP/1.1 4"));
        let large = format!("GET /healthz HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
        let refused = said(&server, large.as_bytes());
        assert!(refused.is_empty() || refused.starts_with("HTTP/1.1 4"), "{refused}");
        let many = format!("GET /healthz HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(100));
        assert!(said(&server, many.as_bytes()).starts_with("HTTP/1.1 431"));
        for header in ["Content-Length: 4", "Transfer-Encoding: chunked"] {
            let body = format!("POST /commit HTTP/1.1\r\nHost: x\r\n{header}\r\n\r\n");
            assert!(said(&server, body.as_bytes()).starts_with("HTTP/1.1 413"), "{header}");
        }
        assert_eq!(get(&server, "/healthz").code, 200);
    }

    #[test]
    fn more_clients_than_may_be_here_are_refused_and_slow_ones_closed() {
        let (_directory, server) = started();
        let slow: Vec<Client> =
            (0..CONNECTIONS_MAX).map(|_| Client::connect(&server.path).expect("connected")).collect();
        let refused = Answer { code: 503, body: "too many connections here\n".into() };
        assert_eq!(get(&server, "/healthz"), refused);
        // Each of them has its time.
        let mut nothing = String::new();
        for mut client in slow {
            assert_eq!(client.read_to_string(&mut nothing).expect("closed"), 0);
        }
        assert_eq!(get(&server, "/healthz").code, 200);
    }

    #[test]
    fn health_and_metrics_alone_are_told_to_anybody() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("bound");
        let address = listener.local_addr().expect("an address");
        let server = MetricsServer::start(&answers(), listener).expect("started");
        let said = |request: &str| {
            let mut client = std::net::TcpStream::connect(address).expect("connected");
            client.write_all(format!("{request} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).expect("sent");
            let mut said = String::new();
            client.read_to_string(&mut said).expect("read");
            said
        };
        assert!(said("GET /healthz").starts_with("HTTP/1.1 200"));
        assert!(said("GET /readyz").starts_with("HTTP/1.1 503"));
        for closed in ["GET /stats", "GET /status", "GET /operations", "POST /commit", "POST /stop", "POST /restore"] {
            assert!(said(closed).starts_with("HTTP/1.1 404"), "{closed}");
        }
        server.stop();
        assert!(std::net::TcpStream::connect(address).is_err());
    }

    #[test]
    fn another_user_is_told_nothing() {
        use rustix::thread::{Uid, set_thread_res_uid};
        use std::os::unix::fs::PermissionsExt;
        if !geteuid().is_root() {
            return eprintln!("SKIPPED another_user_is_told_nothing: needs root");
        }
        let (directory, server) = started();
        // As if neither the directory nor the socket were closed.
        for path in [directory.path(), &server.path] {
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o777)).expect("opened");
        }
        let as_other = || {
            let other = Uid::from_raw(65534);
            // A thread's own: the process stays root's.
            set_thread_res_uid(other, other, other).expect("another user");
            said(&server, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        };
        let heard = std::thread::scope(|scope| scope.spawn(as_other).join().expect("asked"));
        assert_eq!(heard, "");
        assert_eq!(get(&server, "/healthz").code, 200);
    }
}
