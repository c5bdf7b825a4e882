//! The mounts that clients said they have.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Mounts remembered, for callers that ask for the list; nothing else depends on it.
const MOUNTS_MAX: usize = 1024;

/// Addresses of clients that have mounted, and the paths.
#[derive(Default)]
pub(crate) struct Mounts(Mutex<BTreeSet<(IpAddr, Vec<u8>)>>);

impl Mounts {
    /// Notes that `address` has mounted `path`, if there is room.
    pub(crate) fn note(&self, address: IpAddr, path: &[u8]) {
        let mut mounts = self.0.lock();
        if mounts.len() < MOUNTS_MAX {
            mounts.insert((address, path.to_vec()));
        }
    }

    /// Forgets that `address` has mounted `path`.
    pub(crate) fn forget(&self, address: IpAddr, path: &[u8]) {
        self.0.lock().remove(&(address, path.to_vec()));
    }

    /// Forgets all that `address` has mounted.
    pub(crate) fn forget_all(&self, address: IpAddr) {
        self.0.lock().retain(|(other, _)| *other != address);
    }

    /// Returns the paths that `address` has mounted.
    pub(crate) fn of(&self, address: IpAddr) -> Vec<Vec<u8>> {
        let mounts = self.0.lock();
        mounts.iter().filter(|(other, _)| *other == address).map(|(_, path)| path.clone()).collect()
    }
}
