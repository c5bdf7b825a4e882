//! The extended attributes by which programs ask a mounted volume about itself, and control it.
//!
//! The daemon, the program, the client library and the benchmark name them by [`Attribute`] alone.
//! Their values have the types that each of them says. None is in a list of names, but that of
//! named networks: so nobody copies them along.

use std::borrow::Cow;

/// Begins the names of all attributes that programs cannot set as they like.
const RESERVED: &[u8] = b"user.weft.";

const DIGEST_ENTRIES: &str = "user.weft.digest.entries.";
const NETWORK: &str = "user.weft.network.";
const COUNTS: &str = "user.weft.counts.";

/// One of these attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribute<'a> {
    /// The mount's counters, as JSON. Only on the root.
    Stats,
    /// Reading it on the root stops everything that networks compute.
    StopComputing,
    /// Reading it on the root commits all changes. Its value is the last commit then.
    Commit,
    /// The calling user's nonce for a directory. It precedes every value that controls something.
    Nonce,
    /// The invitation of `weft-client` to read a file in shared memory.
    Lent,
    /// The digest of a file or directory, in hexadecimal.
    Digest,
    /// The digest by which the directory lists an inode of any kind, in hexadecimal. It is the
    /// file's digest for nearly every file.
    ListedDigest,
    /// The first entries of a directory after this position, with their digests. An empty value
    /// means that there are no more.
    DigestEntries {
        /// The position; 0 before the first.
        after: u64,
    },
    /// The definition of a transformation link. Set on a directory, behind a nonce, it makes a link
    /// there.
    Link,
    /// The memoised part of a transformation link's output.
    Memo,
    /// Set on the root if links want to know of opens. It reads `told` if the mount reports opens.
    Opens,
    /// A named network, by its name. Only on the root.
    Network(&'a str),
    /// Lines, words and bytes of a file from this offset on.
    Counts {
        /// In bytes.
        offset: u64,
    },
}

impl<'a> Attribute<'a> {
    /// The attribute called `name`; none if it is none of these.
    pub fn parse(name: &'a [u8]) -> Option<Attribute<'a>> {
        let name = std::str::from_utf8(name).ok()?;
        Some(match name {
            "user.weft.stats" => Attribute::Stats,
            "user.weft.stop-computing" => Attribute::StopComputing,
            "user.weft.commit" => Attribute::Commit,
            "system.weft.nonce" => Attribute::Nonce,
            "user.weft.lent" => Attribute::Lent,
            "user.weft.digest" => Attribute::Digest,
            "user.weft.digest.listed" => Attribute::ListedDigest,
            "user.weft.link" => Attribute::Link,
            "user.weft.memo" => Attribute::Memo,
            "user.weft.opens" => Attribute::Opens,
            _ => return Attribute::parse_longer(name),
        })
    }

    fn parse_longer(name: &'a str) -> Option<Attribute<'a>> {
        if let Some(after) = name.strip_prefix(DIGEST_ENTRIES) {
            return Some(Attribute::DigestEntries { after: after.parse().ok()? });
        }
        if let Some(offset) = name.strip_prefix(COUNTS) {
            return Some(Attribute::Counts { offset: offset.parse().ok()? });
        }
        name.strip_prefix(NETWORK).map(Attribute::Network)
    }

    /// Its name, as getxattr(2) takes it.
    pub fn name(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Attribute::Stats => "user.weft.stats",
            Attribute::StopComputing => "user.weft.stop-computing",
            Attribute::Commit => "user.weft.commit",
            // The kernel lets everybody ask for attributes of this namespace: who may write to a
            // directory need not be able to read it (xattr(7)).
            Attribute::Nonce => "system.weft.nonce",
            Attribute::Lent => "user.weft.lent",
            Attribute::Digest => "user.weft.digest",
            Attribute::ListedDigest => "user.weft.digest.listed",
            Attribute::Link => "user.weft.link",
            Attribute::Memo => "user.weft.memo",
            Attribute::Opens => "user.weft.opens",
            Attribute::DigestEntries { after } => return Cow::Owned(format!("{DIGEST_ENTRIES}{after}")),
            Attribute::Network(name) => return Cow::Owned(format!("{NETWORK}{name}")),
            Attribute::Counts { offset } => return Cow::Owned(format!("{COUNTS}{offset}")),
        })
    }
}

/// True if `name` is one that programs cannot set as they like, whether there is such an attribute
/// or not.
pub fn is_reserved(name: &[u8]) -> bool {
    name.starts_with(RESERVED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_attribute_is_found_by_its_name() {
        let plain = [
            Attribute::Stats,
            Attribute::StopComputing,
            Attribute::Commit,
            Attribute::Nonce,
            Attribute::Lent,
            Attribute::Digest,
            Attribute::ListedDigest,
            Attribute::Link,
            Attribute::Memo,
            Attribute::Opens,
        ];
        for attribute in plain {
            assert_eq!(Attribute::parse(attribute.name().as_bytes()), Some(attribute));
        }
        for name in ["user.weft", "user.weft.", "user.weft.digest.entries.", "user.weft.counts.x", "user.stats"] {
            assert_eq!(Attribute::parse(name.as_bytes()), None, "{name}");
        }
        assert_eq!(Attribute::parse(b"user.weft.network.\xff"), None);
    }

    proptest! {
        #[test]
        fn numbers_and_names_come_back(number: u64, name in "[a-z.]{0,20}") {
            let all = [
                Attribute::DigestEntries { after: number },
                Attribute::Counts { offset: number },
                Attribute::Network(&name),
            ];
            for attribute in all {
                let written = attribute.name();
                prop_assert!(is_reserved(written.as_bytes()));
                prop_assert_eq!(Attribute::parse(written.as_bytes()), Some(attribute));
            }
        }
    }
}
