//! The description itself: docs/reference/format.md says what the columns mean.

use super::{Column, Dialect, Index, Role, SumNames, Table, Type, Versions};

const SQLITE: Option<Dialect> = Some(Dialect::Sqlite);
const POSTGRES: Option<Dialect> = Some(Dialect::Postgres);

const fn column(name: &'static str, kind: Type) -> Column {
    Column { name, kind, role: Role::Covered, may_be_null: false, only: None }
}

pub(super) const fn number(name: &'static str) -> Column {
    column(name, Type::Number)
}

const fn bytes(name: &'static str) -> Column {
    column(name, Type::Bytes)
}

impl Column {
    /// The same with this role.
    pub(super) const fn as_a(self, role: Role) -> Column {
        Column { role, ..self }
    }

    const fn key(self) -> Column {
        self.as_a(Role::Key)
    }

    const fn or_null(self) -> Column {
        Column { may_be_null: true, ..self }
    }

    /// The same in one engine alone.
    const fn only(self, only: Option<Dialect>) -> Column {
        Column { only, ..self }
    }
}

const SINCE: Column = number("since").as_a(Role::Since);
const SUM: Column = number("sum").as_a(Role::Sum);
const DIGEST: Column = bytes("digest").or_null().as_a(Role::Digest);
const DIGEST_SUM: Column = number("digest_sum").as_a(Role::DigestSum);

/// A table as most are.
const PLAIN: Table = Table {
    name: "",
    columns: &[],
    indices: &[],
    history_indices: &[],
    sums: None,
    versions: Versions::None,
    is_of_one_row: false,
    only: None,
};

const INDEX: Index = Index { name: "", is_unique: false, columns: &[], read_along: &[], filter: None };

/// The sums of rows that are the same in both engines.
const fn sums(name: &'static str) -> Option<SumNames> {
    Some(SumNames { sqlite: name, postgres: name, digest: None })
}

/// The same where digests in the rows have sums, too.
const fn sums_and_digests(name: &'static str, digest: &'static str) -> Option<SumNames> {
    Some(SumNames { sqlite: name, postgres: name, digest: Some(digest) })
}

/// The columns of the volume's own row that each commit may change. They have a sum of their own,
/// which is added to that of the others.
pub(crate) const COUNTERS: &[&str] = &["number", "op", "next_id", "next_block", "epoch", "bytes_used", "inodes_used"];

/// All tables, in the order in which they are made.
pub(crate) const ALL: &[Table] = &[
    Table { name: "volume", columns: VOLUME, is_of_one_row: true, ..PLAIN },
    Table { name: "lease", columns: LEASE, is_of_one_row: true, only: POSTGRES, ..PLAIN },
    Table { name: "intents", columns: INTENTS, only: POSTGRES, ..PLAIN },
    Table {
        name: "commits",
        columns: COMMITS,
        indices: &[Index { name: "commits_time", columns: &["time"], ..INDEX }],
        sums: sums("commits"),
        ..PLAIN
    },
    Table { name: "retention", columns: RETENTION, sums: sums("retention"), is_of_one_row: true, ..PLAIN },
    Table { name: "pins", columns: PINS, sums: sums("pins"), ..PLAIN },
    Table {
        name: "fileatt",
        columns: FILEATT,
        indices: &[Index { name: "fileatt_orphans", columns: &["ino"], filter: Some("nlink = 0"), ..INDEX }],
        sums: sums_and_digests("fileatt", "digest"),
        versions: Versions::ByCommit(&["digest", "inline"]),
        history_indices: &[Index { name: "fileatt_history_until", columns: &["until"], ..INDEX }],
        ..PLAIN
    },
    // Content changes more seldom than the attributes of a file, and more often than those of a
    // directory.
    Table {
        name: "content_history",
        columns: CONTENT_HISTORY,
        indices: &[Index { name: "content_history_until", columns: &["until"], ..INDEX }],
        ..PLAIN
    },
    Table {
        name: "naming",
        columns: NAMING,
        indices: &[
            Index { name: "naming_inode", columns: &["ino"], ..INDEX },
            Index {
                name: "naming_order",
                is_unique: true,
                columns: &["parent", "cookie"],
                read_along: &["ino", "kind", "since", "sum"],
                ..INDEX
            },
        ],
        sums: sums_and_digests("naming", "entry"),
        versions: Versions::ByFork(&["digest"]),
        ..PLAIN
    },
    Table {
        name: "extents",
        columns: EXTENTS,
        sums: Some(SumNames { sqlite: "extents", postgres: "owned extents", digest: None }),
        versions: Versions::ByFork(&[]),
        ..PLAIN
    },
    Table {
        name: "blocks",
        columns: BLOCKS,
        sums: Some(SumNames { sqlite: "blocks", postgres: "owned blocks", digest: None }),
        ..PLAIN
    },
    Table { name: "block_bytes", columns: BYTES_BY_ID, only: SQLITE, ..PLAIN },
    // The table that files' own tables are made like.
    Table { name: "blocks_of", columns: BYTES_BY_ID, only: POSTGRES, ..PLAIN },
    Table { name: "dropped", columns: &[number("owner").key()], only: POSTGRES, ..PLAIN },
    Table { name: "branches", columns: BRANCHES, sums: sums("branches"), ..PLAIN },
    Table { name: "nodes", columns: NODES, sums: sums("nodes"), ..PLAIN },
    Table { name: "xattr", columns: XATTR, sums: sums("xattr"), versions: Versions::ByFork(&[]), ..PLAIN },
    Table { name: "segments", columns: SEGMENTS, sums: sums("segments"), only: SQLITE, ..PLAIN },
    Table { name: "freed", columns: FREED, sums: sums("freed"), only: SQLITE, ..PLAIN },
];

const VOLUME: &[Column] = &[
    number("id").key(),
    number("format").only(POSTGRES),
    number("created"),
    bytes("uuid"),
    number("block_size"),
    number("inline_max"),
    column("home", Type::Text).only(SQLITE),
    number("bytes_max").or_null(),
    number("inodes_max").or_null(),
    column("digests", Type::Flag),
    number("own_table_from").or_null().only(POSTGRES),
    number("number"),
    number("op"),
    number("next_id"),
    number("next_block"),
    number("epoch"),
    number("bytes_used"),
    number("inodes_used"),
    SUM,
];

const LEASE: &[Column] =
    &[number("id").key(), number("epoch"), column("holder", Type::Text), column("expires", Type::Time).or_null()];

const INTENTS: &[Column] = &[number("epoch").key(), number("first").key(), number("last"), bytes("bytes")];

const COMMITS: &[Column] = &[
    number("number").key(),
    number("time"),
    number("op"),
    bytes("root_digest").or_null(),
    bytes("previous_digest").or_null(),
    SUM,
];

const RETENTION: &[Column] = &[
    number("id").key(),
    column("rule", Type::Text),
    column("readers", Type::Text),
    number("first"),
    number("swept"),
    SUM,
];

const PINS: &[Column] = &[
    number("commit_number").key(),
    number("kind").key(),
    bytes("name").key(),
    number("made"),
    number("held_until").or_null(),
    SUM,
];

const CONTENT_HISTORY: &[Column] = &[
    number("ino").key(),
    number("since"),
    number("until").key(),
    bytes("digest").or_null(),
    SUM,
    bytes("inline").or_null(),
];

const FILEATT: &[Column] = &[
    number("ino").key(),
    number("generation"),
    number("mode"),
    number("uid"),
    number("gid"),
    number("nlink"),
    number("rdev"),
    number("size"),
    number("allocated"),
    number("atime"),
    number("mtime"),
    number("ctime"),
    number("btime"),
    number("parent"),
    number("xattrs"),
    SINCE,
    SUM,
    DIGEST,
    DIGEST_SUM,
    bytes("inline").or_null(),
];

const NAMING: &[Column] = &[
    number("parent").key(),
    bytes("name").key(),
    number("ino"),
    number("kind"),
    number("cookie"),
    SINCE,
    SUM,
    DIGEST,
    DIGEST_SUM,
];

const EXTENTS: &[Column] = &[
    number("ino").key(),
    number("start").key(),
    number("length"),
    number("owner").only(POSTGRES),
    number("block"),
    SINCE,
    SUM,
];

const BLOCKS: &[Column] = &[
    number("owner").key().only(POSTGRES),
    number("id").key(),
    number("refs").as_a(Role::Counted),
    number("length"),
    number("base"),
    bytes("value"),
    number("segment").or_null().only(SQLITE),
    number("position").or_null().only(SQLITE),
    // They follow from the value, and so do the bytes.
    bytes("parts").or_null().as_a(Role::Uncovered).only(SQLITE),
    SUM,
    bytes("bytes").or_null().as_a(Role::Uncovered).only(POSTGRES),
];

const BYTES_BY_ID: &[Column] = &[number("id").key(), bytes("bytes")];

const BRANCHES: &[Column] = &[number("parent").key(), bytes("prefix").key(), bytes("children"), SUM];

const NODES: &[Column] = &[number("ino").key(), number("level").key(), number("idx").key(), bytes("children"), SUM];

const XATTR: &[Column] = &[number("ino").key(), bytes("name").key(), bytes("value"), SINCE, SUM];

const SEGMENTS: &[Column] = &[number("id").key(), number("length"), number("live"), SUM];

const FREED: &[Column] =
    &[number("id").as_a(Role::Label), number("segment"), number("position"), number("length"), SUM];
