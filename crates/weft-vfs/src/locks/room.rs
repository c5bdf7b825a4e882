//! Room for locks: so many for each client, of which one user gets a share.
//!
//! A mount is one client for all users of its machine, and so is another machine. One user gets a
//! quarter at most. When three quarters are taken, a user who has few gets more, others do not; the
//! last eighth is the super-user's.

use super::{LockClient, LockError};
use rustc_hash::FxHashMap;

/// Ranges, reservations and waits that one client may have, and that all may have together.
pub(super) const OF_CLIENT_MAX: usize = 1 << 16;
const ALL_MAX: usize = 1 << 20;
/// Those of one user of a client, and of all of its users but the super-user.
pub(super) const OF_USER_MAX: usize = OF_CLIENT_MAX / 4;
pub(super) const OF_USERS_MAX: usize = OF_CLIENT_MAX / 8 * 7;
/// When so many are taken by users of a client, one who has as many as this gets no more.
pub(super) const CROWDED: usize = OF_CLIENT_MAX / 4 * 3;
pub(super) const FEW: usize = 256;

#[derive(Debug, Default)]
struct OfClient {
    all: usize,
    /// Those of the super-user are not among these.
    of_users: usize,
    users: FxHashMap<u32, usize>,
}

impl OfClient {
    fn has_room(&self, user: u32) -> bool {
        if user == 0 {
            return self.all < OF_CLIENT_MAX;
        }
        let own = self.users.get(&user).copied().unwrap_or(0);
        let share = if self.of_users < CROWDED { OF_USER_MAX } else { FEW };
        own < share && self.of_users < OF_USERS_MAX && self.all < OF_CLIENT_MAX
    }
}

/// Ranges, reservations and waits that there are.
#[derive(Debug, Default)]
pub(super) struct Room {
    clients: FxHashMap<LockClient, OfClient>,
    all: usize,
}

impl Room {
    /// `TooMany` if there is no room for one more of `user` of `client`.
    pub(super) fn may_add(&self, client: LockClient, user: u32) -> Result<(), LockError> {
        let has_room = self.clients.get(&client).is_none_or(|of_client| of_client.has_room(user));
        if has_room && self.all < ALL_MAX { Ok(()) } else { Err(LockError::TooMany) }
    }

    /// Counts so many more, or fewer, of `user` of `client`.
    pub(super) fn count(&mut self, client: LockClient, user: u32, change: isize) {
        if change == 0 {
            return;
        }
        let add = |count: &mut usize| {
            *count = count.checked_add_signed(change).expect("what is given up was counted");
            *count == 0
        };
        add(&mut self.all);
        let of_client = self.clients.entry(client).or_default();
        if user != 0 {
            add(&mut of_client.of_users);
        }
        if add(of_client.users.entry(user).or_default()) {
            of_client.users.remove(&user);
        }
        if add(&mut of_client.all) {
            self.clients.remove(&client);
        }
    }

    /// Forgets all of `client`.
    pub(super) fn release(&mut self, client: LockClient) {
        self.all -= self.clients.remove(&client).map_or(0, |of_client| of_client.all);
    }

    pub(super) fn has_any(&self, client: LockClient) -> bool {
        self.clients.contains_key(&client)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.all == 0 && self.clients.is_empty()
    }
}
