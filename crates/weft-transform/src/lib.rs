//! Networks of stages that transform streams of bytes where they lie.
//!
//! A network is written in a small language ([`Network::parse`]), checked when it is made, and run
//! any number of times ([`Run`]). Data goes from stage to stage as slices of blocks, by reference;
//! a stage edits a slice in place where nobody else can reach its block. This crate knows
//! `weft-block`, `weft-users` and nothing of files.
//!
//! ```
//! use weft_block::Rope;
//! use weft_transform::{Network, NoFiles};
//!
//! let network = Network::parse("grep ERROR | head -1")?;
//! let log = Rope::from(b"INFO fine\nERROR lost\nERROR late\n".to_vec());
//! assert_eq!(network.apply(log, &mut NoFiles)?.to_vec(), b"ERROR lost\n");
//!
//! // Networks that can be undone tell what undoes them.
//! let packed = Network::parse("zstd")?.apply(Rope::from(b"bytes".to_vec()), &mut NoFiles)?;
//! let undo = Network::parse("zstd")?.inverse().expect("zstd -d");
//! assert_eq!(undo.apply(packed, &mut NoFiles)?.to_vec(), b"bytes");
//!
//! let error = Network::parse("grep | nosuch").unwrap_err();
//! println!("{error}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod account;
pub mod age;
pub mod archive;
mod arguments;
pub mod catalog;
pub mod expand;
mod exported;
mod flow;
mod footprint;
mod fork;
mod hints;
pub mod interrupt;
mod joins;
mod keys;
mod language;
mod network;
pub mod picture;
mod prefetch;
mod pull;
mod run;
mod source;
mod stage;
mod stages;
mod temporary;
mod threaded;

pub use account::{Bounds, Charge};
pub use exported::refuse_to_daemon;
pub use exported::workers::worker;
pub use keys::{read_key, read_key_file};
pub use language::NetworkError;
pub use network::{Described, Network};
pub use pull::RunError;
pub use run::Run;
pub use source::{NoFiles, Reading, Source, Sources, WithInput};
pub use stage::{Keeps, Shape, StageError};
pub use stages::permuting::Permutations;
pub use stages::sums::Sum;

/// Version of these stages: others may give something else. Its last number is raised whenever a
/// stage gives something else than before.
pub const VERSION: &str = concat!("weft ", env!("CARGO_PKG_VERSION"), " stages 1");
