//! Records on a stream (RFC 5531 11): each message comes in fragments, a mark with a length before
//! each.
//!
//! Room is made for the length in a mark up to a bound, and filled only by data that arrives. A
//! message that comes in one fragment is looked at where it was received.

use crate::v3::DATA_BYTES_MAX;
use std::ops::Range;

/// Longest message: the longest write, with all around it.
const MESSAGE_BYTES_MAX: usize = DATA_BYTES_MAX + (8 << 10);
/// Least room to receive into.
const ROOM_BYTES: usize = 64 << 10;
const MARK_BYTES: usize = 4;
const LAST: u32 = 1 << 31;

/// Error: a message that is too long. Its sender is out of step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

/// Bytes that were received and not yet taken.
#[derive(Debug, Default)]
pub(crate) struct Received {
    bytes: Vec<u8>,
    /// Number of leading bytes that were taken.
    taken: usize,
    /// Fragments of a message whose last one has not come yet.
    begun: Vec<u8>,
}

/// Place of a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// In the received bytes.
    At(Range<usize>),
    /// Put together from fragments.
    Whole(Vec<u8>),
}

impl Received {
    /// Takes the next message, if all of it is here.
    pub(crate) fn next(&mut self) -> Result<Option<Message>, TooLong> {
        loop {
            let Some((len, is_last)) = self.mark() else { return Ok(None) };
            if self.begun.len() + len > MESSAGE_BYTES_MAX {
                return Err(TooLong);
            }
            let start = self.taken + MARK_BYTES;
            let Some(fragment) = self.bytes.get(start..start + len) else { return Ok(None) };
            self.taken = start + len;
            if is_last && self.begun.is_empty() {
                return Ok(Some(Message::At(start..start + len)));
            }
            if len == 0 && !is_last {
                // No client needs an empty fragment, and they could go on for ever.
                return Err(TooLong);
            }
            self.begun.extend_from_slice(fragment);
            if is_last {
                return Ok(Some(Message::Whole(std::mem::take(&mut self.begun))));
            }
        }
    }

    fn mark(&self) -> Option<(usize, bool)> {
        let mark = self.bytes.get(self.taken..)?.first_chunk::<MARK_BYTES>()?;
        let mark = u32::from_be_bytes(*mark);
        Some(((mark & !LAST) as usize, mark & LAST != 0))
    }

    /// Returns the bytes of a message that lies in the received bytes.
    pub(crate) fn bytes(&self, at: &Range<usize>) -> &[u8] {
        &self.bytes[at.clone()]
    }

    /// Returns the number of bytes that lie here.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.taken + self.begun.len()
    }

    /// True if no message has begun.
    pub(crate) fn is_empty(&self) -> bool {
        self.taken == self.bytes.len() && self.begun.is_empty()
    }

    /// Makes room for the next bytes; also returns how much of it to fill. Must not be called while
    /// a message is being looked at.
    pub(crate) fn room(&mut self) -> (&mut Vec<u8>, usize) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        let missing = self.mark().map_or(0, |(len, _)| (MARK_BYTES + len).saturating_sub(self.bytes.len()));
        let wanted = missing.clamp(ROOM_BYTES, MESSAGE_BYTES_MAX + MARK_BYTES);
        self.bytes.reserve(wanted);
        // For a long message no more than it: then the bytes after it need not be moved.
        (&mut self.bytes, wanted)
    }

    /// Gives the memory back, when no message has begun.
    pub(crate) fn rest(&mut self) {
        if self.is_empty() {
            self.bytes = Vec::new();
            self.taken = 0;
        }
    }
}

/// Returns the mark before a message of `len` bytes that is sent whole.
pub(crate) fn mark(len: usize) -> [u8; MARK_BYTES] {
    (u32::try_from(len).expect("replies are shorter than 2 GiB") | LAST).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fragment(bytes: &[u8], is_last: bool) -> Vec<u8> {
        let mark = u32::try_from(bytes.len()).unwrap() | if is_last { LAST } else { 0 };
        [&mark.to_be_bytes(), bytes].concat()
    }

    fn take_all(received: &mut Received) -> Vec<Vec<u8>> {
        let mut messages = Vec::new();
        while let Some(message) = received.next().unwrap() {
            messages.push(match message {
                Message::At(at) => received.bytes(&at).to_vec(),
                Message::Whole(bytes) => bytes,
            });
        }
        messages
    }

    proptest! {
        #[test]
        fn messages_come_out_as_they_went_in_however_they_are_cut(
            messages in proptest::collection::vec(
                proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..9), 1..4), 0..6),
            pieces in proptest::collection::vec(1usize..12, 1..20),
        ) {
            let mut stream = Vec::new();
            for fragments in &messages {
                for (at, bytes) in fragments.iter().enumerate() {
                    stream.extend(fragment(bytes, at + 1 == fragments.len()));
                }
            }
            let (mut received, mut out, mut rest, mut at) = (Received::default(), Vec::new(), &stream[..], 0);
            while !rest.is_empty() {
                let (now, later) = rest.split_at(pieces[at % pieces.len()].min(rest.len()));
                received.room().0.extend_from_slice(now);
                out.extend(take_all(&mut received));
                (rest, at) = (later, at + 1);
            }
            let expected: Vec<Vec<u8>> = messages.iter().map(|fragments| fragments.concat()).collect();
            prop_assert_eq!(out, expected);
            prop_assert!(received.is_empty());
        }

        #[test]
        fn any_bytes_are_messages_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut received = Received::default();
            received.room().0.extend_from_slice(&bytes);
            while let Ok(Some(_)) = received.next() {}
            prop_assert!(received.room().0.capacity() <= 2 * (MESSAGE_BYTES_MAX + ROOM_BYTES));
        }
    }

    #[test]
    fn a_message_that_is_too_long_is_refused_at_its_mark() {
        let mut received = Received::default();
        received.room().0.extend_from_slice(&(LAST | 0x7fff_ffff).to_be_bytes());
        assert_eq!(received.next(), Err(TooLong));
        let mut received = Received::default();
        received.room().0.extend(fragment(&[0; 100], false));
        received.room().0.extend_from_slice(&(LAST | u32::try_from(MESSAGE_BYTES_MAX).unwrap()).to_be_bytes());
        assert_eq!(received.next(), Err(TooLong));
        let mut received = Received::default();
        received.room().0.extend(fragment(&[], false));
        assert_eq!(received.next(), Err(TooLong));
    }
}
