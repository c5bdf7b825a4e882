//! A server on a loopback port over a volume in memory, and a client that speaks bytes.

mod client;
mod exports;
mod locks;
mod past;
mod procedures;
mod rights;
mod waiting;
mod wire;

use crate::export::Exports;
use crate::server::{Options, Server};
use client::Client;
use std::sync::Arc;
use weft_links::LinkOptions;
use weft_store::VolumeOptions;
use weft_store::memory::MemoryStore;
use weft_vfs::{ManualClock, Timestamp, Vfs};

/// Served until it is dropped.
struct Served {
    vfs: Arc<Vfs>,
    server: Server,
    clock: Arc<ManualClock>,
}

/// A new volume, served to `exports`.
fn serve(exports: &str) -> Served {
    serve_with(exports, LinkOptions::default())
}

/// Serves like [`serve`], with other options than the usual ones.
fn serve_with(exports: &str, links: LinkOptions) -> Served {
    let store = Arc::new(MemoryStore::new(VolumeOptions { block_size: 4096, ..VolumeOptions::default() }));
    let clock = Arc::new(ManualClock::default());
    clock.set(Timestamp::from_parts(1000, 0));
    let options = weft_vfs::Options { background: false, ..weft_vfs::Options::default() };
    let vfs = weft_links::open(store, None, options, links, clock.clone()).expect("opens");
    let server = server(&vfs, exports);
    Served { vfs, server, clock }
}

fn server(vfs: &Arc<Vfs>, exports: &str) -> Server {
    server_of(vfs, exports.parse().expect("exports"))
}

fn server_of(vfs: &Arc<Vfs>, exports: Exports) -> Server {
    let address = "127.0.0.1:0".parse().expect("an address");
    Server::start(vfs.clone(), Options { address, exports, tls: None, locking: None }).expect("serves")
}

impl Served {
    /// Returns a client that has mounted `path`, and acts as the super-user.
    fn client(&self, path: &str) -> Client {
        Client::connect(self.server.address()).mounted(path)
    }
}

/// Serves all of the volume, to everyone, without squashing.
fn open_to_all() -> Served {
    serve("/ *(no_root_squash)")
}
