//! The signed text: line by line `weft commit 1`, then `number`, `time` (nanoseconds since 1970),
//! `root`, `previous` and `digest` of a commit (docs/reference/digest.md).

use super::super::digest::list::unhex;
use weft_digest::{Digest, commit, hex};
use weft_store::{CommitRow, Timestamp};

const TITLE: &str = "weft commit 1";

/// A commit, and so the tree it leaves and all commits before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attestation {
    pub number: u64,
    pub time: Timestamp,
    pub root: Digest,
    /// 32 zero bytes if it is the first commit.
    pub previous: Digest,
}

impl Attestation {
    /// Returns the attestation of a commit; none if the volume keeps no digests.
    pub fn of(row: &CommitRow) -> Option<Attestation> {
        let previous = row.previous.unwrap_or_default();
        Some(Attestation { number: row.number.0, time: row.time, root: row.root?, previous })
    }

    pub fn encode(&self) -> String {
        let Attestation { number, time, root, previous } = self;
        let digest = commit(*number, time.0, root, previous);
        let (root, previous, digest) = (hex(root), hex(previous), hex(&digest));
        format!("{TITLE}\nnumber {number}\ntime {}\nroot {root}\nprevious {previous}\ndigest {digest}\n", time.0)
    }

    /// Parses an attestation; none if the text is none, or contradicts itself.
    pub fn decode(text: &str) -> Option<Attestation> {
        let mut lines = text.lines();
        (lines.next()? == TITLE).then_some(())?;
        let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        let (number, time) = (value("number")?.parse().ok()?, Timestamp(value("time")?.parse().ok()?));
        let (root, previous) = (unhex(value("root")?.as_bytes())?, unhex(value("previous")?.as_bytes())?);
        let found = Attestation { number, time, root, previous };
        (found.encode() == text).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_says_what_it_was_made_of_and_no_other_does() {
        let made = Attestation { number: 7, time: Timestamp(-5), root: [1; 32], previous: [2; 32] };
        let text = made.encode();
        assert_eq!(Attestation::decode(&text), Some(made));
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] ^= 1;
            let changed = String::from_utf8(changed).expect("ASCII");
            assert_eq!(Attestation::decode(&changed), None, "{changed}");
            assert_eq!(Attestation::decode(&text[..at]), None);
        }
    }
}
