//! Which rows the records of a broken database are, by their shape: a page does not say of which
//! table it is.

use super::pages::{Cell, Look, Pages, Record, Value};
use crate::Name;
use crate::row::{BlockId, BlockRef, Cookie, Ino, InodeRow, NameRow, Place, Timestamp};
use crate::store::{BlockHome, VolumeOptions};
use std::collections::BTreeMap;
use weft_block::Slice;
use weft_digest::{Digest, Kind};

/// Where the newest version of each row lies.
#[derive(Default)]
pub(super) struct Found {
    pub(super) inodes: BTreeMap<Ino, (i64, Cell)>,
    pub(super) names: BTreeMap<(Ino, Vec<u8>), (i64, Cell)>,
    pub(super) extents: BTreeMap<(Ino, u64), (i64, BlockId)>,
    pub(super) blocks: BTreeMap<BlockId, Cell>,
    pub(super) bytes: BTreeMap<BlockId, Cell>,
    pub(super) xattrs: BTreeMap<(Ino, Vec<u8>), (i64, Cell)>,
    pub(super) volume: Option<Volume>,
}

/// The volume's own row.
#[derive(Clone, Debug)]
pub(super) struct Volume {
    pub(super) options: VolumeOptions,
    pub(super) created: Timestamp,
    pub(super) number: i64,
    pub(super) op: u64,
    pub(super) next_id: i64,
    pub(super) next_block: i64,
    pub(super) epoch: u64,
}

/// Puts what is newer.
fn put<K: Ord, V>(rows: &mut BTreeMap<K, (i64, V)>, key: K, since: i64, value: V) {
    match rows.get(&key) {
        Some((known, _)) if *known >= since => {}
        _ => drop(rows.insert(key, (since, value))),
    }
}

impl Found {
    /// Takes `record`, at `cell`, if it is a row that is brought.
    pub(super) fn take(&mut self, cell: Cell, record: &Record) {
        // Whoever knows checksums of rows asks for them here.
        match record.row {
            Some(row) => self.take_row(row, cell, &record.columns),
            None => {
                self.take_keyed(cell, &record.columns);
            }
        }
    }

    fn take_row(&mut self, row: i64, cell: Cell, columns: &[Value]) {
        if let Some((inode, since, _)) = inode(row, columns) {
            put(&mut self.inodes, inode.ino, since, cell);
        } else if let Some((block, _)) = block(row, columns) {
            self.blocks.insert(block.id, cell);
        } else if let Some(volume) = volume(columns) {
            self.volume = Some(volume);
        } else if let [Value::Null, Value::Blob(_)] = columns
            && let Ok(id) = u64::try_from(row)
        {
            self.bytes.insert(BlockId(id), cell);
        }
    }

    fn take_keyed(&mut self, cell: Cell, columns: &[Value]) -> Option<()> {
        if let Some((name, since, _)) = name(columns) {
            put(&mut self.names, (name.parent, name.name.as_bytes().to_vec()), since, cell);
        } else if let Some((ino, name, _, since)) = xattr(columns) {
            put(&mut self.xattrs, (ino, name.as_bytes().to_vec()), since, cell);
        } else if let [ino, index, block, since, rest @ ..] = columns {
            // The index of the order of names ends with a name.
            if rest.len() <= 1 && rest.iter().all(|value| value.blob().is_none()) {
                let (ino, index, block) = (Ino(ino.unsigned()?), index.unsigned()?, BlockId(block.unsigned()?));
                put(&mut self.extents, (ino, index), since.integer()?, block);
            }
        }
        Some(())
    }
}

/// Columns of a table, and perhaps one more.
fn of<const N: usize>(columns: &[Value]) -> Option<&[Value; N]> {
    columns.first_chunk::<N>().filter(|_| columns.len() <= N + 1)
}

fn digest(value: &Value) -> Option<Option<Digest>> {
    match value {
        Value::Null => Some(None),
        Value::Blob(bytes) => Some(bytes[..].try_into().ok()),
        Value::Integer(_) | Value::Real | Value::Text(_) => None,
    }
}

/// A row of `fileatt`, with the commit that wrote it and the digest.
pub(super) fn inode(row: i64, columns: &[Value]) -> Option<(InodeRow, i64, Option<Digest>)> {
    let columns = of::<18>(columns)?;
    let number = |at: usize| columns[at].unsigned().and_then(|number| u32::try_from(number).ok());
    let time = |at: usize| columns[at].integer().map(Timestamp);
    if !columns[0].is_null() {
        return None;
    }
    let mode = number(2)?;
    let inline = match &columns[17] {
        Value::Null => None,
        Value::Blob(bytes) => Some(Slice::from(bytes.clone())),
        Value::Integer(_) | Value::Real | Value::Text(_) => return None,
    };
    let inode = InodeRow {
        ino: Ino(u64::try_from(row).ok()?),
        generation: number(1)?,
        kind: Kind::from_mode(mode)?,
        permissions: mode & 0o7777,
        uid: number(3)?,
        gid: number(4)?,
        nlink: number(5)?,
        rdev: number(6)?,
        size: columns[7].unsigned()?,
        allocated: columns[8].unsigned()?,
        atime: time(9)?,
        mtime: time(10)?,
        ctime: time(11)?,
        btime: time(12)?,
        parent: Ino(columns[13].unsigned()?),
        has_xattrs: columns[14].integer()? != 0,
        inline,
    };
    Some((inode, columns[15].integer()?, digest(&columns[16])?))
}

/// A row of `naming`, with the commit that wrote it and the digest.
pub(super) fn name(columns: &[Value]) -> Option<(NameRow, i64, Option<Digest>)> {
    let [parent, name, ino, kind, cookie, since, hash] = of::<7>(columns)?;
    let row = NameRow {
        parent: Ino(parent.unsigned()?),
        name: Name::new(name.blob()?).ok()?,
        ino: Ino(ino.unsigned()?),
        kind: Kind::from_mode(u32::try_from(kind.unsigned()?).ok()?)?,
        cookie: Cookie(cookie.unsigned()?),
    };
    Some((row, since.integer()?, digest(hash)?))
}

/// A row of `xattr`, with the commit that wrote it.
pub(super) fn xattr(columns: &[Value]) -> Option<(Ino, Name, Vec<u8>, i64)> {
    let [ino, name, value, since] = of::<4>(columns)?;
    let name = Name::of_xattr(name.blob()?).ok()?;
    Some((Ino(ino.unsigned()?), name, value.blob()?.to_vec(), since.integer()?))
}

/// A row of `blocks`, with what verifies parts of the block.
pub(super) fn block(row: i64, columns: &[Value]) -> Option<(BlockRef, Vec<u8>)> {
    let [null, refs, length, base, value, segment, position, parts] = of::<8>(columns)?;
    refs.integer().filter(|_| null.is_null())?;
    let place = match segment {
        Value::Null => Place::Database,
        segment => Place::Segment { segment: u32::try_from(segment.unsigned()?).ok()?, offset: position.unsigned()? },
    };
    let block = BlockRef {
        id: BlockId(u64::try_from(row).ok()?),
        length: u32::try_from(length.unsigned()?).ok().filter(|length| *length > 0)?,
        base: base.unsigned()?,
        value: value.blob()?.try_into().ok()?,
        place,
    };
    Some((block, parts.blob().unwrap_or_default().to_vec()))
}

/// The one row of `volume`.
fn volume(columns: &[Value]) -> Option<Volume> {
    let columns = columns.first_chunk::<15>()?;
    let limit = |at: usize| columns[at].unsigned();
    let number = |at: usize| columns[at].unsigned().and_then(|number| u32::try_from(number).ok());
    let home = match &columns[4] {
        Value::Text(text) if text == b"segments" => BlockHome::Segments,
        Value::Text(text) if text == b"database" => BlockHome::Database,
        _ => return None,
    };
    let options = VolumeOptions {
        block_size: number(2)?,
        inline_max: number(3)?,
        home,
        bytes_max: limit(5),
        inodes_max: limit(6),
        digests: columns[7].integer()? != 0,
        own_table_from: None,
    };
    options.check().ok()?;
    Some(Volume {
        options,
        created: Timestamp(columns[1].integer()?),
        number: columns[8].integer()?,
        op: columns[9].unsigned()?,
        next_id: columns[10].integer()?,
        next_block: columns[11].integer()?,
        epoch: columns[12].unsigned()?,
    })
}

/// All rows that the pages hold, and how many pages are damaged.
pub(super) fn find(pages: &Pages, progress: &mut dyn FnMut(u64, u64)) -> (Found, u64) {
    let (free, mut found, mut damaged, mut others) = (pages.free(), Found::default(), 0, Vec::new());
    for page in (1..=pages.count()).filter(|page| !free.contains(page)) {
        if page % 1024 == 1 {
            progress(page.into(), pages.count().into());
        }
        match pages.each(page, &mut |cell, record| found.take(cell, &record)) {
            Look::Whole => {}
            Look::Other => others.push(page),
            Look::Damaged => damaged += 1,
        }
    }
    let lost = others.into_iter().filter(|page| !pages.is_rest(*page)).count();
    (found, damaged + lost as u64)
}
