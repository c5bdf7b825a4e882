//! Distrust of a wall clock that jumps ahead.
//!
//! The rule of history drops commits by their age, for good. A clock that is wrong for some seconds
//! would have it drop nearly all of the past. So the wall clock is compared with the time since the
//! machine booted, which nobody sets. A time that is far ahead of that is trusted once it has held
//! for a while. The time at which the volume was opened is trusted: nothing is known of the one
//! before.

use crate::volume::Vfs;
use std::fmt::{self, Display, Formatter};
use std::time::Duration;
use weft_store::Timestamp;

/// Time by which the wall clock may gain on the time since boot, in nanoseconds. More is a jump.
const GAIN_MAX: i64 = 3_600_000_000_000;

/// Time since boot that a jump has to hold before it is trusted.
const HOLD: Duration = Duration::from_secs(3600);

/// A forward jump of the wall clock that is not trusted yet, by its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockJump(pub Duration);

impl Display for ClockJump {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        let length = humantime::format_duration(Duration::from_secs(self.0.as_secs()));
        write!(
            to,
            "the clock jumped ahead by {length}: history drops nothing until the new time has held for an hour, or the \
             clock is back"
        )
    }
}

/// The wall clock, as compared with the time since boot.
#[derive(Debug)]
pub(crate) struct ClockWatch {
    /// The wall clock's time of the boot, in nanoseconds: the earliest one since it was last
    /// trusted after a jump.
    boot_time: i64,
    jump: Option<Seen>,
}

/// A jump as it was first seen.
#[derive(Clone, Copy, Debug)]
struct Seen {
    boot_time: i64,
    since_boot: Duration,
}

/// Returns the wall clock's time of the boot.
fn boot_time(now: Timestamp, since_boot: Duration) -> i64 {
    now.0.saturating_sub(i64::try_from(since_boot.as_nanos()).unwrap_or(i64::MAX))
}

impl ClockWatch {
    /// Trusts `now`.
    pub(crate) fn new(now: Timestamp, since_boot: Duration) -> ClockWatch {
        ClockWatch { boot_time: boot_time(now, since_boot), jump: None }
    }

    /// Returns the jump because of which `now` is not trusted, and true if this is the first look
    /// at it.
    fn look(&mut self, now: Timestamp, since_boot: Duration) -> Option<(ClockJump, bool)> {
        let boot_time = boot_time(now, since_boot);
        let gain = boot_time.saturating_sub(self.boot_time);
        if gain <= GAIN_MAX {
            // Many small steps ahead are as wrong as a large one: they do not count as trusted.
            (self.boot_time, self.jump) = (self.boot_time.min(boot_time), None);
            return None;
        }
        let is_same = |seen: &Seen| seen.boot_time.abs_diff(boot_time) <= GAIN_MAX.unsigned_abs();
        let known = self.jump.filter(is_same);
        let seen = *self.jump.insert(known.unwrap_or(Seen { boot_time, since_boot }));
        if since_boot.saturating_sub(seen.since_boot) >= HOLD {
            *self = ClockWatch { boot_time, jump: None };
            return None;
        }
        Some((ClockJump(Duration::from_nanos(gain.unsigned_abs())), known.is_none()))
    }
}

impl Vfs {
    /// Returns the time by which the rule of history may drop commits, or the jump of the clock
    /// because of which it may not. Logs each jump once.
    pub(super) fn trusted_time(&self) -> Result<Timestamp, ClockJump> {
        // In this order: a pause in between looks like a jump, until the next look.
        let since_boot = self.clock.since_boot();
        let now = self.now();
        let Some((jump, is_new)) = self.clock_watch.lock().look(now, since_boot) else { return Ok(now) };
        if is_new && self.past.is_kept() {
            tracing::warn!("{jump}");
        }
        Err(jump)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3600;
    const DAY: i64 = 24 * HOUR;

    /// A watch that began ten hours after the boot.
    struct Machine {
        watch: ClockWatch,
        /// Seconds by which the wall clock is ahead of what it was then.
        ahead: i64,
        since_boot: i64,
    }

    impl Machine {
        fn new() -> Machine {
            let (now, since_boot) = Machine::time(0, 10 * HOUR);
            Machine { watch: ClockWatch::new(now, since_boot), ahead: 0, since_boot: 10 * HOUR }
        }

        fn time(ahead: i64, since_boot: i64) -> (Timestamp, Duration) {
            let now = Timestamp((1_000_000 + ahead + since_boot) * 1_000_000_000);
            (now, Duration::from_secs(since_boot.unsigned_abs()))
        }

        /// Looks `seconds` later, with the clock set ahead by `jump`. Returns the seconds of the
        /// jump that is not trusted, and true if it is a new one.
        fn look(&mut self, seconds: i64, jump: i64) -> Option<(u64, bool)> {
            self.since_boot += seconds;
            self.ahead += jump;
            let (now, since_boot) = Machine::time(self.ahead, self.since_boot);
            self.watch.look(now, since_boot).map(|(jump, is_new)| (jump.0.as_secs(), is_new))
        }
    }

    #[test]
    fn time_that_passes_is_trusted_however_long_nobody_looks() {
        let mut machine = Machine::new();
        for seconds in [0, 30, HOUR, 400 * DAY, 1] {
            assert_eq!(machine.look(seconds, 0), None);
        }
        assert_eq!(machine.look(30, HOUR), None, "an hour is no jump");
        assert_eq!(machine.look(30, 1), Some((3601, true)), "nor are small steps trusted by themselves");
    }

    #[test]
    fn a_jump_is_told_once_and_trusted_after_an_hour() {
        let mut machine = Machine::new();
        assert_eq!(machine.look(30, DAY), Some((86400, true)));
        assert_eq!(machine.look(HOUR - 1, 0), Some((86400, false)));
        assert_eq!(machine.look(1, 0), None);
        assert_eq!(machine.look(30, 0), None);
        assert_eq!(machine.look(30, 2 * HOUR), Some((7200, true)), "the next one counts from the new time");
    }

    #[test]
    fn a_clock_that_is_back_is_trusted_at_once() {
        let mut machine = Machine::new();
        assert_eq!(machine.look(30, DAY), Some((86400, true)));
        assert_eq!(machine.look(30, -DAY), None);
        assert_eq!(machine.look(2 * HOUR, DAY), Some((86400, true)), "the hour begins again");
    }

    #[test]
    fn another_jump_before_the_first_is_trusted_has_an_hour_of_its_own() {
        let mut machine = Machine::new();
        assert_eq!(machine.look(30, DAY), Some((86400, true)));
        assert_eq!(machine.look(HOUR / 2, 60), Some((86460, false)), "a correction is no jump");
        assert_eq!(machine.look(60, 2 * DAY), Some((3 * 86400 + 60, true)));
        assert_eq!(machine.look(HOUR - 1, 0), Some((3 * 86400 + 60, false)));
        assert_eq!(machine.look(1, 0), None);
    }

    #[test]
    fn a_jump_counts_from_the_earliest_time_that_the_clock_was_set_back_to() {
        let mut machine = Machine::new();
        assert_eq!(machine.look(30, -30 * DAY), None);
        assert_eq!(machine.look(30, 20 * DAY), Some((20 * 86400, true)));
    }

    #[test]
    fn extreme_times_do_not_overflow() {
        let mut watch = ClockWatch::new(Timestamp(i64::MIN), Duration::MAX);
        assert!(watch.look(Timestamp(i64::MAX), Duration::ZERO).is_some());
        assert!(watch.look(Timestamp(i64::MIN), Duration::MAX).is_none());
    }

    #[test]
    fn the_message_says_by_how_much_and_what_follows() {
        let text = ClockJump(Duration::from_secs(90_000)).to_string();
        assert_eq!(
            text,
            "the clock jumped ahead by 1day 1h: history drops nothing until the new time has held for an hour, or the \
             clock is back"
        );
    }
}
