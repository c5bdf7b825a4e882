//! Rows that are not as a commit wrote them.
//!
//! The earlier content of such a row is not known, so nothing is put right by its present content,
//! and it is never given the sum that fits it: it stays until the user gives up what it describes.
//! Stored digests follow from other rows, and so do the rows of segments: these are rebuilt.

use super::rules::{Rule, rule};
use super::{Checker, bytes, failed, gone, text};
use crate::error::Result;
use crate::finding::{Finding, Repair, Subject};
use crate::store::Header;
use rusqlite::Connection;

/// A query for damaged rows as of a [`Rule`], and what gives them up.
macro_rules! damaged {
    ($table:literal, $sum:literal, $told:literal) => {
        rule(
            concat!("SELECT ", $told, " FROM ", $table, " t WHERE sum IS NOT ", $sum),
            &[concat!("DELETE FROM ", $table, " WHERE sum IS NOT ", $sum)],
        )
    };
}

/// Costs of giving up rows, for messages.
pub(super) const BLOCKS: &str = "blocks become zeros";
pub(super) const ATTRIBUTES: &str = "extended attributes go";

/// A rule, and what giving up the rows that break it costs.
pub(super) type Lasting = (Rule, &'static str);

/// Rows whose content follows from nothing else.
const ROWS: &[Lasting] = &[
    (
        damaged!(
            "fileatt",
            "weft_sum('fileatt', ino, generation, mode, uid, gid, nlink, rdev, size, allocated, atime, mtime, ctime, \
         btime, parent, xattrs, since, inline)",
            "ino, NULL, 'its row is damaged'"
        ),
        "files and links go whose content no digest proves; others lose owner, permissions and times",
    ),
    (
        damaged!(
            "naming",
            "weft_sum('naming', parent, name, ino, kind, cookie, since)",
            "parent, name, printf('the entry''s row is damaged; it says that it names inode %s', ino)"
        ),
        "names go, and what has no other one moves to /lost+found",
    ),
    (
        damaged!(
            "extents",
            "weft_sum('extents', ino, start, length, block, since)",
            "ino, NULL, printf('the row of its block at byte %s is damaged', start)"
        ),
        BLOCKS,
    ),
    (
        damaged!(
            "blocks",
            "weft_sum('blocks', id, length, base, value, segment, position, refs)",
            "(SELECT ino FROM extents e WHERE e.block = t.id LIMIT 1), NULL, printf('block %s has a damaged row', id)"
        ),
        BLOCKS,
    ),
    (
        damaged!(
            "xattr",
            "weft_sum('xattr', ino, name, value, since)",
            "ino, NULL, printf('the row of its attribute %s is damaged', CAST(name AS TEXT))"
        ),
        ATTRIBUTES,
    ),
    (
        damaged!(
            "commits",
            "weft_sum('commits', number, time, op, root_digest, previous_digest)",
            "NULL, NULL, printf('the row of commit %s is damaged', number)"
        ),
        "commits of the past lose their record",
    ),
];

/// Rows that follow from others.
const FOLLOWING: &[Rule] = &[
    damaged!(
        "segments",
        "weft_sum('segments', id, length, live)",
        "NULL, NULL, printf('the row of segment %s is damaged', id)"
    ),
    damaged!(
        "freed",
        "weft_sum('freed', segment, position, length)",
        "NULL, NULL, printf('a row of freed space, in segment %s at %s, is damaged', segment, position)"
    ),
];

/// A row that breaks a rule.
pub(in crate::sqlite) struct Offender {
    /// The inode it is about, if any.
    pub(in crate::sqlite) ino: Option<i64>,
    /// A name in that, if any.
    pub(in crate::sqlite) name: Option<Vec<u8>>,
    pub(in crate::sqlite) what: String,
    pub(in crate::sqlite) subject: Subject,
}

impl Offender {
    /// Returns the offender that `row` of the query of `rule` tells of.
    pub(super) fn read(row: &rusqlite::Row<'_>, rule: &Rule) -> Offender {
        let (ino, name) = (row.get(0).unwrap_or(None), bytes(row, 1));
        Offender { ino, name, what: text(row, 2), subject: rule.subject }
    }

    /// An offender that is the volume as a whole.
    pub(super) fn of_volume(what: String) -> Offender {
        Offender { ino: None, name: None, what, subject: Subject::Other }
    }
}

/// Rules that damage keeps from being repaired.
fn lasting() -> impl Iterator<Item = &'static Lasting> {
    ROWS.iter().chain(gone::LOST).chain([&gone::ATTRIBUTES])
}

/// Up to `limit` of what breaks `rules`.
pub(super) fn offenders<'a>(
    connection: &Connection,
    rules: impl IntoIterator<Item = &'a Rule>,
    limit: usize,
) -> Result<Vec<Offender>> {
    let mut found = Vec::new();
    for rule in rules {
        let mut statement = connection.prepare(rule.offenders).map_err(failed)?;
        let mut rows = statement.query(()).map_err(failed)?;
        while found.len() < limit
            && let Some(row) = rows.next().map_err(failed)?
        {
            found.push(Offender::read(row, rule));
        }
    }
    Ok(found)
}

/// Up to `limit` rows that are damaged or gone, and that nothing else tells of.
pub(super) fn damaged_rows(connection: &Connection, limit: usize) -> Result<Vec<Offender>> {
    let rules = lasting().map(|(rule, _)| rule).chain([&gone::REMADE, &gone::ROWLESS]);
    offenders(connection, rules, limit)
}

/// Gives up the extended attributes that are gone.
pub(in crate::sqlite) fn give_up_attributes(connection: &Connection) -> Result<()> {
    gone::ATTRIBUTES.0.repair.iter().try_for_each(|statement| connection.execute_batch(statement)).map_err(failed)
}

impl Checker<'_> {
    /// Reports the ways out while nothing is repaired, and the cost of giving up the rows.
    fn advise(&mut self, costs: &str) {
        // A copy of rows is of another engine, which nothing salvages.
        let salvage = match self.elsewhere {
            None => "have 'weft check --salvage VOLUME NEW' bring what can be verified to a new volume, ",
            Some(_) => "",
        };
        let what = format!(
            "nothing is repaired while rows are damaged or gone: restore the volume from a copy, {salvage}or have \
             'weft check --repair --discard' give up what those rows describe ({costs})"
        );
        self.findings.push(Finding::damage(what).about(Subject::Findings).of_places(0));
    }

    /// Reports the rows that are damaged or gone, and gives them up if asked for.
    pub(super) fn damaged(&mut self, header: &Header) -> Result<()> {
        if !offenders(&self.connection, lasting().map(|(rule, _)| rule), 1)?.is_empty() {
            self.reach()?;
            self.is_damaged = self.options.repair != Repair::Discard;
            if !self.is_damaged {
                self.keep_inlined(header)?;
            }
            let mut costs = Vec::new();
            for (rule, cost) in lasting() {
                let rule = if self.is_damaged { rule.only_told() } else { *rule };
                let found = self.apply_rule(&rule)?;
                if found > 0 && !costs.contains(cost) {
                    costs.push(*cost);
                }
            }
            if self.is_damaged {
                self.advise(&costs.join("; "));
            }
        }
        self.apply_rules(FOLLOWING).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::sums::ALL;

    #[test]
    fn damage_is_told_by_the_sums_that_rows_are_written_with() {
        for rule in ROWS.iter().map(|(rule, _)| rule).chain(FOLLOWING) {
            let table = rule.repair[0].split(' ').nth(2).expect("a table");
            let summed = ALL.iter().find(|summed| summed.table == table && summed.column == "sum").expect("summed");
            assert!(rule.offenders.ends_with(&format!("sum IS NOT {}", summed.expression())), "{table}");
        }
    }
}
