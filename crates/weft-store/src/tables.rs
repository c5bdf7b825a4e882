//! The tables of a volume, described once: columns, keys, indices, what sums cover, and which
//! tables keep the versions of rows.
//!
//! [`ALL`] (in `described`) makes the schemas of both engines ([`Table::create`]), and all that
//! works on whole rows of any table asks here for its columns. A [`Dialect`] names an engine's SQL;
//! this module sends none. The text that [`Dialect::Sqlite`] makes is in every database, so that
//! tests hold it to the letter.
//!
//! A table of row versions (`_history`) is derived from the table that it is of: the same key, from
//! and to which commit a version held, all else, and the row's sum with the commit that replaced it
//! added. What it is keyed by is said once, in [`Table::version_key`].

mod described;

pub(crate) use described::{ALL, COUNTERS};

/// The SQL of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// SQLite's.
    Sqlite,
    /// That of PostgreSQL, in the part that engines of the same protocol share.
    Postgres,
}

/// The type of a column's values.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Type {
    Number,
    Bytes,
    Text,
    /// True or false.
    Flag,
    /// A moment, by the clock of a server.
    Time,
}

/// The part that a column has in its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It is of the primary key.
    Key,
    /// It is the primary key, and only tells rows apart: no sum covers it.
    Label,
    /// The row's sum covers it.
    Covered,
    /// The row's sum covers it as a count, behind all else: what a change adds to the count can be
    /// added to the sum.
    Counted,
    /// No sum covers it: it follows from something else.
    Uncovered,
    /// The commit that wrote the row; covered as well.
    Since,
    /// The row's sum.
    Sum,
    /// A digest, which has a sum of its own with the key.
    Digest,
    /// The sum of the digest.
    DigestSum,
}

/// A column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    kind: Type,
    role: Role,
    may_be_null: bool,
    /// The one engine that has it, if the other one has not.
    only: Option<Dialect>,
}

/// An index.
#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) name: &'static str,
    is_unique: bool,
    columns: &'static [&'static str],
    /// More columns in SQLite, which then reads no row for them.
    read_along: &'static [&'static str],
    filter: Option<&'static str>,
}

/// The names that the sums of a table's rows have among all sums.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SumNames {
    sqlite: &'static str,
    postgres: &'static str,
    /// Name of the sums of digests, if rows have any.
    digest: Option<&'static str>,
}

/// The keeping of row versions that a later commit replaced.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Versions {
    /// None are kept.
    None,
    /// In a table of their own without these columns, by the key and the commit that replaced them:
    /// where one row is looked for at a time.
    ByCommit(&'static [&'static str]),
    /// The same by their fork first ([`crate::history`]): where rows of one moment are listed.
    ByFork(&'static [&'static str]),
}

/// A table.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    columns: &'static [Column],
    indices: &'static [Index],
    /// Indices of the table of its rows' versions.
    history_indices: &'static [Index],
    /// None if its rows have no sums.
    pub(crate) sums: Option<SumNames>,
    versions: Versions,
    /// True if it has the one row whose `id` is 1.
    is_of_one_row: bool,
    /// The one engine that has it, if the other one has not.
    only: Option<Dialect>,
}

/// A table that is to be made: one of [`ALL`], or of versions of its rows.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) name: String,
    /// Its columns, each with what is said of it.
    pub(crate) columns: Vec<(&'static str, String)>,
    /// Columns of its primary key.
    pub(crate) key: Vec<&'static str>,
    /// The statement that makes it.
    pub(crate) text: String,
}

/// The end of the names of tables of row versions.
const HISTORY: &str = "_history";

/// The number that a version is filed under.
const FORK: Column = described::number("fork");

/// The commit from which on a version held.
const SINCE: Column = described::number("since");

/// The commit that replaced it.
const UNTIL: Column = described::number("until");

/// The sum of the row, with that commit added.
const SUM: Column = described::number("sum").as_a(Role::Sum);

/// True if `table` has row versions.
pub(crate) fn is_of_versions(table: &str) -> bool {
    table.ends_with(HISTORY)
}

/// The tables of [`ALL`] that an engine has.
pub(crate) fn of(dialect: Dialect) -> impl Iterator<Item = &'static Table> {
    ALL.iter().filter(move |table| table.only.is_none_or(|only| only == dialect))
}

/// All tables of an engine as they are made, in their order.
pub(crate) fn made(dialect: Dialect) -> Vec<Made> {
    of(dialect).map(|table| table.made(dialect)).chain(of(dialect).filter_map(|table| table.history(dialect))).collect()
}

/// The names of all tables of an engine.
pub(crate) fn names(dialect: Dialect) -> impl Iterator<Item = String> {
    made(dialect).into_iter().map(|made| made.name)
}

/// The statements that make the tables and indices of an engine, in their order.
pub(crate) fn statements(dialect: Dialect) -> Vec<String> {
    let indices = indices(dialect);
    let with_indices = |made: Made| {
        let own = indices.iter().filter(|(table, _)| *table == made.name);
        let own = own.map(|(table, index)| index.text(table, dialect));
        [made.text.clone()].into_iter().chain(own).collect::<Vec<_>>()
    };
    made(dialect).into_iter().flat_map(with_indices).collect()
}

/// All indices of an engine, each with the name of its table.
pub(crate) fn indices(dialect: Dialect) -> Vec<(String, &'static Index)> {
    let of_rows = of(dialect).flat_map(|table| table.indices.iter().map(|index| (table.name.to_owned(), index)));
    let of_versions = of(dialect)
        .flat_map(|table| table.history_indices.iter().map(|index| (format!("{}{HISTORY}", table.name), index)));
    of_rows.chain(of_versions).collect()
}

/// The table of that name, which both engines have or one of them.
pub(crate) fn named(name: &str) -> Option<&'static Table> {
    ALL.iter().find(|table| table.name == name)
}

impl Type {
    fn name(self, dialect: Dialect) -> &'static str {
        match (self, dialect) {
            (Type::Number | Type::Flag, Dialect::Sqlite) => "INTEGER",
            (Type::Bytes, Dialect::Sqlite) => "BLOB",
            (Type::Text | Type::Time, Dialect::Sqlite) => "TEXT",
            (Type::Number, Dialect::Postgres) => "bigint",
            (Type::Bytes, Dialect::Postgres) => "bytea",
            (Type::Text, Dialect::Postgres) => "text",
            (Type::Flag, Dialect::Postgres) => "boolean",
            (Type::Time, Dialect::Postgres) => "timestamp with time zone",
        }
    }
}

impl Column {
    /// True if the sum of its row covers it: not as a count.
    fn is_covered(&self) -> bool {
        matches!(self.role, Role::Key | Role::Covered | Role::Since)
    }

    fn is_of_key(&self) -> bool {
        matches!(self.role, Role::Key | Role::Label)
    }

    /// Its type, and NOT NULL.
    fn said(&self, dialect: Dialect) -> String {
        let not_null = if self.may_be_null { "" } else { " NOT NULL" };
        format!("{}{not_null}", self.kind.name(dialect))
    }

    /// The same with its default. A row that no commit has given its sum has -1, which is damage.
    fn made(&self, dialect: Dialect) -> String {
        let default = if matches!(self.role, Role::Sum | Role::DigestSum) { " DEFAULT -1" } else { "" };
        format!("{}{default}", self.said(dialect))
    }
}

impl Index {
    /// Its columns, as the catalog says them: with WHERE if it is not of all rows.
    pub(crate) fn definition(&self, dialect: Dialect) -> String {
        let unique = if self.is_unique { "UNIQUE " } else { "" };
        let filter = if self.filter.is_some() { " WHERE" } else { "" };
        format!("{unique}({}){filter}", self.columns(dialect))
    }

    fn columns(&self, dialect: Dialect) -> String {
        let along = if dialect == Dialect::Sqlite { self.read_along } else { &[] };
        [self.columns, along].concat().join(", ")
    }

    /// The statement that makes it.
    pub(crate) fn text(&self, table: &str, dialect: Dialect) -> String {
        let unique = if self.is_unique { "UNIQUE " } else { "" };
        let filter = self.filter.map(|filter| format!(" WHERE {filter}")).unwrap_or_default();
        format!("CREATE {unique}INDEX {} ON {table} ({}){filter}", self.name, self.columns(dialect))
    }
}

impl Table {
    fn columns(&self, dialect: Dialect) -> impl Iterator<Item = &'static Column> {
        self.columns.iter().filter(move |column| column.only.is_none_or(|only| only == dialect))
    }

    fn named(&self, dialect: Dialect, is: impl Fn(&Column) -> bool) -> Vec<&'static str> {
        self.columns(dialect).filter(|column| is(column)).map(|column| column.name).collect()
    }

    /// The columns of its primary key.
    pub(crate) fn key(&self, dialect: Dialect) -> Vec<&'static str> {
        self.named(dialect, Column::is_of_key)
    }

    /// The columns that the sum of a row covers, in the order in which they are summed: those of
    /// the key first, a count last.
    pub(crate) fn covered(&self, dialect: Dialect) -> Vec<&'static str> {
        let covered = self.columns(dialect).filter(|column| column.is_covered()).map(|column| column.name);
        covered.chain(self.named(dialect, |column| column.role == Role::Counted)).collect()
    }

    /// The columns that the sum of a row's digest covers.
    pub(crate) fn covered_with_digest(&self, dialect: Dialect) -> Vec<&'static str> {
        [self.key(dialect), self.named(dialect, |column| column.role == Role::Digest)].concat()
    }

    /// Returns the name of the sums of its rows, if they have any.
    pub(crate) fn sum_name(&self, dialect: Dialect) -> Option<&'static str> {
        self.sums.map(|sums| match dialect {
            Dialect::Sqlite => sums.sqlite,
            Dialect::Postgres => sums.postgres,
        })
    }

    /// Returns the name of the sums of its rows' digests, if they have any.
    pub(crate) fn digest_sum_name(&self) -> Option<&'static str> {
        self.sums.and_then(|sums| sums.digest)
    }

    /// The table as it is made.
    pub(crate) fn made(&self, dialect: Dialect) -> Made {
        let columns = self.columns(dialect).collect::<Vec<_>>();
        make(self.name.into(), &columns, self.key(dialect), (dialect, self.is_of_one_row))
    }

    /// Returns the table of versions of its rows, if they are kept.
    pub(crate) fn history(&self, dialect: Dialect) -> Option<Made> {
        let (Versions::ByCommit(left_out) | Versions::ByFork(left_out)) = self.versions else { return None };
        let is_kept = |column: &&Column| {
            !column.is_of_key()
                && !matches!(column.role, Role::Since | Role::Sum | Role::DigestSum)
                && !left_out.contains(&column.name)
        };
        let key = self.columns(dialect).filter(|column| column.is_of_key());
        let rest = self.columns(dialect).filter(is_kept);
        let fork = matches!(self.versions, Versions::ByFork(_)).then_some(&FORK);
        let columns = fork.into_iter().chain(key).chain([&SINCE, &UNTIL]).chain(rest).chain([&SUM]).collect::<Vec<_>>();
        let name = format!("{}{HISTORY}", self.name);
        Some(make(name, &columns, self.version_key(dialect), (dialect, false)))
    }

    /// The primary key of the table of its rows' versions.
    fn version_key(&self, dialect: Dialect) -> Vec<&'static str> {
        let fork = matches!(self.versions, Versions::ByFork(_)).then_some(FORK.name);
        [fork.into_iter().collect(), self.key(dialect), vec![UNTIL.name]].concat()
    }
}

/// Describes a table of `columns`, as the engine makes it.
fn make(name: String, columns: &[&Column], key: Vec<&'static str>, (dialect, is_of_one_row): (Dialect, bool)) -> Made {
    let is_alone = |column: &Column| key == [column.name];
    let in_line = |column: &Column| match is_alone(column) {
        true if is_of_one_row => format!("{} PRIMARY KEY CHECK (id = 1)", column.kind.name(dialect)),
        true => format!("{} PRIMARY KEY", column.kind.name(dialect)),
        false => column.made(dialect),
    };
    let mut lines = columns.iter().map(|column| format!("{} {}", column.name, in_line(column))).collect::<Vec<_>>();
    if key.len() > 1 {
        lines.push(format!("PRIMARY KEY ({})", key.join(", ")));
    }
    // Rows lie in the order of their keys. Those with content of a file are too long for that.
    let is_by_key =
        dialect == Dialect::Sqlite && key.len() > 1 && !columns.iter().any(|column| column.name == "inline");
    let end = if is_by_key { " WITHOUT ROWID" } else { "" };
    let text = match &lines[..] {
        [line] => format!("CREATE TABLE {name} ({line}){end}"),
        lines => format!("CREATE TABLE {name} (\n    {}\n){end}", lines.join(",\n    ")),
    };
    let said = columns.iter().map(|column| (column.name, column.said(dialect))).collect();
    Made { name, columns: said, key, text }
}

#[cfg(test)]
mod tests;
