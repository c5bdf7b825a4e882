use super::*;
use proptest::prelude::*;

const PLACE: usize = 4096;

/// Makes a pool whose arenas may take all of its memory.
fn pool(places_max: usize) -> Pool {
    Pool::new(
        PLACE,
        Arc::new(Budget { bytes_max: places_max * PLACE, arena_in: 1, arenas_max: 100, ..Budget::default() }),
    )
}

#[test]
fn places_are_used_again_and_arenas_go_with_their_last_block() {
    let pool = pool(4);
    let blocks: Vec<Block> = (0..4).map(|byte| pool.copy_of(&[byte; 100], 3 * PLACE).unwrap().expect("room")).collect();
    assert_eq!(pool.budget.taken(), 4 * PLACE, "one arena for all");
    assert!(pool.copy_of(b"more", 0).unwrap().is_none(), "the budget is spent");
    let (arena, offset) = pool.find(&blocks[2]).expect("it lies there");
    assert_eq!((arena.len(), offset), (4 * PLACE, 2 * PLACE));
    let mut blocks = blocks;
    blocks.remove(1);
    let again = pool.copy_of(b"again", 0).unwrap().expect("a place came back");
    assert_eq!(pool.find(&again).expect("it lies there").1, PLACE);
    assert!(blocks.iter().zip([0, 2, 3]).all(|(block, byte)| **block == [byte; 100]));
    drop((blocks, again, arena));
    assert!(pool.is_empty() && pool.budget.taken() == 0);
}

#[test]
fn what_was_given_up_first_is_used_first() {
    let pool = pool(64);
    let mut places: Vec<_> = (0..4).map(|_| pool.place(3 * PLACE).unwrap().expect("a place")).collect();
    let start = |place: &Place| place.as_ptr().addr();
    let first = [start(&places[2]), start(&places[0])];
    drop((places.remove(2), places.remove(0)));
    let again: Vec<_> = (0..2).map(|_| pool.place(0).unwrap().expect("a place came back")).collect();
    assert_eq!([start(&again[0]), start(&again[1])], first);
}

#[test]
fn what_is_left_of_a_budget_is_taken_by_halves() {
    let pool = pool(7);
    let mut places = vec![pool.place(0).unwrap().expect("all are left")];
    for taken in [4, 4, 4, 7, 7, 7] {
        places.push(pool.place(100 * PLACE).unwrap().expect("some are left"));
        assert_eq!(pool.budget.taken(), taken * PLACE);
    }
    assert!(pool.place(0).unwrap().is_none());
    drop(places);
    assert_eq!(pool.budget.taken(), 0);
}

#[test]
fn there_are_not_too_many_arenas() {
    let most = Budget::new(usize::MAX).arenas_max;
    assert!((1..=ARENAS_MAX).contains(&most));
    let budget = Arc::new(Budget { bytes_max: usize::MAX, arena_in: 1, arenas_max: 3, ..Budget::default() });
    let pools: Vec<Pool> = (0..4).map(|_| Pool::new(PLACE, budget.clone())).collect();
    let places: Vec<Option<Place>> = pools.iter().map(|pool| pool.place(0).unwrap()).collect();
    assert!(places[..3].iter().all(Option::is_some) && places[3].is_none());
    drop(places);
    assert!(pools[3].place(0).unwrap().is_some());
}

#[test]
fn what_is_retired_is_not_written_over() {
    let pool = pool(4);
    let first = pool.copy_of(b"read by somebody", PLACE).unwrap().expect("room");
    let second = pool.copy_of(b"second", 0).unwrap().expect("room");
    pool.find(&first).expect("there").0.retire();
    let at = first.as_ptr();
    drop(first);
    let third = pool.copy_of(b"third", 0).unwrap().expect("room elsewhere");
    assert!(
        third.as_ptr() != at
            && pool.find(&third).expect("there").0.number() != pool.find(&second).expect("there").0.number()
    );
}

#[test]
fn bytes_of_elsewhere_are_not_found() {
    let (one, other) = (pool(1), pool(1));
    let block = one.copy_of(b"here", 0).unwrap().expect("room");
    assert!(one.find(&block[1..3]).is_some_and(|(_, offset)| offset == 1));
    assert!(other.find(&block).is_none() && one.find(b"there").is_none());
}

#[cfg(not(miri))]
#[test]
fn nobody_who_is_given_an_arena_changes_it() {
    use rustix::fs::{FallocateFlags, fallocate, ftruncate};
    use std::os::fd::AsRawFd;
    let pool = pool(1);
    let block = pool.copy_of(b"mine", 0).unwrap().expect("room");
    let (arena, _) = pool.find(&block).expect("it lies there");
    let reader = arena.reader().unwrap();
    assert!(rustix::io::write(&reader, b"x").is_err() && ftruncate(&reader, 0).is_err());
    // Not even a process that may open it for writing: this one does here, as would another of
    // the same user, or the super-user.
    rustix::fs::fchmod(&reader, rustix::fs::Mode::from(0o666)).unwrap();
    let path = format!("/proc/self/fd/{}", reader.as_raw_fd());
    let writer = File::options().read(true).write(true).open(path).unwrap();
    assert!(rustix::io::write(&writer, b"x").is_err());
    assert!(ftruncate(&writer, 0).is_err() && ftruncate(&writer, 1 << 20).is_err());
    assert!(fallocate(&writer, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 4096).is_err());
    assert!(MmapOptions::new().len(PLACE).map_raw(&writer).is_err(), "not by a mapping either");
    assert_eq!(&*block, b"mine");
}

#[derive(Clone, Debug)]
enum Step {
    Add(u8, usize),
    Drop(prop::sample::Index),
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 8 } else { 256 }))]

    /// No block reads as another one, whatever comes and goes, and the budget holds.
    #[test]
    fn blocks_keep_their_bytes(steps in proptest::collection::vec(prop_oneof![
        3 => (any::<u8>(), 0usize..5).prop_map(|(byte, more)| Step::Add(byte, more)),
        2 => any::<prop::sample::Index>().prop_map(Step::Drop),
    ], 0..60)) {
        let pool = pool(6);
        let mut blocks: Vec<(u8, Block)> = Vec::new();
        for step in steps {
            match step {
                Step::Add(byte, more) => {
                    if let Some(block) = pool.copy_of(&[byte; 64], more * PLACE).unwrap() {
                        blocks.push((byte, block));
                    } else {
                        prop_assert!(pool.budget.taken() > 0);
                    }
                }
                Step::Drop(which) if !blocks.is_empty() => {
                    blocks.swap_remove(which.index(blocks.len()));
                }
                Step::Drop(_) => {}
            }
            prop_assert!(blocks.iter().all(|(byte, block)| **block == [*byte; 64]));
            prop_assert!(pool.budget.taken() <= 6 * PLACE && blocks.len() <= 6);
        }
        drop(blocks);
        prop_assert_eq!(pool.budget.taken(), 0);
    }
}
