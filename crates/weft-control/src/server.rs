//! Connections to the control socket: who may have one, how many, and for how long.
//!
//! One thread with a runtime of its own, which serves nothing else, so nothing here delays a
//! request of the volume.

use crate::COMMIT_MAX;
use crate::answers::{ASKING_MAX, Asker, Daemon, router};
use crate::directory::{self, DirectoryError};
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use rustix::process::geteuid;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

/// Most connections at once; more wait in the system's queue.
const CONNECTIONS_MAX: usize = 16;

/// Time within which a client must send the head of its request.
const HEAD_MAX: Duration = Duration::from_secs(5);

/// Most bytes of the head of a request, and most lines of it.
const HEAD_BYTES_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 32;

/// Time that a connection may last: as long as its request, its answer and both ways take.
const CONNECTION_MAX: Duration = COMMIT_MAX.saturating_add(Duration::from_secs(10));

/// Time to wait before connections are accepted again, after that failed.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Bytes of the stack of the serving thread.
const STACK_BYTES: usize = 512 << 10;

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
    running: Mutex<Option<(oneshot::Sender<()>, JoinHandle<()>)>>,
}

impl Server {
    /// Makes the socket of `daemon` and begins to answer there. The daemon must hold its volume:
    /// sockets of the volume that nobody listens at are removed. Must be called after the process
    /// has gone to the background, as it starts a thread.
    pub fn start(daemon: Daemon) -> Result<Server, StartError> {
        Server::start_in(&directory::made().map_err(StartError::Directory)?, daemon)
    }

    fn start_in(directory: &Path, daemon: Daemon) -> Result<Server, StartError> {
        let (listener, path) = directory::listen(directory, &daemon.id, daemon.kind).map_err(StartError::System)?;
        let served = serve(listener, router(daemon));
        let running =
            Mutex::new(Some(served.inspect_err(|_| drop(std::fs::remove_file(&path))).map_err(StartError::System)?));
        Ok(Server { path, running })
    }

    /// Removes the socket and answers nothing more.
    pub fn stop(&self) {
        let Some((stop, thread)) = self.running.lock().take() else { return };
        // First, so that nobody is left waiting there.
        let _ = std::fs::remove_file(&self.path);
        // A thread that has ended needs no word, and has nothing to tell.
        let _ = stop.send(());
        let _ = thread.join();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Answers at `listener` by a thread of its own, until told to stop.
fn serve(
    listener: std::os::unix::net::UnixListener,
    router: Router,
) -> io::Result<(oneshot::Sender<()>, JoinHandle<()>)> {
    listener.set_nonblocking(true)?;
    let runtime = runtime()?;
    let listener = {
        let _entered = runtime.enter();
        UnixListener::from_std(listener)?
    };
    let (stop, stopped) = oneshot::channel();
    let serves = move || {
        runtime.block_on(async {
            tokio::select! {
                () = accept(listener, router) => {}
                _ = stopped => {}
            }
        });
        // A commit that does not end is not waited for.
        runtime.shutdown_background();
    };
    let thread = std::thread::Builder::new().name("weft-control".into()).stack_size(STACK_BYTES).spawn(serves)?;
    Ok((stop, thread))
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread()
        .thread_name("weft-control")
        .max_blocking_threads(ASKING_MAX + 1)
        .enable_io()
        .enable_time()
        .build()
}

async fn accept(listener: UnixListener, router: Router) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) if is_for(&stream) => {
                let router = router.clone();
                let user = peer(&stream);
                tokio::spawn(async move {
                    // One that takes too long, or makes no sense, is closed.
                    let _ = timeout(CONNECTION_MAX, answer(stream, router.layer(Extension(Asker(user))))).await;
                    drop(place);
                });
            }
            // Somebody else's: nothing is told.
            Ok(_) => {}
            // Too many descriptors: others may be closed.
            Err(_) => tokio::time::sleep(ACCEPT_AGAIN).await,
        }
    }
}

/// The user at the other end: who asks, as records tell.
fn peer(stream: &UnixStream) -> u32 {
    stream.peer_cred().map_or(u32::MAX, |peer| peer.uid())
}

/// True if this user or root is at the other end.
fn is_for(stream: &UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == 0 || peer.uid() == geteuid().as_raw())
}

/// Answers one request.
async fn answer(stream: UnixStream, router: Router) -> hyper::Result<()> {
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
    use crate::answers::Kind;
    use crate::client::{Answer, Method, Unanswered, ask};
    use serde_json::json;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream as Client;
    use std::sync::Weak;
    use std::time::Instant;

    const SOON: Duration = Duration::from_secs(30);

    fn started() -> (tempfile::TempDir, Server) {
        let directory = tempfile::tempdir().expect("a directory");
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
            counters: Box::new(|| Some(json!({"volume": {"commit_error": "no\nspace"}}))),
        };
        let server = Server::start_in(directory.path(), daemon).expect("started");
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
        assert_eq!(get(&server, "/stats"), answer(200, r#"{"volume":{"commit_error":"no\nspace"}}"#));
        // Its volume is gone.
        assert_eq!(get(&server, "/status").code, 503);
        assert_eq!(ask(&server.path, Method::Post, "/commit", SOON).expect("answered").code, 503);
        assert_eq!((get(&server, "/commit").code, get(&server, "/").code), (405, 404));
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
    fn slow_clients_are_closed_and_others_are_answered_then() {
        let (_directory, server) = started();
        let begun = Instant::now();
        let slow: Vec<Client> =
            (0..CONNECTIONS_MAX).map(|_| Client::connect(&server.path).expect("connected")).collect();
        assert_eq!(get(&server, "/healthz").code, 200);
        // Each of them had its time, and all places were taken.
        assert!(begun.elapsed() >= HEAD_MAX, "{:?}", begun.elapsed());
        drop(slow);
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
