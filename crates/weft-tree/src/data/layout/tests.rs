use super::*;
use crate::data::Pieces;
use proptest::prelude::*;
use weft_store::Place;

const BLOCK: usize = 64 << 10;

/// The bytes of a block of a file as stored blocks have them; none: a hole.
type Content = Vec<Option<u8>>;

fn block(id: u64, length: usize) -> BlockRef {
    let length = u32::try_from(length).expect("small");
    BlockRef { id: BlockId(id), length, base: 0, value: [1; 32], place: Place::Database }
}

/// Stored blocks for what `bits` say of the halves of a block, down to the grains, with the bytes
/// of each; none reaches past `len`.
fn stored(bits: &mut impl Iterator<Item = u8>, (start, length): (usize, usize), len: usize, parts: &mut Vec<Part>) {
    let bit = bits.next().unwrap_or(0);
    if start >= len || bit == 3 {
        return;
    }
    if length > GRAIN && bit > 0 {
        stored(bits, (start, length / 2), len, parts);
        return stored(bits, (start + length / 2, length / 2), len, parts);
    }
    let held = length.min(len - start) - usize::from(bit == 0) * (len % 7).min(length.min(len - start) - 1);
    let as_u32 = |value: usize| u32::try_from(value).expect("small");
    parts.push(Part { start: as_u32(start), length: as_u32(length), block: block(1 + parts.len() as u64, held) });
}

/// Puts the bytes of `parts`: each block has its number in all of them.
fn content(parts: &[Part]) -> Content {
    let mut content = vec![None; BLOCK];
    for part in parts {
        content[part.bytes()].fill(Some(u8::try_from(part.block.id.0).expect("few")));
    }
    content
}

fn frozen(writes: &[(usize, usize)]) -> Frozen {
    let mut pieces = Pieces::default();
    writes.iter().for_each(|(start, len)| pieces.write(*start, &vec![200; (*len).min(BLOCK - start)]));
    pieces.freeze()
}

/// What a file holds after a commit stored `layout`, by the blocks that its bytes are of: those of
/// the base, or 200 where new ones are.
fn after(layout: &PartsLayout, stored: &Stored) -> Content {
    let mut content = vec![None; BLOCK];
    for part in stored.parts(BLOCK) {
        let leaf = layout.splits.iter().find_map(|split| {
            let leaf = split.leaves.iter().find(|leaf| leaf.id == part.block.id)?;
            Some((split.part.block.id, leaf))
        });
        let is_new = layout.new.iter().any(|new| new.id == part.block.id);
        let number = if is_new { 200 } else { leaf.map_or(part.block.id, |(id, _)| id).0 };
        content[part.bytes()].fill(Some(u8::try_from(number).expect("few")));
    }
    content
}

/// The blocks that a commit makes for `layout`.
fn made(layout: &Layout, len: usize) -> Vec<BlockRef> {
    let Layout::Parts(parts) = layout else { return vec![block(1000, len)] };
    let leaves = parts.splits.iter().flat_map(|split| split.leaves.iter().map(move |leaf| (split, leaf)));
    let kept = leaves.filter(|(_, leaf)| leaf.is_kept);
    let kept = kept.map(|(split, leaf)| block(leaf.id.0, leaf.within(&split.part).len()));
    kept.chain(parts.new.iter().map(|new| block(new.id.0, new.len as usize))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn a_layout_holds_what_was_written_over_what_was_there(
        bits in proptest::collection::vec(0u8..4, 40),
        base_len in 1..=BLOCK,
        cut in 0..BLOCK,
        writes in proptest::collection::vec((0..BLOCK, 1..9000usize), 0..5),
    ) {
        let mut parts = Vec::new();
        stored(&mut bits.into_iter(), (0, BLOCK), base_len, &mut parts);
        let base = (!parts.is_empty()).then(|| Stored::Parts(parts.clone().into()));
        let pieces = frozen(&writes);
        let end = pieces.end().max(base.as_ref().map_or(0, Stored::end));
        prop_assume!(end > 0);
        let len = (end - cut.min(end - 1)).max(1);
        let mut next = 300;
        let written = Written { base: base.as_ref(), pieces: &pieces, len, block_size: BLOCK };
        let layout = written.layout(&mut next);
        let ids = layout.ids();
        prop_assert!(ids.windows(2).all(|pair| pair[0] < pair[1]) && ids.iter().all(|id| (300..next).contains(&id.0)));
        let Layout::Parts(parts_layout) = &layout else { return Ok(()) };
        let result = layout.stored(&made(&layout, len), BLOCK);
        // It is one that a file can have.
        let extents = result.extents(3, BLOCK as u64);
        prop_assert_eq!(Stored::group(&extents, BLOCK as u64).expect("extents of a file").len(), usize::from(!extents.is_empty()));
        prop_assert!(result.end() <= len, "no block reaches past the end of the file");
        prop_assert_eq!(layout.taken(len), result.taken());
        // Grains that were written to are new; in all others the base is what it was.
        let mut expected = content(&parts);
        expected[len..].fill(None);
        let dirty = written.dirty();
        for grain in 0..len.div_ceil(GRAIN) {
            if dirty[grain] {
                expected[grain * GRAIN..((grain + 1) * GRAIN).min(len)].fill(Some(200));
            }
        }
        prop_assert_eq!(after(parts_layout, &result), expected);
        // All bytes of a split block are in one of its parts.
        for split in &parts_layout.splits {
            let leaves = split.leaves.iter().map(|leaf| leaf.within(&split.part));
            let end = leaves.fold(0, |end, leaf| if leaf.start == end { leaf.end } else { usize::MAX });
            prop_assert_eq!(end, split.part.block.length as usize);
        }
    }
}

#[test]
fn a_small_write_into_a_whole_block_splits_it_round_the_write() {
    let base = Stored::Whole(block(1, BLOCK));
    let pieces = frozen(&[(20 << 10, 4096)]);
    let written = Written { base: Some(&base), pieces: &pieces, len: BLOCK, block_size: BLOCK };
    let Layout::Parts(parts) = written.layout(&mut 10) else { panic!("it is stored in parts") };
    let leaves = |kept| {
        let leaves = parts.splits[0].leaves.iter().filter(move |leaf| leaf.is_kept == kept);
        leaves.map(|leaf| (leaf.start >> 10, leaf.length >> 10)).collect::<Vec<_>>()
    };
    assert_eq!((leaves(true), leaves(false)), (vec![(0, 16), (16, 4), (24, 8), (32, 32)], vec![(20, 4)]));
    assert_eq!(parts.new.iter().map(|new| (new.start >> 10, new.len)).collect::<Vec<_>>(), [(20, 4096)]);
}

#[test]
fn what_is_small_mostly_new_or_appended_is_stored_as_one_block() {
    let is_whole = |base: Option<usize>, writes: &[(usize, usize)], len: usize| {
        let base = base.map(|length| Stored::Whole(block(1, length)));
        let pieces = frozen(writes);
        let written = Written { base: base.as_ref(), pieces: &pieces, len, block_size: BLOCK };
        matches!(written.layout(&mut 10), Layout::Whole(_))
    };
    assert!(is_whole(Some(16 << 10), &[(0, 1)], 16 << 10), "few bytes");
    assert!(is_whole(Some(BLOCK), &[(0, 48 << 10)], BLOCK), "three quarters");
    assert!(is_whole(Some(30_000), &[(30_000, 100)], 30_100), "appended");
    assert!(is_whole(None, &[(0, 50_000)], 50_000), "nothing else");
    assert!(!is_whole(Some(BLOCK), &[(0, 44 << 10)], BLOCK));
    assert!(!is_whole(None, &[(60 << 10, 100)], (60 << 10) + 100), "after a hole");
    assert!(!is_whole(Some(30_000), &[(40_000, 100)], 40_100), "after a hole behind what is stored");
}

#[test]
fn merging_makes_as_few_extents_as_can_be_and_none_behind_what_is_stored() {
    let part = |start: u32, grains: u32, len: usize| Part {
        start: start << 12,
        length: grains << 12,
        block: block(u64::from(start) + 1, len),
    };
    let full = |start, grains: u32| part(start, grains, (grains as usize) << 12);
    let merge = |parts: &[Part]| {
        let Layout::Parts(layout) = merged(parts, &mut 100)? else { unreachable!("it is merged in parts") };
        let new = layout.new.iter().map(|new| (new.start >> 12, new.length >> 12, new.len)).collect::<Vec<_>>();
        Some((new, layout.kept.iter().map(|part| part.start >> 12).collect::<Vec<_>>()))
    };
    // All of a block.
    let all = [full(0, 8), full(8, 4), full(12, 1), full(13, 1), full(14, 2)];
    assert_eq!(merge(&all), Some((vec![(0, 16, 65536)], vec![])));
    // A file that ends in its sixth grain: what was behind may be another block's in the past.
    let cut = [full(0, 2), full(2, 1), full(3, 1), full(4, 1), part(5, 1, 100)];
    assert_eq!(merge(&cut), Some((vec![(0, 4, 16384), (4, 2, 4196)], vec![])));
    assert_eq!(merge(&[full(0, 4), full(4, 1), part(5, 1, 100)]), Some((vec![(4, 2, 4196)], vec![0])));
    assert_eq!(merge(&[full(0, 4), part(4, 2, 4196)]), None, "there is nothing to merge");
    assert_eq!(merge(&[part(0, 8, 20_000)]), None, "one that reaches further stays");
    assert_eq!([65536, 4196 + 16384, 20480, 1].map(extents_needed), [1, 2, 2, 1]);
}
