//! What one commit takes from memory, and what becomes of it afterwards.

use crate::apply::taken;
use crate::data::{DirtyBlock, FileData, Frozen, Layout, Stored, Written, merged};
use crate::inode::{Changed, Inode, LISTED_MAX};
use crate::stop::Stop;
use crate::tree::{ROW_BYTES, Tree, recount};
use rustc_hash::FxHashSet;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use weft_block::Slice;
use weft_store::{
    Batch, BlockId, BlockRef, ExtentChange, Header, Ino, InodeChange, Name, NameChange, NameRow, XattrChange,
};

/// A pending commit on its way into the store.
pub struct PendingCommit {
    /// Its rows; blocks are built from `jobs`.
    pub batch: Batch,
    /// Blocks to build.
    pub jobs: Vec<Job>,
    /// Those whose base is damaged; they stay dirty.
    pub damaged: Vec<Job>,
    /// True if the store was asked to commit it: it may have been applied, whatever the store
    /// answered.
    pub is_sent: bool,
    /// Number of extent changes that do not come from `jobs`.
    own_extents: usize,
    generation: Changed,
    inodes: Vec<Ino>,
    names: Vec<(Ino, Name)>,
    shared: Vec<(Ino, u64, Stored)>,
    /// The blocks of those.
    shared_blocks: FxHashSet<BlockId>,
    /// Bytes that it adds to `dirty_bytes`.
    bytes: u64,
    /// Bytes that it adds to [`Tree::work_bytes`].
    work: u64,
}

/// A block of a file to be stored anew, from its base and what was written over it.
pub struct Job {
    /// The file.
    pub ino: Ino,
    /// The index of the block in the file.
    pub index: u64,
    /// The bytes of it, up to the end of the file.
    pub len: usize,
    /// The stored blocks of it so far.
    pub base: Option<Stored>,
    /// The bytes written over that.
    pub pieces: Arc<Frozen>,
    /// The blocks that it becomes.
    pub layout: Layout,
    /// The reason to store it.
    pub reason: JobReason,
    /// A number not above those of its new blocks, and above those of the job before.
    pub order: BlockId,
}

/// The reason to store a block of a file anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobReason {
    /// Something was written to it.
    Written,
    /// The same, and the store does not know yet that the file has the base: all that stays of it
    /// is to be put.
    WrittenOverShared,
    /// Nothing was: the several blocks that it is stored in become one.
    Merge,
}

impl PendingCommit {
    /// Forgets what an earlier try made of `jobs`.
    pub fn begin_again(&mut self) {
        self.batch.extents.truncate(self.own_extents);
        self.jobs.append(&mut self.damaged);
        self.jobs.sort_unstable_by_key(|job| job.order);
    }

    /// The jobs with these [`Job::order`]s, ascending, are of damaged blocks.
    pub fn set_aside(&mut self, damaged: &[BlockId]) {
        let is_damaged = |job: &Job| damaged.binary_search(&job.order).is_ok();
        (self.damaged, self.jobs) = std::mem::take(&mut self.jobs).into_iter().partition(is_damaged);
    }

    /// Blocks in whose place others lie now.
    pub fn replaced(&self) -> Vec<BlockId> {
        self.jobs.iter().flat_map(|job| job.layout.replaced(job.base.as_ref())).collect()
    }

    /// True if it puts block `id`, which is stored already, at one more place.
    pub fn shares(&self, id: BlockId) -> bool {
        self.shared_blocks.contains(&id)
    }

    /// True if an earlier try of this pending commit is the store's last commit.
    pub fn is_last_of(&self, header: &Header) -> bool {
        self.is_sent && header.commit == self.batch.commit && header.counters == self.batch.counters
    }
}

impl Tree {
    /// Takes all that changed. What changes from now on belongs to the next commit.
    pub fn freeze(&mut self) -> PendingCommit {
        let mut pending = PendingCommit {
            batch: Batch::default(),
            jobs: Vec::new(),
            damaged: Vec::new(),
            is_sent: false,
            own_extents: 0,
            generation: self.generation,
            inodes: std::mem::take(&mut self.dirty_inodes),
            names: std::mem::take(&mut self.dirty_names),
            shared: Vec::new(),
            shared_blocks: FxHashSet::default(),
            bytes: 0,
            // There is no other commit in flight.
            work: self.work_bytes,
        };
        self.generation = Changed(self.generation.0 + 1);
        pending.bytes = ROW_BYTES * (pending.inodes.len() + pending.names.len()) as u64;
        let inodes = std::mem::take(&mut pending.inodes);
        for ino in &inodes {
            self.freeze_inode(*ino, &mut pending);
        }
        pending.inodes = inodes;
        let names = std::mem::take(&mut pending.names);
        for key in &names {
            self.freeze_name(key, &mut pending);
        }
        pending.names = names;
        for (ino, index) in std::mem::take(&mut self.merging) {
            self.freeze_merge(ino, index, &mut pending);
        }
        pending.batch.alone = self.alone.drain().collect();
        self.journal.rotate();
        pending.batch.counters = self.counters;
        pending.own_extents = pending.batch.extents.len();
        pending
    }

    fn freeze_name(&mut self, key: &(Ino, Name), pending: &mut PendingCommit) {
        let Some(slot) = self.names.get(key) else { return };
        if slot.changed != pending.generation {
            return;
        }
        let (parent, name) = (key.0, key.1.clone());
        match slot.entry {
            Some(entry) => {
                slot.stored = true;
                let row = NameRow { parent, name, ino: entry.ino, kind: entry.kind, cookie: entry.cookie };
                pending.batch.names.push(NameChange::Put(row));
            }
            // Made and removed between two commits: the store never hears of it.
            None if !slot.stored => slot.changed = Changed::CLEAN,
            None => {
                slot.stored = false;
                pending.batch.names.push(NameChange::Remove { parent, name });
            }
        }
    }

    fn freeze_inode(&mut self, ino: Ino, pending: &mut PendingCommit) {
        let (block_size, inline_max) = (self.block_size(), u64::from(self.volume.inline_max));
        let Some(inode) = self.inodes.get(&ino) else { return };
        if inode.changed != pending.generation {
            return;
        }
        if inode.dead {
            pending.batch.inodes.push(InodeChange::Remove(ino));
            return;
        }
        let bytes = freeze_inline(inode, inline_max, block_size);
        recount(&mut self.counters.bytes_used, bytes.taken_after, bytes.taken_before);
        self.dirty_bytes -= bytes.clean;
        let (taken_after, taken_before) = freeze_extents(inode, block_size, &mut self.counters.next_block, pending);
        recount(&mut inode.row.allocated, taken_after, taken_before);
        recount(&mut self.counters.bytes_used, taken_after, taken_before);
        if let Some(xattrs) = &mut inode.xattrs {
            for name in std::mem::take(&mut xattrs.changed) {
                let value = xattrs.map.get(&name).cloned();
                pending.batch.xattrs.push(XattrChange { ino, name, value });
            }
        }
        inode.stored = true;
        pending.batch.inodes.push(InodeChange::Put(inode.row.clone()));
        self.inodes.reweigh(&ino);
    }

    /// Has blocks of a block of a file become one, if still nothing was written to it.
    fn freeze_merge(&mut self, ino: Ino, index: u64, pending: &mut PendingCommit) {
        let Some(data) = self.inodes.get(&ino).filter(|inode| !inode.dead).and_then(|inode| inode.data.as_mut()) else {
            return;
        };
        let is_shared = pending.shared.iter().any(|(of, at, _)| (*of, *at) == (ino, index));
        let Some(parts) = data.mergeable(index).filter(|_| !is_shared) else { return };
        let order = BlockId(self.counters.next_block);
        let Some(layout) = merged(parts, &mut self.counters.next_block) else { return };
        let base = Stored::Parts(parts.into());
        let len = base.end();
        let pieces = Arc::new(Frozen::default());
        let dirty = DirtyBlock { frozen: Some(pieces.clone()), planned: base.taken(), ..DirtyBlock::default() };
        data.dirty.insert(index, dirty);
        let reason = JobReason::Merge;
        pending.jobs.push(Job { ino, index, len, base: Some(base), pieces, layout, reason, order });
        self.inodes.reweigh(&ino);
    }

    /// Has the next commit make one block of each block of `range` of file `ino` that is stored in
    /// several, without holes, and that nothing is written to. Returns how many there are.
    pub fn merge_blocks(&mut self, ino: Ino, range: Range<u64>) -> Result<u64, Stop> {
        self.know_extents(ino, range.clone())?;
        let data = self.file(ino)?.data();
        let indices = data.extents.range(range).map(|(index, _)| *index).collect::<Vec<_>>();
        let indices = indices.into_iter().filter(|index| data.mergeable(*index).is_some()).collect::<Vec<_>>();
        self.merging.extend(indices.iter().map(|index| (ino, *index)));
        Ok(indices.len() as u64)
    }

    /// The pending commit is in the store; `blocks` are its new blocks, of [`Layout::ids`] of each
    /// job in turn.
    pub fn finish(&mut self, pending: &PendingCommit, blocks: &[BlockRef]) {
        self.finished += 1;
        self.dirty_bytes -= pending.bytes;
        self.work_bytes -= pending.work;
        self.leave_room(0);
        self.journal.committed();
        let block_size = usize::try_from(self.block_size()).expect("a block size");
        let mut rest = blocks;
        for job in &pending.jobs {
            let (own, others) = rest.split_at(job.layout.ids().len());
            self.install(job, job.layout.stored(own, block_size));
            rest = others;
        }
        for job in &pending.damaged {
            self.thaw_job(job);
            let is_written = job.reason != JobReason::Merge;
            if is_written && self.inodes.get(&job.ino).is_some_and(|inode| !inode.dead) {
                self.touch(job.ino);
            }
        }
        for key in &pending.names {
            let Some(slot) = self.names.get(key) else { continue };
            slot.changed.committed(pending.generation);
        }
        for ino in &pending.inodes {
            let Some(inode) = self.inodes.get(ino) else { continue };
            if let Some(directory) = &mut inode.directory {
                directory.listed &= directory.added.len() <= LISTED_MAX;
                if !directory.listed {
                    directory.added.retain(|_, added| added.changed > pending.generation);
                }
                directory.removed.retain(|_, changed| *changed > pending.generation);
            }
            if let Some(data) = &mut inode.data {
                data.clearing = crate::data::Ranges::default();
                data.is_in_flight = false;
            }
            inode.closed.committed(pending.generation);
            if inode.changed == pending.generation {
                inode.changed = Changed::CLEAN;
                if inode.dead {
                    self.inodes.remove(ino);
                } else {
                    self.inodes.reweigh(ino);
                }
            }
        }
        self.names.owe(pending.names.len());
        self.inodes.owe(pending.inodes.len());
        self.evict();
    }

    /// The block of `job` is `stored`: unless it was dropped meanwhile, that is now the base. It
    /// may be shorter than the layers it replaces, which reached past the end of the file: if the
    /// file grew since, it now takes less than was accounted.
    fn install(&mut self, job: &Job, stored: Stored) {
        let block_size = self.block_size();
        let Some(inode) = self.inodes.get(&job.ino) else { return };
        let range = job.index..job.index + 1;
        let before = taken(inode, &range, block_size);
        let Some(data) = inode.data.as_mut() else { return };
        let Some(dirty) = data.dirty.get_mut(&job.index) else { return };
        if !dirty.frozen.as_ref().is_some_and(|frozen| Arc::ptr_eq(frozen, &job.pieces)) {
            return;
        }
        dirty.frozen = None;
        if dirty.pieces.is_empty() {
            data.dirty.remove(&job.index);
        }
        data.extents.insert(job.index, stored);
        let after = taken(inode, &range, block_size);
        if after != before {
            recount(&mut inode.row.allocated, after, before);
            recount(&mut self.counters.bytes_used, after, before);
            self.touch(job.ino);
        }
    }

    /// The pending commit did not get into the store: all in it counts as changed again.
    pub fn thaw(&mut self, pending: &PendingCommit) {
        self.dirty_bytes -= pending.bytes;
        for job in pending.jobs.iter().chain(&pending.damaged) {
            self.thaw_job(job);
        }
        for key in &pending.names {
            let generation = self.generation;
            let Some(slot) = self.names.get(key) else { continue };
            // Whether the store has it is no longer certain; deleting what is not there is
            // harmless.
            slot.stored = true;
            if slot.changed == pending.generation {
                slot.changed = generation;
                self.dirty_names.push(key.clone());
                self.dirty_bytes += ROW_BYTES;
            }
        }
        for change in &pending.batch.xattrs {
            if let Some(xattrs) = self.inodes.get(&change.ino).and_then(|inode| inode.xattrs.as_mut()) {
                xattrs.changed.insert(change.name.clone());
            }
        }
        self.alone.extend(pending.batch.alone.iter().copied());
        for (ino, index, stored) in &pending.shared {
            if let Some(data) = self.inodes.get(ino).and_then(|inode| inode.data.as_mut())
                && data.extents.get(index).is_some_and(|now| now.is_same(stored))
            {
                data.shared.insert(*index);
            }
        }
        for ino in &pending.inodes {
            let Some(inode) = self.inodes.get(ino) else { continue };
            if let Some(data) = &mut inode.data {
                data.is_in_flight = false;
                let clearing = std::mem::take(&mut data.clearing);
                data.cleared.add_all(&clearing);
            }
            if inode.closed == pending.generation {
                inode.closed = self.generation;
            }
            if inode.changed == pending.generation {
                self.touch(*ino);
            }
        }
        self.thaw_directories(pending);
    }

    /// Entries of the failed commit stay over the store's listing until the next one succeeds.
    fn thaw_directories(&mut self, pending: &PendingCommit) {
        let generation = self.generation;
        for ino in &pending.inodes {
            let Some(directory) = self.inodes.get(ino).and_then(|inode| inode.directory.as_mut()) else { continue };
            directory.added.values_mut().for_each(|added| added.changed = generation);
            directory.removed.values_mut().for_each(|changed| *changed = generation);
        }
    }

    fn thaw_job(&mut self, job: &Job) {
        let block_size = self.block_size();
        let Some(inode) = self.inodes.get(&job.ino) else { return };
        let range = job.index..job.index + 1;
        let taken_before = taken(inode, &range, block_size);
        let Some(data) = inode.data.as_mut() else { return };
        let Some(dirty) = data.dirty.get_mut(&job.index) else { return };
        if dirty.frozen.as_ref().is_some_and(|frozen| Arc::ptr_eq(frozen, &job.pieces)) {
            dirty.frozen = None;
            let before = dirty.pieces.cost();
            dirty.pieces.thaw(&job.pieces);
            self.dirty_bytes += dirty.pieces.cost();
            self.dirty_bytes -= before;
            if dirty.pieces.is_empty() {
                data.dirty.remove(&job.index);
            }
            let taken_after = taken(inode, &range, block_size);
            recount(&mut inode.row.allocated, taken_after, taken_before);
            recount(&mut self.counters.bytes_used, taken_after, taken_before);
        }
    }
}

/// Changes of the accounts when content becomes inline.
#[derive(Default)]
struct Inlined {
    clean: u64,
    taken_before: u64,
    taken_after: u64,
}

/// Makes the dirty content of a small file without stored blocks its inline content.
fn freeze_inline(inode: &mut Inode, inline_max: u64, block_size: u64) -> Inlined {
    let size = inode.row.size;
    let Some(data) = &mut inode.data else { return Inlined::default() };
    let small = size <= inline_max && size <= block_size;
    if !small || !data.extents.is_empty() || !data.known.covers(0..1) || data.dirty.keys().any(|index| *index != 0) {
        return Inlined::default();
    }
    let Some(mut dirty) = data.dirty.remove(&0) else { return Inlined::default() };
    let clean = dirty.pieces.cost();
    let end = dirty.pieces.end();
    let size = usize::try_from(size).expect("small");
    let mut bytes = inode.row.inline.take().map(|old| old.to_vec()).unwrap_or_default();
    let len = bytes.len().max(end).min(size);
    let frozen = dirty.pieces.freeze();
    let inline = frozen.whole(0..len).filter(|_| len > 0).unwrap_or_else(|| {
        bytes.resize(len.max(end), 0);
        for (start, piece) in frozen.within(0..len) {
            bytes[start..start + piece.len()].copy_from_slice(&piece);
        }
        bytes.truncate(len);
        Slice::from(bytes)
    });
    let taken_before = inode.row.allocated;
    inode.row.allocated = inline.len() as u64;
    inode.row.inline = (!inline.is_empty()).then_some(inline);
    Inlined { clean, taken_before, taken_after: inode.row.allocated }
}

/// Freezes the dirty blocks of a file and lists the changes of its map. Returns the bytes that
/// these blocks will take, and what was accounted for them.
fn freeze_extents(inode: &mut Inode, block_size: u64, next_block: &mut u64, pending: &mut PendingCommit) -> (u64, u64) {
    let ino = inode.row.ino;
    let size = inode.row.size;
    let Some(data) = &mut inode.data else { return (0, 0) };
    data.is_in_flight = true;
    data.clearing = std::mem::take(&mut data.cleared);
    let bytes = |range: Range<u64>| range.start.saturating_mul(block_size)..range.end.saturating_mul(block_size);
    let clear = |range: Range<u64>| ExtentChange::Clear { ino, range: bytes(range) };
    pending.batch.extents.extend(data.clearing.iter().map(clear));
    let shared = std::mem::take(&mut data.shared);
    for index in shared.iter().copied() {
        let Some(stored) = data.extents.get(&index) else { continue };
        pending.shared.push((ino, index, stored.clone()));
        pending.shared_blocks.extend(stored.blocks().map(|block| block.id));
        if data.dirty.contains_key(&index) {
            continue;
        }
        if stored.whole().is_none() {
            // A longer extent may be there.
            pending.batch.extents.push(clear(index..index + 1));
        }
        let put = |(span, block)| ExtentChange::Put { ino, span, block };
        pending.batch.extents.extend(stored.extents(index, block_size).into_iter().map(put));
    }
    freeze_blocks(data, (ino, size, block_size), &shared, next_block, pending)
}

/// Freezes the dirty blocks of the file of inode `ino`, of `size` bytes, as [`freeze_extents`]. The
/// store does not know yet of those in `shared`.
fn freeze_blocks(
    data: &mut FileData,
    (ino, size, block_size): (Ino, u64, u64),
    shared: &BTreeSet<u64>,
    next_block: &mut u64,
    pending: &mut PendingCommit,
) -> (u64, u64) {
    let (mut after, mut before) = (0, 0);
    let indices: Vec<u64> = data.dirty.keys().copied().collect();
    for index in indices {
        let left = size.saturating_sub(index * block_size);
        let end = (data.block_end(index, None) as u64).min(left);
        let taken_before = data.block_taken(index, None, left);
        let base = data.extents.get(&index).cloned();
        let Some(dirty) = data.dirty.get_mut(&index) else { continue };
        let pieces = Arc::new(dirty.pieces.freeze());
        pending.bytes += pieces.cost();
        if end == 0 {
            data.dirty.remove(&index);
            continue;
        }
        let as_usize = |value: u64| usize::try_from(value).expect("at most a block");
        let (len, block_size) = (as_usize(end), as_usize(block_size));
        let order = BlockId(*next_block);
        let layout = Written { base: base.as_ref(), pieces: &pieces, len, block_size }.layout(next_block);
        dirty.frozen = Some(pieces.clone());
        dirty.planned = layout.taken(len);
        before += taken_before;
        after += dirty.planned;
        let reason = if shared.contains(&index) { JobReason::WrittenOverShared } else { JobReason::Written };
        pending.jobs.push(Job { ino, index, len, base, pieces, layout, reason, order });
    }
    (after, before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutation::{Lost, Mutation, NewInode, SetRow};
    use weft_store::memory::MemoryStore;
    use weft_store::{Cookie, InodeRow, Kind, Place, RowStore, Timestamp, VolumeOptions};

    const FILE: Ino = Ino(16);

    fn tree_with_file() -> Tree {
        let options = VolumeOptions { block_size: 4096, inline_max: 0, ..VolumeOptions::default() };
        let header = MemoryStore::new(options).header().expect("a header");
        let mut tree = Tree::new(&header, 256 << 20, 256 << 20);
        let root = InodeRow::new_root(0, 0, Timestamp(0));
        tree.inodes.insert(Ino::ROOT, Box::new(Inode::loaded(root)));
        let inode = NewInode {
            ino: FILE,
            kind: Kind::File,
            permissions: 0o644,
            uid: 0,
            gid: 0,
            rdev: 0,
            target: None,
            access_acl: None,
            default_acl: None,
            time: Timestamp(0),
        };
        let name = Some((Name::new(b"file").expect("a name"), Cookie(16)));
        tree.perform(&Mutation::Make { parent: Ino::ROOT, name, inode }).expect("made");
        tree
    }

    fn write(tree: &mut Tree, len: usize) {
        let data = vec![1; len].into();
        let mutation = Mutation::Write { ino: FILE, offset: 0, data, lost: Lost::default(), time: Timestamp(0) };
        tree.perform(&mutation).expect("written");
    }

    fn resize(tree: &mut Tree, size: u64) {
        let set = SetRow { size: Some(size), ..SetRow::default() };
        tree.perform(&Mutation::Attributes { ino: FILE, set, time: Timestamp(0) }).expect("sized");
    }

    fn commit(tree: &mut Tree, meanwhile: impl FnOnce(&mut Tree)) {
        let pending = tree.freeze();
        meanwhile(tree);
        let stored = |job: &Job| {
            let length = u32::try_from(job.len).expect("a block");
            BlockRef { id: job.order, length, base: 0, value: [0; 32], place: Place::Database }
        };
        let blocks: Vec<BlockRef> = pending.jobs.iter().map(stored).collect();
        tree.finish(&pending, &blocks);
    }

    fn allocated(tree: &mut Tree) -> u64 {
        tree.inodes.get(&FILE).expect("in memory").row.allocated
    }

    #[test]
    fn a_file_cut_before_a_commit_and_grown_during_it_takes_what_is_stored() {
        let mut tree = tree_with_file();
        write(&mut tree, 3000);
        commit(&mut tree, |_| {});
        assert_eq!(allocated(&mut tree), 3000);
        resize(&mut tree, 10);
        commit(&mut tree, |tree| resize(tree, 4000));
        assert_eq!(allocated(&mut tree), 10);
        commit(&mut tree, |_| {});
        assert_eq!((allocated(&mut tree), tree.counters.bytes_used, tree.dirty_bytes), (10, 10, 0));
    }

    #[test]
    fn what_changes_during_a_commit_stays_dirty_for_the_next() {
        let mut tree = tree_with_file();
        write(&mut tree, 3000);
        commit(&mut tree, |tree| write(tree, 100));
        assert!(tree.dirty_bytes > 0);
        let pending = tree.freeze();
        assert_eq!(pending.jobs.len(), 1);
        tree.thaw(&pending);
        commit(&mut tree, |_| {});
        assert_eq!((tree.dirty_bytes, allocated(&mut tree)), (0, 3000));
    }
}
