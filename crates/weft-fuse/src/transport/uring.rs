//! Requests over io_uring (Linux 6.14, Documentation/filesystems/fuse/fuse-io-uring.rst): a queue
//! for each processor, served there by a thread of its own.
//!
//! It is the transport that is fast wherever a program runs. Requests without a reply still come
//! over the device. The kernel uses the queues when all of them are known to it.

mod entry;
mod inline_wait;
mod queue;
mod restricted;
mod workers;

use super::handler::Handler;
use queue::Queue;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};

/// Entries of all queues together, if there are so many processors that each would get fewer than
/// [`ENTRIES_MAX`]. Each takes 1 MiB of memory once a request has filled it.
const ENTRIES_TOTAL: usize = 256;

/// Requests of one processor that are served at once.
const ENTRIES_MAX: usize = 32;
const ENTRIES_MIN: usize = 2;

/// The queues of one mount.
pub(crate) struct Rings {
    queues: Vec<(JoinHandle<()>, Sender<()>)>,
}

impl Rings {
    /// Makes a queue for each processor, so that nothing can fail once the kernel uses them.
    pub(crate) fn prepare(device: &Arc<File>, server: &Arc<dyn Handler>) -> io::Result<Rings> {
        let processors = possible_processors()?;
        let entries = (ENTRIES_TOTAL / processors).clamp(ENTRIES_MIN, ENTRIES_MAX);
        let (report, reports) = sync_channel(processors);
        let mut rings = Rings { queues: Vec::new() };
        for number in 0..processors {
            let number = u16::try_from(number).map_err(io::Error::other)?;
            let (go, start) = channel();
            let thread = QueueThread { device: device.clone(), server: server.clone(), number, entries };
            let report = report.clone();
            let name = format!("weft-fuse/{number}");
            let handle = thread::Builder::new().name(name).spawn(move || thread.run(&report, &start))?;
            rings.queues.push((handle, go));
        }
        for _ in 0..processors {
            reports.recv().map_err(io::Error::other)??;
        }
        Ok(rings)
    }

    /// Lets the kernel use the queues; to be called when it has agreed to.
    pub(crate) fn start(&self) {
        for (_, go) in &self.queues {
            // A thread that is gone has said why.
            let _ = go.send(());
        }
    }
}

impl Drop for Rings {
    /// Waits until the queues have ended: at once if they were not started, else when the mount is
    /// gone.
    fn drop(&mut self) {
        for (thread, go) in self.queues.drain(..) {
            drop(go);
            let _ = thread.join();
        }
    }
}

struct QueueThread {
    device: Arc<File>,
    server: Arc<dyn Handler>,
    number: u16,
    entries: usize,
}

impl QueueThread {
    fn run(self, report: &SyncSender<io::Result<()>>, start: &Receiver<()>) {
        pin(self.number);
        let queue = Queue::new(self.device.as_fd(), self.number, self.entries, self.server);
        let (mut queue, result) = match queue {
            Ok(queue) => (Some(queue), Ok(())),
            Err(error) => (None, Err(error)),
        };
        let told = report.send(result).is_ok();
        if let Some(queue) = queue.as_mut()
            && told
            && start.recv().is_ok()
            && let Err(error) = queue.serve()
        {
            tracing::error!("the FUSE queue of processor {} ended: {error}", self.number);
        }
    }
}

/// Moves this thread to its processor. One that is off now may be on later; until then the thread
/// is where it may be, and nobody uses its queue.
fn pin(number: u16) {
    let mut set = CpuSet::new();
    if usize::from(number) < CpuSet::MAX_CPU {
        set.set(usize::from(number));
        let _ = sched_setaffinity(None, &set);
    }
}

/// Returns the largest number of processors there may be: the kernel wants a queue for each.
fn possible_processors() -> io::Result<usize> {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    last_in_list(&list).map(|last| last + 1).ok_or_else(|| io::Error::other("no list of processors"))
}

/// Returns the last number of a list such as `0-3,5`.
fn last_in_list(list: &str) -> Option<usize> {
    list.trim().rsplit([',', '-']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_processor_is_found_in_every_form_of_the_list() {
        assert_eq!(last_in_list("0\n"), Some(0));
        assert_eq!(last_in_list("0-3\n"), Some(3));
        assert_eq!(last_in_list("0-3,5\n"), Some(5));
        assert_eq!(last_in_list(""), None);
    }
}
