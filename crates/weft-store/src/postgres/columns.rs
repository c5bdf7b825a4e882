//! Tables whose rows have sums, and their columns: for all that reads or changes whole rows of any
//! table.

/// A table whose rows have sums.
pub(super) struct Table {
    pub(super) name: &'static str,
    /// The name that the sums of its rows have among all sums.
    pub(super) sum: &'static str,
    /// The same of the sums of digests that its rows have, if they have any.
    pub(super) digest: Option<&'static str>,
    /// Columns that the sum is of, those of the key first.
    pub(super) columns: &'static [&'static str],
    /// Number of them that form the key.
    pub(super) key: usize,
}

/// All of them.
pub(super) const TABLES: &[Table] = &[
    Table {
        name: "commits",
        sum: "commits",
        digest: None,
        columns: &["number", "time", "op", "root_digest", "previous_digest"],
        key: 1,
    },
    Table {
        name: "fileatt",
        sum: "fileatt",
        digest: Some("digest"),
        columns: &[
            "ino",
            "generation",
            "mode",
            "uid",
            "gid",
            "nlink",
            "rdev",
            "size",
            "allocated",
            "atime",
            "mtime",
            "ctime",
            "btime",
            "parent",
            "xattrs",
            "since",
            "inline",
        ],
        key: 1,
    },
    Table {
        name: "naming",
        sum: "naming",
        digest: Some("entry"),
        columns: &["parent", "name", "ino", "kind", "cookie", "since"],
        key: 2,
    },
    Table {
        name: "extents",
        sum: "owned extents",
        digest: None,
        columns: &["ino", "idx", OWNER, "block", "since"],
        key: 2,
    },
    Table {
        name: "blocks",
        sum: "owned blocks",
        digest: None,
        columns: &[OWNER, "id", "length", "base", "value", "refs"],
        key: 2,
    },
    Table { name: "branches", sum: "branches", digest: None, columns: &["parent", "prefix", "children"], key: 2 },
    Table { name: "nodes", sum: "nodes", digest: None, columns: &["ino", "level", "idx", "children"], key: 3 },
    Table { name: "xattr", sum: "xattr", digest: None, columns: &["ino", "name", "value", "since"], key: 2 },
];

/// The column that says whose a block is. A copy of the rows for a check keeps that elsewhere.
const OWNER: &str = "owner";

/// Columns of the volume's own row that a copy has.
pub(super) const VOLUME: &[&str] =
    &["created", "number", "op", "next_id", "next_block", "epoch", "bytes_used", "inodes_used"];

impl Table {
    /// The columns of its key.
    pub(super) fn key(&self) -> &'static [&'static str] {
        &self.columns[..self.key]
    }

    /// True if its rows say whose a block is, and have another sum in a copy.
    pub(super) fn is_owned(&self) -> bool {
        self.columns.contains(&OWNER)
    }

    /// The columns of the key that a copy has.
    pub(super) fn copied_key(&self) -> Vec<&'static str> {
        self.key().iter().copied().filter(|column| *column != OWNER).collect()
    }

    /// All columns that a copy has, those of the key first.
    pub(super) fn copied(&self) -> Vec<&'static str> {
        let mut columns = self.columns.iter().copied().filter(|column| *column != OWNER).collect::<Vec<_>>();
        if !self.is_owned() {
            columns.push("sum");
        }
        if self.digest.is_some() {
            columns.extend(["digest", "digest_sum"]);
        }
        columns
    }
}

#[cfg(test)]
mod tests {
    use super::TABLES;
    use crate::postgres::schema;
    use std::collections::BTreeSet;

    #[test]
    fn the_columns_are_those_of_the_schema() {
        for table in TABLES {
            let begin = format!("CREATE TABLE {} (", table.name);
            let made = schema::TABLES.iter().find_map(|text| text.strip_prefix(&*begin)).expect("made");
            let made = made.lines().filter_map(|line| line.split_whitespace().next());
            let made = made.filter(|word| word.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_'));
            let mut listed = table.columns.iter().copied().chain(["sum"]).collect::<BTreeSet<_>>();
            if table.digest.is_some() {
                listed.extend(["digest", "digest_sum"]);
            }
            if table.name == "blocks" {
                // They have a digest of their own.
                listed.insert("bytes");
            }
            assert_eq!(made.collect::<BTreeSet<_>>(), listed, "{}", table.name);
        }
    }
}
