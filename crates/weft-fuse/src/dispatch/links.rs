//! The kernel's caches of transformation links.
//!
//! The kernel caches their attributes and content like those of files, and is notified when a
//! link's content changes. Invalidating attributes takes no lock, so the thread that made the
//! change does it. Invalidating content waits for reads in flight, which this daemon serves, so
//! threads of their own do it ([`jobs`]). A program that opens the link meanwhile asks for its
//! attributes, and is answered when the content is invalidated.
//!
//! The kernel drops attributes for which it asked before the notice to forget content. `fstat`
//! shows them, but a mapping of a link that has grown would end where it ended before. And a
//! program that has the link open reads on without asking. So a request that changes a link's
//! content is answered when the kernel has forgotten it, if that is soon ([`SOON`]).

mod jobs;

use super::Failure;
use crate::notify::{Notifier, all_content};
use crate::protocol::Valid;
use jobs::{Job, Jobs};
use parking_lot::{Condvar, Mutex};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use weft_links::WithLinks;
use weft_vfs::blocking::Wait;
use weft_vfs::{Attributes, Change, Ino, Kind, Observer, Reach, Result, Vfs};

/// Error for links on mounts with `--writeback`: there the kernel goes by the length that it knows
/// and ignores later notices.
pub(super) const WRITEBACK: Failure = Failure::Errno(libc::EOPNOTSUPP);

/// Time for which the kernel may cache views of directories, whose changes are not reported.
const VIEW_VALID: Duration = Duration::from_secs(1);

/// Longest wait for the kernel to forget content. The request is then answered all the same: the
/// read in its way may be waiting for this answer.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Longest wait of the answer to a change for the kernel to forget the old content of links. A read
/// of content that takes long to compute may be in flight.
const SOON: Duration = Duration::from_millis(20);

/// Time after which all answers about a link made just before it changed have arrived, for links
/// that the kernel did not know then.
const ON_THE_WAY: Duration = Duration::from_millis(10);

thread_local! {
    /// Links that the request served by this thread has outdated, if it serves one.
    static OUTDATED: RefCell<Option<Vec<Ino>>> = const { RefCell::new(None) };
}

/// Serves a request by `serve`. Also returns the links that it has outdated.
pub(super) fn outdating<T>(serve: impl FnOnce() -> T) -> (T, Vec<Ino>) {
    OUTDATED.set(Some(Vec::new()));
    let served = serve();
    (served, OUTDATED.take().unwrap_or_default())
}

/// Links, and files written through links, whose content the kernel is about to forget.
#[derive(Default)]
pub(super) struct Forgetting {
    /// Number of notices still to be sent, by inode.
    pending: Mutex<HashMap<Ino, usize>>,
    /// Signalled when a notice was sent.
    done: Condvar,
    notices: OnceLock<(Arc<Notifier>, Arc<Jobs>)>,
}

impl Forgetting {
    /// Sends notices of changed links through `notifier`.
    pub(super) fn tell_through(self: &Arc<Forgetting>, notifier: Arc<Notifier>) -> std::io::Result<()> {
        let (links, own) = (Arc::downgrade(self), notifier.clone());
        let jobs = Jobs::start(Box::new(move |jobs, person, job| tell_kernel(jobs, &links, &own, person, job)))?;
        // A second one would be for the same mount.
        let _ = self.notices.set((notifier, jobs));
        Ok(())
    }

    /// Waits until the kernel has forgotten what it cached of `ino`, if that is pending. Fails with
    /// `WouldBlock`.
    pub(super) fn settle(&self, vfs: &Vfs, ino: Ino) -> Result<()> {
        if self.pending.lock().contains_key(&ino) {
            vfs.may_wait(Wait::Commit)?;
            self.wait(WAIT_MAX, |pending| !pending.contains_key(&ino));
        }
        Ok(())
    }

    /// Waits until the kernel has forgotten the old content of `links`, if that is soon and this
    /// thread may wait. `node` does not count: a program that uses it may hold its pages until it
    /// is answered.
    pub(super) fn settle_soon(&self, vfs: &Vfs, node: Ino, links: &[Ino]) {
        let is_done =
            |pending: &HashMap<Ino, usize>| links.iter().all(|ino| *ino == node || !pending.contains_key(ino));
        if !links.is_empty() && !is_done(&self.pending.lock()) && vfs.may_wait(Wait::Commit).is_ok() {
            self.wait(SOON, is_done);
        }
    }

    /// Waits until it `is_done`, but no longer than `most`.
    fn wait(&self, most: Duration, is_done: impl Fn(&HashMap<Ino, usize>) -> bool) {
        let until = Instant::now() + most;
        let mut pending = self.pending.lock();
        while !is_done(&pending) && !self.done.wait_until(&mut pending, until).timed_out() {}
    }

    /// Returns the time for which the kernel may cache `attributes` and the name that led to them;
    /// `valid` if they are not a link's.
    pub(super) fn valid(&self, vfs: &Vfs, attributes: &Attributes, valid: Duration) -> Valid {
        if attributes.computed.is_none() {
            return Valid { entry: valid, attributes: valid };
        }
        // The name of a link that is not for everybody leads other users to another node. An entry
        // of a view may change at any time.
        let is_lasting = attributes.reach == Reach::Everybody && !weft_vfs::is_virtual(attributes.ino);
        let entry = if is_lasting { valid } else { Duration::ZERO };
        let is_told = self.notices.get().is_some() && vfs.links().is_ok_and(|links| links.is_watched(attributes.ino));
        let attributes = match attributes.kind {
            _ if attributes.reach != Reach::Everybody => Duration::ZERO,
            Kind::File if is_told && attributes.computed != Some(0) => valid,
            Kind::File => Duration::ZERO,
            _ => VIEW_VALID.min(valid),
        };
        Valid { entry, attributes }
    }

    /// Makes the kernel forget the content of `ino` in `range`, before long.
    pub(super) fn forget_content(&self, ino: Ino, range: Range<u64>) {
        let Some((notifier, jobs)) = self.notices.get() else { return };
        self.expect(ino);
        notifier.attributes_changed(ino);
        if !jobs.put(weft_vfs::asking_user(), Job::Target(ino, range, Arc::default())) {
            self.told(ino);
        }
    }

    /// Counts a pending notice about `ino`; true if it is the first.
    fn expect(&self, ino: Ino) -> bool {
        let mut pending = self.pending.lock();
        let count = pending.entry(ino).or_default();
        *count += 1;
        *count == 1
    }

    fn told(&self, ino: Ino) {
        let mut pending = self.pending.lock();
        if let Some(count) = pending.get_mut(&ino) {
            *count -= 1;
            if *count == 0 {
                pending.remove(&ino);
            }
        }
        self.done.notify_all();
    }
}

impl Observer for Forgetting {
    fn changed(&self, change: &Change) {
        let told = Arc::new(AtomicBool::new(false));
        let (ino, job, waits) = match (change, all_content(change)) {
            (Change::Outdated { ino }, _) => (*ino, Job::Link(*ino), None),
            // A program that wrote through a link may read the target at once, without asking for
            // attributes before.
            (Change::Target { ino, range }, _) => {
                (*ino, Job::Target(*ino, range.clone(), told.clone()), Some(WAIT_MAX))
            }
            // The thread that made the change may have other programs to serve.
            (_, Some((ino, range))) => (ino, Job::Target(ino, range.clone(), told.clone()), Some(SOON)),
            _ => return,
        };
        let Some((notifier, jobs)) = self.notices.get() else { return };
        let is_first = self.expect(ino);
        // A later change waits for the same read as the first, which takes long.
        if is_first && waits.is_none() {
            OUTDATED.with_borrow_mut(|outdated| outdated.iter_mut().for_each(|links| links.push(ino)));
        }
        notifier.attributes_changed(ino);
        if !jobs.put(weft_vfs::asking_user(), job) {
            self.told(ino);
        } else if let Some(most) = waits.filter(|_| is_first) {
            self.wait(most, |_| told.load(Ordering::Relaxed));
        }
    }
}

impl Drop for Forgetting {
    fn drop(&mut self) {
        if let Some((_, jobs)) = self.notices.get() {
            jobs.end();
        }
    }
}

/// Makes the kernel forget content; once more when all answers made just before have arrived.
fn tell_kernel(jobs: &Jobs, links: &Weak<Forgetting>, notifier: &Notifier, person: u32, job: Job) {
    match job {
        Job::Target(ino, range, told) => {
            notifier.range_changed(ino, &range);
            let Some(links) = links.upgrade() else { return };
            told.store(true, Ordering::Relaxed);
            links.told(ino);
        }
        Job::Link(ino) => {
            let is_known = notifier.content_changed(ino);
            let Some(links) = links.upgrade() else { return };
            links.told(ino);
            // The kernel drops answers on their way about a link that it knew.
            if !is_known {
                jobs.put_later(Instant::now() + ON_THE_WAY, person, ino);
            }
        }
        Job::Again(ino) => {
            notifier.content_changed(ino);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek};
    use weft_store::VolumeOptions;
    use weft_store::memory::MemoryStore;
    use weft_vfs::{Options, SystemClock, Timestamp};

    fn attributes(ino: u64, kind: Kind, computed: Option<u64>) -> Attributes {
        let at = Timestamp(0);
        let (permissions, uid, gid, nlink, rdev, size, allocated) = (0o644, 0, 0, 1, 0, 0, 0);
        Attributes {
            ino: Ino(ino),
            generation: 0,
            kind,
            permissions,
            uid,
            gid,
            nlink,
            rdev,
            size,
            allocated,
            atime: at,
            mtime: at,
            ctime: at,
            btime: at,
            computed,
            reach: Reach::Everybody,
        }
    }

    fn vfs() -> Arc<Vfs> {
        let store = Arc::new(MemoryStore::new(VolumeOptions::default()));
        let options = Options { background: false, ..Options::default() };
        weft_links::open(store, None, options, weft_links::LinkOptions::default(), Arc::new(SystemClock))
            .expect("opens")
    }

    #[test]
    fn what_nobody_tells_of_is_not_kept() {
        let (vfs, links, valid) = (vfs(), Forgetting::default(), Duration::from_secs(9));
        let of = |attributes| {
            let Valid { entry, attributes } = links.valid(&vfs, &attributes, valid);
            (entry, attributes)
        };
        assert_eq!(of(attributes(7, Kind::File, None)), (valid, valid));
        assert_eq!(of(attributes(7, Kind::File, Some(3))), (valid, Duration::ZERO));
        assert_eq!(of(attributes(7, Kind::Directory, Some(3))), (valid, VIEW_VALID));
        assert_eq!(of(attributes(1 << 62, Kind::File, Some(3))).0, Duration::ZERO);
        for (kind, reach) in [(Kind::File, Reach::Some), (Kind::Directory, Reach::Some), (Kind::File, Reach::Nobody)] {
            let private = Attributes { reach, ..attributes(7, kind, Some(3)) };
            assert_eq!(of(private), (Duration::ZERO, Duration::ZERO));
        }
    }

    #[test]
    fn who_asks_waits_until_the_kernel_has_forgotten() {
        let mut kernel = tempfile::tempfile().expect("a file");
        let links = Arc::new(Forgetting::default());
        let notifier = Notifier::new(Arc::new(kernel.try_clone().expect("cloned")));
        links.tell_through(Arc::new(notifier)).expect("a thread");
        links.changed(&Change::Outdated { ino: Ino(7) });
        links.settle(&vfs(), Ino(7)).expect("waited");
        assert!(links.pending.lock().is_empty());
        let mut told = Vec::new();
        kernel.rewind().expect("rewound");
        kernel.read_to_end(&mut told).expect("read");
        // Its attributes first (an offset below 0), then all of it.
        let offsets: Vec<_> = told
            .chunks_exact(40)
            .map(|notice| i64::from_ne_bytes(notice[24..32].try_into().expect("8 bytes")))
            .collect();
        assert_eq!(offsets[..2], [-1, 0]);
    }

    /// A program that writes to a file onto which something is pushed holds its pages.
    #[test]
    fn the_answer_to_a_change_waits_for_no_pages_of_its_own() {
        let links = Arc::new(Forgetting::default());
        *links.pending.lock() = HashMap::from([(Ino(7), 1)]);
        let (vfs, asked) = (vfs(), Arc::new(AtomicBool::new(false)));
        let hook = asked.clone();
        weft_vfs::blocking::set_hook(move |_| {
            hook.store(true, Ordering::Relaxed);
            weft_vfs::blocking::Answer::GiveUp
        });
        links.settle_soon(&vfs, Ino(7), &[Ino(7)]);
        assert!(!asked.load(Ordering::Relaxed));
        links.settle_soon(&vfs, Ino(8), &[Ino(7)]);
        assert!(asked.load(Ordering::Relaxed), "it would wait, where it may");
    }
}
