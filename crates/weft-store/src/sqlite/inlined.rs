//! Content inline in the row of a file or a symbolic link that is not as a commit wrote it.
//!
//! The row's digest has a sum of its own, and the hash of an entry covers the digest, too: either
//! proves the content byte for byte. Nothing proves owner, permissions and times, so a row is
//! rebuilt around the content, for root alone, as it is around blocks. A transformation link is
//! not: it reads with the rights of its owner, who is not known.

use crate::Name;
use crate::digests::{Digester, Inode, small};
use crate::row::{Ino, InodeRow, Timestamp};
use crate::sums;
use weft_block::Slice;
use weft_digest::{Digest, Kind};

/// Says that a row was rebuilt.
pub(super) const MADE_ANEW: &str = "its row is damaged, with owner, permissions and times; a digest proves its content, \
                                    and it is made anew of that, for root alone";

/// A damaged row, as far as it can be read.
pub(super) struct Suspect {
    pub(super) ino: Ino,
    /// None if the mode says none.
    pub(super) kind: Option<Kind>,
    permissions: Option<u32>,
    size: Option<u64>,
    inline: Option<Vec<u8>>,
    /// None where its own sum does not hold.
    digest: Option<Digest>,
}

/// A name and the hash of its entry.
pub(super) type Hashed = (Name, Digest);

impl Suspect {
    /// Makes one of its columns, each none if it holds nothing that Weft may have written. `digest`
    /// counts if `digest_sum` is its sum.
    pub(super) fn new(
        ino: Ino,
        mode: Option<u64>,
        size: Option<u64>,
        inline: Option<&[u8]>,
        (digest, digest_sum): (Option<Digest>, Option<i64>),
    ) -> Suspect {
        let mode = mode.and_then(|mode| u32::try_from(mode).ok());
        Suspect {
            ino,
            kind: mode.and_then(Kind::from_mode),
            permissions: mode.map(|mode| mode & 0o7777),
            size,
            inline: inline.map(<[u8]>::to_vec),
            digest: digest.filter(|digest| digest_sum == Some(sums::digest(ino, Some(digest)))),
        }
    }

    /// Returns the row rebuilt at `time` around the content, with its digest, if that is proved,
    /// for a row that has no blocks and is of this `kind`.
    pub(super) fn prove(
        &self,
        kind: Kind,
        entries: &[Hashed],
        digester: &Digester,
        time: Timestamp,
    ) -> Option<(InodeRow, Digest)> {
        let length = self.inline.as_ref().map_or(0, |inline| inline.len() as u64);
        let (permissions, sizes) = match kind {
            // Zeros follow what is inline. The damaged column may be the size.
            Kind::File => (0o600, [self.size.filter(|size| *size >= length), Some(length)]),
            Kind::Symlink if length > 0 => (0o777, [Some(length), None]),
            _ => return None,
        };
        sizes.into_iter().flatten().find_map(|size| {
            let row = InodeRow {
                ino: self.ino,
                kind,
                permissions,
                nlink: 1,
                parent: Ino(0),
                size,
                allocated: length,
                inline: self.inline.clone().map(Slice::from),
                ..InodeRow::new_root(0, 0, time)
            };
            let digest = small(&row);
            let is_proved = self.digest == Some(digest) || self.is_listed(kind, digest, entries, digester);
            is_proved.then_some((row, digest))
        })
    }

    /// True if an entry says this digest.
    fn is_listed(&self, kind: Kind, digest: Digest, entries: &[Hashed], digester: &Digester) -> bool {
        let Some(permissions) = self.permissions else { return false };
        let inode = Inode { kind, permissions, size: 0, parent: Ino(0), digest: Some(digest) };
        entries.iter().any(|(name, hash)| digester.entry_of(inode, name) == Some(*hash))
    }
}
