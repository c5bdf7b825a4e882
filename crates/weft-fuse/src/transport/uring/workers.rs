//! Threads that wait in place of a queue's own thread.

use super::entry::Entry;
use super::queue::serve_entry;
use crate::protocol::Reply;
use crate::transport::EndOnPanic;
use crate::transport::handler::Handler;
use parking_lot::{Condvar, Mutex};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use weft_links::{Lane, set_lane};

/// An entry and its place in the queue.
pub(super) type Placed = (usize, Entry);

/// The workers of one queue. At most as many as the queue has entries, made when needed.
pub(super) struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Jobs handed over and not taken back yet.
    out: usize,
}

struct Shared {
    server: Arc<dyn Handler>,
    /// Bound of the queue's entries that are computed at once.
    lane: Arc<Lane>,
    jobs: Mutex<Jobs>,
    /// Signalled when there is a job, or no more will come.
    work: Condvar,
    done: Mutex<Vec<Placed>>,
    /// Written when something was put into `done`.
    bell: OwnedFd,
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Placed>,
    idle: usize,
    closed: bool,
}

impl Workers {
    pub(super) fn new(server: Arc<dyn Handler>, entries: usize) -> rustix::io::Result<Workers> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let lane = Lane::new(entries);
        let (jobs, work, done) = (Mutex::default(), Condvar::new(), Mutex::default());
        let shared = Shared { server, lane, jobs, work, done, bell };
        Ok(Workers { shared: Arc::new(shared), threads: Vec::new(), out: 0 })
    }

    /// Returns the descriptor that is readable when there is something to [`Workers::take`].
    pub(super) fn bell(&self) -> &OwnedFd {
        &self.shared.bell
    }

    /// Hands over a request to be served and answered. Gives it back if there is no thread for it.
    pub(super) fn hand(&mut self, job: Placed) -> Result<(), Placed> {
        let mut jobs = self.shared.jobs.lock();
        if jobs.idle > jobs.waiting.len() {
            jobs.waiting.push_back(job);
            self.out += 1;
            self.shared.work.notify_one();
            return Ok(());
        }
        // The new thread inherits the processor of this one, where it is woken fastest.
        let shared = self.shared.clone();
        match thread::Builder::new().name("weft-fuse-wait".into()).spawn(move || shared.work()) {
            Ok(thread) => self.threads.push(thread),
            Err(_) if self.threads.is_empty() => return Err(job),
            Err(_) => {}
        }
        jobs.waiting.push_back(job);
        self.out += 1;
        Ok(())
    }

    /// True if no request is with them.
    pub(super) fn are_idle(&self) -> bool {
        self.out == 0
    }

    /// Returns entries whose replies are put.
    pub(super) fn take(&mut self) -> Vec<Placed> {
        // Emptied first: entries that are added after the bell was cleared ring it again.
        let _ = rustix::io::read(&self.shared.bell, &mut [0; 8]);
        let done = std::mem::take(&mut *self.shared.done.lock());
        self.out -= done.len();
        done
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.jobs.lock().closed = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has logged it.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn work(&self) {
        let _guard = EndOnPanic;
        set_lane(self.lane.clone());
        let mut reply = Reply::default();
        while let Some((place, mut entry)) = self.next() {
            serve_entry(&*self.server, &mut entry, &mut reply);
            self.done.lock().push((place, entry));
            // It fails only on overflow, and then the bell rings already.
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
    }

    fn next(&self) -> Option<Placed> {
        let mut jobs = self.jobs.lock();
        loop {
            if let Some(job) = jobs.waiting.pop_front() {
                return Some(job);
            }
            if jobs.closed {
                return None;
            }
            jobs.idle += 1;
            self.work.wait(&mut jobs);
            jobs.idle -= 1;
        }
    }
}
