//! Clients that lock files: who they are, and that they must hear of a restart.
//!
//! Before a client gets its first lock, the volume remembers it. After a restart those remembered are told, and have a
//! period of grace to claim again what they held; then they are forgotten, unless they have come back. A client
//! without locks is forgotten when serving ends, or when its place is needed.

use super::Message;
use super::room::{Place, Room};
use crate::dispatch::Failure;
use crate::export::Client;
use crate::status::Status;
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc::UnboundedSender;
use weft_vfs::locks::{LockClient, LockOwner};
use weft_vfs::{ErrorKind, Vfs};

/// Clients that may have locks at the same time.
const CLIENTS_MAX: usize = 4096;
/// What the volume keeps: each client by a name of its own, and how often clients were told of restarts.
const CLIENT: &str = "lock-client.";
const STATE: &str = "lock-state";

/// A client that had locks before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Earlier {
    pub(crate) address: IpAddr,
    /// The address of this machine that it knew.
    pub(crate) local: IpAddr,
    /// By what name the volume keeps it.
    kept: String,
}

/// A client, as long as somebody asks for locks in its name, and as long as it has some.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) number: LockClient,
    kept: String,
    /// Whether the volume remembers it for sure.
    is_remembered: AtomicBool,
}

#[derive(Default)]
struct Clients {
    /// By address, and what they call themselves.
    known: FxHashMap<(IpAddr, Vec<u8>), Arc<Known>>,
    numbers: FxHashSet<LockClient>,
    count: u64,
}

/// Clients and their locks.
pub(crate) struct Locking {
    vfs: Arc<Vfs>,
    clients: Mutex<Clients>,
    outbox: UnboundedSender<Message>,
    room: Room,
    /// An odd number that grows with each restart that clients are told of (XNFS 11.2).
    state: u32,
}

impl Locking {
    /// Begins to keep locks for clients, and gives those to be told of a restart; if there are any, the period of grace begins. What is to
    /// be sent goes to `outbox`.
    pub(crate) fn start(vfs: Arc<Vfs>, outbox: UnboundedSender<Message>) -> weft_vfs::Result<(Locking, Vec<Earlier>)> {
        let kept = vfs.all_kept(CLIENT)?;
        let earlier: Vec<Earlier> =
            kept.into_iter().filter_map(|(name, value)| Earlier::decode(name, &value)).collect();
        let mut state = vfs.kept(STATE)?.and_then(|value| value.try_into().ok()).map_or(1, u32::from_be_bytes);
        if !earlier.is_empty() {
            state = state.wrapping_add(2);
            unless_read_only(vfs.keep(STATE, Some(&state.to_be_bytes())).and_then(|()| vfs.sync()))?;
            vfs.locks().begin_grace();
        }
        Ok((Locking { vfs, clients: Mutex::default(), outbox, room: Room::default(), state }, earlier))
    }

    /// Who has locks in the name of `client`, which calls itself `name`. `NoSpc`: there are too many.
    pub(super) fn client(&self, client: &Client, name: &[u8]) -> Result<Arc<Known>, Failure> {
        let id = (client.address, name.to_vec());
        let mut clients = self.clients.lock();
        if let Some(known) = clients.known.get(&id) {
            return Ok(known.clone());
        }
        if clients.known.len() >= CLIENTS_MAX {
            drop(clients);
            self.forget_idle()?;
            clients = self.clients.lock();
        }
        if clients.known.len() >= CLIENTS_MAX {
            return Err(Status::NoSpc.into());
        }
        clients.count += 1;
        // With the state, since numbers begin again with each restart.
        let kept = format!("{CLIENT}{}.{}", self.state, clients.count);
        let number = self.vfs.locks().client();
        let known = Arc::new(Known { number, kept, is_remembered: AtomicBool::new(false) });
        clients.numbers.insert(number);
        clients.known.insert(id, known.clone());
        Ok(known)
    }

    /// Sees that the volume remembers `known`, which is `client`.
    pub(super) fn remember(&self, client: &Client, known: &Known) -> Result<(), Failure> {
        if !known.is_remembered.load(Ordering::Acquire) {
            let value = format!("{} {}", client.address, client.local);
            // One that is only read is not changed by those who have locks on it.
            unless_read_only(self.vfs.keep(&known.kept, Some(value.as_bytes())).and_then(|()| self.vfs.sync()))?;
            known.is_remembered.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// A host at `address` that calls itself `name` has restarted, and holds nothing any more.
    pub(crate) fn restarted(&self, address: IpAddr, name: &[u8]) {
        let gone: Vec<LockClient> = {
            let clients = self.clients.lock();
            let is_it =
                |of: IpAddr, called: &[u8]| of == address && (is_same_host(called, name) || is_address(name, address));
            let gone = clients.known.iter().filter(|((of, called), _)| is_it(*of, called));
            gone.map(|(_, known)| known.number).collect()
        };
        gone.into_iter().for_each(|client| self.vfs.locks().release(client));
    }

    /// How an owner is told of: as which process, and by what name.
    pub(super) fn name_of<'a>(&self, owner: &'a LockOwner) -> (u32, &'a [u8]) {
        let is_ours = self.clients.lock().numbers.contains(&owner.client);
        match owner.name.split_first_chunk() {
            Some((process, name)) if is_ours => (u32::from_be_bytes(*process), name),
            _ => (0, &[]),
        }
    }

    pub(super) fn send(&self, message: Message) {
        // Nobody takes it only when all ends.
        let _ = self.outbox.send(message);
    }

    pub(super) fn outbox(&self) -> UnboundedSender<Message> {
        self.outbox.clone()
    }

    /// A place for a result that `client` is told by a call, if there is room.
    pub(super) fn place(&self, client: IpAddr) -> Option<Place> {
        self.room.place(client)
    }

    pub(crate) fn state(&self) -> u32 {
        self.state
    }

    /// The period of grace is over. Those who have come back are remembered anew.
    pub(crate) fn end_grace(&self, earlier: &[Earlier]) -> weft_vfs::Result<()> {
        self.vfs.locks().end_grace();
        earlier.iter().try_for_each(|client| unless_read_only(self.vfs.keep(&client.kept, None)))
    }

    /// Forgets clients that have no locks, and that nobody asks for some for.
    pub(crate) fn forget_idle(&self) -> weft_vfs::Result<()> {
        let mut forgotten = Vec::new();
        {
            let mut clients = self.clients.lock();
            let Clients { known, numbers, .. } = &mut *clients;
            known.retain(|_, client| {
                let is_idle = Arc::strong_count(client) == 1 && !self.vfs.locks().has_any(client.number);
                if is_idle {
                    numbers.remove(&client.number);
                    forgotten.push(client.clone());
                }
                !is_idle
            });
        }
        let remembered = forgotten.iter().filter(|client| client.is_remembered.load(Ordering::Acquire));
        remembered.into_iter().try_for_each(|client| unless_read_only(self.vfs.keep(&client.kept, None)))
    }
}

fn unless_read_only(kept: weft_vfs::Result<()>) -> weft_vfs::Result<()> {
    kept.or_else(|error| if error.kind() == ErrorKind::ReadOnly { Ok(()) } else { Err(error) })
}

/// Whether two names are of one host: with or without its domain.
fn is_same_host(one: &[u8], other: &[u8]) -> bool {
    let first = |name: &[u8]| name.split(|byte| *byte == b'.').next().unwrap_or_default().to_ascii_lowercase();
    first(one) == first(other)
}

fn is_address(name: &[u8], address: IpAddr) -> bool {
    std::str::from_utf8(name).is_ok_and(|name| name.parse() == Ok(address))
}

impl Earlier {
    fn decode(name: String, value: &[u8]) -> Option<Earlier> {
        let (address, local) = std::str::from_utf8(value).ok()?.split_once(' ')?;
        Some(Earlier { address: address.parse().ok()?, local: local.parse().ok()?, kept: format!("{CLIENT}{name}") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_of_a_client_reads_back_or_is_left_out() {
        let earlier = Earlier::decode("3.1".into(), b"10.0.0.1 fe80::2").unwrap();
        assert_eq!((earlier.address, earlier.local), ([10, 0, 0, 1].into(), "fe80::2".parse().unwrap()));
        assert_eq!(earlier.kept, "lock-client.3.1");
        for bad in ["", "10.0.0.1", "10.0.0.1 x", "10.0.0.1  10.0.0.2"] {
            assert_eq!(Earlier::decode("3.1".into(), bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn hosts_are_known_with_and_without_their_domain() {
        assert!(is_same_host(b"Box.example.org", b"box"));
        assert!(!is_same_host(b"box2", b"box"));
        assert!(is_address(b"10.0.0.1", [10, 0, 0, 1].into()));
        assert!(!is_address(b"10.0.0.2", [10, 0, 0, 1].into()));
    }
}
