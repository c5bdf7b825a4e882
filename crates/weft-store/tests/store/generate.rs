//! Random batches that keep what a batch promises, and no rule of a file system.

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use weft_block::Rope;
use weft_store::*;

/// Places of whole blocks; those behind are of parts of the first blocks.
const WHOLE: u8 = 16;

/// Bytes in a block.
const BLOCK: u32 = 64 << 10;

/// The bytes at place `index`.
fn span(index: u8) -> Span {
    let Some(part) = index.checked_sub(WHOLE) else { return Span::of_block(index.into(), BLOCK) };
    let length = Span::LENGTH_MIN << (part % 4);
    Span { start: u64::from(part / 4) * u64::from(length), length }
}

/// A change, to be made to fit what is there.
#[derive(Clone, Debug)]
pub enum Change {
    Inode { ino: u8, size: u16, inline: Option<Vec<u8>>, nlink: u8 },
    RemoveInode { ino: u8 },
    Name { parent: u8, name: u8, ino: u8 },
    RemoveName { parent: u8, name: u8 },
    Block { ino: u8, index: u8, length: u16 },
    Share { ino: u8, index: u8, which: u8 },
    Clear { ino: u8, start: u8, end: Option<u8> },
    Xattr { ino: u8, name: u8, value: Option<Vec<u8>> },
    Limits { bytes_max: Option<u64>, inodes_max: Option<u64> },
}

/// Changes of one batch.
pub fn changes() -> impl Strategy<Value = Vec<Change>> {
    let ino = || 1..8u8;
    let index = || prop_oneof![0..5u8, WHOLE..WHOLE + 40];
    // Lengths on both sides of a page.
    let length = prop_oneof![1..200u16, 4000..4200u16, 5000..9000u16];
    let bytes = || proptest::collection::vec(any::<u8>(), 0..20);
    let change = prop_oneof![
        3 => (ino(), any::<u16>(), proptest::option::of(bytes()), 0..3u8)
            .prop_map(|(ino, size, inline, nlink)| Change::Inode { ino, size, inline, nlink }),
        1 => ino().prop_map(|ino| Change::RemoveInode { ino }),
        3 => (ino(), 0..6u8, ino()).prop_map(|(parent, name, ino)| Change::Name { parent, name, ino }),
        1 => (ino(), 0..6u8).prop_map(|(parent, name)| Change::RemoveName { parent, name }),
        5 => (ino(), index(), length).prop_map(|(ino, index, length)| Change::Block { ino, index, length }),
        2 => (ino(), index(), any::<u8>()).prop_map(|(ino, index, which)| Change::Share { ino, index, which }),
        2 => (ino(), index(), proptest::option::of(index()))
            .prop_map(|(ino, start, end)| Change::Clear { ino, start, end }),
        2 => (ino(), 0..4u8, proptest::option::of(bytes()))
            .prop_map(|(ino, name, value)| Change::Xattr { ino, name, value }),
        1 => (proptest::option::of(1..1_u64 << 63), proptest::option::of(1..1_u64 << 63))
            .prop_map(|(bytes_max, inodes_max)| Change::Limits { bytes_max, inodes_max }),
    ];
    proptest::collection::vec(change, 0..12)
}

fn ino(number: u8) -> Ino {
    Ino(u64::from(number))
}

fn name(number: u8) -> Name {
    Name::new(&[b'n', number + 200]).expect("a valid name")
}

/// The batch that makes `changes` to what `model` holds.
pub fn batch(model: &dyn Store, changes: &[Change]) -> Batch {
    let header = model.header().expect("readable");
    let removed: BTreeSet<Ino> = changes
        .iter()
        .filter_map(|change| if let Change::RemoveInode { ino: i } = change { Some(ino(*i)) } else { None })
        .collect();
    let mut batch = Batch {
        commit: header.commit.next(),
        time: Timestamp(i64::try_from(header.commit.0).expect("few commits") * 1000),
        counters: header.counters,
        ..Batch::default()
    };
    batch.counters.op = batch.counters.op.next();
    batch.inodes.extend(removed.iter().map(|ino| InodeChange::Remove(*ino)));
    let mut fit = Fit { model, batch, puts: BTreeMap::new(), done: BTreeSet::new() };
    for change in changes {
        fit.add(change, &removed);
    }
    let Fit { mut batch, puts, .. } = fit;
    for ((ino, span), (block, new)) in puts {
        batch.blocks.extend(new);
        batch.extents.push(ExtentChange::Put { ino, span, block });
    }
    batch.blocks.sort_by_key(|new| new.id);
    batch
}

struct Fit<'a> {
    model: &'a dyn Store,
    batch: Batch,
    puts: BTreeMap<(Ino, Span), (BlockRef, Option<NewBlock>)>,
    /// Rows named already.
    done: BTreeSet<(&'static str, Ino, Vec<u8>)>,
}

impl Fit<'_> {
    fn first(&mut self, table: &'static str, ino: Ino, key: &[u8]) -> bool {
        self.done.insert((table, ino, key.to_vec()))
    }

    fn add(&mut self, change: &Change, removed: &BTreeSet<Ino>) {
        match change {
            Change::RemoveInode { .. } => {}
            Change::Limits { bytes_max, inodes_max } => {
                self.batch.limits = Some(Limits { bytes_max: *bytes_max, inodes_max: *inodes_max });
            }
            Change::Inode { ino: i, size, inline, nlink } => {
                if !removed.contains(&ino(*i)) && self.first("fileatt", ino(*i), b"") {
                    self.batch.inodes.push(InodeChange::Put(inode(ino(*i), *size, inline.as_deref(), *nlink)));
                }
            }
            Change::Name { parent, name: n, ino: i } => {
                if self.first("naming", ino(*parent), &[*n]) {
                    let cookie = Cookie(self.batch.counters.next_id);
                    self.batch.counters.next_id += 1;
                    let row = NameRow { parent: ino(*parent), name: name(*n), ino: ino(*i), kind: Kind::Fifo, cookie };
                    self.batch.names.push(NameChange::Put(row));
                }
            }
            Change::RemoveName { parent, name: n } => {
                if self.first("naming", ino(*parent), &[*n]) {
                    self.batch.names.push(NameChange::Remove { parent: ino(*parent), name: name(*n) });
                }
            }
            Change::Block { ino: i, index, length } if !removed.contains(&ino(*i)) => {
                self.put_block((ino(*i), span(*index)), usize::from(*length));
            }
            Change::Share { ino: i, index, which } if !removed.contains(&ino(*i)) => {
                let from = ino(which % 7 + 1);
                let stored = self.model.extents(from, 0..u64::MAX).expect("readable");
                if let Some((_, block)) = stored.get(usize::from(*which) % stored.len().max(1)) {
                    self.put((ino(*i), span(*index)), *block, None);
                }
            }
            Change::Clear { ino: i, start, end } if !removed.contains(&ino(*i)) => {
                let start = span(*start).start;
                let end = end.map_or(u64::MAX, |end| start + span(end).start);
                self.batch.extents.push(ExtentChange::Clear { ino: ino(*i), range: start..end });
            }
            Change::Xattr { ino: i, name: n, value } if !removed.contains(&ino(*i)) => {
                if self.first("xattr", ino(*i), &[*n]) {
                    self.batch.xattrs.push(XattrChange { ino: ino(*i), name: name(*n), value: value.clone() });
                }
            }
            Change::Block { .. } | Change::Share { .. } | Change::Clear { .. } | Change::Xattr { .. } => {}
        }
    }

    /// Puts `block`, if it is no longer than its place. What lies over others without covering them
    /// takes their place.
    fn put(&mut self, (ino, span): (Ino, Span), block: BlockRef, new: Option<NewBlock>) {
        if block.length > span.length {
            return;
        }
        let is_replaced = |other: &Span| other.overlaps(&span);
        self.puts.retain(|(of, other), _| *of != ino || !is_replaced(other));
        // Nothing is longer than a whole block, and nothing is asked then.
        let there = if span.length < BLOCK { self.model.extents(ino, 0..u64::MAX) } else { Ok(Vec::new()) };
        for (other, _) in there.expect("readable") {
            if is_replaced(&other) && other.length > span.length {
                self.batch.extents.push(ExtentChange::Clear { ino, range: other.start..other.start + 1 });
            }
        }
        self.puts.insert((ino, span), (block, new));
    }

    fn put_block(&mut self, at: (Ino, Span), length: usize) {
        let length = length.min(at.1.length as usize);
        let id = BlockId(self.batch.counters.next_block);
        self.batch.counters.next_block += 1;
        let bytes: Vec<u8> = (0..length).map(|i| (i as u64 * 31 + id.0 * 7) as u8).collect();
        // In two slices, as writes leave them.
        let block = weft_block::Block::new(bytes);
        let half = block.len() / 2;
        let mut rope = Rope::from(block.slice(0..half));
        rope.push(block.slice(half..block.len()));
        let new = NewBlock::new(id, at.0, rope, 0);
        self.put(at, new.at(Place::Database), Some(new));
    }
}

fn inode(ino: Ino, size: u16, inline: Option<&[u8]>, nlink: u8) -> InodeRow {
    InodeRow {
        ino,
        kind: Kind::File,
        generation: u32::from(size),
        permissions: u32::from(size) & 0o7777,
        nlink: u32::from(nlink),
        size: u64::from(size),
        atime: Timestamp(i64::MIN),
        ctime: Timestamp(i64::MAX),
        parent: Ino(0),
        inline: inline.map(|bytes| weft_block::Slice::from(bytes.to_vec())),
        ..InodeRow::new_root(u32::MAX, 7, Timestamp(-5))
    }
}
