//! What an upgrade of a volume from an older format is to do, and what it did.

/// The upgrade itself, or a look at what it would take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upgrade {
    /// Only tell what it would take; nothing is changed.
    DryRun,
    /// In one transaction.
    Now,
}

/// What an upgrade did, or would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upgraded {
    /// The format before.
    pub from: u32,
    /// The format after.
    pub to: u32,
    /// Rows of inodes, names and extents that are written anew.
    pub rows: u64,
    /// Free space that it may take meanwhile, where that can be told.
    pub bytes_needed: Option<u64>,
}
