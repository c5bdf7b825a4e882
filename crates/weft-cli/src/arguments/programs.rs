//! What the programs take that do what those of the same names do on any machine.

use clap::Args;
use std::ffi::OsString;
use weft_store::Moment;

#[derive(Args)]
pub struct Cat {
    /// Files; '-', or none, stands for the standard input. VOLUME:PATH is one in a volume, mounted
    /// or not. With --at: paths in a mounted volume, there now or not, or VOLUME:PATH
    pub files: Vec<OsString>,
    /// The files as they were at this moment, as of 'weft mount'; also while the volume is mounted
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    pub at: Option<Moment>,
}

#[derive(Args)]
pub struct Ls {
    /// Directories and files: a volume, and after a colon a path in it
    #[arg(required = true, value_name = "VOLUME[:PATH]")]
    pub paths: Vec<OsString>,
    /// Tell kind, permissions, links, owner, group, bytes and time of change, too
    #[arg(short, long)]
    pub long: bool,
    /// With -l: sizes with units
    #[arg(short = 'H', long = "human-readable", requires = "long")]
    pub human: bool,
    /// List directories themselves, and not what is in them
    #[arg(short, long)]
    pub directory: bool,
    /// As it was at this moment, as of 'weft mount'
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    pub at: Option<Moment>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Grep {
    /// Print how many lines there are instead
    #[arg(short, long)]
    pub count: bool,
    /// Letters are the same in upper and lower case
    #[arg(short, long)]
    pub ignore_case: bool,
    /// Print the numbers of lines
    #[arg(short = 'n', long)]
    pub line_number: bool,
    /// Print the lines in which nothing is found
    #[arg(short = 'v', long)]
    pub invert_match: bool,
    /// Print no more than what is found, each on a line
    #[arg(short, long)]
    pub only_matching: bool,
    /// Print names of files, also of one
    #[arg(short = 'H', long)]
    pub with_filename: bool,
    /// Print no names of files
    #[arg(short = 'h', long, conflicts_with = "with_filename")]
    pub no_filename: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    pub help: Option<bool>,
    /// A regular expression
    pub pattern: String,
    /// Files; '-', or none, stands for the standard input
    pub files: Vec<OsString>,
}

#[derive(Args)]
pub struct Wc {
    /// Print lines
    #[arg(short, long)]
    pub lines: bool,
    /// Print words
    #[arg(short, long)]
    pub words: bool,
    /// Print bytes
    #[arg(short = 'c', long)]
    pub bytes: bool,
    /// Read files of volumes, too, which otherwise tell what they hold: it is counted once, as long
    /// as the volume is mounted
    #[arg(long)]
    pub recount: bool,
    /// Files; '-', or none, stands for the standard input
    pub files: Vec<OsString>,
}

#[derive(Args)]
pub struct Sum {
    /// BSD's algorithm and blocks of 1024 bytes, as without it
    #[arg(short)]
    pub r: bool,
    /// System V's algorithm and blocks of 512 bytes
    #[arg(short, long, overrides_with = "r")]
    pub sysv: bool,
    /// Files; '-', or none, stands for the standard input
    pub files: Vec<OsString>,
}

#[derive(Args)]
pub struct Permute {
    /// Bytes of a word
    #[arg(short, long, value_name = "BYTES", default_value_t = 8)]
    pub width: usize,
    /// 1 to 16 words, each of as many bytes as --width says: "one     two     " by default
    pub text: OsString,
}
