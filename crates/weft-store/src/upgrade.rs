//! The mode and the result of an upgrade of a volume from an older format.

/// The upgrade itself, or a look at what it would take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upgrade {
    /// Only tell what it would take; nothing is changed.
    DryRun,
    /// In one transaction.
    Now,
}

/// The result of an upgrade, done or to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upgraded {
    /// The format before.
    pub from: u32,
    /// The format after.
    pub to: u32,
    /// Rows of inodes, names and extents that are rewritten.
    pub rows: u64,
    /// Free space that it may take meanwhile, where that can be told.
    pub bytes_needed: Option<u64>,
}
