//! Memory that a sender lent and has not got back: by ticket, and longer than the sender lives if
//! need be.
//!
//! Memory that others lent to this process must not go back to them as long as a receiver may read
//! it. So when a sender goes, such memory stays held until the receiver gives it back, or until
//! nobody is left who may read it: the pipe of the channel tells. Somebody has to look now and then
//! ([`sweep`]): every thread that makes or drops a sender, and every thread that is about to sleep
//! for a sender which may wait for just that.

use super::control::Control;
use super::ring::Ring;
use super::socket;
use crate::process::PerProcess;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use weft_block::Slice;

/// Owner that keeps the bytes of an entry in place.
#[derive(Debug)]
#[expect(dead_code, reason = "it is there to be dropped")]
pub(super) enum Hold {
    /// A place of the sender's own.
    Own(Slice),
    /// Part of a place into which was copied; the place looks how many there are.
    Part(Arc<()>),
    /// Memory that somebody else lent.
    Lent(Slice),
}

/// Memory that one sender lent.
#[derive(Debug)]
pub(super) struct Held {
    ring: Arc<Ring<Control>>,
    /// Has no other end as soon as nobody may read any of it.
    token: OwnedFd,
    slots: Vec<Option<(Hold, usize)>>,
    free: Vec<u32>,
    bytes: usize,
    /// The ring's count of returned tickets when the bits were last looked at.
    returned: u64,
    /// Number of tickets taken back, by any thread.
    taken: u64,
    /// Number of threads that have taken some back by a [`sweep`] and have not dropped all of them
    /// yet.
    dropping: usize,
    /// Signalled when one has.
    dropped: Arc<Condvar>,
    /// True if a ticket came back that was not lent. The thread that finds it may not be the
    /// sender's, so the flag tells the sender.
    forged: bool,
}

impl Held {
    /// Returns the number of bytes that are lent.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// True if nothing is left that could come back.
    pub(super) fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// A ticket for `bytes` bytes that `hold` keeps; none if there are no more tickets.
    pub(super) fn add(&mut self, hold: Hold, bytes: usize) -> Result<u32, Hold> {
        if self.free.is_empty() && self.slots.len() == self.ring.shape().tickets {
            return Err(hold);
        }
        self.bytes += bytes;
        let ticket = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            // Fewer than the tickets there are.
            (self.slots.len() - 1) as u32
        });
        self.slots[ticket as usize] = Some((hold, bytes));
        Ok(ticket)
    }

    /// More bytes are told of with `ticket`.
    pub(super) fn grow(&mut self, ticket: u32, bytes: usize) {
        if let Some((_, held)) = &mut self.slots[ticket as usize] {
            *held += bytes;
            self.bytes += bytes;
        }
    }

    /// True if `ticket` is for part of a place that bytes were copied into.
    pub(super) fn is_part(&self, ticket: u32) -> bool {
        matches!(self.slots.get(ticket as usize), Some(Some((Hold::Part(_), _))))
    }

    /// Takes back `ticket`.
    pub(super) fn remove(&mut self, ticket: u32) -> Option<Hold> {
        let (hold, bytes) = self.slots.get_mut(ticket as usize)?.take()?;
        self.bytes -= bytes;
        self.free.push(ticket);
        Some(hold)
    }

    /// Takes back what the receiver gave back. Whoever calls drops it without a lock: it may go
    /// back to others in turn.
    pub(super) fn take_back(&mut self) -> io::Result<Vec<Hold>> {
        let returned = self.ring.returned();
        if returned == self.returned && !self.forged {
            return Ok(Vec::new());
        }
        self.returned = returned;
        let (ring, end) = (self.ring.clone(), self.ring.shape().tickets);
        let (mut back, mut forged) = (Vec::new(), self.forged);
        let end = end.min(self.slots.len().next_multiple_of(64));
        ring.take_returned(end, |ticket| match self.remove(ticket) {
            Some(hold) => back.push(hold),
            None => forged = true,
        });
        self.forged = forged;
        self.taken += back.len() as u64;
        if forged { Err(socket::garbage("the receiver gave back what it did not have")) } else { Ok(back) }
    }

    /// Forgets all that need not be held on after the sender is gone.
    fn keep_only_lent(&mut self) -> Vec<Hold> {
        let own = |slot: &Option<(Hold, usize)>| matches!(slot, Some((Hold::Own(_) | Hold::Part(_), _)));
        let tickets: Vec<u32> =
            self.slots.iter().enumerate().filter(|(_, slot)| own(slot)).map(|(ticket, _)| ticket as u32).collect();
        // Their memory is nobody's from now on, and as the receiver mapped it.
        tickets.into_iter().filter_map(|ticket| self.remove(ticket)).collect()
    }

    /// Takes back all it can into `back`. True if nothing is left to look at.
    fn is_over(&mut self, back: &mut Vec<Hold>) -> bool {
        // Who forges what comes back of a channel that is over hurts nobody else.
        back.extend(self.take_back().unwrap_or_default());
        if socket::is_gone(self.token.as_fd()).unwrap_or(false) {
            back.extend(self.slots.drain(..).flatten().map(|(hold, _)| hold));
            self.free.clear();
        }
        self.is_empty()
    }
}

/// State that a sender shares with [`sweep`].
pub(super) type Shared = Arc<Mutex<Held>>;

/// The same in all senders: nobody panics while it is locked but for bugs, and then it tells the
/// truth.
pub(super) fn lock(held: &Shared) -> MutexGuard<'_, Held> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes back for the sender what the receiver gave back, and tells how many were taken back ever.
/// What another thread has taken back for it
/// is dropped when this returns: the sender may go by what is still referred to.
pub(super) fn take_back(held: &Shared) -> io::Result<(Vec<Hold>, u64)> {
    let mut held = lock(held);
    while held.dropping > 0 {
        let dropped = held.dropped.clone();
        held = dropped.wait(held).unwrap_or_else(PoisonError::into_inner);
    }
    let back = held.take_back()?;
    Ok((back, held.taken))
}

/// Marks that memory which a [`sweep`] took back for a sender is being dropped.
struct Dropping(Shared);

impl Drop for Dropping {
    fn drop(&mut self) {
        let mut held = lock(&self.0);
        held.dropping -= 1;
        held.dropped.notify_all();
    }
}

/// The memory that living senders of this process hold, and that senders which are gone left.
#[derive(Default)]
struct All {
    living: Vec<Weak<Mutex<Held>>>,
    left: Vec<Shared>,
}

/// A child process that was forked has none of it: what came back is the parent's to take.
fn all() -> MutexGuard<'static, All> {
    static ALL: PerProcess<Mutex<All>> = PerProcess::new();
    ALL.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Creates the state of a new sender, which has lent nothing yet.
pub(super) fn new(ring: Arc<Ring<Control>>, token: OwnedFd) -> Shared {
    sweep();
    let held = Arc::new(Mutex::new(Held {
        ring,
        token,
        slots: Vec::new(),
        free: Vec::new(),
        bytes: 0,
        returned: 0,
        taken: 0,
        dropping: 0,
        dropped: Arc::default(),
        forged: false,
    }));
    all().living.push(Arc::downgrade(&held));
    held
}

/// Notes that the sender is gone.
pub(super) fn end(held: Shared) {
    let own = lock(&held).keep_only_lent();
    drop(own);
    all().left.push(held);
    sweep();
}

/// Takes back what came back to any sender of this process, also to those that are gone.
pub(super) fn sweep() {
    // In this order they go: senders are told when all is dropped.
    let mut dropping = Vec::new();
    let mut back = Vec::new();
    let mut all = all();
    all.left.retain(|held| !lock(held).is_over(&mut back));
    all.living.retain(|held| held.strong_count() > 0);
    for held in all.living.iter().filter_map(Weak::upgrade) {
        let mut locked = lock(&held);
        // Garbage stays to be found by the sender: nothing was taken of what is not there.
        let taken = locked.take_back().unwrap_or_default();
        if !taken.is_empty() {
            locked.dropping += 1;
            drop(locked);
            dropping.push(Dropping(held));
            back.extend(taken);
        }
    }
    drop(all);
    drop(back);
    drop(dropping);
}
