//! Arguments of commands about how a volume, or a file in it, is stored.

use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Args)]
pub struct Info {
    /// The volume: a path or a postgres:// URL, or the directory where it is mounted; or a file in
    /// it, by its path in a mount or as VOLUME:PATH: then its fragments are told
    #[arg(value_name = "VOLUME|FILE")]
    pub volume: PathBuf,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Defragment {
    /// A file or directory in a mounted volume, or VOLUME:PATH
    #[arg(value_name = "PATH|VOLUME:PATH")]
    pub path: OsString,
    /// Change nothing, and tell how many files are fragmented
    #[arg(long)]
    pub dry_run: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}
