//! Clients that lock files, and notices to them after a restart.
//!
//! Before a client gets its first lock, the volume remembers it. After a restart those remembered
//! are notified, and have a grace period to reclaim their locks; then they are forgotten, unless
//! they have come back. A client without locks is forgotten when serving ends, or when its place is
//! needed: those unused for longest go first.
//!
//! A client chooses its own name, so places are counted by machine, and by the user who asked
//! first.

use super::Message;
use super::room::{Place, Room};
use crate::export::Client;
use crate::machine::machine;
use crate::outcome::Failure;
use crate::refused::Refused;
use crate::status::Status;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::mpsc::UnboundedSender;
use weft_vfs::locks::{LockClient, LockOwner};
use weft_vfs::shares::{Bounds, Full, Shares};
use weft_vfs::{ErrorKind, Vfs};

/// Clients that may have locks at the same time: of one machine, and in all.
const CLIENTS: Bounds = Bounds { of_holder: 256, all: 4096 };
/// Names of records in the volume: each client by a name of its own, and the number of restarts
/// that clients were notified of.
const CLIENT: &str = "lock-client.";
const STATE: &str = "lock-state";

/// A client that had locks before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Earlier {
    pub(crate) address: IpAddr,
    /// Address of this machine that it knew.
    pub(crate) local: IpAddr,
    /// Name of its record in the volume.
    kept: String,
}

/// A client, as long as calls ask for locks in its name, and as long as it has some.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) number: LockClient,
    /// User who asked first, for whom it counts.
    user: u32,
    /// Number of the last call that used it.
    used: AtomicU64,
    kept: String,
    /// True if the volume may have a record of it.
    is_kept: AtomicBool,
    /// True if the volume surely has a record of it.
    is_remembered: AtomicBool,
}

/// Clients by address and the names that they give themselves.
type Names = FxHashMap<(IpAddr, Vec<u8>), Arc<Known>>;

struct Clients {
    /// Clients by machine.
    known: FxHashMap<IpAddr, Names>,
    shares: Shares<IpAddr>,
    /// Numbers of clients so far, and of calls in their names.
    count: u64,
    used: u64,
    /// Names of records that the volume is to remove.
    forgotten: Vec<String>,
}

impl Clients {
    fn new() -> Clients {
        let (known, shares) = (FxHashMap::default(), Shares::new(CLIENTS));
        Clients { known, shares, count: 0, used: 0, forgotten: Vec::new() }
    }

    fn find(&mut self, client: &Client, name: &[u8]) -> Option<Arc<Known>> {
        let known = self.known.get(&machine(client.address))?.get(&(client.address, name.to_vec()))?;
        self.used += 1;
        known.used.store(self.used, Ordering::Relaxed);
        Some(known.clone())
    }

    /// Evicts clients that hold nothing from the share that is full: the quarter of them unused for
    /// longest, so that such a search is rare. False if there are none.
    fn evict(&mut self, full: Full, (of, user): (IpAddr, u32), is_idle: impl Fn(&Arc<Known>) -> bool) -> bool {
        let machines = self.known.iter().filter(|(machine, _)| full == Full::All || **machine == of);
        let all = machines.flat_map(|(machine, names)| names.iter().map(|(id, known)| (*machine, id, known)));
        let theirs = all.filter(|(.., known)| full != Full::User || known.user == user);
        let mut idle: Vec<_> = theirs
            .filter(|(.., known)| is_idle(known))
            .map(|(machine, id, known)| (known.used.load(Ordering::Relaxed), machine, id.clone()))
            .collect();
        idle.sort_unstable();
        idle.truncate(idle.len().div_ceil(4));
        idle.iter().for_each(|(_, machine, id)| self.remove(*machine, id));
        !idle.is_empty()
    }

    fn remove(&mut self, machine: IpAddr, id: &(IpAddr, Vec<u8>)) {
        let Some(names) = self.known.get_mut(&machine) else { return };
        let Some(known) = names.remove(id) else { return };
        if names.is_empty() {
            self.known.remove(&machine);
        }
        self.shares.count(machine, known.user, -1);
        if known.is_kept.load(Ordering::Acquire) {
            self.forgotten.push(known.kept.clone());
        }
    }
}

/// Clients and their locks.
pub(crate) struct Locking {
    vfs: Arc<Vfs>,
    clients: Mutex<Clients>,
    outbox: UnboundedSender<Message>,
    results: Room,
    grants: Room,
    pub(super) refused: Refused,
    /// An odd number that grows with each restart that clients are notified of (XNFS 11.2).
    state: u32,
}

impl Locking {
    /// Begins to keep locks for clients. Also returns the clients to notify of a restart; if there
    /// are any, the grace period begins. Messages go to `outbox`.
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
        let (clients, refused) = (Mutex::new(Clients::new()), Refused::default());
        let (results, grants) = (Room::for_results(), Room::for_grants());
        Ok((Locking { vfs, clients, outbox, results, grants, refused, state }, earlier))
    }

    /// Finds the client that has locks for `client`, which calls itself `name`, if there is one.
    pub(super) fn find(&self, client: &Client, name: &[u8]) -> Option<Arc<Known>> {
        self.clients.lock().find(client, name)
    }

    /// Makes a client that has no locks and no name.
    pub(super) fn nobody(&self, client: &Client) -> LockClient {
        self.vfs.locks().remote_client(machine(client.address))
    }

    /// Finds or adds the client that has locks for `client`, which calls itself `name`; `user`
    /// asks. `NoSpc`: there are too many.
    pub(super) fn client(&self, client: &Client, user: u32, name: &[u8]) -> Result<Arc<Known>, Failure> {
        let machine = machine(client.address);
        loop {
            let mut clients = self.clients.lock();
            if let Some(known) = clients.find(client, name) {
                return Ok(known);
            }
            if !clients.forgotten.is_empty() {
                drop(clients);
                self.forget()?;
                continue;
            }
            let Err(full) = clients.shares.may_add(machine, user) else {
                return Ok(self.add(&mut clients, client, user, name));
            };
            if !clients.evict(full, (machine, user), |known| self.is_idle(known)) {
                drop(clients);
                let most = CLIENTS.of_holder;
                let why = format_args!(
                    "cannot lock a file for user {user}: too many names of clients hold locks; an address has \
                     {most} at most, and one user a quarter of them: end programs that hold some"
                );
                self.refused.log(client.address, why);
                return Err(Status::NoSpc.into());
            }
        }
    }

    fn add(&self, clients: &mut Clients, client: &Client, user: u32, name: &[u8]) -> Arc<Known> {
        let (id, machine) = ((client.address, name.to_vec()), machine(client.address));
        clients.count += 1;
        clients.used += 1;
        // With the state, since numbers begin again with each restart.
        let kept = format!("{CLIENT}{}.{}", self.state, clients.count);
        let (number, used) = (self.vfs.locks().remote_client(machine), AtomicU64::new(clients.used));
        let (is_kept, is_remembered) = (AtomicBool::new(false), AtomicBool::new(false));
        let known = Arc::new(Known { number, user, used, kept, is_kept, is_remembered });
        clients.known.entry(machine).or_default().insert(id, known.clone());
        clients.shares.count(machine, user, 1);
        known
    }

    /// True if `known` holds nothing, and no call asks for anything in its name.
    fn is_idle(&self, known: &Arc<Known>) -> bool {
        Arc::strong_count(known) == 1 && !self.vfs.locks().has_any(known.number)
    }

    /// Removes evicted clients from the volume.
    fn forget(&self) -> weft_vfs::Result<()> {
        let mut forgotten = std::mem::take(&mut self.clients.lock().forgotten);
        while let Some(kept) = forgotten.last() {
            if let Err(error) = unless_read_only(self.vfs.keep(kept, None)) {
                self.clients.lock().forgotten.append(&mut forgotten);
                return Err(error);
            }
            forgotten.pop();
        }
        Ok(())
    }

    /// Makes the volume remember `known`, which is `client`.
    pub(super) fn remember(&self, client: &Client, known: &Known) -> Result<(), Failure> {
        if !known.is_remembered.load(Ordering::Acquire) {
            let value = format!("{} {}", client.address, client.local);
            known.is_kept.store(true, Ordering::Release);
            // A read-only volume is not changed by clients that lock its files.
            unless_read_only(self.vfs.keep(&known.kept, Some(value.as_bytes())).and_then(|()| self.vfs.sync()))?;
            known.is_remembered.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Notes that a host at `address` that calls itself `name` has restarted, and holds nothing any
    /// more.
    pub(crate) fn restarted(&self, address: IpAddr, name: &[u8]) {
        let gone: Vec<LockClient> = {
            let clients = self.clients.lock();
            let is_it =
                |of: IpAddr, called: &[u8]| of == address && (is_same_host(called, name) || is_address(name, address));
            let names = clients.known.get(&machine(address)).into_iter().flatten();
            let gone = names.filter(|((of, called), _)| is_it(*of, called));
            gone.map(|(_, known)| known.number).collect()
        };
        let locks = self.vfs.locks();
        gone.into_iter().filter(|client| locks.has_any(*client)).for_each(|client| locks.release(client));
    }

    /// Returns the process and the name by which an owner is reported.
    pub(super) fn name_of(owner: &LockOwner) -> (u32, &[u8]) {
        match owner.name.split_first_chunk() {
            Some((process, name)) if owner.client.is_remote() => (u32::from_be_bytes(*process), name),
            _ => (0, &[]),
        }
    }

    pub(super) fn send(&self, message: Message) {
        // It fails only when the server ends.
        let _ = self.outbox.send(message);
    }

    pub(super) fn outbox(&self) -> UnboundedSender<Message> {
        self.outbox.clone()
    }

    /// Takes a place for a result that is sent to `client` by a call, if there is room.
    pub(super) fn place(&self, client: &Client) -> Option<Place> {
        self.results.result(client)
    }

    /// Returns the room for notices of granted locks.
    pub(super) fn grants(&self) -> Room {
        self.grants.clone()
    }

    pub(crate) fn state(&self) -> u32 {
        self.state
    }

    /// Ends the grace period. Clients that have come back have new records.
    pub(crate) fn end_grace(&self, earlier: &[Earlier]) -> weft_vfs::Result<()> {
        self.vfs.locks().end_grace();
        earlier.iter().try_for_each(|client| unless_read_only(self.vfs.keep(&client.kept, None)))
    }

    /// Forgets clients that have no locks, and that no call asks locks for.
    pub(crate) fn forget_idle(&self) -> weft_vfs::Result<()> {
        {
            let mut clients = self.clients.lock();
            let all = clients.known.iter().flat_map(|(machine, names)| names.iter().map(|known| (*machine, known)));
            let idle = all.filter(|(_, (_, known))| self.is_idle(known));
            let idle: Vec<_> = idle.map(|(machine, (id, _))| (machine, id.clone())).collect();
            idle.into_iter().for_each(|(machine, id)| clients.remove(machine, &id));
        }
        self.forget()
    }
}

fn unless_read_only(kept: weft_vfs::Result<()>) -> weft_vfs::Result<()> {
    kept.or_else(|error| if error.kind() == ErrorKind::ReadOnly { Ok(()) } else { Err(error) })
}

/// True if two names are of one host: with or without its domain.
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
    use crate::export::Transport;
    use tokio::sync::mpsc::unbounded_channel;
    use weft_store::VolumeOptions;
    use weft_store::memory::MemoryStore;
    use weft_vfs::locks::{Claim, IfHeld, LockKind, LockMode, LockRange, LockRequest};
    use weft_vfs::{Ino, ManualClock};

    /// Makes `user` at `address` take a lock under `names` names; returns how many it gets.
    fn take(locking: &Locking, address: [u8; 4], user: u32, names: usize) -> usize {
        let (address, local) = (IpAddr::from(address), [10, 9, 9, 9].into());
        let client = Client { address, port: 700, local, transport: Transport::Tcp, tls: false };
        let one = |n: &usize| {
            let name = format!("{user} {n}");
            let Ok(known) = locking.client(&client, user, name.as_bytes()) else { return false };
            let owner = LockOwner { client: known.number, name: [1].as_slice().into() };
            let (kind, range, mode) = (LockKind::Either, LockRange::ALL, LockMode::Shared);
            let request = LockRequest { owner, user, kind, range, mode, pid: 0, tag: 0 };
            locking.vfs.locks().lock(Ino(9), request, Claim::New, IfHeld::Fail).is_ok()
        };
        (0..names).take_while(one).count()
    }

    #[test]
    fn machines_that_invent_names_leave_others_and_the_super_user_places() {
        let store = Arc::new(MemoryStore::new(VolumeOptions::default()));
        let options = weft_vfs::Options { background: false, ..weft_vfs::Options::default() };
        let vfs = Vfs::open(store, None, options, Arc::new(ManualClock::default())).expect("opens");
        let locking = Locking::start(vfs, unbounded_channel().0).expect("starts").0;
        assert_eq!(take(&locking, [127, 0, 0, 1], 7, 5000), CLIENTS.of_user());
        assert_eq!(take(&locking, [127, 0, 0, 2], 7, 1), 0, "another address of the same machine");
        assert_eq!(take(&locking, [127, 0, 0, 2], 8, 5), 5);
        assert_eq!(take(&locking, [127, 0, 0, 2], 0, 5), 5);
        locking.restarted([127, 0, 0, 1].into(), b"127.0.0.1");
        assert_eq!(take(&locking, [127, 0, 0, 2], 7, 5), 5, "names that hold nothing make room");
        for n in 0..100 {
            (1..8).for_each(|user| _ = take(&locking, [10, 0, 0, n], user, 5000));
        }
        assert_eq!((take(&locking, [10, 0, 1, 0], 7, 2), take(&locking, [10, 0, 1, 0], 0, 2)), (2, 2));
        let known: usize = locking.clients.lock().known.values().map(Names::len).sum();
        assert!(known < CLIENTS.all, "{known}");
    }

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
