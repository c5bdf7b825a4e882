//! What the kernel keeps of transformation links.
//!
//! It keeps their attributes and content as those of files, and is told when a link gives something
//! else. Forgetting attributes takes no lock, so whoever made the change tells that. Forgetting
//! content waits for reads in flight, which this daemon serves, so threads of their own tell that
//! ([`jobs`]); and who asks for attributes meanwhile, as everybody does who opens the link, is
//! answered when it is done.
//!
//! The kernel drops attributes for which it asked before it was told to forget content. `fstat`
//! shows them, but a mapping of a link that has grown would end where it ended before. And a
//! program that has the link open reads on without asking. So a request that changes what a link
//! gives is answered when the content is forgotten, if that is soon ([`SOON`]).

mod jobs;

use super::Failure;
use crate::notify::{Notifier, all_content};
use jobs::{Job, Jobs};
use parking_lot::{Condvar, Mutex};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use weft_vfs::blocking::Wait;
use weft_vfs::{Attributes, Change, ErrorKind, Ino, Kind, Observer, Reach, Result, Vfs};

/// Links are not for mounts with `--writeback`: the kernel then goes by the length that it knows,
/// whatever it is told later.
pub(super) const WRITEBACK: Failure = Failure::Errno(libc::EOPNOTSUPP);

/// How long the kernel may answer from what it was told of views of directories, and nobody tells
/// it of.
const VIEW_VALID: Duration = Duration::from_secs(1);

/// Who waits longer for the kernel to forget something is answered all the same: whatever is in its
/// way may be waiting for the answer.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Longest wait of the answer to a change for the kernel to forget what links gave before. Somebody
/// may be reading what takes long to compute.
const SOON: Duration = Duration::from_millis(20);

/// After this long nobody is on the way any more who was told of a link just before it changed, of
/// which the kernel did not know then.
const ON_THE_WAY: Duration = Duration::from_millis(10);

thread_local! {
    /// Links that the request which this thread serves has outdated, if it serves one.
    static OUTDATED: RefCell<Option<Vec<Ino>>> = const { RefCell::new(None) };
}

/// Serves a request by `serve`. Returns the links that it has outdated, too.
pub(super) fn outdating<T>(serve: impl FnOnce() -> T) -> (T, Vec<Ino>) {
    OUTDATED.set(Some(Vec::new()));
    let served = serve();
    (served, OUTDATED.take().unwrap_or_default())
}

/// The links, and the files that were written by way of links, of which the kernel is about to
/// forget content.
#[derive(Default)]
pub(super) struct Forgetting {
    /// How often each is yet to be told of.
    pending: Mutex<HashMap<Ino, usize>>,
    /// Signalled when one was.
    done: Condvar,
    notices: OnceLock<(Arc<Notifier>, Arc<Jobs>)>,
}

/// How long the kernel may keep what it is told of an inode.
#[derive(Clone, Copy)]
pub(crate) struct Valid {
    /// That its name means it.
    pub(crate) entry: Duration,
    /// Its attributes.
    pub(crate) attributes: Duration,
}

impl Forgetting {
    /// Has the kernel told through `notifier` when links change.
    pub(super) fn tell_through(self: &Arc<Forgetting>, notifier: Arc<Notifier>) -> std::io::Result<()> {
        let (links, own) = (Arc::downgrade(self), notifier.clone());
        let jobs = Jobs::start(Box::new(move |jobs, person, job| tell_kernel(jobs, &links, &own, person, job)))?;
        // A second one would be for the same mount.
        let _ = self.notices.set((notifier, jobs));
        Ok(())
    }

    /// Waits until the kernel has forgotten what it kept of `ino`, if it is to. `WouldBlock`.
    pub(super) fn settle(&self, vfs: &Vfs, ino: Ino) -> Result<()> {
        if self.pending.lock().contains_key(&ino) {
            vfs.may_wait(Wait::Commit)?;
            self.wait(WAIT_MAX, |pending| !pending.contains_key(&ino));
        }
        Ok(())
    }

    /// Waits until the kernel has forgotten what `links` gave before, if that is soon and this
    /// thread may wait. A program that uses `node` may have its pages in hand until it is answered.
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

    /// How long the kernel may keep `attributes`, and the name by which it has found what has them;
    /// of what is no link for `valid`.
    pub(super) fn valid(&self, vfs: &Vfs, attributes: &Attributes, valid: Duration) -> Valid {
        if attributes.computed.is_none() {
            return Valid { entry: valid, attributes: valid };
        }
        // Of what is not for everybody a name means another node to others. What is in a view may
        // be something else at any time.
        let is_lasting = attributes.reach == Reach::Everybody && !weft_vfs::is_virtual(attributes.ino);
        let entry = if is_lasting { valid } else { Duration::ZERO };
        let is_told = self.notices.get().is_some() && vfs.is_watched(attributes.ino);
        let attributes = match attributes.kind {
            _ if attributes.reach != Reach::Everybody => Duration::ZERO,
            Kind::File if is_told && attributes.computed != Some(0) => valid,
            Kind::File => Duration::ZERO,
            _ => VIEW_VALID.min(valid),
        };
        Valid { entry, attributes }
    }

    /// Has the kernel forget the content of `ino` in `range`, before long.
    pub(super) fn forget_content(&self, ino: Ino, range: Range<u64>) {
        let Some((notifier, jobs)) = self.notices.get() else { return };
        self.expect(ino);
        notifier.attributes_changed(ino);
        if !jobs.put(weft_vfs::asking_user(), Job::Target(ino, range, Arc::default())) {
            self.told(ino);
        }
    }

    /// Counts that the kernel is to be told of `ino`; true if it was not already.
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
            (Change::Link { ino }, _) => (*ino, Job::Link(*ino), None),
            // Whoever wrote by way of a link may read what it led to at once, without asking for
            // attributes before.
            (Change::Target { ino, range }, _) => {
                (*ino, Job::Target(*ino, range.clone(), told.clone()), Some(WAIT_MAX))
            }
            // Whoever did that may have others to serve.
            (_, Some((ino, range))) => (ino, Job::Target(ino, range.clone(), told.clone()), Some(SOON)),
            _ => return,
        };
        let Some((notifier, jobs)) = self.notices.get() else { return };
        let is_first = self.expect(ino);
        // Who is behind another one has the same in the way, which takes long.
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

/// Has the kernel forget content, and once more when nobody can be on the way any more who was told
/// of it just before.
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
            // What is on the way about a link that it knew the kernel drops.
            if !is_known {
                jobs.put_later(Instant::now() + ON_THE_WAY, person, ino);
            }
        }
        Job::Again(ino) => {
            notifier.content_changed(ino);
        }
    }
}

/// Whether `kind` of error says that there is no such name, but that there may be at any time.
pub(super) fn is_momentary(kind: ErrorKind) -> bool {
    kind == ErrorKind::NotShown
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
        Vfs::open(store, None, options, Arc::new(SystemClock)).expect("opens")
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
        links.changed(&Change::Link { ino: Ino(7) });
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

    /// A program that writes to a file onto which something is pushed has its pages in hand.
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
