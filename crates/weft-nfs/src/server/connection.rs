//! One connection: its calls, and their replies as they get ready.

use super::peers::Guest;
use super::record::{Message, Received};
use super::replies::{Ready, Replies};
use super::serving::Next;
use super::stream::Stream;
use super::{Shared, serving};
use crate::export::Client;
use crate::rpc::Reply;
use bytes::BufMut;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::AsyncWrite;
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::io::poll_read_buf;

/// Bytes of replies that wait for a client to take them; beyond, none of its calls is looked at.
const REPLY_BYTES_MAX: usize = 4 << 20;
/// Calls of one connection that wait for something, and bytes of them; beyond, no more are looked
/// at.
const RUNNING_MAX: usize = 128;
const RUNNING_BYTES_MAX: usize = 4 << 20;
/// Calls served before their replies are sent.
const BATCH: usize = 16;

/// Interval between checks that a connection still does something.
const LOOK: Duration = Duration::from_secs(30);
/// Checks after which a connection is closed: that has begun a call and not ended it, or does not
/// take its replies; that sends nothing at all (clients connect again when they need to).
const SLOW_LOOKS: u32 = 4;
const IDLE_LOOKS: u32 = 20;

/// State of the connection at the last check.
#[derive(Debug, Default)]
struct Looked {
    /// Numbers of events and calls until then.
    events: u64,
    calls: u64,
    /// Checks without an event, and checks without a whole call although one had begun.
    silent: u32,
    unfinished: u32,
}

impl Looked {
    /// Checks again, after so many events and calls. False if it was idle, or slow, for too long.
    fn goes_on(&mut self, (events, calls): (u64, u64), has_begun: bool, has_replies: bool) -> bool {
        let silent = if events == self.events { self.silent + 1 } else { 0 };
        let unfinished = if has_begun && calls == self.calls { self.unfinished + 1 } else { 0 };
        *self = Looked { events, calls, silent, unfinished };
        silent < IDLE_LOOKS && unfinished < SLOW_LOOKS && (!has_replies || silent < SLOW_LOOKS)
    }
}

/// A connection.
pub(super) struct Connection {
    /// The stream; none only while TLS begins.
    stream: Option<Stream>,
    /// True if all writes have left.
    is_flushed: bool,
    client: Client,
    guest: Guest,
    shared: Arc<Shared>,
    received: Received,
    replies: Replies,
    /// True once a call has run.
    has_run: bool,
    /// Calls whose replies come through `ready`, and their bytes.
    running: usize,
    running_bytes: usize,
    sender: UnboundedSender<Ready>,
    ready: UnboundedReceiver<Ready>,
    stop: Pin<Box<dyn Future<Output = ()> + Send>>,
    is_stopping: bool,
    /// Numbers of events and calls so far.
    events: u64,
    calls: u64,
    looked: Looked,
    look: Pin<Box<Sleep>>,
}

/// An event of a connection.
enum Event {
    Received(usize),
    Sent(usize),
    Flushed,
    Ready(Ready),
    /// There are more calls to look at.
    More,
    Stop,
    /// It is time to check that the connection still does something.
    Look,
}

/// Progress with the calls received.
enum Taken {
    /// All that can be served now.
    All,
    /// Some calls; there may be more.
    More,
    /// The last call asks for TLS, which begins after this reply.
    StartTls(Reply),
}

/// The end of a connection.
struct End;

impl From<io::Error> for End {
    fn from(_: io::Error) -> End {
        // The client is gone, and nobody else needs to know.
        End
    }
}

impl Connection {
    pub(super) fn new(stream: TcpStream, (client, guest): (Client, Guest), shared: Arc<Shared>) -> Connection {
        let (sender, ready) = unbounded_channel();
        let mut stop = shared.stop.clone();
        let stop = Box::pin(async move { drop(stop.wait_for(|stop| *stop).await) });
        Connection {
            stream: Some(Stream::Plain(stream)),
            is_flushed: true,
            client,
            guest,
            shared,
            received: Received::default(),
            replies: Replies::default(),
            has_run: false,
            running: 0,
            running_bytes: 0,
            sender,
            ready,
            stop,
            is_stopping: false,
            events: 0,
            calls: 0,
            looked: Looked::default(),
            look: Box::pin(sleep(LOOK)),
        }
    }

    /// Serves it until it ends.
    pub(super) async fn run(mut self) {
        while self.step().await.is_ok() {}
    }

    async fn step(&mut self) -> Result<(), End> {
        let has_more = match self.take()? {
            Taken::More => true,
            Taken::All => false,
            Taken::StartTls(reply) => {
                self.replies.push(reply);
                return self.start_tls().await;
            }
        };
        if self.is_stopping && self.running == 0 && self.replies.bytes() == 0 {
            return Err(End);
        }
        let event = poll_fn(|context| self.poll(context, has_more)).await?;
        if !matches!(event, Event::Look) {
            self.events += 1;
        }
        match event {
            Event::Look => self.look()?,
            Event::Received(0) | Event::Sent(0) => return Err(End),
            Event::Received(_) | Event::More => {}
            Event::Sent(count) => {
                self.replies.sent(count);
                self.is_flushed = false;
            }
            Event::Flushed => self.is_flushed = true,
            Event::Ready(ready) => self.is_ready(ready),
            Event::Stop => self.is_stopping = true,
        }
        if self.guest.keeps(self.received.len() + self.replies.bytes()) { Ok(()) } else { Err(End) }
    }

    /// Ends a connection that takes up room and does nothing, or too slowly.
    fn look(&mut self) -> Result<(), End> {
        self.look.as_mut().reset(Instant::now() + LOOK);
        let (has_begun, has_replies) = (!self.received.is_empty(), self.replies.bytes() > 0);
        let goes_on = self.looked.goes_on((self.events, self.calls), has_begun, has_replies);
        // A client that waits for an answer of this server may be silent.
        if goes_on || self.running > 0 { Ok(()) } else { Err(End) }
    }

    fn is_ready(&mut self, ready: Ready) {
        if let Some(bytes) = ready.ran {
            self.running -= 1;
            self.running_bytes -= bytes;
        }
        self.replies.push(ready.reply);
    }

    /// True if another call may be looked at.
    fn may_take(&self) -> bool {
        !self.is_stopping
            && self.replies.bytes() <= REPLY_BYTES_MAX
            && self.running < RUNNING_MAX
            && self.running_bytes <= RUNNING_BYTES_MAX
    }

    /// Sends the waiting replies, that to the call for TLS last, and begins TLS.
    async fn start_tls(&mut self) -> Result<(), End> {
        // Data sent along in the clear would count as sent under protection.
        if !self.received.is_empty() || self.running > 0 {
            return Err(End);
        }
        while self.replies.bytes() > 0 {
            let count = poll_fn(|context| self.poll_send(context)).await?;
            if count == 0 {
                return Err(End);
            }
            self.replies.sent(count);
        }
        let (Some(tls), Some(Stream::Plain(stream))) = (&self.shared.tls, self.stream.take()) else { return Err(End) };
        let stream = tls.begin(stream, self.client.address).await.ok_or(End)?;
        self.stream = Some(Stream::Tls(Box::new(stream)));
        self.client.tls = true;
        Ok(())
    }

    /// Serves calls that were received.
    fn take(&mut self) -> Result<Taken, End> {
        for _ in 0..BATCH {
            if !self.may_take() {
                return Ok(Taken::All);
            }
            let Some(message) = self.received.next().map_err(|_| End)? else { return Ok(Taken::All) };
            self.calls += 1;
            let bytes = match &message {
                Message::At(at) => self.received.bytes(at),
                Message::Whole(bytes) => bytes,
            };
            match serving::serve(&self.shared, &self.client, bytes, &self.sender) {
                Next::Reply(reply) => self.replies.push(reply),
                Next::Running { bytes } => {
                    self.has_run = true;
                    self.running += 1;
                    self.running_bytes += bytes;
                }
                Next::Nothing => {}
                Next::StartTls(reply) => return Ok(Taken::StartTls(reply)),
                Next::End => return Err(End),
            }
        }
        Ok(Taken::More)
    }

    fn poll(&mut self, context: &mut Context<'_>, has_more: bool) -> Poll<Result<Event, End>> {
        if let Poll::Ready(Some(ready)) = self.ready.poll_recv(context) {
            return Poll::Ready(Ok(Event::Ready(ready)));
        }
        if self.replies.bytes() > 0 {
            if let Poll::Ready(sent) = self.poll_send(context) {
                return Poll::Ready(Ok(Event::Sent(sent?)));
            }
        } else if !self.is_flushed
            && let Poll::Ready(flushed) = self.stream()?.poll_flush(context)
        {
            return Poll::Ready(flushed.map(|()| Event::Flushed).map_err(End::from));
        }
        if has_more {
            return Poll::Ready(Ok(Event::More));
        }
        if self.look.as_mut().poll(context).is_ready() {
            return Poll::Ready(Ok(Event::Look));
        }
        if !self.is_stopping && self.stop.as_mut().poll(context).is_ready() {
            return Poll::Ready(Ok(Event::Stop));
        }
        if self.may_take() {
            return self.poll_receive(context).map(|received| Ok(Event::Received(received?)));
        }
        Poll::Pending
    }

    /// Returns the stream; it is missing only while TLS begins.
    fn stream(&mut self) -> Result<Pin<&mut Stream>, End> {
        self.stream.as_mut().map(Pin::new).ok_or(End)
    }

    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<Result<usize, End>> {
        let Some(stream) = &mut self.stream else { return Poll::Ready(Err(End)) };
        Pin::new(stream).poll_write_vectored(context, &self.replies.slices()).map_err(End::from)
    }

    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<Result<usize, End>> {
        let Some(stream) = &mut self.stream else { return Poll::Ready(Err(End)) };
        if self.received.is_empty() {
            // A silent client takes no memory.
            self.received.rest();
            ready!(stream.poll_read_ready(context))?;
        }
        let (room, wanted) = self.received.room();
        poll_read_buf(Pin::new(stream), context, &mut room.limit(wanted)).map_err(End::from)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.has_run {
            self.ready.close();
            serving::left(&self.shared);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_end_a_call_take_replies_or_say_anything_is_closed_in_the_end() {
        // A byte now and then does not help.
        let mut trickling = Looked::default();
        let looks = (1..100).take_while(|n| trickling.goes_on((*n, 0), true, false)).count();
        assert_eq!(looks, SLOW_LOOKS as usize - 1);
        let mut deaf = Looked::default();
        let looks = (1..100).take_while(|_| deaf.goes_on((7, 7), false, true)).count();
        assert_eq!(looks, SLOW_LOOKS as usize);
        let mut idle = Looked::default();
        let looks = (1..100).take_while(|_| idle.goes_on((7, 7), false, false)).count();
        assert_eq!(looks, IDLE_LOOKS as usize);
        let mut busy = Looked::default();
        assert!((1..1000).all(|n| busy.goes_on((n, n), true, true)));
    }
}
