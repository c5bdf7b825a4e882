//! Arguments of the commands that copy volumes as a whole, or bring them to another form.

use super::{Blocks, Keeping, Layout, layout};
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use weft_store::Moment;
use weft_vfs::Exclusion;

#[derive(Args)]
pub struct Import {
    /// The directory to copy
    pub directory: PathBuf,
    /// The volume, and after a colon the directory in it
    #[arg(value_name = "VOLUME[:PATH]")]
    pub target: OsString,
    /// Replace files that are there and are something else
    #[arg(long)]
    pub overwrite: bool,
    /// Leave out what has such a name anywhere (target, *.o), or such a path from the directory
    /// (/build, src/gen), with all that is in it; '*' and '?' are wildcards within a name. Can be
    /// given several times
    #[arg(long, value_name = "PATTERN", value_parser = exclusion)]
    pub exclude: Vec<Exclusion>,
    /// Only tell what would be copied, kept, and could not be copied, by names, lengths and times
    #[arg(long)]
    pub dry_run: bool,
    /// A summary as JSON
    #[arg(long)]
    pub json: bool,
}

fn exclusion(pattern: &str) -> Result<Exclusion, String> {
    Exclusion::parse(pattern.as_bytes()).map_err(str::to_owned)
}

#[derive(Args)]
pub struct Export {
    /// The volume, and after a colon the directory in it
    #[arg(value_name = "VOLUME[:PATH]")]
    pub source: OsString,
    /// The directory to copy to: nothing, or an empty directory, may be there
    pub directory: PathBuf,
    /// Go on with an export to this directory that did not finish: files that are there with the
    /// same size, time of change and bytes stay; whatever else is in the way is named, and stays,
    /// too
    #[arg(long = "continue")]
    pub go_on: bool,
    /// The volume as it was at this moment, as of 'weft mount', also while it is mounted
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    pub at: Option<Moment>,
    /// A summary as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Put {
    /// Files and directories, symbolic links as links; '-' stands for the standard input
    #[arg(required = true, value_name = "FILE|DIRECTORY")]
    pub sources: Vec<PathBuf>,
    /// The volume, and after a colon the directory in it that they come into, made if it is
    /// missing; with '-' the file
    #[arg(value_name = "VOLUME[:PATH]")]
    pub target: OsString,
    /// Replace files that are there and are something else
    #[arg(long)]
    pub overwrite: bool,
    /// Leave out what has such a name anywhere, or such a path from the directory that holds what
    /// is copied; as of 'weft import'
    #[arg(long, value_name = "PATTERN", value_parser = exclusion)]
    pub exclude: Vec<Exclusion>,
    /// A summary as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Get {
    /// The volume, and after the colon the file or directory in it
    #[arg(required = true, value_name = "VOLUME:PATH")]
    pub sources: Vec<OsString>,
    /// The directory to copy into
    pub directory: PathBuf,
    /// The volume as it was at this moment, as of 'weft mount'
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    pub at: Option<Moment>,
    /// A summary as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Upgrade {
    /// The volume, not mounted, and unmounted cleanly
    pub volume: PathBuf,
    /// Only tell what it would take
    #[arg(long)]
    pub dry_run: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Convert {
    /// The volume, not mounted. One in files stays as it is; one in PostgreSQL is converted in
    /// place
    pub volume: PathBuf,
    /// The volume to make of one in files
    pub new: Option<PathBuf>,
    /// Home of the new one's blocks
    #[arg(long, value_enum, requires = "new")]
    pub blocks: Option<Blocks>,
    /// Tables that the blocks of a volume in PostgreSQL are to lie in: single, per-file, or
    /// hybrid[=SIZE]
    #[arg(long, value_parser = layout, value_name = "LAYOUT", conflicts_with_all = ["new", "blocks"])]
    pub layout: Option<Layout>,
    /// A summary as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Compact {
    /// The volume, in files and not mounted
    pub volume: PathBuf,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Send {
    /// The volume, mounted or not, or the directory where it is mounted; and after an @ the moment
    /// to send, as of 'weft mount --at' (default: its last commit)
    #[arg(value_name = "VOLUME[@MOMENT]")]
    pub volume: OsString,
    /// Only send what changed since this moment
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    pub from: Option<Moment>,
    /// Also send the snapshots up to that moment, and since --from if that is given
    #[arg(long)]
    pub snapshots: bool,
    /// Encrypt the stream for this public key of age(1), age:age1…; may be given several times:
    /// each of the secret keys opens it
    // Parsed by the command: clap shows what it refuses, and that may be a secret key.
    #[arg(long, value_name = "age:RECIPIENT")]
    pub encrypt: Vec<String>,
    /// A summary as JSON, on the standard error
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Receive {
    /// The volume: nothing may be there if the stream brings a whole volume; if it brings changes,
    /// the volume that they are for, not mounted
    pub volume: PathBuf,
    /// Home of a new volume's blocks [default: as where they come from; segments, if that is in
    /// PostgreSQL]
    #[arg(long, value_enum)]
    pub blocks: Option<Blocks>,
    /// Tables that the blocks of a new volume in PostgreSQL lie in: single, per-file, or
    /// hybrid[=SIZE]
    #[arg(long, value_parser = layout, value_name = "LAYOUT")]
    pub layout: Option<Layout>,
    /// Have a new volume keep earlier commits by this rule from now on, or none with 'off'
    /// [default: the rule of the volume that was sent]
    #[arg(long, value_name = "RULE")]
    pub history: Option<Keeping>,
    /// The file of a secret key that opens an encrypted stream, as age-keygen(1) makes it; may be
    /// given several times
    #[arg(long, value_name = "FILE")]
    pub identity: Vec<PathBuf>,
    /// A summary as JSON
    #[arg(long)]
    pub json: bool,
}
