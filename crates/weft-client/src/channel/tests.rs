//! Both ends in one process; those of several are in parts.

use super::*;
use std::cell::Cell;
use weft_block::Rope;

thread_local! {
    /// How many steps are left before this process kills itself.
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

#[test]
fn a_rope_arrives() {
    let (mut sender, mut receiver) = channel().unwrap();
    sender.send(Rope::from(b"hello".to_vec())).unwrap();
    sender.send(Rope::new()).unwrap();
    let mut place = sender.place().unwrap();
    place[..5].copy_from_slice(b"there");
    sender.send(Rope::from(place.freeze(5).whole())).unwrap();
    sender.finish().unwrap();
    assert_eq!(receiver.receive().unwrap().unwrap().to_vec(), b"hello");
    assert!(receiver.receive().unwrap().unwrap().is_empty());
    assert_eq!(receiver.receive().unwrap().unwrap().to_vec(), b"there");
    assert!(receiver.receive().unwrap().is_none());
}
