//! The control socket of a daemon: a Unix socket of its owner's alone, which speaks HTTP/1.1; and
//! an address at which it tells its metrics and its health, and nothing else.
//!
//! `directory` says where sockets lie and who may be trusted there, `server` takes connections,
//! `answers` reports and acts, `files` gives and takes files of the volume, `sessions` tells
//! programs and daemons of each other's end, `metrics` and `operations` say what is counted,
//! `client` asks. It knows the volume (`weft-vfs`) and no protocol that serves it: a daemon says
//! what it is ([`Daemon`]).

mod answers;
mod client;
mod defragmenting;
mod directory;
mod files;
mod hexadecimal;
mod metrics;
mod operations;
mod restoring;
mod server;
mod sessions;

pub use answers::{Answers, Counters, Daemon, Kind};
pub use client::{Answer, Method, Unanswered, ask};
pub use defragmenting::{defragment_at, defragment_target, file_at, fragments_at, fragments_target, fragments_value};
pub use directory::{DirectoryError, Socket, missing, remove_stale, sockets};
pub use restoring::{forget_target, path_target, report_value, restore_target};
pub use server::{MetricsServer, Server, StartError};

use std::time::Duration;

/// Time that a requested commit may take before the answer is that it goes on.
pub const COMMIT_MAX: Duration = Duration::from_secs(90);
