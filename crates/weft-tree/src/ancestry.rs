//! Ancestors of directories: what lies below what.
//!
//! A user can nest directories without end. No walk up may hold the state, or the one who asks, for
//! as long as that takes, so that only so many levels are climbed.

use crate::error::{Error, ErrorKind};
use crate::stop::{Miss, Stop};
use crate::tree::Tree;
use weft_store::{Ino, Kind};

/// Most levels that are climbed. With names of one byte a path of `PATH_MAX` bytes has an eighth.
pub const LEVELS_MAX: u32 = 1 << 14;

impl Tree {
    /// Tells whether directory `directory` is `top` or lies below it. A view is where it was found:
    /// nothing in it leads elsewhere. `NameTooLong` if neither `top` nor the root is among its
    /// first 16 384 ancestors, `Corrupt` if those of a damaged volume lead in a circle.
    pub fn is_within(&mut self, directory: Ino, top: Ino) -> Result<bool, Stop> {
        if self.inode(directory)?.row.kind == Kind::Transformation {
            return Ok(true);
        }
        // In a circle the way comes back to where it was marked (R. Brent, "An improved Monte Carlo
        // factorization algorithm", 1980).
        let (mut at, mut mark) = (directory, directory);
        for level in 1..=LEVELS_MAX {
            if at == top || at == Ino::ROOT {
                return Ok(at == top);
            }
            at = match self.directory(at) {
                Err(Stop::Miss(Miss::Inode(ino))) => return Err(Miss::Ancestors(ino).into()),
                found => found?.row.parent,
            };
            if at == mark {
                return Err(Error::new(ErrorKind::Corrupt, at).into());
            }
            if level.is_power_of_two() {
                mark = at;
            }
        }
        Err(ErrorKind::NameTooLong.into())
    }
}
