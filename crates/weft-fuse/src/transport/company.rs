//! Sees whether several users ask.

use super::turns::User;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a user is remembered who has asked.
const COMPANY: Duration = Duration::from_secs(10);

/// Whether several users have asked lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Company {
    Alone,
    Several,
}

/// Watches who asks. Requests of the kernel's own are nobody's.
pub(super) struct Watch {
    began: Instant,
    /// Who asked last.
    last: AtomicU64,
    /// When another user asked than before, in milliseconds since it began; 0 if none has.
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

    /// Takes in that `user` has asked. For the thread with the role.
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
