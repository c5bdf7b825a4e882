//! The file system's semantics, once for every way in: inodes, names, attributes, data, write-back.
//!
//! An operation changes memory and returns; a committer thread turns all that changed since the
//! last commit into one [`weft_store::Batch`]. The promise: *after a crash the tree is exactly the
//! state after some prefix of the operations, which includes every operation acknowledged before
//! the last successful [`Vfs::sync`]*. No FUSE or NFS type appears here.

mod asker;
pub mod blocking;
mod cache;
mod clock;
mod commit;
mod defragment;
mod exclusions;
#[cfg(feature = "testing")]
pub mod fuzzing;
mod latency;
pub mod locks;
mod message;
mod observe;
pub mod opaque;
mod operations;
mod options;
mod past;
mod read_ahead;
mod refusal;
mod requester;
mod restore;
mod secrets;
pub mod shares;
pub mod signals;
mod state;
mod stats;
mod user;
mod volume;
mod work;

pub use asker::{Asker, Asking, MAY_READ, MAY_SEARCH, MAY_WRITE, Subject, asking_user};
pub use clock::{Clock, ManualClock, SystemClock};
pub use commit::{ClockJump, Collected, HistoryChanged, LimitsChange};
pub use defragment::{Defragmented, Fragments};
pub use exclusions::Exclusion;
pub use exclusions::excluded_patterns;
pub use latency::{Latency, LatencyHistogram};
pub use message::{
    LogFormat, RecentMessage, is_plain, keep_messages, printable, push_printable, recent_messages, repeat_messages,
    rfc3339, set_log_format, write_log, write_messages,
};
pub use observe::{Change, Observer};
pub use operations::{COUNTS_BYTES, ListedEntry, Nonce, Nonces, SharedPart, decode as decode_entries};
pub use options::{AtimePolicy, HISTORY_NAME, Options};
pub use past::{Lasting, MomentError, MovingName, PAST_NODE_BYTES, PastInode, PastNode};
pub use requester::{Requester, is_requester_killed, request_number, requester, set_requester};
pub use restore::{
    DeletedName, DeletedNames, Effect, ForgottenRecord, PathEffect, RestoreError, RestoreReport, RestoreRequest,
    Target, Usage, UsageBelow, deleted_names, forgotten_records, last_commit_with, usage_below,
};
pub use secrets::Secret;
pub use state::State;
pub use stats::{NfsRefused, NfsStats, Report, Stats, largest, met_damage};
pub use user::{Changed, IfExists, User, name_beside};
pub use volume::{Unapplied, UnappliedList, Vfs};
pub use weft_store::{CommitNo, Cookie, Generation, HistoryFor, Ino, Kind, Limits, Moment, Name, OpNo, Timestamp};
pub use weft_tree::{
    Access, AllocateMode, Attributes, Caller, Credentials, DirEntry, Error, ErrorKind, FileId, Holds, MakeNode,
    Privileges, Reach, RenameMode, Result, SetAttributes, SetTime, SetXattr, Statfs, Whence, Writer, is_past,
    is_virtual,
};
pub use weft_users::whose;
pub use work::{Work, WorkBy};
