//! The invariants as queries.
//!
//! A query gives a row for each thing that breaks its rule: the inode it is about (or NULL), a name
//! in it (or NULL), and a text. Repairs run after all rows were reported.

use crate::finding::Subject;

/// An invariant of the format.
#[derive(Clone, Copy)]
pub(super) struct Rule {
    /// True if a finding is only worth knowing.
    pub(super) is_note: bool,
    /// Query for the rows that break it.
    pub(super) offenders: &'static str,
    /// Puts it right; none where that could lose something.
    pub(super) repair: &'static [&'static str],
    /// The subject of its findings.
    pub(super) subject: Subject,
}

impl Rule {
    /// The same, and nothing is put right.
    pub(super) const fn only_told(&self) -> Rule {
        Rule { repair: &[], is_note: false, ..*self }
    }

    /// The same about `subject`.
    pub(super) const fn about(self, subject: Subject) -> Rule {
        Rule { subject, ..self }
    }
}

/// A rule that damage breaks.
pub(super) const fn rule(offenders: &'static str, repair: &'static [&'static str]) -> Rule {
    Rule { is_note: false, offenders, repair, subject: Subject::Other }
}

/// Working tables: how each inode is reached, and what rows add up to. A damaged row may name an
/// inode or a block by what is no number, so these take anything.
pub(super) const SCRATCH: &str = "
CREATE TEMP TABLE reached (ino INTEGER PRIMARY KEY, parent INTEGER NOT NULL, name BLOB NOT NULL) WITHOUT ROWID;
CREATE TEMP TABLE names_of (ino INTEGER PRIMARY KEY, names INTEGER NOT NULL) WITHOUT ROWID;
CREATE TEMP TABLE in_directory (ino INTEGER PRIMARY KEY, entries INTEGER NOT NULL, directories INTEGER NOT NULL) WITHOUT ROWID;
CREATE TEMP TABLE content_of (ino INTEGER PRIMARY KEY, bytes INTEGER NOT NULL, end INTEGER NOT NULL, longer INTEGER NOT NULL) WITHOUT ROWID;
CREATE TEMP TABLE refs_of (block INTEGER PRIMARY KEY, refs INTEGER NOT NULL) WITHOUT ROWID;
CREATE TEMP TABLE bad (block INTEGER PRIMARY KEY, why TEXT NOT NULL);
CREATE TEMP TABLE doubled (fork INTEGER, ino INTEGER, start INTEGER, since INTEGER, until INTEGER);
";

/// A repair is a commit of its own, at the time of the one before.
pub(super) const NEW_COMMIT: &str = "
UPDATE volume SET number = number + 1;
INSERT OR REPLACE INTO commits (number, time, op)
    SELECT number, coalesce((SELECT max(time) FROM commits), created), op FROM volume;
";

/// Rules for the values of single rows.
pub(super) const VALUES: &[Rule] = &[
    rule(
        "SELECT NULL, NULL, printf('the next id would be %d, but %d is taken', next_id, n) FROM volume, \
         (SELECT max(15, coalesce((SELECT max(ino) FROM fileatt), 0), coalesce((SELECT max(cookie) FROM naming), 0), \
         coalesce((SELECT max(ino) FROM extents), 0)) AS n) WHERE next_id <= n",
        &["UPDATE volume SET next_id = 1 + max(15, coalesce((SELECT max(ino) FROM fileatt), 0), \
           coalesce((SELECT max(cookie) FROM naming), 0), coalesce((SELECT max(ino) FROM extents), 0))"],
    ),
    // The bounds are `NEXT_ID_MAX` and `COUNTER_MAX` of streams. No repair: rows may have such
    // numbers already.
    rule(
        "SELECT NULL, NULL, printf('the next %s is %d, and no volume comes that far: copy its files to a new one', \
         what, n) FROM (SELECT 'id' AS what, next_id AS n, 1 << 47 AS most FROM volume \
         UNION ALL SELECT 'block', next_block, 1 << 62 FROM volume \
         UNION ALL SELECT 'commit', number, 1 << 62 FROM volume \
         UNION ALL SELECT 'operation', op, 1 << 62 FROM volume) WHERE n > most",
        &[],
    ),
    rule("SELECT 1, NULL, 'the root is not a directory' FROM fileatt WHERE ino = 1 AND mode & 61440 <> 16384", &[]),
    rule(
        "SELECT ino, NULL, 'its row holds what no Weft writes' FROM fileatt WHERE ino < 1 \
         OR typeof(mode) <> 'integer' OR mode & 61440 NOT IN (4096, 8192, 16384, 24576, 32768, 40960, 45056, 49152) \
         OR mode NOT BETWEEN 0 AND 65535 \
         OR typeof(generation) <> 'integer' OR generation NOT BETWEEN 0 AND 4294967295 \
         OR typeof(uid) <> 'integer' OR uid NOT BETWEEN 0 AND 4294967295 \
         OR typeof(gid) <> 'integer' OR gid NOT BETWEEN 0 AND 4294967295 \
         OR typeof(nlink) <> 'integer' OR nlink NOT BETWEEN 0 AND 4294967295 \
         OR typeof(rdev) <> 'integer' OR rdev NOT BETWEEN 0 AND 4294967295 \
         OR typeof(size) <> 'integer' OR size < 0 OR typeof(allocated) <> 'integer' OR allocated < 0 \
         OR typeof(atime) <> 'integer' OR typeof(mtime) <> 'integer' OR typeof(ctime) <> 'integer' \
         OR typeof(btime) <> 'integer' OR typeof(parent) <> 'integer' OR parent < 0 \
         OR typeof(xattrs) <> 'integer' OR xattrs NOT BETWEEN 0 AND 4294967295 OR typeof(since) <> 'integer' \
         OR typeof(inline) NOT IN ('null', 'blob')",
        &[],
    ),
    rule(
        "SELECT ino, NULL, 'its digest is none that Weft writes' FROM fileatt \
         WHERE typeof(digest) NOT IN ('null', 'blob')",
        // It follows from the content.
        &["UPDATE fileatt SET digest = NULL WHERE typeof(digest) NOT IN ('null', 'blob')"],
    ),
    rule(
        "SELECT NULL, NULL, printf('block %d has a row that no Weft writes', id) FROM blocks WHERE id < 1 \
         OR typeof(refs) <> 'integer' OR typeof(length) <> 'integer' \
         OR length NOT BETWEEN 1 AND (SELECT block_size FROM volume) \
         OR typeof(base) <> 'integer' OR base < 0 OR typeof(value) <> 'blob' OR length(value) <> 32 OR typeof(segment) NOT IN ('null', 'integer') \
         OR typeof(position) NOT IN ('null', 'integer') OR (segment IS NULL) <> (position IS NULL) OR position < 0",
        &[],
    ),
    rule(
        "SELECT NULL, NULL, printf('row %d of table %s is of a commit that was never made', key, tab) FROM (\
         SELECT 'fileatt' AS tab, ino AS key, since FROM fileatt \
         UNION ALL SELECT 'naming', cookie, since FROM naming \
         UNION ALL SELECT 'extents', ino, since FROM extents UNION ALL SELECT 'xattr', ino, since FROM xattr) \
         WHERE typeof(since) = 'integer' AND since > (SELECT number FROM volume)",
        &[
            "UPDATE fileatt SET since = (SELECT number + 1 FROM volume) WHERE since > (SELECT number FROM volume)",
            "UPDATE naming SET since = (SELECT number + 1 FROM volume) WHERE since > (SELECT number FROM volume)",
            "UPDATE extents SET since = (SELECT number + 1 FROM volume) WHERE since > (SELECT number FROM volume)",
            "UPDATE xattr SET since = (SELECT number + 1 FROM volume) WHERE since > (SELECT number FROM volume)",
        ],
    ),
];

/// Rules for the counters of the volume. They come last: repairs before change the counts.
pub(super) const COUNTERS: &[Rule] = &[
    rule(
        "SELECT NULL, NULL, printf('the volume counts %d inodes, it has %d', inodes_used, n) \
         FROM volume, (SELECT count(*) AS n FROM fileatt) WHERE inodes_used <> n",
        &["UPDATE volume SET inodes_used = (SELECT count(*) FROM fileatt)"],
    ),
    rule(
        "SELECT NULL, NULL, printf('the volume counts %d bytes of content, it has %d', bytes_used, n) \
         FROM volume, (SELECT coalesce(sum(allocated), 0) AS n FROM fileatt) WHERE bytes_used <> n",
        &["UPDATE volume SET bytes_used = (SELECT coalesce(sum(allocated), 0) FROM fileatt)"],
    ),
    rule(
        "SELECT NULL, NULL, printf('the next block would be %d, but %d is taken', next_block, n) FROM volume, \
         (SELECT coalesce(max(id), 0) AS n FROM blocks) WHERE next_block <= n",
        &["UPDATE volume SET next_block = 1 + (SELECT max(id) FROM blocks)"],
    ),
    rule(
        "SELECT NULL, NULL, printf('commit %d is later than the last one', commits.number) FROM commits, volume \
         WHERE commits.number > volume.number",
        &["DELETE FROM commits WHERE number > (SELECT number FROM volume)"],
    ),
    // But for results of networks, which say what they are.
    Rule {
        is_note: true,
        offenders: "SELECT ino, NULL, 'deleted while it was open; the next mount removes it' \
                    FROM fileatt WHERE nlink = 0 AND NOT EXISTS \
                    (SELECT 1 FROM xattr WHERE xattr.ino = fileatt.ino AND name = CAST('weft.memo' AS BLOB))",
        repair: &[],
        subject: Subject::Other,
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::check::{blocks, content, names, overlaps};
    use crate::sqlite::schema;
    use rusqlite::Connection;

    /// Reading a table of one row.
    const ONE_ROW: [&str; 3] = ["SCAN volume", "SCAN v", "SCAN CONSTANT ROW"];

    /// Returns the steps of `query` as the database would do it: the step that each is of, and
    /// words for it.
    fn plan(connection: &Connection, query: &str) -> Vec<(i64, i64, String)> {
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {query}")).expect("a query");
        let steps = statement.query_map((), |row| Ok((row.get(0)?, row.get(1)?, row.get(3)?))).expect("a plan");
        steps.collect::<rusqlite::Result<_>>().expect("steps")
    }

    /// Whatever a volume has many of, a rule looks at each once: volumes have millions of
    /// directories.
    #[test]
    fn no_rule_reads_a_table_anew_for_each_row_of_another() {
        let connection = Connection::open_in_memory().expect("a database");
        connection.execute_batch(&schema::statements()).expect("the schema");
        connection.execute_batch(SCRATCH).expect("the working tables");
        let rules = [VALUES, names::ENTRIES, names::LINKS, content::RULES, blocks::BLOCKS, COUNTERS].concat();
        let offenders = rules.iter().map(|rule| rule.offenders);
        for offenders in offenders.chain([blocks::FILES, blocks::PAST_FILES, overlaps::ALL]) {
            let steps = plan(&connection, offenders);
            let is_for_each_row =
                |id: i64| steps.iter().any(|(of, _, words)| *of == id && words.starts_with("CORRELATED"));
            for (index, (_, parent, words)) in steps.iter().enumerate() {
                if !words.starts_with("SCAN") || ONE_ROW.contains(&words.as_str()) {
                    continue;
                }
                let before = steps[..index].iter().filter(|(_, of, _)| of == parent);
                let is_inner = before.clone().any(|(_, _, words)| {
                    (words.starts_with("SCAN") && !ONE_ROW.contains(&words.as_str())) || words.starts_with("SEARCH")
                });
                assert!(!is_inner && !is_for_each_row(*parent), "{words}, in {:?} of {offenders}", steps);
            }
        }
    }
}
