//! Sees that what was done is durable before it is told: one thread for all connections, so that those who wait share a sync.

use parking_lot::{Condvar, Mutex};
use std::io;
use std::sync::{Arc, Weak};
use weft_vfs::{ErrorKind, Vfs};

/// What to do with the result of a sync.
pub(super) type Then = Box<dyn FnOnce(Result<(), ErrorKind>) + Send>;

/// Those who wait.
#[derive(Default)]
struct Queue {
    waiting: Mutex<Vec<Then>>,
    more: Condvar,
}

/// Has replies sent once what they tell is durable.
pub(super) struct Stabilizer {
    queue: Arc<Queue>,
}

impl Stabilizer {
    /// Starts the thread. It ends when this is dropped.
    pub(super) fn start(vfs: Arc<Vfs>) -> io::Result<Stabilizer> {
        let queue = Arc::new(Queue::default());
        let weak = Arc::downgrade(&queue);
        std::thread::Builder::new().name("weft-nfs-sync".into()).spawn(move || run(&weak, &vfs))?;
        Ok(Stabilizer { queue })
    }

    /// Calls `then` once all that was done is durable, or with why it is not.
    pub(super) fn send(&self, then: Then) {
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
                // Looks now and then whether anyone is left.
                queue.more.wait_for(&mut waiting, std::time::Duration::from_millis(200));
            }
            std::mem::take(&mut *waiting)
        };
        drop(queue);
        if waiting.is_empty() {
            continue;
        }
        let synced = vfs.sync().map_err(|error| {
            eprintln!("weft: what was asked for over NFS cannot be made durable: {error}");
            error.kind()
        });
        waiting.into_iter().for_each(|then| then(synced));
    }
}
