//! The control socket of a daemon of this program.

use crate::named::{server, volume};
use crate::opened::Opened;
use serde_json::Value;
use std::sync::Arc;
use weft_control::{Daemon, Kind, Server};

/// A control socket, or the reason that there is none: a daemon serves without one, too.
#[derive(Clone)]
pub struct ControlSocket(Arc<Result<Server, String>>);

impl ControlSocket {
    /// Makes the control socket of a daemon that serves `opened` at `place`. Must be called after
    /// the process has gone to the background.
    pub fn start(
        opened: &Opened,
        kind: Kind,
        place: String,
        counters: impl Fn() -> Option<Value> + Send + Sync + 'static,
    ) -> ControlSocket {
        let started = opened.store.header().map_err(|error| error.to_string()).and_then(|header| {
            let daemon = Daemon {
                kind,
                id: header.uuid,
                volume: volume(&opened.location),
                server: server(&opened.location),
                engine: opened.location.engine().name(),
                place,
                read_only: opened.read_only,
                as_of: opened.as_of.map(|as_of| as_of.made),
                vfs: Arc::downgrade(&opened.vfs),
                counters: Box::new(counters),
            };
            Server::start(daemon).map_err(|error| error.to_string())
        });
        ControlSocket(Arc::new(started))
    }

    /// Logs the reason if there is none, and the commands that fail without one.
    pub fn say_if_missing(&self) {
        if let Err(why) = &*self.0 {
            tracing::warn!(
                "serving without a control socket: {why}; until it is served again with one, no snapshot can be made or \
                 deleted, nothing restored or undeleted, and history neither set nor forgotten"
            );
        }
    }

    /// Removes it.
    pub fn stop(&self) {
        if let Ok(server) = &*self.0 {
            server.stop();
        }
    }
}
