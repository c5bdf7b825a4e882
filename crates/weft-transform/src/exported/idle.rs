//! Instances that wait for other parts of what they work on: those that make each byte of one alone
//! need not begin anew for each part.

use super::code::{Bounds, Code};
use super::stream::Stream;
use crate::flow::{Input, Output};
use crate::stage::{Progress, Running, StageError};
use parking_lot::{Condvar, Mutex};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Instant;

/// Identity of a file's content: the value of [`crate::Sources::stamp`], or the digest.
pub(super) type Stamp = [u8; 32];

/// As many instances of a stage wait, and work before anybody waits for one of them to be done:
/// more are of no use.
static AT_ONCE: LazyLock<usize> =
    LazyLock::new(|| thread::available_parallelism().map_or(2, |processors| processors.get().max(2)));

/// An instance that waits.
pub(super) struct Waiting<C> {
    /// The stage whose it is, and of which file.
    stage: u64,
    stamp: Stamp,
    code: C,
}

/// Those of all stages, in the order in which they came back.
pub(super) type AllWaiting<C> = Mutex<Vec<Waiting<C>>>;

/// The instances of one stage.
pub(super) struct Idle<C: Code> {
    stage: u64,
    working: Mutex<usize>,
    /// Signalled when one works no more.
    changed: Condvar,
    _code: PhantomData<fn() -> C>,
}

impl<C: Code> Idle<C> {
    pub(super) fn new() -> Idle<C> {
        static STAGES: AtomicU64 = AtomicU64::new(0);
        let stage = STAGES.fetch_add(1, Ordering::Relaxed);
        Idle { stage, working: Mutex::new(0), changed: Condvar::new(), _code: PhantomData }
    }

    /// One for the file of this stamp, with these bounds; `begin` begins one if none waits, and
    /// none is done sooner than it takes to begin.
    pub(super) fn lend(
        self: &Arc<Idle<C>>,
        stamp: Stamp,
        bounds: Bounds,
        begin: impl FnOnce() -> Result<C, StageError>,
    ) -> Result<Lent<C>, StageError> {
        let waiting = self.take(&stamp);
        // From here on it counts as one that works, and comes back whatever happens.
        let mut lent = Lent { stream: None, lender: Some((self.clone(), stamp)) };
        lent.stream = Some(Stream::new(waiting.map_or_else(begin, Ok)?, bounds));
        Ok(lent)
    }

    fn take(&self, stamp: &Stamp) -> Option<C> {
        let mut waits_until = None;
        let mut working = self.working.lock();
        let taken = loop {
            let taken = self.take_waiting(stamp);
            if taken.is_some() || *working < *AT_ONCE || C::BEGINNING.is_zero() {
                break taken;
            }
            let until = *waits_until.get_or_insert_with(|| Instant::now() + C::BEGINNING);
            if self.changed.wait_until(&mut working, until).timed_out() {
                break None;
            }
        };
        *working += 1;
        taken
    }

    fn take_waiting(&self, stamp: &Stamp) -> Option<C> {
        let is_wanted = |waiting: &Waiting<C>| waiting.stage == self.stage && waiting.stamp == *stamp;
        loop {
            let mut code = {
                let mut all = C::waiting().lock();
                let at = all.iter().rposition(is_wanted)?;
                all.remove(at).code
            };
            if code.is_there() {
                return Some(code);
            }
        }
    }

    /// One works no more; what is left of it, if anything, waits.
    fn give_back(&self, stamp: Stamp, code: Option<C>) {
        if let Some(code) = code {
            let mut all = C::waiting().lock();
            all.push(Waiting { stage: self.stage, stamp, code });
            let of_this = |waiting: &Waiting<C>| waiting.stage == self.stage;
            let too_many = all.iter().filter(|waiting| of_this(waiting)).count() > *AT_ONCE;
            let oldest = if too_many { all.iter().position(of_this) } else { (all.len() > C::IDLE_MAX).then_some(0) };
            let gone = oldest.map(|oldest| all.remove(oldest));
            drop(all);
            drop(gone);
        }
        *self.working.lock() -= 1;
        self.changed.notify_one();
    }
}

impl<C: Code> Drop for Idle<C> {
    fn drop(&mut self) {
        let gone: Vec<_> = C::waiting().lock().extract_if(.., |waiting| waiting.stage == self.stage).collect();
        drop(gone);
    }
}

/// Code that runs, and goes back when it is done.
pub(super) struct Lent<C: Code> {
    /// None once it has failed.
    stream: Option<Stream<C>>,
    /// Pool that it goes back to, if any, and the stamp of its file.
    lender: Option<(Arc<Idle<C>>, Stamp)>,
}

impl<C: Code> Lent<C> {
    /// Wraps a stream that nobody else can use.
    pub(super) fn own(stream: Stream<C>) -> Lent<C> {
        Lent { stream: Some(stream), lender: None }
    }

    fn end(&mut self, code: Option<C>) {
        if let Some((idle, stamp)) = self.lender.take() {
            idle.give_back(stamp, code);
        }
    }
}

impl<C: Code> Running for Lent<C> {
    fn advance(&mut self, input: &mut Input, output: &mut Output) -> Result<Progress, StageError> {
        let Some(stream) = &mut self.stream else { return Ok(Progress::Ended) };
        let progress = stream.advance(input, output);
        if matches!(progress, Err(_) | Ok(Progress::Ended)) {
            let stream = self.stream.take().filter(|_| progress.is_ok() && self.lender.is_some());
            self.end(stream.and_then(Stream::into_code));
        }
        progress
    }
}

impl<C: Code> Drop for Lent<C> {
    fn drop(&mut self) {
        // It is in the middle of something.
        self.stream = None;
        self.end(None);
    }
}
