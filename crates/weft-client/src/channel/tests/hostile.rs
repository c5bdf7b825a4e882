//! Ends that do what none of Weft's does: the other one gets an error, in bounded time, and nothing
//! else happens.

use super::*;
use control::Control;
use ring::{Popping, Pushing, Ring};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::SendFlags;
use socket::End;
use std::io::ErrorKind::{ConnectionReset, InvalidData};

/// An end that is used by hand.
struct Hostile {
    socket: OwnedFd,
    ring: Arc<Ring<Control>>,
    _token: OwnedFd,
}

impl Hostile {
    fn of(socket: OwnedFd, end: End) -> Hostile {
        let (memory, token) = socket::attach(&socket, end).unwrap();
        Hostile { socket, ring: Arc::new(Control::open(&memory).unwrap()), _token: token }
    }
}

/// A hostile sender, and who receives from it.
fn sender() -> (Hostile, Pushing<Control>, Receiver) {
    let (sender, receiver) = sockets().unwrap();
    let hostile = Hostile::of(sender, End::Sender);
    let pushing = Pushing::of(hostile.ring.clone());
    (hostile, pushing, Receiver::of(receiver).unwrap())
}

/// A hostile receiver, and who sends to it.
fn receiver() -> (Hostile, Popping<Control>, Sender) {
    let (sender, receiver) = sockets().unwrap();
    let hostile = Hostile::of(receiver, End::Receiver);
    let popping = Popping::of(hostile.ring.clone());
    (hostile, popping, Sender::of(sender).unwrap())
}

fn file(len: u64, seals: SealFlags) -> OwnedFd {
    let file = memfd_create("hostile", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, len).unwrap();
    fcntl_add_seals(&file, seals).unwrap();
    file
}

fn arena() -> OwnedFd {
    file(8192, SealFlags::SHRINK | SealFlags::WRITE)
}

/// Always the same error from then on.
fn refuses(receiver: &mut Receiver) -> bool {
    (0..2).all(|_| receiver.receive().unwrap_err().kind() == InvalidData)
}

#[test]
fn entries_that_mean_nothing_are_refused() {
    let wrong = [
        [1, 8000, 193, LAST],
        [1, u64::MAX, 2, LAST],
        [1, 1, u64::MAX, LAST],
        [1, 0, 0, LAST],
        [2, 0, 1, LAST],
        [1, 0, 1, LAST | u64::from(u32::MAX)],
        [1, 0, 1, 65536],
        [2, 0, 0, FORGET],
        [1, 0, 1, EMPTY],
        [1, 0, 1, FORGET | LAST],
        [1, 0, 1, 1 << 63],
    ];
    for entry in wrong {
        let (hostile, mut pushing, mut receiver) = sender();
        socket::send_arena(hostile.socket.as_fd(), 1, arena().as_fd(), &[], wait_on).unwrap();
        pushing.push([1, 0, 8192, LAST | 7]);
        assert_eq!(receiver.receive().unwrap().expect("so far it is right").len(), 8192);
        pushing.push(entry);
        assert!(refuses(&mut receiver), "{entry:?}");
    }
}

#[test]
fn ropes_that_never_end_are_refused() {
    let (hostile, mut pushing, mut receiver) = sender();
    socket::send_arena(hostile.socket.as_fd(), 1, arena().as_fd(), &[], wait_on).unwrap();
    let thread = std::thread::spawn(move || refuses(&mut receiver));
    while !hostile.ring.is_left() && pushing.tail() < 1 << 20 {
        if pushing.head().is_ok() && pushing.has_room() {
            pushing.push([1, 0, 1, 0]);
            if hostile.ring.wakes_receiver() {
                let _ = socket::send_wake(hostile.socket.as_fd());
            }
        } else {
            std::thread::yield_now();
        }
    }
    assert!(thread.join().unwrap());
    let (hostile, mut pushing, mut receiver) = sender();
    socket::send_arena(hostile.socket.as_fd(), 1, arena().as_fd(), &[], wait_on).unwrap();
    pushing.push([1, 0, 1, 0]);
    hostile.ring.finish();
    assert!(refuses(&mut receiver), "it finished within a rope");
}

#[test]
fn arenas_that_could_change_or_are_none_are_refused() {
    let refused = |arena: OwnedFd| {
        let (hostile, mut pushing, mut receiver) = sender();
        socket::send_arena(hostile.socket.as_fd(), 1, arena.as_fd(), &[], wait_on).unwrap();
        pushing.push([1, 0, 1, LAST]);
        // It may be cut off at any time before or after.
        let _ = ftruncate(&arena, 0);
        assert!(refuses(&mut receiver));
    };
    refused(file(8192, SealFlags::empty()));
    refused(file(8192, SealFlags::WRITE));
    refused(file(8192, SealFlags::SHRINK));
    refused(file(0, SealFlags::SHRINK | SealFlags::WRITE));
    refused(tempfile::tempfile().unwrap().into());
    refused(std::io::pipe().unwrap().0.into());
}

#[test]
fn messages_that_mean_nothing_are_refused() {
    let words = |kind: &[u8; 8], number: u64| [*kind, number.to_le_bytes()].concat();
    let wrong = [
        words(b"weft are", 1),
        words(b"weft wak", 1),
        words(b"weft sdr", 0),
        words(b"nonsense", 0),
        vec![1; 15],
        vec![1; 17],
    ];
    for message in wrong {
        let (hostile, _pushing, mut receiver) = sender();
        rustix::net::send(&hostile.socket, &message, SendFlags::NOSIGNAL).unwrap();
        assert!(refuses(&mut receiver), "{message:?}");
    }
}

#[test]
fn an_arena_that_is_announced_twice_or_among_too_many_is_refused() {
    let (hostile, mut pushing, mut receiver) = sender();
    (0..2).for_each(|_| socket::send_arena(hostile.socket.as_fd(), 1, arena().as_fd(), &[], wait_on).unwrap());
    pushing.push([2, 0, 1, LAST]);
    assert!(refuses(&mut receiver));
    let (hostile, mut pushing, mut receiver) = sender();
    let shared = arena();
    let many = announced::ARENAS_MAX as u64 + 10;
    (0..many)
        .for_each(|number| socket::send_arena(hostile.socket.as_fd(), number, shared.as_fd(), &[], wait_on).unwrap());
    pushing.push([many - 1, 0, 1, LAST]);
    assert!(refuses(&mut receiver));
}

#[test]
fn a_flood_of_calls_to_wake_up_is_an_error() {
    let (hostile, _pushing, mut receiver) = sender();
    let thread = std::thread::spawn(move || refuses(&mut receiver));
    while socket::send_wake(hostile.socket.as_fd()).is_ok() && !thread.is_finished() {}
    assert!(thread.join().unwrap());
}

#[test]
fn memory_of_a_channel_that_is_none_is_refused() {
    let refused = |memory: OwnedFd| {
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let (token, _) = std::io::pipe().unwrap();
        socket::send_hello(&ours, End::Receiver, memory.as_fd(), token.as_fd()).unwrap();
        Receiver::of(theirs).unwrap_err()
    };
    assert_eq!(refused(file(1 << 20, SealFlags::empty())).kind(), InvalidData);
    assert_eq!(refused(file(4096, SealFlags::SHRINK)).kind(), InvalidData);
    assert_eq!(refused(file(1 << 20, SealFlags::SHRINK)).kind(), InvalidData, "it is not marked");
    assert_eq!(refused(tempfile::tempfile().unwrap().into()).kind(), InvalidData);
    refused(file(1 << 20, SealFlags::SHRINK | SealFlags::WRITE));
}

#[test]
fn tickets_that_were_not_lent_are_refused() {
    let (hostile, _popping, mut sender) = receiver();
    sender.send(Rope::from(bytes(1, 100))).unwrap();
    hostile.ring.give_back(1);
    for _ in 0..2 {
        assert_eq!(sender.send(Rope::new()).unwrap_err().kind(), InvalidData);
        assert_eq!(sender.place().unwrap_err().kind(), InvalidData);
    }
    // Somebody else in the process looks first.
    let (hostile, _popping, mut sender) = receiver();
    sender.send(Rope::from(bytes(1, 100))).unwrap();
    hostile.ring.give_back(60_000);
    hostile.ring.give_back(3);
    held::sweep();
    assert_eq!(sender.send(Rope::new()).unwrap_err().kind(), InvalidData);
}

#[test]
fn a_receiver_that_sends_what_only_senders_do_or_calls_all_the_time_does_not_hold_up_the_sender() {
    let (hostile, _popping, mut sender) = receiver();
    let place = Rope::from(sender.place().unwrap().freeze(PLACE_BYTES).whole());
    socket::send_arena(hostile.socket.as_fd(), 1, arena().as_fd(), &[], wait_on).unwrap();
    let error = (0..1000).find_map(|_| sender.send(place.clone()).err()).expect("nothing is received");
    assert_eq!(error.kind(), InvalidData);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Anything at all in the shared memory, then the end of it.
    #[test]
    fn garbage_in_the_shared_memory_is_an_error_or_harmless(
        garbage in proptest::collection::vec((prop_oneof![0usize..64, 0usize..5168], prop_oneof![any::<u64>(), 0u64..70_000]), 1..30),
        ropes in 0usize..5,
    ) {
        let (mut real, mut receiver) = channel().unwrap();
        let ring = receiver.shared().clone();
        (0..ropes).for_each(|number| real.send(Rope::from(bytes(number as u64, 2000))).unwrap());
        garbage.iter().for_each(|(at, value)| ring.scribble(*at, *value));
        let finish = real.send(Rope::new()).and_then(|()| real.finish());
        prop_assert!(finish.as_ref().map_err(io::Error::kind).err().is_none_or(|kind| matches!(kind, InvalidData | io::ErrorKind::BrokenPipe)));
        for received in 0.. {
            match receiver.receive() {
                Ok(Some(_)) => prop_assert!(received <= 2000),
                Ok(None) => break,
                Err(error) => {
                    prop_assert!(matches!(error.kind(), InvalidData | ConnectionReset), "{}", error);
                    break;
                }
            }
        }
    }
}
