//! Room for results that are told by calls: so many for each client, and so many in all.
//!
//! Anybody who may call can ask for such, faster than they can be sent, and need not listen. What finds
//! no room is dropped; a client that misses a result asks again.

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Results that wait for one client, and for all.
const OF_CLIENT_MAX: usize = 16;
const ALL_MAX: usize = 1024;

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    of: FxHashMap<IpAddr, usize>,
}

/// The room that there is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Room(Arc<Mutex<Taken>>);

/// A place in it, free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    room: Room,
    client: IpAddr,
}

impl Room {
    /// A place for a result for `client`, if there is one.
    pub(super) fn place(&self, client: IpAddr) -> Option<Place> {
        let mut taken = self.0.lock();
        let own = taken.of.get(&client).copied().unwrap_or(0);
        if own >= OF_CLIENT_MAX || taken.all >= ALL_MAX {
            return None;
        }
        taken.all += 1;
        taken.of.insert(client, own + 1);
        drop(taken);
        Some(Place { room: self.clone(), client })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.room.0.lock();
        taken.all -= 1;
        if let Some(own) = taken.of.get_mut(&self.client) {
            *own -= 1;
            if *own == 0 {
                taken.of.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: usize) -> IpAddr {
        let [.., a, b] = n.to_be_bytes();
        [127, 0, a, b].into()
    }

    #[test]
    fn one_client_has_its_share_and_all_have_a_bound() {
        let room = Room::default();
        let own: Vec<_> = (0..OF_CLIENT_MAX).map(|_| room.place(address(1)).expect("its share")).collect();
        assert!(room.place(address(1)).is_none());
        let others: Vec<_> = (0..10 * ALL_MAX).filter_map(|n| room.place(address(2 + n / 4))).collect();
        assert_eq!(own.len() + others.len(), ALL_MAX);
        assert!(room.place(address(60_000)).is_none());
        drop(own);
        assert!(room.place(address(60_000)).is_some());
        drop(others);
        assert!(room.0.lock().of.is_empty());
    }
}
