//! Rows and blocks: what a volume keeps, and the one way to change it.
//!
//! A [`Store`] reads rows, reads blocks and applies one [`Batch`] atomically, in a [`Transaction`].
//! It knows no rule of the file system: it could be tested with made-up rows. [`sqlite`] is the
//! embedded implementation, [`postgres`] the one over the wire; [`log`] is the intent log that
//! makes an fsync cost one append.
//!
//! The format (tables, columns, invariants) is `docs/reference/format.md`.

mod batch;
mod copies;
mod digests;
mod disk_cache;
mod engine;
mod error;
mod files;
mod finding;
pub mod history;
mod location;
pub mod log;
#[cfg(any(test, feature = "testing"))]
pub mod memory;
mod missing;
mod name;
mod overlay;
#[cfg(any(test, feature = "testing"))]
pub mod parts;
mod past;
mod path_walk;
pub mod postgres;
mod references;
mod round_trips;
mod row;
mod shape;
pub mod sqlite;
mod store;
pub mod stream;
mod sums;
mod tables;
mod upgrade;
pub mod user;
mod uuid;
mod views;
mod waiting;

pub use batch::{
    Batch, Counters, ExtentChange, InodeChange, MergedBlock, NameChange, NewBlock, SplitBlock, XattrChange,
};
pub use digests::contradicts_digest;
pub use disk_cache::{DiskCacheOptions, DiskCacheStats};
pub use engine::{Begun, Engine, OpenOptions, Opened};
pub use error::{Error, ErrorKind, Result};
pub use files::{parent_of, remove_below, rename_to_new};
pub use finding::{CheckOptions, Finding, Outcome, Progress, Repair, Subject};
pub use history::{Rule, RuleError};
pub use location::Location;
pub use missing::refuse_rootless;
pub use name::{InvalidName, NAME_BYTES_MAX, Name};
pub use past::{
    At, ChangedExtent, ChangedNames, Counted, ExtentKey, FORGOTTEN, FORGOTTEN_BYTES_MAX, FORGOTTEN_MAX,
    FORGOTTEN_TOTAL_MAX, History, HistoryChange, HistoryFor, InvalidMoment, KeptCommits, Moment, NameKey, PastBytes,
    PastContent, PastCosts, PastCount, PastExtent, PastFilter, PastName, PastStore, PastVersion, Pin, PinKind,
    VersionCounts, no_history,
};
pub use path_walk::PathWalk;
pub use round_trips::RoundTrips;
pub use row::{
    BlockId, BlockRef, CommitNo, CommitRow, Cookie, Generation, Ino, InodeRow, ListedRow, NameRow, OWN_XATTRS, OpNo,
    Place, Span, Timestamp,
};
pub use store::{
    Applied, BlockHome, BlockStore, CommitStore, Durability, Header, Limits, Maintenance, Nth, ReadMode, RowStore,
    Space, Store, Transaction, VolumeOptions, path_to,
};
pub use upgrade::{Upgrade, Upgraded};
pub use waiting::Waiting;
pub use weft_digest::{Digest, Kind};

/// Version of the volume format that this program reads and writes.
pub const FORMAT: u32 = 8;
