//! Receiving what a commit changed: one commit of a volume that is as the stream says it was.
//!
//! The stream says of each inode that it changes what its row was before (`row_digest`), and the
//! row here must be that one: numbers of inodes mean nothing in another volume, even in one of the
//! same content. Rows that change are few, so they lie in memory until the part is whole.

use super::attributes::{self, Total};
use super::bounds::refuse_taken_names;
use super::codec::row_digest;
use super::extents;
use super::received;
use super::record::{Part, Record, StreamCommit, StreamVolume};
use super::shape::refuse_row;
use super::whole::{COOKIE_MIN, pin};
use super::writing::Pending;
use super::wrong;
use crate::Name;
use crate::batch::{ExtentChange, InodeChange, NameChange, XattrChange};
use crate::error::{Error, Result};
use crate::row::{Cookie, Ino, InodeRow, NameRow, Span};
use crate::store::{Durability, Store, VolumeOptions};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::ops::Range;
use weft_digest::{Digest, Kind};

/// The end of ranges of blocks that reach to the end of any file.
const LAST: u64 = i64::MAX.unsigned_abs();

/// A part that is being received.
pub(super) struct Increment<'a> {
    store: &'a dyn Store,
    part: Part,
    options: VolumeOptions,
    pending: Pending<'a>,
    /// The change that remembers what is received, if the volume remembers what was.
    received: Option<XattrChange>,
    /// Inodes that the part names.
    changed: BTreeMap<Ino, Changed>,
    /// Names that inodes gain, less those that they lose.
    names: BTreeMap<Ino, i64>,
    /// Directories that got a name, each with the one that holds it now.
    moved: BTreeMap<Ino, Ino>,
    inode: Option<Current>,
    directory: Option<Ino>,
    /// Entries that were changed.
    seen: FxHashSet<(Ino, Name)>,
    cookies: FxHashSet<(Ino, Cookie)>,
}

/// An inode that the part names.
struct Changed {
    /// Its row here, if a name leads to it.
    old: Option<InodeRow>,
    /// Its row then; none: it is gone.
    new: Option<InodeRow>,
    /// Of a directory: entries that it gains, less those that it loses.
    entries: i64,
    /// The same of directories in it.
    directories: i64,
}

/// The inode that records are of.
struct Current {
    row: InodeRow,
    /// Attributes that it has here alone.
    own: u32,
    /// Attributes that it has so far, each with the length of its value.
    xattrs: FxHashMap<Name, usize>,
    /// Bytes of those that came.
    total: Total,
    seen: FxHashSet<Name>,
    held: u64,
    cleared: Vec<Range<u64>>,
    /// The end of the last extent.
    end: u64,
}

impl<'a> Increment<'a> {
    /// Begins to receive `part`, which begins from a commit. `Unusable` if that is not the last
    /// commit of `store`.
    pub(super) fn new(store: &'a dyn Store, volume: &StreamVolume, part: Part) -> Result<Increment<'a>> {
        let header = store.header()?;
        refuse_base(store, volume, &part)?;
        refuse_taken_names(&part, store)?;
        let pending = Pending::new(store, part.to.time, Durability::Durable)?;
        let received = received::last(store)?.map(|_| received::remember(volume, part.to.number));
        Ok(Increment {
            store,
            part,
            options: header.options,
            pending,
            received,
            changed: BTreeMap::new(),
            names: BTreeMap::new(),
            moved: BTreeMap::new(),
            inode: None,
            directory: None,
            seen: FxHashSet::default(),
            cookies: FxHashSet::default(),
        })
    }

    /// Takes a record.
    pub(super) fn take(&mut self, record: Record) -> Result<()> {
        match record {
            Record::Inode { base, row } if self.directory.is_none() => self.inode(base, row),
            Record::Gone { ino, base } if self.directory.is_none() => self.gone(ino, base),
            Record::Xattr { name, value } => self.xattr(name, value),
            Record::Clear { range } => self.clear(range),
            Record::Block { span, base, bytes } => {
                self.extent(span, |pending, row| pending.block(row, span, base, bytes))
            }
            Record::Shared { span, ino, at } => self.extent(span, |pending, row| pending.shared(row, span, (ino, at))),
            Record::Directory { ino } => self.begin_directory(ino),
            Record::Name { name, ino, kind, cookie } => self.name(name, (ino, kind), cookie),
            Record::NoName { name } => self.no_name(name),
            _ => Err(wrong("a record stands where it cannot stand")),
        }
    }

    fn inode(&mut self, base: Option<Digest>, row: InodeRow) -> Result<()> {
        self.end_inode()?;
        refuse_row(&row, self.part.next_id, &self.options)?;
        let there = self.store.row_of(row.ino)?;
        let old = self.compared(row.ino, there.clone(), base)?;
        // One of another generation had been removed in between, and was brought back.
        if old.as_ref().is_some_and(|old| old.kind != row.kind) {
            return Err(wrong(&format!("inode {} becomes another one", row.ino.0)));
        }
        let mut current = Current {
            xattrs: FxHashMap::default(),
            total: Total::default(),
            seen: FxHashSet::default(),
            held: 0,
            cleared: Vec::new(),
            end: 0,
            own: 0,
            row,
        };
        match (&old, there) {
            (Some(old), _) => {
                let (sent, xattrs) = attributes::sent(self.store, old)?;
                current.own = old.xattrs - sent.xattrs;
                current.xattrs = xattrs.into_iter().map(|(name, value)| (name, value.len())).collect();
                current.held = if old.inline.is_some() { 0 } else { old.allocated };
            }
            // What was deleted while it was open is of no more use.
            (None, Some(orphan)) => self.replace_orphan(&orphan)?,
            (None, None) => {}
        }
        self.add(current.row.ino, old, Some(current.row.clone()))?;
        self.inode = Some(current);
        Ok(())
    }

    /// Returns the row `there`, if a name leads to it. Refuses one that the stream did not begin
    /// from.
    fn compared(&self, ino: Ino, there: Option<InodeRow>, base: Option<Digest>) -> Result<Option<InodeRow>> {
        let old = there.filter(|row| row.nlink > 0);
        let sent = old.as_ref().map(|row| attributes::sent_row(self.store, row)).transpose()?;
        match sent.as_ref().map(row_digest) == base {
            true => Ok(old),
            false => {
                let path = crate::path_to(ino, |ino| self.store.names_of(ino)).unwrap_or_default();
                Err(Error::Unusable(format!(
                    "the volume was changed since, or is none that was received from there: inode {} ({}) is not as \
                     commit {} left it, from which the stream begins; receive the whole volume anew",
                    ino.0,
                    path.escape_ascii(),
                    self.from().number.0
                )))
            }
        }
    }

    fn from(&self) -> StreamCommit {
        self.part.from.unwrap_or(self.part.to)
    }

    fn replace_orphan(&mut self, orphan: &InodeRow) -> Result<()> {
        let ino = orphan.ino;
        self.pending.batch.extents.push(ExtentChange::Clear { ino, range: 0..LAST });
        let changes = self.store.xattrs(ino)?.into_iter().map(|(name, _)| XattrChange { ino, name, value: None });
        self.pending.batch.xattrs.extend(changes);
        let counters = &mut self.pending.batch.counters;
        counters.bytes_used = counters.bytes_used.saturating_sub(orphan.allocated);
        counters.inodes_used = counters.inodes_used.saturating_sub(1);
        Ok(())
    }

    fn add(&mut self, ino: Ino, old: Option<InodeRow>, new: Option<InodeRow>) -> Result<()> {
        let changed = Changed { old, new, entries: 0, directories: 0 };
        match self.changed.insert(ino, changed) {
            None => Ok(()),
            Some(_) => Err(wrong(&format!("inode {} is there twice", ino.0))),
        }
    }

    fn gone(&mut self, ino: Ino, base: Digest) -> Result<()> {
        self.end_inode()?;
        let old = self.compared(ino, self.store.row_of(ino)?, Some(base))?;
        self.add(ino, old, None)?;
        self.pending.batch.inodes.push(InodeChange::Remove(ino));
        Ok(())
    }

    fn xattr(&mut self, name: Name, value: Option<Vec<u8>>) -> Result<()> {
        let current = self.inode.as_mut().ok_or_else(|| wrong("an attribute is of nothing"))?;
        let ino = current.row.ino;
        let is_new = current.seen.insert(name.clone());
        let fits = match &value {
            Some(value) => {
                attributes::refuse(&current.row, &name, value)?;
                current.xattrs.insert(name.clone(), value.len());
                current.total.add(&name, value.len())
            }
            None => current.xattrs.remove(&name).is_some(),
        };
        if !is_new || !fits {
            return Err(wrong(&format!("inode {} has attributes that are none", ino.0)));
        }
        // Of an orphan that was there, it is removed already.
        let xattrs = &mut self.pending.batch.xattrs;
        match xattrs.iter_mut().rev().take_while(|change| change.ino == ino).find(|change| change.name == name) {
            Some(change) => change.value = value,
            None => xattrs.push(XattrChange { ino, name, value }),
        }
        Ok(())
    }

    fn clear(&mut self, range: Range<u64>) -> Result<()> {
        let current = self.inode.as_mut().ok_or_else(|| wrong("a block is of nothing"))?;
        let ino = current.row.ino;
        let is_next = current.cleared.last().is_none_or(|last| last.end <= range.start);
        if !is_next || range.is_empty() {
            return Err(wrong(&format!("blocks of inode {} are in no order", ino.0)));
        }
        let held = extents::bytes_in(self.store, ino, range.clone())?;
        current.held = current.held.checked_sub(held).ok_or_else(|| wrong("it removes blocks that are not there"))?;
        current.cleared.push(range.clone());
        self.pending.batch.extents.push(ExtentChange::Clear { ino, range });
        Ok(())
    }

    fn extent(&mut self, span: Span, put: impl FnOnce(&mut Pending<'a>, &InodeRow) -> Result<u64>) -> Result<()> {
        let current = self.inode.as_mut().ok_or_else(|| wrong("a block is of nothing"))?;
        let ino = current.row.ino;
        let is_cleared = |start: u64| {
            let after = current.cleared.partition_point(|range| range.start <= start);
            current.cleared[..after].last().is_some_and(|range| range.contains(&start))
        };
        let is_old = self.changed.get(&ino).is_some_and(|changed| changed.old.is_some());
        let is_taken = is_old && {
            // None crosses a block.
            let first = span.start - span.start % u64::from(self.options.block_size);
            let there = self.store.extents(ino, first..span.end())?;
            there.iter().any(|(other, _)| other.overlaps(&span) && !is_cleared(other.start))
        };
        if span.start < current.end || is_taken {
            return Err(wrong(&format!("blocks of inode {} are in no order, or there already", ino.0)));
        }
        let added = put(&mut self.pending, &current.row)?;
        current.held = current.held.checked_add(added).ok_or_else(|| wrong("it holds too much"))?;
        // Those of a long file come in several runs.
        current.end = span.end();
        Ok(())
    }

    fn end_inode(&mut self) -> Result<()> {
        let Some(Current { mut row, own, xattrs, held, .. }) = self.inode.take() else { return Ok(()) };
        let stored = row.inline.as_ref().map_or(0, |inline| inline.len() as u64);
        let mut total = Total::default();
        if !xattrs.iter().all(|(name, length)| total.add(name, *length)) {
            return Err(wrong(&format!("inode {} has more bytes of attributes than any can have", row.ino.0)));
        }
        if xattrs.len() as u64 != u64::from(row.xattrs) || held + stored != row.allocated {
            return Err(wrong(&format!("inode {} lacks attributes or blocks, or has too many", row.ino.0)));
        }
        row.xattrs += own;
        self.pending.batch.inodes.push(InodeChange::Put(row));
        Ok(())
    }

    fn begin_directory(&mut self, ino: Ino) -> Result<()> {
        self.end_inode()?;
        let is_directory = |row: &InodeRow| row.kind == Kind::Directory;
        let changed = self.changed.get(&ino).and_then(|changed| changed.new.as_ref().or(changed.old.as_ref()));
        if !changed.is_some_and(is_directory) {
            return Err(wrong(&format!("directory {} is none that changes", ino.0)));
        }
        self.directory = Some(ino);
        Ok(())
    }

    /// Returns the directory that an entry is of, and what the entry was before, which is undone.
    fn entry(&mut self, name: &Name) -> Result<(Ino, Option<NameRow>)> {
        let parent = self.directory.ok_or_else(|| wrong("an entry is of no directory"))?;
        if !self.seen.insert((parent, name.clone())) {
            return Err(wrong(&format!("directory {} has two entries alike", parent.0)));
        }
        let is_old = self.changed.get(&parent).is_some_and(|changed| changed.old.is_some());
        let old = if is_old { self.store.name(parent, name)? } else { None };
        if let Some(old) = &old {
            self.count_name(parent, (old.ino, old.kind), -1);
        }
        Ok((parent, old))
    }

    fn count_name(&mut self, parent: Ino, (ino, kind): (Ino, Kind), more: i64) {
        *self.names.entry(ino).or_default() += more;
        if let Some(parent) = self.changed.get_mut(&parent) {
            parent.entries += more;
            parent.directories += if kind == Kind::Directory { more } else { 0 };
        }
    }

    fn name(&mut self, name: Name, (ino, kind): (Ino, Kind), cookie: Cookie) -> Result<()> {
        let (parent, _) = self.entry(&name)?;
        let unlike = || wrong(&format!("an entry of directory {} is none of its tree", parent.0));
        let is_there = self.changed.get(&parent).is_some_and(|parent| parent.new.is_some());
        let child = match self.changed.get(&ino) {
            Some(changed) => changed.new.clone(),
            None => self.store.row_of(ino)?.filter(|row| row.nlink > 0),
        };
        let child = child.filter(|child| is_there && child.kind == kind).ok_or_else(unlike)?;
        let is_position = (COOKIE_MIN..self.part.next_id).contains(&cookie.0);
        if !is_position || !self.cookies.insert((parent, cookie)) || ino == Ino::ROOT {
            return Err(unlike());
        }
        if kind == Kind::Directory && (child.parent != parent || self.moved.insert(ino, parent).is_some()) {
            return Err(unlike());
        }
        self.count_name(parent, (ino, kind), 1);
        self.pending.batch.names.push(NameChange::Put(NameRow { parent, name, ino, kind, cookie }));
        Ok(())
    }

    fn no_name(&mut self, name: Name) -> Result<()> {
        match self.entry(&name)? {
            (parent, Some(_)) => {
                self.pending.batch.names.push(NameChange::Remove { parent, name });
                Ok(())
            }
            (parent, None) => Err(wrong(&format!("an entry of directory {} goes that is not there", parent.0))),
        }
    }

    /// Fails unless all came and makes one tree, and commits it.
    pub(super) fn finish(mut self) -> Result<()> {
        self.end_inode()?;
        self.refuse_other_shape()?;
        self.refuse_taken_cookies()?;
        let counters = &mut self.pending.batch.counters;
        counters.next_id = counters.next_id.max(self.part.next_id);
        let allocated = |row: &Option<InodeRow>| row.as_ref().map_or(0, |row| row.allocated);
        for Changed { old, new, .. } in self.changed.values() {
            let more = counters.bytes_used.checked_add(allocated(new)).ok_or_else(|| wrong("it holds too much"))?;
            counters.bytes_used = more.saturating_sub(allocated(old));
            counters.inodes_used =
                (counters.inodes_used + u64::from(new.is_some())).saturating_sub(u64::from(old.is_some()));
        }
        let commit = self.pending.batch.commit;
        if self.store.history()?.is_some() {
            let pins = self.part.snapshots.drain(..).map(|snapshot| pin(commit, snapshot));
            self.pending.batch.history.extend(pins);
        }
        self.pending.batch.xattrs.extend(self.received.take());
        self.pending.commit(self.part.to.root)
    }

    /// Fails if an entry gets the position of one that stays.
    fn refuse_taken_cookies(&self) -> Result<()> {
        let next_id = self.store.header()?.counters.next_id;
        for (parent, cookie) in self.cookies.iter().filter(|(_, cookie)| cookie.0 < next_id) {
            let there = self.store.names(*parent, Cookie(cookie.0 - 1), 1)?.pop();
            let stays = |row: &NameRow| row.cookie == *cookie && !self.seen.contains(&(*parent, row.name.clone()));
            if there.as_ref().is_some_and(stays) {
                return Err(wrong(&format!("directory {} has two entries at one position", parent.0)));
            }
        }
        Ok(())
    }

    /// Fails unless the rows that change and the names that change make one tree of the tree
    /// before.
    fn refuse_other_shape(&self) -> Result<()> {
        for (ino, changed) in &self.changed {
            if !changed.fits(self.names.get(ino).copied().unwrap_or(0)) {
                return Err(wrong(&format!("inode {} has other names or entries than its row says", ino.0)));
            }
        }
        let is_known = |ino: &Ino| self.changed.contains_key(ino);
        if let Some((ino, _)) = self.names.iter().find(|(ino, more)| **more != 0 && !is_known(ino)) {
            return Err(wrong(&format!("inode {} gains or loses names that its row does not count", ino.0)));
        }
        let mut known = FxHashMap::default();
        for (ino, changed) in &self.changed {
            let Some(new) = changed.new.as_ref().filter(|row| row.kind == Kind::Directory) else { continue };
            let old = changed.old.as_ref().map(|old| old.parent);
            if self.moved.get(ino).copied().or(old) != Some(new.parent) {
                return Err(wrong(&format!("directory {} lies elsewhere than its row says", ino.0)));
            }
            self.reach(*ino, &mut known)?;
        }
        Ok(())
    }

    /// Fails if directory `ino` will not lead to the root. `known` are those that do.
    fn reach(&self, ino: Ino, known: &mut FxHashMap<Ino, ()>) -> Result<()> {
        let (mut way, mut at) = (FxHashSet::default(), ino);
        while at != Ino::ROOT && !known.contains_key(&at) {
            let row = match self.changed.get(&at) {
                Some(changed) => changed.new.clone(),
                None => self.store.row_of(at)?,
            };
            let row = row.filter(|row| row.kind == Kind::Directory && way.insert(at));
            at = row.ok_or_else(|| wrong(&format!("directory {} does not lead to the root", ino.0)))?.parent;
        }
        known.extend(way.into_iter().map(|ino| (ino, ())));
        Ok(())
    }
}

impl Changed {
    /// True if the row then counts what the one before does, with `names` more names.
    fn fits(&self, names: i64) -> bool {
        let is_directory = |row: &InodeRow| row.kind == Kind::Directory;
        let names_of = |row: Option<&InodeRow>| match row {
            Some(row) if row.ino == Ino::ROOT => 0,
            Some(row) if is_directory(row) => 1,
            row => row.map_or(0, |row| i64::from(row.nlink)),
        };
        let entries = |row: Option<&InodeRow>| {
            row.filter(|row| is_directory(row)).map_or(Some(0), |row| i64::try_from(row.size).ok())
        };
        let directories = |row: Option<&InodeRow>| {
            row.filter(|row| is_directory(row)).map_or(0, |row| i64::from(row.nlink.saturating_sub(2)))
        };
        let (old, new) = (self.old.as_ref(), self.new.as_ref());
        let entries_then = entries(old).and_then(|count| count.checked_add(self.entries));
        names_of(old) + names == names_of(new)
            && entries_then.is_some_and(|count| Some(count) == entries(new))
            && directories(old) + self.directories == directories(new)
    }
}

/// Fails if the last commit of `store` is not the one that `part` begins from.
pub(super) fn refuse_base(store: &dyn Store, volume: &StreamVolume, part: &Part) -> Result<()> {
    let header = store.header()?;
    let last = store.commits(header.commit, 1)?.pop();
    let Some(from) = part.from else { return Err(wrong("a whole tree follows another one")) };
    let (Some(last), Some(root)) = (last, from.root) else {
        return Err(Error::Unusable("without digests of both trees nobody can tell that they fit".into()));
    };
    let here = last.root.as_ref().map_or_else(|| "none".into(), weft_digest::hex);
    if last.root == part.to.root && last.time == part.to.time {
        let to = part.to.number.0;
        return Err(Error::Unusable(format!("it was received before: the last commit here is commit {to} of there")));
    }
    if last.root != Some(root) {
        return Err(Error::Unusable(format!(
            "the stream begins from commit {} of there, with digest {}, and the last commit here, {}, has digest {here}; \
             send the changes from a commit that is here, or all of it to a new volume if this one was changed itself",
            from.number.0,
            weft_digest::hex(&root),
            header.commit.0
        )));
    }
    received::refuse_other(store, volume, part)
}
