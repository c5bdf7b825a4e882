//! The words that both ends of a channel share: a ring of entries from the sender to the receiver,
//! a bit for each ticket that the receiver gives back, and what either end says when it sleeps.
//!
//! It knows nothing of where the words lie, so that tests may let them lie in ordinary memory.
//! Every word is loaded and stored atomically, as the other end is another process that may do
//! anything to it at any time; what is loaded is checked against what this end knows by itself.
//!
//! Tickets come back as bits, not by a second ring: bits have room for every ticket there can be,
//! so giving back never waits, needs no lock, and what was given back twice is given back once.
//!
//! Invariants: the entries from `head` to `tail` belong to the receiver, the others to the sender.
//! Whoever sleeps has said so, then has looked once more; whoever changes something looks
//! afterwards whether somebody sleeps. A fence stands between the two on both sides, so one of them
//! sees the other.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::Arc;
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::step;

/// Unit of the shared memory.
pub(crate) type Word = AtomicU64;

/// Words of a cache line: what the two ends write lies in different ones.
const LINE: usize = 8;

const MAGIC: usize = 0;
/// The sender's words: the number of entries it has put in, and 1 if there will be no more.
const TAIL: usize = LINE;
const FINISHED: usize = LINE + 1;
/// The receiver's words: the number of entries it has taken out, and 1 if it takes no more.
const HEAD: usize = 2 * LINE;
const GONE: usize = 2 * LINE + 1;
/// Words of the end that sleeps. The other end clears one when it wakes it.
const RECEIVER_SLEEPS: usize = 3 * LINE;
const SENDER_SLEEPS: usize = 4 * LINE;
/// Number of tickets that came back: it says when to look at the bits.
const RETURNED: usize = 5 * LINE;
const ENTRIES: usize = 6 * LINE;
const ENTRY: usize = 4;

/// Value of the first word: another layout gets another one.
const LAYOUT: u64 = u64::from_le_bytes(*b"weft ch1");

/// Capacity of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// A power of two.
    pub(crate) entries: usize,
    /// A multiple of 64.
    pub(crate) tickets: usize,
}

impl Shape {
    /// Words that it takes.
    pub(crate) const fn words(self) -> usize {
        self.bits() + self.tickets / 64
    }

    const fn bits(self) -> usize {
        ENTRIES + ENTRY * self.entries
    }
}

/// The sender's description of some bytes, as four words. The ring does not know what they mean.
pub(crate) type Entry = [u64; ENTRY];

/// The other end wrote what it never writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Garbage(pub(crate) &'static str);

/// Event that a sender sleeps for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Any ticket.
    Returns,
    /// So many entries taken out.
    Head(u64),
}

/// The words, seen from both ends.
#[derive(Debug)]
pub(crate) struct Ring<M> {
    words: M,
    shape: Shape,
}

impl<M: AsRef<[Word]>> Ring<M> {
    /// The ring in `words`, which have `shape`.
    ///
    /// # Panics
    /// If there are fewer.
    pub(crate) fn of(words: M, shape: Shape) -> Ring<M> {
        assert!(
            words.as_ref().len() >= shape.words()
                && shape.entries.is_power_of_two()
                && shape.tickets.is_multiple_of(64)
        );
        Ring { words, shape }
    }

    /// Says what this is: whoever makes the memory does it once.
    pub(crate) fn mark(&self) {
        self.word(MAGIC).store(LAYOUT, Ordering::Release);
    }

    /// True if the memory is marked so.
    pub(crate) fn is_marked(&self) -> bool {
        self.word(MAGIC).load(Ordering::Acquire) == LAYOUT
    }

    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    fn word(&self, at: usize) -> &Word {
        &self.words.as_ref()[at]
    }

    fn entry(&self, number: u64) -> &[Word] {
        // Less than the entries there are, which fit into a usize.
        let at = ENTRIES + ENTRY * (number & (self.shape.entries as u64 - 1)) as usize;
        &self.words.as_ref()[at..at + ENTRY]
    }

    /// The sender puts in no more entries.
    pub(crate) fn finish(&self) {
        step();
        self.word(FINISHED).store(1, Ordering::Release);
    }

    /// True if there will be no more entries than are in it already.
    pub(crate) fn is_finished(&self) -> bool {
        self.word(FINISHED).load(Ordering::Acquire) != 0
    }

    /// The receiver takes out no more entries.
    pub(crate) fn leave(&self) {
        step();
        self.word(GONE).store(1, Ordering::Release);
    }

    /// True if the receiver takes out no more entries.
    pub(crate) fn is_left(&self) -> bool {
        self.word(GONE).load(Ordering::Acquire) != 0
    }

    /// The receiver needs no more what was told with `ticket`.
    pub(crate) fn give_back(&self, ticket: u32) {
        let at = ticket as usize;
        if at < self.shape.tickets {
            step();
            self.word(self.shape.bits() + at / 64).fetch_or(1 << (at % 64), Ordering::Release);
            step();
            self.word(RETURNED).fetch_add(1, Ordering::Release);
        }
    }

    /// Returns the number of tickets that came back so far. Callers compare it with an earlier
    /// value.
    pub(crate) fn returned(&self) -> u64 {
        self.word(RETURNED).load(Ordering::Acquire)
    }

    /// Takes the tickets below `end` that came back, and tells them to `each`.
    pub(crate) fn take_returned(&self, end: usize, mut each: impl FnMut(u32)) {
        for word in 0..end.min(self.shape.tickets).div_ceil(64) {
            let bits = self.word(self.shape.bits() + word);
            if bits.load(Ordering::Relaxed) == 0 {
                continue;
            }
            step();
            let mut set = bits.swap(0, Ordering::Acquire);
            while set != 0 {
                each((word * 64) as u32 + set.trailing_zeros());
                set &= set - 1;
            }
        }
    }

    /// The receiver is about to sleep, and has still to look once more.
    pub(crate) fn receiver_sleeps(&self) {
        // Whoever sees this sees what it gave back before.
        self.say(RECEIVER_SLEEPS, 1);
        fence(Ordering::SeqCst);
    }

    /// It does not, or no longer.
    pub(crate) fn receiver_is_awake(&self) {
        self.say(RECEIVER_SLEEPS, 0);
    }

    /// True if the receiver is about to sleep or sleeps.
    pub(crate) fn is_receiver_asleep(&self) -> bool {
        self.word(RECEIVER_SLEEPS).load(Ordering::Acquire) != 0
    }

    /// The sender is about to sleep, and has still to look once more.
    pub(crate) fn sender_sleeps(&self, wish: Wish) {
        let word = match wish {
            Wish::Returns => 1,
            Wish::Head(head) => head.saturating_add(2),
        };
        self.say(SENDER_SLEEPS, word);
        fence(Ordering::SeqCst);
    }

    /// It does not, or no longer.
    pub(crate) fn sender_is_awake(&self) {
        self.say(SENDER_SLEEPS, 0);
    }

    /// True if the receiver sleeps and the caller, which put something in, is to wake it.
    pub(crate) fn wakes_receiver(&self) -> bool {
        fence(Ordering::SeqCst);
        self.clear(RECEIVER_SLEEPS, |_| true)
    }

    /// True if the sender sleeps for tickets and the caller, which gave one back, is to wake it.
    pub(crate) fn wakes_sender_by_return(&self) -> bool {
        fence(Ordering::SeqCst);
        self.clear(SENDER_SLEEPS, |wish| wish == 1)
    }

    /// True if the sender sleeps and the caller is to wake it, as the receiver is about to sleep.
    pub(crate) fn wakes_sender_by_sleep(&self) -> bool {
        self.clear(SENDER_SLEEPS, |_| true)
    }

    /// Says who sleeps. Both ends write this word, so each takes what the other wrote: then there
    /// is one order of it all, for loom too.
    fn say(&self, at: usize, value: u64) {
        step();
        self.word(at).swap(value, Ordering::AcqRel);
    }

    /// Clears the word of whoever sleeps if it does and `met` says that its wish is; nobody else is
    /// told so for the same sleep.
    fn clear(&self, at: usize, met: impl Fn(u64) -> bool) -> bool {
        let word = self.word(at);
        let wish = word.load(Ordering::Relaxed);
        wish != 0 && met(wish) && {
            step();
            word.swap(0, Ordering::AcqRel) != 0
        }
    }
}

/// The sender's end.
#[derive(Debug)]
pub(crate) struct Pushing<M> {
    ring: Arc<Ring<M>>,
    tail: u64,
    /// As last seen.
    head: u64,
}

impl<M: AsRef<[Word]>> Pushing<M> {
    /// The sender's end of a ring into which nothing was put yet.
    pub(crate) fn of(ring: Arc<Ring<M>>) -> Pushing<M> {
        Pushing { ring, tail: 0, head: 0 }
    }

    pub(crate) fn ring(&self) -> &Arc<Ring<M>> {
        &self.ring
    }

    /// Returns the number of entries that were put in.
    pub(crate) fn tail(&self) -> u64 {
        self.tail
    }

    /// Returns the number of entries that were taken out.
    pub(crate) fn head(&mut self) -> Result<u64, Garbage> {
        let head = self.ring.word(HEAD).load(Ordering::Acquire);
        if head < self.head || head > self.tail {
            return Err(Garbage("the receiver says that it took what was not there"));
        }
        self.head = head;
        Ok(head)
    }

    /// True if another entry has room, by the head that was read last.
    pub(crate) fn has_room(&self) -> bool {
        self.tail - self.head < self.ring.shape.entries as u64
    }

    /// Puts in `entry`, for which there is room.
    pub(crate) fn push(&mut self, entry: Entry) {
        assert!(self.has_room(), "whoever pushes has looked for room");
        step();
        for (word, value) in self.ring.entry(self.tail).iter().zip(entry) {
            word.store(value, Ordering::Relaxed);
        }
        self.tail += 1;
        step();
        self.ring.word(TAIL).store(self.tail, Ordering::Release);
    }
}

/// The receiver's end.
#[derive(Debug)]
pub(crate) struct Popping<M> {
    ring: Arc<Ring<M>>,
    head: u64,
    /// As last seen.
    tail: u64,
}

impl<M: AsRef<[Word]>> Popping<M> {
    /// The receiver's end of a ring from which nothing was taken yet.
    pub(crate) fn of(ring: Arc<Ring<M>>) -> Popping<M> {
        Popping { ring, head: 0, tail: 0 }
    }

    pub(crate) fn ring(&self) -> &Arc<Ring<M>> {
        &self.ring
    }

    /// True if there is an entry.
    pub(crate) fn is_ready(&mut self) -> Result<bool, Garbage> {
        if self.head == self.tail {
            let tail = self.ring.word(TAIL).load(Ordering::Acquire);
            if tail < self.tail || tail - self.head > self.ring.shape.entries as u64 {
                return Err(Garbage("the sender says that it put in more than fits"));
            }
            self.tail = tail;
        }
        Ok(self.head != self.tail)
    }

    /// Takes out the next entry, if there is one.
    pub(crate) fn pop(&mut self) -> Result<Option<Entry>, Garbage> {
        if !self.is_ready()? {
            return Ok(None);
        }
        let words = self.ring.entry(self.head);
        let entry = std::array::from_fn(|at| words[at].load(Ordering::Relaxed));
        self.head += 1;
        step();
        self.ring.word(HEAD).store(self.head, Ordering::Release);
        Ok(Some(entry))
    }

    /// True if the sender sleeps until as many entries were taken out as are now, and the caller is
    /// to wake it.
    pub(crate) fn wakes_sender(&self) -> bool {
        fence(Ordering::SeqCst);
        self.ring.clear(SENDER_SLEEPS, |wish| wish >= 2 && wish - 2 <= self.head)
    }
}

#[cfg(test)]
impl<M: AsRef<[Word]>> Ring<M> {
    /// Writes what a hostile end may: `value` as the word `at`.
    pub(crate) fn scribble(&self, at: usize, value: u64) {
        self.word(at).store(value, Ordering::SeqCst);
    }
}

#[cfg(all(test, loom))]
#[path = "ring/interleavings.rs"]
mod interleavings;
#[cfg(all(test, not(loom)))]
#[path = "ring/tests.rs"]
mod tests;
