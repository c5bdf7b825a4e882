//! Rows that are gone as a whole, which no sum of a row tells of: what the row of their inode counts
//! is compared with what there is.

use crate::error::{Error, Result};
use crate::row::Ino;

/// Fails if `found` entries are not all that `directory` has by its row.
pub(crate) fn refuse_names(directory: Ino, found: u64, counted: u64) -> Result<()> {
    if found == counted {
        return Ok(());
    }
    let found = if found == 1 { "1 entry is".into() } else { format!("{found} entries are") };
    Err(Error::Corrupt(format!("{found} there of the {counted} that directory {} has by its row", directory.0)))
}

/// Fails if `found` extended attributes are fewer than `ino` has by its row. One of those that are
/// gone may be the list of rights, so nothing is answered by the others.
pub(crate) fn refuse_xattrs(ino: Ino, found: u64, counted: u64) -> Result<()> {
    if found >= counted {
        return Ok(());
    }
    let found = if found == 1 { "1 extended attribute is".into() } else { format!("{found} extended attributes are") };
    Err(Error::Corrupt(format!("{found} there of the {counted} that inode {} has by its row", ino.0)))
}

/// A file's blocks, as far as they tell whether one is missing.
pub(crate) struct Blocks {
    /// Bytes of the file.
    pub(crate) size: u64,
    /// Bytes that its blocks hold by its row.
    pub(crate) allocated: u64,
    /// Bytes that the blocks hold that are there, or more.
    pub(crate) held: u64,
}

/// Fails if block `index` of `ino`, of which there is no row, is no hole.
pub(crate) fn refuse_block((ino, index): (Ino, u64), block_size: u64, blocks: &Blocks) -> Result<()> {
    let Blocks { size, allocated, held } = *blocks;
    // A file of which every byte is stored has no holes.
    if allocated == size && index.saturating_mul(block_size) < size {
        return Err(Error::Corrupt(format!("the row of block {index} of inode {} is missing", ino.0)));
    }
    if held < allocated {
        let gone = allocated - held;
        return Err(Error::Corrupt(format!("rows of blocks of inode {} are missing, of {gone} bytes", ino.0)));
    }
    Ok(())
}

/// Says that `ino`, which a name leads to, has no row.
pub(crate) fn inode(ino: Ino) -> String {
    format!("the row of inode {}, which a name leads to, is gone", ino.0)
}
