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

/// True if `store` remembers a commit.
pub(super) fn is_remembered(store: &dyn Store) -> Result<bool> {
    Ok(store.xattrs(Ino::ROOT)?.iter().any(|(name, _)| name.as_bytes() == NAME))
}

/// Fails if the commit that `store` received last is another one of `volume` than `part` begins
/// from. What came from another volume is told by its digest alone.
pub(super) fn refuse_other(store: &dyn Store, volume: &StreamVolume, part: &Part) -> Result<()> {
    let remembered = store.xattrs(Ino::ROOT)?.into_iter().find(|(name, _)| name.as_bytes() == NAME);
    let Some((_, value)) = remembered else { return Ok(()) };
    let Some((uuid, number)) = value.split_at_checked(UUID_BYTES) else { return Ok(()) };
    let (Ok(number), Some(from)) = (<[u8; 8]>::try_from(number).map(u64::from_le_bytes), part.from) else {
        return Ok(());
    };
    if uuid != volume.uuid || number == from.number.0 {
        return Ok(());
    }
    Err(Error::Unusable(format!(
        "the stream begins from commit {} of there, and what is here is commit {number} of there; send the changes from \
         that one ('--from @{number}')",
        from.number.0
    )))
}
