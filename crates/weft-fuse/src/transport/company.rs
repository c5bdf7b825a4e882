//! Detects whether several users send requests.

use super::user::User;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Time for which a user's request counts.
const COMPANY: Duration = Duration::from_secs(10);

/// Number of users who sent requests lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Company {
    Alone,
    Several,
}

/// Watches the users of requests. The kernel's own requests count for nobody.
pub(super) struct Watch {
    began: Instant,
    /// User of the last request.
    last: AtomicU64,
    /// Time at which the user last changed, in milliseconds since the start; 0 if never.
    changed: AtomicU64,
}

impl Default for Watch {
    fn default() -> Watch {
        Watch { began: Instant::now(), last: AtomicU64::new(u64::MAX), changed: AtomicU64::new(0) }
    }
}

impl Watch {
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Notes a request of `user`. For the thread with the role.
    pub(super) fn see(&self, user: User) {
        let User::Id(id) = user else { return };
        let last = self.last.load(Ordering::Relaxed);
        if last != u64::from(id) {
            self.last.store(id.into(), Ordering::Relaxed);
            if last != u64::MAX {
                self.changed.store(self.now().max(1), Ordering::Relaxed);
            }
        }
    }

    pub(super) fn company(&self) -> Company {
        let changed = self.changed.load(Ordering::Relaxed);
        let since = Duration::from_millis(self.now().saturating_sub(changed));
        if changed > 0 && since < COMPANY { Company::Several } else { Company::Alone }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_users_are_several_and_the_kernel_is_none() {
        let watch = Watch::default();
        let seen = [User::Id(0), User::Kernel, User::Id(0), User::Id(7), User::Id(7)].map(|user| {
            watch.see(user);
            watch.company()
        });
        assert_eq!(seen[..3], [Company::Alone; 3]);
        assert_eq!(seen[3..], [Company::Several; 2]);
    }
}
