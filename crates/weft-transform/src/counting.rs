//! Counting lines and words, many bytes at a time.

/// Bytes looked at together: no more words can begin in them than a byte counts.
const PIECE: usize = 128;

/// What was counted of a stream so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// Words that have begun.
    pub begun: u64,
    is_in_word: bool,
}

impl Words {
    /// Adds those of the next `bytes`. White space is that of POSIX's locale.
    pub fn add(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(PIECE) {
            self.begun += u64::from(!self.is_in_word && is_of_word(piece[0]));
            // Without branches, so that the compiler makes vectors of it.
            let pairs = piece.iter().zip(&piece[1..]);
            let begin = pairs.map(|(before, byte)| u8::from(!is_of_word(*before) & is_of_word(*byte)));
            self.begun += u64::from(begin.fold(0u8, u8::wrapping_add));
            self.is_in_word = is_of_word(piece[piece.len() - 1]);
        }
    }
}

/// The lines that end in `bytes`.
pub fn lines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

#[inline]
fn is_of_word(byte: u8) -> bool {
    (byte != b' ') & (byte.wrapping_sub(b'\t') > b'\r' - b'\t')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_are_those_of_one_look_at_each_byte(
            text in prop::collection::vec(prop_oneof![Just(b' '), 7u8..15, any::<u8>()], 0..1000),
            cut: prop::sample::Index,
        ) {
            let mut words = Words::default();
            let (first, rest) = text.split_at(cut.index(text.len() + 1));
            words.add(first);
            words.add(rest);
            let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
            prop_assert_eq!(words.begun, text.split(is_space).filter(|word| !word.is_empty()).count() as u64);
            prop_assert_eq!(lines(&text), text.iter().filter(|byte| **byte == b'\n').count() as u64);
        }
    }
}
