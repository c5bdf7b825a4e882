//! Tables whose rows have sums, and their columns: for all that reads or changes whole rows of any
//! table.

use crate::tables::{self, Dialect, is_of_versions};

/// A table whose rows have sums.
pub(super) struct Table {
    pub(super) name: &'static str,
    /// The name that the sums of its rows have among all sums.
    pub(super) sum: &'static str,
    /// The same of the sums of digests that its rows have, if they have any.
    pub(super) digest: Option<&'static str>,
    /// Columns that the sum is of, those of the key first.
    pub(super) columns: Vec<&'static str>,
    /// Number of them that form the key.
    pub(super) key: usize,
}

/// All of them; but the volume's own row is one of a kind.
pub(super) fn all() -> impl Iterator<Item = Table> {
    tables::of(Dialect::Postgres).filter_map(|table| {
        Some(Table {
            name: table.name,
            sum: table.sum_name(Dialect::Postgres)?,
            digest: table.digest_sum_name(),
            columns: table.covered(Dialect::Postgres),
            key: table.key(Dialect::Postgres).len(),
        })
    })
}

/// A table of row versions.
pub(super) struct VersionTable {
    pub(super) name: String,
    /// The columns of its key.
    pub(super) key: Vec<&'static str>,
    /// All columns that a copy has.
    pub(super) columns: Vec<&'static str>,
}

/// All of these.
pub(super) fn of_versions() -> impl Iterator<Item = VersionTable> {
    let made = tables::made(Dialect::Postgres).into_iter().filter(|made| is_of_versions(&made.name));
    made.map(|made| VersionTable {
        columns: made.columns.iter().map(|(name, _)| *name).filter(|name| *name != OWNER).collect(),
        key: made.key,
        name: made.name,
    })
}

/// The table of versions of extents, whose rows have another sum in a copy.
pub(super) const OLD_EXTENTS: &str = "extents_history";

/// The column that says whose a block is. A copy of the rows for a check keeps that elsewhere.
const OWNER: &str = "owner";

/// Columns of the volume's own row that a copy has.
pub(super) const VOLUME: &[&str] =
    &["created", "number", "op", "next_id", "next_block", "epoch", "bytes_used", "inodes_used"];

impl Table {
    /// The columns of its key.
    pub(super) fn key(&self) -> &[&'static str] {
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
    use super::all;

    /// The sums are a part of the format.
    #[test]
    fn sums_are_of_what_volumes_of_this_format_have_them_of() {
        let told = all().map(|table| {
            let (key, digest) = (table.key().join(", "), table.digest.unwrap_or("none"));
            format!("{}: {}({}), key ({key}), digest {digest}\n", table.name, table.sum, table.columns.join(", "))
        });
        assert_eq!(told.collect::<String>(), include_str!("../../tests/data/sums-postgres.txt"));
    }
}
