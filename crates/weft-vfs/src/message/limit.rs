//! Bounds on messages: by their kind, and of each kind by the user whose request gave rise to them.
//!
//! A kind is a place in the source. Each has lines to spend, and gets new ones as time passes: a
//! broken disk does not fill another by its messages, and nobody is silent for ever because of what
//! others, or the same, did before.

use std::collections::HashMap;
use std::time::Duration;

/// A place in the source: its file and line.
pub(super) type Kind = (&'static str, u32);

/// Lines at most at once, and how long until there is another one.
#[derive(Clone, Copy)]
struct Rate {
    lines: u64,
    each: Duration,
}

/// For all messages of one kind.
const OF_KIND: Rate = Rate { lines: 1000, each: Duration::from_secs(1) };

/// For those of one user among them.
const OF_USER: Rate = Rate { lines: 100, each: Duration::from_secs(3) };

/// Most users of kinds that are remembered.
const USERS_MAX: usize = 4096;

/// Lines that may still be written.
#[derive(Clone, Copy)]
struct Budget {
    lines: u64,
    /// Time of its last new line.
    at: Duration,
}

impl Budget {
    fn renew(&mut self, rate: Rate, now: Duration) {
        let passed = now.saturating_sub(self.at);
        let new = u64::try_from(passed.as_nanos() / rate.each.as_nanos()).unwrap_or(u64::MAX);
        if new > 0 {
            self.lines = self.lines.saturating_add(new).min(rate.lines);
            self.at = now;
        }
    }
}

/// Decides which messages are written.
#[derive(Default)]
pub(super) struct Limiter {
    /// With the number of messages left out since the last one that was written.
    kinds: HashMap<Kind, (Budget, u64)>,
    users: HashMap<(Kind, u32), Budget>,
}

impl Limiter {
    /// Takes note of a message of `kind` at `now`, for `user` if it is about a request of one.
    /// Gives the number of messages of this kind that were left out before, if this one is to be
    /// written.
    pub(super) fn admit(&mut self, kind: Kind, user: Option<u32>, now: Duration) -> Option<u64> {
        let full = |rate: Rate| Budget { lines: rate.lines, at: now };
        if self.users.len() >= USERS_MAX {
            self.users.retain(|_, budget| {
                budget.renew(OF_USER, now);
                budget.lines < OF_USER.lines
            });
        }
        let has_room = self.users.len() < USERS_MAX;
        let user = user.map(|user| (kind, user)).filter(|key| has_room || self.users.contains_key(key));
        let mut none = full(OF_USER);
        let of_user = match user {
            Some(key) => self.users.entry(key).or_insert(full(OF_USER)),
            None => &mut none,
        };
        let (of_kind, left_out) = self.kinds.entry(kind).or_insert((full(OF_KIND), 0));
        of_user.renew(OF_USER, now);
        of_kind.renew(OF_KIND, now);
        if of_user.lines == 0 || of_kind.lines == 0 {
            *left_out += 1;
            return None;
        }
        of_user.lines -= 1;
        of_kind.lines -= 1;
        Some(std::mem::take(left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Kind = ("one", 1);

    fn written(limiter: &mut Limiter, user: Option<u32>, seconds: u64) -> usize {
        (0..5000).filter(|_| limiter.admit(ONE, user, Duration::from_secs(seconds)).is_some()).count()
    }

    #[test]
    fn a_user_who_floods_the_log_silences_nobody_else_and_nothing_for_ever() {
        let mut limiter = Limiter::default();
        assert_eq!(written(&mut limiter, Some(1000), 0), 100);
        assert_eq!(limiter.admit(ONE, Some(1001), Duration::ZERO), Some(4900));
        assert_eq!(limiter.admit(ONE, None, Duration::ZERO), Some(0));
        assert_eq!(limiter.admit(("two", 2), Some(1000), Duration::ZERO), Some(0));
        // The same user is heard again.
        assert_eq!(written(&mut limiter, Some(1000), 30), 10);
    }

    #[test]
    fn all_of_a_kind_are_bounded_and_begin_again() {
        let mut limiter = Limiter::default();
        assert_eq!(written(&mut limiter, None, 0), 1000);
        assert_eq!(limiter.admit(ONE, Some(7), Duration::ZERO), None);
        assert_eq!(limiter.admit(ONE, Some(7), Duration::from_secs(60)), Some(4001));
        assert_eq!(written(&mut limiter, None, 60), 59);
    }

    #[test]
    fn many_users_take_no_memory_without_a_bound() {
        let mut limiter = Limiter::default();
        for user in 0..10_000 {
            let _ = limiter.admit(ONE, Some(user), Duration::from_secs(user.into()));
        }
        assert!(limiter.users.len() <= USERS_MAX);
    }
}
