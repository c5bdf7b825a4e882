//! Gives space of dead blocks back to the file system, after the commit that freed it is durable.
//!
//! A little of it is given back at once. Much takes a while, for which nobody should wait: a thread does that. Space is
//! given back in the order in which it was freed, so that the rows of `freed` that can go are those up to a number.

use super::segments::Segments;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

/// More bytes than this are left to the thread.
const BYTES_AT_ONCE: u64 = 8 << 20;

/// What commits freed.
#[derive(Default)]
pub(super) struct FreedSpace {
    /// Rows of `freed`, ascending: number, segment, place and length.
    pub(super) rows: Vec<(i64, u32, u64, u64)>,
    /// Segments that are gone from the table.
    pub(super) emptied: Vec<u32>,
}

impl FreedSpace {
    pub(super) fn add(&mut self, later: FreedSpace) {
        self.rows.extend(later.rows);
        self.emptied.extend(later.emptied);
    }

    pub(super) fn bytes(&self) -> u64 {
        self.rows.iter().map(|(_, _, _, length)| length).sum()
    }
}

/// When dropped, waits until all is given back.
pub(super) struct Reclaimer {
    shared: Arc<Shared>,
    thread: Option<(Sender<FreedSpace>, JoinHandle<()>)>,
}

struct Shared {
    segments: Arc<Segments>,
    /// Rows of `freed` up to this number can go.
    done: AtomicI64,
    /// Space could not be given back: its rows stay, and all after them, for the next opening to try again.
    failed: AtomicBool,
    /// Jobs of the thread that are not done.
    waiting: Mutex<usize>,
    /// Signalled when none is left.
    idle: Condvar,
}

impl Reclaimer {
    pub(super) fn new(segments: Arc<Segments>) -> Reclaimer {
        let (done, failed, waiting) = (AtomicI64::new(0), AtomicBool::new(false), Mutex::new(0));
        let shared = Arc::new(Shared { segments, done, failed, waiting, idle: Condvar::new() });
        let (send, jobs) = channel();
        let work = shared.clone();
        // Now, and not when it is needed: a thread runs where the one that starts it may at that moment.
        let thread = thread::Builder::new().name("weft-reclaim".into()).spawn(move || work.work(&jobs));
        Reclaimer { shared, thread: thread.ok().map(|thread| (send, thread)) }
    }

    /// Rows of `freed` up to this number can go.
    pub(super) fn done(&self) -> i64 {
        self.shared.done.load(Ordering::Acquire)
    }

    pub(super) fn reclaim(&self, freed: FreedSpace) {
        let is_little = freed.bytes() <= BYTES_AT_ONCE;
        if is_little && *self.shared.waiting.lock() == 0 {
            return self.shared.reclaim(&freed);
        }
        let Some((jobs, _)) = &self.thread else { return self.shared.reclaim(&freed) };
        *self.shared.waiting.lock() += 1;
        jobs.send(freed).expect("the thread works until there is nobody to send");
    }

    /// What is being given back now, to be waited for by whoever does not hold the writer.
    pub(super) fn ongoing(&self) -> Ongoing {
        Ongoing { shared: self.shared.clone() }
    }
}

/// Space that is being given back.
pub(super) struct Ongoing {
    shared: Arc<Shared>,
}

impl Ongoing {
    /// Returns when there is none.
    pub(super) fn wait(&self) {
        self.shared.idle.wait_while(&mut self.shared.waiting.lock(), |waiting| *waiting > 0);
    }
}

impl Drop for Reclaimer {
    fn drop(&mut self) {
        if let Some((jobs, thread)) = self.thread.take() {
            drop(jobs);
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn work(&self, jobs: &Receiver<FreedSpace>) {
        while let Ok(freed) = jobs.recv() {
            self.reclaim(&freed);
            let mut waiting = self.waiting.lock();
            *waiting -= 1;
            if *waiting == 0 {
                self.idle.notify_all();
            }
        }
    }

    fn reclaim(&self, freed: &FreedSpace) {
        for (row, segment, offset, length) in &freed.rows {
            if self.segments.punch(*segment, *offset, *length).is_err() {
                self.failed.store(true, Ordering::Release);
            }
            if !self.failed.load(Ordering::Acquire) {
                self.done.store(*row, Ordering::Release);
            }
        }
        for segment in &freed.emptied {
            // An empty file left behind does no harm, and the next opening tries again.
            let _ = self.segments.delete(*segment);
        }
    }
}
