use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

const SHAPE: Shape = Shape { entries: 4, tickets: 128 };

type Heap = Box<[Word]>;

fn ring() -> Arc<Ring<Heap>> {
    Arc::new(Ring::of((0..SHAPE.words()).map(|_| Word::new(0)).collect(), SHAPE))
}

#[derive(Clone, Debug)]
enum Step {
    Push(Entry),
    Pop,
    GiveBack(u32),
    TakeBack,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 8 } else { 256 }))]

    #[test]
    fn it_is_a_queue_and_a_set(steps in proptest::collection::vec(prop_oneof![
        any::<Entry>().prop_map(Step::Push),
        Just(Step::Pop),
        (0u32..128).prop_map(Step::GiveBack),
        Just(Step::TakeBack),
    ], 0..80)) {
        let ring = ring();
        let (mut pushing, mut popping) = (Pushing::of(ring.clone()), Popping::of(ring.clone()));
        let (mut queue, mut back) = (VecDeque::new(), std::collections::BTreeSet::new());
        for step in steps {
            match step {
                Step::Push(entry) => {
                    prop_assert_eq!(pushing.head(), Ok(pushing.tail() - queue.len() as u64));
                    prop_assert_eq!(pushing.has_room(), queue.len() < SHAPE.entries);
                    if pushing.has_room() {
                        pushing.push(entry);
                        queue.push_back(entry);
                    }
                }
                Step::Pop => prop_assert_eq!(popping.pop(), Ok(queue.pop_front())),
                Step::GiveBack(ticket) => {
                    let before = ring.returned();
                    ring.give_back(ticket);
                    prop_assert_ne!(ring.returned(), before);
                    back.insert(ticket);
                }
                Step::TakeBack => {
                    let mut taken = Vec::new();
                    ring.take_returned(SHAPE.tickets, |ticket| taken.push(ticket));
                    prop_assert!(taken.into_iter().eq(std::mem::take(&mut back)));
                }
            }
        }
    }

    /// Nothing impossible is believed, whatever the other end writes.
    #[test]
    fn garbage_is_found_or_harmless(
        garbage in proptest::collection::vec((0..SHAPE.words(), any::<u64>()), 1..20),
        pushed in 0u64..4,
    ) {
        let ring = ring();
        let (mut pushing, mut popping) = (Pushing::of(ring.clone()), Popping::of(ring.clone()));
        (0..pushed).for_each(|number| pushing.push([number; ENTRY]));
        garbage.into_iter().for_each(|(at, value)| ring.scribble(at, value));
        if let Ok(head) = pushing.head() {
            prop_assert!(head <= pushing.tail());
        }
        let popped = std::iter::from_fn(|| popping.pop().ok().flatten()).take(SHAPE.entries + 1).count();
        prop_assert!(popped <= SHAPE.entries);
        ring.give_back(u32::MAX);
        ring.take_returned(usize::MAX, |ticket| assert!((ticket as usize) < SHAPE.tickets));
        let _ = (ring.wakes_receiver(), popping.wakes_sender(), ring.wakes_sender_by_return());
    }
}

#[test]
fn an_end_that_goes_back_or_too_far_is_found_out() {
    let ring = ring();
    let (mut pushing, mut popping) = (Pushing::of(ring.clone()), Popping::of(ring.clone()));
    pushing.push([1; ENTRY]);
    ring.scribble(HEAD, 2);
    assert!(pushing.head().is_err());
    ring.scribble(TAIL, 5);
    assert!(popping.pop().is_err());
    ring.scribble(TAIL, 1);
    assert_eq!(popping.pop(), Ok(Some([1; ENTRY])));
    assert_eq!(pushing.head(), Ok(1));
    ring.scribble(HEAD, 0);
    assert!(pushing.head().is_err());
    ring.scribble(TAIL, 0);
    assert!(popping.is_ready().is_err());
}

#[test]
fn who_sleeps_is_woken_once_and_for_what_it_wants() {
    let ring = ring();
    let (mut pushing, mut popping) = (Pushing::of(ring.clone()), Popping::of(ring.clone()));
    ring.receiver_sleeps();
    assert!(ring.is_receiver_asleep() && ring.wakes_receiver() && !ring.wakes_receiver());
    (0..3).for_each(|number| pushing.push([number; ENTRY]));
    ring.sender_sleeps(Wish::Head(2));
    assert!(popping.pop().is_ok() && !popping.wakes_sender() && !ring.wakes_sender_by_return());
    assert!(popping.pop().is_ok() && popping.wakes_sender() && !popping.wakes_sender());
    ring.sender_sleeps(Wish::Returns);
    assert!(!popping.wakes_sender() && ring.wakes_sender_by_return() && !ring.wakes_sender_by_sleep());
    ring.sender_sleeps(Wish::Head(9));
    assert!(ring.wakes_sender_by_sleep());
}
