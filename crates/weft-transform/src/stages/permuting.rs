//! permute: all orders of the words of a text.

use crate::arguments::Arguments;
use crate::flow::{Input, Output, filled};
use crate::language::{Call, NetworkError};
use crate::stage::{Progress, Running, Stage, StageError};
use weft_block::Buffer;

/// Bytes of a word, unless it is said otherwise.
const WORD_BYTES: usize = 8;

/// Most words: their orders come to 12 digits.
const WORDS_MAX: usize = 16;

/// Bytes given at once.
const PIECE_BYTES: usize = 64 << 10;

/// So many of the last words go through all their orders while those before them stay: then most of
/// a text is copied as a whole.
const TAIL_MAX: usize = 4;

/// All orders of some words of one length: as their numbers ascend, if words have those of their
/// places.
#[derive(Clone, Debug)]
pub struct Permutations {
    words: Vec<u8>,
    word_bytes: usize,
    /// The places of the words, of which the last few ascend; none after the last order.
    order: Option<Vec<u8>>,
    /// The words in that order.
    arranged: Vec<u8>,
    /// Orders of the last few, one after the other.
    tails: Vec<u8>,
    /// Number of those that were given.
    given: usize,
}

impl Permutations {
    /// Those of `text`, cut into words of `word_bytes`. None if it is not a number of whole ones,
    /// from 1 to 16.
    pub fn new(text: &[u8], word_bytes: usize) -> Option<Permutations> {
        let count = text.len().checked_div(word_bytes)?;
        if !(1..=WORDS_MAX).contains(&count) || count * word_bytes != text.len() {
            return None;
        }
        let ascending = |count: usize| (0..count as u8).collect::<Vec<_>>();
        let mut tail = ascending(count.min(TAIL_MAX));
        let mut tails = tail.clone();
        while advance(&mut tail) {
            tails.extend(&tail);
        }
        let (words, order) = (text.to_vec(), Some(ascending(count)));
        Some(Permutations { arranged: words.clone(), words, word_bytes, order, tails, given: 0 })
    }

    /// The bytes of as many as are near `piece` bytes, and of one at least.
    pub fn bytes_near(&self, piece: usize) -> usize {
        (piece / self.words.len()).max(1) * self.words.len()
    }

    /// Writes the next ones over `to`, as many as it has room for. How many bytes those have: none
    /// when there are no more.
    pub fn fill(&mut self, to: &mut [u8]) -> usize {
        let mut places = to.chunks_exact_mut(self.words.len());
        let all = places.len();
        while places.len() > 0 && self.order.is_some() {
            self.fill_with_same_head(&mut places);
        }
        (all - places.len()) * self.words.len()
    }

    /// Writes the next ones that differ in the last few words alone.
    fn fill_with_same_head(&mut self, places: &mut std::slice::ChunksExactMut<'_, u8>) {
        let Some(order) = &mut self.order else { return };
        let count = order.len().min(TAIL_MAX);
        let (head, words) = self.arranged.split_at(self.arranged.len() - count * self.word_bytes);
        let tails = self.tails[self.given * count..].chunks_exact(count);
        for (tail, to) in tails.zip(places) {
            self.given += 1;
            let (to_head, to_words) = to.split_at_mut(head.len());
            to_head.copy_from_slice(head);
            if self.word_bytes == WORD_BYTES {
                // Of a length that the compiler knows, each is one move.
                let words = words.as_chunks::<WORD_BYTES>().0;
                let to = to_words.as_chunks_mut::<WORD_BYTES>().0.iter_mut();
                to.zip(tail).for_each(|(to, place)| *to = words[usize::from(*place)]);
            } else {
                let word = |place: u8| &words[usize::from(place) * self.word_bytes..][..self.word_bytes];
                let to = to_words.chunks_exact_mut(self.word_bytes);
                to.zip(tail).for_each(|(to, place)| to.copy_from_slice(word(*place)));
            }
        }
        if self.given * count == self.tails.len() {
            self.given = 0;
            let head = order.len() - count;
            order[head..].reverse();
            if !advance(order) {
                self.order = None;
                return;
            }
            let to = self.arranged.chunks_exact_mut(self.word_bytes);
            for (to, place) in to.zip(order) {
                to.copy_from_slice(&self.words[usize::from(*place) * self.word_bytes..][..self.word_bytes]);
            }
        }
    }
}

/// Makes `order` the next one in lexicographic order: the last place that can be raised is, as
/// little as can be, and what follows ascends. False if it was the last one.
fn advance(order: &mut [u8]) -> bool {
    let Some(raised) = order.windows(2).rposition(|pair| pair[0] < pair[1]) else { return false };
    let by = order.iter().rposition(|place| *place > order[raised]).expect("the next one is");
    order.swap(raised, by);
    order[raised + 1..].reverse();
    true
}

impl Running for Permutations {
    fn advance(&mut self, _: &mut Input, output: &mut Output) -> Result<Progress, StageError> {
        let mut piece = Buffer::any(self.bytes_near(PIECE_BYTES));
        let len = self.fill(&mut piece);
        output.push(filled(piece, len));
        Ok(if self.order.is_some() { Progress::HasMore } else { Progress::Ended })
    }
}

pub(crate) fn permute(call: &Call) -> Result<Stage, NetworkError> {
    let mut arguments = Arguments::read(call, "", "w")?;
    let word_bytes = arguments.value('w', "a number of bytes")?.unwrap_or(WORD_BYTES);
    let text = arguments.operand("the text")?;
    let message = || format!("the text is 1 to {WORDS_MAX} words of {word_bytes} bytes");
    let permutations = Permutations::new(text.text.as_bytes(), word_bytes);
    let permutations = permutations.ok_or_else(|| NetworkError::new(message(), text.at))?;
    arguments.end()?;
    Ok(Stage::new(move || permutations.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_order_comes_once_and_in_order() {
        let mut permutations = Permutations::new(b"abcde", 1).expect("words");
        let (mut orders, mut next) = (Vec::new(), [0; 5]);
        while permutations.fill(&mut next) > 0 {
            orders.push(next);
        }
        assert_eq!((orders.len(), orders[0], orders[119]), (120, *b"abcde", *b"edcba"));
        assert!(orders.is_sorted() && orders.iter().collect::<BTreeSet<_>>().len() == 120);
        for (words, of) in [("a", 1), ("ab", 2), ("abcdef", 720)] {
            // Pieces that end within the orders of the last few.
            let mut permutations = Permutations::new(words.as_bytes(), 1).expect("words");
            let (mut all, mut piece) = (Vec::new(), vec![0; words.len() * 7]);
            while let len @ 1.. = permutations.fill(&mut piece) {
                all.extend_from_slice(&piece[..len]);
            }
            let orders: Vec<_> = all.chunks_exact(words.len()).collect();
            assert!(orders.len() == of && orders.is_sorted_by(|before, after| before < after), "{words}");
        }
        assert!(Permutations::new(b"abc", 2).is_none() && Permutations::new(b"", 1).is_none());
    }
}
