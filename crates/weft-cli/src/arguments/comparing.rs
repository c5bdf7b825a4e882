//! Arguments of the commands that read trees and compare them.

use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use weft_store::Moment;

#[derive(Args)]
pub struct Digest {
    /// Files and directories; VOLUME:PATH for one in a volume that is not mounted, and VOLUME:,
    /// with the colon, for all of it. With --check: lists, or - for standard input
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<OsString>,
    /// Verify what these lists name, as this command or b3sum printed them; a list without digests
    /// is an error
    #[arg(long)]
    pub check: bool,
    /// Tell where two trees differ, as 'weft diff' does
    #[arg(long, conflicts_with = "check")]
    pub tree: bool,
    /// With --check: say nothing of what is right
    #[arg(long, requires = "check")]
    pub quiet: bool,
    /// Read all content, also where digests are kept
    #[arg(long)]
    pub read: bool,
    /// Digests as of this moment, as of 'weft mount'; with VOLUME:PATH or a path in a mounted
    /// volume, there now or not
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true, conflicts_with_all = ["tree", "check"])]
    pub at: Option<Moment>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Diff {
    /// A directory, or VOLUME:PATH for one in a volume that is not mounted. With --at: a file or
    /// directory in a mounted volume, there now or not, or VOLUME:PATH
    #[arg(value_name = "FIRST|PATH")]
    pub first: OsString,
    /// Another: a directory, or VOLUME:PATH
    pub second: Option<OsString>,
    /// Compare PATH as it was at this moment, as of 'weft mount', with what it was at a second one,
    /// or is now; also while the volume is mounted
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    pub at: Vec<Moment>,
    #[command(flatten)]
    pub shown: Shown,
}

/// The way in which differences are found and printed.
#[derive(Args)]
pub struct Shown {
    /// Print also where the contents of files differ, as 'diff -u' does. Of binary files, and of
    /// those above 8 MiB, it is told that they do
    #[arg(long)]
    pub content: bool,
    /// Read all content, also where digests are kept
    #[arg(long)]
    pub read: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Scrub {
    /// The volume, or the directory where it is mounted
    pub volume: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
