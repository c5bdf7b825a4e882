//! A volume as a stream: the tree of a commit with everything in it, or what changed between two
//! commits, to be received as a volume, or as a commit of one.
//!
//! A stream is records (`codec`) in frames with checksums (`frame`). It knows rows and blocks, and
//! no engine: what one engine sends the other one receives. A *part* is the tree of one commit, or
//! what that commit changed of the tree of the part before; a stream has one part, or one for each
//! snapshot. [`send`] reads a [`Store`](crate::Store), as of a commit where history is kept.
//! [`Incoming`] reads a stream and verifies it: that its records make a tree (`shape`), and that
//! the tree has the digest that was sent. Nothing is committed to a volume in use before a part is
//! whole.
//!
//! The format is `docs/reference/stream.md`.

mod ahead;
mod attributes;
mod bounds;
mod changes;
mod codec;
mod extents;
mod forgotten;
mod frame;
#[cfg(any(test, feature = "testing"))]
pub mod fuzzing;
mod increment;
mod reached;
mod receive;
mod received;
mod record;
mod send;
mod shape;
#[cfg(test)]
mod tests;
mod whole;
mod writing;

pub use forgotten::refuse_forgotten;
pub use frame::STREAM_VERSION;
pub use receive::{Incoming, ReceiveOptions, Received, ReceivedHistory, is_begun};
pub use record::{StreamCommit, StreamCounts, StreamVolume};
pub use send::{Selection, Sent, send};

use crate::error::Error;

/// The error of a stream that is not as any Weft sends one.
fn wrong(what: &str) -> Error {
    Error::Stream(format!("the stream is not as it was sent: {what}"))
}

/// The error of a stream that lacks its end.
fn ended_early() -> Error {
    Error::Stream("the stream ends early: it is not whole".into())
}
