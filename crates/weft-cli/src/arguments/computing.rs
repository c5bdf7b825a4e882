//! Arguments of commands about links and networks of stages.

use clap::{Args, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Args)]
pub struct Link {
    /// Targets to read, one or several, and last the link to be made; with --show a link: paths in
    /// a mounted volume, or VOLUME:PATH
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<OsString>,
    /// The network, as of 'weft run'; it reads its targets one after the other, or as $1, $2, ...
    #[arg(short, long, visible_alias = "read", required_unless_present_any = ["show", "members", "trust"])]
    pub network: Option<String>,
    /// Network for bytes that are written through it, instead of what undoes each stage
    #[arg(long, value_name = "NETWORK", conflicts_with_all = ["show", "members"])]
    pub write: Option<String>,
    /// Make a view of a directory instead: whatever is in it is seen transformed, at any depth, as
    /// it is at the time
    #[arg(long, conflicts_with = "show")]
    pub dir: bool,
    /// Make a view of an archive instead: its members are seen as files, read where they lie,
    /// transformed if there is a network. tar, and zip by its usual methods; of what is compressed
    /// as a whole, make a link that decompresses it, and a view of that
    #[arg(long, conflicts_with_all = ["show", "dir"])]
    pub members: bool,
    /// With --dir: how files are called, as a rule of sed, such as 's/\.gz$//'
    #[arg(long, requires = "dir", conflicts_with = "members", value_name = "RULE")]
    pub rename: Option<String>,
    /// With --dir: transform only files in whose names this regular expression finds something;
    /// others are as they are
    #[arg(long, requires = "dir", conflicts_with = "members", value_name = "REGEX")]
    pub only: Option<String>,
    /// Keep what it gives, so that it is computed once
    #[arg(long, value_name = "WHETHER", default_value = "on")]
    pub memo: OnOff,
    /// Leave its length open, 0 for whoever asks, until somebody has read it to its end, if nothing
    /// tells it before: listing it then computes nothing. Programs read it as they read files of
    /// /proc
    #[arg(long, conflicts_with_all = ["show", "members"])]
    pub lazy: bool,
    /// Have programs read it past what the kernel keeps of files: faster for those that read much
    /// at once, slower for those that read little at a time, or the same again
    #[arg(long, conflicts_with_all = ["show", "members"])]
    pub direct: bool,
    /// Run each stage by itself, also neighbours that change bytes one by one, which otherwise are
    /// one
    #[arg(long, conflicts_with = "show")]
    pub no_fuse: bool,
    /// Tell what a link is made of, and of each of its stages what it keeps and what undoes it
    #[arg(long, conflicts_with_all = ["network", "memo"])]
    pub show: bool,
    /// Confirm links of yours that run code ('exec', 'wasm', 'library') and were made by a Weft
    /// that let programs make such links which restored attributes: until then they run nothing.
    /// Look at them with --show before
    #[arg(long, conflicts_with_all = ["network", "memo", "show", "write", "dir", "members", "lazy", "direct", "no_fuse"])]
    pub trust: bool,
    /// With --show: as JSON
    #[arg(long, requires = "show")]
    pub json: bool,
    /// With --show: as a picture in the language of Graphviz
    #[arg(long, requires = "show", conflicts_with = "json")]
    pub dot: bool,
    /// With --show: as a picture in SVG
    #[arg(long, requires = "show", conflicts_with_all = ["json", "dot"])]
    pub svg: bool,
}

/// A switch.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnOff {
    /// It is
    On,
    /// It is not
    Off,
}

#[derive(Args)]
pub struct Run {
    /// The network
    #[arg(short, long)]
    pub network: String,
    /// The volume whose named networks it may use, as '@name', or a path in one that is mounted
    #[arg(long, value_name = "VOLUME")]
    pub of: Option<OsString>,
    /// The inverse of the network instead, if all of its stages can be undone
    #[arg(long)]
    pub inverse: bool,
    /// Run each stage by itself, also neighbours that change bytes one by one, which otherwise are
    /// one
    #[arg(long)]
    pub no_fuse: bool,
    /// Tell what the network is instead of running it: each stage, whether it keeps length and
    /// places, what undoes it
    #[arg(long)]
    pub show: bool,
    /// The directory of the keys that stages name (encrypt and decrypt), as files of age-keygen
    /// that nobody else may read
    #[arg(long, value_name = "DIR")]
    pub keys: Option<PathBuf>,
    /// Files to read one after the other instead of the standard input; '-' stands for that
    pub files: Vec<PathBuf>,
}

#[derive(Args)]
pub struct Pipe {
    /// Say on the standard error how many bytes were copied from memory to memory
    #[arg(long)]
    pub copies: bool,
    /// Stages and commands, joined by '|'
    #[arg(value_name = "PIPELINE")]
    pub text: String,
}

#[derive(Subcommand)]
pub enum Net {
    /// Name a network, or give a name another one
    Define {
        /// Its name: letters, digits, '-' and '_'
        name: String,
        /// The network, which may name others
        network: String,
        /// The volume, or a path in one that is mounted
        volume: OsString,
    },
    /// List the networks that a volume knows by name
    List {
        /// The volume, or a path in one that is mounted
        volume: OsString,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Put a network between a file of a mounted volume and those who use it
    ///
    /// By its path: for everybody who uses it by this mount, also those who have it open; as its
    /// owner, or root. With --fd: for those alone who share that open file, from then on past the
    /// page cache; the volume must be mounted with --opens, or have links that want that, and the
    /// network must leave the length as it is. What is written goes back through what undoes the
    /// network, if that can be.
    Push {
        #[command(flatten)]
        file: OpenFile,
        /// The network; it reads the file
        #[arg(short, long)]
        network: String,
        /// A file of the volume with code that the network runs: $2 for the first, and so on
        #[arg(long, value_name = "FILE")]
        code: Vec<OsString>,
    },
    /// Take away the network that was pushed last
    Pop {
        #[command(flatten)]
        file: OpenFile,
    },
    /// Tell which networks are pushed, the last first
    Show {
        #[command(flatten)]
        file: OpenFile,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Forget a network
    Remove {
        /// Its name
        name: String,
        /// The volume, or a path in one that is mounted
        volume: OsString,
    },
}

/// A file that is in use.
#[derive(Args)]
pub struct OpenFile {
    /// The file, for everybody
    #[arg(required_unless_present = "fd")]
    pub path: Option<PathBuf>,
    /// The file that is open as this number, alone: as of a shell that has run 'exec 3<file'
    #[arg(long, value_name = "NUMBER", conflicts_with = "path")]
    pub fd: Option<i32>,
    /// With --fd: in this process
    #[arg(long, requires = "fd")]
    pub pid: Option<i32>,
}

#[derive(Args)]
pub struct Stages {
    /// Tell all about this one
    pub name: Option<String>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}
