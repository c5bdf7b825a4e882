//! Every order in which the steps of both ends can happen: `make loom`.
//!
//! The socket is a count of messages that is waited for; a call to wake up that got lost leaves a
//! thread that waits for ever, which is found.

use super::*;
use loom::sync::{Condvar, Mutex};
use loom::thread;

const SHAPE: Shape = Shape { entries: 2, tickets: 64 };

type Heap = Box<[Word]>;

/// One direction of the socket.
#[derive(Default)]
struct Calls {
    unread: Mutex<usize>,
    came: Condvar,
}

impl Calls {
    fn send(&self) {
        *self.unread.lock().unwrap() += 1;
        self.came.notify_one();
    }

    fn wait(&self) {
        let mut unread = self.unread.lock().unwrap();
        while *unread == 0 {
            unread = self.came.wait(unread).unwrap();
        }
        *unread = 0;
    }
}

struct Channel {
    ring: Arc<Ring<Heap>>,
    to_sender: Calls,
    to_receiver: Calls,
}

fn channel() -> loom::sync::Arc<Channel> {
    let words: Heap = (0..SHAPE.words()).map(|_| Word::new(0)).collect();
    let ring = Arc::new(Ring::of(words, SHAPE));
    loom::sync::Arc::new(Channel { ring, to_sender: Calls::default(), to_receiver: Calls::default() })
}

/// The next entry; none at the end. As the receiver does it.
fn receive(channel: &Channel, popping: &mut Popping<Heap>) -> Option<Entry> {
    let ring = &channel.ring;
    loop {
        let finished = ring.is_finished();
        if let Some(entry) = popping.pop().expect("no garbage") {
            if popping.wakes_sender() {
                channel.to_sender.send();
            }
            return Some(entry);
        }
        if finished {
            return None;
        }
        ring.receiver_sleeps();
        if popping.is_ready().expect("no garbage") || ring.is_finished() {
            ring.receiver_is_awake();
            continue;
        }
        if ring.wakes_sender_by_sleep() {
            channel.to_sender.send();
        }
        channel.to_receiver.wait();
    }
}

/// As the sender does it.
fn send(channel: &Channel, pushing: &mut Pushing<Heap>, entry: Entry) {
    while !pushing.has_room() {
        let seen = pushing.head().expect("no garbage");
        if pushing.has_room() {
            break;
        }
        channel.ring.sender_sleeps(Wish::Head(seen + 1));
        if pushing.head().expect("no garbage") <= seen {
            channel.to_sender.wait();
        }
        channel.ring.sender_is_awake();
    }
    pushing.push(entry);
    if channel.ring.wakes_receiver() {
        channel.to_receiver.send();
    }
}

fn finish(channel: &Channel) {
    channel.ring.finish();
    if channel.ring.wakes_receiver() {
        channel.to_receiver.send();
    }
}

/// A model in which no thread is interrupted more often than bugs of this kind need.
fn every_order(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

#[test]
fn entries_arrive_in_order_and_nobody_sleeps_for_ever() {
    every_order(|| {
        let channel = channel();
        let other = channel.clone();
        let sender = thread::spawn(move || {
            let mut pushing = Pushing::of(other.ring.clone());
            (0..3).for_each(|number| send(&other, &mut pushing, [number, number + 1, number + 2, number + 3]));
            finish(&other);
        });
        let mut popping = Popping::of(channel.ring.clone());
        for number in 0..3 {
            assert_eq!(receive(&channel, &mut popping), Some([number, number + 1, number + 2, number + 3]));
        }
        assert_eq!(receive(&channel, &mut popping), None);
        sender.join().unwrap();
    });
}

/// Waits as a sender without memory does. True if tickets came back, false if the receiver waits
/// for more.
fn wait_for_returns(channel: &Channel, pushing: &mut Pushing<Heap>, returned: u64) -> bool {
    loop {
        channel.ring.sender_sleeps(Wish::Returns);
        let head = pushing.head().expect("no garbage");
        let starves = channel.ring.is_receiver_asleep() && head == pushing.tail();
        if channel.ring.returned() != returned {
            channel.ring.sender_is_awake();
            return true;
        }
        if starves {
            channel.ring.sender_is_awake();
            return false;
        }
        channel.to_sender.wait();
    }
}

#[test]
fn a_sender_without_memory_gets_it_back_before_the_receiver_waits_for_more() {
    every_order(|| {
        let channel = channel();
        let other = channel.clone();
        let sender = thread::spawn(move || {
            let mut pushing = Pushing::of(other.ring.clone());
            send(&other, &mut pushing, [7; ENTRY]);
            assert!(wait_for_returns(&other, &mut pushing, 0), "it came back before the receiver slept");
            let mut back = Vec::new();
            other.ring.take_returned(64, |ticket| back.push(ticket));
            assert_eq!(back, [7]);
            finish(&other);
        });
        let mut popping = Popping::of(channel.ring.clone());
        assert_eq!(receive(&channel, &mut popping), Some([7; ENTRY]));
        channel.ring.give_back(7);
        if channel.ring.wakes_sender_by_return() {
            channel.to_sender.send();
        }
        assert_eq!(receive(&channel, &mut popping), None);
        sender.join().unwrap();
    });
}

#[test]
fn a_sender_without_memory_finds_out_that_the_receiver_keeps_it_and_waits() {
    every_order(|| {
        let channel = channel();
        let other = channel.clone();
        let sender = thread::spawn(move || {
            let mut pushing = Pushing::of(other.ring.clone());
            send(&other, &mut pushing, [7; ENTRY]);
            assert!(!wait_for_returns(&other, &mut pushing, 0), "nothing comes back");
            finish(&other);
        });
        let mut popping = Popping::of(channel.ring.clone());
        assert_eq!(receive(&channel, &mut popping), Some([7; ENTRY]));
        assert_eq!(receive(&channel, &mut popping), None);
        sender.join().unwrap();
    });
}

#[test]
fn tickets_that_several_threads_give_back_come_back_once_each() {
    every_order(|| {
        let channel = channel();
        let givers: Vec<_> = [3, 4]
            .into_iter()
            .map(|ticket| {
                let channel = channel.clone();
                thread::spawn(move || channel.ring.give_back(ticket))
            })
            .collect();
        let mut back = Vec::new();
        if channel.ring.returned() != 0 {
            channel.ring.take_returned(64, |ticket| back.push(ticket));
            assert!(!back.is_empty(), "what is counted is there");
        }
        givers.into_iter().for_each(|giver| giver.join().unwrap());
        channel.ring.take_returned(64, |ticket| back.push(ticket));
        back.sort_unstable();
        assert_eq!(back, [3, 4]);
    });
}
