//! What links that keep places give, for programs that read them from front to back computed before
//! they ask for it: any part can be computed by itself, so a second processor has something to do.
//!
//! A part is computed of one version of the link, and given to nobody who finds another: what is
//! read is what the target holds then. Whoever asks for a part that is being computed computes
//! another one meanwhile. Nothing is computed ahead of those who read little at a time, or in no
//! order, nor by code of others, which may take any time, nor of what another link gives: that may
//! be something else while nobody looks, and then the same again.

use crate::layer::Links;
use crate::resolving::resolve::Resolved;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle, available_parallelism};
use std::time::Duration;
use weft_block::Rope;
use weft_store::Ino;
use weft_tree::{ErrorKind, Result};
use weft_vfs::Vfs;
use weft_vfs::blocking::Wait;

/// Bytes that are computed ahead of each reader: few enough to be in a processor's cache still.
const WINDOW_BYTES: usize = 1 << 20;

/// Bytes of a read that is worth it.
const READ_BYTES_MIN: usize = 32 << 10;

/// Reads in order before more are believed to follow.
const BELIEVED: u32 = 2;

/// Programs kept in mind: a window each.
const READERS_MAX: usize = 8;

/// Time without a read after which computed parts are dropped.
const REST: Duration = Duration::from_secs(1);

/// Looks at a part that is nearly done before sleeping, which takes longer.
const LOOKS: u32 = 2000;

/// Computes ahead for one volume.
pub(crate) struct PlacesAhead {
    shared: Arc<Shared>,
    /// None until there is something to do.
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    /// True if there is a processor to spare.
    is_on: bool,
    readers: Mutex<Readers>,
    /// Signalled when there are parts to compute.
    work: Condvar,
    /// Signalled when a part is done, or given up.
    done: Condvar,
}

#[derive(Default)]
struct Readers {
    /// The one that read last is the last.
    list: Vec<Reader>,
    /// Number of readers so far.
    count: u64,
    /// Reads in order, so that a pause is noticed.
    given: u64,
    /// Bytes of parts that were computed when somebody asked for them.
    bytes_given: u64,
    /// True if the thread computes, or looks for something to compute.
    is_busy: bool,
    is_closed: bool,
}

/// A program that reads a link from front to back.
struct Reader {
    number: u64,
    ino: Ino,
    resolved: Arc<Resolved>,
    /// Bytes of each of its reads.
    len: usize,
    /// Offset of the next read.
    next: u64,
    in_order: u32,
    /// From `next` on, `len` bytes each.
    parts: VecDeque<Part>,
    /// True if the content ends after them.
    is_at_end: bool,
}

enum Part {
    Waiting,
    Computing,
    Done(Rope),
}

/// A part to be computed.
struct Task {
    reader: u64,
    ino: Ino,
    resolved: Arc<Resolved>,
    offset: u64,
    len: usize,
}

impl PlacesAhead {
    /// `is_on`: if it may have a thread.
    pub(crate) fn new(is_on: bool) -> PlacesAhead {
        let is_on = is_on && available_parallelism().is_ok_and(|processors| processors.get() > 1);
        let (readers, work, done) = (Mutex::default(), Condvar::new(), Condvar::new());
        PlacesAhead { shared: Arc::new(Shared { is_on, readers, work, done }), thread: Mutex::new(None) }
    }

    /// The bytes that a program reads from `offset` of link `ino`, as it is now, if somebody has
    /// computed them; else it is to do so itself. `WouldBlock`.
    pub(crate) fn read(
        &self,
        vfs: &Links<'_>,
        (ino, resolved): (Ino, &Resolved),
        offset: u64,
        len: usize,
    ) -> Result<Option<Rope>> {
        let is_worth_it = (READ_BYTES_MIN..=WINDOW_BYTES).contains(&len) && resolved.is_of_file;
        if !self.shared.is_on || !is_worth_it || resolved.link.network.is_exported() {
            return Ok(None);
        }
        let mut readers = self.shared.readers.lock();
        let Some(number) = readers.observe((ino, resolved), offset, len) else { return Ok(None) };
        let (mut looks, mut may_help, mut may_sleep) = (0, true, false);
        loop {
            // Somebody else may read in step with this program, and have it go on.
            let reader = readers.get(number).filter(|reader| reader.next == offset);
            let Some(reader) = reader else { return Ok(None) };
            if !matches!(reader.parts.front(), Some(Part::Computing)) {
                let part = reader.go_on();
                let is_enough = reader.waiting() >= reader.window() / 2;
                readers.given += 1;
                readers.bytes_given += part.as_ref().map_or(0, |part| part.len() as u64);
                if is_enough && !readers.is_busy {
                    drop(readers);
                    self.wake(vfs);
                }
                return Ok(part);
            }
            if may_help && let Some(task) = reader.take_task() {
                may_help = MutexGuard::unlocked(&mut readers, || self.shared.compute(vfs, task));
            } else if looks < LOOKS {
                looks += 1;
                MutexGuard::unlocked(&mut readers, std::hint::spin_loop);
            } else if may_sleep {
                self.shared.done.wait(&mut readers);
            } else {
                // The target is being read from a disk or a server.
                MutexGuard::unlocked(&mut readers, || vfs.may_wait(Wait::Read))?;
                may_sleep = true;
            }
        }
    }

    /// Bytes that were computed before they were asked for.
    pub(crate) fn bytes(&self) -> u64 {
        self.shared.readers.lock().bytes_given
    }

    /// Has the thread go on.
    fn wake(&self, vfs: &Links<'_>) {
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let (shared, weak) = (self.shared.clone(), vfs.weak());
            // Without it programs compute everything themselves.
            *thread = thread::Builder::new().name("weft-places".into()).spawn(move || shared.work(&weak)).ok();
        }
        self.shared.work.notify_one();
    }

    /// Ends the thread.
    pub(crate) fn close(&self) {
        self.shared.close();
        if let Some(thread) = self.thread.lock().take() {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Drop for PlacesAhead {
    /// Does not wait for the thread: that may be who drops the volume.
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl Shared {
    fn close(&self) {
        let mut readers = self.readers.lock();
        readers.is_closed = true;
        readers.list.clear();
        drop(readers);
        self.work.notify_all();
        self.done.notify_all();
    }

    fn work(&self, weak: &Weak<Vfs>) {
        while let Some(task) = self.next() {
            let Some(vfs) = weak.upgrade() else { return };
            self.compute(&Links::of(&vfs), task);
        }
    }

    /// Something to compute; waits for it. None when no more will come.
    fn next(&self) -> Option<Task> {
        let mut readers = self.readers.lock();
        readers.is_busy = true;
        loop {
            if readers.is_closed {
                return None;
            }
            if let Some(task) = readers.list.iter_mut().rev().find_map(Reader::take_task) {
                return Some(task);
            }
            readers.is_busy = false;
            let given = readers.given;
            if readers.list.is_empty() {
                self.work.wait(&mut readers);
            } else if self.work.wait_for(&mut readers, REST).timed_out() && readers.given == given {
                readers.list.clear();
            }
            readers.is_busy = true;
        }
    }

    /// False if the thread may not wait for what that takes.
    fn compute(&self, vfs: &Links<'_>, task: Task) -> bool {
        let mut taken = Taken { shared: self, task, becomes: None };
        match vfs.of_places(taken.task.ino, &taken.task.resolved, taken.task.offset, taken.task.len) {
            Ok(Some(rope)) => taken.becomes = Some(Part::Done(rope)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                taken.becomes = Some(Part::Waiting);
                return false;
            }
            Ok(None) | Err(_) => {}
        }
        true
    }
}

/// A part that is being computed.
struct Taken<'a> {
    shared: &'a Shared,
    task: Task,
    /// None if it cannot be had: whoever asks for it comes to hear why.
    becomes: Option<Part>,
}

impl Drop for Taken<'_> {
    /// However computing ends, nobody waits for it then.
    fn drop(&mut self) {
        let mut readers = self.shared.readers.lock();
        match self.becomes.take() {
            Some(part) => readers.keep(&self.task, part),
            None => readers.list.retain(|reader| reader.number != self.task.reader),
        }
        drop(readers);
        self.shared.done.notify_all();
    }
}

impl Readers {
    fn get(&mut self, number: u64) -> Option<&mut Reader> {
        self.list.iter_mut().find(|reader| reader.number == number)
    }

    /// Somebody reads `len` bytes from `offset` of a link. Tells which reader that is, if it is one
    /// to compute ahead of.
    fn observe(&mut self, (ino, resolved): (Ino, &Resolved), offset: u64, len: usize) -> Option<u64> {
        if self.is_closed {
            return None;
        }
        let at_next = |next| {
            let is_it = |reader: &Reader| reader.ino == ino && reader.len == len && reader.next == next;
            self.list.iter().rposition(is_it)
        };
        // Who was told that it would wait asks again.
        let at = at_next(offset).or_else(|| at_next(offset.saturating_add(len as u64)));
        let known = at.map(|at| self.list.remove(at)).filter(|reader| reader.resolved.version == resolved.version);
        let is_new = known.is_none();
        let mut reader = known.unwrap_or_else(|| {
            self.count += 1;
            Reader::new(self.count, (ino, resolved), offset, len)
        });
        let is_next = reader.next == offset && !is_new;
        if is_next {
            reader.in_order += 1;
        }
        let is_believed = is_next && reader.in_order >= BELIEVED;
        if is_believed {
            reader.fill();
        } else if is_next {
            reader.next = offset.saturating_add(len as u64);
        }
        let number = reader.number;
        if self.list.len() >= READERS_MAX {
            // Those who read here and there go before those who read in order.
            let other = self.list.iter().position(|reader| reader.in_order < BELIEVED);
            self.list.remove(other.unwrap_or(0));
        }
        self.list.push(reader);
        is_believed.then_some(number)
    }

    fn keep(&mut self, task: &Task, becomes: Part) {
        let Some(reader) = self.get(task.reader) else { return };
        let Some(at) = task.offset.checked_sub(reader.next).map(|bytes| bytes as usize / reader.len) else { return };
        if let Part::Done(rope) = &becomes
            && rope.len() < reader.len
        {
            reader.parts.truncate(at + 1);
            reader.is_at_end = true;
        }
        if let Some(part @ Part::Computing) = reader.parts.get_mut(at) {
            *part = becomes;
        }
    }
}

impl Reader {
    /// Creates a reader that itself reads the `len` bytes from `offset`.
    fn new(number: u64, (ino, resolved): (Ino, &Resolved), offset: u64, len: usize) -> Reader {
        let (next, resolved) = (offset.saturating_add(len as u64), Arc::new(resolved.clone()));
        Reader { number, ino, resolved, len, next, in_order: 0, parts: VecDeque::new(), is_at_end: false }
    }

    /// Returns the number of parts to compute ahead.
    fn window(&self) -> usize {
        (WINDOW_BYTES / self.len).max(2)
    }

    fn waiting(&self) -> usize {
        self.parts.iter().filter(|part| matches!(part, Part::Waiting)).count()
    }

    fn fill(&mut self) {
        while !self.is_at_end && self.parts.len() < self.window() {
            self.parts.push_back(Part::Waiting);
        }
    }

    /// It goes on to the next part; gives this one, if it is done.
    fn go_on(&mut self) -> Option<Rope> {
        self.next = self.next.saturating_add(self.len as u64);
        match self.parts.pop_front() {
            Some(Part::Done(rope)) => Some(rope),
            Some(Part::Waiting | Part::Computing) | None => None,
        }
    }

    /// The next part that nobody computes, for somebody who does from now on.
    fn take_task(&mut self) -> Option<Task> {
        let at = self.parts.iter().position(|part| matches!(part, Part::Waiting))?;
        let offset = self.next.checked_add(at as u64 * self.len as u64)?;
        self.parts[at] = Part::Computing;
        let (reader, ino, resolved, len) = (self.number, self.ino, self.resolved.clone(), self.len);
        Some(Task { reader, ino, resolved, offset, len })
    }
}
