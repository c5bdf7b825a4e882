//! The end of a channel that ropes are sent from.

use super::announced::{Announced, Source};
use super::control::Control;
use super::held::{self, Hold};
use super::packing::Packing;
use super::ring::{Entry, Garbage, Pushing, Wish};
use super::socket::{self, End, Message, Received};
use super::{
    BUDGET_BYTES, EMPTY, FORGET, KeptByReceiver, LAST, OnSignal, PLACE_BYTES, REFER_MIN, WINDOW_BYTES, wait_on,
};
use crate::lent::{self, GUARDS_MAX};
use rustix::event::PollFlags;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use weft_block::shared::{ARENA_BYTES_MAX, Budget, Place, Pool};
use weft_block::{Rope, Slice};

/// Sends ropes to the other end of a channel.
///
/// Dropped without [`Sender::finish`] it makes the receiver get an error where it would get the
/// end.
#[derive(Debug)]
pub struct Sender {
    socket: OwnedFd,
    ring: Pushing<Control>,
    flow: Flow,
    pool: Pool,
    packing: Packing,
    announced: Announced,
    held: held::Shared,
    /// Number of tickets that had been taken back when the sender last looked.
    taken: u64,
    pieces: Vec<Piece>,
    /// Reason why nothing can be sent any more.
    broken: Option<(io::ErrorKind, &'static str)>,
    on_signal: OnSignal,
}

/// Bytes of a rope that lie together, ready to be told of.
#[derive(Debug)]
struct Piece {
    source: Source,
    offset: usize,
    len: usize,
    ticket: u32,
}

/// Entries that were sent and not yet received.
#[derive(Debug)]
struct Flow {
    /// Bytes of each entry, by its place in the ring.
    lens: Box<[usize]>,
    /// Entries known to be received.
    head: u64,
    bytes: usize,
}

impl Flow {
    fn new(entries: usize) -> Flow {
        Flow { lens: vec![0; entries].into(), head: 0, bytes: 0 }
    }

    fn at(&mut self, entry: u64) -> &mut usize {
        let at = entry & (self.lens.len() as u64 - 1);
        &mut self.lens[at as usize]
    }

    fn sent(&mut self, entry: u64, len: usize) {
        *self.at(entry) = len;
        self.bytes += len;
    }

    fn received(&mut self, head: u64) {
        while self.head < head {
            self.bytes -= *self.at(self.head);
            self.head += 1;
        }
    }

    fn has_room(&self, len: usize) -> bool {
        self.bytes == 0 || self.bytes + len <= WINDOW_BYTES
    }

    /// Returns the number of entries to be received until about half of the window is free. Waking
    /// for less is not worth it.
    fn half(&mut self, tail: u64) -> u64 {
        let (mut head, mut bytes) = (self.head, self.bytes);
        while head < tail && (bytes > WINDOW_BYTES / 2 || tail - head > self.lens.len() as u64 / 2) {
            bytes -= *self.at(head);
            head += 1;
        }
        head.max(self.head + 1)
    }
}

impl Sender {
    /// The sending end of a channel that `socket` is ([`super::sockets`]), which was not used
    /// before.
    ///
    /// # Errors
    /// `InvalidInput` if it is none, or was used; `InvalidData` if what came with it is nothing
    /// that a channel is made of.
    pub fn of(socket: OwnedFd) -> io::Result<Sender> {
        Sender::with_budget(socket, Budget::new(BUDGET_BYTES))
    }

    /// As [`Sender::of`], with other bounds of the memory that is filled and sent: the receiver can
    /// keep so much of it.
    pub fn with_budget(socket: OwnedFd, budget: Arc<Budget>) -> io::Result<Sender> {
        let (memory, token) = socket::attach(&socket, End::Sender)?;
        let ring = Arc::new(Control::open(&memory)?);
        let held = held::new(ring.clone(), token);
        Ok(Sender {
            socket,
            flow: Flow::new(ring.shape().entries),
            ring: Pushing::of(ring),
            pool: Pool::new(PLACE_BYTES, budget),
            packing: Packing::default(),
            announced: Announced::default(),
            held,
            taken: 0,
            pieces: Vec::new(),
            broken: None,
            on_signal: wait_on,
        })
    }

    /// Has `on_signal` called when a signal interrupts a wait of this end. If that ends the wait
    /// (kind `Interrupted`), nothing of the rope was sent, unless it is so long that it was being
    /// received already: then nothing can be sent from then on.
    pub fn on_signal(&mut self, on_signal: OnSignal) {
        self.on_signal = on_signal;
    }

    /// Memory to fill: what is frozen of it ([`Place::freeze`]) is sent without a copy. The
    /// receiver may see what is written there before it is sent. Waits for what the receiver gives
    /// back if the budget is spent.
    ///
    /// # Errors
    /// [`KeptByReceiver`] (kind `OutOfMemory`) if there is none, and the receiver waits for more
    /// and keeps what it has; `BrokenPipe` if it is gone.
    pub fn place(&mut self) -> io::Result<Place> {
        self.check()?;
        loop {
            let returned = self.ring.ring().returned();
            self.take_back()?;
            // As long as the receiver keeps nothing, what may be under way is all that is ever
            // needed, and stays in the processors' caches.
            let more = if self.pool.is_empty() { WINDOW_BYTES - PLACE_BYTES } else { ARENA_BYTES_MAX };
            if let Some(place) = self.pool.place(more)? {
                return Ok(place);
            }
            self.wait_for_returns(returned)?;
        }
    }

    /// Sends `rope`; it is received as one rope. Waits as long as too much was sent that was not
    /// received. Bytes in places of this sender, or in memory that was lent to this process, are
    /// sent by reference, all others are copied, and so are runs so short that this is faster.
    ///
    /// Whoever receives a rope by reference can read all of the arena that it lies in: what its
    /// lender lends to this process. Bytes of places must stay as they are after they were sent,
    /// which [`Place::freeze`] sees to.
    ///
    /// # Errors
    /// `BrokenPipe` if the receiver is gone, `InvalidData` if it is no receiver of Weft's; nothing
    /// can be sent from then on. [`KeptByReceiver`] (kind `OutOfMemory`) as for [`Sender::place`];
    /// then nothing of the rope was sent, and other ropes can be.
    pub fn send(&mut self, rope: Rope) -> io::Result<()> {
        self.check()?;
        self.take_back()?;
        let prepared = rope.slices().iter().try_for_each(|slice| self.prepare(slice));
        self.packing.part();
        if let Err(error) = prepared {
            let tickets = self.pieces.drain(..).map(|piece| piece.ticket);
            let mut held = held::lock(&self.held);
            let back: Vec<_> = tickets.filter_map(|ticket| held.remove(ticket)).collect();
            drop(held);
            drop(back);
            return Err(error);
        }
        let mut pieces = std::mem::take(&mut self.pieces);
        let sent = self.push_all(&pieces);
        pieces.clear();
        self.pieces = pieces;
        self.noted(sent)
    }

    /// Says that this was all: the receiver gets the end after what was sent.
    ///
    /// # Errors
    /// `BrokenPipe` if it is known to be gone before it received all.
    pub fn finish(mut self) -> io::Result<()> {
        if let Some((kind, why)) = self.broken {
            return Err(io::Error::new(kind, why));
        }
        self.ring.ring().finish();
        self.wake()?;
        let is_gone = self.ring.ring().is_left() || socket::is_gone(self.socket.as_fd())?;
        if is_gone && self.ring.head().map_err(garbage)? != self.ring.tail() { Err(gone()) } else { Ok(()) }
    }

    /// Bytes that the receiver has, or will have, and did not give back.
    pub fn lent_bytes(&self) -> usize {
        held::lock(&self.held).bytes()
    }

    fn check(&mut self) -> io::Result<()> {
        if self.broken.is_none() && self.ring.ring().is_left() {
            self.broken = Some((io::ErrorKind::BrokenPipe, "the receiver is gone"));
        }
        match self.broken {
            Some((kind, why)) => Err(io::Error::new(kind, why)),
            None => Ok(()),
        }
    }

    /// Nothing is sent after an error that leaves open what was.
    fn noted<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        result.inspect_err(|error| {
            let why = match error.kind() {
                io::ErrorKind::BrokenPipe => "the receiver is gone",
                io::ErrorKind::InvalidData => "the receiver is none of Weft's",
                io::ErrorKind::Interrupted => "a signal interrupted the sender within a rope",
                _ => "sending failed before",
            };
            self.broken.get_or_insert((error.kind(), why));
        })
    }

    /// Sees that the bytes of `slice` lie where the receiver may read them.
    fn prepare(&mut self, slice: &Slice) -> io::Result<()> {
        if slice.len() >= REFER_MIN {
            if let Some((arena, offset)) = self.pool.find(slice) {
                return self.add(Source::Own(arena), offset, slice.len(), || Hold::Own(slice.clone()));
            }
            if let Some((lent, offset)) = lent::find(slice).filter(|(lent, _)| lent.guards().len() <= GUARDS_MAX) {
                return self.add(Source::Lent(lent), offset, slice.len(), || Hold::Lent(slice.clone()));
            }
        }
        let mut rest = &slice[..];
        while !rest.is_empty() {
            if self.packing.needs_place() {
                let place = self.place()?;
                self.packing.begin(place);
            }
            let (copied, part) = self.packing.copy(rest);
            let len = copied.len();
            let found = self.pool.find(copied);
            rest = &rest[len..];
            let Some((arena, offset)) = found else { return Err(io::Error::other("a place lies in no arena")) };
            if !self.extend(&arena, offset, len) {
                self.add(Source::Own(arena), offset, len, || Hold::Part(part.clone()))?;
            }
        }
        Ok(())
    }

    /// Adds bytes that were copied right behind others of the same rope to those. Whether it could
    /// be done.
    fn extend(&mut self, arena: &Arc<weft_block::shared::Arena>, offset: usize, len: usize) -> bool {
        let Some(last) = self.pieces.last_mut() else { return false };
        let Source::Own(same) = &last.source else { return false };
        // A place is all one part; another one that follows has its own.
        let is_next =
            Arc::ptr_eq(same, arena) && last.offset + last.len == offset && !offset.is_multiple_of(PLACE_BYTES);
        let mut held = held::lock(&self.held);
        if is_next && held.is_part(last.ticket) {
            last.len += len;
            held.grow(last.ticket, len);
            return true;
        }
        false
    }

    fn add(&mut self, source: Source, offset: usize, len: usize, hold: impl Fn() -> Hold) -> io::Result<()> {
        loop {
            let returned = self.ring.ring().returned();
            self.take_back()?;
            let added = held::lock(&self.held).add(hold(), len);
            match added {
                Ok(ticket) => {
                    self.pieces.push(Piece { source, offset, len, ticket });
                    return Ok(());
                }
                Err(hold) => drop(hold),
            }
            self.wait_for_returns(returned)?;
        }
    }

    fn push_all(&mut self, pieces: &[Piece]) -> io::Result<()> {
        for (at, piece) in pieces.iter().enumerate() {
            let number = self.announce(&piece.source)?;
            let last = if at + 1 == pieces.len() { LAST } else { 0 };
            let entry = [number, piece.offset as u64, piece.len as u64, u64::from(piece.ticket) | last];
            self.push(entry, piece.len)?;
        }
        if pieces.is_empty() {
            self.push([0, 0, 0, EMPTY | LAST], 0)?;
        }
        self.wake()
    }

    /// The number by which the receiver knows `source`, after telling it if need be.
    fn announce(&mut self, source: &Source) -> io::Result<u64> {
        if let Some(number) = self.announced.number(source) {
            return Ok(number);
        }
        if let Some(number) = self.announced.forget_oldest() {
            self.push([number, 0, 0, FORGET], 0)?;
        }
        let number = self.announced.add(source.clone());
        let (arena, guards) = source.descriptors();
        // While this waits for room, the receiver must be at work.
        if self.ring.ring().wakes_receiver() {
            socket::send_wake(self.socket.as_fd())?;
        }
        socket::send_arena(self.socket.as_fd(), number, arena, &guards, self.on_signal).map_err(broken_pipe)?;
        Ok(number)
    }

    fn push(&mut self, entry: Entry, len: usize) -> io::Result<()> {
        while !(self.ring.has_room() && self.flow.has_room(len)) {
            let head = self.ring.head().map_err(garbage)?;
            if head == self.flow.head {
                self.wait_for_room()?;
            } else {
                self.flow.received(head);
            }
        }
        self.flow.sent(self.ring.tail(), len);
        self.ring.push(entry);
        Ok(())
    }

    fn wake(&mut self) -> io::Result<()> {
        if self.ring.ring().wakes_receiver() { socket::send_wake(self.socket.as_fd()) } else { Ok(()) }
    }

    /// Takes back what the receiver gave back.
    fn take_back(&mut self) -> io::Result<()> {
        let taken = held::take_back(&self.held);
        let (back, taken) = self.noted(taken)?;
        drop(back);
        // Another thread may have done it, by a sweep.
        if std::mem::replace(&mut self.taken, taken) != taken {
            self.packing.give_up();
        }
        while self.ring.has_room()
            && let Some(number) = self.announced.forget_idle()
        {
            self.flow.sent(self.ring.tail(), 0);
            self.ring.push([number, 0, 0, FORGET]);
        }
        Ok(())
    }

    /// Waits until the receiver has received a good part of what was sent.
    fn wait_for_room(&mut self) -> io::Result<()> {
        self.wake()?;
        let wish = self.flow.half(self.ring.tail());
        let ring = self.ring.ring().clone();
        ring.sender_sleeps(Wish::Head(wish));
        while self.ring.head().map_err(garbage)? < wish && self.sleep()? {}
        ring.sender_is_awake();
        Ok(())
    }

    /// Waits until the receiver has given back something since it had given back `returned` in all.
    fn wait_for_returns(&mut self, returned: u64) -> io::Result<()> {
        self.wake()?;
        let ring = self.ring.ring().clone();
        loop {
            ring.sender_sleeps(Wish::Returns);
            // What it gave back before it slept is seen if its sleep is, so that comes first.
            let head = self.ring.head().map_err(garbage);
            let starves = ring.is_receiver_asleep() && self.noted(head)? == self.ring.tail();
            if ring.returned() != returned {
                ring.sender_is_awake();
                return Ok(());
            }
            if starves || held::lock(&self.held).is_empty() {
                ring.sender_is_awake();
                let unsent: usize = self.pieces.iter().map(|piece| piece.len).sum();
                return Err(KeptByReceiver { bytes: self.lent_bytes() - unsent }.into());
            }
            let slept = self.sleep();
            if slept.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::Interrupted) {
                ring.sender_is_awake();
                return slept.map(drop);
            }
            self.noted(slept)?;
        }
    }

    /// Sleeps until something comes from the receiver; whether that was a call to wake up.
    fn sleep(&mut self) -> io::Result<bool> {
        let socket = self.socket.as_fd();
        socket::wait(socket, PollFlags::IN, self.on_signal)?;
        match socket::receive(socket)? {
            Received::Nothing => Ok(true),
            Received::Message(Message::Wake) => Ok(false),
            Received::Message(_) => Err(socket::garbage("the receiver sent what only senders send")),
            Received::Gone => Err(gone()),
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        held::end(self.held.clone());
    }
}

/// The socket: for whoever wants to know whether it is one. What it is ready for says nothing of
/// ropes.
impl AsFd for Sender {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the receiver is gone")
}

fn broken_pipe(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::ConnectionReset { gone() } else { error }
}

fn garbage(garbage: Garbage) -> io::Error {
    socket::garbage(garbage.0)
}
