//! Replies on their way out of one connection.

use super::record::mark;
use crate::rpc::Reply;
use crate::xdr::padding;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::io::IoSlice;

/// A reply that was waited for.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) reply: Reply,
    /// Bytes that the call was counted with while it ran; none if it was not counted.
    pub(super) ran: Option<usize>,
}

/// Slices handed to the system at once, at most (of the 1024 that it takes).
const SLICES: usize = 64;

/// Replies that wait to be sent, in their order.
#[derive(Debug, Default)]
pub(super) struct Replies {
    waiting: VecDeque<([u8; 4], Reply)>,
    /// Bytes of the first one that were sent.
    sent: usize,
    bytes: usize,
}

impl Replies {
    /// Adds `reply` at the end.
    pub(super) fn push(&mut self, reply: Reply) {
        let len = reply.len();
        self.bytes += len + 4;
        self.waiting.push_back((mark(len), reply));
    }

    /// Returns the number of bytes that wait.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the slices to send next, not copied.
    pub(super) fn slices(&self) -> SmallVec<[IoSlice<'_>; SLICES]> {
        let mut slices = SmallVec::new();
        let mut skip = self.sent;
        for (mark, reply) in &self.waiting {
            let padding = &[0; 3][..padding(reply.data.len())];
            let parts = [mark.as_slice(), &reply.head].into_iter();
            let parts = parts.chain(reply.data.slices().iter().map(|slice| &slice[..])).chain([padding]);
            for part in parts {
                if slices.len() == SLICES {
                    return slices;
                }
                match part.get(skip..) {
                    Some([]) | None => skip -= part.len(),
                    Some(rest) => {
                        slices.push(IoSlice::new(rest));
                        skip = 0;
                    }
                }
            }
        }
        slices
    }

    /// Forgets `count` bytes that were sent.
    pub(super) fn sent(&mut self, count: usize) {
        self.sent += count;
        self.bytes -= count;
        while let Some((_, reply)) = self.waiting.front() {
            let len = reply.len() + 4;
            if self.sent < len {
                break;
            }
            self.sent -= len;
            self.waiting.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weft_block::{Rope, Slice};

    proptest! {
        #[test]
        fn replies_leave_whole_and_in_order_however_much_the_system_takes(
            replies in proptest::collection::vec(
                (proptest::collection::vec(any::<u8>(), 1..9), proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..9), 0..4)), 0..40),
            steps in proptest::collection::vec(1usize..30, 1..9),
        ) {
            let (mut waiting, mut expected) = (Replies::default(), Vec::new());
            for (head, data) in &replies {
                let mut rope = Rope::new();
                data.iter().for_each(|part| rope.push(Slice::from(part.clone())));
                let reply = Reply { head: head.clone(), data: rope };
                expected.extend_from_slice(&mark(reply.len()));
                expected.extend_from_slice(head);
                expected.extend_from_slice(&data.concat());
                expected.extend_from_slice(&[0; 3][..padding(data.concat().len())]);
                waiting.push(reply);
            }
            let (mut out, mut at) = (Vec::new(), 0);
            while waiting.bytes() > 0 {
                let offered: Vec<u8> = waiting.slices().iter().flat_map(|slice| slice.to_vec()).collect();
                prop_assert!(!offered.is_empty());
                let taken = steps[at % steps.len()].min(offered.len());
                out.extend_from_slice(&offered[..taken]);
                waiting.sent(taken);
                at += 1;
            }
            prop_assert_eq!(out, expected);
            prop_assert!(waiting.slices().is_empty());
        }
    }
}
