//! Sees that what was done is safe before it is told.
//!
//! One call at a time is made durable where it was served, without another thread. Those that come meanwhile go to one
//! thread for all connections, and share a sync.

use super::{May, waiting};
use crate::export::Told;
use parking_lot::{Condvar, Mutex};
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;
use weft_vfs::{ErrorKind, Vfs, say};

/// How often the thread looks whether anyone is left.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// What to do with the result of a sync.
pub(super) type Then = Box<dyn FnOnce(Result<(), ErrorKind>) + Send>;

/// Those who wait.
#[derive(Default)]
struct Queue {
    waiting: Mutex<Vec<Then>>,
    more: Condvar,
}

/// Makes things durable.
pub(super) struct Stabilizer {
    vfs: Arc<Vfs>,
    /// Whether that can be a short wait.
    is_nearby: bool,
    /// Held by whoever syncs where it stands.
    turn: Mutex<()>,
    queue: Arc<Queue>,
}

impl Stabilizer {
    /// Starts the thread. It ends when this is dropped.
    pub(super) fn start(vfs: Arc<Vfs>) -> io::Result<Stabilizer> {
        let queue = Arc::new(Queue::default());
        let (weak, synced) = (Arc::downgrade(&queue), vfs.clone());
        std::thread::Builder::new().name("weft-nfs-sync".into()).spawn(move || run(&weak, &synced))?;
        Ok(Stabilizer { is_nearby: vfs.syncs_nearby(), vfs, turn: Mutex::new(()), queue })
    }

    /// Whether all that was done may be told, now or after a short while. If not, [`Stabilizer::once_durable`] is the way.
    pub(super) fn is_now(&self, told: Told) -> bool {
        match told {
            Told::Recorded => self.vfs.record().is_ok(),
            Told::Durable if !self.is_nearby => false,
            Told::Durable => {
                let Some(_turn) = self.turn.try_lock() else { return false };
                waiting(May::WaitForLog, || self.vfs.sync()).is_ok()
            }
        }
    }

    /// Calls `then` once all that was done is durable, or with why it is not.
    pub(super) fn once_durable(&self, then: Then) {
        self.queue.waiting.lock().push(then);
        self.queue.more.notify_one();
    }
}

impl Drop for Stabilizer {
    fn drop(&mut self) {
        self.queue.more.notify_one();
    }
}

fn run(queue: &Weak<Queue>, vfs: &Vfs) {
    loop {
        let Some(queue) = queue.upgrade() else { return };
        let waiting = {
            let mut waiting = queue.waiting.lock();
            if waiting.is_empty() {
                queue.more.wait_for(&mut waiting, LOOK_AGAIN);
            }
            std::mem::take(&mut *waiting)
        };
        drop(queue);
        if waiting.is_empty() {
            continue;
        }
        let synced = vfs.sync().map_err(|error| {
            say(format_args!("what was asked for over NFS cannot be made durable: {error}"));
            error.kind()
        });
        waiting.into_iter().for_each(|then| then(synced));
    }
}
