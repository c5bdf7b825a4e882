//! Segment files: blocks appended one after another, read at their place, punched out when dead.
//!
//! A block of 4096 bytes or more starts at a multiple of 4096, so that punching it gives all of it
//! back. A commit begins at one. What a failed commit of this process appended is written over by
//! the next one: nothing names it. What an earlier process left there may be named by a newer
//! database: it stays, and writing goes on in a new segment.

mod direct;
mod known;
mod writer;

use super::layout::Layout;
use crate::batch::NewBlock;
use crate::copies::sync_directory;
use crate::error::{Error, Result};
use crate::files;
use crate::row::Place;
use crate::store::ReadMode;
use parking_lot::Mutex;
use rustix::fs::{Advice, FallocateFlags, SeekFrom, fadvise, fallocate, seek};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::IoSliceMut;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weft_block::{Block, Buffer};

/// Alignment of large blocks, and what a file system can punch.
pub(super) const PAGE: u64 = 4096;

/// Bytes after which a new segment is begun.
const SEGMENT_BYTES_MAX: u64 = 256 << 20;

/// Bytes read ahead of a sequential reader.
const READ_AHEAD_BYTES: u64 = 4 << 20;

/// Segment files kept open.
const OPEN_MAX: usize = 64;

/// The segments of a volume.
pub(super) struct Segments {
    directory: PathBuf,
    /// True if files may be written.
    writes: bool,
    open: Mutex<Vec<Open>>,
    /// Files written since they were last synced without error: a descriptor hears only of errors
    /// since it was opened.
    unsynced: Mutex<BTreeMap<u32, Arc<File>>>,
    /// True if the directory has names that may not be on the disk.
    has_new_names: AtomicBool,
    /// Files that must stay where they are.
    known: known::Known,
}

struct Open {
    id: u32,
    file: Arc<File>,
    /// The same file past the page cache, where the file system can do that.
    direct: Option<Arc<File>>,
    /// Offset at which a sequential reader would go on, and the end of what was asked for ahead.
    next: u64,
    ahead: u64,
}

/// The place of the next block. Owned by the writer; changed only by commits that succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tail {
    pub(super) segment: u32,
    pub(super) length: u64,
}

/// A part of a segment that no block of the database lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unowned {
    pub(super) segment: u32,
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// Bytes that a block of `length` bytes takes in its segment.
pub(super) fn taken(length: u64) -> u64 {
    if length < PAGE { length } else { length.next_multiple_of(PAGE) }
}

impl Segments {
    pub(super) fn new(directory: PathBuf) -> Segments {
        Segments {
            directory,
            writes: true,
            open: Mutex::default(),
            unsynced: Mutex::default(),
            has_new_names: AtomicBool::new(false),
            known: known::Known::default(),
        }
    }

    /// Returns the segments of the volume of `layout`, if it has any.
    pub(super) fn of(layout: &Layout) -> Option<Segments> {
        layout.segments.clone().map(Segments::new)
    }

    /// Returns the segments in a directory where nothing can be written.
    pub(super) fn new_to_read(directory: PathBuf) -> Segments {
        Segments { writes: false, ..Segments::new(directory) }
    }

    fn path(&self, id: u32) -> PathBuf {
        self.directory.join(format!("{id:08}.seg"))
    }

    fn io(&self, what: &'static str, id: u32, source: impl Into<std::io::Error>) -> Error {
        Error::Io { what, path: self.path(id), source: source.into() }
    }

    /// The file of segment `id`; made if `make`.
    fn file(&self, id: u32, make: bool) -> Result<Arc<File>> {
        Ok(self.files(id, make)?.0)
    }

    /// The file of segment `id`, made if `make`; and the same past the page cache, where that can
    /// be had.
    fn files(&self, id: u32, make: bool) -> Result<(Arc<File>, Option<Arc<File>>)> {
        let mut open = self.open.lock();
        if let Some(found) = open.iter().find(|open| open.id == id) {
            return Ok((found.file.clone(), found.direct.clone()));
        }
        let path = self.path(id);
        if make && !path.exists() {
            self.has_new_names.store(true, Ordering::Release);
        }
        let mut options = files::options();
        options.read(true).write(self.writes).create(make).truncate(false);
        let file = match files::open(&options, &path) {
            Ok(file) => Arc::new(file),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(Error::Corrupt(format!("segment file {} is missing", path.display())));
            }
            Err(error) => return Err(self.io("cannot open", id, error)),
        };
        let direct = direct::open(&path, self.writes).map_err(|error| self.io("cannot open", id, error))?.map(Arc::new);
        if self.writes {
            [Some(&file), direct.as_ref()]
                .into_iter()
                .flatten()
                .try_for_each(|file| self.known.open(id, file, &path))?;
        }
        // What follows a block is read ahead when that is what comes next (`read_ahead`), and not
        // else.
        let _ = fadvise(&*file, 0, None, Advice::Random);
        if open.len() >= OPEN_MAX {
            open.remove(0);
        }
        open.push(Open { id, file: file.clone(), direct: direct.clone(), next: 0, ahead: 0 });
        Ok((file, direct))
    }

    /// Returns the places of `blocks` if they are appended after `tail`, and the new tail.
    pub(super) fn assign(mut tail: Tail, blocks: &[NewBlock]) -> (Vec<Place>, Tail) {
        // What is durable already shares no page with what is written now.
        tail.length = tail.length.next_multiple_of(PAGE);
        let mut places = Vec::with_capacity(blocks.len());
        for block in blocks {
            let length = block.bytes.len() as u64;
            let mut offset = if length < PAGE { tail.length } else { tail.length.next_multiple_of(PAGE) };
            if offset + length > SEGMENT_BYTES_MAX && tail.length > 0 {
                tail.segment += 1;
                offset = 0;
            }
            places.push(Place::Segment { segment: tail.segment, offset });
            // Nothing else may lie in the last page of a large block: it is punched with it.
            tail.length = offset + taken(length);
        }
        (places, tail)
    }

    /// Appends `blocks` at `places`, which [`Segments::assign`] gave.
    pub(super) fn append(&self, blocks: &[NewBlock], places: &[Place]) -> Result<()> {
        let mut from = 0;
        while from < blocks.len() {
            let segment = segment_of(places[from]).0;
            let same = places[from..].iter().take_while(|place| segment_of(**place).0 == segment).count();
            self.write(segment, &blocks[from..from + same], &places[from..from + same])?;
            from += same;
        }
        Ok(())
    }

    fn write(&self, segment: u32, blocks: &[NewBlock], places: &[Place]) -> Result<()> {
        let (file, direct) = self.files(segment, true)?;
        self.unsynced.lock().insert(segment, file.clone());
        let placed = blocks.iter().zip(places).map(|(block, place)| (segment_of(*place).1, &block.bytes));
        let placed = placed.collect::<Vec<_>>();
        let written = writer::write(&file, direct.as_deref(), &placed);
        written.map_err(|error| self.io("cannot append to", segment, error))
    }

    /// Makes the blocks at `places`, in the order they were appended, durable. After a failed sync
    /// its bytes are never synced again: the next try rewrites the blocks.
    pub(super) fn sync(&self, places: &[Place]) -> Result<()> {
        let mut segments = places.iter().map(|place| segment_of(*place).0).collect::<Vec<_>>();
        segments.dedup();
        for segment in segments {
            let written = self.unsynced.lock().get(&segment).cloned();
            let file = written.map_or_else(|| self.file(segment, false), Ok)?;
            file.sync_data().map_err(|error| self.io("cannot sync", segment, error))?;
            if file.metadata().is_ok_and(|metadata| metadata.nlink() == 0) {
                let removed = std::io::Error::other("the file was removed");
                return Err(self.io("cannot sync", segment, removed));
            }
            self.unsynced.lock().remove(&segment);
        }
        if self.has_new_names.load(Ordering::Acquire) {
            sync_directory(&self.directory)?;
            self.has_new_names.store(false, Ordering::Release);
        }
        Ok(())
    }

    /// `length` bytes at `offset` of a segment; none if they would have to be waited for.
    pub(super) fn read(&self, segment: u32, offset: u64, length: usize, mode: ReadMode) -> Result<Option<Block>> {
        let file = self.file(segment, false)?;
        let mut bytes = Buffer::any(length);
        let flags = match mode {
            ReadMode::CachedOnly => ReadWriteFlags::NOWAIT,
            ReadMode::Blocking => ReadWriteFlags::empty(),
        };
        self.read_ahead(segment, &file, offset, length as u64);
        let mut at = 0;
        while at < length {
            let read = preadv2(&*file, &mut [IoSliceMut::new(&mut bytes[at..])], offset + at as u64, flags);
            match read {
                Ok(0) => return Err(Error::Corrupt(format!("{} is too short", self.path(segment).display()))),
                Ok(count) => at += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::OPNOTSUPP) if mode == ReadMode::CachedOnly => return Ok(None),
                Err(error) => return Err(self.io("cannot read", segment, error)),
            }
        }
        Ok(Some(bytes.freeze()))
    }

    /// Blocks of `lengths`, which lie one after another from `offset` of a segment on, each from a
    /// page of its own; past the page cache where the file system can do that. None if they cannot
    /// be read together.
    pub(super) fn read_run(&self, segment: u32, offset: u64, lengths: &[usize]) -> Option<Vec<Block>> {
        let (file, direct) = self.files(segment, false).ok()?;
        direct::read(direct.as_ref().unwrap_or(&file), offset, lengths)
    }

    /// Bytes in the file of a segment; `Corrupt` if there is none.
    pub(super) fn size(&self, segment: u32) -> Result<u64> {
        let metadata = self.file(segment, false)?.metadata();
        metadata.map(|metadata| metadata.len()).map_err(|error| self.io("cannot look at", segment, error))
    }

    /// Keeps the disk busy ahead of a reader that goes forward.
    fn read_ahead(&self, segment: u32, file: &File, offset: u64, length: u64) {
        let wanted = {
            let mut open = self.open.lock();
            let Some(open) = open.iter_mut().find(|open| open.id == segment) else { return };
            let sequential = offset >= open.next && offset < open.next + PAGE;
            open.next = offset + length;
            if !sequential {
                open.ahead = open.next;
                return;
            }
            if open.ahead > open.next + READ_AHEAD_BYTES / 2 {
                return;
            }
            let from = open.ahead.max(open.next);
            open.ahead = open.next + READ_AHEAD_BYTES;
            from..open.ahead
        };
        // Only advice: reading works without it.
        let _ = fadvise(file, wanted.start, std::num::NonZeroU64::new(wanted.end - wanted.start), Advice::WillNeed);
    }

    /// Gives the space of `length` bytes at `offset` back to the file system.
    pub(super) fn punch(&self, segment: u32, offset: u64, length: u64) -> Result<()> {
        if !self.path(segment).exists() {
            return Ok(());
        }
        let file = self.file(segment, false)?;
        match fallocate(&*file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, length) {
            // Where the file system cannot punch, the space comes back with the segment.
            Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
            Err(error) => Err(self.io("cannot punch", segment, error)),
        }
    }

    /// Deletes the file of a segment that holds nothing.
    pub(super) fn delete(&self, segment: u32) -> Result<()> {
        self.open.lock().retain(|open| open.id != segment);
        self.known.forget(segment);
        match files::remove(&self.path(segment)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(self.io("cannot delete", segment, error)),
            _ => Ok(()),
        }
    }

    /// Deletes files before `tail` that are not `known` and hold nothing: what a crash kept from
    /// being deleted.
    pub(super) fn sweep(&self, tail: Tail, known: &[u32]) -> Result<()> {
        let io = |source| Error::Io { what: "cannot list", path: self.directory.clone(), source };
        for entry in std::fs::read_dir(&self.directory).map_err(io)? {
            let entry = entry.map_err(io)?;
            let Some(id) = id_of(&entry).filter(|id| *id < tail.segment && !known.contains(id)) else { continue };
            if !self.has_data(id, 0)? {
                self.delete(id)?;
            }
        }
        Ok(())
    }

    /// Takes note of the files that are there: from now on they must stay.
    pub(super) fn find(&self) -> Result<()> {
        let io = |source| Error::Io { what: "cannot list", path: self.directory.clone(), source };
        for entry in std::fs::read_dir(&self.directory).map_err(io)? {
            let entry = entry.map_err(io)?;
            if let Some(id) = id_of(&entry) {
                self.known.find(id, &entry.metadata().map_err(io)?);
            }
        }
        Ok(())
    }

    /// Fails if a file has lost its name, or another one has that of a file that was written. Looks
    /// at all of them if `all`, else if names in the directory have changed.
    pub(super) fn check_names(&self, all: bool) -> Result<()> {
        self.known.check(&self.directory, all, |id| self.path(id))
    }

    /// Returns the directory of the files.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Makes the directory if it is missing: an empty one is easily lost in a copy.
    pub(super) fn make_directory(&self) -> Result<()> {
        if self.directory.is_dir() {
            return Ok(());
        }
        files::make_directory(&self.directory).map_err(|source| Error::Io {
            what: "cannot make",
            path: self.directory.clone(),
            source,
        })
    }

    /// Describes how segment `id`, whose blocks end at `length`, is missing or short, if it is. The
    /// last block's space may lack less than a page.
    pub(super) fn lost(&self, id: u32, length: u64) -> Option<String> {
        let path = self.path(id);
        match path.metadata() {
            Err(_) => Some(format!("segment file {} is missing", path.display())),
            Ok(metadata) if metadata.len() + PAGE <= length => {
                Some(format!("segment file {} has {} bytes of {length}", path.display(), metadata.len()))
            }
            Ok(_) => None,
        }
    }

    /// The numbers of the files there are, ascending.
    fn ids(&self) -> Result<Vec<u32>> {
        let io = |source| Error::Io { what: "cannot list", path: self.directory.clone(), source };
        let mut ids = Vec::new();
        if !self.directory.is_dir() {
            return Ok(ids);
        }
        for entry in std::fs::read_dir(&self.directory).map_err(io)? {
            ids.extend(id_of(&entry.map_err(io)?));
        }
        ids.sort_unstable();
        Ok(ids)
    }

    /// The highest number of a segment's file, or 0.
    pub(super) fn last(&self) -> Result<u32> {
        Ok(self.ids()?.last().copied().unwrap_or(0))
    }

    /// True if a page or more lies behind `tail`, be it a hole.
    pub(super) fn is_any_behind(&self, tail: Tail) -> Result<bool> {
        if self.last()? > tail.segment {
            return Ok(true);
        }
        Ok(self.path(tail.segment).exists() && self.size(tail.segment)? > tail.length.next_multiple_of(PAGE))
    }

    /// Returns the space behind `tail` that holds data: space that was only allocated does not.
    pub(super) fn behind(&self, tail: Tail) -> Result<Vec<Unowned>> {
        let mut found = Vec::new();
        for segment in self.ids()?.into_iter().filter(|id| *id >= tail.segment) {
            let offset = if segment == tail.segment { tail.length.next_multiple_of(PAGE) } else { 0 };
            let size = self.size(segment)?;
            if size > offset && self.has_data(segment, offset)? {
                // Of a part of a page nothing can be given back.
                let length = size.next_multiple_of(PAGE) - offset;
                found.push(Unowned { segment, offset, length });
            }
        }
        Ok(found)
    }

    /// True if anything was written from `offset` of a segment on. Not by what it takes on disk,
    /// which some file systems always call nothing.
    fn has_data(&self, segment: u32, offset: u64) -> Result<bool> {
        Ok(seek(&*self.file(segment, false)?, SeekFrom::Data(offset)) != Err(Errno::NXIO))
    }

    /// Makes durable what [`Segments::recover`] has cut.
    pub(super) fn sync_cut(&self, tail: Tail) -> Result<()> {
        if self.path(tail.segment).exists() {
            let synced = self.file(tail.segment, false)?.sync_all();
            synced.map_err(|error| self.io("cannot sync", tail.segment, error))?;
        }
        sync_directory(&self.directory)
    }

    /// Cuts off all behind `tail`, which the caller has written or found to hold nothing.
    pub(super) fn recover(&self, tail: Tail) -> Result<()> {
        if self.path(tail.segment).exists() && self.size(tail.segment)? > tail.length {
            let cut = self.file(tail.segment, false)?.set_len(tail.length);
            cut.map_err(|error| self.io("cannot cut", tail.segment, error))?;
        }
        self.ids()?.into_iter().filter(|id| *id > tail.segment).try_for_each(|id| self.delete(id))
    }
}

/// The number of the segment whose file `entry` is, if it is one.
fn id_of(entry: &std::fs::DirEntry) -> Option<u32> {
    entry.file_name().to_str()?.strip_suffix(".seg")?.parse().ok()
}

fn segment_of(place: Place) -> (u32, u64) {
    match place {
        Place::Segment { segment, offset } => (segment, offset),
        Place::Database | Place::File(_) | Place::Own(_) => unreachable!("appended blocks lie in segments"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{BlockId, Ino};
    use weft_block::Rope;

    fn blocks(lengths: &[usize]) -> Vec<NewBlock> {
        let block = |(i, length): (usize, &usize)| {
            let byte = u8::try_from(i + 1).expect("few blocks");
            NewBlock::new(BlockId(i as u64 + 1), Ino(16), Rope::from(vec![byte; *length]), 0)
        };
        lengths.iter().enumerate().map(block).collect()
    }

    #[test]
    fn punching_a_block_leaves_its_neighbours_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let segments = Segments::new(directory.path().to_path_buf());
        let lengths = [5000, 100, 70, 4096, 1, 65536, 9];
        let start = Tail { segment: 1, length: 0 };
        for dead in 0..lengths.len() {
            let (places, _) = Segments::assign(start, &blocks(&lengths));
            segments.append(&blocks(&lengths), &places).expect("appended");
            let (segment, offset) = segment_of(places[dead]);
            segments.punch(segment, offset, taken(lengths[dead] as u64)).expect("punched");
            for (i, (place, length)) in places.iter().zip(lengths).enumerate() {
                let (segment, offset) = segment_of(*place);
                let read = segments.read(segment, offset, length, ReadMode::Blocking).expect("read").expect("waited");
                let byte = if i == dead { 0 } else { u8::try_from(i + 1).expect("few blocks") };
                assert_eq!(read[..], vec![byte; length], "block {i} after {dead} was punched");
            }
        }
    }

    #[test]
    fn a_full_segment_is_followed_by_the_next_one() {
        let start = Tail { segment: 3, length: SEGMENT_BYTES_MAX - 4096 };
        let (places, tail) = Segments::assign(start, &blocks(&[4096, 10]));
        assert_eq!(segment_of(places[0]), (3, SEGMENT_BYTES_MAX - 4096));
        assert_eq!(segment_of(places[1]), (4, 0));
        assert_eq!(tail, Tail { segment: 4, length: 10 });
    }
}
