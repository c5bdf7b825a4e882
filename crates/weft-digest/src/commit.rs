//! Digests of commits: each names the tree it leaves and the commit before it, so that one says all
//! that was.

use crate::Digest;
use blake3::Hasher;

const COMMIT_CONTEXT: &str = "weft 2026-11 commit";

/// The digest of commit `number`, made at `time` (nanoseconds since 1970), which leaves the tree
/// `root` and follows the commit with the digest `previous`; 32 zero bytes where that is not known.
pub fn commit(number: u64, time: i64, root: &Digest, previous: &Digest) -> Digest {
    let mut hasher = Hasher::new_derive_key(COMMIT_CONTEXT);
    hasher.update(&number.to_le_bytes()).update(&time.to_le_bytes()).update(root).update(previous);
    *hasher.finalize().as_bytes()
}
