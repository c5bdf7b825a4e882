//! Support for tests: a reference file system that is obviously right, generated operations, stores
//! that fail and crash on demand.

mod cluster;
mod compare;
mod counting;
mod digests;
mod faults;
mod model;
mod operations;
mod pooler;
mod proxy;
mod rows;
mod run;
mod tree;

pub use cluster::{Client, Cluster};
pub use compare::compare;
pub use counting::{Counting, held, held_bytes};
pub use digests::check_digests;
pub use faults::{Calls, CrashStore, Faults, InDoubt};
pub use model::{Model, Node, NodeId};
pub use operations::{Operation, Step, operations};
pub use pooler::Pooler;
pub use proxy::{Break, Proxy};
pub use rows::check_rows;
pub use run::{BLOCK_BYTES, Driver, Means};
pub use tree::escaped;
