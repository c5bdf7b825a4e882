//! Extents of older formats: by the index of a block, each of a whole block.

use super::WITHOUT_SUMS;
use crate::sums::{MASK, NONE};

/// The statement that copies the rows of `table`, if they are extents or versions of them, from a
/// database of `format`. One that is damaged stays that.
pub(super) fn copy(table: &str, format: u32) -> Option<String> {
    let (key, rest, replaced) = match table {
        "extents" => ("ino", "block, since", ""),
        "extents_history" => ("fork, ino", "until, block, since", " + weft_references(until)"),
        _ => return None,
    };
    let sum = |place: &str| format!("(weft_sum('extents', ino, {place}, block, since){replaced}) & {MASK}");
    let (old, new) = (sum("idx"), sum("idx * block_size, block_size"));
    let holds = if format == WITHOUT_SUMS { "1".into() } else { format!("sum IS {old}") };
    Some(format!(
        "INSERT INTO main.{table} ({key}, start, length, {rest}, sum) \
         SELECT {key}, idx * block_size, block_size, {rest}, CASE WHEN {holds} THEN {new} ELSE {NONE} END \
         FROM old.{table} CROSS JOIN (SELECT block_size FROM old.volume)"
    ))
}
