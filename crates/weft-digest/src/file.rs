//! Digests of files, from their bytes in order.
//!
//! The content's digest is BLAKE3 of the bytes. A directory lists a file by the same digest, unless the file has more
//! than [`ZERO_PIECES_MAX`] pieces of zeros: hashing endless holes would take for ever, so such a file is listed by its
//! sparse digest, a hash over the same tree in which subtrees of zeros count as zero. docs/digest.md has the definition.

use crate::Digest;
use blake3::Hasher;
use blake3::hazmat::{ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};

/// Bytes in a piece: a power of two, so that pieces are subtrees.
pub const PIECE_BYTES: usize = 4 << 20;

/// Whole pieces of zeros up to which a directory lists a file by its content's digest: 1 GiB.
pub const ZERO_PIECES_MAX: u64 = 256;

/// What [`blake3::derive_key`] derives the key of sparse digests from.
const SPARSE_CONTEXT: &str = "weft 2026-11 sparse file";

/// Stands for a subtree of zeros.
const ZERO: ChainingValue = [0; 32];

/// Whether the content's digest is wanted where a directory would list the sparse one, whatever it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// It is.
    Always,
    /// It is not: only where the directory lists it.
    IfListed,
}

/// What a file's bytes give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileDigest {
    /// BLAKE3 of the content; none if it was not wanted.
    pub content: Option<Digest>,
    /// By what a directory lists the file.
    pub listed: Digest,
}

/// Takes the bytes of one file.
pub struct FileHasher {
    wanted: Content,
    size: u64,
    zero_pieces: u64,
    /// The piece that is not known to be whole, or to be followed by more.
    piece: Hasher,
    filled: usize,
    all_zero: bool,
    /// Of the pieces before; none once the content's digest is not wanted.
    content: Option<Subtrees>,
    sparse: Subtrees,
}

impl FileHasher {
    /// For a file of which nothing is known yet.
    pub fn new(wanted: Content) -> FileHasher {
        FileHasher {
            wanted,
            size: 0,
            zero_pieces: 0,
            piece: Hasher::new(),
            filled: 0,
            all_zero: true,
            content: Some(Subtrees::new(merge)),
            sparse: Subtrees::new(merge_sparse),
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

    /// The next `len` bytes are zeros. Long runs cost little where the content's digest is not wanted.
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

    /// So many whole pieces of zeros follow, and then more.
    fn zero_pieces(&mut self, pieces: u64) {
        if self.filled > 0 {
            self.end_piece();
        }
        let zeros = vec![0; PIECE_BYTES];
        let first = self.size / PIECE_BYTES as u64;
        for piece in first..first + pieces {
            self.zero_pieces += 1;
            self.drop_content_if_unwanted();
            let Some(content) = &mut self.content else {
                self.zero_pieces += first + pieces - piece - 1;
                break;
            };
            content.push(at(piece).update(&zeros).finalize_non_root(), 0);
        }
        self.sparse.push_zeros(pieces);
        self.size += pieces * PIECE_BYTES as u64;
        self.piece = at(first + pieces);
    }

    fn drop_content_if_unwanted(&mut self) {
        if self.zero_pieces > ZERO_PIECES_MAX && self.wanted == Content::IfListed {
            self.content = None;
        }
    }

    /// The piece is whole and more follows, or the file ends with it.
    fn end_piece(&mut self) {
        let value = self.piece.finalize_non_root();
        let is_zero = self.all_zero && self.filled == PIECE_BYTES;
        self.zero_pieces += u64::from(is_zero);
        self.drop_content_if_unwanted();
        if let Some(content) = &mut self.content {
            content.push(value, 0);
        }
        self.sparse.push(if is_zero { ZERO } else { value }, 0);
        self.piece = at(self.size / PIECE_BYTES as u64);
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
            Some(content) if self.zero_pieces <= ZERO_PIECES_MAX => content,
            _ => sparse(self.size, &self.sparse.value()),
        };
        FileDigest { content, listed }
    }
}

/// What hashes piece `index`.
fn at(index: u64) -> Hasher {
    let mut hasher = Hasher::new();
    hasher.set_input_offset(index * PIECE_BYTES as u64);
    hasher
}

fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<16>();
    words.iter().all(|word| u128::from_ne_bytes(*word) == 0) && rest.iter().all(|byte| *byte == 0)
}

fn sparse(size: u64, value: &ChainingValue) -> Digest {
    let mut hasher = Hasher::new_derive_key(SPARSE_CONTEXT);
    hasher.update(&size.to_le_bytes()).update(value);
    *hasher.finalize().as_bytes()
}

fn merge(left: &ChainingValue, right: &ChainingValue) -> ChainingValue {
    merge_subtrees_non_root(left, right, Mode::Hash)
}

fn merge_sparse(left: &ChainingValue, right: &ChainingValue) -> ChainingValue {
    if *left == ZERO && *right == ZERO { ZERO } else { merge(left, right) }
}

/// Merges subtrees from left to right as BLAKE3 does (2.1 of its paper): the left one of two is full, and as large as it can be.
/// Keeps one for each bit of the number of pieces.
struct Subtrees {
    merge: fn(&ChainingValue, &ChainingValue) -> ChainingValue,
    pieces: u64,
    /// All but the last, largest first.
    full: Vec<ChainingValue>,
    /// With its height; it may have no right sibling.
    last: Option<(ChainingValue, u32)>,
}

impl Subtrees {
    fn new(merge: fn(&ChainingValue, &ChainingValue) -> ChainingValue) -> Subtrees {
        Subtrees { merge, pieces: 0, full: Vec::new(), last: None }
    }

    /// A subtree of `2^height` pieces follows; so many lie before it, or a multiple.
    fn push(&mut self, value: ChainingValue, height: u32) {
        if let Some((mut last, height)) = self.last.take() {
            let mut count = self.pieces >> height;
            while count.is_multiple_of(2) {
                let left = self.full.pop().expect("one for each bit of the number of pieces");
                last = (self.merge)(&left, &last);
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

    /// Of all pieces, as part of a larger tree.
    fn value(&self) -> ChainingValue {
        let (last, _) = self.last.expect("there are pieces");
        self.full.iter().rev().fold(last, |right, left| (self.merge)(left, &right))
    }

    /// The digest of all pieces: at least two.
    fn root(self) -> Digest {
        let (last, _) = self.last.expect("there are pieces");
        let (first, rest) = self.full.split_first().expect("there are two pieces or more");
        let right = rest.iter().rev().fold(last, |right, left| (self.merge)(left, &right));
        *merge_subtrees_root(first, &right, Mode::Hash).as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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

    /// The definition, word for word.
    fn sparse_of(bytes: &[u8]) -> Digest {
        fn value(pieces: &[ChainingValue]) -> ChainingValue {
            match pieces {
                [only] => *only,
                pieces if pieces.iter().all(|piece| *piece == ZERO) => ZERO,
                pieces => {
                    let (left, right) = pieces.split_at(pieces.len().next_power_of_two() / 2);
                    merge(&value(left), &value(right))
                }
            }
        }
        let piece = |(index, piece): (usize, &[u8])| match piece.len() == PIECE_BYTES && is_zero(piece) {
            true => ZERO,
            false => at(index as u64).update(piece).finalize_non_root(),
        };
        let pieces = bytes.chunks(PIECE_BYTES).enumerate().map(piece).collect::<Vec<_>>();
        sparse(bytes.len() as u64, &value(&pieces))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn the_digest_is_that_of_the_bytes_however_they_come(runs in runs()) {
            let (digest, bytes) = take(&runs, Content::IfListed);
            let expected = *blake3::hash(&bytes).as_bytes();
            prop_assert_eq!(digest, FileDigest { content: Some(expected), listed: expected });
        }

        #[test]
        fn the_tree_with_holes_is_the_same_however_zeros_come(runs in runs()) {
            let mut hasher = FileHasher::new(Content::IfListed);
            let (_, bytes) = take(&runs, Content::IfListed);
            prop_assume!(bytes.len() > PIECE_BYTES);
            hasher.zero_pieces = ZERO_PIECES_MAX + 1;
            for run in bytes.chunk_by(|a, b| (*a == 0) == (*b == 0)) {
                if run[0] == 0 { hasher.zeros(run.len() as u64) } else { hasher.update(run) }
            }
            let listed = hasher.finish().listed;
            prop_assert_eq!(listed, sparse_of(&bytes));
            let mut hasher = FileHasher::new(Content::IfListed);
            hasher.zero_pieces = ZERO_PIECES_MAX + 1;
            hasher.update(&bytes);
            prop_assert_eq!(hasher.finish().listed, listed);
        }
    }

    #[test]
    fn a_gibibyte_of_zeros_is_listed_by_its_content_and_more_is_not() {
        let limit = ZERO_PIECES_MAX * PIECE;
        let of = |len: u64, wanted| {
            let mut hasher = FileHasher::new(wanted);
            hasher.zeros(len);
            hasher.update(b"end");
            hasher.finish()
        };
        let within = of(limit, Content::IfListed);
        assert_eq!(within.content, Some(within.listed));
        let beyond = of(limit + PIECE, Content::IfListed);
        assert_eq!(beyond.content, None);
        let always = of(limit + PIECE, Content::Always);
        assert_eq!(always.listed, beyond.listed);
        assert!(always.content.is_some_and(|content| content != always.listed));
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
