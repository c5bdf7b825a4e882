//! What fuzzing needs of streams.

use super::frame::FrameWriter;
use super::{Incoming, ReceiveOptions, Received};
use crate::error::Result;
use crate::memory::MemoryStore;
use crate::row::Timestamp;
use crate::store::VolumeOptions;

/// Receives `bytes` as records in whole frames into a new volume in memory.
///
/// # Errors
/// Those of what is no stream.
pub fn receive(bytes: &[u8]) -> Result<Received> {
    let mut stream = Vec::new();
    let mut frames = FrameWriter::new(&mut stream)?;
    frames.put(bytes)?;
    frames.finish()?;
    let incoming = Incoming::open(&stream[..])?;
    let options = VolumeOptions { digests: false, ..incoming.volume().options.clone() };
    incoming.receive(
        &MemoryStore::new(options),
        &ReceiveOptions { now: Timestamp(i64::MAX), ..ReceiveOptions::default() },
        &mut |_| (),
    )
}
