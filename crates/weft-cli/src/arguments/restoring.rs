//! Arguments of the commands that bring back the past, and give it up.

use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use weft_store::Moment;

#[derive(Args)]
pub struct Restore {
    /// A path in a mounted volume, there now or not; or VOLUME:PATH, and VOLUME: for all of it
    pub path: OsString,
    /// The moment: a commit (@1234), a time in UTC (2026-11-28T12:30:00), a time ago (-5m, -3d,
    /// yesterday), or the name of a snapshot; as of 'weft mount'
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    pub at: Moment,
    /// Bring it to this path of the same volume, where nothing is yet; what is at PATH stays
    #[arg(long, value_name = "ELSEWHERE")]
    pub to: Option<OsString>,
    #[command(flatten)]
    pub told: Told,
}

#[derive(Args)]
pub struct Undelete {
    /// A path in a mounted volume, where nothing is now; or VOLUME:PATH
    #[arg(required_unless_present = "list")]
    pub path: Option<OsString>,
    /// List names that were deleted below this directory (or VOLUME:PATH), there now or not, and
    /// can still be had: when, how large, the last commit that has it, the path
    ///
    /// Files that were moved, or have another hard link, are not listed, nor names that are there
    /// again, nor files whose content 'weft history forget' took out.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["path", "at", "parents", "dry_run"])]
    pub list: Option<OsString>,
    /// List so many at most, those that were deleted last
    #[arg(short = 'n', long, value_name = "COUNT", requires = "list", default_value_t = 1000, value_parser = super::limit)]
    pub limit: usize,
    /// The moment as of which it is brought back, as of 'weft mount'; without it the last commit
    /// kept that has it
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    pub at: Option<Moment>,
    /// Bring back directories on the way that are gone, too, without what else was in them
    #[arg(long)]
    pub parents: bool,
    #[command(flatten)]
    pub told: Told,
}

#[derive(Args)]
pub struct Cp {
    /// A file or directory in a mounted volume, or VOLUME:PATH
    pub from: OsString,
    /// The path of the copy in the same volume, where nothing is yet
    #[arg(value_name = "PATH|VOLUME:PATH")]
    pub to: OsString,
    /// Change nothing, and list each name that the copy would have
    #[arg(long)]
    pub dry_run: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct RestoreSnapshot {
    #[command(flatten)]
    pub snapshot: super::NamedSnapshot,
    #[command(flatten)]
    pub told: Told,
}

/// The way in which a restoration is told.
#[derive(Args)]
pub struct Told {
    /// Change nothing, and list each name that would come back, move back, change or go
    #[arg(long)]
    pub dry_run: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Du {
    /// A directory or file in a mounted volume, or VOLUME:PATH, or a volume; with --history it need
    /// not be there now
    pub path: OsString,
    /// Tell also the bytes that only the past has
    #[arg(long)]
    pub history: bool,
    /// Tell only the sum
    #[arg(short, long)]
    pub summarize: bool,
    /// List so many names at most
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 40, value_parser = super::limit)]
    pub limit: usize,
    /// As JSON, with all names, in bytes
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Gc {
    /// The volume, or the directory where it is mounted
    pub volume: PathBuf,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}
