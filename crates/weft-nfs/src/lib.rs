//! NFS and its companions to `vfs` calls and back: nothing of what the file system means lives
//! here.
//!
//! `xdr` and `rpc` know the bytes, `mount`, `v3`, `locking` and `portmap` the translation of one
//! protocol each, `export` who may do what with which part of a volume, `handle` how files are
//! named on the wire, `server` how requests arrive and replies leave. Nothing below `server` waits
//! or knows of connections, so that another version of NFS fits in beside `v3`.

mod calls;
mod dispatch;
pub mod export;
#[cfg(feature = "testing")]
pub mod fuzzing;
mod handle;
mod locking;
mod machine;
mod mount;
mod mounts;
mod outcome;
mod portmap;
mod programs;
mod refusals;
mod refused;
mod request;
mod rpc;
mod server;
mod service;
mod status;
#[cfg(test)]
mod tests;
mod v3;
mod xdr;

pub use export::{Export, Exports};
pub use server::{LockOptions, Options, Server, ServerError, TlsFiles};
