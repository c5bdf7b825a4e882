//! Versions of a file that were emptied: their sums, the same on every engine.

use crate::row::{CommitNo, Ino, InodeRow};
use crate::sums;
use std::ops::Range;

/// The content that the newest version of a file, which held in `newest`, has together with the
/// present: its own from now on. None if one of those in `content` is the version's.
pub(crate) fn beside_present(newest: &Range<CommitNo>, content: &[Range<CommitNo>]) -> Option<Range<CommitNo>> {
    let has_own = content.iter().any(|held| held.end > newest.start);
    (!has_own).then(|| newest.clone())
}

/// The sum of content that has neither a digest nor bytes.
pub(crate) fn content_sum(ino: Ino, held: &Range<CommitNo>) -> i64 {
    sums::content(sums::digest(ino, None), held.start, held.end)
}

/// The sum of the version `row` once it is empty.
pub(crate) fn row_sum(row: &InodeRow, held: &Range<CommitNo>) -> i64 {
    let empty = InodeRow { size: 0, allocated: 0, inline: None, ..row.clone() };
    sums::version(sums::inode(&empty, held.start, None), held.end)
}
