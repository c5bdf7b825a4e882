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

/// All orders of some words of one length: as their numbers ascend, if words have those of their places.
#[derive(Clone, Debug)]
pub struct Permutations {
    words: Vec<u8>,
    word_bytes: usize,
    /// The places of the words in the next one; none after the last.
    order: Option<Vec<usize>>,
}

impl Permutations {
    /// Those of `text`, cut into words of `word_bytes`. None if it is not a number of whole ones, from 1 to 16.
    pub fn new(text: &[u8], word_bytes: usize) -> Option<Permutations> {
        let count = text.len().checked_div(word_bytes)?;
        let fits = (1..=WORDS_MAX).contains(&count) && count * word_bytes == text.len();
        fits.then(|| Permutations { words: text.to_vec(), word_bytes, order: Some((0..count).collect()) })
    }

    /// The bytes of as many as are near `piece` bytes, and of one at least.
    pub fn bytes_near(&self, piece: usize) -> usize {
        (piece / self.words.len()).max(1) * self.words.len()
    }

    /// Writes the next ones over `to`, as many as it has room for. How many bytes those have: none when there are no more.
    pub fn fill(&mut self, to: &mut [u8]) -> usize {
        let bytes = self.words.len();
        bytes * to.chunks_exact_mut(bytes).map_while(|to| self.next(to).then_some(())).count()
    }

    /// Writes the next one over `to`, which has room for it. False if there is none.
    fn next(&mut self, to: &mut [u8]) -> bool {
        let Some(order) = &mut self.order else { return false };
        let places = to.chunks_exact_mut(self.word_bytes).zip(order.iter());
        if self.word_bytes == WORD_BYTES {
            // Of a length that the compiler knows, each is one move.
            let (words, _) = self.words.as_chunks::<WORD_BYTES>();
            places.for_each(|(to, place)| to.copy_from_slice(&words[*place]));
        } else {
            let words = self.words.chunks_exact(self.word_bytes).collect::<Vec<_>>();
            places.for_each(|(to, place)| to.copy_from_slice(words[*place]));
        }
        // The next in lexicographic order: the last place that can be raised is, as little as can be, and what follows ascends.
        let Some(raised) = order.windows(2).rposition(|pair| pair[0] < pair[1]) else {
            self.order = None;
            return true;
        };
        let by = order.iter().rposition(|place| *place > order[raised]).expect("the next one is");
        order.swap(raised, by);
        order[raised + 1..].reverse();
        true
    }
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
        assert!(Permutations::new(b"abc", 2).is_none() && Permutations::new(b"", 1).is_none());
    }
}
