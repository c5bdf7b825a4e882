//! Shares of a bounded resource: each holder (a machine, say) may take a part of all there is, and
//! each user of that holder a quarter of that part.
//!
//! When three quarters are taken, only those who have few get more: users of a holder, and holders
//! among all. The last eighth of either is kept for super-users.

use rustc_hash::FxHashMap;
use std::hash::Hash;

/// Bounds of one holder, and of all of them together.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Most that one holder may take.
    pub of_holder: usize,
    /// Most that all may take together; `usize::MAX` if only each one is bounded.
    pub all: usize,
}

impl Bounds {
    /// Most that one user of a holder may take.
    pub const fn of_user(self) -> usize {
        self.of_holder / 4
    }

    /// Most that all users of a holder but the super-user may take.
    pub const fn of_users(self) -> usize {
        self.of_holder / 8 * 7
    }

    /// Amount taken by users of a holder from which on it is crowded: a user who has
    /// [`Bounds::few_of_user`] gets no more.
    pub const fn crowded(self) -> usize {
        self.of_holder / 4 * 3
    }

    /// The little that a user gets of a crowded holder.
    pub const fn few_of_user(self) -> usize {
        if self.of_holder < 256 { 1 } else { self.of_holder / 256 }
    }

    /// The little that a holder gets when all is crowded.
    pub const fn few_of_holder(self) -> usize {
        if self.of_holder < 64 { 1 } else { self.of_holder / 64 }
    }
}

/// The share that has no room left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The user's.
    User,
    /// The holder's.
    Holder,
    /// All that there is.
    All,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    /// Those of the super-user are not among these.
    of_users: usize,
    users: FxHashMap<u32, usize>,
}

/// Counts what each holder and user has taken.
#[derive(Debug)]
pub struct Shares<K> {
    bounds: Bounds,
    holders: FxHashMap<K, Taken>,
    all: usize,
    of_users: usize,
}

fn add(count: &mut usize, change: isize) {
    *count = count.checked_add_signed(change).expect("what is given up was counted");
}

impl<K: Copy + Eq + Hash> Shares<K> {
    /// Counts nothing yet.
    pub fn new(bounds: Bounds) -> Shares<K> {
        Shares { bounds, holders: FxHashMap::default(), all: 0, of_users: 0 }
    }

    /// Finds room for one more of `user` of `holder`, or says which share is full.
    ///
    /// # Errors
    /// The narrowest share that has no room.
    pub fn may_add(&self, holder: K, user: u32) -> Result<(), Full> {
        let bounds = self.bounds;
        let (mut own, mut of_user, mut of_users) = (0, 0, 0);
        if let Some(taken) = self.holders.get(&holder) {
            own = taken.all;
            of_user = taken.users.get(&user).copied().unwrap_or(0);
            of_users = taken.of_users;
        }
        let is_super = user == 0;
        if !is_super && of_user >= bounds.of_user() {
            return Err(Full::User);
        }
        let is_crowded = of_users >= bounds.crowded() && of_user >= bounds.few_of_user();
        if own >= bounds.of_holder || !is_super && (is_crowded || of_users >= bounds.of_users()) {
            return Err(Full::Holder);
        }
        let is_crowded = self.all >= bounds.all / 4 * 3 && own >= bounds.few_of_holder();
        if is_crowded || self.all >= bounds.all || !is_super && self.of_users >= bounds.all / 8 * 7 {
            return Err(Full::All);
        }
        Ok(())
    }

    /// Counts so many more, or fewer, of `user` of `holder`.
    ///
    /// # Panics
    /// If fewer were taken than are given up.
    pub fn count(&mut self, holder: K, user: u32, change: isize) {
        if change == 0 {
            return;
        }
        let taken = self.holders.entry(holder).or_default();
        add(&mut self.all, change);
        add(&mut taken.all, change);
        if user != 0 {
            add(&mut self.of_users, change);
            add(&mut taken.of_users, change);
        }
        let of_user = taken.users.entry(user).or_default();
        add(of_user, change);
        if *of_user == 0 {
            taken.users.remove(&user);
        }
        if taken.all == 0 {
            self.holders.remove(&holder);
        }
    }

    /// True if nothing is taken.
    pub fn is_empty(&self) -> bool {
        self.all == 0 && self.of_users == 0 && self.holders.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { of_holder: 256, all: 4096 };

    fn take(shares: &mut Shares<u32>, holder: u32, user: u32, max: usize) -> (usize, Option<Full>) {
        for taken in 0..max {
            if let Err(full) = shares.may_add(holder, user) {
                return (taken, Some(full));
            }
            shares.count(holder, user, 1);
        }
        (max, None)
    }

    #[test]
    fn a_user_has_a_quarter_of_a_holders_and_a_crowd_leaves_the_super_user_an_eighth() {
        let mut shares = Shares::new(BOUNDS);
        for user in 1..4 {
            assert_eq!(take(&mut shares, 1, user, 1000), (64, Some(Full::User)));
        }
        for user in 4..36 {
            assert_eq!(take(&mut shares, 1, user, 1000), (1, Some(Full::Holder)));
        }
        assert_eq!(take(&mut shares, 1, 36, 1), (0, Some(Full::Holder)));
        assert_eq!(take(&mut shares, 1, 0, 1000), (32, Some(Full::Holder)));
        assert_eq!(take(&mut shares, 2, 1, 1000), (64, Some(Full::User)), "another holder has its own");
    }

    #[test]
    fn many_holders_leave_others_a_few_and_their_super_users_the_last_eighth() {
        let mut shares = Shares::new(BOUNDS);
        let greedy: usize = (0..16).map(|holder| take(&mut shares, holder, 0, 1000).0).sum();
        assert_eq!(greedy, 3072 + 4 * 4, "from then on each gets a few");
        assert_eq!(take(&mut shares, 16, 1, 1000), (4, Some(Full::All)));
        let users: usize = (100..2000).map(|holder| take(&mut shares, holder, 1, 1000).0).sum();
        assert_eq!(users + greedy + 4, 4096);
    }

    #[test]
    fn users_of_many_holders_leave_super_users_the_last_eighth() {
        let mut shares = Shares::new(BOUNDS);
        let users: usize = (0..4000).map(|holder| take(&mut shares, holder, 1, 1000).0).sum();
        assert_eq!(users, 4096 / 8 * 7);
        assert_eq!(take(&mut shares, 5000, 1, 1), (0, Some(Full::All)));
        assert_eq!(take(&mut shares, 5000, 0, 1000), (4, Some(Full::All)));
        for holder in 0..4000 {
            let own = shares.holders.get(&holder).map_or(0, |taken| taken.all);
            shares.count(holder, 1, -own.cast_signed());
        }
        shares.count(5000, 0, -4);
        assert!(shares.is_empty());
    }
}
