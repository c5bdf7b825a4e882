//! The rules of history: versions of rows, pins, and what says that they are kept.
//!
//! Damage in the past keeps nothing of the present from being repaired, nor is it put right: what a
//! version said is not known. `--discard` removes damaged versions, and history as a whole if the
//! row is damaged that says what is kept.

use super::Checker;
use super::rules::{Rule, rule};
use crate::error::Result;
use crate::finding::Repair;

/// A table of versions: columns that tell which, and the sum that a row should have.
macro_rules! version {
    ($table:literal, $told:literal, $sum:literal, $filed:literal) => {
        rule(
            concat!(
                "SELECT ",
                $told,
                " FROM ",
                $table,
                " t WHERE sum IS NOT (",
                $sum,
                ") & 4611686018427387903 ",
                "OR since < 1 OR until <= since OR until > (SELECT number FROM volume) OR ",
                $filed
            ),
            &[concat!(
                "DELETE FROM ",
                $table,
                " AS t WHERE sum IS NOT (",
                $sum,
                ") & 4611686018427387903 ",
                "OR since < 1 OR until <= since OR until > (SELECT number FROM volume) OR ",
                $filed
            )],
        )
    };
}

/// Those of versions come first in the order in which they depend on each other: the sum of a
/// version of an inode is also of its content.
const RULES: &[Rule] = &[
    rule(
        "SELECT NULL, NULL, 'the row that says what is kept of the past is damaged' FROM retention \
         WHERE id <> 1 OR sum IS NOT weft_sum('retention', id, rule, readers, first, swept)",
        &["DELETE FROM retention"],
    ),
    rule(
        "SELECT NULL, NULL, printf('the row of a pin, of commit %s, is damaged', commit_number) FROM pins \
         WHERE sum IS NOT weft_sum('pins', commit_number, kind, name, made, held_until)",
        &["DELETE FROM pins WHERE sum IS NOT weft_sum('pins', commit_number, kind, name, made, held_until)"],
    ),
    version!(
        "fileatt_history",
        "ino, NULL, printf('a version of its row, of commits %s to %s, is damaged, or of its content', since, until - 1)",
        "weft_sum('fileatt', ino, generation, mode, uid, gid, nlink, rdev, size, allocated, atime, mtime, ctime, btime, \
         parent, xattrs, since, CASE WHEN EXISTS (SELECT 1 FROM content_history c WHERE c.ino = t.ino AND c.until > t.since) \
         THEN (SELECT c.inline FROM content_history c WHERE c.ino = t.ino AND c.until > t.since ORDER BY c.until LIMIT 1) \
         ELSE (SELECT f.inline FROM fileatt f WHERE f.ino = t.ino) END) + weft_references(until)",
        "false"
    ),
    version!(
        "content_history",
        "ino, NULL, printf('a version of its digest, of commits %s to %s, is damaged', since, until - 1)",
        "((weft_sum('digest', ino, digest) + weft_references(until)) & 4611686018427387903) + weft_references(since << 20)",
        "false"
    ),
    version!(
        "naming_history",
        "parent, name, printf('a version of the entry, of commits %s to %s, is damaged', since, until - 1)",
        "weft_sum('naming', parent, name, ino, kind, cookie, since) + weft_references(until)",
        "fork IS NOT weft_fork(since, until)"
    ),
    version!(
        "extents_history",
        "ino, NULL, printf('a version of its block at byte %s, of commits %s to %s, is damaged', start, since, until - 1)",
        "weft_sum('extents', ino, start, length, block, since) + weft_references(until)",
        "fork IS NOT weft_fork(since, until) OR NOT EXISTS (SELECT 1 FROM blocks b WHERE b.id = block)"
    ),
    version!(
        "xattr_history",
        "ino, NULL, printf('a version of an attribute, of commits %s to %s, is damaged', since, until - 1)",
        "weft_sum('xattr', ino, name, value, since) + weft_references(until)",
        "fork IS NOT weft_fork(since, until)"
    ),
];

/// Versions while nothing says that they are kept.
const LEFT: Rule = rule(
    "SELECT NULL, NULL, 'versions of rows are kept, and nothing says that they are' \
     WHERE NOT EXISTS (SELECT 1 FROM retention) AND (EXISTS (SELECT 1 FROM pins) \
     OR EXISTS (SELECT 1 FROM fileatt_history) OR EXISTS (SELECT 1 FROM content_history) \
     OR EXISTS (SELECT 1 FROM naming_history) OR EXISTS (SELECT 1 FROM extents_history) \
     OR EXISTS (SELECT 1 FROM xattr_history))",
    &[
        "DELETE FROM pins",
        "DELETE FROM fileatt_history",
        "DELETE FROM content_history",
        "DELETE FROM naming_history",
        "DELETE FROM extents_history",
        "DELETE FROM xattr_history",
    ],
);

/// All rules of history, for who looks at rows without repairing any.
pub(super) fn rules() -> impl Iterator<Item = &'static Rule> {
    RULES.iter().chain([&LEFT])
}

impl Checker<'_> {
    /// Reports damage of the past, and removes it if asked for.
    pub(super) fn history(&mut self) -> Result<()> {
        for rule in rules() {
            let rule = if self.options.repair == Repair::Discard { *rule } else { rule.only_told() };
            self.apply_rule(&rule)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::sums::MASK;

    #[test]
    fn sums_of_versions_are_cut_as_others_are() {
        assert_eq!(MASK, 4_611_686_018_427_387_903);
    }
}
