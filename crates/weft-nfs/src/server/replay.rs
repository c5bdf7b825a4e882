//! Replay cache for calls that come twice (RFC 1813 4.2; Juszczak, "Improving the Performance and
//! Correctness of an NFS Server", 1989).
//!
//! A client that gets no reply asks again, over another connection perhaps. Calls that must not be
//! done twice are remembered with their replies. A call that is still being served is answered when
//! that has ended, wherever it came from last.
//!
//! Only calls of clients that an export lets in come here, with handles that were made here. Each
//! address has so many entries of its own, those from reserved ports apart. Where there are too
//! many addresses one of the machine that has most of them makes room: nobody pushes out others'
//! calls.

use super::replies::Ready;
use crate::export::{Client, RESERVED_PORTS_END};
use crate::machine::machine;
use crate::programs::NFS;
use crate::rpc::{Call, Procedure, Reply};
use crate::status::Status;
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHasher};
use std::collections::VecDeque;
use std::hash::Hasher;
use std::net::IpAddr;
use tokio::sync::mpsc::UnboundedSender;

/// Calls remembered of each peer.
const CALLS_MAX: usize = 512;
/// Peers remembered.
const PEERS_MAX: usize = 512;
/// Bytes of a call that are compared, beside its length.
const COMPARED: usize = 512;

/// Peer whose calls are remembered together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Peer {
    address: IpAddr,
    /// True if its calls come from ports that the super-user alone can use.
    is_reserved: bool,
}

impl Peer {
    fn of(client: &Client) -> Peer {
        Peer { address: client.address, is_reserved: client.port < RESERVED_PORTS_END }
    }

    /// Returns the peer that stands for all peers of its machine.
    fn machine(self) -> Peer {
        Peer { address: machine(self.address), ..self }
    }
}

/// Identity that distinguishes a repeated call from another with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    peer: Peer,
    xid: u32,
    procedure: Procedure,
    sum: u64,
}

/// Most connections that wait for the reply to one call: a client that gave up one tries over
/// another.
const WAITING_MAX: usize = 8;

/// State of a remembered call.
#[derive(Debug)]
enum Known {
    /// It is being served; these connections want the reply too.
    Running(Vec<UnboundedSender<Ready>>),
    /// It was answered with this reply.
    Answered(Reply),
}

/// Action for a call.
#[derive(Debug)]
pub(super) enum Found {
    /// Serve it, then tell the cache.
    New(Key),
    /// Send this reply again.
    Answered(Reply),
    /// The thread that serves it will answer.
    Running,
}

#[derive(Debug, Default)]
struct OfPeer {
    calls: FxHashMap<Key, Known>,
    order: VecDeque<Key>,
    used: u64,
}

#[derive(Debug, Default)]
struct Peers {
    of: FxHashMap<Peer, OfPeer>,
    clock: u64,
}

/// The cache.
#[derive(Debug, Default)]
pub(super) struct ReplayCache(Mutex<Peers>);

/// True if doing it twice differs from doing it once.
pub(super) fn must_not_be_repeated(procedure: Procedure) -> bool {
    // Writing the same bytes again is harmless, setting attributes under a guard is not.
    procedure.program == NFS && matches!(procedure.number, 2 | 8..=15)
}

/// True if nothing was done, and never will be by this call: it was refused, or its file is gone.
fn is_void(reply: &Reply) -> bool {
    let word = |at: usize| Some(u32::from_be_bytes(*reply.head.get(4 * at..)?.first_chunk()?));
    let (is_accepted, is_success) = (word(2) == Some(0), word(5) == Some(0));
    let is_gone = [Status::Stale, Status::BadHandle].iter().any(|status| word(6) == Some(*status as u32));
    !is_accepted || !is_success || is_gone
}

impl ReplayCache {
    /// Looks up `call`, whose bytes are `message` and which must not be repeated; its reply can be
    /// sent to `sender`. The client has been let in.
    pub(super) fn find(
        &self,
        client: &Client,
        call: &Call<'_>,
        message: &[u8],
        sender: &UnboundedSender<Ready>,
    ) -> Found {
        let mut sum = FxHasher::default();
        sum.write(&message[..message.len().min(COMPARED)]);
        sum.write_usize(message.len());
        let peer = Peer::of(client);
        let key = Key { peer, xid: call.xid, procedure: call.procedure, sum: sum.finish() };
        let mut peers = self.0.lock();
        let known = peers.of_peer(peer);
        match known.calls.get_mut(&key) {
            Some(Known::Answered(reply)) => Found::Answered(reply.clone()),
            Some(Known::Running(waiting)) => {
                // A connection needs it once.
                let is_there = waiting.iter().any(|other| other.same_channel(sender));
                if !is_there && waiting.len() < WAITING_MAX {
                    waiting.push(sender.clone());
                }
                Found::Running
            }
            None => {
                known.insert(key);
                Found::New(key)
            }
        }
    }

    /// Remembers that the call was answered with `reply`.
    pub(super) fn answered(&self, key: Key, reply: &Reply) {
        let waiting = {
            let mut peers = self.0.lock();
            let Some(peer) = peers.of.get_mut(&key.peer) else { return };
            if is_void(reply) {
                peer.forget(&key)
            } else {
                let known = peer.calls.get_mut(&key);
                known.map(|known| std::mem::replace(known, Known::Answered(reply.clone())))
            }
        };
        if let Some(Known::Running(waiting)) = waiting {
            // A connection that is gone meanwhile needs none.
            waiting.iter().for_each(|sender| drop(sender.send(Ready { reply: reply.clone(), ran: None })));
        }
    }
}

impl Peers {
    fn of_peer(&mut self, peer: Peer) -> &mut OfPeer {
        self.clock += 1;
        if self.of.len() >= PEERS_MAX && !self.of.contains_key(&peer) {
            self.make_room();
        }
        let known = self.of.entry(peer).or_default();
        known.used = self.clock;
        known
    }

    /// Forgets the peer unused for longest, of the machine that has most of them.
    fn make_room(&mut self) {
        let mut counts = FxHashMap::<Peer, usize>::default();
        self.of.keys().for_each(|peer| *counts.entry(peer.machine()).or_default() += 1);
        let most = counts.values().max().copied();
        let crowded = self.of.iter().filter(|(peer, _)| counts.get(&peer.machine()).copied() == most);
        let oldest = crowded.min_by_key(|(_, known)| known.used).map(|(peer, _)| *peer);
        oldest.and_then(|oldest| self.of.remove(&oldest));
    }
}

impl OfPeer {
    fn insert(&mut self, key: Key) {
        if self.order.len() >= CALLS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.calls.remove(&oldest);
        }
        self.order.push_back(key);
        self.calls.insert(key, Known::Running(Vec::new()));
    }

    fn forget(&mut self, key: &Key) -> Option<Known> {
        let known = self.calls.remove(key)?;
        if let Some(at) = self.order.iter().rposition(|other| other == key) {
            self.order.remove(at);
        }
        Some(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::Transport;
    use crate::rpc;
    use crate::rpc::tests::call;
    use tokio::sync::mpsc::unbounded_channel;

    const REMOVE: Procedure = Procedure { program: NFS, version: 3, number: 12 };

    fn client(address: &str, port: u16) -> Client {
        let address = address.parse().unwrap();
        Client { address, port, local: address, transport: Transport::Tcp, tls: false }
    }

    fn find(cache: &ReplayCache, client: &Client, xid: u32, sender: &UnboundedSender<Ready>) -> Found {
        let message = call(xid, REMOVE, 0, &[]).into_bytes();
        cache.find(client, &rpc::parse(&message).unwrap(), &message, sender)
    }

    /// Returns the reply to a call that was carried out, with `status`.
    fn reply(status: Status) -> Reply {
        crate::v3::failed(7, REMOVE.number, status)
    }

    #[test]
    fn a_call_that_comes_again_gets_the_first_reply_even_while_it_is_served() {
        let cache = ReplayCache::default();
        let (sender, mut receiver) = unbounded_channel();
        let one = client("10.0.0.1", 700);
        let Found::New(key) = find(&cache, &one, 7, &sender) else { panic!("it is new") };
        assert!(matches!(find(&cache, &one, 7, &sender), Found::Running));
        assert!(matches!(find(&cache, &client("10.0.0.1", 701), 7, &sender), Found::Running));
        assert!(matches!(find(&cache, &client("10.0.0.2", 700), 7, &sender), Found::New(_)));
        assert!(matches!(find(&cache, &one, 8, &sender), Found::New(_)));
        cache.answered(key, &reply(Status::NoEnt));
        assert_eq!(receiver.try_recv().unwrap().reply.head, reply(Status::NoEnt).head);
        let Found::Answered(again) = find(&cache, &one, 7, &sender) else { panic!("it was answered") };
        assert_eq!(again.head, reply(Status::NoEnt).head);
    }

    #[test]
    fn a_call_that_did_nothing_takes_no_place() {
        let cache = ReplayCache::default();
        let (sender, mut receiver) = unbounded_channel();
        let refused: Reply = rpc::refused(7, rpc::Refusal::GarbageArguments).into();
        for void in [reply(Status::Stale), reply(Status::BadHandle), refused] {
            let Found::New(key) = find(&cache, &client("10.0.0.1", 700), 7, &sender) else { panic!("it is new") };
            find(&cache, &client("10.0.0.1", 700), 7, &sender);
            cache.answered(key, &void);
            assert_eq!(receiver.try_recv().unwrap().reply.head, void.head, "who waits is told");
        }
        let peers = cache.0.lock();
        assert!(peers.of.values().all(|peer| peer.calls.is_empty() && peer.order.is_empty()));
    }

    #[test]
    fn what_may_be_repeated_is_not_remembered_and_what_is_remembered_has_bounds() {
        assert!(!must_not_be_repeated(Procedure { number: 6, ..REMOVE }) && must_not_be_repeated(REMOVE));
        let cache = ReplayCache::default();
        let (sender, _receiver) = unbounded_channel();
        let here = client("127.0.0.1", 700);
        for xid in 0..2 * CALLS_MAX {
            find(&cache, &here, u32::try_from(xid).unwrap(), &sender);
        }
        for machine in 0..2 * PEERS_MAX {
            let address = format!("10.1.{}.{}", machine / 256, machine % 256);
            find(&cache, &client(&address, 700), 1, &sender);
        }
        let peers = cache.0.lock();
        assert!(peers.of.len() <= PEERS_MAX);
        assert!(peers.of.values().all(|peer| peer.calls.len() <= CALLS_MAX));
    }

    /// So an ordinary user had another client's call done twice.
    #[test]
    fn whoever_asks_much_from_many_addresses_and_ports_pushes_out_nobody_elses_calls() {
        let cache = ReplayCache::default();
        let (sender, _receiver) = unbounded_channel();
        let others = [client("10.0.0.1", 700), client("127.0.0.1", 700), client("2001:db8::1", 700)];
        let find_others = || others.each_ref().map(|other| matches!(find(&cache, other, 7, &sender), Found::New(_)));
        assert_eq!(find_others(), [true; 3]);
        for xid in 0..2 * CALLS_MAX {
            find(&cache, &client("127.0.0.1", 2000), u32::try_from(xid).unwrap(), &sender);
        }
        for number in 0..2 * PEERS_MAX {
            let address = format!("127.0.{}.{}", number / 256, number % 256);
            find(&cache, &client(&address, 2000), 1, &sender);
            find(&cache, &client(&format!("2001:db8:0:1::{number:x}"), 700), 1, &sender);
        }
        assert_eq!(find_others(), [false; 3]);
    }
}
