//! Makes changes durable before they are acknowledged.
//!
//! One call at a time is made durable where it was served, without another thread. Those that come
//! meanwhile go to one thread for all connections, and share a sync.

use super::{May, waiting};
use crate::export::WriteAck;
use parking_lot::{Condvar, Mutex};
use std::io;
use std::sync::Arc;
use weft_vfs::{ErrorKind, Vfs};

/// Continuation with the result of a sync.
pub(super) type Then = Box<dyn FnOnce(Result<(), ErrorKind>) + Send>;

/// Calls that wait.
#[derive(Default)]
struct Waiting {
    then: Vec<Then>,
    /// True if no more will come.
    is_over: bool,
}

/// Queue of the thread.
#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    more: Condvar,
}

/// Makes changes durable.
pub(super) struct Stabilizer {
    vfs: Arc<Vfs>,
    /// True if that can be a short wait.
    is_nearby: bool,
    /// Held by a thread that syncs where it stands.
    turn: Mutex<()>,
    queue: Arc<Queue>,
}

impl Stabilizer {
    /// Starts the thread. It ends when this is dropped.
    pub(super) fn start(vfs: Arc<Vfs>) -> io::Result<Stabilizer> {
        let queue = Arc::new(Queue::default());
        let (shared, synced) = (queue.clone(), vfs.clone());
        std::thread::Builder::new().name("weft-nfs-sync".into()).spawn(move || run(&shared, &synced))?;
        Ok(Stabilizer { is_nearby: vfs.syncs_nearby(), vfs, turn: Mutex::new(()), queue })
    }

    /// True if all changes may be acknowledged, now or after a short while. If not,
    /// [`Stabilizer::once_durable`] is the way.
    pub(super) fn is_now(&self, told: WriteAck) -> bool {
        match told {
            WriteAck::Recorded => self.vfs.record().is_ok(),
            WriteAck::Durable if !self.is_nearby => false,
            WriteAck::Durable => {
                let Some(_turn) = self.turn.try_lock() else { return false };
                waiting(May::WaitForLog, || self.vfs.sync()).is_ok()
            }
        }
    }

    /// Calls `then` once all changes are durable, or with the kind of error if they are not.
    pub(super) fn once_durable(&self, then: Then) {
        self.queue.waiting.lock().then.push(then);
        self.queue.more.notify_one();
    }
}

impl Drop for Stabilizer {
    fn drop(&mut self) {
        self.queue.waiting.lock().is_over = true;
        self.queue.more.notify_one();
    }
}

fn run(queue: &Queue, vfs: &Vfs) {
    loop {
        let waiting = {
            let mut waiting = queue.waiting.lock();
            while waiting.then.is_empty() && !waiting.is_over {
                queue.more.wait(&mut waiting);
            }
            std::mem::take(&mut waiting.then)
        };
        if waiting.is_empty() {
            return;
        }
        let synced = vfs.sync().map_err(|error| {
            tracing::error!("what was asked for over NFS cannot be made durable: {error}");
            error.kind()
        });
        waiting.into_iter().for_each(|then| then(synced));
    }
}
