//! Pushed networks: links in memory alone, in the place of files in use, with bounds by user.

pub(crate) mod ledger;
pub(crate) mod stacks;

pub use stacks::{Pushed, Scope};
