//! The control socket of a daemon of this program.

use crate::named::{server, volume};
use crate::opened::Opened;
use anyhow::{Context, Result};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use weft_control::{Answers, Daemon, Kind, MetricsServer, Server};
use weft_vfs::Report;

/// The place of a volume that is served by nothing else.
pub const CONTROL_SOCKET: &str = "control socket";

/// A control socket, and the address at which metrics are told, if the user asked for one.
#[derive(Clone)]
pub struct ControlSocket(Arc<Endpoints>);

/// Each is there, or the reason that it is not: a daemon serves without, too.
struct Endpoints {
    control: Result<Server, String>,
    metrics: Option<Result<MetricsServer, String>>,
}

/// Returns a listener at the address for metrics, if there is one.
pub fn listen(metrics: Option<SocketAddr>) -> Result<Option<TcpListener>> {
    let bound = |address| TcpListener::bind(address).with_context(|| format!("cannot tell metrics at {address}"));
    metrics.map(bound).transpose()
}

impl ControlSocket {
    /// Makes the control socket of a daemon that serves `opened` at `place`, and has its metrics
    /// told to whoever connects to `metrics`. Must be called after the process has gone to the
    /// background.
    pub fn start(
        opened: &Opened,
        (kind, place): (Kind, String),
        metrics: Option<TcpListener>,
        counters: impl Fn() -> Option<Report> + Send + Sync + 'static,
    ) -> ControlSocket {
        let id = match opened.store.header() {
            Ok(header) => header.uuid,
            Err(error) => return ControlSocket(Arc::new(Endpoints { control: Err(error.to_string()), metrics: None })),
        };
        let answers = Answers::new(Daemon {
            kind,
            id,
            volume: volume(&opened.location),
            server: server(&opened.location),
            engine: opened.location.engine().name(),
            place,
            read_only: opened.read_only,
            as_of: opened.as_of.map(|as_of| as_of.made),
            vfs: Arc::downgrade(&opened.vfs),
            counters: Box::new(counters),
        });
        let started = |listener| MetricsServer::start(&answers, listener).map_err(|error| error.to_string());
        let control = Server::start(&answers).map_err(|error| error.to_string());
        ControlSocket(Arc::new(Endpoints { control, metrics: metrics.map(started) }))
    }

    /// Logs the reason if there is none, and the commands that fail without one.
    pub fn say_if_missing(&self) {
        if let Some(Err(why)) = &self.0.metrics {
            tracing::warn!("serving without metrics: {why}");
        }
        if let Err(why) = &self.0.control {
            tracing::warn!(
                "serving without a control socket: {why}; until it is served again with one, no snapshot can be made or \
                 deleted, nothing restored or undeleted, and history neither set nor forgotten"
            );
        }
    }

    /// The path of the socket, if there is one.
    pub fn path(&self) -> Option<&Path> {
        self.0.control.as_ref().ok().map(Server::path)
    }

    /// The reason that there is none.
    pub fn why_missing(&self) -> Option<&str> {
        self.0.control.as_ref().err().map(String::as_str)
    }

    /// This daemon will end once no program has a session with it:
    /// [`ControlSocket::end_when_unused`] follows.
    pub fn will_end_when_unused(&self) {
        if let Ok(server) = &self.0.control {
            server.will_end_when_unused();
        }
    }

    /// Does `unused` once no program has a session with this daemon; at once if there is no socket.
    pub fn end_when_unused(&self, unused: impl FnOnce() + Send + 'static) {
        match &self.0.control {
            Ok(server) => server.end_when_unused(unused),
            Err(_) => unused(),
        }
    }

    /// Tells programs that have a session, after [`ControlSocket::stop`], how the volume was left.
    pub fn end(&self, left: &Result<()>) {
        if let Ok(server) = &self.0.control {
            server.end(left.as_ref().err().map(|error| format!("{error:#}")).as_deref());
        }
    }

    /// Removes it, and tells no more metrics.
    pub fn stop(&self) {
        if let Ok(server) = &self.0.control {
            server.stop();
        }
        if let Some(Ok(server)) = &self.0.metrics {
            server.stop();
        }
    }
}
