//! One connection: its calls, and their replies as they get ready.

use super::record::{Message, Received};
use super::replies::Replies;
use super::serving::{Next, Ready};
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
use tokio::io::AsyncWrite;
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::io::poll_read_buf;

/// Bytes of replies that wait for a client to take them; beyond, none of its calls is looked at.
const REPLY_BYTES_MAX: usize = 4 << 20;
/// Calls of one connection that wait for something, and bytes of them; beyond, no more are looked at.
const RUNNING_MAX: usize = 128;
const RUNNING_BYTES_MAX: usize = 4 << 20;
/// Calls served before their replies are sent.
const BATCH: usize = 16;

/// A connection.
pub(super) struct Connection {
    /// None only while TLS begins.
    stream: Option<Stream>,
    /// Whether something was written that may not have left yet.
    is_flushed: bool,
    client: Client,
    shared: Arc<Shared>,
    received: Received,
    replies: Replies,
    /// Calls whose replies come through `ready`, and their bytes.
    running: usize,
    running_bytes: usize,
    sender: UnboundedSender<Ready>,
    ready: UnboundedReceiver<Ready>,
    stop: Pin<Box<dyn Future<Output = ()> + Send>>,
    is_stopping: bool,
}

/// What happened.
enum Event {
    Received(usize),
    Sent(usize),
    Flushed,
    Ready(Ready),
    /// There are more calls to look at.
    More,
    Stop,
}

/// Which of the calls received were served.
enum Taken {
    /// All that can be now.
    All,
    /// Some; there may be more.
    More,
    /// The last one asks for TLS, which begins after this.
    StartTls(Reply),
}

/// The connection has come to its end.
struct End;

impl From<io::Error> for End {
    fn from(_: io::Error) -> End {
        // Whoever was there is gone, and nobody else needs to know.
        End
    }
}

impl Connection {
    pub(super) fn new(stream: TcpStream, client: Client, shared: Arc<Shared>) -> Connection {
        let (sender, ready) = unbounded_channel();
        let mut stop = shared.stop.clone();
        let stop = Box::pin(async move { drop(stop.wait_for(|stop| *stop).await) });
        Connection {
            stream: Some(Stream::Plain(stream)),
            is_flushed: true,
            client,
            shared,
            received: Received::default(),
            replies: Replies::default(),
            running: 0,
            running_bytes: 0,
            sender,
            ready,
            stop,
            is_stopping: false,
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
        match poll_fn(|context| self.poll(context, has_more)).await? {
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
        Ok(())
    }

    fn is_ready(&mut self, ready: Ready) {
        if let Some(bytes) = ready.ran {
            self.running -= 1;
            self.running_bytes -= bytes;
        }
        self.replies.push(ready.reply);
    }

    /// Whether another call may be looked at.
    fn may_take(&self) -> bool {
        !self.is_stopping
            && self.replies.bytes() <= REPLY_BYTES_MAX
            && self.running < RUNNING_MAX
            && self.running_bytes <= RUNNING_BYTES_MAX
    }

    /// Sends what waits, the answer to the call for TLS at the end of it, and begins TLS.
    async fn start_tls(&mut self) -> Result<(), End> {
        // What was sent along in the clear would count as sent under protection.
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
        let stream = tls.begin(stream).await.ok_or(End)?;
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
            let bytes = match &message {
                Message::At(at) => self.received.bytes(at),
                Message::Whole(bytes) => bytes,
            };
            match serving::serve(&self.shared, &self.client, bytes, &self.sender) {
                Next::Reply(reply) => self.replies.push(reply),
                Next::Running { bytes } => {
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
        if !self.is_stopping && self.stop.as_mut().poll(context).is_ready() {
            return Poll::Ready(Ok(Event::Stop));
        }
        if self.may_take() {
            return self.poll_receive(context).map(|received| Ok(Event::Received(received?)));
        }
        Poll::Pending
    }

    /// The stream, which there is unless TLS is just beginning.
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
            // Who says nothing takes no memory.
            self.received.rest();
            ready!(stream.poll_read_ready(context))?;
        }
        let (room, wanted) = self.received.room();
        poll_read_buf(Pin::new(stream), context, &mut room.limit(wanted)).map_err(End::from)
    }
}
