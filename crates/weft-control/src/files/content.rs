//! Content of files, both ways.
//!
//! Bytes go out from the blocks where they lie. One piece is read while the one before is sent, and
//! no more; no thread waits for a client. Bytes that come in are gathered to a piece, which is then
//! written.

use super::path::named;
use super::query::Query;
use super::told::json_of;
use super::{Asked, no_request};
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
use tokio::task::JoinHandle;
use weft_block::Rope;
use weft_vfs::FileId;

/// Bytes that are read at once.
const READ_BYTES: usize = 512 << 10;

/// Bytes that are written at once.
const WRITE_BYTES: usize = 256 << 10;

/// Most bytes of one request, each way.
const REQUEST_BYTES_MAX: u64 = 64 << 20;

/// Sends the bytes of a file from `offset` on: `length`, or fewer where it ends.
pub(super) async fn read(asked: Asked, RawQuery(query): RawQuery) -> Response {
    let Some(query) = Query::parse(query.as_deref(), &["path", "id", "offset", "length"]) else { return no_request() };
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

/// Writes the body of a request to a file, from `offset` on.
pub(super) async fn write(asked: Asked, RawQuery(query): RawQuery, request: Request) -> Response {
    let Some(query) = Query::parse(query.as_deref(), &["id", "offset"]) else { return no_request() };
    let (Ok(Some(file)), Ok(offset)) = (query.id(), query.number::<u64>("offset")) else { return no_request() };
    let mut target = Target { asked, file, offset: offset.unwrap_or(0), gathered: Vec::new() };
    match target.take(request.into_body()).await {
        Ok(written) => json_of(&json!({ "written": written })),
        Err(refused) => refused,
    }
}

/// The place that a body is written to.
struct Target {
    asked: Asked,
    file: FileId,
    /// The place of the first byte that is not written yet.
    offset: u64,
    gathered: Vec<u8>,
}

impl Target {
    /// Writes all of `body`; tells how many bytes.
    async fn take(&mut self, mut body: Body) -> Result<u64, Response> {
        let mut taken = 0;
        while let Some(frame) = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
            let cut_off = |_| super::refused(StatusCode::BAD_REQUEST, libc::EIO, "the request ends early");
            let Ok(bytes) = frame.map_err(cut_off)?.into_data() else { continue };
            taken += bytes.len() as u64;
            if taken > REQUEST_BYTES_MAX {
                let why = format!("a request writes {REQUEST_BYTES_MAX} bytes at most");
                return Err(super::refused(StatusCode::PAYLOAD_TOO_LARGE, libc::EFBIG, &why));
            }
            self.gathered.extend_from_slice(&bytes);
            if self.gathered.len() >= WRITE_BYTES {
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
        let (file, offset, bytes) = (self.file, self.offset, std::mem::take(&mut self.gathered));
        self.offset = offset.saturating_add(bytes.len() as u64);
        self.gathered = self
            .asked
            .done(move |volume| {
                volume.user.write(file, offset, &bytes)?;
                Ok(bytes)
            })
            .await?;
        self.gathered.clear();
        Ok(())
    }
}
