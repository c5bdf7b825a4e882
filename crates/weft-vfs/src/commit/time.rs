//! The time of a commit, by which a store tells the tries of one number apart.

use crate::volume::Vfs;
use std::sync::atomic::Ordering;
use weft_store::Timestamp;

impl Vfs {
    /// Now, or a nanosecond after the commit tried before if that has a later time or the same:
    /// times of commits never go back, whatever the clock does. A server that is asked
    /// what became of a commit knows its number, its time and its last operation, and nothing else
    /// where no digests are kept: two tries may differ in access times alone.
    pub(super) fn commit_time(&self) -> Timestamp {
        let now = self.now().0;
        let before = self.tried_at.load(Ordering::Relaxed);
        let time = now.max(before.saturating_add(1));
        self.tried_at.store(time, Ordering::Relaxed);
        Timestamp(time)
    }
}

#[cfg(test)]
mod tests {
    use crate::clock::ManualClock;
    use crate::{Options, Vfs};
    use std::sync::Arc;
    use weft_store::memory::MemoryStore;
    use weft_store::{Timestamp, VolumeOptions};

    #[test]
    fn no_two_tries_of_a_commit_have_one_time() {
        let clock = Arc::new(ManualClock::default());
        let store = Arc::new(MemoryStore::new(VolumeOptions::default()));
        let options = Options { background: false, ..Options::default() };
        let vfs = Vfs::open(store, None, options, clock.clone()).expect("opened");
        clock.set(Timestamp(1000));
        let first = vfs.commit_time();
        assert_ne!(vfs.commit_time(), first, "the clock stands still");
        clock.set(Timestamp(5000));
        assert_eq!(vfs.commit_time(), Timestamp(5000));
        assert_eq!(vfs.commit_time(), Timestamp(5001));
        vfs.close().expect("closed");
    }
}
