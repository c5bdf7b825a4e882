//! Salvage of the readable parts of a broken volume, verified, into a new one.
//!
//! Rows are found page by page (`pages`, `rows`), whatever became of the tree over them. A file is
//! salvaged if its row is there, all of its blocks are, each hashes to its value, and together they
//! give the stored digest; where that is damaged, other proof of them counts (`undigested`). Blocks
//! whose rows are whole and whose bytes are not are salvaged as they are: they do not hash to their
//! values, so reading them is an error, as it was, and operations that wait in the intent log can
//! write over them. A file whose row is gone is made of its blocks, if each of them is whole, and
//! reported as missing: nobody knows if more followed them. The new volume is then checked and
//! repaired as any other: inodes without a name are found in `/lost+found`.

mod blocks;
mod intents;
mod log_pages;
mod logs;
mod made;
mod older;
mod pages;
mod rows;
mod spare;
mod undigested;

use super::check::{check, give_up_attributes};
use super::digests::Rows;
use super::layout::{INTENTS, Layout, beside, remove_file};
use super::making::Making;
use super::medium;
use super::open::{connect, create, hold, remove};
use super::put::{put_inode, put_name};
use super::read::{sql, unsigned};
use super::scan::Scan;
use super::segments::{Segments, Tail};
use super::sums;
use crate::FORMAT;
use crate::batch::Counters;
use crate::digests::{Digester, ZeroValues};
use crate::error::{Error, Result};
use crate::files::{self, rename_to_new};
use crate::finding::{CheckOptions, Outcome, Progress, Repair};
use crate::row::{BlockId, CommitNo, Ino, InodeRow, Span, Timestamp};
use crate::store::{Header, VolumeOptions};
use blocks::store;
use logs::Looked;
use pages::Pages;
use rows::Found;
use rusqlite::Connection;
use rustix::fs::{AtFlags, Mode, OFlags, fsync, openat, unlinkat};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use weft_digest::Kind;

/// Bytes of blocks written in one transaction.
const CHUNK_BYTES: u64 = 32 << 20;

fn failed(source: rusqlite::Error) -> Error {
    Error::Sqlite { what: "cannot write the new volume", source }
}

fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    move |source| Error::Io { what, path: path.into(), source }
}

/// The row of the volume in a page of the database, if that is all that the page holds.
pub(super) fn volume_in(page: &[u8]) -> Option<Header> {
    let record = pages::only_record(page)?;
    rows::volume(&record.columns).and_then(|(volume, holds)| holds.then_some(volume))
}

/// True if all rows in a page of the database have sums, lie in it as a whole and are as they were
/// written.
pub(super) fn holds(page: &[u8]) -> bool {
    pages::records(page).is_some_and(|records| !records.is_empty() && records.iter().all(rows::holds))
}

/// Something that could not be salvaged, or not as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Its kind: "file", "directory", "name", "page", "operations", "write-ahead log", …
    pub kind: &'static str,
    /// Its path, if that can be told; else what is known of it.
    pub what: Vec<u8>,
    /// The reason that it is missing.
    pub why: String,
}

/// The result of a salvage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// Files, all of their content verified but for damaged bytes.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Links, devices and the like.
    pub others: u64,
    /// Bytes of content.
    pub bytes: u64,
    /// Inodes among these that are in `/lost+found` now, under their numbers.
    pub nameless: u64,
    /// Files, links and devices among these whose digest is damaged, and which the hashes of their
    /// entries prove.
    pub by_entries: u64,
    /// The same where no entry does: the sums of rows and the hashes of blocks verify them, and
    /// that none is missing; but not that all are of one moment.
    pub by_rows: u64,
    /// Files among these that were made of the blocks that are known of them, and that no entry
    /// proves whole.
    pub unproved: u64,
    /// Files among these that have damaged bytes: reading those is an error.
    pub damaged: u64,
    /// Operations that were synced and wait in the intent log: the first mount applies them.
    pub waiting: u64,
    /// Everything that could not be salvaged.
    pub missing: Vec<Missing>,
}

/// Copies the readable parts of the volume at `path`, which nobody may have mounted and which stays
/// as it is, to a new volume at `new`. Works under the name `new` with `.unfinished` behind it.
/// Errors: `Locked`, `Unusable`, and those that keep the new volume from being made.
pub fn salvage(path: &Path, new: &Path, progress: &mut dyn FnMut(Progress)) -> Result<Salvaged> {
    salvage_as(&Making::default(), path, new, progress)
}

/// Does that, and has `making` know how far it is.
pub(super) fn salvage_as(
    making: &Making,
    path: &Path,
    new: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<Salvaged> {
    // Of both volumes: the new one is in a directory of the same owner's.
    let (layout, _rights) = Layout::enter(path)?;
    let _hold = medium::hold(&layout)?;
    layout.refuse_elsewhere(new)?;
    Layout::of(new, layout.home()).refuse_taken()?;
    let Looked { pages, mut found, damaged, mut missing } =
        logs::look(&layout, &mut |done, total| progress(Progress { step: "pages", done, total }))?;
    missing.extend(spare::take(&pages, &mut found));
    if found.inodes.is_empty() {
        return Err(Error::Unusable(format!("nothing of a Weft volume can be read in {}", layout.database.display())));
    }
    let current = logs::current(&layout, &found);
    let volume = current.or(found.volume.clone()).unwrap_or_else(|| guess(&layout, &found, &pages));
    let unfinished = new.with_added_extension("unfinished");
    if unfinished.symlink_metadata().is_ok() {
        return Err(Error::Unusable(format!(
            "{} exists: it is left from a salvage that was killed, or one is at work; remove it, then try again",
            unfinished.display()
        )));
    }
    making.begin(|| create(&unfinished, &volume.options, (0, 0), volume.created))?;
    let target = Layout::of(&unfinished, volume.options.home);
    let target_of = |cell| Some(rows::name(&pages.record(cell)?.columns)?.0.ino);
    let names = found.names.iter().filter_map(|(name, (_, cell))| Some((target_of(*cell)?, name))).collect();
    let told = Salvaged { missing, ..Salvaged::default() };
    let mut salvage = Salvage {
        pages: &pages,
        found: &found,
        layout: &layout,
        volume: &volume,
        names,
        remade: BTreeSet::new(),
        undigested: BTreeSet::new(),
        damaged_blocks: BTreeSet::new(),
        damaged_files: BTreeSet::new(),
        told,
        progress,
    };
    if damaged > 0 {
        salvage.miss("page", format!("{damaged} of {}", pages.count()), "what they held is not known");
    }
    match &found.volume {
        Some(own) if own.commit < found.newest() => {
            let why = format!("it is of commit {}, and other rows are of commit {}", own.commit.0, found.newest().0);
            salvage.miss("volume", "its own row".into(), why);
        }
        Some(_) => {}
        None => salvage.miss("volume", "its own row".into(), "block size and limits are guessed"),
    }
    if found.damaged > 0 {
        salvage.miss("row", format!("{} rows", found.damaged), "they are not as they were written");
    }
    let done = salvage.run(&target);
    let clear = || {
        // As all else that was made: the error is what the user must see.
        let _ = remove_file(&target.log);
        remove(&target, true);
    };
    making.end(|| done.and_then(|()| take_name(&target, new)).inspect_err(|_| clear()))?;
    Ok(salvage.told)
}

/// Gives the volume of `target` the name `new`, with its intent log, which lies beside one that is
/// one file.
fn take_name(target: &Layout, new: &Path) -> Result<()> {
    let failed = || io("cannot name the new volume", new);
    let volume = match target.segments {
        Some(_) => target.database.parent().unwrap_or(&target.database),
        None => &target.database,
    };
    // Both names are in the directory where it was made, wherever a path leads by now.
    let (directory, name) = files::directory_of(volume).map_err(failed())?;
    let new_name = new.file_name().unwrap_or_default();
    let log = beside(Path::new(new_name), INTENTS);
    let own_log = target.log.file_name().filter(|_| target.segments.is_none() && target.log.exists());
    if let Some(own_log) = own_log {
        rename_to_new(&directory, Path::new(own_log), &log).map_err(|errno| failed()(errno.into()))?;
    }
    if let Err(error) = rename_to_new(&directory, Path::new(name), Path::new(new_name)) {
        if own_log.is_some() {
            // It is nobody's there.
            let _ = unlinkat(&directory, &log, AtFlags::empty());
        }
        return Err(failed()(error.into()));
    }
    let synced = openat(&directory, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    synced.and_then(fsync).map_err(|errno| failed()(errno.into()))
}

/// Guesses the header of a volume whose own row is gone.
fn guess(layout: &Layout, found: &Found, pages: &Pages) -> Header {
    let block = |cell| pages.record(cell).and_then(|record| rows::block(record.row?, &record.columns));
    let longest =
        found.blocks.ids().flat_map(|id| found.blocks.of(id)).filter_map(block).map(|(block, ..)| block.length).max();
    let default = VolumeOptions::default();
    let options = VolumeOptions {
        block_size: longest.unwrap_or(default.block_size).next_power_of_two().clamp(4 << 10, 4 << 20),
        home: layout.home(),
        ..default
    };
    let options = VolumeOptions { inline_max: options.block_size, ..options };
    let since = found.inodes.values().map(|(since, _)| *since).max().unwrap_or(1);
    let commit = CommitNo(u64::try_from(since).unwrap_or(1));
    let counters = Counters { next_id: 16, next_block: 1, ..Counters::default() };
    Header { format: FORMAT, uuid: [0; 16], options, commit, created: Timestamp(0), counters }
}

struct Salvage<'a> {
    pages: &'a Pages,
    found: &'a Found,
    layout: &'a Layout,
    volume: &'a Header,
    /// A name of each inode.
    names: BTreeMap<Ino, &'a (Ino, Vec<u8>)>,
    /// Files that were made of their blocks alone.
    remade: BTreeSet<Ino>,
    /// Inodes, other than directories, whose digest is damaged.
    undigested: BTreeSet<Ino>,
    /// Blocks of files that were brought with other bytes than were written.
    damaged_blocks: BTreeSet<BlockId>,
    /// Files that have such blocks.
    damaged_files: BTreeSet<Ino>,
    told: Salvaged,
    progress: &'a mut dyn FnMut(Progress),
}

/// The blocks of an inode, by their index.
type Extents = BTreeMap<Span, BlockId>;

impl Salvage<'_> {
    fn miss(&mut self, kind: &'static str, what: String, why: impl Into<String>) {
        self.told.missing.push(Missing { kind, what: what.into_bytes(), why: why.into() });
    }

    fn miss_inode(&mut self, row: &InodeRow, why: impl Into<String>) {
        self.miss_of(row.kind, row.ino, why);
    }

    fn miss_of(&mut self, kind: Kind, ino: Ino, why: impl Into<String>) {
        let kind = match kind {
            Kind::File => "file",
            Kind::Directory => "directory",
            _ => "link",
        };
        let what = self.path(ino);
        self.told.missing.push(Missing { kind, what, why: why.into() });
    }

    fn run(&mut self, target: &Layout) -> Result<()> {
        let held = hold(target)?;
        let connection = connect(&target.database, 32)?;
        let begin = "PRAGMA synchronous = OFF; DELETE FROM fileatt; DELETE FROM commits";
        connection.execute_batch(begin).map_err(failed)?;
        let extents = self.extents();
        let blocks = self.bring_blocks(&connection, target, &extents)?;
        connection.execute_batch("BEGIN").map_err(failed)?;
        let inodes = self.bring_inodes(&connection, &extents, &blocks)?;
        self.bring_names(&connection, &inodes)?;
        self.bring_volume(&connection)?;
        self.drop_unlike(&connection, target)?;
        self.tell_damaged(&extents, &blocks)?;
        // The check makes a file of those that no file named.
        let unused = "DELETE FROM blocks WHERE refs > 0 AND id NOT IN (SELECT block FROM extents); \
                      DELETE FROM block_bytes WHERE id NOT IN (SELECT id FROM blocks); COMMIT; \
                      PRAGMA synchronous = FULL; PRAGMA wal_checkpoint(TRUNCATE)";
        connection.execute_batch(unused).map_err(failed)?;
        connection.close().map_err(|(_, source)| failed(source))?;
        // Before the check, which leaves them the ids that they may use.
        let is_current = self.found.volume.is_some() && self.volume.commit >= self.found.newest();
        let operations = intents::bring(self.layout, is_current.then_some(self.volume), target);
        self.told.waiting = operations.waiting;
        self.told.missing.extend(operations.missing);
        drop(held);
        self.check(target)?;
        self.count(target)
    }

    /// The row of an inode that is as it was written, with the commit that wrote it.
    fn row(&self, ino: Ino) -> Option<(InodeRow, i64)> {
        let record = self.pages.record(self.found.inodes.get(&ino)?.1)?;
        rows::inode(record.row?, &record.columns).map(|(row, since, ..)| (row, since))
    }

    fn extents(&self) -> BTreeMap<Ino, Extents> {
        let (mut extents, mut last) = (BTreeMap::<Ino, Extents>::new(), None);
        for ((ino, span), (since, block)) in &self.found.extents {
            if last.as_ref().is_none_or(|(known, _)| known != ino) {
                last = Some((*ino, self.row(*ino)));
            }
            let row = last.as_ref().and_then(|(_, row)| row.as_ref());
            // A block behind the end of a file is of before the file was cut.
            let is_gone = |row: &(InodeRow, i64)| *since < row.1 && span.start >= row.0.size;
            if !row.is_some_and(is_gone) && self.is_newest(*ino, *span, *since) {
                extents.entry(*ino).or_default().insert(*span, *block);
            }
        }
        extents
    }

    /// True if no newer extent covers some of the bytes.
    fn is_newest(&self, ino: Ino, span: Span, since: i64) -> bool {
        let block_size = u64::from(self.volume.options.block_size);
        let at = |start| (ino, Span { start, length: 0 });
        // None crosses a block.
        let near = at(span.start - span.start % block_size)..at(span.end());
        let others = self.found.extents.range(near).filter(|((_, other), _)| *other != span && other.overlaps(&span));
        !{ others }.any(|(_, (other, _))| *other > since)
    }

    /// Brings the blocks, each verified; tells which they are, and their lengths. Those that no
    /// file names, now or in the past, are brought as named by none.
    fn bring_blocks(
        &mut self,
        connection: &Connection,
        target: &Layout,
        extents: &BTreeMap<Ino, Extents>,
    ) -> Result<BTreeMap<BlockId, u32>> {
        let mut refs = BTreeMap::<BlockId, i64>::new();
        extents.values().flat_map(Extents::values).for_each(|block| *refs.entry(*block).or_insert(0) += 1);
        // What the past alone has is left with it.
        for block in self.found.blocks.ids().filter(|block| !self.found.past.contains(block)) {
            refs.entry(block).or_insert(0);
        }
        let from = self.layout.segments.clone().map(Segments::new_to_read);
        let into = target.segments.clone().map(Segments::new);
        let (mut tail, mut brought) = (Tail { segment: 1, length: 0 }, BTreeMap::new());
        let (mut chunk, mut bytes) = (Vec::new(), 0);
        let (mut kept, mut lost) = (0, 0);
        let total = refs.len() as u64;
        for (done, (id, count)) in refs.into_iter().enumerate() {
            let mut block = self.block(id, from.as_ref());
            if count == 0 {
                *(if block.is_some() { &mut kept } else { &mut lost }) += 1;
            } else if block.is_none() {
                block = self.damaged_block(id, from.as_ref());
                self.damaged_blocks.extend(block.as_ref().map(|_| id));
            }
            if let Some(block) = block {
                let length = block.bytes.len();
                brought.insert(id, u32::try_from(length).unwrap_or(u32::MAX));
                bytes += length as u64;
                chunk.push((block, count));
            }
            if bytes >= CHUNK_BYTES {
                tail = store(connection, &std::mem::take(&mut chunk), into.as_ref(), tail)?;
                bytes = 0;
                (self.progress)(Progress { step: "blocks", done: done as u64, total });
            }
        }
        store(connection, &chunk, into.as_ref(), tail)?;
        let whole = "whole; together they are a file in /lost+found, in the order they were written";
        self.tell_unnamed(kept, whole);
        self.tell_unnamed(lost, "whose bytes are damaged or gone");
        Ok(brought)
    }

    /// Reports blocks that no file names.
    fn tell_unnamed(&mut self, count: u64, what: &str) {
        if count > 0 {
            self.miss("block", "of no file".into(), format!("{count} in all, {what}"));
        }
    }

    /// Brings the rows of inodes that are whole; tells their kinds.
    fn bring_inodes(
        &mut self,
        connection: &Connection,
        extents: &BTreeMap<Ino, Extents>,
        blocks: &BTreeMap<BlockId, u32>,
    ) -> Result<BTreeMap<Ino, Kind>> {
        let (none, mut brought) = (Extents::new(), BTreeMap::new());
        for (ino, (_, cell)) in &self.found.inodes {
            let record = self.pages.record(*cell);
            let row = record.and_then(|record| rows::inode(record.row?, &record.columns));
            let Some((row, _, digest, _)) = row else { continue };
            let own = extents.get(ino).unwrap_or(&none);
            let lost = own.values().filter(|block| !blocks.contains_key(block)).count();
            let is_damaged = own.values().any(|block| self.damaged_blocks.contains(block));
            let stored = own.values().filter_map(|block| blocks.get(block)).map(|length| u64::from(*length));
            let stored = stored.sum::<u64>() + row.inline.as_ref().map_or(0, |inline| inline.len() as u64);
            if lost > 0 {
                self.miss_inode(&row, format!("{lost} of its blocks are damaged or gone"));
            } else if stored != row.allocated && row.kind != Kind::Directory {
                self.miss_inode(&row, format!("{stored} of its {} bytes are found", row.allocated));
            } else {
                if digest.is_none() && self.volume.options.digests && row.kind != Kind::Directory {
                    self.undigested.insert(*ino);
                }
                if is_damaged {
                    self.damaged_files.insert(*ino);
                }
                put_inode(connection, self.commit(), &row, digest.as_ref())?;
                brought.insert(*ino, row.kind);
            }
        }
        let kinds = self.kinds();
        self.bring_inlined(connection, extents, &kinds, &mut brought)?;
        self.remade = self.make_files(connection, extents, blocks, &kinds)?;
        brought.extend(self.remade.iter().map(|ino| (*ino, Kind::File)));
        let statement = "INSERT INTO extents (ino, start, length, block, since) VALUES (?1, ?2, ?3, ?4, ?5)";
        let mut statement = connection.prepare_cached(statement).map_err(failed)?;
        for (ino, own) in extents.iter().filter(|(ino, _)| brought.contains_key(ino)) {
            for (span, block) in own {
                let row = (sql(ino.0), sql(span.start), span.length, sql(block.0), sql(self.volume.commit.0));
                statement.execute(row).map_err(failed)?;
            }
        }
        self.bring_directories(connection, &mut brought)?;
        self.bring_xattrs(connection, &brought)?;
        self.miss_xattrs(connection)?;
        Ok(brought)
    }

    fn bring_xattrs(&mut self, connection: &Connection, inodes: &BTreeMap<Ino, Kind>) -> Result<()> {
        let statement = "INSERT INTO xattr (ino, name, value, since) VALUES (?1, ?2, ?3, ?4)";
        let mut statement = connection.prepare_cached(statement).map_err(failed)?;
        let older = self.older_xattrs();
        for ((ino, _), (_, cell)) in &self.found.xattrs {
            let record = self.pages.record(*cell).filter(|_| inodes.contains_key(ino) && !older.contains(ino));
            let Some((ino, name, value, ..)) = record.and_then(|record| rows::xattr(&record.columns)) else { continue };
            statement.execute((sql(ino.0), name.as_bytes(), value, sql(self.volume.commit.0))).map_err(failed)?;
        }
        Ok(())
    }

    /// Returns inodes of which more attributes are found than they have. Some were removed, and
    /// nothing tells which: none is brought, as they may be rights.
    fn older_xattrs(&mut self) -> BTreeSet<Ino> {
        let mut counts = BTreeMap::<Ino, u64>::new();
        for (ino, _) in self.found.xattrs.keys() {
            *counts.entry(*ino).or_default() += 1;
        }
        let rows = counts.into_iter().filter_map(|(ino, count)| Some((self.row(ino)?.0, count)));
        let older = rows.filter(|(row, count)| u64::from(row.xattrs) < *count).collect::<Vec<_>>();
        for (row, count) in older.iter().filter(|(row, _)| row.xattrs > 0) {
            let why =
                format!("{count} extended attributes are found of {}, and nothing tells which are older", row.xattrs);
            self.told.missing.push(Missing { kind: "attributes", what: self.path(row.ino), why });
        }
        older.into_iter().map(|(row, _)| row.ino).collect()
    }

    /// Reports inodes whose attributes were not all found, gives the attributes up, and closes the
    /// access that they may have closed.
    fn miss_xattrs(&mut self, connection: &Connection) -> Result<()> {
        let lacking = "SELECT f.ino, f.xattrs, count(x.ino) FROM fileatt f LEFT JOIN xattr x ON x.ino = f.ino \
                       WHERE f.xattrs > 0 GROUP BY f.ino HAVING count(x.ino) < f.xattrs";
        let mut statement = connection.prepare(lacking).map_err(failed)?;
        let read = |row: &rusqlite::Row<'_>| Ok((unsigned(row, 0)?, unsigned(row, 1)?, unsigned(row, 2)?));
        let rows = statement.query_map((), read).map_err(failed)?;
        for row in rows {
            let (ino, counted, found) = row.map_err(failed)?;
            let why = format!("{found} of {counted} extended attributes are found; closed to all but its owner");
            self.told.missing.push(Missing { kind: "attributes", what: self.path(Ino(ino)), why });
        }
        give_up_attributes(connection)
    }

    fn bring_names(&mut self, connection: &Connection, inodes: &BTreeMap<Ino, Kind>) -> Result<()> {
        let mut entries = BTreeMap::<Ino, u64>::new();
        for ((parent, _), (_, cell)) in &self.found.names {
            let record = self.pages.record(*cell);
            let Some((row, _, digest, _)) = record.and_then(|record| rows::name(&record.columns)) else { continue };
            *entries.entry(*parent).or_insert(0) += 1;
            let leads = inodes.get(&row.ino) == Some(&row.kind) && inodes.get(parent) == Some(&Kind::Directory);
            // One whose place in the listing another one has, gets a new place with its new name.
            let is_put = leads && put_name(connection, self.commit(), &row, digest.as_ref()).is_ok();
            if !is_put && !self.has_row(row.ino) && !self.has_extents(row.ino) {
                let what = below(self.path(*parent), row.name.as_bytes());
                let why = format!("inode {}, which it names, is gone", row.ino.0);
                self.told.missing.push(Missing { kind: "name", what, why });
            }
        }
        for (ino, (_, cell)) in &self.found.inodes {
            let record = self.pages.record(*cell);
            let row = record.and_then(|record| rows::inode(record.row?, &record.columns));
            let Some((row, ..)) = row.filter(|(row, ..)| row.kind == Kind::Directory) else { continue };
            let lost = row.size.saturating_sub(entries.get(ino).copied().unwrap_or(0));
            if lost > 0 {
                self.miss_inode(&row, format!("{lost} of its {} entries are gone", row.size));
            }
        }
        Ok(())
    }

    fn has_row(&self, ino: Ino) -> bool {
        self.found.inodes.contains_key(&ino) || self.found.damaged_inodes.contains_key(&ino)
    }

    fn has_extents(&self, ino: Ino) -> bool {
        self.found.extents.range(rows::extents_of(ino)).next().is_some()
    }

    fn bring_volume(&self, connection: &Connection) -> Result<()> {
        let (number, counters) = (sql(self.volume.commit.0), &self.volume.counters);
        // An odd epoch would need an intent log.
        let epoch = sql(counters.epoch + counters.epoch % 2);
        let statement = "UPDATE volume SET number = ?1, op = ?2, next_id = ?3, next_block = ?4, epoch = ?5";
        let row = (number, sql(counters.op.0), sql(counters.next_id), sql(counters.next_block), epoch);
        connection.execute(statement, row).map_err(failed)?;
        // All that was brought was verified.
        sums::seal(connection)
    }

    /// Drops content that has another digest than the stored one: rows of different moments, or
    /// damage that nothing else shows. Reports the rest that by its digests is not as it was.
    fn drop_unlike(&mut self, connection: &Connection, target: &Layout) -> Result<()> {
        if !self.volume.options.digests {
            return self.judge_made(None);
        }
        let digester = Digester::new(Arc::new(ZeroValues::default()));
        let segments = target.segments.clone().map(Segments::new_to_read);
        let rows = Rows { connection, segments: segments.as_ref(), wait: &|| (), elsewhere: None, keeping: None };
        let scan = Scan { digester: &digester, rows: &rows, block_size: u64::from(self.volume.options.block_size) };
        for (row, is_unread) in scan.unlike()? {
            // What was made of blocks has no digest yet, and that of damaged bytes cannot be told.
            let is_other = !self.remade.contains(&row.ino) && !self.undigested.contains(&row.ino);
            if !is_other || is_unread && self.damaged_files.contains(&row.ino) {
                continue;
            }
            self.damaged_files.remove(&row.ino);
            self.miss_inode(&row, "its content has another digest than was kept of it");
            drop_inode(connection, row.ino)?;
        }
        self.judge_made(Some(&scan))?;
        self.prove_undigested(connection, &scan)
    }

    /// Has the new volume checked and repaired: links are recounted, digests follow, inodes that
    /// lost their name get one.
    fn check(&mut self, target: &Layout) -> Result<()> {
        let options = CheckOptions { repair: Repair::Yes, read_data: false };
        let findings = check(&target.volume, options, self.progress)?;
        for finding in findings.into_iter().filter(|finding| finding.outcome == Outcome::Damaged) {
            let what = finding.path.unwrap_or_default();
            self.told.missing.push(Missing { kind: "damage", what, why: finding.what });
        }
        Ok(())
    }

    fn count(&mut self, target: &Layout) -> Result<()> {
        let connection = connect(&target.database, 8)?;
        let count = |what: &str| connection.query_row(what, (), |row| super::read::unsigned(row, 0)).map_err(failed);
        self.told.files = count("SELECT count(*) FROM fileatt WHERE mode & 61440 = 32768")?;
        self.told.directories = count("SELECT count(*) FROM fileatt WHERE mode & 61440 = 16384")?;
        self.told.others = count("SELECT count(*) FROM fileatt WHERE mode & 61440 NOT IN (16384, 32768)")?;
        self.told.bytes = count("SELECT coalesce(sum(allocated), 0) FROM fileatt")?;
        self.told.nameless = count(
            "SELECT count(*) FROM naming WHERE name >= CAST('#' AS BLOB) AND name < CAST('$' AS BLOB) AND parent IN \
             (SELECT ino FROM naming WHERE parent = 1 AND name = CAST('lost+found' AS BLOB))",
        )?;
        connection.close().map_err(|(_, source)| failed(source))
    }

    fn commit(&self) -> CommitNo {
        self.volume.commit
    }

    /// A path that led to `ino` in the broken volume.
    fn path(&self, ino: Ino) -> Vec<u8> {
        let (mut parts, mut at, mut seen) = (Vec::new(), ino, BTreeSet::new());
        while at != Ino::ROOT && seen.insert(at) {
            let Some((parent, name)) = self.names.get(&at) else {
                parts.push(format!("#{}", at.0).into_bytes());
                parts.reverse();
                return parts.join(&b'/');
            };
            parts.push(name.clone());
            at = *parent;
        }
        parts.push(Vec::new());
        parts.reverse();
        if parts.len() == 1 { b"/".to_vec() } else { parts.join(&b'/') }
    }
}

/// Takes back all that was brought of an inode.
fn drop_inode(connection: &Connection, ino: Ino) -> Result<()> {
    for table in ["fileatt", "extents", "xattr", "naming"] {
        let statement = format!("DELETE FROM {table} WHERE ino = ?1");
        connection.execute(&statement, (sql(ino.0),)).map_err(failed)?;
    }
    Ok(())
}

/// The path of `name` in the directory at `path`.
fn below(mut path: Vec<u8>, name: &[u8]) -> Vec<u8> {
    if !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend(name);
    path
}
