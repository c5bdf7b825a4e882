//! Both ends in one process; those of several are in parts.

use super::*;
use proptest::prelude::*;
use std::cell::Cell;
use std::sync::Arc;
use weft_block::shared::{Budget, Pool};
use weft_block::{Block, Rope, Slice};

mod hostile;
mod processes;

thread_local! {
    /// Number of steps left before this process kills itself.
    static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// Counts a step of a thread that is to be killed at one of them.
pub(crate) fn step() {
    let _ = LEFT.try_with(|left| match left.get() {
        u64::MAX => {}
        1 => {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
                .expect("it is this one");
        }
        more => left.set(more - 1),
    });
}

/// Bytes that differ from place to place and from `seed` to seed.
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| ((at as u64 ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

/// Memory as a daemon lends it, with what keeps it: gone when nobody in this process needs it.
struct Loan {
    lent: Arc<crate::lent::Lent>,
    len: usize,
    _kept: Arc<()>,
}

impl AsRef<[u8]> for Loan {
    fn as_ref(&self) -> &[u8] {
        self.lent.slice(0..self.len)
    }
}

/// A block in memory that somebody lent, guarded by `guard`.
fn lent(contents: &[u8], guard: std::os::fd::OwnedFd, kept: Arc<()>) -> Block {
    let pool = Pool::new(contents.len(), Budget::new(64 << 20));
    let block = pool.copy_of(contents, 0).unwrap().expect("room");
    let (arena, _) = pool.find(&block).expect("it lies there");
    let file = arena.file().try_clone_to_owned().unwrap();
    let lent = crate::lent::Lent::map(file, Arc::new(guard)).unwrap();
    Block::of_owner(Loan { lent, len: contents.len(), _kept: kept })
}

/// Looks until `met`: a child of another test has copies of all descriptors from fork(2) to
/// exec(2), and another thread may be the one that takes back.
fn eventually(what: &str, met: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !met() {
        assert!(begun.elapsed().as_secs() < 60, "{what}");
        held::sweep();
        std::thread::yield_now();
    }
}

#[derive(Clone, Debug)]
enum Part {
    Ordinary(usize),
    Place(usize),
    Lent(usize, usize),
    /// From the rope received last, sent on by the receiver's process.
    Again,
}

fn ropes() -> impl Strategy<Value = Vec<Vec<Part>>> {
    let len = prop_oneof![0usize..100, 900usize..1200, Just(PLACE_BYTES), PLACE_BYTES - 2..2 * PLACE_BYTES];
    let part = prop_oneof![
        4 => len.prop_map(Part::Ordinary),
        2 => (0..=PLACE_BYTES).prop_map(Part::Place),
        2 => (0usize..8000, 0usize..8000).prop_map(|(a, b)| Part::Lent(a.min(b), a.max(b))),
        1 => Just(Part::Again),
    ];
    proptest::collection::vec(proptest::collection::vec(part, 0..5), 0..12)
}

/// The rope that `parts` are.
fn make(sender: &mut Sender, parts: &[Part], lent: &Block, last: &Rope, seed: u64) -> Rope {
    let mut rope = Rope::new();
    for part in parts {
        match part {
            Part::Ordinary(len) => rope.push(Slice::from(bytes(seed, *len))),
            Part::Place(len) => {
                let mut place = sender.place().unwrap();
                place[..*len].copy_from_slice(&bytes(seed, *len));
                rope.push(place.freeze(*len).whole());
            }
            Part::Lent(from, to) => rope.push(lent.slice(*from..*to)),
            Part::Again => rope.append(last.clone()),
        }
    }
    rope
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Over one channel, and by a thread in between over two.
    #[test]
    fn any_ropes_arrive_as_they_were_sent(ropes in ropes(), keep in 0usize..12) {
        let (mut sender, mut first) = channel().unwrap();
        let (mut second, mut receiver) = channel().unwrap();
        let (guard, _lender) = std::io::pipe().unwrap();
        let block = lent(&bytes(9, 8000), guard.into(), Arc::default());
        let middle = std::thread::spawn(move || {
            while let Some(rope) = first.receive().unwrap() {
                second.send(rope).unwrap();
            }
            second.finish().unwrap();
        });
        let (mut kept, mut last) = (Vec::new(), Rope::new());
        for (seed, parts) in ropes.iter().enumerate() {
            let rope = make(&mut sender, parts, &block, &last, seed as u64);
            let expected = rope.to_vec();
            sender.send(rope).unwrap();
            let received = receiver.receive().unwrap().expect("it was sent");
            prop_assert!(received.to_vec() == expected);
            last = received.cut(0..received.len().min(100_000));
            kept.push((received, expected));
            if kept.len() > keep {
                kept.remove(0);
            }
        }
        sender.finish().unwrap();
        prop_assert!(receiver.receive().unwrap().is_none() && receiver.receive().unwrap().is_none());
        prop_assert!(kept.iter().all(|(received, expected)| received.to_vec() == *expected), "what is kept stays");
        middle.join().unwrap();
    }
}

#[test]
fn ropes_without_bytes_and_small_ones_arrive_one_by_one() {
    let (mut sender, mut receiver) = channel().unwrap();
    let sent: Vec<Vec<u8>> = (0..900).map(|number| bytes(number, number as usize % 3)).collect();
    sent.iter().for_each(|bytes| sender.send(Rope::from(bytes.clone())).unwrap());
    sender.finish().unwrap();
    sent.iter().for_each(|bytes| assert_eq!(receiver.receive().unwrap().expect("it was sent").to_vec(), *bytes));
    assert!(receiver.receive().unwrap().is_none());
}

#[test]
fn places_arrive_where_they_are_and_only_ordinary_memory_is_copied() {
    let (mut sender, mut receiver) = channel().unwrap();
    let (mut second, mut last) = channel().unwrap();
    let mut place = sender.place().unwrap();
    place[..4000].copy_from_slice(&bytes(1, 4000));
    sender.send(Rope::from(place.freeze(4000).whole())).unwrap();
    assert_eq!(sender.lent_bytes(), 4000);
    let rope = receiver.receive().unwrap().unwrap();
    let (arena, offset) = crate::lent::find(&rope.slices()[0]).expect("the sender lent it");
    assert!(arena.guards().is_empty(), "nobody takes it back");
    second.send(rope).unwrap();
    let rope = last.receive().unwrap().unwrap();
    let again = crate::lent::find(&rope.slices()[0]).expect("it was sent on as it is");
    let inode = |lent: &crate::lent::Lent| rustix::fs::fstat(lent).unwrap().st_ino;
    assert_eq!((inode(&again.0), again.1), (inode(&arena), offset));
    drop(rope);
    // It went back all the way.
    second.send(Rope::new()).unwrap();
    sender.send(Rope::new()).unwrap();
    assert_eq!((second.lent_bytes(), sender.lent_bytes()), (0, 0));
}

#[test]
fn a_sender_waits_while_too_much_is_under_way() {
    let (mut sender, mut receiver) = channel().unwrap();
    let place = Rope::from(sender.place().unwrap().freeze(PLACE_BYTES).whole());
    let count = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let sent = count.clone();
    let all = 8 * WINDOW_BYTES / PLACE_BYTES;
    let thread = std::thread::spawn(move || {
        for _ in 0..all {
            sender.send(place.clone()).unwrap();
            sent.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
        sender.finish().unwrap();
    });
    for received in 0..all {
        let ahead = count.load(std::sync::atomic::Ordering::SeqCst).saturating_sub(received);
        assert!(ahead <= WINDOW_BYTES / PLACE_BYTES + 1, "{ahead} are under way");
        assert_eq!(receiver.receive().unwrap().expect("there is more").len(), PLACE_BYTES);
    }
    assert!(receiver.receive().unwrap().is_none());
    thread.join().unwrap();
}

#[test]
fn a_receiver_that_keeps_all_and_waits_for_more_is_an_error_for_the_sender_that_passes() {
    let (to_sender, receiver) = sockets().unwrap();
    let mut sender = Sender::with_budget(to_sender, Budget::new(4 * PLACE_BYTES)).unwrap();
    let (said, hears) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let mut receiver = Receiver::of(receiver).unwrap();
        let kept: Vec<Rope> = (0..4).map(|_| receiver.receive().unwrap().expect("it was sent")).collect();
        // This one comes without any memory, and frees some.
        assert!(receiver.receive().unwrap().expect("it was sent").is_empty());
        drop(kept);
        said.send(()).unwrap();
        std::iter::from_fn(|| receiver.receive().unwrap()).count()
    });
    for _ in 0..4 {
        let place = sender.place().unwrap();
        sender.send(Rope::from(place.freeze(PLACE_BYTES).whole())).unwrap();
    }
    let error = sender.place().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
    let kept = error.get_ref().and_then(|inner| inner.downcast_ref::<KeptByReceiver>()).expect("it says how many");
    assert_eq!(kept.bytes, 4 * PLACE_BYTES);
    let error = sender.send(Rope::from(bytes(1, 5 * PLACE_BYTES))).unwrap_err();
    assert_eq!(error.to_string(), kept.to_string());
    sender.send(Rope::new()).unwrap();
    hears.recv().unwrap();
    sender.send(Rope::from(bytes(1, 3 * PLACE_BYTES))).unwrap();
    sender.finish().unwrap();
    assert_eq!(thread.join().unwrap(), 1);
}

#[test]
fn whoever_keeps_all_places_unsent_gets_an_error_too() {
    let (end, _receiver) = sockets().unwrap();
    let mut sender = Sender::with_budget(end, Budget::new(2 * PLACE_BYTES)).unwrap();
    let _places = (sender.place().unwrap(), sender.place().unwrap());
    assert_eq!(sender.place().unwrap_err().kind(), io::ErrorKind::OutOfMemory);
}

#[test]
fn who_lost_the_other_end_is_told_and_told_again() {
    let (mut sender, receiver) = channel().unwrap();
    sender.send(Rope::from(bytes(1, 100))).unwrap();
    drop(receiver);
    for _ in 0..2 {
        assert_eq!(sender.send(Rope::new()).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(sender.place().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
    assert_eq!(sender.finish().unwrap_err().kind(), io::ErrorKind::BrokenPipe);

    let (mut sender, mut receiver) = channel().unwrap();
    sender.send(Rope::from(bytes(1, 100))).unwrap();
    drop(sender);
    let kept = receiver.receive().unwrap().expect("it was sent before");
    for _ in 0..2 {
        assert_eq!(receiver.receive().unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }
    drop(receiver);
    assert_eq!(kept.to_vec(), bytes(1, 100));
}

#[test]
fn a_socket_is_one_end_of_a_channel_once() {
    let kind = |result: io::Result<()>| result.unwrap_err().kind();
    let (sender, receiver) = sockets().unwrap();
    let other = receiver.try_clone().unwrap();
    assert_eq!(kind(Sender::of(receiver).map(drop)), io::ErrorKind::InvalidInput);
    assert_eq!(kind(Receiver::of(other).map(drop)), io::ErrorKind::InvalidInput, "it was used");
    let other = sender.try_clone().unwrap();
    let _sender = Sender::of(sender).unwrap();
    assert_eq!(kind(Sender::of(other).map(drop)), io::ErrorKind::InvalidInput);
    let file = std::fs::File::open("/dev/null").unwrap();
    assert!(Receiver::of(file.into()).is_err());
}

/// Memory that others lent to a sender which is gone is protected until the receiver gives it back.
#[test]
fn what_others_lent_is_kept_as_long_as_a_receiver_has_it() {
    let (guard, lender) = std::io::pipe().unwrap();
    let kept = Arc::new(());
    let (mut sender, mut receiver) = channel().unwrap();
    let block = lent(&bytes(3, 5000), guard.into(), kept.clone());
    sender.send(Rope::from(block.whole())).unwrap();
    sender.send(Rope::from(block.slice(1000..4000))).unwrap();
    drop(block);
    sender.finish().unwrap();
    let rope = receiver.receive().unwrap().expect("it was sent");
    held::sweep();
    assert_eq!(Arc::strong_count(&kept), 2, "the sender is gone, but not what it lent");
    assert_eq!(rope.to_vec(), bytes(3, 5000));
    drop(rope);
    drop(receiver.receive().unwrap().expect("it was sent"));
    eventually("it comes back by its tickets", || Arc::strong_count(&kept) == 1);
    assert!(!socket::is_gone(lender.as_fd()).unwrap(), "the receiver knows the arena and its guard");
    assert!(receiver.receive().unwrap().is_none());
    eventually("it needs none after the end", || socket::is_gone(lender.as_fd()).unwrap());
}

/// Counts the arenas of channels that are mapped or open here, of all tests that run.
fn arenas(what: &str) -> usize {
    let open =
        std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    open.filter(|path| path.to_string_lossy().contains(what)).count()
        + maps.lines().filter(|line| line.contains(what)).count()
}

/// Taker of the tickets that the receiver gives back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Sender,
    /// A sweep, as other threads have one at any time.
    Sweep,
}

#[test]
fn a_long_stream_of_many_arenas_needs_few_descriptors_and_mappings() {
    long_stream("one of many", By::Sender);
}

#[test]
fn arenas_that_another_thread_took_back_are_forgotten_too() {
    long_stream("one of others", By::Sweep);
}

fn long_stream(arena: &str, by: By) {
    let (mut sender, mut receiver) = channel().unwrap();
    let name = &format!("memfd:{arena}");
    let swept = || {
        if by == By::Sweep {
            held::sweep();
        }
    };
    for number in 0..500u64 {
        use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
        let file = memfd_create(arena, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        let contents = bytes(number, 5000);
        rustix::io::write(&file, &contents).unwrap();
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::WRITE).unwrap();
        let (guard, _) = std::io::pipe().unwrap();
        let lent = crate::lent::Lent::map(file, Arc::new(guard.into())).unwrap();
        let block = Block::of_owner(Loan { lent, len: 5000, _kept: Arc::default() });
        sender.send(Rope::from(block.whole())).unwrap();
        drop(block);
        assert_eq!(receiver.receive().unwrap().expect("it was sent").to_vec(), contents);
        swept();
        assert!(arenas(name) <= 4 * (announced::ARENAS_MAX + 1), "{} after {number}", arenas(name));
    }
    // Nothing comes from them any more.
    (0..3).for_each(|_| sender.send(Rope::from(bytes(1, 2000))).unwrap());
    (0..3).for_each(|_| drop(receiver.receive().unwrap()));
    swept();
    sender.send(Rope::new()).unwrap();
    receiver.receive().unwrap();
    assert_eq!(arenas(name), 0);
}
