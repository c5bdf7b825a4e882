//! Rows that are gone or damaged where nobody comes upon them: what the row of their inode counts
//! is compared with the rows that are as they were written. A damaged row counts as gone. It may be
//! the one that is asked for, as its key may be what is damaged.

use crate::error::{Error, Result};
use crate::row::{Ino, InodeRow};
use weft_digest::Kind;

/// Rows of a file or a directory that are looked at one by one, at most. A server counts those of a
/// larger one, damaged or not: they are too many to be sent.
pub(crate) const LOOKED_AT_MAX: u64 = 1 << 18;

/// Rows that are asked of a server at once to be looked at.
pub(crate) const LOOKED_AT_ONCE: usize = 4096;

/// Fails if `found` whole entries are not all that `directory` has by its row.
pub(crate) fn refuse_names(directory: Ino, found: u64, counted: u64) -> Result<()> {
    if found == counted {
        return Ok(());
    }
    let found = if found == 1 { "1 whole entry is".into() } else { format!("{found} whole entries are") };
    let what = format!(
        "{found} there of the {counted} that directory {} has by its row; 'weft check' tells more",
        directory.0
    );
    Err(Error::Corrupt(what))
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
    /// Bytes that its blocks hold by its row.
    pub(crate) allocated: u64,
    /// Bytes that the blocks hold whose rows are whole and lie in the file, or more.
    pub(crate) held: u64,
}

/// Fails if rows of blocks of `ino` are gone: then a block that has no row may be no hole.
pub(crate) fn refuse_block(ino: Ino, Blocks { allocated, held }: &Blocks) -> Result<()> {
    if held >= allocated {
        return Ok(());
    }
    let gone = allocated - held;
    let what =
        format!("rows of blocks of inode {} are missing or damaged, of {gone} bytes; 'weft check' tells more", ino.0);
    Err(Error::Corrupt(what))
}

/// Says that `ino`, which a name leads to, has no row.
pub(crate) fn inode(ino: Ino) -> String {
    format!("the row of inode {}, which a name leads to, is gone", ino.0)
}

/// Fails if the root is not among `rows`, those that come first, so that nothing could be reached.
///
/// # Errors
/// `Corrupt`.
pub fn refuse_rootless(rows: &[InodeRow]) -> Result<()> {
    let what = match rows.iter().find(|row| row.ino == Ino::ROOT) {
        Some(row) if row.kind == Kind::Directory && row.nlink > 0 => return Ok(()),
        // As an orphan it would be removed.
        Some(_) => "the row of the root directory says that there is none; 'weft check' tells more",
        None => {
            "the row of the root directory is gone; 'weft check --repair' makes it anew, for root alone, and all names \
             are kept"
        }
    };
    Err(Error::Corrupt(what.into()))
}
