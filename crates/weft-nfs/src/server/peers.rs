//! Limits by client: the number of connections of one address, and the bytes they may keep here.
//!
//! A share leaves room for others: nobody has more than is free, so a latecomer finds as much as
//! the greediest has. This machine itself has a larger share, since many users and namespaces share
//! it. Connections that no rule of the exports lets in are not among those of their address.

use super::outsiders::{Evicted, Outsiders};
use crate::calls::Calls;
use crate::machine::machine;
use crate::refusals::Refusals;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use weft_vfs::{NfsStats, largest};

/// Connections of all machines together, without outsiders.
const ALL_MAX: usize = 7168;
/// Connections of one machine, and of this one.
pub(super) const OF_ADDRESS_MAX: usize = 1024;
pub(super) const OF_LOOPBACK_MAX: usize = ALL_MAX / 2;
/// Bytes of calls that have not come in whole, and of replies that were not taken: of one machine,
/// and of all.
const BYTES_OF_ADDRESS_MAX: usize = 64 << 20;
const BYTES_MAX: usize = 256 << 20;
/// Bytes of one connection that are not counted: they come and go with each call, and are bounded
/// by the number of connections. A connection of an outsider may keep no more.
const GRAIN: usize = 64 << 10;

#[derive(Debug, Default)]
struct Taken {
    connections: usize,
    bytes: usize,
}

#[derive(Debug, Default)]
struct All {
    connections: usize,
    bytes: usize,
    /// Number of times a client had its share already.
    refused: u64,
    of: FxHashMap<IpAddr, Taken>,
    outsiders: Outsiders,
}

/// Shares that clients take.
#[derive(Clone, Debug, Default)]
pub(super) struct Peers(Arc<Mutex<All>>);

/// A connection that counts, until this is dropped.
#[derive(Debug)]
pub(super) struct Guest {
    peers: Peers,
    address: IpAddr,
    bytes: usize,
    /// Its number among outsiders, if it is one.
    outsider: Option<u64>,
}

impl Peers {
    /// Counts a connection from `address`; none if its machine has its share.
    pub(super) fn admit(&self, address: IpAddr) -> Option<Guest> {
        let is_here = address.is_loopback();
        let address = if is_here { Ipv4Addr::LOCALHOST.into() } else { machine(address) };
        let share = if is_here { OF_LOOPBACK_MAX } else { OF_ADDRESS_MAX };
        let mut all = self.0.lock();
        let free = ALL_MAX - all.connections;
        if all.of.get(&address).map_or(0, |taken| taken.connections) >= share.min(free) {
            all.refused += 1;
            return None;
        }
        all.connections += 1;
        all.of.entry(address).or_default().connections += 1;
        drop(all);
        Some(Guest { peers: self.clone(), address, bytes: 0, outsider: None })
    }

    /// Counts a connection from `address` that no rule lets in; another one may be evicted for it.
    pub(super) fn admit_outsider(&self, address: IpAddr) -> (Guest, Evicted) {
        let (number, evicted) = self.0.lock().outsiders.add(address);
        (Guest { peers: self.clone(), address, bytes: 0, outsider: Some(number) }, evicted)
    }

    /// Returns the counters of a server at `address`, which answered and refused these calls.
    pub(super) fn stats(&self, address: SocketAddr, refusals: &Refusals, calls: &Calls) -> NfsStats {
        let operations = calls.operations();
        let all = self.0.lock();
        let mut connections = FxHashMap::<IpAddr, u64>::default();
        for (address, taken) in &all.of {
            connections.insert(*address, taken.connections as u64);
        }
        for address in all.outsiders.addresses() {
            *connections.entry(address).or_default() += 1;
        }
        NfsStats {
            address,
            connections: connections.values().sum(),
            connections_by_address: largest(connections.into_iter()),
            bytes_waiting: all.bytes as u64,
            refused: refusals.counts(all.refused + all.outsiders.evicted()),
            requests: operations.iter().map(|(name, latency)| (*name, latency.count())).collect(),
            operations,
            clients: calls.clients(),
        }
    }
}

impl Guest {
    /// Counts that the connection keeps `bytes` here. False if that is beyond its share.
    pub(super) fn keeps(&mut self, bytes: usize) -> bool {
        let bytes = if bytes < GRAIN { 0 } else { bytes };
        if bytes == self.bytes {
            return true;
        }
        let mut all = self.peers.0.lock();
        if self.outsider.is_some() {
            all.refused += 1;
            return false;
        }
        all.bytes = all.bytes + bytes - self.bytes;
        let taken = all.of.get_mut(&self.address).expect("this connection counts");
        taken.bytes = taken.bytes + bytes - self.bytes;
        let taken = taken.bytes;
        self.bytes = bytes;
        let keeps = taken <= BYTES_OF_ADDRESS_MAX.min(BYTES_MAX.saturating_sub(all.bytes));
        all.refused += u64::from(!keeps);
        keeps
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut all = self.peers.0.lock();
        if let Some(number) = self.outsider {
            return all.outsiders.remove(number);
        }
        all.bytes -= self.bytes;
        all.connections -= 1;
        let taken = all.of.get_mut(&self.address).expect("this connection counts");
        taken.bytes -= self.bytes;
        taken.connections -= 1;
        if taken.connections == 0 {
            all.of.remove(&self.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_its_share_of_connections_and_bytes_and_leaves_the_rest() {
        let peers = Peers::default();
        let [greedy, other] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
        let mut guests: Vec<_> = std::iter::from_fn(|| peers.admit(greedy)).collect();
        assert_eq!(guests.len(), OF_ADDRESS_MAX);
        assert!(guests.iter_mut().all(|guest| guest.keeps(60 << 10)), "little is not counted");
        let kept = guests.iter_mut().map(|guest| guest.keeps(1 << 20)).take_while(|keeps| *keeps).count();
        assert_eq!(kept, BYTES_OF_ADDRESS_MAX >> 20);
        assert!(peers.admit(other).expect("it has its own share").keeps(1 << 20));
        drop(guests);
        let all = peers.0.lock();
        assert_eq!((all.bytes, all.of.len()), (0, 0));
    }

    #[test]
    fn a_machine_with_many_addresses_has_one_share() {
        let peers = Peers::default();
        let address = |host: u16| IpAddr::from([0xfd05, 0xa, 0, 0, 0, 0, 0, host]);
        let guests: Vec<_> = (0..9)
            .flat_map(|host| std::iter::repeat_n(address(host), OF_ADDRESS_MAX / 4))
            .filter_map(|address| peers.admit(address))
            .collect();
        assert_eq!(guests.len(), OF_ADDRESS_MAX);
        assert!(peers.admit("fd05:b::9".parse().unwrap()).is_some(), "another machine");
    }

    #[test]
    fn many_greedy_machines_leave_one_that_comes_later_as_much_as_each_of_them_has() {
        let peers = Peers::default();
        let machines: Vec<_> = (1..=30).map(|host| IpAddr::from([10, 0, 0, host])).collect();
        let mut guests: Vec<_> = Vec::new();
        // Until none of them gets any more.
        while let Some(more) = machines.iter().map(|machine| peers.admit(*machine)).collect::<Option<Vec<_>>>() {
            guests.extend(more);
        }
        let here = [[127, 0, 0, 1], [127, 0, 0, 2]].map(IpAddr::from);
        let each = guests.len() / machines.len();
        let later: Vec<_> = std::iter::from_fn(|| peers.admit(here[0]).or_else(|| peers.admit(here[1]))).collect();
        assert!(each > 200 && later.len() > each / 3, "{each}, then {}", later.len());
        // Connections that keep too much are closed.
        guests.retain_mut(|guest| guest.keeps(1 << 20));
        let kept = guests.len();
        let mut newcomer = peers.admit([10, 0, 1, 1].into()).expect("there is room for another one");
        assert!(kept >= 240 && newcomer.keeps(4 << 20), "{kept}");
    }

    #[test]
    fn who_is_not_let_in_leaves_its_address_the_whole_share_of_connections_and_bytes() {
        let peers = Peers::default();
        let here = IpAddr::from([127, 0, 0, 1]);
        let mut outsiders: Vec<_> = (0..2 * OF_LOOPBACK_MAX).map(|_| peers.admit_outsider(here)).collect();
        let (mut last, _evicted) = outsiders.pop().expect("many");
        assert!(last.keeps(GRAIN - 1) && !last.keeps(GRAIN), "it keeps no more than a call");
        let guests: Vec<_> = std::iter::from_fn(|| peers.admit(here)).collect();
        assert_eq!(guests.len(), OF_LOOPBACK_MAX);
        let stats = peers.stats(SocketAddr::new(here, 2049), &Refusals::default(), &Calls::default());
        assert_eq!(stats.connections as usize, OF_LOOPBACK_MAX + super::super::outsiders::OF_ADDRESS_MAX);
        assert_eq!(stats.connections_by_address[&here], stats.connections);
        drop((outsiders, last, guests));
        assert_eq!(peers.stats(SocketAddr::new(here, 2049), &Refusals::default(), &Calls::default()).connections, 0);
    }
}
