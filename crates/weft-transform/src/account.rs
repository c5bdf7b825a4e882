//! Accounting of the memory and temporary files that running networks use besides the data that
//! flows through them, with bounds in bytes.
//!
//! Each network that a daemon runs has an [`Account`]. Stages take it when they begin
//! ([`Account::now`]). So the use of one network adds up, that of all networks of one owner, and
//! that of all networks. A network that a person runs, as by `weft run`, has no bounds but those of
//! each stage.
//!
//! Data that does not fit in memory goes to a temporary file. Data that has to lie in memory, such
//! as a long line, is an error then. Small things are not counted: they are bounded by their
//! number.

use parking_lot::Mutex;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use weft_users::whose;

/// Bytes in memory that are counted at all.
pub(crate) const COUNTED_FROM: u64 = 64 << 10;

/// Bytes that are counted at once.
pub(crate) const UNIT: u64 = 1 << 20;

/// All temporary files may take one part of so many of what is free where they are.
const FREE_PARTS: u64 = 4;

/// The memory of all networks is one part of so many of the machine's, and no more than so many
/// bytes.
const MEMORY_PARTS: u64 = 8;
const MEMORY_BYTES_MAX: u64 = 1 << 30;

/// Bounds on what networks keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes in memory of all networks: half of them are for one owner, a quarter for one network.
    pub memory_bytes: u64,
    /// Bytes in temporary files of one owner: half of them are for one network. They do not hold
    /// for the user whose process this is.
    pub temporary_bytes: u64,
}

impl Bounds {
    /// Bytes in memory of the networks of one owner.
    pub(crate) fn of_owner(&self) -> u64 {
        self.memory_bytes / 2
    }

    /// Bytes in memory of one network.
    pub(crate) fn of_network(&self) -> u64 {
        self.memory_bytes / 4
    }
}

impl Default for Bounds {
    fn default() -> Bounds {
        let machine = rustix::system::sysinfo();
        #[expect(clippy::useless_conversion, reason = "it has another type on some machines")]
        let memory = u64::from(machine.totalram).saturating_mul(u64::from(machine.mem_unit));
        let memory_bytes = (memory / MEMORY_PARTS).min(MEMORY_BYTES_MAX);
        Bounds { memory_bytes, temporary_bytes: 2 << 30 }
    }
}

/// Bytes that are kept, in memory and in temporary files.
#[derive(Default)]
struct Kept {
    memory: AtomicU64,
    temporary: AtomicU64,
}

/// Those of all networks.
static ALL: Kept = Kept { memory: AtomicU64::new(0), temporary: AtomicU64::new(0) };

/// Those of each owner that has a network which runs.
static OWNERS: Mutex<BTreeMap<u32, Weak<Kept>>> = Mutex::new(BTreeMap::new());

thread_local! {
    static NOW: RefCell<Account> = const { RefCell::new(Account(None)) };
}

/// Account of one running network; `None` inside means that nothing bounds it.
#[derive(Clone, Default)]
pub(crate) struct Account(Option<Arc<Bounded>>);

struct Bounded {
    bounds: Bounds,
    /// True if it is of the user whose process this is.
    is_own: bool,
    of_network: Kept,
    of_owner: Arc<Kept>,
    all: &'static Kept,
}

impl Account {
    /// A new account, of a network of `owner`; none: of the user whose process this is.
    pub(crate) fn of(owner: Option<u32>, bounds: Bounds) -> Account {
        Account::among(&ALL, owner, bounds)
    }

    fn among(all: &'static Kept, owner: Option<u32>, bounds: Bounds) -> Account {
        let own = rustix::process::geteuid().as_raw();
        let uid = owner.map_or(own, whose);
        let mut owners = OWNERS.lock();
        let of_owner = owners.get(&uid).and_then(Weak::upgrade).unwrap_or_else(|| {
            owners.retain(|_, kept| kept.strong_count() > 0);
            let kept = Arc::default();
            owners.insert(uid, Arc::downgrade(&kept));
            kept
        });
        Account(Some(Arc::new(Bounded { bounds, is_own: uid == own, of_network: Kept::default(), of_owner, all })))
    }

    /// Returns the account of the network that this thread begins to run.
    pub(crate) fn now() -> Account {
        NOW.with_borrow(Account::clone)
    }

    /// Bounds on what the network keeps, if somebody bounds it.
    pub(crate) fn bounds(&self) -> Option<Bounds> {
        self.0.as_ref().map(|account| account.bounds)
    }

    /// Begins to run a network, by `begin`, with this account.
    pub(crate) fn during<T>(self, begin: impl FnOnce() -> T) -> T {
        struct Restored(Account);
        impl Drop for Restored {
            fn drop(&mut self) {
                NOW.set(std::mem::take(&mut self.0));
            }
        }
        let _restored = Restored(NOW.replace(self));
        begin()
    }

    /// Takes `bytes` more for temporary files, where `free` are; they count until they are given
    /// back. `StorageFull`.
    pub(crate) fn take_temporary(&self, bytes: u64, free: u64) -> io::Result<()> {
        let Some(account) = &self.0 else { return Ok(()) };
        let of_owner = if account.is_own { u64::MAX } else { account.bounds.temporary_bytes };
        let full = |whose: &str, most: u64| {
            let what = format!("the temporary files of {whose} would have more than {} MiB", most >> 20);
            io::Error::new(io::ErrorKind::StorageFull, what)
        };
        if !take(&account.of_network.temporary, bytes, |_| of_owner / 2) {
            return Err(full("this network", of_owner / 2));
        }
        if !take(&account.of_owner.temporary, bytes, |_| of_owner) {
            give(&account.of_network.temporary, bytes);
            return Err(full("all networks of this owner", of_owner));
        }
        if !take(&account.all.temporary, bytes, |taken| taken.saturating_add(free) / FREE_PARTS) {
            give(&account.of_network.temporary, bytes);
            give(&account.of_owner.temporary, bytes);
            let what = "the temporary files of all networks would take more than a quarter of what is free there";
            return Err(io::Error::new(io::ErrorKind::StorageFull, what));
        }
        Ok(())
    }

    /// Gives `bytes` back that were taken for temporary files.
    pub(crate) fn give_temporary(&self, bytes: u64) {
        if let Some(account) = &self.0 {
            for kept in [&account.of_network, &account.of_owner, account.all] {
                give(&kept.temporary, bytes);
            }
        }
    }

    /// Takes `bytes` of memory; false if that is too much.
    fn take_memory(&self, bytes: u64) -> bool {
        let Some(account) = &self.0 else { return true };
        let Bounds { memory_bytes: all, .. } = account.bounds;
        let (network, owner) = (account.bounds.of_network(), account.bounds.of_owner());
        let levels = [(&account.of_network, network), (&*account.of_owner, owner), (account.all, all)];
        for (at, (kept, most)) in levels.into_iter().enumerate() {
            if !take(&kept.memory, bytes, |_| most) {
                levels[..at].iter().for_each(|(kept, _)| give(&kept.memory, bytes));
                return false;
            }
        }
        true
    }

    fn give_memory(&self, bytes: u64) {
        if let Some(account) = &self.0 {
            for kept in [&account.of_network, &account.of_owner, account.all] {
                give(&kept.memory, bytes);
            }
        }
    }

    /// Nothing yet of what is in memory.
    pub(crate) fn memory(&self) -> InMemory {
        InMemory { account: self.clone(), bytes: 0 }
    }
}

/// Adds `bytes` to `counter` unless that makes it more than `most` says of what it was.
fn take(counter: &AtomicU64, bytes: u64, most: impl Fn(u64) -> u64) -> bool {
    let added = |taken: u64| taken.checked_add(bytes).filter(|sum| *sum <= most(taken));
    counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, added).is_ok()
}

fn give(counter: &AtomicU64, bytes: u64) {
    counter.fetch_sub(bytes, Ordering::Relaxed);
}

/// Bytes in memory that count for a user beside what the networks of the same user keep, as long as
/// this lives.
pub struct Charge(InMemory);

impl Charge {
    /// Nothing yet, of `owner`; none: of the user whose process this is.
    pub fn of(owner: Option<u32>, bounds: Bounds) -> Charge {
        Charge(Account::of(owner, bounds).memory())
    }

    /// Counts `bytes` if those are more than before; false if they are too many.
    pub fn raise(&mut self, bytes: usize) -> bool {
        self.0.raise(bytes)
    }
}

/// Bytes in memory that count for a network as long as this lives.
pub(crate) struct InMemory {
    account: Account,
    bytes: u64,
}

impl InMemory {
    /// Counts `bytes` from now on, instead of those before; false if those are too many.
    pub(crate) fn set(&mut self, bytes: usize) -> bool {
        let bytes = bytes as u64;
        let bytes = if bytes < COUNTED_FROM { 0 } else { bytes.next_multiple_of(UNIT) };
        if bytes > self.bytes && !self.account.take_memory(bytes - self.bytes) {
            return false;
        }
        if bytes < self.bytes {
            self.account.give_memory(self.bytes - bytes);
        }
        self.bytes = bytes;
        true
    }

    /// Counts `bytes` if those are more than before; false if they are too many.
    pub(crate) fn raise(&mut self, bytes: usize) -> bool {
        bytes as u64 <= self.bytes || self.set(bytes)
    }
}

impl Drop for InMemory {
    fn drop(&mut self) {
        self.account.give_memory(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: u64 = u64::MAX / 2;

    fn refused(result: io::Result<()>) -> String {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        error.to_string()
    }

    #[test]
    fn temporary_bytes_are_bounded_by_network_and_owner() {
        let small = Bounds { temporary_bytes: 6 * UNIT, ..Bounds::default() };
        let (one, two) = (Account::of(Some(4_000_001), small), Account::of(Some(4_000_001), small));
        let (three, other) = (Account::of(Some(4_000_001), small), Account::of(Some(4_000_002), small));
        one.take_temporary(3 * UNIT, FREE).unwrap();
        let of_network = "the temporary files of this network would have more than 3 MiB";
        assert_eq!(refused(one.take_temporary(UNIT, FREE)), of_network);
        two.take_temporary(3 * UNIT, FREE).unwrap();
        let of_owner = "the temporary files of all networks of this owner would have more than 6 MiB";
        assert_eq!(refused(three.take_temporary(UNIT, FREE)), of_owner);
        other.take_temporary(3 * UNIT, FREE).unwrap();
        one.give_temporary(3 * UNIT);
        three.take_temporary(UNIT, FREE).unwrap();
        for (account, units) in [(two, 3), (three, 1), (other, 3)] {
            account.give_temporary(units * UNIT);
        }
        // The user whose process this is has what is free alone as a bound.
        let own = Account::of(None, small);
        own.take_temporary(9 * UNIT, FREE).unwrap();
        own.give_temporary(9 * UNIT);
        assert!(refused(own.take_temporary(1 << 50, 1 << 50)).contains("a quarter of what is free"));
        // What a person runs has none.
        Account::default().take_temporary(1 << 50, 0).unwrap();
    }

    #[test]
    fn memory_counts_until_it_goes() {
        let bounds = Bounds { memory_bytes: 8 * UNIT, ..Bounds::default() };
        let all = Box::leak(Box::default());
        Account::among(all, Some(4_000_003), bounds).during(|| {
            let (mut one, mut two) = (Account::now().memory(), Account::now().memory());
            assert!(one.set(1 << 20) && two.set(1 << 20) && !two.set((1 << 20) + 1));
            assert!(one.set(1) && two.set(2 << 20) && !one.set(1 << 20) && one.set(1));
            drop(two);
            assert!(one.set(2 << 20) && one.raise(1) && !one.raise(3 << 20));
            // Another network of the same owner has as much, and then the owner has no more.
            let next = || Account::among(all, Some(4_000_003), bounds).memory();
            let (mut two, mut three) = (next(), next());
            assert!(two.set(2 << 20) && !three.set(1 << 20));
        });
        // Outside, nothing of it counts.
        assert!(Account::now().memory().set(100 << 20));
    }
}
