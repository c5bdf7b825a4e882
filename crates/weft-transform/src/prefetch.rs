//! Part of a network that runs in a thread of its own, a little ahead of whoever reads it.

use crate::interrupt::{self, PERIOD, is_interrupted};
use crate::pull::{Pull, RunError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use weft_block::Rope;

/// Ropes that are made before they are asked for.
const AHEAD_MAX: usize = 4;

/// Message from the thread: bytes, the end, or the reason why there are no more.
type Handed = Result<Option<Rope>, RunError>;

/// Reads what a thread makes. When this goes, the thread ends, also in the middle of something.
struct Prefetch {
    handed: Receiver<Handed>,
    /// Set when this goes.
    has_left: Arc<AtomicBool>,
}

/// Runs `pull` in a thread, if there is more than one processor.
pub(crate) fn prefetch(pull: Box<dyn Pull>) -> Result<Box<dyn Pull>, RunError> {
    if thread::available_parallelism().is_ok_and(|processors| processors.get() == 1) {
        Ok(pull)
    } else {
        in_thread(pull)
    }
}

fn in_thread(mut pull: Box<dyn Pull>) -> Result<Box<dyn Pull>, RunError> {
    let (sender, receiver) = sync_channel(AHEAD_MAX);
    let has_left = Arc::new(AtomicBool::new(false));
    let left = has_left.clone();
    let work = move || {
        interrupt::during(
            move || left.load(Ordering::Relaxed),
            || {
                loop {
                    let handed = pull.pull();
                    let is_last = !matches!(handed, Ok(Some(_)));
                    if sender.send(handed).is_err() || is_last {
                        return;
                    }
                }
            },
        );
    };
    thread::Builder::new().name("weft-stage".into()).spawn(work).map_err(RunError::Thread)?;
    Ok(Box::new(Prefetch { handed: receiver, has_left }))
}

impl Pull for Prefetch {
    fn pull(&mut self) -> Handed {
        loop {
            match self.handed.recv_timeout(PERIOD) {
                Ok(handed) => return handed,
                Err(RecvTimeoutError::Timeout) if is_interrupted() => return Err(RunError::Interrupted),
                Err(RecvTimeoutError::Timeout) => {}
                // It never ends without saying so, unless by a panic.
                Err(RecvTimeoutError::Disconnected) => return Err(RunError::Lost),
            }
        }
    }
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        self.has_left.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Panics;

    impl Pull for Panics {
        fn pull(&mut self) -> Handed {
            panic!("on purpose")
        }
    }

    struct Counts(u64);

    impl Pull for Counts {
        fn pull(&mut self) -> Handed {
            self.0 += 1;
            Ok((self.0 <= 100).then(|| Rope::from(self.0.to_ne_bytes().to_vec())))
        }
    }

    #[test]
    fn a_thread_that_is_lost_is_an_error_and_not_the_end() {
        assert!(matches!(in_thread(Box::new(Panics)).unwrap().pull(), Err(RunError::Lost)));
    }

    #[test]
    fn all_is_handed_over_in_order() {
        let mut pull = in_thread(Box::new(Counts(0))).unwrap();
        for expected in 1u64..=100 {
            assert_eq!(pull.pull().unwrap().unwrap().to_vec(), expected.to_ne_bytes());
        }
        assert!(pull.pull().unwrap().is_none());
    }
}
