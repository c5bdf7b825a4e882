//! Decides whether a queue's own thread waits, or leaves that to a worker.
//!
//! Two changes of thread cost as much as a short wait does on a fast disk. So the thread waits
//! itself for an append to the log, and for a block if no other request is there to be served. It
//! recognises a slow disk by a long wait: then it leaves waiting to workers for a while. Commits
//! are never waited for here.

use crate::transport::handler::Served;
use std::cell::Cell;
use std::time::{Duration, Instant};
use weft_vfs::blocking::{Answer, Wait};

/// Longest wait that counts as short.
const SHORT: Duration = Duration::from_millis(1);

/// Requests left to workers after a long wait.
const REST: u32 = 32;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stance {
    /// For nothing.
    #[default]
    Never,
    /// For a block.
    Read,
    /// For short waits.
    Short { alone: bool },
    /// As long as it takes.
    Ever,
}

/// Policy of the waits of one thread.
#[derive(Debug, Default)]
pub(super) struct InlineWait {
    stance: Cell<Stance>,
    /// True if the present request has waited.
    waited: Cell<bool>,
    /// Requests to be left to workers.
    rest: Cell<u32>,
}

impl InlineWait {
    /// Returns the answer to a request that is about to wait.
    pub(super) fn answer(&self, wait: Wait) -> Answer {
        let waits = match (self.stance.get(), wait) {
            // Treated like cached ones: requests behind this one are likely to need the same rows.
            (_, Wait::Rows) => return Answer::Wait,
            (Stance::Never, _)
            | (Stance::Read, Wait::Log)
            | (Stance::Read | Stance::Short { .. }, Wait::Places | Wait::Network | Wait::Commit) => false,
            (Stance::Short { alone }, Wait::Read) => alone,
            (Stance::Read, Wait::Read) | (Stance::Short { .. }, Wait::Log) | (Stance::Ever, _) => true,
        };
        self.waited.set(waits);
        if waits { Answer::Wait } else { Answer::GiveUp }
    }

    /// Calls `serve`, which waits for a block: no other request is there to be served. If the last
    /// waits were long, it waits for nothing.
    pub(super) fn try_reading(&self, serve: impl FnOnce() -> Served) -> Served {
        if self.rest.get() > 0 {
            return serve();
        }
        self.timed(Stance::Read, serve)
    }

    /// Calls `serve`, which waits if that takes little. `alone`: no other request is there to be
    /// served.
    pub(super) fn try_waiting(&self, alone: bool, serve: impl FnOnce() -> Served) -> Served {
        if self.rest.get() > 0 {
            self.rest.set(self.rest.get() - 1);
            return Served::WouldBlock;
        }
        self.timed(Stance::Short { alone }, serve)
    }

    fn timed(&self, stance: Stance, serve: impl FnOnce() -> Served) -> Served {
        self.waited.set(false);
        let start = Instant::now();
        let served = self.with(stance, serve);
        self.took(start.elapsed());
        served
    }

    /// Notes the duration of the last request.
    fn took(&self, duration: Duration) {
        if self.waited.get() && duration > SHORT {
            self.rest.set(REST);
        }
    }

    /// Calls `serve`, which waits as long as it must.
    pub(super) fn wait(&self, serve: impl FnOnce() -> Served) -> Served {
        self.with(Stance::Ever, serve)
    }

    fn with(&self, stance: Stance, serve: impl FnOnce() -> Served) -> Served {
        self.stance.set(stance);
        let served = serve();
        self.stance.set(Stance::Never);
        served
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the answer to a request that asks `wait`.
    fn told(inline_wait: &InlineWait, alone: bool, wait: Wait) -> Option<Answer> {
        let mut told = None;
        inline_wait.try_waiting(alone, || {
            told = Some(inline_wait.answer(wait));
            Served::Done
        });
        told
    }

    #[test]
    fn short_waits_are_waited_for_and_commits_are_not() {
        let inline_wait = InlineWait::default();
        assert_eq!(inline_wait.answer(Wait::Log), Answer::GiveUp, "while others wait to be served");
        assert_eq!(told(&inline_wait, false, Wait::Log), Some(Answer::Wait));
        assert_eq!(told(&inline_wait, false, Wait::Read), Some(Answer::GiveUp));
        assert_eq!(told(&inline_wait, true, Wait::Read), Some(Answer::Wait));
        assert_eq!(told(&inline_wait, true, Wait::Commit), Some(Answer::GiveUp));
        inline_wait.wait(|| {
            assert_eq!(inline_wait.answer(Wait::Commit), Answer::Wait);
            Served::Done
        });
        assert_eq!(inline_wait.answer(Wait::Log), Answer::GiveUp);
    }

    #[test]
    fn a_request_that_came_alone_is_read_for_at_once_unless_the_disk_is_slow() {
        let inline_wait = InlineWait::default();
        let told = |wait| {
            let mut told = None;
            inline_wait.try_reading(|| {
                told = Some(inline_wait.answer(wait));
                Served::Done
            });
            told
        };
        assert_eq!(told(Wait::Read), Some(Answer::Wait));
        assert_eq!(told(Wait::Log), Some(Answer::GiveUp));
        assert_eq!(told(Wait::Commit), Some(Answer::GiveUp));
        assert_eq!(told(Wait::Read), Some(Answer::Wait));
        inline_wait.waited.set(true);
        inline_wait.took(2 * SHORT);
        assert_eq!(told(Wait::Read), Some(Answer::GiveUp));
    }

    #[test]
    fn after_a_long_wait_workers_do_the_waiting_for_a_while() {
        let inline_wait = InlineWait::default();
        assert_eq!(told(&inline_wait, true, Wait::Read), Some(Answer::Wait));
        inline_wait.took(2 * SHORT);
        for _ in 0..REST {
            assert_eq!(told(&inline_wait, true, Wait::Log), None);
        }
        assert_eq!(told(&inline_wait, true, Wait::Log), Some(Answer::Wait));
    }
}
