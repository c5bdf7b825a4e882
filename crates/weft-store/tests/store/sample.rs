//! A small volume that keeps every rule of a file system.

use std::collections::BTreeMap;
use weft_block::{Rope, Slice};
use weft_store::*;

/// Directories, a small and a large file, a hard link, a symbolic link, attributes, an orphan.
pub struct Sample {
    batch: Batch,
    inodes: BTreeMap<u64, InodeRow>,
    /// Bytes in a block of the volume.
    block: u64,
}

/// Inodes of the sample.
pub const DIRECTORY: u64 = 20;
pub const SUBDIRECTORY: u64 = 21;
pub const SMALL: u64 = 22;
pub const LARGE: u64 = 23;
pub const CLONE: u64 = 24;
pub const SYMLINK: u64 = 25;
pub const ORPHAN: u64 = 26;

const BLOCK: u64 = 64 << 10;

/// Fills the new volume in `store`.
pub fn fill(store: &dyn Store) {
    let mut sample = Sample::begin(store, 100);
    sample.batch.time = Timestamp(1_000_000_000);
    sample.make(DIRECTORY, Kind::Directory, 1, b"dir");
    sample.make(SUBDIRECTORY, Kind::Directory, DIRECTORY, b"\xff sub");
    sample.make(SMALL, Kind::File, SUBDIRECTORY, b"small");
    sample.link(SMALL, 1, b"second name");
    sample.content(SMALL, b"hello");
    sample.make(LARGE, Kind::File, DIRECTORY, b"large");
    sample.make(CLONE, Kind::File, DIRECTORY, b"clone");
    sample.blocks(LARGE, &[(0, 65536), (1, 65536), (5, 100)], 5 * BLOCK + 100);
    sample.make(SYMLINK, Kind::Symlink, 1, b"symlink");
    sample.content(SYMLINK, b"dir/large");
    sample.make(ORPHAN, Kind::File, 0, b"");
    sample.blocks(ORPHAN, &[(0, 5000)], 5000);
    let name = Name::of_xattr(b"user.a/b").expect("a valid name");
    sample.batch.xattrs.push(XattrChange { ino: Ino(LARGE), name, value: Some(b"value".to_vec()) });
    sample.inode(LARGE).xattrs = 1;
    store.apply(&sample.finish(), Durability::Durable).expect("applied");
    // A second file shares a block of the first.
    let header = store.header().expect("readable");
    let mut batch = Batch { commit: header.commit.next(), counters: header.counters, ..Batch::default() };
    batch.counters.bytes_used += BLOCK;
    let block = store.extents(Ino(LARGE), BLOCK..BLOCK + 1).expect("readable")[0].1;
    batch.extents.push(ExtentChange::Put { ino: Ino(CLONE), span: Span::of_block(0, 65536), block });
    let clone = store.inodes(Ino(CLONE), 1).expect("readable").remove(0);
    batch.inodes.push(InodeChange::Put(InodeRow { size: BLOCK, allocated: BLOCK, ..clone }));
    store.apply(&batch, Durability::Durable).expect("applied");
}

/// The directory that [`fill_large`] makes, and the file beside it.
pub const NAMES: u64 = 20;
pub const SPARSE: u64 = 21;

/// Fills the new volume in `store` with what has branches and nodes of two levels: a directory of
/// many names and a long file of little data.
pub fn fill_large(store: &dyn Store) {
    let mut sample = Sample::begin(store, 1000);
    sample.make(NAMES, Kind::Directory, 1, b"names");
    sample.make(SPARSE, Kind::File, 1, b"sparse");
    sample.blocks(SPARSE, &[(0, 65536), (7, 65536), (5000, 100)], 5000 * BLOCK + 100);
    for number in 0..200 {
        sample.make(100 + number, Kind::File, NAMES, format!("file{number}").as_bytes());
    }
    store.apply(&sample.finish(), Durability::Durable).expect("applied");
}

/// Fills the new volume of blocks of 4 KiB in `store` with a long file of little data, in whose
/// middle are short blocks, which zeros follow: their values do not tell those of the file.
pub fn fill_short(store: &dyn Store) {
    let mut sample = Sample::begin(store, 100);
    sample.make(SPARSE, Kind::File, 1, b"sparse");
    sample.blocks(SPARSE, &[(24, 4096), (25, 2600), (219, 300), (5000, 100)], 5000 * sample.block + 100);
    store.apply(&sample.finish(), Durability::Durable).expect("applied");
}

/// Fills the new volume in `store` with `files` empty files in one directory, whose numbers begin
/// with 100.
pub fn fill_many(store: &dyn Store, files: u64) {
    let mut sample = Sample::begin(store, 200 + files);
    sample.make(NAMES, Kind::Directory, 1, b"names");
    for number in 0..files {
        sample.make(100 + number, Kind::File, NAMES, format!("file{number}").as_bytes());
    }
    store.apply(&sample.finish(), Durability::Durable).expect("applied");
}

/// Fills the new volume in `store` with a file as long as any may be, whose last block holds data.
pub fn fill_longest(store: &dyn Store) {
    let mut sample = Sample::begin(store, 100);
    sample.make(SPARSE, Kind::File, 1, b"longest");
    let size = i64::MAX.unsigned_abs();
    sample.blocks(SPARSE, &[(size / BLOCK, 65535)], size);
    store.apply(&sample.finish(), Durability::Durable).expect("applied");
}

impl Sample {
    /// The commit after the last of `store`, which is new: its root, and inodes below `next_id` to
    /// come.
    fn begin(store: &dyn Store, next_id: u64) -> Sample {
        let header = store.header().expect("readable");
        let counters = Counters { next_id, op: OpNo(9), ..header.counters };
        let batch = Batch { commit: header.commit.next(), counters, ..Batch::default() };
        let inodes = BTreeMap::from([(1, InodeRow::new_root(0, 0, Timestamp(0)))]);
        Sample { batch, inodes, block: header.options.block_size.into() }
    }

    fn inode(&mut self, ino: u64) -> &mut InodeRow {
        self.inodes.get_mut(&ino).expect("made before")
    }

    fn make(&mut self, ino: u64, kind: Kind, parent: u64, name: &[u8]) {
        let is_directory = kind == Kind::Directory;
        let row = InodeRow {
            ino: Ino(ino),
            kind,
            nlink: if is_directory { 1 } else { 0 },
            parent: Ino(if is_directory { parent } else { 0 }),
            ..InodeRow::new_root(0, 0, Timestamp(5))
        };
        self.inodes.insert(ino, row);
        if parent > 0 {
            self.link(ino, parent, name);
            self.inode(parent).nlink += u32::from(is_directory);
        }
    }

    fn link(&mut self, ino: u64, parent: u64, name: &[u8]) {
        self.inode(ino).nlink += 1;
        self.inode(parent).size += 1;
        let kind = self.inode(ino).kind;
        let cookie = Cookie(30 + self.batch.names.len() as u64);
        let name = Name::new(name).expect("a valid name");
        self.batch.names.push(NameChange::Put(NameRow { parent: Ino(parent), name, ino: Ino(ino), kind, cookie }));
    }

    fn content(&mut self, ino: u64, bytes: &[u8]) {
        let row = self.inode(ino);
        row.inline = Some(Slice::from(bytes.to_vec()));
        (row.size, row.allocated) = (bytes.len() as u64, bytes.len() as u64);
    }

    fn blocks(&mut self, ino: u64, blocks: &[(u64, usize)], size: u64) {
        for (index, length) in blocks {
            let id = BlockId(self.batch.counters.next_block);
            self.batch.counters.next_block += 1;
            let bytes: Vec<u8> = (0..*length).map(|i| (i as u64 * 13 + id.0) as u8).collect();
            let new = NewBlock::new(id, Ino(ino), Rope::from(bytes), index * self.block);
            let block = new.at(Place::Database);
            self.batch.blocks.push(new);
            let span = Span::of_block(*index, u32::try_from(self.block).expect("a block size"));
            self.batch.extents.push(ExtentChange::Put { ino: Ino(ino), span, block });
            self.inode(ino).allocated += u64::from(block.length);
        }
        self.inode(ino).size = size;
    }

    fn finish(mut self) -> Batch {
        self.batch.counters.inodes_used = self.inodes.len() as u64;
        self.batch.counters.bytes_used = self.inodes.values().map(|row| row.allocated).sum();
        self.batch.inodes = self.inodes.into_values().map(InodeChange::Put).collect();
        self.batch
    }
}
