//! Lends memory to programs of this machine: they read files of a mounted volume where its daemon
//! has them.
//!
//! A program shows what the kernel let it read as an attribute of a file ([`Server::inviter`]):
//! that it may read the file is all that is asked. From then on it is told where the bytes lie that
//! it asks for, in memory that holds nothing but that file's. What it was told stays as it is until
//! it lets go, or its socket closes.
//!
//! What a program can do to others is bounded ([`Limits`]): how much it keeps from being used for
//! anything else, how many connections a user has, and how long it may hold what others wait for.
//! It cannot write to what others read, and what it sends is checked to the last number.
//!
//! This crate translates requests ([`weft_client::protocol`]) to calls of the vfs, and knows
//! nothing of how the volume is mounted.

mod leases;
mod ledger;
mod server;
mod session;
mod tokens;

pub use server::{Limits, Listener, Server};
