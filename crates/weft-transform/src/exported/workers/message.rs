//! Messages between this process and a confined one: four numbers of 32 bits each, over a socket
//! that keeps messages apart.

use super::area::AREA_BYTES;
use crate::exported::code::{AGAIN, ENDED};
use std::ops::Range;

/// Bytes of a message.
pub(in crate::exported) const BYTES: usize = 16;

/// Order to a process. The first order is about the arguments, any other about input; either lie at
/// the beginning of the area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::exported) struct Order {
    pub(in crate::exported) len: u32,
    pub(in crate::exported) is_last: bool,
}

/// Answer to an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::exported) enum Reply {
    /// It is done, and what is given for it lies in that part of the area.
    Given { range: Range<usize>, has_more: bool, has_ended: bool },
    /// It has failed, for a reason that lies in that part of the area as text; empty if it does not
    /// say.
    Failed { range: Range<usize> },
}

const DONE: u32 = 1;
const FAILED: u32 = 2;

fn encode(numbers: [u32; 4]) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    for (place, number) in bytes.chunks_exact_mut(4).zip(numbers) {
        place.copy_from_slice(&number.to_ne_bytes());
    }
    bytes
}

fn decode(bytes: &[u8]) -> Option<[u32; 4]> {
    let bytes: &[u8; BYTES] = bytes.try_into().ok()?;
    let number = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    Some([number(0), number(4), number(8), number(12)])
}

impl Order {
    pub(in crate::exported) fn encode(self) -> [u8; BYTES] {
        encode([self.len, u32::from(self.is_last), 0, 0])
    }

    /// None if it makes no sense.
    pub(in crate::exported) fn decode(bytes: &[u8]) -> Option<Order> {
        let [len, is_last, ..] = decode(bytes)?;
        (usize::try_from(len).ok()? <= AREA_BYTES).then_some(Order { len, is_last: is_last != 0 })
    }
}

impl Reply {
    pub(in crate::exported) fn encode(&self) -> [u8; BYTES] {
        let number = |number: usize| u32::try_from(number).expect("a place in the area");
        match self {
            Reply::Given { range, has_more, has_ended } => {
                let flags = if *has_more { AGAIN } else { 0 } | if *has_ended { ENDED } else { 0 };
                encode([DONE, number(range.start), number(range.end), u32::try_from(flags).expect("32 bits")])
            }
            Reply::Failed { range } => encode([FAILED, number(range.start), number(range.end), 0]),
        }
    }

    /// None if it makes no sense: whoever sent it may be anybody.
    pub(in crate::exported) fn decode(bytes: &[u8]) -> Option<Reply> {
        let [kind, start, end, flags] = decode(bytes)?;
        let range = usize::try_from(start).ok()?..usize::try_from(end).ok()?;
        if range.start > range.end || range.end > AREA_BYTES {
            return None;
        }
        let has = |flag| u64::from(flags) & flag != 0;
        match kind {
            DONE => Some(Reply::Given { range, has_more: has(AGAIN), has_ended: has(ENDED) }),
            FAILED => Some(Reply::Failed { range }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_sent_arrives_and_nothing_lies_outside(numbers: [u32; 4], cut in 0..=BYTES) {
            let sent = encode(numbers);
            prop_assert_eq!(Reply::decode(&sent[..cut]).is_some() && cut < BYTES, false);
            if let Some(reply) = Reply::decode(&sent) {
                let (Reply::Given { range, .. } | Reply::Failed { range }) = &reply;
                prop_assert!(range.start <= range.end && range.end <= AREA_BYTES);
                prop_assert_eq!(Reply::decode(&reply.encode()), Some(reply));
            }
            if let Some(order) = Order::decode(&sent) {
                prop_assert_eq!(Order::decode(&order.encode()), Some(order));
            }
        }
    }
}
