//! Connections from ports and addresses that no rule of the exports lets in.
//!
//! They are served, since programs that mount make sure from any port that a server is there
//! (NULL), and ask the portmapper. But they have places of their own, few, and none is kept for
//! long: a new one takes the place of the oldest. So none of them takes the place of a client.

use std::collections::VecDeque;
use std::net::IpAddr;
use tokio::sync::oneshot;

/// Connections of one address, and of all.
pub(crate) const OF_ADDRESS_MAX: usize = 64;
const ALL_MAX: usize = 512;

/// Resolves when a connection has to make room for another.
pub(super) type Evicted = oneshot::Receiver<()>;

#[derive(Debug)]
struct Outsider {
    number: u64,
    address: IpAddr,
    /// Dropped when the connection must end.
    _stays: oneshot::Sender<()>,
}

/// Connections of outsiders, oldest first.
#[derive(Debug, Default)]
pub(super) struct Outsiders {
    connected: VecDeque<Outsider>,
    /// Number of connections so far, which numbers them; and of those that had to make room.
    numbered: u64,
    evicted: u64,
}

impl Outsiders {
    /// Adds a connection from `address`. Returns its number, and the signal to make room.
    pub(super) fn add(&mut self, address: IpAddr) -> (u64, Evicted) {
        let crowded = if self.of(address) >= OF_ADDRESS_MAX {
            Some(address)
        } else if self.connected.len() >= ALL_MAX {
            self.largest()
        } else {
            None
        };
        let oldest = crowded.and_then(|of| self.connected.iter().position(|outsider| outsider.address == of));
        if let Some(oldest) = oldest {
            self.connected.remove(oldest);
            self.evicted += 1;
        }
        let (stays, evicted) = oneshot::channel();
        self.numbered += 1;
        self.connected.push_back(Outsider { number: self.numbered, address, _stays: stays });
        (self.numbered, evicted)
    }

    /// Removes connection `number`, if it is still there.
    pub(super) fn remove(&mut self, number: u64) {
        // Numbers ascend from the oldest to the newest.
        if let Ok(at) = self.connected.binary_search_by_key(&number, |outsider| outsider.number) {
            self.connected.remove(at);
        }
    }

    /// Returns the address of each connection.
    pub(super) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.connected.iter().map(|outsider| outsider.address)
    }

    /// Returns the number of connections that had to make room for others.
    pub(super) fn evicted(&self) -> u64 {
        self.evicted
    }

    fn of(&self, address: IpAddr) -> usize {
        self.addresses().filter(|other| *other == address).count()
    }

    /// Returns the address with most connections; of several, that of the oldest connection.
    fn largest(&self) -> Option<IpAddr> {
        let mut counts = rustc_hash::FxHashMap::<IpAddr, usize>::default();
        self.addresses().for_each(|address| *counts.entry(address).or_default() += 1);
        let largest = counts.values().max().copied()?;
        self.addresses().find(|address| counts.get(address) == Some(&largest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has_ended(evicted: &mut Evicted) -> bool {
        evicted.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    #[test]
    fn a_new_connection_takes_the_place_of_the_oldest_of_the_address_with_most() {
        let mut outsiders = Outsiders::default();
        let [one, greedy] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
        let (_, mut other) = outsiders.add(one);
        let mut greedy: Vec<_> = (0..=OF_ADDRESS_MAX).map(|_| outsiders.add(greedy)).collect();
        assert!(has_ended(&mut greedy[0].1) && !has_ended(&mut greedy[1].1), "its own make room");
        let many = (0..).map(|n: u32| IpAddr::from((n + (11 << 24)).to_be_bytes()));
        let room = ALL_MAX - OF_ADDRESS_MAX;
        let _many: Vec<_> = many.take(room).map(|address| outsiders.add(address)).collect();
        assert!(has_ended(&mut greedy[1].1) && !has_ended(&mut greedy[2].1) && !has_ended(&mut other));
        assert_eq!((outsiders.connected.len(), outsiders.evicted()), (ALL_MAX, 2));
        greedy.iter().for_each(|(number, _)| outsiders.remove(*number));
        assert_eq!(outsiders.connected.len(), ALL_MAX + 1 - OF_ADDRESS_MAX);
        assert!(!has_ended(&mut other));
    }
}
