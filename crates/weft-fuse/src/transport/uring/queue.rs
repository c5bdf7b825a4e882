//! The queue of one processor: its ring, its entries, and the thread that serves them.
//!
//! The kernel puts a request into an entry of the queue of the requester's processor. The queue's
//! thread serves it there, so no other processor need be woken. A request that would wait goes to
//! the queue's workers and comes back with its reply, unless the wait is shorter than that way
//! ([`super::inline_wait`]).

use super::entry::Entry;
use super::inline_wait::InlineWait;
use super::restricted::{self, Ring};
use super::workers::{Placed, Workers};
use crate::protocol::{DATA_BYTES_MAX, Reply};
use crate::transport::EndOnPanic;
use crate::transport::handler::{Handler, Served};
use crate::transport::scheduling::{Scheduling, Seat};
use io_uring::squeue::Entry128;
use io_uring::{EnterFlags, cqueue, opcode, types};
use rustix::fd::{AsRawFd, BorrowedFd};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use weft_vfs::blocking::set_hook;

/// Marks completions of the workers' bell.
const BELL: u64 = u64::MAX;

/// Rounds in which other programs may send requests before this thread waits: bounded, however many
/// there are.
const ROUNDS: u32 = 8;

pub(super) struct Queue {
    ring: Ring,
    number: u16,
    server: Arc<dyn Handler>,
    /// Entries that the kernel has; none where a worker has it or it is gone.
    entries: Vec<Option<Entry>>,
    gone: usize,
    workers: Workers,
    reply: Reply,
    seat: Option<Seat>,
    inline_wait: Rc<InlineWait>,
    /// Requests that would wait, until all others that came with them are served.
    waiting: Vec<Placed>,
    /// Empty between calls; reused for its memory.
    completed: Vec<cqueue::Entry>,
}

impl Queue {
    /// Makes a queue of the calling thread, for processor `number`. The kernel does not know of it
    /// yet.
    pub(super) fn new(
        device: BorrowedFd<'_>,
        number: u16,
        entries: usize,
        server: Arc<dyn Handler>,
    ) -> io::Result<Queue> {
        // One command for each entry and the bell; completions are never more than those.
        let size = u32::try_from(entries + 1).expect("few entries").next_power_of_two();
        let ring = restricted::ring(device, size)?;
        let entries: Vec<_> = (0..entries).map(|_| Entry::new(DATA_BYTES_MAX).map(Some)).collect::<Result<_, _>>()?;
        let inline_wait = Rc::new(InlineWait::default());
        let hook = inline_wait.clone();
        set_hook(move |wait| hook.answer(wait));
        let workers = Workers::new(server.clone(), entries.len())?;
        let seat = server.scheduling().map(Scheduling::seat);
        let (reply, waiting, completed) = (Reply::default(), Vec::new(), Vec::new());
        Ok(Queue { ring, number, server, entries, gone: 0, workers, reply, seat, inline_wait, waiting, completed })
    }

    /// Makes the queue known to the kernel, and serves it until the mount is gone.
    pub(super) fn serve(&mut self) -> io::Result<()> {
        let _guard = EndOnPanic;
        self.register()?;
        self.await_bell()?;
        while self.gone < self.entries.len() {
            passing(self.submit_and_wait(1))?;
            self.serve_come()?;
            self.let_others_come()?;
            self.serve_waiting()?;
        }
        Ok(())
    }

    /// Serves the requests that have come.
    fn serve_come(&mut self) -> io::Result<()> {
        let mut completed = std::mem::take(&mut self.completed);
        completed.extend(self.ring.completion());
        let alone = completed.len() == 1 && self.waiting.is_empty() && self.workers.are_idle();
        for (i, completion) in completed.drain(..).enumerate() {
            if i > 0 {
                // Nobody waits for a reply while the next request is served.
                passing(self.ring.submit())?;
            }
            self.complete(&completion, alone)?;
        }
        self.completed = completed;
        Ok(())
    }

    /// Lets programs on this processor send requests that the same append can make durable, before
    /// this thread waits for the log.
    fn let_others_come(&mut self) -> io::Result<()> {
        for _ in 0..ROUNDS {
            if self.waiting.is_empty() {
                break;
            }
            passing(self.ring.submit())?;
            thread::yield_now();
            passing(self.submit_and_wait(0))?;
            if self.ring.completion().is_empty() {
                break;
            }
            self.serve_come()?;
        }
        Ok(())
    }

    /// Submits, and waits for so many completions. A thread that waits for requests is idle:
    /// without the flag it would count as waiting for a disk.
    fn submit_and_wait(&mut self, completions: u32) -> io::Result<usize> {
        if !self.ring.params().is_feature_no_iowait() {
            return self.ring.submit_and_wait(completions as usize);
        }
        let pushed = u32::try_from(self.ring.submission().len()).expect("few entries");
        let flags = EnterFlags::GETEVENTS | EnterFlags::NO_IOWAIT;
        // SAFETY: what was pushed is sound, as `push` says; there is no argument.
        unsafe { self.ring.submitter().enter::<libc::sigset_t>(pushed, completions, flags.bits(), None) }
    }

    fn register(&mut self) -> io::Result<()> {
        let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let mut buffers = vec![[none; 2]; self.entries.len()];
        for (place, buffers) in buffers.iter_mut().enumerate() {
            let entry = self.entries[place].as_ref().expect("all entries are here at first");
            let command = entry.register(buffers, self.number);
            self.push(command.user_data(place as u64))?;
        }
        // The kernel reads `buffers` here and not later.
        self.ring.submit()?;
        Ok(())
    }

    fn await_bell(&mut self) -> io::Result<()> {
        let bell = types::Fd(self.workers.bell().as_raw_fd());
        let poll = opcode::PollAdd::new(bell, libc::POLLIN as u32).build().user_data(BELL);
        self.push(poll.into())
    }

    fn push(&mut self, command: Entry128) -> io::Result<()> {
        // SAFETY: commands name memory of entries, which live as long as the ring's thread serves,
        // and `buffers` of `register`, which the kernel reads when the command is submitted.
        let pushed = unsafe { self.ring.submission().push(&command) };
        pushed.map_err(io::Error::other)
    }

    /// Serves a completion. `alone`: no other request is there to be served.
    fn complete(&mut self, completion: &cqueue::Entry, alone: bool) -> io::Result<()> {
        if completion.user_data() == BELL {
            if completion.result() < 0 {
                return Err(io::Error::from_raw_os_error(-completion.result()));
            }
            for (place, entry) in self.workers.take() {
                self.commit(place, entry)?;
            }
            return self.await_bell();
        }
        let place = usize::try_from(completion.user_data()).expect("a place");
        let entry = self.entries[place].take().expect("the kernel had it");
        if completion.result() < 0 {
            // The mount is gone, or rings are not wanted after all.
            self.gone += 1;
            return Ok(());
        }
        self.serve_entry((place, entry), alone)
    }

    fn serve_entry(&mut self, (place, mut entry): Placed, alone: bool) -> io::Result<()> {
        if let Some(seat) = &mut self.seat {
            seat.request_came(entry.payload_len());
        }
        let Queue { server, reply, inline_wait, .. } = self;
        let mut serve = || serve_entry(&**server, &mut entry, reply);
        let served = if alone { inline_wait.try_reading(serve) } else { serve() };
        if served == Served::Done {
            return self.commit(place, entry);
        }
        self.waiting.push((place, entry));
        Ok(())
    }

    /// Serves requests that would wait: here if that takes little, else by workers.
    fn serve_waiting(&mut self) -> io::Result<()> {
        let mut waiting = std::mem::take(&mut self.waiting);
        let alone = waiting.len() == 1 && self.workers.are_idle();
        for (place, mut entry) in waiting.drain(..) {
            // Nobody waits for a reply while this thread waits.
            passing(self.ring.submit())?;
            let Queue { server, reply, inline_wait, .. } = self;
            if inline_wait.try_waiting(alone, || serve_entry(&**server, &mut entry, reply)) == Served::Done {
                self.commit(place, entry)?;
                continue;
            }
            // Workers, and threads that help with a commit, must not inherit the idle policy.
            if let Some(seat) = &mut self.seat {
                seat.be_ordinary();
            }
            if let Err((place, mut entry)) = self.workers.hand((place, entry)) {
                let Queue { server, reply, inline_wait, .. } = self;
                inline_wait.wait(|| serve_entry(&**server, &mut entry, reply));
                self.commit(place, entry)?;
            }
        }
        self.waiting = waiting;
        Ok(())
    }

    fn commit(&mut self, place: usize, entry: Entry) -> io::Result<()> {
        let command = entry.commit(self.number).user_data(place as u64);
        self.entries[place] = Some(entry);
        self.push(command)
    }
}

/// Keeps errors that do not pass. After one that does, the remaining commands are submitted next
/// time.
fn passing(submitted: io::Result<usize>) -> io::Result<()> {
    match submitted {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => Ok(()),
        submitted => submitted.map(|_| ()),
    }
}

/// Serves the request in `entry` and puts the reply there, unless it would block.
pub(super) fn serve_entry(handler: &dyn Handler, entry: &mut Entry, reply: &mut Reply) -> Served {
    let Some(request) = entry.request() else {
        entry.put_error(libc::EIO);
        return Served::Done;
    };
    let served = handler.serve(&request, reply);
    if served == Served::Done {
        entry.put(reply);
    }
    served
}
