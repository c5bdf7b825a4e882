//! The commit that a volume received last, as the volume keeps it: an attribute of its root that no
//! caller sees.
//!
//! Digests of trees do not tell owners, times and attributes. So the receiver of changes must know
//! by number that they begin from the commit that it has, or changes of those alone could be
//! skipped without a trace.

use super::record::{Part, StreamVolume};
use crate::Name;
use crate::batch::XattrChange;
use crate::error::{Error, Result};
use crate::row::{CommitNo, Ino};
use crate::store::Store;

const NAME: &[u8] = b"weft.received";

/// Bytes of the volume's uuid; the number of the commit follows, little endian.
const UUID_BYTES: usize = 16;

/// The change that remembers commit `number` of `volume`.
pub(super) fn remember(volume: &StreamVolume, number: CommitNo) -> XattrChange {
    let value = [&volume.uuid[..], &number.0.to_le_bytes()].concat();
    XattrChange { ino: Ino::ROOT, name: Name::new(NAME).expect("a name"), value: Some(value) }
}

/// The volume, by its uuid, and the commit of it that `store` received last, if it remembers one.
pub(super) fn last(store: &dyn Store) -> Result<Option<([u8; UUID_BYTES], CommitNo)>> {
    let remembered = store.xattrs(Ino::ROOT)?.into_iter().find(|(name, _)| name.as_bytes() == NAME);
    Ok(remembered.and_then(|(_, value)| {
        let (uuid, number) = value.split_first_chunk()?;
        Some((*uuid, CommitNo(u64::from_le_bytes(number.try_into().ok()?))))
    }))
}

/// Fails if the commit that `store` received last is another one of `volume` than `part` begins
/// from. What came from another volume is told by its digest alone.
pub(super) fn refuse_other(store: &dyn Store, volume: &StreamVolume, part: &Part) -> Result<()> {
    match (last(store)?, part.from) {
        (Some((uuid, here)), Some(from)) if uuid == volume.uuid && here != from.number => {
            Err(Error::Unusable(format!(
                "the stream begins from commit {} of there, and what is here is commit {1} of there; send the changes from \
             that one ('--from @{1}')",
                from.number.0, here.0
            )))
        }
        _ => Ok(()),
    }
}
