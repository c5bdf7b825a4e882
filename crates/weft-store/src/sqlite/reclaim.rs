//! Gives space of dead blocks back to the file system, after the commit that freed it is durable.
//!
//! A little of it is given back at once. Much takes a while, for which nobody should wait: a thread
//! gives it back. Space is given back in the order in which it was freed, so that the rows of
//! `freed` that can go are those up to a number.
//!
//! Space that an earlier process freed, and files of whole segments, are given back by the thread
//! once they are proved to be free (`proof`). Space that is not free stays, and is reported.

use super::connection::{Access, connect};
use super::proof::{FreedRow, Proof, prove};
use super::segments::Segments;
use crate::error::Result;
use parking_lot::{Condvar, Mutex};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

/// More bytes than this are left to the thread.
const BYTES_AT_ONCE: u64 = 8 << 20;

/// The space that commits freed.
#[derive(Default)]
pub(super) struct FreedSpace {
    /// Rows of `freed`, ascending: number, segment, place and length.
    pub(super) rows: Vec<FreedRow>,
    /// Segments that are gone from the table.
    pub(super) emptied: Vec<u32>,
    /// True if rows are of an earlier process.
    pub(super) is_unproved: bool,
    /// Rows of `freed` whose space the next process gives back.
    pub(super) noted: Vec<i64>,
}

impl FreedSpace {
    pub(super) fn add(&mut self, later: FreedSpace) {
        self.rows.extend(later.rows);
        self.emptied.extend(later.emptied);
        self.is_unproved |= later.is_unproved;
    }

    fn is_to_prove(&self) -> bool {
        self.is_unproved || !self.emptied.is_empty()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.rows.iter().map(|(_, _, _, length)| length).sum()
    }
}

/// Gives back freed space. When dropped, waits until all is given back.
pub(super) struct Reclaimer {
    shared: Arc<Shared>,
    thread: Option<(Sender<FreedSpace>, JoinHandle<()>)>,
}

struct Shared {
    segments: Arc<Segments>,
    database: PathBuf,
    access: Access,
    /// The proof made at the first need. Counts of segments that were right then are right since.
    proof: Mutex<Option<Arc<Proof>>>,
    /// Notices for the user.
    notices: Mutex<Vec<String>>,
    /// Rows of `freed` up to this number can go.
    done: AtomicI64,
    /// Space could not be given back: its rows stay, and all after them, for the next opening to
    /// try again.
    failed: AtomicBool,
    /// Jobs of the thread that are not done.
    waiting: Mutex<usize>,
    /// Signalled when none is left.
    idle: Condvar,
}

impl Reclaimer {
    pub(super) fn new(segments: Arc<Segments>, database: &Path, access: Access) -> Reclaimer {
        let shared = Arc::new(Shared {
            segments,
            database: database.into(),
            access,
            proof: Mutex::default(),
            notices: Mutex::default(),
            done: AtomicI64::new(0),
            failed: AtomicBool::new(false),
            waiting: Mutex::new(0),
            idle: Condvar::new(),
        });
        let (send, jobs) = channel();
        let work = shared.clone();
        // Now, and not when it is needed: a thread runs where the one that starts it may at that
        // moment.
        let thread = thread::Builder::new().name("weft-reclaim".into()).spawn(move || work.work(&jobs));
        Reclaimer { shared, thread: thread.ok().map(|thread| (send, thread)) }
    }

    /// Rows of `freed` up to this number can go.
    pub(super) fn done(&self) -> i64 {
        self.shared.done.load(Ordering::Acquire)
    }

    /// Rows of `freed` that are wrong, and stay.
    pub(super) fn refuted(&self) -> Vec<i64> {
        self.shared.proof.lock().as_ref().map_or_else(Vec::new, |proof| proof.refuted.keys().copied().collect())
    }

    /// Returns notices for the user since the last call.
    pub(super) fn notices(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.notices.lock())
    }

    pub(super) fn reclaim(&self, freed: FreedSpace) {
        let is_little = freed.bytes() <= BYTES_AT_ONCE && !freed.is_to_prove();
        if is_little && *self.shared.waiting.lock() == 0 {
            return self.shared.reclaim(&freed);
        }
        let Some((jobs, _)) = &self.thread else { return self.shared.reclaim(&freed) };
        *self.shared.waiting.lock() += 1;
        jobs.send(freed).expect("the thread works until there is nobody to send");
    }

    /// Returns the space that is being given back now, for callers that do not hold the writer to
    /// wait for.
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
        if let Err(error) = self.prove(freed) {
            self.notices.lock().push(format!("no space is given back until the next mount: {error}"));
            self.failed.store(true, Ordering::Release);
        }
        // Not held meanwhile: commits look at it.
        let proof = self.proof.lock().clone();
        if freed.is_unproved && proof.is_none() {
            return;
        }
        for (row, segment, offset, length) in &freed.rows {
            if proof.as_ref().is_some_and(|proof| proof.refuted.contains_key(row)) {
                continue;
            }
            if self.segments.punch(*segment, *offset, *length).is_err() {
                self.failed.store(true, Ordering::Release);
            }
            if !self.failed.load(Ordering::Acquire) {
                self.done.store(*row, Ordering::Release);
            }
        }
        for segment in &freed.emptied {
            if proof.as_ref().is_some_and(|proof| !proof.miscounted.contains(segment)) {
                // An empty file left behind does no harm, and the next opening tries again.
                let _ = self.segments.delete(*segment);
            }
        }
    }

    /// Proves which of `freed` is free, unless that is known.
    fn prove(&self, freed: &FreedSpace) -> Result<()> {
        if !freed.is_to_prove() || self.proof.lock().is_some() {
            return Ok(());
        }
        let unproved = if freed.is_unproved { &freed.rows[..] } else { &[] };
        let found = prove(&connect(&self.database, 2, self.access)?, unproved)?;
        let mut notices = self.notices.lock();
        let kept = "it stays as it is; 'weft check' tells more";
        for (row, block) in &found.refuted {
            let place = freed.rows.iter().find(|freed| freed.0 == *row).map_or((0, 0), |row| (row.1, row.2));
            let (segment, position) = place;
            notices.push(format!(
                "space to give back in segment {segment} at {position} belongs to block {block}; {kept}"
            ));
        }
        for segment in &found.miscounted {
            notices.push(format!("segment {segment} holds other blocks than its row counts; {kept}"));
        }
        *self.proof.lock() = Some(Arc::new(found));
        Ok(())
    }
}
