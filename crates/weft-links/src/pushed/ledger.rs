//! The memory of networks that are pushed onto files. Equal ones are one, however many files they
//! are pushed onto; what each takes is charged to whoever pushed it, and every user, and all of
//! them together, have bounds.

use crate::definition::LinkDefinition;
use crate::definition::compiled::Compiled;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;
use weft_digest::Digest;
use weft_tree::{Error, ErrorKind, Result};
use weft_users::whose;
use weft_vfs::largest;

/// Bytes that what one user pushed may take, and what all of them did.
pub(crate) const USER_BYTES_MAX: usize = 16 << 20;
pub(crate) const BYTES_MAX: usize = 64 << 20;

/// Bytes of one beside its network: its inode, its place among those pushed, and what holds it.
const PUSHED_BYTES: usize = 1024;

/// Bytes charged to users for pushed networks.
#[derive(Default)]
pub(crate) struct Ledger(Mutex<Accounts>);

#[derive(Default)]
struct Accounts {
    networks: FxHashMap<Digest, Shared>,
    /// Bytes by user.
    users: FxHashMap<u32, usize>,
    bytes: usize,
    pushed: usize,
    refused: u64,
}

/// A network that is pushed, and how often by whom. A user pays once for it.
struct Shared {
    compiled: Arc<Compiled>,
    users: FxHashMap<u32, usize>,
}

/// Counters of what is pushed.
pub(crate) struct Counts {
    pub(crate) pushed: u64,
    pub(crate) bytes: u64,
    pub(crate) by_user: BTreeMap<u32, u64>,
    pub(crate) refused: u64,
}

/// A network that is pushed once; what it takes is given back when this is dropped.
pub(crate) struct Charge {
    ledger: Arc<Ledger>,
    user: u32,
    key: Digest,
    compiled: Arc<Compiled>,
}

impl Charge {
    /// Returns the pushed network.
    pub(crate) fn compiled(&self) -> &Arc<Compiled> {
        &self.compiled
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.ledger.0.lock().give_back(self.user, &self.key);
    }
}

impl Ledger {
    /// Charges `definition` to `user`. `Invalid` if it makes no sense, `QuotaExceeded` if the user
    /// has no room left for it, `NoMemory` if nobody has.
    pub(crate) fn charge(self: &Arc<Self>, user: u32, definition: LinkDefinition) -> Result<Charge> {
        let key = weft_digest::digest(&definition.encode());
        let known = self.0.lock().networks.get(&key).map(|shared| shared.compiled.clone());
        let compiled = match known {
            Some(compiled) => compiled,
            None => Arc::new(Compiled::new(definition).ok_or(ErrorKind::Invalid)?),
        };
        let person = whose(user);
        let taken = self.0.lock().take(person, key, compiled);
        match taken {
            Ok(compiled) => Ok(Charge { ledger: self.clone(), user: person, key, compiled }),
            Err(kind) => {
                let (whose, bytes_max) = match kind {
                    ErrorKind::QuotaExceeded => ("the user's networks", USER_BYTES_MAX),
                    _ => ("all networks", BYTES_MAX),
                };
                tracing::warn!(
                    user,
                    "a network that user {user} pushes onto a file is refused: {whose} on open files take {} MiB, \
                         as much as they may, until some are popped or their files closed",
                    bytes_max >> 20
                );
                Err(Error::from(kind))
            }
        }
    }

    /// Counts what is charged.
    pub(crate) fn counts(&self) -> Counts {
        let accounts = self.0.lock();
        let by_user = largest(accounts.users.iter().map(|(user, bytes)| (*user, *bytes as u64)));
        let (pushed, bytes) = (accounts.pushed as u64, accounts.bytes as u64);
        Counts { pushed, bytes, by_user, refused: accounts.refused }
    }
}

impl Accounts {
    /// Notes that `user` pushes what has `key`, and gives what it shares with others.
    fn take(&mut self, user: u32, key: Digest, compiled: Arc<Compiled>) -> Result<Arc<Compiled>, ErrorKind> {
        let known = self.networks.get(&key);
        let is_new_to = |is_known: bool| PUSHED_BYTES + if is_known { 0 } else { compiled.bytes() };
        let of_user = is_new_to(known.is_some_and(|shared| shared.users.contains_key(&user)));
        let of_all = is_new_to(known.is_some());
        let users = self.users.get(&user).copied().unwrap_or(0);
        let refused = if users + of_user > USER_BYTES_MAX {
            Some(ErrorKind::QuotaExceeded)
        } else if self.bytes + of_all > BYTES_MAX {
            Some(ErrorKind::NoMemory)
        } else {
            None
        };
        if let Some(kind) = refused {
            self.refused += 1;
            return Err(kind);
        }
        self.users.insert(user, users + of_user);
        self.bytes += of_all;
        self.pushed += 1;
        let shared = self.networks.entry(key).or_insert_with(|| Shared { compiled, users: FxHashMap::default() });
        *shared.users.entry(user).or_insert(0) += 1;
        Ok(shared.compiled.clone())
    }

    fn give_back(&mut self, user: u32, key: &Digest) {
        let Some(shared) = self.networks.get_mut(key) else { return };
        let Some(times) = shared.users.get_mut(&user) else { return };
        *times -= 1;
        let (mut of_user, mut of_all) = (PUSHED_BYTES, PUSHED_BYTES);
        if *times == 0 {
            shared.users.remove(&user);
            of_user += shared.compiled.bytes();
            if shared.users.is_empty() {
                of_all += shared.compiled.bytes();
                self.networks.remove(key);
            }
        }
        self.bytes -= of_all;
        self.pushed -= 1;
        if let Some(bytes) = self.users.get_mut(&user) {
            *bytes -= of_user;
            if *bytes == 0 {
                self.users.remove(&user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> LinkDefinition {
        LinkDefinition::new(vec![b"/".to_vec()], text)
    }

    /// One like that of an attack, of 30 kB: a different one for each number.
    fn large(number: usize) -> LinkDefinition {
        network(&format!("replace '{number:030000}' y"))
    }

    #[test]
    fn equal_networks_are_one_and_each_user_pays_for_it_once() {
        let ledger = Arc::new(Ledger::default());
        let mut charges: Vec<Charge> = (0..1000).map(|_| ledger.charge(7, large(1)).expect("room")).collect();
        let one = charges[0].compiled.bytes();
        assert!(charges.iter().all(|charge| Arc::ptr_eq(&charge.compiled, &charges[0].compiled)));
        assert_eq!(ledger.counts().bytes as usize, one + 1000 * PUSHED_BYTES);
        charges.push(ledger.charge(8, large(1)).expect("room"));
        assert_eq!(ledger.counts().bytes as usize, one + 1001 * PUSHED_BYTES);
        assert_eq!(ledger.counts().by_user[&8] as usize, one + PUSHED_BYTES);
        charges.truncate(1000);
        assert_eq!(ledger.counts().by_user.get(&8), None);
        charges.clear();
        let counts = ledger.counts();
        assert_eq!((counts.bytes, counts.pushed, counts.by_user.len()), (0, 0, 0));
        assert!(ledger.0.lock().networks.is_empty());
    }

    #[test]
    fn a_user_and_all_users_have_bounds() {
        let ledger = Arc::new(Ledger::default());
        let mut charges = Vec::new();
        let mut fill = |user: u32| {
            (0..).find_map(|number| match ledger.charge(user, large(user as usize * 10_000 + number)) {
                Ok(charge) => {
                    charges.push(charge);
                    None
                }
                Err(error) => Some((number, error.kind())),
            })
        };
        let (count, kind) = fill(1000).expect("it ends");
        assert!(count > 10 && kind == ErrorKind::QuotaExceeded, "{count} {kind:?}");
        let ends: Vec<_> = (1001..1006).map(|user| fill(user).expect("it ends").1).collect();
        assert_eq!(ends[0], ErrorKind::QuotaExceeded, "others have their own");
        assert_eq!(ends[4], ErrorKind::NoMemory);
        let counts = ledger.counts();
        assert!(
            counts.bytes as usize <= BYTES_MAX
                && counts.by_user.values().all(|bytes| *bytes as usize <= USER_BYTES_MAX)
        );
        assert_eq!(counts.refused, 6);
        charges.clear();
        assert!(ledger.charge(1000, large(0)).is_ok());
    }
}
