//! Bounds on the work of resolving links: it is done under the lock of all requests.

use weft_tree::{ErrorKind, Miss, Stop};

/// Steps of resolving one link with all links on the way. A name on the way to a target is one. The
/// longest definition has fewer, where no other links and no symbolic ones are on the way and names
/// are as long as usual. The documents give this number.
const STEPS_MAX: usize = 8192;

/// Steps of all links that a request resolves without letting the lock go: a link that keeps
/// lengths asks what it leads to for that, which asks again.
const AT_ONCE_MAX: usize = 4 * STEPS_MAX;

/// Steps that are taken without waiting for a turn ([`super::turns`]). The documents give this
/// number.
pub(crate) const SHORT: usize = 64;

/// The steps that were taken for the links that a request resolves.
#[derive(Default)]
pub(crate) struct Steps {
    /// For the link that is being resolved.
    of_link: usize,
    /// For all, since the lock was taken.
    of_all: usize,
    /// True if it waits for a turn before a long resolving.
    takes_turns: bool,
}

impl Steps {
    /// Begins with another request. It is stopped when it resolves at length if it `takes_turns`.
    pub(crate) fn begin(&mut self, takes_turns: bool) {
        *self = Steps { takes_turns, ..Steps::default() };
    }

    /// Begins with another link.
    pub(crate) fn restart(&mut self) {
        self.of_link = 0;
    }

    /// Takes `more` steps. `Loop` if that is too many; `Miss::Turn`.
    pub(crate) fn take(&mut self, more: usize) -> Result<(), Stop> {
        self.of_link = self.of_link.saturating_add(more);
        self.of_all = self.of_all.saturating_add(more);
        if self.of_link > STEPS_MAX || self.of_all > AT_ONCE_MAX {
            return Err(ErrorKind::Loop.into());
        }
        if self.takes_turns && self.of_all > SHORT { Err(Miss::Turn.into()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_loop(taken: Result<(), Stop>) -> bool {
        matches!(taken, Err(Stop::Fail(error)) if error.kind() == ErrorKind::Loop)
    }

    #[test]
    fn steps_add_up_until_another_link_begins() {
        let mut steps = Steps::default();
        assert!(steps.take(STEPS_MAX).is_ok());
        assert!(is_loop(steps.take(1)));
        assert!(is_loop(steps.take(usize::MAX)));
        steps.begin(false);
        for _ in 0..4 {
            steps.restart();
            assert!(steps.take(STEPS_MAX).is_ok());
        }
        steps.restart();
        assert!(is_loop(steps.take(1)));
        steps.begin(false);
        assert!(steps.take(1).is_ok());
    }

    #[test]
    fn those_who_take_turns_stop_when_a_request_becomes_long() {
        let mut steps = Steps::default();
        steps.begin(true);
        assert!(steps.take(SHORT - 1).is_ok());
        steps.restart();
        assert!(steps.take(1).is_ok());
        assert!(matches!(steps.take(1), Err(Stop::Miss(Miss::Turn))));
    }
}
