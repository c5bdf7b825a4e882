//! Classifies the records of a broken database by their shape (a page does not say of which table
//! it is), and verifies them by their sums.

use super::pages::{Cell, Layer, Look, Pages, Record, Value};
use crate::batch::Counters;
use crate::row::{
    BlockId, BlockRef, CommitNo, CommitRow, Cookie, Ino, InodeRow, NameRow, OpNo, Place, Span, Timestamp,
};
use crate::sqlite::gap::VOLUME_PAGE;
use crate::sqlite::inlined::Suspect;
use crate::store::{BlockHome, Header, VolumeOptions};
use crate::{FORMAT, Name, sums};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use weft_block::Slice;
use weft_digest::{Digest, Kind};

/// The place of the newest version of each row.
#[derive(Default)]
pub(super) struct Found {
    pub(super) inodes: BTreeMap<Ino, (i64, Cell)>,
    pub(super) names: BTreeMap<(Ino, Vec<u8>), (i64, Cell)>,
    pub(super) extents: BTreeMap<(Ino, Span), (i64, BlockId)>,
    /// Blocks that versions of extents name: the past may be all that has them.
    pub(super) past: BTreeSet<BlockId>,
    pub(super) blocks: Copies,
    pub(super) bytes: Copies,
    pub(super) xattrs: BTreeMap<(Ino, Vec<u8>), (i64, Cell)>,
    pub(super) volume: Option<Header>,
    /// The last commit, as the page says that SQLite reads it from.
    pub(super) opened: Option<CommitNo>,
    /// The sums of the rows of commits, and their last operations.
    pub(super) commits: BTreeMap<CommitNo, (i64, OpNo)>,
    /// Rows of inodes that are not as they were written.
    pub(super) damaged_inodes: BTreeMap<Ino, Suspect>,
    /// Number of other such rows.
    pub(super) damaged: u64,
}

/// Copies of rows that do not say which commit wrote them: a disk that misplaced a write has an
/// older one beside the newest. All are kept, since what a block holds tells which is right.
#[derive(Default)]
pub(super) struct Copies {
    first: BTreeMap<BlockId, Cell>,
    others: BTreeMap<BlockId, Vec<Cell>>,
}

impl Copies {
    pub(super) fn put(&mut self, id: BlockId, cell: Cell) {
        match self.first.entry(id) {
            Entry::Vacant(place) => drop(place.insert(cell)),
            Entry::Occupied(_) => self.others.entry(id).or_default().push(cell),
        }
    }

    /// All rows of `id`.
    pub(super) fn of(&self, id: BlockId) -> impl Iterator<Item = Cell> {
        let others = self.others.get(&id).into_iter().flatten();
        self.first.get(&id).into_iter().chain(others).copied()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = BlockId> {
        self.first.keys().copied()
    }

    pub(super) fn has(&self, id: BlockId) -> bool {
        self.first.contains_key(&id)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_empty()
    }
}

/// Puts a value if it is newer.
fn put<K: Ord, V>(rows: &mut BTreeMap<K, (i64, V)>, key: K, since: i64, value: V) {
    match rows.get(&key) {
        Some((known, _)) if *known >= since => {}
        _ => drop(rows.insert(key, (since, value))),
    }
}

impl Found {
    /// Takes `record`, at `cell`, if it is a row that is brought.
    pub(super) fn take(&mut self, cell: Cell, record: &Record) {
        match record.row {
            Some(row) => self.take_row(row, cell, &record.columns),
            None => {
                self.take_keyed(cell, &record.columns);
            }
        }
    }

    fn take_row(&mut self, row: i64, cell: Cell, columns: &[Value]) {
        if let Some((inode, since, ..)) = inode(row, columns).filter(|(.., holds)| *holds) {
            put(&mut self.inodes, inode.ino, since, cell);
        } else if let Some(suspect) = suspect(row, columns) {
            self.damaged_inodes.insert(suspect.ino, suspect);
        } else if let Some((block, _, holds)) = block(row, columns) {
            match holds {
                true => self.blocks.put(block.id, cell),
                false => self.damaged += 1,
            }
        } else if let Some((volume, holds)) = volume(columns) {
            match holds {
                true => {
                    if cell.page() == VOLUME_PAGE {
                        self.opened = Some(volume.commit);
                    }
                    self.take_volume(volume);
                }
                false => self.damaged += 1,
            }
        } else if let Some((number, commit)) = commit(row, columns) {
            self.commits.insert(number, commit);
        } else if let [Value::Null, Value::Blob(_)] = columns
            && let Ok(id) = u64::try_from(row)
        {
            self.bytes.put(BlockId(id), cell);
        }
    }

    /// Takes a row of the volume if it is newer than the one that is known. Mounts are compared
    /// before commits: a volume whose newest commits were given up used their numbers again. The
    /// page that SQLite reads comes first, so that a row of another volume does not count.
    pub(super) fn take_volume(&mut self, volume: Header) {
        let age = |volume: &Header| (volume.counters.epoch, volume.commit);
        let is_newer = |known: &Header| known.uuid == volume.uuid && age(&volume) > age(known);
        if self.volume.as_ref().is_none_or(is_newer) {
            self.volume = Some(volume);
        }
    }

    fn take_keyed(&mut self, cell: Cell, columns: &[Value]) -> Option<()> {
        let holds = if let Some((name, since, _, holds)) = name(columns) {
            if holds {
                put(&mut self.names, (name.parent, name.name.as_bytes().to_vec()), since, cell);
            }
            holds
        } else if let Some((ino, name, _, since, holds)) = xattr(columns) {
            if holds {
                put(&mut self.xattrs, (ino, name.as_bytes().to_vec()), since, cell);
            }
            holds
        } else if let Some((block, holds)) = past_extent(columns) {
            if holds {
                self.past.insert(block);
            }
            // It is not brought.
            true
        } else {
            let (key, block, since, holds) = extent(columns)?;
            if holds {
                put(&mut self.extents, key, since, block);
            }
            holds
        };
        self.damaged += u64::from(!holds);
        Some(())
    }
}

impl Found {
    /// Returns the newest commit that left any row found.
    pub(super) fn newest(&self) -> CommitNo {
        let inodes = self.inodes.values().map(|(since, _)| *since);
        let names = self.names.values().map(|(since, _)| *since);
        let extents = self.extents.values().map(|(since, _)| *since);
        let xattrs = self.xattrs.values().map(|(since, _)| *since);
        let since = inodes.chain(names).chain(extents).chain(xattrs).max().map(number);
        let volume = self.volume.as_ref().map(|volume| volume.commit);
        let last = self.commits.keys().next_back().copied();
        since.max(volume).max(last).unwrap_or(CommitNo(0))
    }
}

/// The keys of all extents of an inode.
pub(super) fn extents_of(ino: Ino) -> Range<(Ino, Span)> {
    let first = Span { start: 0, length: 0 };
    (ino, first)..(ino.next(), first)
}

/// Columns of a table of so many.
fn of<const N: usize>(columns: &[Value]) -> Option<&[Value; N]> {
    columns.try_into().ok()
}

/// The number of a commit.
fn number(since: i64) -> CommitNo {
    CommitNo(u64::try_from(since).unwrap_or(0))
}

fn digest(value: &Value) -> Option<Option<Digest>> {
    match value {
        Value::Null => Some(None),
        Value::Blob(bytes) => Some(bytes[..].try_into().ok()),
        Value::Integer(_) | Value::Real | Value::Text(_) => None,
    }
}

/// A row of `fileatt`, with the commit that wrote it, the digest, and whether it is as written. A
/// digest that is not is none.
pub(super) fn inode(row: i64, columns: &[Value]) -> Option<(InodeRow, i64, Option<Digest>, bool)> {
    let columns = of::<20>(columns)?;
    let number = |at: usize| columns[at].unsigned().and_then(|number| u32::try_from(number).ok());
    let time = |at: usize| columns[at].integer().map(Timestamp);
    if !columns[0].is_null() {
        return None;
    }
    let mode = number(2)?;
    let inline = match &columns[19] {
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
        xattrs: number(14)?,
        inline,
    };
    let (since, hash) = (columns[15].integer()?, digest(&columns[17]).flatten());
    let hash = hash.filter(|hash| columns[18].integer() == Some(sums::digest(inode.ino, Some(hash))));
    let holds = sums::inode(&inode, self::number(since), None) == columns[16].integer()?;
    Some((inode, since, hash, holds))
}

/// A row of `fileatt` that is not as written, as far as it can be read.
fn suspect(row: i64, columns: &[Value]) -> Option<Suspect> {
    let columns = of::<20>(columns).filter(|columns| columns[0].is_null())?;
    let ino = Ino(u64::try_from(row).ok()?);
    let digest = (digest(&columns[17]).flatten(), columns[18].integer());
    Some(Suspect::new(ino, columns[2].unsigned(), columns[7].unsigned(), columns[19].blob(), digest))
}

/// A row of `naming`, with the commit that wrote it, the digest, and whether it is as written.
pub(super) fn name(columns: &[Value]) -> Option<(NameRow, i64, Option<Digest>, bool)> {
    let [parent, name, ino, kind, cookie, since, sum, hash, hash_sum] = of::<9>(columns)?;
    let row = NameRow {
        parent: Ino(parent.unsigned()?),
        name: Name::new(name.blob()?).ok()?,
        ino: Ino(ino.unsigned()?),
        kind: Kind::from_mode(u32::try_from(kind.unsigned()?).ok()?)?,
        cookie: Cookie(cookie.unsigned()?),
    };
    let (since, hash) = (since.integer()?, digest(hash).flatten());
    let own = sums::entry(row.parent, row.name.as_bytes(), hash.as_ref());
    let hash = hash.filter(|_| hash_sum.integer() == Some(own));
    let holds = sums::name(&row, number(since)) == sum.integer()?;
    Some((row, since, hash, holds))
}

/// A row of `xattr`, with the commit that wrote it, and whether it is as written.
pub(super) fn xattr(columns: &[Value]) -> Option<(Ino, Name, Vec<u8>, i64, bool)> {
    let [ino, name, value, since, sum] = of::<5>(columns)?;
    let (ino, name, value) = (Ino(ino.unsigned()?), Name::of_xattr(name.blob()?).ok()?, value.blob()?.to_vec());
    let since = since.integer()?;
    let holds = sums::xattr(ino, name.as_bytes(), &value, number(since)) == sum.integer()?;
    Some((ino, name, value, since, holds))
}

/// A row of `extents`: its key and its block, with the commit that wrote it, and whether it is as
/// written.
fn extent(columns: &[Value]) -> Option<((Ino, Span), BlockId, i64, bool)> {
    let [ino, start, length, block, since, sum] = of::<6>(columns)?;
    let (ino, block) = (Ino(ino.unsigned()?), block.unsigned()?);
    let span = Span { start: start.unsigned()?, length: u32::try_from(length.unsigned()?).ok()? };
    let (since, sum) = (since.integer()?, sum.integer()?);
    let holds = sums::extent(ino, span, block, number(since)) == sum;
    Some(((ino, span), BlockId(block), since, holds))
}

/// The block of a row of `extents_history`, and whether the row is as written.
fn past_extent(columns: &[Value]) -> Option<(BlockId, bool)> {
    let [_, ino, start, until, since, length, block, sum] = of::<8>(columns)?;
    let (ino, block) = (Ino(ino.unsigned()?), block.unsigned()?);
    let span = Span { start: start.unsigned()?, length: u32::try_from(length.unsigned()?).ok()? };
    let (since, until) = (number(since.integer()?), number(until.integer()?));
    let holds = sums::version(sums::extent(ino, span, block, since), until) == sum.integer()?;
    Some((BlockId(block), holds))
}

/// A row of `blocks`, with what verifies parts of the block, and whether it is as written.
pub(super) fn block(row: i64, columns: &[Value]) -> Option<(BlockRef, Vec<u8>, bool)> {
    let [null, refs, length, base, value, segment, position, parts, sum] = of::<9>(columns)?;
    let refs = refs.integer().filter(|_| null.is_null())?;
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
    let holds = sums::block(&block, refs) == sum.integer()?;
    Some((block, parts.blob().unwrap_or_default().to_vec(), holds))
}

/// The number of a row of `commits`, its sum and its last operation, if it is as written.
fn commit(row: i64, columns: &[Value]) -> Option<(CommitNo, (i64, OpNo))> {
    let [null, time, op, root, previous, sum] = of::<6>(columns)?;
    let number = CommitNo(u64::try_from(row).ok().filter(|_| null.is_null())?);
    let (time, op) = (Timestamp(time.integer()?), OpNo(op.unsigned()?));
    let commit = CommitRow { number, time, op, root: digest(root)?, previous: digest(previous)? };
    let sum = sum.integer()?;
    (sums::commit(&commit) == sum).then_some((number, (sum, op)))
}

/// The one row of `volume`, and whether it is as written.
pub(super) fn volume(columns: &[Value]) -> Option<(Header, bool)> {
    let columns = of::<17>(columns)?;
    let limit = |at: usize| columns[at].unsigned();
    let number = |at: usize| columns[at].unsigned().and_then(|number| u32::try_from(number).ok());
    let home = match &columns[5] {
        Value::Text(text) if text == b"segments" => BlockHome::Segments,
        Value::Text(text) if text == b"database" => BlockHome::Database,
        _ => return None,
    };
    let options = VolumeOptions {
        block_size: number(3)?,
        inline_max: number(4)?,
        home,
        bytes_max: limit(6),
        inodes_max: limit(7),
        digests: columns[8].integer()? != 0,
        own_table_from: None,
    };
    options.check().ok()?;
    let header = Header {
        format: FORMAT,
        uuid: columns[2].blob()?.try_into().ok()?,
        options,
        commit: CommitNo(columns[9].unsigned()?),
        created: Timestamp(columns[1].integer()?),
        counters: Counters {
            op: OpNo(columns[10].unsigned()?),
            next_id: columns[11].unsigned()?,
            next_block: columns[12].unsigned()?,
            epoch: columns[13].unsigned()?,
            bytes_used: columns[14].unsigned()?,
            inodes_used: columns[15].unsigned()?,
        },
    };
    let holds = header.sum() == columns[16].integer()?;
    Some((header, holds))
}

/// True if `record` is a row with a sum, and as it was written.
pub(super) fn holds(record: &Record) -> bool {
    let columns = &record.columns[..];
    let proves = |hash: Option<Digest>, column: usize| hash.is_some() || columns[column].is_null();
    match record.row {
        Some(row) => {
            inode(row, columns).is_some_and(|(.., hash, holds)| holds && proves(hash, 17))
                || block(row, columns).is_some_and(|(.., holds)| holds)
                || volume(columns).is_some_and(|(_, holds)| holds)
                || commit(row, columns).is_some()
        }
        None => {
            name(columns).is_some_and(|(.., hash, holds)| holds && proves(hash, 7))
                || xattr(columns).is_some_and(|(.., holds)| holds)
                || extent(columns).is_some_and(|(.., holds)| holds)
        }
    }
}

/// All rows that the pages hold, and how many pages are damaged.
pub(super) fn find(pages: &Pages, progress: &mut dyn FnMut(u64, u64)) -> (Found, u64) {
    let (free, mut found, mut damaged, mut others) = (pages.free(Layer::Newest), Found::default(), 0, Vec::new());
    for page in (1..=pages.count()).filter(|page| !free.contains(page)) {
        if page % 1024 == 1 {
            progress(page.into(), pages.count().into());
        }
        match pages.each(Layer::Newest, page, &mut |cell, record| found.take(cell, &record)) {
            Look::Whole => {}
            Look::Other => others.push(page),
            Look::Damaged => damaged += 1,
        }
    }
    let lost = others.into_iter().filter(|page| !pages.is_rest(*page)).count();
    (found, damaged + lost as u64)
}

/// All rows of the state before the damage in the write-ahead log.
pub(super) fn find_before(pages: &Pages) -> Found {
    let (free, mut found) = (pages.free(Layer::Before), Found::default());
    for page in (1..=pages.count()).filter(|page| !free.contains(page)) {
        pages.each(Layer::Before, page, &mut |cell, record| found.take(cell, &record));
    }
    found
}

/// All rows that are in pages which the list of free pages names.
pub(super) fn find_free(pages: &Pages) -> Found {
    let mut found = Found::default();
    for page in pages.free(Layer::Newest).into_iter().filter(|page| *page <= pages.count()) {
        pages.each(Layer::Newest, page, &mut |cell, record| found.take(cell, &record));
    }
    found
}
