//! Calls that come twice (RFC 1813 4.2; Juszczak, "Improving the Performance and Correctness of an NFS Server", 1989).
//!
//! A client that gets no reply asks again, over another connection perhaps. What must not be done twice is remembered
//! with its reply: one that is being served is answered when that has ended, wherever it came from last. Each client
//! has so many entries of its own that others cannot push them out.

use super::replies::Ready;
use crate::rpc::{Call, Procedure, Reply};
use crate::v3;
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHasher};
use std::collections::VecDeque;
use std::hash::Hasher;
use std::net::IpAddr;
use tokio::sync::mpsc::UnboundedSender;

/// Calls remembered of each client.
const CALLS_MAX: usize = 512;
/// Clients remembered.
const CLIENTS_MAX: usize = 512;
/// Bytes of a call that are compared, beside its length.
const COMPARED: usize = 512;

/// What tells a call that comes again from another with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    client: IpAddr,
    xid: u32,
    procedure: Procedure,
    sum: u64,
}

/// Connections that want the reply to one call, at most: a client that gave up one tries over another.
const WAITING_MAX: usize = 8;

/// What is known of a call.
#[derive(Debug)]
enum Known {
    /// It is being served; these want the reply too.
    Running(Vec<UnboundedSender<Ready>>),
    /// It was answered so.
    Answered(Reply),
}

/// What to do about a call.
#[derive(Debug)]
pub(super) enum Found {
    /// Serve it, then tell the cache.
    New(Key),
    /// Answer this again.
    Answered(Reply),
    /// Whoever serves it will answer.
    Running,
}

#[derive(Debug, Default)]
struct OfClient {
    calls: FxHashMap<Key, Known>,
    order: VecDeque<Key>,
    used: u64,
}

#[derive(Debug, Default)]
struct Clients {
    of: FxHashMap<IpAddr, OfClient>,
    clock: u64,
}

/// The cache.
#[derive(Debug, Default)]
pub(super) struct ReplayCache(Mutex<Clients>);

/// Whether doing it twice differs from doing it once.
fn must_not_be_repeated(procedure: Procedure) -> bool {
    // Writing the same bytes again is harmless, setting attributes under a guard is not.
    procedure.program == v3::PROGRAM && matches!(procedure.number, 2 | 8..=15)
}

impl ReplayCache {
    /// What is known of `call`, whose bytes are `message`; its reply can be sent to `sender`. None: it may be repeated.
    pub(super) fn find(
        &self,
        client: IpAddr,
        call: &Call<'_>,
        message: &[u8],
        sender: &UnboundedSender<Ready>,
    ) -> Option<Found> {
        if !must_not_be_repeated(call.procedure) {
            return None;
        }
        let mut sum = FxHasher::default();
        sum.write(&message[..message.len().min(COMPARED)]);
        sum.write_usize(message.len());
        let key = Key { client, xid: call.xid, procedure: call.procedure, sum: sum.finish() };
        let mut clients = self.0.lock();
        let known = clients.of_client(client);
        Some(match known.calls.get_mut(&key) {
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
        })
    }

    /// The call was answered with `reply`.
    pub(super) fn answered(&self, key: Key, reply: &Reply) {
        let waiting = {
            let mut clients = self.0.lock();
            let Some(known) = clients.of.get_mut(&key.client).and_then(|client| client.calls.get_mut(&key)) else {
                return;
            };
            std::mem::replace(known, Known::Answered(reply.clone()))
        };
        if let Known::Running(waiting) = waiting {
            // One that has gone meanwhile needs none.
            waiting.iter().for_each(|sender| drop(sender.send(Ready { reply: reply.clone(), ran: None })));
        }
    }
}

impl Clients {
    fn of_client(&mut self, client: IpAddr) -> &mut OfClient {
        self.clock += 1;
        if self.of.len() >= CLIENTS_MAX && !self.of.contains_key(&client) {
            let oldest = self.of.iter().min_by_key(|(_, client)| client.used).map(|(address, _)| *address);
            oldest.and_then(|oldest| self.of.remove(&oldest));
        }
        let known = self.of.entry(client).or_default();
        known.used = self.clock;
        known
    }
}

impl OfClient {
    fn insert(&mut self, key: Key) {
        if self.order.len() >= CALLS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.calls.remove(&oldest);
        }
        self.order.push_back(key);
        self.calls.insert(key, Known::Running(Vec::new()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc;
    use crate::rpc::tests::call;
    use tokio::sync::mpsc::unbounded_channel;

    const REMOVE: Procedure = Procedure { program: v3::PROGRAM, version: 3, number: 12 };

    fn find(cache: &ReplayCache, client: &str, xid: u32, sender: &UnboundedSender<Ready>) -> Option<Found> {
        let message = call(xid, REMOVE, 0, &[]).into_bytes();
        cache.find(client.parse().unwrap(), &rpc::parse(&message).unwrap(), &message, sender)
    }

    #[test]
    fn a_call_that_comes_again_gets_the_first_reply_even_while_it_is_served() {
        let cache = ReplayCache::default();
        let (sender, mut receiver) = unbounded_channel();
        let Some(Found::New(key)) = find(&cache, "10.0.0.1", 7, &sender) else { panic!("it is new") };
        assert!(matches!(find(&cache, "10.0.0.1", 7, &sender), Some(Found::Running)));
        assert!(matches!(find(&cache, "10.0.0.2", 7, &sender), Some(Found::New(_))));
        assert!(matches!(find(&cache, "10.0.0.1", 8, &sender), Some(Found::New(_))));
        cache.answered(key, &vec![1, 2, 3, 4].into());
        assert_eq!(receiver.try_recv().unwrap().reply.head, [1, 2, 3, 4]);
        let Some(Found::Answered(reply)) = find(&cache, "10.0.0.1", 7, &sender) else { panic!("it was answered") };
        assert_eq!(reply.head, [1, 2, 3, 4]);
    }

    #[test]
    fn what_may_be_repeated_is_not_remembered_and_what_is_remembered_has_bounds() {
        let cache = ReplayCache::default();
        let (sender, _receiver) = unbounded_channel();
        let read = call(1, Procedure { number: 6, ..REMOVE }, 0, &[]).into_bytes();
        assert!(cache.find([10, 0, 0, 1].into(), &rpc::parse(&read).unwrap(), &read, &sender).is_none());
        for xid in 0..2 * CALLS_MAX {
            find(&cache, "10.0.0.1", u32::try_from(xid).unwrap(), &sender);
        }
        for client in 0..2 * CLIENTS_MAX {
            find(&cache, &format!("10.1.{}.{}", client / 256, client % 256), 1, &sender);
        }
        let clients = cache.0.lock();
        assert!(clients.of.len() <= CLIENTS_MAX);
        assert!(clients.of.values().all(|client| client.calls.len() <= CALLS_MAX));
    }
}
