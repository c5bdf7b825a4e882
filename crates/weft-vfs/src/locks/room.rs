//! Room for locks: shares for each mount, and for each machine whose programs lock over a network.
//!
//! A machine's share is counted by its address, whatever names of clients it invents. What comes
//! over a network has a bound in all, beside which mounts keep theirs.

use super::{LockClient, LockError};
use crate::shares::{Bounds, Shares};
use rustc_hash::FxHashMap;
use std::net::IpAddr;

/// Ranges, reservations and waits of one mount.
pub(super) const OF_MOUNT: Bounds = Bounds { of_holder: 1 << 16, all: usize::MAX };
/// Those of one machine, and of all machines.
pub(super) const OF_MACHINE: Bounds = Bounds { of_holder: 1 << 16, all: 1 << 20 };

/// Ranges, reservations and waits that there are.
#[derive(Debug)]
pub(super) struct Room {
    /// Those of each client, by user.
    clients: FxHashMap<LockClient, FxHashMap<u32, usize>>,
    mounts: Shares<LockClient>,
    machines: Shares<IpAddr>,
}

impl Default for Room {
    fn default() -> Room {
        let (mounts, machines) = (Shares::new(OF_MOUNT), Shares::new(OF_MACHINE));
        Room { clients: FxHashMap::default(), mounts, machines }
    }
}

impl Room {
    /// `TooMany` if there is no room for one more of `user` of `client`.
    pub(super) fn may_add(&self, client: LockClient, user: u32) -> Result<(), LockError> {
        let room = match client.machine {
            None => self.mounts.may_add(client, user),
            Some(machine) => self.machines.may_add(machine, user),
        };
        room.map_err(|_| LockError::TooMany)
    }

    /// Counts so many more, or fewer, of `user` of `client`.
    pub(super) fn count(&mut self, client: LockClient, user: u32, change: isize) {
        if change == 0 {
            return;
        }
        self.share(client, user, change);
        let users = self.clients.entry(client).or_default();
        let own = users.entry(user).or_default();
        *own = own.checked_add_signed(change).expect("what is given up was counted");
        if *own == 0 {
            users.remove(&user);
        }
        if users.is_empty() {
            self.clients.remove(&client);
        }
    }

    fn share(&mut self, client: LockClient, user: u32, change: isize) {
        match client.machine {
            None => self.mounts.count(client, user, change),
            Some(machine) => self.machines.count(machine, user, change),
        }
    }

    /// Forgets all of `client`.
    pub(super) fn release(&mut self, client: LockClient) {
        for (user, own) in self.clients.remove(&client).unwrap_or_default() {
            self.share(client, user, -own.cast_signed());
        }
    }

    pub(super) fn has_any(&self, client: LockClient) -> bool {
        self.clients.contains_key(&client)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.clients.is_empty() && self.mounts.is_empty() && self.machines.is_empty()
    }
}
