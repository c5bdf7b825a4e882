//! Waits of users for the lengths of links of others.
//!
//! stat(2) of a link computes its length, which may take for ever, and `ls` with colors asks for
//! the attributes of all that a directory has. So the links of one owner keep others waiting for a
//! few seconds, all of them together, and then for a moment each: stat fails with `ETIMEDOUT` until
//! the length is known. So does open(2), for which the kernel asks in the same way. Not bounded:
//! requests of the owner, those about links of root or of the user who serves the mount, and those
//! for a program that has the file open.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Time for which the links of one owner may keep others waiting.
const ALLOWANCE: Duration = Duration::from_secs(3);

/// Seconds after which one second of it is there again.
const REFILL: u32 = 60;

/// Wait that counts for nothing.
const FREE: Duration = Duration::from_millis(50);

/// Owners that are remembered: more are not, where they have waits of their own left.
const OWNERS_MAX: usize = 1024;

/// The time that is left to each owner.
#[derive(Debug, Default)]
pub(crate) struct LengthWaits {
    owners: Mutex<HashMap<u32, Left>>,
}

#[derive(Clone, Copy, Debug)]
struct Left {
    time: Duration,
    at: Instant,
}

impl Left {
    /// The time left at `now`.
    fn at(self, now: Instant) -> Duration {
        (self.time + now.saturating_duration_since(self.at) / REFILL).min(ALLOWANCE)
    }
}

impl LengthWaits {
    /// Returns the longest that somebody may wait now for the length of a link of `owner`.
    pub(crate) fn longest(&self, owner: u32, now: Instant) -> Duration {
        let left = self.owners.lock().get(&owner).map_or(ALLOWANCE, |left| left.at(now));
        left.max(FREE)
    }

    /// Notes that somebody has waited `time` until `now` for the length of a link of `owner`.
    pub(crate) fn waited(&self, owner: u32, time: Duration, now: Instant) {
        if time <= FREE {
            return;
        }
        let mut owners = self.owners.lock();
        if owners.len() >= OWNERS_MAX {
            owners.retain(|_, left| left.at(now) < ALLOWANCE);
        }
        let left = owners.get(&owner).map_or(ALLOWANCE, |left| left.at(now));
        owners.insert(owner, Left { time: left.saturating_sub(time), at: now });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_one_owner_keep_others_waiting_for_so_long_and_no_longer() {
        let (waits, begin) = (LengthWaits::default(), Instant::now());
        assert_eq!(waits.longest(1, begin), ALLOWANCE);
        waits.waited(1, FREE, begin);
        assert_eq!(waits.longest(1, begin), ALLOWANCE);
        waits.waited(1, ALLOWANCE / 2, begin);
        assert_eq!(waits.longest(1, begin), ALLOWANCE / 2);
        waits.waited(1, ALLOWANCE, begin);
        assert_eq!((waits.longest(1, begin), waits.longest(2, begin)), (FREE, ALLOWANCE));
        let later = begin + Duration::from_secs(60);
        assert_eq!(waits.longest(1, later), Duration::from_secs(1));
        assert_eq!(waits.longest(1, begin + Duration::from_secs(3600)), ALLOWANCE);
    }
}
