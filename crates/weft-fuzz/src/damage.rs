//! Damage that can happen to the files of a volume.

use crate::volume::files;
use arbitrary::Arbitrary;
use rusqlite::Connection;
use rusqlite::types::Value;
use std::path::Path;

/// Tables that hold what users care for.
const TABLES: [&str; 9] =
    ["fileatt", "naming", "extents", "blocks", "xattr", "segments", "block_bytes", "freed", "commits"];

/// Something that happens.
#[derive(Arbitrary, Debug)]
pub enum Damage {
    /// Bits of a byte turn.
    Flip { of_segment: bool, at: u32, mask: u8 },
    /// A run of bytes is written over.
    Overwrite { of_segment: bool, at: u32, len: u16, byte: u8 },
    /// A file loses its end.
    Truncate { of_segment: bool, to: u32 },
    /// A row is gone.
    Remove { table: u8, row: u8 },
    /// A column of a row holds something else.
    Set { table: u8, row: u8, column: u8, value: Cell },
    /// A column of the volume's own row holds something else.
    SetHeader { column: u8, value: Cell },
}

/// A value that a column may hold.
#[derive(Arbitrary, Debug)]
pub enum Cell {
    Null,
    Small(u8),
    Number(i64),
    Real(f64),
    Text(u8),
    Blob(u8),
}

impl Cell {
    fn value(&self) -> Value {
        match self {
            Cell::Null => Value::Null,
            Cell::Small(number) => Value::Integer(i64::from(*number)),
            Cell::Number(number) => Value::Integer(*number),
            Cell::Real(number) => Value::Real(*number),
            Cell::Text(len) => Value::Text("a".repeat(usize::from(*len))),
            Cell::Blob(len) => Value::Blob(vec![b'a'; usize::from(*len)]),
        }
    }
}

impl Damage {
    /// True if a well-formed value took the place of another: two such changes may make a valid
    /// volume.
    pub fn is_edit(&self) -> bool {
        matches!(self, Damage::Set { .. } | Damage::SetHeader { .. })
    }

    /// Lets it happen to the volume at `path`, as far as it can.
    pub fn happen(&self, path: &Path) {
        match self {
            Damage::Flip { of_segment, at, mask } => change(path, *of_segment, |bytes| {
                let at = *at as usize % bytes.len();
                bytes[at] ^= mask;
            }),
            Damage::Overwrite { of_segment, at, len, byte } => change(path, *of_segment, |bytes| {
                let at = *at as usize % bytes.len();
                let end = (at + usize::from(*len)).min(bytes.len());
                bytes[at..end].fill(*byte);
            }),
            Damage::Truncate { of_segment, to } => change(path, *of_segment, |bytes| {
                bytes.truncate(*to as usize % bytes.len());
            }),
            Damage::Remove { table, row } => {
                let table = TABLES[usize::from(*table) % TABLES.len()];
                edit(path, table, *row, |selected| (format!("DELETE FROM {table} WHERE {selected}"), Value::Null));
            }
            Damage::Set { table, row, column, value } => {
                let table = TABLES[usize::from(*table) % TABLES.len()];
                set(path, table, *row, *column, value);
            }
            Damage::SetHeader { column, value } => set(path, "volume", 0, *column, value),
        }
    }
}

/// Changes the bytes of the database, or of the segment if there is one.
fn change(path: &Path, of_segment: bool, change: impl FnOnce(&mut Vec<u8>)) {
    let files = files(path);
    let file = if of_segment { &files[files.len() - 1] } else { &files[0] };
    let mut bytes = std::fs::read(file).expect("there");
    if !bytes.is_empty() {
        change(&mut bytes);
        std::fs::write(file, bytes).expect("written");
    }
}

fn set(path: &Path, table: &str, row: u8, column: u8, value: &Cell) {
    let Ok(connection) = Connection::open(&files(path)[0]) else { return };
    let columns = format!("SELECT name FROM pragma_table_info('{table}')");
    let columns: rusqlite::Result<Vec<String>> =
        connection.prepare(&columns).and_then(|mut statement| statement.query_map((), |row| row.get(0))?.collect());
    drop(connection);
    let Ok(columns) = columns else { return };
    if columns.is_empty() {
        return;
    }
    let column = &columns[usize::from(column) % columns.len()];
    edit(path, table, row, |selected| (format!("UPDATE {table} SET {column} = ?1 WHERE {selected}"), value.value()));
}

/// Runs a statement on a row of `table`; earlier damage may be in its way.
fn edit(path: &Path, table: &str, row: u8, statement: impl FnOnce(&str) -> (String, Value)) {
    let Ok(connection) = Connection::open(&files(path)[0]) else { return };
    let key = match table {
        "naming" => "parent || '/' || hex(name)",
        "extents" => "ino || '/' || start",
        "xattr" => "ino || '/' || hex(name)",
        "fileatt" => "ino",
        "commits" => "number",
        _ => "id",
    };
    let count = format!("SELECT count(*) FROM {table}");
    let Ok(count) = connection.query_row(&count, (), |row| row.get::<_, i64>(0)) else { return };
    if count > 0 {
        let offset = i64::from(row) % count;
        let (statement, value) =
            statement(&format!("{key} = (SELECT {key} FROM {table} ORDER BY 1 LIMIT 1 OFFSET {offset})"));
        let Ok(mut statement) = connection.prepare(&statement) else { return };
        let _ = if statement.parameter_count() == 1 { statement.execute((value,)) } else { statement.execute(()) };
    }
}
