//! Room for messages to clients by calls: bounded for each machine, for each of its users, and in
//! all.
//!
//! Any caller can request such messages faster than they can be sent, and need not listen. A
//! message that finds no room is dropped; a client that misses it asks again.

use crate::export::Client;
use crate::machine::machine;
use parking_lot::Mutex;
use std::net::IpAddr;
use std::sync::Arc;
use weft_vfs::shares::{Bounds, Shares};

/// Results that wait to be sent: a quarter of these for one machine, since the user of a result is
/// unknown before it is read.
const RESULTS: Bounds = Bounds { of_holder: 64, all: 1024 };
/// Granted locks that waiting clients have not heard of yet.
const GRANTS: Bounds = Bounds { of_holder: 1024, all: 16_384 };

/// User that results count for.
const ANY_USER: u32 = u32::MAX;

/// A bounded room.
#[derive(Clone, Debug)]
pub(crate) struct Room(Arc<Mutex<Shares<IpAddr>>>);

/// A place in it, free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    room: Room,
    machine: IpAddr,
    user: u32,
}

impl Room {
    fn new(bounds: Bounds) -> Room {
        Room(Arc::new(Mutex::new(Shares::new(bounds))))
    }

    pub(super) fn for_results() -> Room {
        Room::new(RESULTS)
    }

    pub(super) fn for_grants() -> Room {
        Room::new(GRANTS)
    }

    /// Takes a place for a result for `client`, if there is one.
    pub(super) fn result(&self, client: &Client) -> Option<Place> {
        self.place(client.address, ANY_USER)
    }

    /// Takes a place for a message to `user` at `address`, if there is one.
    pub(super) fn place(&self, address: IpAddr, user: u32) -> Option<Place> {
        let machine = machine(address);
        let mut taken = self.0.lock();
        taken.may_add(machine, user).ok()?;
        taken.count(machine, user, 1);
        drop(taken);
        Some(Place { room: self.clone(), machine, user })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.room.0.lock().count(self.machine, self.user, -1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: usize) -> IpAddr {
        let [.., a, b] = n.to_be_bytes();
        [10, 0, a, b].into()
    }

    #[test]
    fn one_machine_has_its_share_and_all_have_a_bound() {
        let room = Room::for_results();
        let here = |n| room.place([127, 0, 0, n].into(), ANY_USER);
        let own: Vec<_> = (1..=16).map(|n| here(n).expect("its share")).collect();
        assert!(here(99).is_none(), "another address of the same machine");
        let others: Vec<_> = (0..10 * RESULTS.all).filter_map(|n| room.place(address(n / 4), ANY_USER)).collect();
        assert!(own.len() + others.len() < RESULTS.all);
        assert!(room.place(address(60_000), ANY_USER).is_none());
        drop(others);
        assert!(room.place(address(60_000), ANY_USER).is_some());
        drop(own);
        assert!(room.0.lock().is_empty());
    }

    #[test]
    fn grants_of_one_user_leave_room_for_those_of_others() {
        let room = Room::for_grants();
        let greedy: Vec<_> = (0..GRANTS.all).map_while(|_| room.place(address(1), 7)).collect();
        assert_eq!(greedy.len(), GRANTS.of_user());
        assert!(room.place(address(1), 8).is_some() && room.place(address(2), 7).is_some());
    }
}
