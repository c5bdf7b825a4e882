//! Command line of the benchmark.

use std::path::PathBuf;

/// Runs the same work in several directories, in turn, and prints rates and their ratios to the
/// first
#[derive(clap::Parser, Clone, Debug)]
#[command(name = "weft-bench", version)]
pub(crate) struct Arguments {
    /// Directories to compare; the first is what the others are compared to
    #[arg(value_name = "NAME=DIRECTORY")]
    pub(crate) directories: Vec<String>,
    /// Experiments by name, separated by commas; `all` (but `bonnie`, which runs bonnie++,
    /// `networks`, which reads links in a volume and pipelines elsewhere, `zerocopy`, which has
    /// programs read in place in a volume, and by copies elsewhere, `channels`, by which processes
    /// pass on bytes in a volume, and by pipes elsewhere, those that hash everything at each close
    /// or ask for kept digests, and those that count what small writes cost the disk), or `list` to
    /// see them
    #[arg(long, value_delimiter = ',', default_value = "all")]
    pub(crate) work: Vec<String>,
    /// Files in experiments that count files, and calls in those that count what small writes cost;
    /// several numbers, separated by commas, to see whether rates stay flat
    #[arg(long, value_delimiter = ',', default_value = "20000")]
    pub(crate) count: Vec<usize>,
    /// MiB in experiments on one large file
    #[arg(long, default_value_t = 1024, value_name = "MIB")]
    pub(crate) size: usize,
    /// Measured runs of each experiment, after one to warm up
    #[arg(long, default_value_t = 3)]
    pub(crate) runs: usize,
    /// A tar archive with a source tree, for the experiments on trees (default: packed from --tree)
    #[arg(long)]
    pub(crate) tar: Option<PathBuf>,
    /// A directory with a source tree to pack where no archive is given
    #[arg(long, value_name = "DIR")]
    pub(crate) tree: Option<PathBuf>,
    /// A shell command that makes a directory cold, such as unmounting and mounting it again,
    /// beside dropping the kernel's caches
    #[arg(long, value_name = "NAME=COMMAND")]
    pub(crate) cold: Vec<String>,
    /// Runs this program on this processor
    #[arg(long, value_name = "NUMBER")]
    pub(crate) client_cpu: Option<usize>,
    /// The daemon behind a directory, to tell where it ran and how much memory it took; Weft's own
    /// is found
    #[arg(long, value_name = "NAME=PID")]
    pub(crate) daemon_pid: Vec<String>,
    /// Writes all samples and the machine's facts to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Mounts a file system that stores nothing at this directory, and serves it until it is
    /// unmounted or this program is ended: what FUSE itself costs, to be compared with others.
    /// Files on it read as zeros
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) serve_nothing: Option<PathBuf>,
    /// With --serve-nothing: takes requests over /dev/fuse, and not over io_uring
    #[arg(long, requires = "serve_nothing")]
    pub(crate) device: bool,
    /// With --serve-nothing: is the process that serves, until its standard input ends
    #[arg(long, requires = "serve_nothing", hide = true)]
    pub(crate) until_input_ends: bool,
    /// Has this file in memory until the standard input ends: for `zerocopy`, which looks at the
    /// memory of those who do
    #[arg(long, value_name = "FILE", hide = true)]
    pub(crate) hold: Option<PathBuf>,
    /// Fills what the standard input is an end of: for `channels`
    #[arg(long, value_name = "WAY=BYTES", hide = true)]
    pub(crate) fill: Option<String>,
    /// Adds whether each ratio meets the project's own bar
    #[arg(long)]
    pub(crate) bars: bool,
}

/// The value that `list` has for `name`.
pub(crate) fn of_name(list: &[String], name: &str) -> Option<String> {
    list.iter().find_map(|entry| entry.split_once('=').filter(|(own, _)| *own == name)).map(|(_, value)| value.into())
}
