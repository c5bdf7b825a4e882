//! Receiving a whole tree into a new volume: in several commits, so that not all of its rows lie in
//! memory. Inodes come first, each with all that it has, then the entries of directories.
//!
//! A receipt that ended early goes on: records of commits before are looked at again, so that all
//! of the tree is known, and not written (`reached`).

use super::attributes::{self, Total};
use super::codec::Position;
use super::record::{Part, Record, Snapshot, StreamVolume};
use super::shape::{Shape, refuse_row};
use super::writing::Pending;
use super::wrong;
use super::{reached, received};
use crate::Name;
use crate::batch::{InodeChange, NameChange, XattrChange};
use crate::error::Result;
use crate::past::{HistoryChange, HistoryFor, Pin, PinKind};
use crate::row::{CommitNo, Cookie, Ino, InodeRow, NameRow, Span};
use crate::store::{Durability, Store, VolumeOptions};
use rustc_hash::FxHashSet;
use weft_digest::Kind;

/// Rows of one commit, about; a few in tests, so that a small tree takes several.
const ROWS_MAX: usize = if cfg!(test) { 4 } else { 50_000 };

/// Bytes of one commit, about: in blocks, in rows and in attributes.
const BYTES_MAX: u64 = if cfg!(test) { 1 } else { 128 } << 20;

/// Cookies below this are never given out.
pub(super) const COOKIE_MIN: u64 = 3;

/// A tree that is being received.
pub(super) struct Whole<'a> {
    store: &'a dyn Store,
    part: Part,
    options: VolumeOptions,
    pending: Pending<'a>,
    shape: Shape,
    inode: Option<Current>,
    directory: Option<Directory>,
    bytes_used: u64,
    inodes_used: u64,
    last: Ino,
    /// The change that remembers what is received, until the root is there.
    received: Option<XattrChange>,
    volume: StreamVolume,
    /// The place in the stream.
    position: Position,
    /// The place up to which all is there already, until it is reached.
    there: Option<Position>,
}

/// The inode that records are of.
struct Current {
    row: InodeRow,
    xattrs: u32,
    last_xattr: Option<Name>,
    /// Bytes of attributes so far.
    total: Total,
    held: u64,
    /// The end of the last extent.
    end: u64,
}

/// The directory that entries are of.
struct Directory {
    ino: Ino,
    names: FxHashSet<Name>,
    after: Cookie,
}

impl<'a> Whole<'a> {
    /// Begins to fill `store`, which is new, or goes on with it.
    pub(super) fn new(store: &'a dyn Store, volume: &StreamVolume, part: Part) -> Result<Whole<'a>> {
        let there = reached::find(store, volume, &part)?;
        let mut pending = Pending::new(store, part.to.time, Durability::Eventual)?;
        pending.is_there = there.is_some();
        let options = store.header()?.options;
        let (shape, inode, directory) = (Shape::default(), None, None);
        let received = received::remember(volume, part.to.number);
        Ok(Whole {
            store,
            part,
            options,
            pending,
            shape,
            inode,
            directory,
            bytes_used: 0,
            inodes_used: 0,
            last: Ino(0),
            received: Some(received),
            volume: volume.clone(),
            position: Position::default(),
            there,
        })
    }

    /// Takes a record, the last one before `position`.
    pub(super) fn take(&mut self, record: Record, position: Position) -> Result<()> {
        self.position = position;
        self.add(record)?;
        let Some(there) = self.there else { return Ok(()) };
        self.pending.forget();
        if position.records == there.records {
            if position != there {
                return Err(reached::other());
            }
            self.there = None;
            self.pending.is_there = false;
        }
        Ok(())
    }

    fn add(&mut self, record: Record) -> Result<()> {
        match record {
            Record::Inode { base: None, row } if self.directory.is_none() => self.inode(row),
            Record::Xattr { name, value: Some(value) } => self.xattr(name, value),
            Record::Block { span, base, bytes } => {
                self.extent(span, |pending, row| pending.block(row, span, base, bytes))
            }
            Record::Shared { span, ino, at } => self.extent(span, |pending, row| pending.shared(row, span, (ino, at))),
            Record::Directory { ino } => self.begin_directory(ino),
            Record::Name { name, ino, kind, cookie } => self.name(name, (ino, kind), cookie),
            _ => Err(wrong("a record stands where it cannot stand")),
        }
    }

    fn inode(&mut self, mut row: InodeRow) -> Result<()> {
        self.end_inode()?;
        refuse_row(&row, self.part.next_id, &self.options)?;
        self.shape.inode(&row)?;
        self.commit_some()?;
        self.bytes_used = self.bytes_used.checked_add(row.allocated).ok_or_else(|| wrong("it holds too much"))?;
        self.inodes_used += 1;
        self.last = row.ino;
        let xattrs = row.xattrs;
        if row.ino == Ino::ROOT
            && let Some(received) = self.received.take()
        {
            row.xattrs += 1;
            self.pending.batch.xattrs.push(received);
        }
        self.inode = Some(Current { row, xattrs, last_xattr: None, total: Total::default(), held: 0, end: 0 });
        Ok(())
    }

    /// Fails unless all of the inode came that its row counts.
    fn end_inode(&mut self) -> Result<()> {
        let Some(Current { row, xattrs, held, .. }) = self.inode.take() else { return Ok(()) };
        let has_blocks = row.kind == Kind::File && row.inline.is_none();
        if xattrs > 0 || has_blocks && held != row.allocated {
            return Err(wrong(&format!("inode {} lacks attributes or blocks, or has too many", row.ino.0)));
        }
        self.pending.bytes += row.inline.as_ref().map_or(0, |inline| inline.len() as u64);
        self.pending.batch.inodes.push(InodeChange::Put(row));
        Ok(())
    }

    fn xattr(&mut self, name: Name, value: Vec<u8>) -> Result<()> {
        let current = self.inode.as_mut().ok_or_else(|| wrong("an attribute is of nothing"))?;
        let is_next = current.last_xattr.as_ref().is_none_or(|last| *last < name);
        attributes::refuse(&current.row, &name, &value)?;
        let fits = is_next && current.total.add(&name, value.len());
        let left = current.xattrs.checked_sub(1).filter(|_| fits);
        let ino = current.row.ino;
        current.xattrs = left.ok_or_else(|| wrong(&format!("inode {} has attributes that are none", ino.0)))?;
        current.last_xattr = Some(name.clone());
        self.pending.bytes += (name.as_bytes().len() + value.len()) as u64;
        self.pending.batch.xattrs.push(XattrChange { ino, name, value: Some(value) });
        Ok(())
    }

    fn extent(&mut self, span: Span, put: impl FnOnce(&mut Pending<'a>, &InodeRow) -> Result<u64>) -> Result<()> {
        let is_much = self.is_much();
        let current = self.inode.as_mut().ok_or_else(|| wrong("a block is of nothing"))?;
        if span.start < current.end {
            return Err(wrong(&format!("blocks of inode {} are in no order", current.row.ino.0)));
        }
        current.held += put(&mut self.pending, &current.row)?;
        current.end = span.end();
        if is_much {
            // As if the file had no more: the rest of a long file is of later commits.
            let so_far = InodeRow { allocated: current.held, ..current.row.clone() };
            self.pending.batch.inodes.push(InodeChange::Put(so_far));
            self.commit_so_far()?;
        }
        Ok(())
    }

    fn begin_directory(&mut self, ino: Ino) -> Result<()> {
        self.end_inode()?;
        let is_next = self.directory.as_ref().is_none_or(|before| before.ino < ino);
        if !is_next || !self.shape.has_directory(ino) {
            return Err(wrong(&format!("directory {} is none, or in no order", ino.0)));
        }
        self.directory = Some(Directory { ino, names: FxHashSet::default(), after: Cookie(COOKIE_MIN - 1) });
        Ok(())
    }

    fn name(&mut self, name: Name, (ino, kind): (Ino, Kind), cookie: Cookie) -> Result<()> {
        let directory = self.directory.as_mut().ok_or_else(|| wrong("an entry is of no directory"))?;
        let is_position = cookie > directory.after && cookie.0 < self.part.next_id;
        if !is_position || !directory.names.insert(name.clone()) {
            return Err(wrong(&format!("directory {} has two entries alike, or in no order", directory.ino.0)));
        }
        directory.after = cookie;
        let row = NameRow { parent: directory.ino, name, ino, kind, cookie };
        self.shape.name(&row)?;
        self.pending.bytes += row.name.as_bytes().len() as u64;
        self.pending.batch.names.push(NameChange::Put(row));
        self.commit_some()
    }

    fn is_much(&self) -> bool {
        self.pending.rows() >= ROWS_MAX || self.pending.bytes >= BYTES_MAX
    }

    /// Commits what there is, if that is much.
    fn commit_some(&mut self) -> Result<()> {
        if self.is_much() { self.commit_so_far() } else { Ok(()) }
    }

    fn commit_so_far(&mut self) -> Result<()> {
        self.count();
        // Inodes up to the last one are not new to the commits that follow.
        let next_id = if self.directory.is_some() { self.part.next_id } else { self.last.0 + 1 };
        self.pending.batch.counters.next_id = self.pending.batch.counters.next_id.max(next_id);
        self.pending.batch.xattrs.push(reached::keep((&self.volume, &self.part), self.position));
        self.pending.commit(None)?;
        self.pending = Pending::new(self.store, self.part.to.time, Durability::Eventual)?;
        Ok(())
    }

    fn count(&mut self) {
        let counters = &mut self.pending.batch.counters;
        (counters.bytes_used, counters.inodes_used) = (self.bytes_used, self.inodes_used.max(1));
    }

    /// Fails unless all came, and makes the last commit. With `history` the volume keeps history by
    /// that rule from now on.
    pub(super) fn finish(mut self, history: Option<(String, HistoryFor)>) -> Result<()> {
        if self.there.is_some() {
            return Err(reached::other());
        }
        self.end_inode()?;
        std::mem::take(&mut self.shape).finish()?;
        if reached::is_kept(self.store)? {
            self.pending.batch.xattrs.push(reached::end());
        }
        self.count();
        self.pending.batch.counters.next_id = self.part.next_id;
        let commit = self.pending.batch.commit;
        if let Some((rule, readers)) = history {
            self.pending.batch.history.push(HistoryChange::Keep(rule, readers));
            self.pending.batch.history.extend(self.part.snapshots.drain(..).map(|snapshot| pin(commit, snapshot)));
        }
        let root = self.part.to.root;
        self.pending.commit(root)
    }
}

/// The change that keeps a snapshot of `commit`.
pub(super) fn pin(commit: CommitNo, snapshot: Snapshot) -> HistoryChange {
    let Snapshot { name, made, held_until } = snapshot;
    HistoryChange::Pin(Pin { commit, kind: PinKind::Snapshot, name, made, held_until })
}
