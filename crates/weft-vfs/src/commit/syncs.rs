//! Syncs of the intent log that are under way.
//!
//! Each goes through a descriptor of its own, and the kernel tells each descriptor that is open of
//! a write that failed, once. One that is opened after another sync was told hears nothing of it.
//! So a sync that succeeded counts once all that began before it have said what they heard.

use std::collections::BTreeSet;

/// The syncs under way.
#[derive(Debug, Default)]
pub(crate) struct Syncs {
    begun: u64,
    under_way: BTreeSet<u64>,
}

/// A sync that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Begun(u64);

impl Syncs {
    pub(crate) fn begin(&mut self) -> Begun {
        self.begun += 1;
        self.under_way.insert(self.begun);
        Begun(self.begun)
    }

    /// It has ended, and what it heard was noted.
    pub(crate) fn end(&mut self, sync: Begun) {
        self.under_way.remove(&sync.0);
    }

    /// True if one that began before `sync` has not ended.
    pub(crate) fn is_any_before(&self, sync: Begun) -> bool {
        self.under_way.first().is_some_and(|first| *first < sync.0)
    }
}

#[cfg(test)]
mod tests {
    use crate::commit::Next;
    use crate::{Caller, MakeNode, ManualClock, Options, Vfs};
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use weft_store::log::IntentLog;
    use weft_store::memory::MemoryStore;
    use weft_store::{Ino, Kind, VolumeOptions};

    #[test]
    fn a_sync_counts_only_if_none_that_began_before_it_fails() {
        let directory = tempfile::tempdir().expect("a directory");
        let log = IntentLog::open(&directory.path().join("log"), 1 << 20).expect("a log");
        let store = Arc::new(MemoryStore::new(VolumeOptions::default()));
        let options = Options { background: false, ..Options::default() };
        let vfs = Vfs::open(store, Some(log.into()), options, Arc::new(ManualClock::default())).expect("opens");
        let file = MakeNode { kind: Kind::File, permissions: 0o644, umask: 0, rdev: 0 };
        let make = |name: &[u8]| vfs.make(Caller::ROOT, Ino::ROOT, name, file).expect("made");
        make(b"first");
        let log = vfs.log.as_ref().expect("there is one");
        // A sync of the first operation begins, and is told of an error that nobody hears of after
        // it.
        let (first, half) = {
            let mut log = log.lock();
            let target = vfs.progress().0;
            assert!(vfs.append(&mut log, target, Next::Sync).is_some());
            (log.syncs.begin(), log.switches)
        };
        make(b"second");
        let commits = vfs.commits.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            let second = scope.spawn(|| vfs.sync());
            // The other sync has ended, too.
            while {
                let log = log.lock();
                log.syncs.begun < 2 || log.syncs.under_way.len() > 1
            } {
                std::thread::yield_now();
            }
            {
                let mut log = log.lock();
                log.broken = Some(half);
                log.syncs.end(first);
            }
            vfs.log_synced.notify_all();
            second.join().expect("no panic").expect("a commit makes it durable");
        });
        assert_eq!(vfs.commits.load(Ordering::Relaxed), commits + 1, "the log was not believed");
    }
}
