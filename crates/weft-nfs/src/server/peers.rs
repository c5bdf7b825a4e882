//! Limits by client: how many connections one address may have, and how many bytes those may keep here.
//!
//! A share leaves room for others; the bound of all connections together is the listener's. What comes
//! from this machine itself has a larger one, since many users and namespaces share an address.

use crate::refusals::Refusals;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use weft_vfs::{NfsStats, largest};

/// Connections of one address, and of this machine's own.
pub(super) const OF_ADDRESS_MAX: usize = 1024;
pub(super) const OF_LOOPBACK_MAX: usize = 4096;
/// Bytes of calls that have not come in whole, and of replies that were not taken: of one address, and
/// of all.
const BYTES_OF_ADDRESS_MAX: usize = 64 << 20;
const BYTES_MAX: usize = 256 << 20;

#[derive(Debug, Default)]
struct Taken {
    connections: usize,
    bytes: usize,
}

#[derive(Debug, Default)]
struct All {
    bytes: usize,
    /// How often somebody had a share already.
    refused: u64,
    of: FxHashMap<IpAddr, Taken>,
}

/// What clients take.
#[derive(Clone, Debug, Default)]
pub(super) struct Peers(Arc<Mutex<All>>);

/// A connection that counts, until this is dropped.
#[derive(Debug)]
pub(super) struct Guest {
    peers: Peers,
    address: IpAddr,
    bytes: usize,
}

impl Peers {
    /// Counts a connection from `address`; none if it has its share.
    pub(super) fn admit(&self, address: IpAddr) -> Option<Guest> {
        let share = if address.is_loopback() { OF_LOOPBACK_MAX } else { OF_ADDRESS_MAX };
        let mut all = self.0.lock();
        let taken = all.of.entry(address).or_default();
        if taken.connections >= share {
            all.refused += 1;
            return None;
        }
        taken.connections += 1;
        drop(all);
        Some(Guest { peers: self.clone(), address, bytes: 0 })
    }

    /// What is told of a server at `address`, which refused these calls.
    pub(super) fn stats(&self, address: SocketAddr, refusals: &Refusals) -> NfsStats {
        let all = self.0.lock();
        let connections = || all.of.iter().map(|(address, taken)| (*address, taken.connections as u64));
        NfsStats {
            address,
            connections: connections().map(|(_, count)| count).sum(),
            connections_by_address: largest(connections()),
            bytes_waiting: all.bytes as u64,
            refused: refusals.counts(all.refused),
        }
    }
}

impl Guest {
    /// Counts that the connection keeps `bytes` here; false if that is beyond its share.
    pub(super) fn keeps(&mut self, bytes: usize) -> bool {
        // Small amounts come and go with each call, and are bounded by the number of connections.
        const GRAIN: usize = 64 << 10;
        let bytes = if bytes < GRAIN { 0 } else { bytes };
        if bytes == self.bytes {
            return true;
        }
        let mut all = self.peers.0.lock();
        all.bytes = all.bytes + bytes - self.bytes;
        let taken = all.of.get_mut(&self.address).expect("this connection counts");
        taken.bytes = taken.bytes + bytes - self.bytes;
        let is_within = taken.bytes <= BYTES_OF_ADDRESS_MAX;
        self.bytes = bytes;
        let keeps = is_within && all.bytes <= BYTES_MAX;
        all.refused += u64::from(!keeps);
        keeps
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut all = self.peers.0.lock();
        all.bytes -= self.bytes;
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
}
