//! The tree of a volume as far as it is in memory: inodes, names, and what changed.
//!
//! Methods here never wait and never read the store: what is missing stops them with [`Miss`]
//! before they have changed anything. Invariants: an item that changed since the last successful
//! commit is never evicted; `dirty_inodes` and `dirty_names` list each item that changed in the
//! current generation exactly once (an item listed but no longer changed is skipped).

use crate::caller::{Caller, Holds};
use crate::clock_map::ClockMap;
use crate::draining::Draining;
use crate::error::ErrorKind;
use crate::inode::{Added, Changed, Inode};
use crate::inodes::{Inodes, is_virtual};
use crate::journal::Journal;
use crate::mutation::Mutation;
use crate::names::{Entry, NameKey, NameSlot};
use crate::stop::{Miss, Stop};
use rustc_hash::{FxHashMap, FxHashSet};
use weft_block::pool;
use weft_store::{BlockId, Counters, Digest, Header, Ino, Kind, Name, Timestamp, VolumeOptions};

/// Adds `more` to `count` and takes `less` away. Damaged volumes count wrong until a check has put
/// that right: what they hold must be usable until then.
pub fn recount(count: &mut u64, more: u64, less: u64) {
    *count = count.saturating_add(more).saturating_sub(less);
}

/// Approximate bytes of a changed row in memory and in a commit.
pub const ROW_BYTES: u64 = 512;

/// The tree.
pub struct Tree {
    /// Options of the volume.
    pub volume: VolumeOptions,
    /// Inodes in memory.
    pub inodes: Inodes,
    /// Names in memory.
    pub names: ClockMap<(Ino, Name), NameSlot>,
    /// Number of holds of each inode by protocols.
    pub holds: FxHashMap<Ino, u64>,
    /// Inodes without a name that live only while held.
    pub orphans: FxHashSet<Ino>,
    /// Those of them that are too large to be deleted at once, in the order in which they are.
    pub draining: Draining,
    /// True if orphans stay without holds (while the log is replayed).
    pub keep_orphans: bool,
    /// Inodes that were deleted, for whoever keeps something of them to take.
    pub deleted: Vec<Ino>,
    /// Generation of current changes.
    pub generation: Changed,
    /// Inodes that changed in it.
    pub dirty_inodes: Vec<Ino>,
    /// Names that changed in it.
    pub dirty_names: Vec<(Ino, Name)>,
    /// Bytes of changes, those of the commit in flight included.
    pub dirty_bytes: u64,
    /// The work of commits for which no bytes are dirty, as bytes that would be as much, that of
    /// the commit in flight included: blocks that are shared are hashed at their new place, extents
    /// that are dropped are rows to delete, extended attributes rows to write.
    pub work_bytes: u64,
    /// Most bytes of both.
    pub dirty_bytes_max: u64,
    /// Digests of files that consist of one block each, of stored blocks that the next commit
    /// shares: nobody has to read them.
    pub(crate) alone: FxHashMap<BlockId, Digest>,
    /// Blocks of files that the next commit stores as one block each.
    pub(crate) merging: Vec<(Ino, u64)>,
    /// Counters as the next commit would write them.
    pub counters: Counters,
    /// Operations that neither a commit nor the intent log has.
    pub journal: Journal,
    /// Commits finished since the mount; a read of the store that spans one is done again.
    pub finished: u64,
    /// Inodes that were found in memory.
    pub inode_hits: u64,
    /// Inodes that were not.
    pub inode_misses: u64,
    /// Names that were found in memory.
    pub name_hits: u64,
    /// Names that were not.
    pub name_misses: u64,
    /// Operations since the mount.
    pub operations: u64,
    /// Bytes written since the mount.
    pub bytes_written: u64,
}

impl Tree {
    /// The tree of a volume just opened, of which `cache_bytes` of clean inodes and names are kept,
    /// and at most `dirty_bytes_max` of changes.
    pub fn new(header: &Header, cache_bytes: u64, dirty_bytes_max: u64) -> Tree {
        let half = usize::try_from(cache_bytes / 2).unwrap_or(usize::MAX);
        let mut counters = header.counters;
        // Below lie the root and the cookies of `.` and `..`.
        counters.next_id = counters.next_id.max(16);
        Tree {
            volume: header.options.clone(),
            inodes: Inodes::new(half),
            names: ClockMap::new(half),
            holds: FxHashMap::default(),
            orphans: FxHashSet::default(),
            draining: Draining::default(),
            keep_orphans: false,
            deleted: Vec::new(),
            generation: Changed(1),
            dirty_inodes: Vec::new(),
            dirty_names: Vec::new(),
            dirty_bytes: 0,
            work_bytes: 0,
            dirty_bytes_max,
            alone: FxHashMap::default(),
            merging: Vec::new(),
            counters,
            journal: Journal::default(),
            finished: 0,
            inode_hits: 0,
            inode_misses: 0,
            name_hits: 0,
            name_misses: 0,
            operations: 0,
            bytes_written: 0,
        }
    }

    /// Bytes in a block.
    pub fn block_size(&self) -> u64 {
        u64::from(self.volume.block_size)
    }

    /// Applies `mutation` as the next operation. `ReadOnly` for virtual inodes.
    pub fn perform(&mut self, mutation: &Mutation<'_>) -> Result<(), Stop> {
        if is_virtual(mutation.ino()) {
            return Err(ErrorKind::ReadOnly.into());
        }
        self.apply(mutation)?;
        self.counters.op = self.counters.op.next();
        self.operations += 1;
        self.journal.push(mutation);
        Ok(())
    }

    /// True if the operation that was performed last changed the content of `ino`.
    pub fn has_just_changed(&self, ino: Ino) -> bool {
        self.inodes.peek(&ino).is_some_and(|inode| inode.content == self.counters.op)
    }

    /// Inode `ino`. `Stale` if it was deleted.
    pub fn inode(&mut self, ino: Ino) -> Result<&mut Inode, Stop> {
        match self.inodes.get(&ino) {
            Some(inode) if inode.dead => Err(ErrorKind::Stale.into()),
            Some(inode) => {
                self.inode_hits += 1;
                Ok(inode)
            }
            None => Err(Miss::Inode(ino).into()),
        }
    }

    /// Directory `ino`. [`Stop::Opaque`] if it may only look like one.
    pub fn directory(&mut self, ino: Ino) -> Result<&mut Inode, Stop> {
        let inode = self.inode(ino)?;
        match inode.row.kind {
            Kind::Directory => Ok(inode),
            Kind::Transformation => Err(Stop::Opaque),
            _ => Err(ErrorKind::NotDirectory.into()),
        }
    }

    /// Directory `ino`, which must still have a name to take entries.
    pub fn linked_directory(&mut self, ino: Ino) -> Result<&mut Inode, Stop> {
        let inode = self.directory(ino)?;
        if inode.row.nlink == 0 { Err(ErrorKind::NotFound.into()) } else { Ok(inode) }
    }

    /// Regular file `ino`. [`Stop::Opaque`] if it may only look like one.
    pub fn file(&mut self, ino: Ino) -> Result<&mut Inode, Stop> {
        let inode = self.inode(ino)?;
        match inode.row.kind {
            Kind::File => Ok(inode),
            Kind::Directory => Err(ErrorKind::IsDirectory.into()),
            Kind::Transformation => Err(Stop::Opaque),
            Kind::Symlink | Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => {
                Err(ErrorKind::Invalid.into())
            }
        }
    }

    /// Returns the entry `name` of directory `parent`, if it exists.
    pub fn entry(&mut self, parent: Ino, name: &[u8]) -> Result<Option<Entry>, Stop> {
        let directory = self.directory(parent)?;
        let complete = directory.directory.as_ref().is_some_and(|directory| directory.complete);
        if let Some(slot) = self.names.get(&NameKey(parent, name)) {
            self.name_hits += 1;
            return Ok(slot.entry);
        }
        if complete {
            self.name_hits += 1;
            return Ok(None);
        }
        Err(Miss::Name(parent, Name::new(name)?).into())
    }

    /// Returns the entry `name` of directory `parent`. `NotFound` if it does not exist.
    pub fn existing(&mut self, parent: Ino, name: &[u8]) -> Result<Entry, Stop> {
        self.entry(parent, name)?.ok_or_else(|| ErrorKind::NotFound.into())
    }

    /// Marks inode `ino`, which is in memory, as changed.
    pub fn touch(&mut self, ino: Ino) {
        if is_virtual(ino) {
            return;
        }
        let (generation, now) = (self.generation, self.counters.op.next());
        let inode = self.inodes.get(&ino).expect("a changed inode is in memory");
        inode.touched = now;
        if inode.changed != generation {
            inode.changed = generation;
            self.dirty_inodes.push(ino);
            self.dirty_bytes += ROW_BYTES;
        }
    }

    /// Notes that a directory, which is in memory, gained or lost an entry.
    pub(crate) fn touch_directory(&mut self, ino: Ino, entries: i64, time: Timestamp) {
        let now = self.counters.op.next();
        let inode = self.inodes.get(&ino).expect("a changed directory is in memory");
        inode.content = now;
        inode.row.size = inode.row.size.saturating_add_signed(entries);
        inode.row.mtime = time;
        inode.row.ctime = time;
        self.touch(ino);
    }

    /// Moves the ctime of inode `ino`, which is in memory, and marks it as changed.
    pub(crate) fn touch_ctime(&mut self, ino: Ino, time: Timestamp) {
        self.inodes.get(&ino).expect("a changed inode is in memory").row.ctime = time;
        self.touch(ino);
    }

    /// Puts `entry` under `name` in `parent`, whose inode is in memory, over what the name had.
    pub fn put_name(&mut self, parent: Ino, name: &Name, entry: Entry) {
        let generation = self.generation;
        let old = self.set_slot(parent, name, Some(entry));
        let directory = self.inodes.get(&parent).expect("the parent is in memory").directory();
        if let Some(cookie) = old.map(|old| old.cookie).filter(|cookie| *cookie != entry.cookie) {
            directory.added.remove(&cookie);
            directory.removed.insert(cookie, generation);
        }
        let added = Added { name: name.clone(), ino: entry.ino, kind: entry.kind, changed: generation };
        directory.added.insert(entry.cookie, added);
    }

    /// Takes `name` out of `parent`, whose inode is in memory.
    pub fn remove_name(&mut self, parent: Ino, name: &Name) {
        let generation = self.generation;
        let Some(old) = self.set_slot(parent, name, None) else { return };
        let directory = self.inodes.get(&parent).expect("the parent is in memory").directory();
        directory.added.remove(&old.cookie);
        directory.removed.insert(old.cookie, generation);
    }

    fn set_slot(&mut self, parent: Ino, name: &Name, entry: Option<Entry>) -> Option<Entry> {
        let generation = self.generation;
        let key = NameKey(parent, name.as_bytes());
        if self.names.peek(&key).is_none() {
            // Whether the store has the name is not known here; deleting a row that is not there is
            // harmless.
            let complete =
                self.inodes.peek(&parent).and_then(|inode| inode.directory.as_ref()).is_some_and(|d| d.complete);
            let slot = NameSlot { entry: None, changed: Changed::CLEAN, stored: !complete };
            self.names.insert((parent, name.clone()), slot);
        }
        let slot = self.names.get(&key).expect("just made sure");
        let old = std::mem::replace(&mut slot.entry, entry);
        if slot.changed != generation {
            slot.changed = generation;
            self.dirty_names.push((parent, name.clone()));
            self.dirty_bytes += ROW_BYTES;
        }
        old
    }

    /// Holds `ino` once more.
    pub fn hold(&mut self, ino: Ino) {
        *self.holds.entry(ino).or_insert(0) += 1;
    }

    /// Counts a hold of `ino` if the caller's protocol keeps count.
    pub fn hold_by(&mut self, caller: Caller, ino: Ino) {
        if caller.holds == Holds::Counted {
            self.hold(ino);
        }
    }

    /// Deletes inode `ino`, which is in memory and which nothing needs any more.
    pub fn delete_inode(&mut self, ino: Ino) {
        self.deleted.push(ino);
        if !self.drain(ino) {
            self.delete_drained(ino);
        }
    }

    /// The same, whatever it holds.
    pub(crate) fn delete_drained(&mut self, ino: Ino) {
        self.orphans.remove(&ino);
        self.work_bytes += self.work_of_removal(ino);
        let inode = self.inodes.get(&ino).expect("a deleted inode is in memory");
        inode.dead = true;
        let data = inode.data.take();
        let (stored, allocated) = (inode.stored, inode.row.allocated);
        inode.row.inline = None;
        let clean = data.map_or(0, |data| data.dirty.values().map(|dirty| dirty.pieces.cost()).sum());
        self.dirty_bytes -= clean;
        recount(&mut self.counters.inodes_used, 0, 1);
        recount(&mut self.counters.bytes_used, 0, allocated);
        if stored {
            self.touch(ino);
            self.inodes.reweigh(&ino);
        } else {
            self.inodes.remove(&ino);
        }
    }

    /// Bytes of memory that inodes and names take, and what is known of those that are held.
    pub fn metadata_bytes(&self) -> usize {
        let holds = self.holds.capacity() * (size_of::<(Ino, u64)>() + 1);
        self.inodes.weight() + self.names.weight() + holds
    }

    /// Forgets what was not used lately, as the bounds demand.
    pub fn evict(&mut self) {
        while let Some(((parent, _), slot)) = self.names.evict() {
            if slot.entry.is_some()
                && let Some(directory) = self.inodes.get(&parent).and_then(|inode| inode.directory.as_mut())
            {
                directory.complete = false;
            }
        }
        while self.inodes.evict().is_some() {}
    }

    /// True if [`Tree::evict`] has more entries to look at than it does at once: no operation is
    /// to wait for all of them.
    pub fn is_to_evict(&self) -> bool {
        self.names.is_owed() || self.inodes.is_owed()
    }

    /// Stops until there is room for `bytes` more of changes.
    pub fn room(&self, bytes: u64) -> Result<(), Stop> {
        let before = self.dirty_bytes + self.work_bytes;
        if before > 0 && before + bytes > self.dirty_bytes_max {
            return Err(Miss::Room(bytes).into());
        }
        self.leave_room(bytes);
        Ok(())
    }

    /// Has memory that is kept for blocks given back where changes, and `more` bytes of them, need
    /// it.
    pub fn leave_room(&self, more: u64) {
        pool::leave_room(usize::try_from(self.dirty_bytes.saturating_add(more)).unwrap_or(usize::MAX));
    }

    /// The next number for an inode or a cookie.
    pub fn next_id(&self) -> u64 {
        self.counters.next_id
    }
}
