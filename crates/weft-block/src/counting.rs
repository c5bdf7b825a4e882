//! Counting lines and words, many bytes at a time.

use std::fmt;
use std::str::FromStr;

/// Bytes looked at together: no more of them can be counted than a byte counts.
const PIECE: usize = 128;

/// Running count of the words of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// Words that have begun.
    pub begun: u64,
    is_in_word: bool,
}

impl Words {
    /// Adds those of the next `bytes`, and tells how many lines end in them. White space is that of
    /// POSIX's locale.
    pub fn add(&mut self, bytes: &[u8]) -> u64 {
        let Some(first) = bytes.first() else { return 0 };
        let counted = count(bytes);
        self.begun += counted.words + u64::from(!self.is_in_word && is_of_word(*first));
        self.is_in_word = is_of_word(bytes[bytes.len() - 1]);
        counted.lines
    }
}

/// Words that begin after the first byte, and lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted {
    words: u64,
    lines: u64,
}

/// Counts what `bytes` hold, with the widest vectors that this processor has.
fn count(bytes: &[u8]) -> Counted {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2")]
        fn with_avx2(bytes: &[u8]) -> Counted {
            count_pieces(bytes)
        }
        #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
        fn with_avx512(bytes: &[u8]) -> Counted {
            count_pieces(bytes)
        }
        if is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512vl") {
            // SAFETY: the processor has them.
            return unsafe { with_avx512(bytes) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has them.
            return unsafe { with_avx2(bytes) };
        }
    }
    count_pieces(bytes)
}

/// The same, whatever the processor has. Without branches over pieces of one length, so that the
/// compiler makes vectors of it.
#[inline(always)]
fn count_pieces(bytes: &[u8]) -> Counted {
    let mut counted = Counted { words: 0, lines: u64::from(bytes.first() == Some(&b'\n')) };
    let mut at = 1;
    while let (Some(before), Some(now)) = (
        bytes.get(at - 1..).and_then(<[u8]>::first_chunk::<PIECE>),
        bytes.get(at..).and_then(<[u8]>::first_chunk::<PIECE>),
    ) {
        let (mut words, mut lines) = (0u8, 0u8);
        for (before, now) in before.iter().zip(now) {
            words = words.wrapping_add(u8::from(!is_of_word(*before) & is_of_word(*now)));
            lines = lines.wrapping_add(u8::from(*now == b'\n'));
        }
        counted.words += u64::from(words);
        counted.lines += u64::from(lines);
        at += PIECE;
    }
    for now in at..bytes.len() {
        counted.words += u64::from(!is_of_word(bytes[now - 1]) & is_of_word(bytes[now]));
        counted.lines += u64::from(bytes[now] == b'\n');
    }
    counted
}

/// Counts of some bytes, which can be added to the counts of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bytes.
    pub bytes: u64,
    /// Lines that end there.
    pub lines: u64,
    /// Words, also those that may go on before or after.
    pub words: u64,
    begins_in_word: bool,
    ends_in_word: bool,
}

impl Counts {
    /// Those of `bytes`.
    pub fn of(bytes: &[u8]) -> Counts {
        let mut words = Words::default();
        let lines = words.add(bytes);
        Counts {
            bytes: bytes.len() as u64,
            lines,
            words: words.begun,
            begins_in_word: bytes.first().copied().is_some_and(is_of_word),
            ends_in_word: words.is_in_word,
        }
    }

    /// Those of `len` zeros.
    pub fn of_zeros(len: u64) -> Counts {
        let is_word = len > 0;
        Counts { bytes: len, lines: 0, words: u64::from(is_word), begins_in_word: is_word, ends_in_word: is_word }
    }

    /// Those of these bytes and `next` after them.
    #[must_use]
    pub fn then(self, next: Counts) -> Counts {
        match (self.bytes, next.bytes) {
            (0, _) => next,
            (_, 0) => self,
            _ => Counts {
                bytes: self.bytes + next.bytes,
                lines: self.lines + next.lines,
                words: self.words + next.words - u64::from(self.ends_in_word && next.begins_in_word),
                begins_in_word: self.begins_in_word,
                ends_in_word: next.ends_in_word,
            },
        }
    }
}

/// Bytes, lines, words, and 1 or 0 for whether they begin and whether they end in a word, with a
/// space between each two.
impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (begins, ends) = (u8::from(self.begins_in_word), u8::from(self.ends_in_word));
        write!(f, "{} {} {} {begins} {ends}", self.bytes, self.lines, self.words)
    }
}

impl FromStr for Counts {
    type Err = ();
    fn from_str(text: &str) -> Result<Counts, ()> {
        let numbers: Result<Vec<u64>, _> = text.split(' ').map(str::parse).collect();
        let [bytes, lines, words, begins @ 0..=1, ends @ 0..=1] = numbers.map_err(|_| ())?[..] else {
            return Err(());
        };
        Ok(Counts { bytes, lines, words, begins_in_word: begins == 1, ends_in_word: ends == 1 })
    }
}

/// The lines that end in `bytes`.
pub fn lines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

#[inline(always)]
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
            let counts = Counts::of(first).then(Counts::of(rest));
            prop_assert_eq!(counts, Counts::of(&text));
            prop_assert_eq!(counts.to_string().parse(), Ok(counts));
            prop_assert_eq!([counts.words, counts.lines], [words.begun, lines(&text)]);
            let zeros = vec![0; text.len() / 2];
            prop_assert_eq!(Counts::of_zeros(zeros.len() as u64), Counts::of(&zeros));
            prop_assert_eq!(lines(&text), text.iter().filter(|byte| **byte == b'\n').count() as u64);
        }
    }
}
