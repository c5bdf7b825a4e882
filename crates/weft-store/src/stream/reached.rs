//! The place that a receipt of a whole tree has reached: an attribute of the new volume's root,
//! while the volume is not finished. It is written by each commit, so that all records before the
//! place are in the volume.
//!
//! The same stream, received again, is read from its beginning; records up to the place are looked
//! at and not written. Streams of one commit that are sent at two times differ in what the volume
//! says of itself, so they are told to be the same by the commit and by the records before the
//! place.

use super::codec::Position;
use super::record::{Part, StreamVolume};
use crate::Name;
use crate::batch::XattrChange;
use crate::error::{Error, Result};
use crate::row::Ino;
use crate::store::Store;

const NAME: &[u8] = b"weft.receiving";

/// Bytes that tell the commit: its volume's uuid, its number and time.
const COMMIT_BYTES: usize = 16 + 8 + 8;

fn name() -> Name {
    Name::new(NAME).expect("a name")
}

fn commit_of(volume: &StreamVolume, part: &Part) -> [u8; COMMIT_BYTES] {
    let (number, time) = (part.to.number.0.to_le_bytes(), part.to.time.0.to_le_bytes());
    [&volume.uuid[..], &number, &time].concat().try_into().expect("as many")
}

/// The change that keeps `position` in the stream of `part`.
pub(super) fn keep((volume, part): (&StreamVolume, &Part), position: Position) -> XattrChange {
    let (records, sum) = (position.records.to_le_bytes(), position.sum.to_le_bytes());
    let value = [&commit_of(volume, part)[..], &records, &sum].concat();
    XattrChange { ino: Ino::ROOT, name: name(), value: Some(value) }
}

/// The change that ends the receipt.
pub(super) fn end() -> XattrChange {
    XattrChange { ino: Ino::ROOT, name: name(), value: None }
}

fn kept(store: &dyn Store) -> Result<Option<Vec<u8>>> {
    let attributes = store.xattrs(Ino::ROOT)?;
    Ok(attributes.into_iter().find(|(name, _)| name.as_bytes() == NAME).map(|(_, value)| value.to_vec()))
}

/// True if `store`, which is not finished, has a part of a tree that is being received.
pub(super) fn is_kept(store: &dyn Store) -> Result<bool> {
    Ok(kept(store)?.is_some())
}

/// Returns the place that `store` has reached in the stream of `part`, if it has received some of
/// it. `Unusable` if that was another stream.
pub(super) fn find(store: &dyn Store, volume: &StreamVolume, part: &Part) -> Result<Option<Position>> {
    let Some(value) = kept(store)? else { return Ok(None) };
    let rest = value.strip_prefix(&commit_of(volume, part)[..]).ok_or_else(other)?;
    let (records, sum) = rest.split_first_chunk().ok_or_else(other)?;
    let sum = sum.try_into().map_err(|_| other())?;
    Ok(Some(Position { records: u64::from_le_bytes(*records), sum: u32::from_le_bytes(sum) }))
}

/// The refusal of another stream than the one that was begun.
pub(super) fn other() -> Error {
    Error::Unusable(
        "what is there is the beginning of another stream: receive that one again, or remove what is there, and \
         begin anew"
            .into(),
    )
}
