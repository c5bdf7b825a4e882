//! Counts of the round trips of a store to its server, by the kind of rows asked for.

use std::sync::atomic::{AtomicU64, Ordering};

/// The kind of rows asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Inodes,
    Names,
    Extents,
    Xattrs,
    Blocks,
    Digests,
    Commits,
    Lease,
}

/// Round trips to a server since the volume was opened; 0 for a volume that has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct RoundTrips {
    /// For inodes.
    pub inodes: u64,
    /// For directory entries.
    pub names: u64,
    /// For the maps of files.
    pub extents: u64,
    /// For extended attributes.
    pub xattrs: u64,
    /// For blocks.
    pub blocks: u64,
    /// For digests that were asked for.
    pub digests: u64,
    /// For commits, with all that they need to read.
    pub commits: u64,
    /// For the lease, and to connect.
    pub lease: u64,
}

impl RoundTrips {
    /// All of them but those of the lease, which are made whether there is anything to do or not.
    pub fn total(&self) -> u64 {
        let RoundTrips { inodes, names, extents, xattrs, blocks, digests, commits, lease: _ } = *self;
        inodes + names + extents + xattrs + blocks + digests + commits
    }
}

/// Counts them.
#[derive(Debug, Default)]
pub(crate) struct Counts([AtomicU64; 8]);

impl Counts {
    pub(crate) fn count(&self, class: Class) {
        self.0[class as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> RoundTrips {
        let of = |class: Class| self.0[class as usize].load(Ordering::Relaxed);
        RoundTrips {
            inodes: of(Class::Inodes),
            names: of(Class::Names),
            extents: of(Class::Extents),
            xattrs: of(Class::Xattrs),
            blocks: of(Class::Blocks),
            digests: of(Class::Digests),
            commits: of(Class::Commits),
            lease: of(Class::Lease),
        }
    }
}
