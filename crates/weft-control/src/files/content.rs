//! Content of files, both ways.
//!
//! Bytes go out from the blocks where they lie. One piece is read while the one before is sent, and
//! no more; no thread waits for a client. Bytes that come in are gathered to a piece, which is then
//! written.

use super::Asked;
use super::path::{TOPS, named};
use super::query::Query;
use super::refusal::{Refusal, refused};
use super::told::json_of;
use axum::body::Body;
use axum::extract::{RawQuery, Request};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use serde_json::json;
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use weft_block::Rope;
use weft_vfs::FileId;

/// Bytes that are read at once.
const READ_BYTES: usize = 512 << 10;

/// Bytes that are written at once, in one step.
const WRITE_BYTES: usize = 256 << 10;

/// Time within which more of a request must come.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Most bytes of one request, each way.
const REQUEST_BYTES_MAX: u64 = 64 << 20;

/// Sends the bytes of a file from `offset` on: `length`, or fewer where it ends.
pub(super) async fn read(asked: Asked, RawQuery(query): RawQuery) -> Response {
    let query = match Query::parse(query.as_deref(), &[&["path", "id", "offset", "length"], &TOPS]) {
        Ok(query) => query,
        Err(refusal) => return refusal.answer(),
    };
    let begun = asked.done(move |volume| {
        let file = named(volume, &query)?;
        let offset = query.number("offset")?.unwrap_or(0);
        let length = query.number::<u64>("length")?.unwrap_or(REQUEST_BYTES_MAX).min(REQUEST_BYTES_MAX);
        let first = READ_BYTES.min(usize::try_from(length).unwrap_or(READ_BYTES));
        let (bytes, attributes) = volume.user.read(file, offset, first)?;
        // What is computed may be shorter than it looks.
        let is_end = bytes.len() < first;
        let end = offset.saturating_add(length).min(attributes.size);
        let end = if is_end { offset + bytes.len() as u64 } else { end.max(offset + bytes.len() as u64) };
        Ok((file, offset, end, bytes))
    });
    match begun.await {
        Ok((file, offset, end, bytes)) => {
            let mut content = Content { left: end - offset, offset, file, asked, ready: VecDeque::new(), next: None };
            content.take(&bytes);
            ([(header::CONTENT_TYPE, "application/octet-stream")], Body::new(content)).into_response()
        }
        Err(refused) => refused,
    }
}

/// The bytes of a file on their way.
struct Content {
    asked: Asked,
    file: FileId,
    /// The first byte that is not read yet.
    offset: u64,
    /// Bytes that are still to be sent.
    left: u64,
    /// Those of them that are here.
    ready: VecDeque<Bytes>,
    /// The next piece.
    next: Option<JoinHandle<Option<Rope>>>,
}

impl Content {
    /// Takes the next of its bytes, none being here, and has those behind them read.
    fn take(&mut self, bytes: &Rope) {
        self.ready.extend(bytes.slices().iter().cloned().map(Bytes::from_owner));
        self.offset += bytes.len() as u64;
        let missing = self.left.saturating_sub(bytes.len() as u64);
        if missing == 0 {
            return;
        }
        let (asked, file, offset) = (self.asked.clone(), self.file, self.offset);
        let length = READ_BYTES.min(usize::try_from(missing).unwrap_or(READ_BYTES));
        let read = async move { asked.done(move |volume| Ok(volume.user.read(file, offset, length)?.0)).await.ok() };
        self.next = Some(tokio::spawn(read));
    }
}

impl HttpBody for Content {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        if self.ready.is_empty() {
            let Some(next) = &mut self.next else { return Poll::Ready(Some(Err(short()))) };
            let read = ready!(Pin::new(next).poll(context));
            self.next = None;
            match read {
                Ok(Some(bytes)) if !bytes.is_empty() => self.take(&bytes),
                // The client asks again, and hears why.
                Ok(_) => return Poll::Ready(Some(Err(short()))),
                Err(error) => return Poll::Ready(Some(Err(io::Error::other(error)))),
            }
        }
        let Some(bytes) = self.ready.pop_front() else { return Poll::Ready(Some(Err(short()))) };
        self.left = self.left.saturating_sub(bytes.len() as u64);
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        if let Some(next) = &self.next {
            next.abort();
        }
    }
}

fn short() -> io::Error {
    io::ErrorKind::UnexpectedEof.into()
}

/// Writes the body of a request to a file: from `offset` on, or at its end.
pub(super) async fn write(asked: Asked, RawQuery(query): RawQuery, request: Request) -> Response {
    let target = match target(&asked, query.as_deref()) {
        Ok(target) => target,
        Err(refusal) => return refusal.answer(),
    };
    match target.written(request.into_body()).await {
        Ok(written) => json_of(&json!({ "written": written })),
        Err(refused) => refused,
    }
}

/// The place that `query` names.
fn target(asked: &Asked, query: Option<&str>) -> Result<Target, Refusal> {
    let query = Query::parse(query, &[&["id", "offset", "append"]])?;
    let file = query.id("id")?.ok_or_else(|| Refusal::senseless("'id' is missing"))?;
    let offset = query.number("offset")?;
    let place = match (query.has("append"), offset) {
        (true, None) => Place::End,
        (false, offset) => Place::At(offset.unwrap_or(0)),
        (true, Some(_)) => return Err(Refusal::senseless("it names both 'append' and 'offset'")),
    };
    Ok(Target { asked: asked.clone(), file, place, gathered: Vec::new() })
}

/// The place of bytes in a file.
#[derive(Clone, Copy)]
enum Place {
    At(u64),
    /// Wherever the file ends then.
    End,
}

impl Place {
    /// Most bytes that one request puts there: at the end, all in one step.
    fn bytes_max(self) -> u64 {
        match self {
            Place::At(_) => REQUEST_BYTES_MAX,
            Place::End => WRITE_BYTES as u64,
        }
    }
}

/// The place that a body is written to.
struct Target {
    asked: Asked,
    file: FileId,
    /// That of the first byte that is not written yet.
    place: Place,
    gathered: Vec<u8>,
}

impl Target {
    /// Writes all of `body`; tells how many bytes.
    async fn written(mut self, mut body: Body) -> Result<u64, Response> {
        let bytes_max = self.place.bytes_max();
        // Of one that says how many there are, nothing is written.
        let mut known = HttpBody::size_hint(&body).lower();
        let mut taken = 0;
        loop {
            if known > bytes_max {
                let why = format!("a request writes {bytes_max} bytes here at most");
                return Err(refused(StatusCode::PAYLOAD_TOO_LARGE, libc::EFBIG, &why));
            }
            let Some(bytes) = next_of(&mut body).await? else { break };
            taken += bytes.len() as u64;
            known = known.max(taken);
            self.gathered.extend_from_slice(&bytes);
            if self.gathered.len() >= WRITE_BYTES && matches!(self.place, Place::At(_)) {
                self.put().await?;
            }
        }
        if !self.gathered.is_empty() {
            self.put().await?;
        }
        Ok(taken)
    }

    /// Writes what is gathered.
    async fn put(&mut self) -> Result<(), Response> {
        let (file, place, bytes) = (self.file, self.place, std::mem::take(&mut self.gathered));
        if let Place::At(offset) = &mut self.place {
            *offset = offset.saturating_add(bytes.len() as u64);
        }
        self.gathered = self
            .asked
            .done(move |volume| {
                match place {
                    Place::At(offset) => drop(volume.user.write(file, offset, &bytes)?),
                    Place::End => drop(volume.user.append(file, &bytes)?),
                }
                Ok(bytes)
            })
            .await?;
        self.gathered.clear();
        Ok(())
    }
}

/// Returns the next bytes of `body`; none at its end.
async fn next_of(body: &mut Body) -> Result<Option<Bytes>, Response> {
    let refuse = |why| refused(StatusCode::BAD_REQUEST, libc::EIO, why);
    loop {
        let frame = std::future::poll_fn(|context| Pin::new(&mut *body).poll_frame(context));
        // Others must have this connection's place.
        let frame = timeout(SILENCE_MAX, frame).await.map_err(|_| refuse("the rest of the request does not come"))?;
        match frame.transpose().map_err(|_| refuse("the request ends early"))?.map(Frame::into_data) {
            None => return Ok(None),
            Some(Ok(bytes)) => return Ok(Some(bytes)),
            // Trailers.
            Some(Err(_)) => {}
        }
    }
}
