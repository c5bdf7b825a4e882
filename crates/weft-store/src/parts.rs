//! Volumes with small extents, for tests: no operation makes any yet, so blocks of files are stored
//! anew in parts.

use crate::batch::{Batch, ExtentChange, InodeChange, NewBlock};
use crate::error::{ErrorKind, Result};
use crate::row::{BlockId, Ino, InodeRow, Place, Span};
use crate::store::{Durability, ReadMode, Store};
use std::collections::BTreeMap;
use weft_block::Rope;
use weft_digest::Kind;

/// Inodes that are read together.
const TOGETHER: usize = 100;

/// Some numbers that look random.
struct Seed(u64);

impl Seed {
    /// True in one of `cases` cases.
    fn is_one_of(&mut self, cases: u64) -> bool {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33).is_multiple_of(cases)
    }
}

/// The blocks of a file that are to be stored.
struct Parts<'a> {
    seed: &'a mut Seed,
    ino: Ino,
    batch: &'a mut Batch,
}

/// Stores some blocks of files in `store`, which no volume is mounted from, in parts of sizes that
/// `seed` chooses, in a commit that changes nothing else. Zeros become holes, or do not.
///
/// # Panics
/// If a digest changes by that.
pub fn store_in_parts(store: &dyn Store, seed: u64) -> Result<()> {
    let (header, mut seed) = (store.header()?, Seed(seed));
    let time = store.commits(header.commit, 1)?.pop().map_or(header.created, |last| last.time);
    let mut batch = Batch { commit: header.commit.next(), time, counters: header.counters, ..Batch::default() };
    let block_size = header.options.block_size;
    let (mut from, mut digests) = (Ino(0), Vec::new());
    loop {
        let rows = store.inodes(from, TOGETHER)?;
        let Some(last) = rows.last() else { break };
        from = last.ino.next();
        for row in rows.into_iter().filter(|row| row.kind == Kind::File && row.inline.is_none() && row.allocated > 0) {
            digests.push((row.ino, store.digest(row.ino)?));
            store_file(store, row, block_size, (&mut seed, &mut batch))?;
        }
    }
    store.apply(&batch, Durability::Durable)?;
    for (ino, before) in digests {
        assert_eq!(store.digest(ino)?, before, "inode {}", ino.0);
    }
    Ok(())
}

fn store_file(store: &dyn Store, row: InodeRow, block_size: u32, (seed, batch): (&mut Seed, &mut Batch)) -> Result<()> {
    let mut blocks = BTreeMap::<u64, Vec<_>>::new();
    for (span, block) in store.extents(row.ino, 0..u64::MAX)? {
        blocks.entry(span.start / u64::from(block_size)).or_default().push((span, block));
    }
    let mut allocated = row.allocated;
    for (index, extents) in blocks {
        if seed.is_one_of(3) {
            continue;
        }
        let whole = Span::of_block(index, block_size);
        let mut bytes = vec![0; usize::try_from(whole.end().min(row.size) - whole.start).expect("short")];
        for (span, block) in extents {
            let stored = match store.read_block(&block, ReadMode::Blocking) {
                // As damaged as it was.
                Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(()),
                read => read?.expect("waited for"),
            };
            let at = usize::try_from(span.start - whole.start).expect("in a block");
            bytes[at..at + stored.len()].copy_from_slice(&stored);
            allocated -= u64::from(block.length);
        }
        batch.extents.push(ExtentChange::Clear { ino: row.ino, range: whole.range() });
        allocated += Parts { seed, ino: row.ino, batch }.put(whole, &bytes);
    }
    batch.counters.bytes_used = batch.counters.bytes_used + allocated - row.allocated;
    batch.inodes.push(InodeChange::Put(InodeRow { allocated, ..row }));
    Ok(())
}

impl Parts<'_> {
    /// Stores `bytes`, which `span` begins with, in any parts; returns how many are stored.
    fn put(&mut self, span: Span, bytes: &[u8]) -> u64 {
        if span.length > Span::LENGTH_MIN && !self.seed.is_one_of(3) {
            let half = Span { length: span.length / 2, ..span };
            let (left, right) = bytes.split_at(bytes.len().min(half.length as usize));
            return self.put(half, left) + self.put(Span { start: half.end(), ..half }, right);
        }
        let end = match bytes.iter().rposition(|byte| *byte != 0) {
            last if self.seed.is_one_of(2) => last.map_or(0, |last| last + 1),
            _ => bytes.len(),
        };
        if end == 0 {
            return 0;
        }
        let id = BlockId(self.batch.counters.next_block);
        self.batch.counters.next_block += 1;
        let new = NewBlock::new(id, self.ino, Rope::from(bytes[..end].to_vec()), span.start);
        self.batch.extents.push(ExtentChange::Put { ino: self.ino, span, block: new.at(Place::Database) });
        self.batch.blocks.push(new);
        end as u64
    }
}
