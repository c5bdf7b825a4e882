//! Values of zeros, which depend on nothing but their place: holes in one file hash to what those
//! of another do.

use super::{DigestRows, Inode, file};
use crate::error::Result;
use crate::row::Ino;
use parking_lot::Mutex;
use std::collections::HashMap;
use weft_digest::{Digest, Kind, PIECE_BYTES, Value, merged, value};

/// Values kept: some MiB.
const KEPT_MAX: usize = 1 << 16;

static ZEROS: [u8; PIECE_BYTES] = [0; PIECE_BYTES];

/// Remembers the values of blocks of zeros.
#[derive(Default)]
pub(crate) struct ZeroValues {
    /// Values by position and length.
    kept: Mutex<HashMap<(u64, u64), Value>>,
}

impl ZeroValues {
    /// Returns BLAKE3 of the content of file `ino`, from stored nodes. None if there is no such
    /// file, nothing is stored, or there are too many zeros.
    pub(crate) fn content(&self, rows: &dyn DigestRows, ino: Ino, block_size: u64) -> Result<Option<Digest>> {
        match rows.inode(ino)? {
            Some(Inode { kind: Kind::File, size, digest: Some(listed), .. }) => {
                file::content(rows, self, ino, block_size, size, listed)
            }
            _ => Ok(None),
        }
    }

    /// The value of `len` zeros at `position`, a subtree of at most 4 MiB made of blocks of
    /// `block_size`.
    pub(super) fn value(&self, position: u64, len: u64, block_size: u64) -> Value {
        let block = |start: u64| self.block(position + start, block_size.min(len - start));
        merged(&(0..len.div_ceil(block_size)).map(|index| block(index * block_size)).collect::<Vec<_>>())
    }

    fn block(&self, position: u64, len: u64) -> Value {
        let key = (position, len);
        if let Some(known) = self.kept.lock().get(&key) {
            return *known;
        }
        let zeros = &ZEROS[..usize::try_from(len).expect("at most a piece")];
        let value = value(position, zeros).expect("a block is a subtree");
        let mut kept = self.kept.lock();
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        kept.insert(key, value);
        value
    }
}
