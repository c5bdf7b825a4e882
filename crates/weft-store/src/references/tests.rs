//! The planner against the store in memory: the same batches leave the same extents, blocks and
//! numbers of references.

use super::*;
use crate::batch::{Counters, InodeChange, NewBlock};
use crate::memory::MemoryStore;
use crate::row::{CommitNo, InodeRow, Span, Timestamp};
use crate::store::{CommitStore, Durability, RowStore, VolumeOptions};
use proptest::prelude::*;
use std::collections::BTreeSet;
use weft_block::Rope;
use weft_digest::Kind;

const FILES: std::ops::Range<u64> = 16..20;
const INDICES: u64 = 12;

/// An extent's change, by numbers that are taken modulo what there is.
#[derive(Clone, Debug)]
enum Change {
    Clear {
        file: u64,
        start: u64,
        length: u64,
    },
    PutNew {
        file: u64,
        index: u64,
    },
    /// Puts a block that some extent names already, or one of this batch.
    Share {
        file: u64,
        index: u64,
        block: usize,
    },
    Remove {
        file: u64,
    },
}

fn change() -> impl Strategy<Value = Change> {
    let (file, index) = (|| FILES, || 0..INDICES);
    prop_oneof![
        (file(), index(), 0..INDICES).prop_map(|(file, start, length)| Change::Clear { file, start, length }),
        (file(), index()).prop_map(|(file, index)| Change::PutNew { file, index }),
        (file(), index(), 0..100usize).prop_map(|(file, index, block)| Change::Share { file, index, block }),
        file().prop_map(|file| Change::Remove { file }),
    ]
}

fn span(index: u64) -> Span {
    Span::of_block(index, 65536)
}

/// Extents and blocks as an engine keeps them that does what the planner says.
#[derive(Default)]
struct Engine {
    extents: BTreeMap<(Ino, Span), BlockId>,
    references: BTreeMap<BlockId, i64>,
}

impl Engine {
    fn clear(&mut self, references: &mut References<BlockId>, ino: Ino, range: Range<u64>) {
        let at = |start| (ino, Span { start, length: 0 });
        let gone = self.extents.extract_if(at(range.start)..at(range.end), |_, _| true);
        gone.for_each(|(_, block)| references.lose(block));
    }

    fn apply(&mut self, batch: &Batch, fresh: Ino) -> Result<()> {
        let plan = ExtentPlan::of(batch, fresh, Merging::Apart, |block| Ok(block.id))?;
        let apart = |pair: &[(Ino, Range<u64>)]| pair[0].0 < pair[1].0 || pair[0].1.end < pair[1].1.start;
        assert!(plan.replaced.windows(2).all(apart), "{plan:?}");
        let mut references = References::default();
        plan.replaced.into_iter().for_each(|(ino, range)| self.clear(&mut references, ino, range));
        plan.removed.into_iter().for_each(|ino| self.clear(&mut references, ino, 0..u64::MAX));
        for (ino, span, block) in plan.put {
            assert_eq!(self.extents.insert((ino, span), block), None, "what was there has gone");
            references.gain(block);
        }
        for new in &batch.blocks {
            self.references.insert(new.id, references.take_new(new.id, new.id)?);
        }
        for (block, change) in references.changed() {
            let row = match self.references.get_mut(&block) {
                Some(count) => {
                    *count += change;
                    BlockState::Whole { left: *count }
                }
                None => BlockState::Missing,
            };
            if row.fate(block, change)? == Fate::Dies {
                self.references.remove(&block);
            }
        }
        Ok(())
    }
}

/// Makes a batch of `changes`, as far as a batch may have them: each extent is put once, and what
/// is removed does not change in another way.
fn batch(store: &MemoryStore, engine: &Engine, changes: &[Change]) -> Batch {
    let header = store.header().expect("a header");
    let removed = changes.iter().filter_map(|change| match change {
        Change::Remove { file } => Some(Ino(*file)),
        _ => None,
    });
    let removed = removed.collect::<BTreeSet<_>>();
    let mut batch = Batch { commit: header.commit.next(), counters: header.counters, ..Batch::default() };
    let mut named = engine.extents.values().copied().collect::<Vec<_>>();
    let mut put = BTreeSet::new();
    let mut next = header.counters.next_block;
    let stored = |id: BlockId| NewBlock::new(id, Ino(16), Rope::from(vec![7; 10]), 0).at(crate::Place::Database);
    for change in changes {
        match *change {
            Change::Clear { file, start, length } if !removed.contains(&Ino(file)) => {
                batch
                    .extents
                    .push(ExtentChange::Clear { ino: Ino(file), range: span(start).start..span(start + length).start });
            }
            Change::PutNew { file, index } if !removed.contains(&Ino(file)) && put.insert((file, index)) => {
                let new = NewBlock::new(BlockId(next), Ino(file), Rope::from(vec![7; 10]), 0);
                let block = new.at(crate::Place::Database);
                next += 1;
                named.push(new.id);
                batch.blocks.push(new);
                batch.extents.push(ExtentChange::Put { ino: Ino(file), span: span(index), block });
            }
            Change::Share { file, index, block }
                if !removed.contains(&Ino(file)) && !named.is_empty() && put.insert((file, index)) =>
            {
                let block = stored(named[block % named.len()]);
                batch.extents.push(ExtentChange::Put { ino: Ino(file), span: span(index), block });
            }
            _ => {}
        }
    }
    let row = |file| InodeRow { ino: Ino(file), kind: Kind::File, ..InodeRow::new_root(0, 0, Timestamp(0)) };
    batch.inodes = FILES
        .map(|file| match removed.contains(&Ino(file)) {
            true => InodeChange::Remove(Ino(file)),
            false => InodeChange::Put(row(file)),
        })
        .collect();
    batch.counters = Counters { next_block: next, next_id: FILES.end, ..header.counters };
    batch
}

proptest! {
    #[test]
    fn the_plan_leaves_what_the_store_in_memory_has(
        batches in prop::collection::vec(prop::collection::vec(change(), 0..12), 1..8),
    ) {
        let store = MemoryStore::new(VolumeOptions::default());
        let mut engine = Engine::default();
        for changes in batches {
            let batch = batch(&store, &engine, &changes);
            let fresh = if batch.commit == CommitNo(2) { Ino(FILES.start) } else { Ino(FILES.end) };
            engine.apply(&batch, fresh).expect("planned");
            store.apply(&batch, Durability::Durable).expect("applied");
            let extents = FILES.flat_map(|file| {
                let extents = store.extents(Ino(file), 0..u64::MAX).expect("readable");
                extents.into_iter().map(move |(span, block)| ((Ino(file), span), block.id))
            });
            prop_assert_eq!(extents.collect::<BTreeMap<_, _>>(), engine.extents.clone());
            prop_assert_eq!(store.references(), engine.references.clone());
        }
    }
}

#[test]
fn a_block_dies_with_its_last_reference_unless_its_row_is_damaged() {
    let fate = |row: BlockState, change| row.fate(BlockId(5), change);
    assert_eq!(fate(BlockState::Whole { left: 1 }, -1).expect("decided"), Fate::Lives);
    assert_eq!(fate(BlockState::Whole { left: 0 }, -1).expect("decided"), Fate::Dies);
    assert_eq!(fate(BlockState::Damaged, -9).expect("decided"), Fate::Lives);
    assert_eq!(fate(BlockState::Missing, -1).expect("decided"), Fate::Lives);
    let error = fate(BlockState::Missing, 1).expect_err("an extent would name nothing");
    assert_eq!(error.to_string(), "damaged: block 5 has no row");
}

#[test]
fn a_new_block_that_nothing_names_is_refused() {
    let mut references = References::default();
    references.gain(BlockId(3));
    assert_eq!(references.take_new(BlockId(3), BlockId(3)).expect("named"), 1);
    let error = references.take_new(BlockId(3), BlockId(3)).expect_err("taken");
    assert_eq!(error.to_string(), "bug: no extent names new block 3");
}
