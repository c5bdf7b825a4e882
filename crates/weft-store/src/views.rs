//! Views for people who read the past of a volume by SQL: `docs/reference/sql.md` describes them.
//!
//! Weft itself never reads them. A new volume has them, and a volume that was made before gets them
//! when its history is set or it is upgraded, as far as the role may make views. So a volume
//! without them is in order.

use crate::tables::Dialect;

/// Names of the views, in the order in which they are made.
pub(crate) const NAMES: [&str; 5] = ["files_at", "history", "name_versions", "commit_list", "snapshots"];

/// The view of the files of the present, which is as old as the format.
pub(crate) const FILES: &str = "files";

/// True if Weft makes a view of that name.
pub(crate) fn is_ours(name: &str) -> bool {
    name == FILES || NAMES.contains(&name)
}

/// Returns the statements that make the views where they are not there yet, each with the name of
/// its view.
pub(crate) fn statements(dialect: Dialect) -> Vec<(&'static str, String)> {
    let make = match dialect {
        Dialect::Sqlite => "CREATE VIEW IF NOT EXISTS",
        Dialect::Postgres => "CREATE OR REPLACE VIEW",
    };
    NAMES.into_iter().map(|name| (name, format!("{make} {name} AS\n{}", selected(name, dialect)))).collect()
}

fn selected(name: &str, dialect: Dialect) -> String {
    match name {
        "files_at" => files_at(dialect),
        "history" => history(dialect),
        "name_versions" => name_versions(dialect),
        "commit_list" => commit_list(dialect),
        _ => snapshots(dialect),
    }
}

/// A column of nanoseconds as a time.
fn time(column: &str, dialect: Dialect) -> String {
    match dialect {
        Dialect::Sqlite => format!("strftime('%Y-%m-%dT%H:%M:%fZ', {column} / 1e9, 'unixepoch')"),
        Dialect::Postgres => format!("to_timestamp({column} / 1e9)"),
    }
}

/// The time of the commit that `number` names; none once it is not remembered any more.
fn time_of(number: &str, dialect: Dialect) -> String {
    format!("(SELECT {} FROM commits t WHERE t.number = {number})", time("t.time", dialect))
}

/// A column of bytes as text.
fn text(column: &str, dialect: Dialect) -> String {
    match dialect {
        Dialect::Sqlite => format!("CAST({column} AS TEXT)"),
        Dialect::Postgres => format!("encode({column}, 'escape')"),
    }
}

/// An expression of bytes in hexadecimal.
fn hex(bytes: &str, dialect: Dialect) -> String {
    match dialect {
        Dialect::Sqlite => format!("nullif(lower(hex({bytes})), '')"),
        Dialect::Postgres => format!("encode({bytes}, 'hex')"),
    }
}

fn kind(mode: &str) -> String {
    format!(
        "CASE {mode} & 61440 WHEN 32768 THEN 'file' WHEN 16384 THEN 'directory' WHEN 40960 THEN 'symlink' \
         WHEN 45056 THEN 'transformation' WHEN 4096 THEN 'fifo' WHEN 49152 THEN 'socket' \
         WHEN 8192 THEN 'char device' WHEN 24576 THEN 'block device' END"
    )
}

/// Permissions as octal digits.
fn permissions(mode: &str, dialect: Dialect) -> String {
    match dialect {
        Dialect::Sqlite => format!("printf('%04o', {mode} & 4095)"),
        Dialect::Postgres => {
            let digit = |bits: u32| format!("(({mode} >> {bits}) & 7)::text");
            [9, 6, 3, 0].map(digit).join(" || ")
        }
    }
}

/// Attributes of an inode; `of` gives the expression for a column.
fn attributes(of: impl Fn(&str) -> String, dialect: Dialect) -> String {
    let mode = of("mode");
    let plain = ["uid", "gid", "nlink", "size", "allocated"].map(|column| format!("{} AS {column}", of(column)));
    let times = ["mtime", "ctime", "btime"].map(|column| format!("{} AS {column}", time(&of(column), dialect)));
    format!(
        "{} AS kind,\n    {} AS permissions,\n    {},\n    {}",
        kind(&mode),
        permissions(&mode, dialect),
        plain.join(", "),
        times.join(",\n    ")
    )
}

/// True of the commits `c` that are kept.
const IS_KEPT: &str = "(c.number >= (SELECT first FROM retention) OR c.number IN (SELECT commit_number FROM pins))";

/// The tree as of each commit that is kept. It is fast where `commit_number` is given: SQLite then
/// makes the list of that commit's paths once, as JSON, since it has no lateral joins.
fn files_at(dialect: Dialect) -> String {
    let attributes = attributes(|column| format!("coalesce(p.{column}, h.{column})"), dialect);
    let digest = hex("CASE WHEN d.until IS NULL THEN f.digest WHEN d.since <= c.number THEN d.digest END", dialect);
    let entries = entries(dialect);
    let (path, parent, name, ino, tree, version) = match dialect {
        Dialect::Sqlite => {
            let item = |place: u8| format!("json_extract(e.value, '$[{place}]')");
            let ino = item(3);
            let version = |table: &str, more: &str| {
                format!(
                    "{table} ON {more} = {ino} AND {}.until =\n        \
                     (SELECT min(v.until) FROM {} v WHERE v.ino = {ino} AND v.until > c.number)",
                    more.trim_end_matches(".ino"),
                    table.split(' ').next().unwrap_or_default()
                )
            };
            let versions = [version("fileatt_history h", "h.ino"), version("content_history d", "d.ino")];
            (item(0), item(1), item(2), ino, format!("json_each(({entries}\n    )) e"), versions)
        }
        Dialect::Postgres => {
            let version = |table: &str, name: &str| {
                format!(
                    "LATERAL\n        (SELECT v.* FROM {table} v WHERE v.ino = e.ino AND v.until > c.number \
                     ORDER BY v.until LIMIT 1) {name} ON true"
                )
            };
            let versions = [version("fileatt_history", "h"), version("content_history", "d")];
            let [path, parent, name, ino] = ["path", "parent", "name", "ino"].map(|column| format!("e.{column}"));
            (path, parent, name, ino, format!("LATERAL ({entries}\n    ) e"), versions)
        }
    };
    let [inode, content] = version;
    format!(
        "SELECT c.number AS commit_number,
    {path} AS path,
    {parent} AS parent,
    {name} AS name,
    {ino} AS ino,
    {attributes},
    {digest} AS digest
FROM commits c
    CROSS JOIN {tree}
    LEFT JOIN fileatt f ON f.ino = {ino}
    LEFT JOIN fileatt p ON p.ino = {ino} AND p.since <= c.number
    LEFT JOIN {inode}
    LEFT JOIN {content}
WHERE {IS_KEPT}"
    )
}

/// The entries of all directories as of commit `c`, from the root on.
fn entries(dialect: Dialect) -> String {
    let name = text("n.name", dialect);
    let entry = format!("rtrim(tree.path, '/') || '/' || {name}, n.parent, {name}, n.ino");
    match dialect {
        Dialect::Sqlite => format!(
            "
        WITH RECURSIVE forks (fork, bit) AS (
            SELECT c.number | 1, 1
            UNION ALL
            SELECT ((c.number >> bit) << bit) | (1 << bit), bit + 1 FROM forks
            WHERE 1 << bit <= (SELECT max(number) FROM commits)
        ),
        tree (path, parent, name, ino) AS (
            SELECT '/', NULL, '', 1
            UNION ALL
            SELECT {entry} FROM tree CROSS JOIN naming n WHERE n.parent = tree.ino AND n.since <= c.number
            UNION ALL
            SELECT {entry} FROM tree CROSS JOIN naming_history n
            WHERE n.fork IN (SELECT fork FROM forks) AND n.parent = tree.ino AND n.since <= c.number AND n.until > c.number
        )
        SELECT json_group_array(json_array(path, parent, name, ino)) FROM tree"
        ),
        Dialect::Postgres => format!(
            "
        WITH RECURSIVE tree (path, parent, name, ino) AS (
            SELECT '/'::text, NULL::bigint, ''::text, 1::bigint
            UNION ALL
            SELECT {entry} FROM tree CROSS JOIN LATERAL (
                SELECT parent, name, ino FROM naming WHERE parent = tree.ino AND since <= c.number
                UNION ALL
                SELECT parent, name, ino FROM naming_history
                WHERE fork = ANY (ARRAY(
                    SELECT ((c.number >> bit) << bit) | (1::bigint << bit) FROM generate_series(0, 61) bit
                )) AND parent = tree.ino AND since <= c.number AND until > c.number
            ) n
        )
        SELECT path, parent, name, ino FROM tree"
        ),
    }
}

/// A row of the present or a version of it: with the commits that wrote and replaced it.
fn versions(table: &str, columns: &str, dialect: Dialect) -> String {
    let none = if dialect == Dialect::Sqlite { "NULL" } else { "NULL::bigint" };
    let one = |table: &str, until: &str| {
        format!(
            "SELECT {columns},\n    v.since, {until} AS until,\n    {} AS since_time,\n    {} AS until_time\nFROM {table} v",
            time_of("v.since", dialect),
            time_of(until, dialect)
        )
    };
    format!("{}\nUNION ALL\n{}", one(table, none), one(&format!("{table}_history"), "v.until"))
}

/// All versions of inodes' attributes.
fn history(dialect: Dialect) -> String {
    let attributes = attributes(|column| format!("v.{column}"), dialect);
    versions("fileatt", &format!("v.ino,\n    {attributes}"), dialect)
}

/// All versions of entries of directories.
fn name_versions(dialect: Dialect) -> String {
    let name = text("v.name", dialect);
    versions("naming", &format!("v.parent, {name} AS name, v.ino,\n    {} AS kind", kind("v.kind")), dialect)
}

/// The commits that are remembered.
fn commit_list(dialect: Dialect) -> String {
    let (time, digest) = (time("c.time", dialect), hex("c.root_digest", dialect));
    let kept = match dialect {
        Dialect::Sqlite => format!("coalesce({IS_KEPT}, 0)"),
        Dialect::Postgres => format!("coalesce({IS_KEPT}, false)"),
    };
    format!(
        "SELECT c.number AS commit_number,\n    {time} AS time,\n    {kept} AS is_kept,\n    {digest} AS digest\nFROM commits c"
    )
}

/// The snapshots.
fn snapshots(dialect: Dialect) -> String {
    format!(
        "SELECT {} AS name,\n    p.commit_number,\n    {} AS time,\n    {} AS made,\n    {} AS held_until\n\
         FROM pins p WHERE p.kind = 2",
        text("p.name", dialect),
        time_of("p.commit_number", dialect),
        time("p.made", dialect),
        time("p.held_until", dialect)
    )
}
