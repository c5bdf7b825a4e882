//! Digests of files, from their bytes in order.
//!
//! The content's digest is BLAKE3 of the bytes. A directory lists a file by the same digest, unless
//! a whole piece of it is zeros: hashing endless holes would take for ever, so such a file is
//! listed by its sparse digest, a hash over the same tree in which subtrees of zeros count as zero.
//! docs/reference/digest.md has the definition.

use crate::Digest;
use crate::tree::{Value, ZERO, at, merge, merged, root};
use blake3::Hasher;
use blake3::hazmat::{HasherExt, Mode, merge_subtrees_root};

/// Bytes in a piece: a power of two, so that pieces are subtrees.
pub const PIECE_BYTES: usize = 4 << 20;

/// Context from which [`blake3::derive_key`] derives the key of sparse digests.
const SPARSE_CONTEXT: &str = "weft 2026-11 sparse file";

/// Need for the content's digest where a directory would list the sparse one, whatever it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// It is.
    Always,
    /// It is not: only where the directory lists it.
    IfListed,
}

/// The digests of a file's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileDigest {
    /// BLAKE3 of the content; none if it was not wanted.
    pub content: Option<Digest>,
    /// The digest by which a directory lists the file.
    pub listed: Digest,
}

/// Returns the digest by which a directory lists a file of `size` bytes whose pieces are all in
/// `values`: two or more, of subtrees of one size but for the last, which may be smaller.
/// `has_zeros` is true if any value of a piece is [`ZERO`].
pub fn listed(size: u64, values: &[Value], has_zeros: bool) -> Digest {
    if has_zeros { sparse(size, &merged(values)) } else { root(values) }
}

/// Takes the bytes of one file.
pub struct FileHasher {
    wanted: Content,
    size: u64,
    has_zeros: bool,
    /// The piece that is not known to be whole, or to be followed by more.
    piece: Hasher,
    filled: usize,
    all_zero: bool,
    /// Subtrees of the pieces before; none once the content's digest is not wanted.
    content: Option<Subtrees>,
    sparse: Subtrees,
}

impl FileHasher {
    /// Makes a hasher of a file of which nothing is known yet.
    pub fn new(wanted: Content) -> FileHasher {
        FileHasher {
            wanted,
            size: 0,
            has_zeros: false,
            piece: Hasher::new(),
            filled: 0,
            all_zero: true,
            content: Some(Subtrees::default()),
            sparse: Subtrees::default(),
        }
    }

    /// The next bytes.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.filled == PIECE_BYTES {
                self.end_piece();
            }
            let (now, rest) = bytes.split_at(bytes.len().min(PIECE_BYTES - self.filled));
            self.piece.update(now);
            self.all_zero = self.all_zero && is_zero(now);
            self.filled += now.len();
            self.size += now.len() as u64;
            bytes = rest;
        }
    }

    /// The next `len` bytes are zeros. Long runs cost little where the content's digest is not
    /// wanted.
    pub fn zeros(&mut self, mut len: u64) {
        static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
        while len > 0 {
            let in_piece = self.filled % PIECE_BYTES;
            if in_piece == 0 && len > PIECE_BYTES as u64 {
                // The last piece stays open, for more may follow.
                let pieces = (len - 1) / PIECE_BYTES as u64;
                self.zero_pieces(pieces);
                len -= pieces * PIECE_BYTES as u64;
                continue;
            }
            let now = (PIECE_BYTES - in_piece).min(ZEROS.len()).min(usize::try_from(len).unwrap_or(usize::MAX));
            self.update(&ZEROS[..now]);
            len -= now as u64;
        }
    }

    /// Adds `pieces` whole pieces of zeros, after which more follows.
    fn zero_pieces(&mut self, pieces: u64) {
        if self.filled > 0 {
            self.end_piece();
        }
        let first = self.size / PIECE_BYTES as u64;
        self.found_zeros();
        if let Some(content) = &mut self.content {
            let zeros = vec![0; PIECE_BYTES];
            for piece in first..first + pieces {
                content.push(piece_at(piece).update(&zeros).finalize_non_root(), 0);
            }
        }
        self.sparse.push_zeros(pieces);
        self.size += pieces * PIECE_BYTES as u64;
        self.piece = piece_at(first + pieces);
    }

    fn found_zeros(&mut self) {
        self.has_zeros = true;
        if self.wanted == Content::IfListed {
            self.content = None;
        }
    }

    /// The piece is whole and more follows, or the file ends with it.
    fn end_piece(&mut self) {
        let value = self.piece.finalize_non_root();
        let is_zero = self.all_zero && self.filled == PIECE_BYTES;
        if is_zero {
            self.found_zeros();
        }
        if let Some(content) = &mut self.content {
            content.push(value, 0);
        }
        self.sparse.push(if is_zero { ZERO } else { value }, 0);
        self.piece = piece_at(self.size / PIECE_BYTES as u64);
        self.filled = 0;
        self.all_zero = true;
    }

    /// There are no more bytes.
    pub fn finish(mut self) -> FileDigest {
        if self.size <= PIECE_BYTES as u64 {
            let digest = *self.piece.finalize().as_bytes();
            return FileDigest { content: Some(digest), listed: digest };
        }
        self.end_piece();
        let content = self.content.map(Subtrees::root);
        let listed = match content {
            Some(content) if !self.has_zeros => content,
            _ => sparse(self.size, &self.sparse.value()),
        };
        FileDigest { content, listed }
    }
}

/// Returns the hasher of piece `index`.
fn piece_at(index: u64) -> Hasher {
    at(index * PIECE_BYTES as u64)
}

/// True if `bytes` are all zeros.
pub fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<16>();
    words.iter().all(|word| u128::from_ne_bytes(*word) == 0) && rest.iter().all(|byte| *byte == 0)
}

fn sparse(size: u64, value: &Value) -> Digest {
    let mut hasher = Hasher::new_derive_key(SPARSE_CONTEXT);
    hasher.update(&size.to_le_bytes()).update(value);
    *hasher.finalize().as_bytes()
}

/// Merges subtrees from left to right as BLAKE3 does (2.1 of its paper): the left one of two is
/// full, and as large as it can be. Keeps one for each bit of the number of pieces.
#[derive(Default)]
struct Subtrees {
    pieces: u64,
    /// All but the last, largest first.
    full: Vec<Value>,
    /// The last one with its height; it may have no right sibling.
    last: Option<(Value, u32)>,
}

impl Subtrees {
    /// A subtree of `2^height` pieces follows; so many lie before it, or a multiple.
    fn push(&mut self, value: Value, height: u32) {
        if let Some((mut last, height)) = self.last.take() {
            let mut count = self.pieces >> height;
            while count.is_multiple_of(2) {
                let left = self.full.pop().expect("one for each bit of the number of pieces");
                last = merge(&left, &last);
                count >>= 1;
            }
            self.full.push(last);
        }
        self.pieces += 1 << height;
        self.last = Some((value, height));
    }

    fn push_zeros(&mut self, mut pieces: u64) {
        while pieces > 0 {
            let height = self.pieces.trailing_zeros().min(pieces.ilog2());
            self.push(ZERO, height);
            pieces -= 1 << height;
        }
    }

    /// Returns the value of all pieces, as part of a larger tree.
    fn value(&self) -> Value {
        let (last, _) = self.last.expect("there are pieces");
        self.full.iter().rev().fold(last, |right, left| merge(left, &right))
    }

    /// The digest of all pieces: at least two.
    fn root(self) -> Digest {
        let (last, _) = self.last.expect("there are pieces");
        let (first, rest) = self.full.split_first().expect("there are two pieces or more");
        let right = rest.iter().rev().fold(last, |right, left| merge(left, &right));
        *merge_subtrees_root(first, &right, Mode::Hash).as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blake3::hazmat::merge_subtrees_non_root;
    use proptest::prelude::*;

    const PIECE: u64 = PIECE_BYTES as u64;

    #[derive(Clone, Debug)]
    enum Run {
        Data { len: usize, seed: u8 },
        Zeros(u64),
    }

    fn runs() -> impl Strategy<Value = Vec<Run>> {
        let len = prop_oneof![
            0..3 * PIECE_BYTES,
            (0..3usize, 0..3usize).prop_map(|(n, d)| (n * PIECE_BYTES + d).saturating_sub(1))
        ];
        let run = prop_oneof![
            (len.clone(), 1u8..).prop_map(|(len, seed)| Run::Data { len, seed }),
            len.prop_map(|len| Run::Zeros(len as u64)),
        ];
        prop::collection::vec(run, 0..5)
    }

    fn take(runs: &[Run], wanted: Content) -> (FileDigest, Vec<u8>) {
        let (mut hasher, mut all) = (FileHasher::new(wanted), Vec::new());
        for run in runs {
            match run {
                Run::Data { len, seed } => {
                    let bytes = (0..*len).map(|i| seed.wrapping_mul((i / 3) as u8 | 1)).collect::<Vec<_>>();
                    bytes.chunks(77_777).for_each(|chunk| hasher.update(chunk));
                    all.extend(bytes);
                }
                Run::Zeros(len) => {
                    hasher.zeros(*len);
                    all.resize(all.len() + usize::try_from(*len).expect("short"), 0);
                }
            }
        }
        (hasher.finish(), all)
    }

    /// The value of each piece.
    fn pieces_of(bytes: &[u8]) -> Vec<Value> {
        let piece = |(index, piece): (usize, &[u8])| match piece.len() == PIECE_BYTES && is_zero(piece) {
            true => ZERO,
            false => piece_at(index as u64).update(piece).finalize_non_root(),
        };
        bytes.chunks(PIECE_BYTES).enumerate().map(piece).collect()
    }

    /// The definition, word for word.
    fn listed_of(bytes: &[u8]) -> Digest {
        fn value(pieces: &[Value]) -> Value {
            match pieces {
                [only] => *only,
                pieces if pieces.iter().all(|piece| *piece == ZERO) => ZERO,
                pieces => {
                    let (left, right) = pieces.split_at(pieces.len().next_power_of_two() / 2);
                    merge_subtrees_non_root(&value(left), &value(right), Mode::Hash)
                }
            }
        }
        let pieces = pieces_of(bytes);
        let is_sparse = pieces.len() > 1 && pieces.contains(&ZERO);
        if is_sparse { sparse(bytes.len() as u64, &value(&pieces)) } else { crate::digest(bytes) }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn the_digests_are_those_of_the_bytes_however_they_come(runs in runs()) {
            let (always, bytes) = take(&runs, Content::Always);
            prop_assert_eq!(always.content, Some(crate::digest(&bytes)));
            prop_assert_eq!(always.listed, listed_of(&bytes));
            let (if_listed, _) = take(&runs, Content::IfListed);
            prop_assert_eq!(if_listed.listed, always.listed);
            prop_assert_eq!(if_listed.content, always.content.filter(|content| *content == always.listed));
        }

        #[test]
        fn values_of_larger_subtrees_give_the_same(runs in runs(), height in 0u32..3) {
            let (digest, bytes) = take(&runs, Content::IfListed);
            let pieces = pieces_of(&bytes);
            prop_assume!(pieces.len() > 1 << height);
            let values = pieces.chunks(1 << height).map(merged).collect::<Vec<_>>();
            prop_assert_eq!(digest.listed, listed(bytes.len() as u64, &values, pieces.contains(&ZERO)));
        }
    }

    #[test]
    fn only_whole_pieces_of_zeros_in_longer_files_make_a_file_sparse() {
        let is_sparse = |zeros, end: &[u8]| {
            let mut hasher = FileHasher::new(Content::IfListed);
            hasher.zeros(zeros);
            hasher.update(end);
            hasher.finish().content.is_none()
        };
        assert!(!is_sparse(PIECE, b"") && !is_sparse(PIECE - 1, b"end") && is_sparse(PIECE, b"\0"));
    }

    #[test]
    fn the_longest_hole_takes_no_time() {
        let of = |len: u64| {
            let mut hasher = FileHasher::new(Content::IfListed);
            hasher.zeros(len);
            hasher.finish().listed
        };
        let longest = i64::MAX as u64;
        assert_ne!(of(longest), of(longest - 1));
    }
}
