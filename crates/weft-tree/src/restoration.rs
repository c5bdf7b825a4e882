//! Rows of the past that a subtree gets back in one step.
//!
//! A restoration is decided by rows that the store has, with nothing uncommitted over them, and is
//! applied to the tree whole: all rows that it needs come with it, so that it stops for nothing.
//! It is no [`crate::Mutation`]: it names blocks that only a kept commit may name, and so many rows
//! that the intent log has no room for them. Until it is committed the journal has a gap, and a
//! sync commits.

use crate::data::{FileData, Stored};
use crate::inode::{Changed, Directory, Inode, Xattrs};
use crate::names::Entry;
use crate::tree::{ROW_BYTES, Tree, recount};
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;
use std::ops::Range;
use weft_store::{BlockRef, Digest, Ino, InodeRow, Kind, Name, NameRow, OpNo, Span, Timestamp};

/// Bytes of zeros that are hashed in the time of one byte that is read and hashed.
const ZEROS_WORK: u64 = 16;

/// All changes of one restoration.
#[derive(Debug, Default)]
pub struct Restoration {
    /// Inodes that the restoration changes or makes.
    pub inodes: Vec<RestoredInode>,
    /// Entries that go, before others come.
    pub removed: Vec<NameRow>,
    /// Entries that come, with positions of their own.
    pub added: Vec<NameRow>,
    /// Inodes that lose names and are not restored themselves, with how many names they lose.
    pub losing: Vec<(InodeRow, u32)>,
    /// The directory outside that names what is restored; none if that is the root.
    pub parent: Option<ParentChange>,
    /// Inodes that must not have changed since the rows were read.
    pub relied_on: FxHashSet<Ino>,
    /// The time of the restoration.
    pub time: Timestamp,
}

/// Change of the directory that names what is restored.
#[derive(Clone, Debug)]
pub struct ParentChange {
    /// Its row, should it not be in memory.
    pub row: InodeRow,
    /// The name in it.
    pub name: Name,
    /// True if the name names something else afterwards.
    pub is_changed: bool,
    /// Entries that it gains.
    pub entries: i64,
    /// Directories that it gains.
    pub directories: i64,
}

/// An inode as it is to be.
#[derive(Debug)]
pub struct RestoredInode {
    /// Its row as of the last commit; none of one that is made.
    pub present: Option<InodeRow>,
    /// Its row as it is to be; the time of its last change is that of the restoration.
    pub row: InodeRow,
    /// Its blocks.
    pub content: RestoredContent,
    /// Its digest, if one block is all of it.
    pub alone: Option<Digest>,
    /// Its extended attributes; none if they stay.
    pub xattrs: Option<RestoredXattrs>,
}

/// Extended attributes of a restored inode.
#[derive(Debug)]
pub struct RestoredXattrs {
    /// All of them.
    pub map: BTreeMap<Name, Vec<u8>>,
    /// The names of those that change.
    pub changed: Vec<Name>,
}

/// Blocks of a restored inode.
#[derive(Debug, PartialEq, Eq)]
pub enum RestoredContent {
    /// As they are.
    Same,
    /// These alone.
    Whole(Vec<(u64, Stored)>),
    /// Others at some indices: ranges without blocks now, then blocks that come.
    Partly(Vec<Range<u64>>, Vec<(u64, Stored)>),
}

impl RestoredContent {
    fn blocks(&self) -> &[(u64, Stored)] {
        match self {
            RestoredContent::Same => &[],
            RestoredContent::Whole(blocks) | RestoredContent::Partly(_, blocks) => blocks,
        }
    }
}

impl Restoration {
    /// Returns the bytes of changes that it adds to the tree, with the work of its commit.
    pub fn cost(&self, block_size: u64) -> u64 {
        let rows = self.inodes.len() + self.removed.len() + self.added.len() + self.losing.len() + 1;
        rows as u64 * ROW_BYTES + self.inodes.iter().map(|inode| inode.work(block_size)).sum::<u64>()
    }
}

impl RestoredInode {
    /// The work of a commit that stores it, beside its row, as bytes.
    fn work(&self, block_size: u64) -> u64 {
        let blocks = self.content.blocks().iter();
        let blocks = blocks.map(|(index, stored)| self.work_of_block(*index, stored, block_size)).sum::<u64>();
        let values =
            self.xattrs.iter().flat_map(|xattrs| xattrs.changed.iter().filter_map(|name| xattrs.map.get(name)));
        blocks + values.map(|value| value.len() as u64).sum::<u64>()
    }

    /// The same of one block: that is hashed unless its values are known at this place. Zeros
    /// behind what is stored are hashed, too, but not read.
    fn work_of_block(&self, index: u64, stored: &Stored, block_size: u64) -> u64 {
        let is_placed = |(span, block): &(Span, BlockRef)| {
            let length = u64::from(span.length).min(self.row.size.saturating_sub(span.start));
            block.base == span.start && u64::from(block.length) == length
        };
        let extents = stored.extents(index, block_size);
        let is_known = extents.iter().all(is_placed) && (self.row.size > block_size || self.alone.is_some());
        let held = || extents.iter().map(|(_, block)| u64::from(block.length)).sum::<u64>();
        if is_known { ROW_BYTES } else { held().max(block_size / ZEROS_WORK) }
    }
}

impl Tree {
    /// True if nothing that `restoration` relies on has changed since its rows were read, which is
    /// since the last commit.
    pub fn is_current(&self, restoration: &Restoration) -> bool {
        let outside = restoration.parent.as_ref();
        let is_named_anew = |(parent, name): &(Ino, Name)| {
            outside.is_some_and(|change| change.row.ino == *parent && change.name == *name)
        };
        let is_outside_gone = outside
            .and_then(|change| self.inodes.peek(&change.row.ino))
            .is_some_and(|inode| inode.dead || inode.row.nlink == 0);
        !is_outside_gone
            && !self.dirty_inodes.iter().any(|ino| restoration.relied_on.contains(ino))
            && !self.dirty_names.iter().any(is_named_anew)
    }

    /// Applies `restoration` as the next operation. It must be current.
    pub fn restore(&mut self, restoration: Restoration) {
        let alone = restoration.inodes.iter().filter_map(|inode| match inode.content.blocks() {
            [(0, stored)] => Some((stored.whole()?.id, inode.alone?)),
            _ => None,
        });
        self.alone.extend(alone);
        self.work_bytes += restoration.inodes.iter().map(|inode| inode.work(self.block_size())).sum::<u64>();
        self.learn_all(&restoration);
        let Restoration { inodes, removed, added, losing, parent, time, .. } = restoration;
        for row in &removed {
            self.remove_name(row.parent, &row.name);
        }
        for inode in inodes {
            match inode.present {
                Some(_) => self.restore_present(inode, time),
                None => self.make_restored(inode, time),
            }
        }
        for row in added {
            let entry = Entry { ino: row.ino, kind: row.kind, cookie: row.cookie };
            self.put_name(row.parent, &row.name, entry);
        }
        for (row, names) in losing {
            if row.kind == Kind::Directory {
                // All of its entries are among those removed. It stays, empty, while it is held.
                self.touch_directory(row.ino, -i64::try_from(row.size).unwrap_or(i64::MAX), time);
            }
            (0..names).for_each(|_| self.lose_name(row.ino, time));
        }
        if let Some(change) = parent.filter(|change| change.is_changed) {
            self.change_parent(&change, time);
        }
        self.counters.op = self.counters.op.next();
        self.operations += 1;
        self.journal.leave_gap();
        self.evict();
    }

    /// Takes in all rows that the restoration changes.
    fn learn_all(&mut self, restoration: &Restoration) {
        let own = restoration.inodes.iter().filter_map(|inode| inode.present.as_ref());
        let losing = restoration.losing.iter().map(|(row, _)| row);
        let outside = restoration.parent.iter().map(|change| &change.row);
        for row in own.chain(losing).chain(outside) {
            self.learn_inode(row.clone(), row.ino);
        }
        for row in &restoration.removed {
            self.learn_name(row.parent, &row.name, Some(row.clone()));
        }
    }

    fn change_parent(&mut self, change: &ParentChange, time: Timestamp) {
        self.touch_directory(change.row.ino, change.entries, time);
        let inode = self.inodes.get(&change.row.ino).expect("the parent is in memory");
        let links = i64::from(inode.row.nlink) + change.directories;
        inode.row.nlink = u32::try_from(links).unwrap_or(2);
    }

    /// Makes an inode, which nothing in memory or in the store has the number of.
    fn make_restored(&mut self, restored: RestoredInode, time: Timestamp) {
        let RestoredInode { row, content, xattrs, .. } = restored;
        let row = InodeRow { ctime: time, ..row };
        let (ino, kind, now) = (row.ino, row.kind, self.counters.op.next());
        recount(&mut self.counters.bytes_used, row.allocated, 0);
        recount(&mut self.counters.inodes_used, 1, 0);
        let mut data = (kind == Kind::File).then(|| Box::new(FileData::without_extents()));
        if let Some(data) = &mut data {
            content.blocks().iter().for_each(|(index, stored)| data.put_shared(*index, stored.clone()));
        }
        let xattrs = xattrs.map(|xattrs| Xattrs { map: xattrs.map, changed: xattrs.changed.into_iter().collect() });
        let directory = || Box::new(Directory { complete: true, listed: true, is_whole: true, ..Directory::default() });
        let inode = Inode {
            changed: Changed::CLEAN,
            stored: false,
            closed: Changed::CLEAN,
            dead: false,
            content: now,
            touched: OpNo(0),
            attached: None,
            data,
            xattrs: xattrs.map(Box::new),
            directory: (kind == Kind::Directory).then(directory),
            row,
        };
        self.inodes.insert(ino, Box::new(inode));
        self.touch(ino);
    }

    /// Changes an inode, which is in memory.
    fn restore_present(&mut self, restored: RestoredInode, time: Timestamp) {
        let RestoredInode { row, content, xattrs, .. } = restored;
        let (ino, now) = (row.ino, self.counters.op.next());
        let inode = self.inodes.get(&ino).expect("a restored inode is in memory");
        let (allocated, dirty) = (inode.row.allocated, restore_blocks(inode, &content));
        if content != RestoredContent::Same || row.kind == Kind::Directory {
            inode.content = now;
        }
        let after = row.allocated;
        inode.row = InodeRow { ctime: time, generation: inode.row.generation, ..row };
        inode.attached = None;
        if let Some(RestoredXattrs { map, changed }) = xattrs {
            let known = inode.xattrs.get_or_insert_default();
            known.map = map;
            known.changed.extend(changed);
        }
        recount(&mut self.counters.bytes_used, after, allocated);
        self.dirty_bytes -= dirty;
        self.touch(ino);
        self.inodes.reweigh(&ino);
    }
}

/// Gives file `inode` other blocks; tells how many bytes are no longer dirty.
fn restore_blocks(inode: &mut Inode, content: &RestoredContent) -> u64 {
    let everything = 0..u64::MAX;
    let (dropped, blocks) = match content {
        RestoredContent::Same => return 0,
        RestoredContent::Whole(blocks) => (std::slice::from_ref(&everything), blocks),
        RestoredContent::Partly(dropped, blocks) => (&dropped[..], blocks),
    };
    let data = inode.data();
    data.without_hole = None;
    let clean = dropped.iter().map(|range| data.drop_blocks(range.clone())).sum();
    blocks.iter().for_each(|(index, stored)| data.put_shared(*index, stored.clone()));
    clean
}
