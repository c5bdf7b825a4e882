//! Arguments of mounting a volume, and of what opens one to serve it.

use super::history::HistoryName;
use super::serving::{self, Served, told_at};
use super::{LinkOwners, Whose, seconds};
use crate::size;
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;
use weft_store::Moment;

/// Parses a number of seconds that may have a fraction.
fn interval(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| format!("'{text}' is not a number of seconds, such as 5 or 0.5"))
}

/// Parses the seconds of a lease.
fn lease(text: &str) -> Result<u64, String> {
    seconds(text)?.checked_sub(1).map(|before| before + 1).ok_or_else(|| "a lease lasts one second at least".into())
}

#[derive(Args)]
pub struct Mount {
    /// The volume: a path, or a postgres:// URL
    pub volume: PathBuf,
    /// The directory to mount it at
    pub directory: PathBuf,
    /// Options as mount(8) takes them, separated by commas, from left to right: ro, rw, noatime,
    /// relatime, strictatime, exec, noexec, suid, nosuid, dev, nodev (nosuid and nodev unless root
    /// asks), defaults (rw, suid, dev and exec), remount (with ro or rw, of the volume that is
    /// mounted at the directory), allow_other, and what is described below: writeback, keep-awake,
    /// no-idle-policy, opens, no-opens, no-confinement, no-merge, accept-loss, portmap,
    /// and with values (commit-interval=5) commit-interval, dirty-max, metadata-cache, block-cache,
    /// read-ahead, shared-memory, memo, temporary, keys, links, at, history-name, exported-stages,
    /// transport, placement, log, log-format, wait, lease, patience, disk-cache, disk-cache-size,
    /// metrics, nfs, exports, grace, tls-certificate, tls-key, tls-clients
    #[arg(short, long = "option", value_name = "OPTIONS", value_delimiter = ',')]
    pub options: Vec<String>,
    /// Stay in the foreground, messages on standard error
    #[arg(short, long)]
    pub foreground: bool,
    #[command(flatten)]
    pub open: Open,
    /// Transport of requests: auto (over io_uring where the kernel offers that) or device (over
    /// /dev/fuse)
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub transport: String,
    /// Processor of the thread that serves the device: follow (on the processor of the program it
    /// serves), free, or a processor's number
    #[arg(long, value_name = "WHERE", default_value = "follow")]
    pub placement: String,
    /// Let the kernel keep what programs write until the file is closed or synced: small writes get
    /// several times faster, a full disk may show only at close or fsync, and what a crash leaves
    /// of open files may be older than the rest of the tree. Not with --nfs
    #[arg(long)]
    pub writeback: bool,
    /// While requests come, keep idle processors from sleeping (Linux PM QoS; as root only): much
    /// faster on virtual machines, at the price of power
    #[arg(long)]
    pub keep_awake: bool,
    /// Serve with the ordinary scheduling policy. Otherwise, while requests come fast, the threads
    /// that serve take the idle policy (as root, or with CAP_SYS_NICE), so that the kernel leaves
    /// programs where they are served: much faster where processors are slow to wake
    #[arg(long)]
    pub no_idle_policy: bool,
    /// Have the kernel tell of each open and close, which costs requests, even if no link of the
    /// volume wants that (one with --lazy, one that is written as a whole, or one that not
    /// everybody may read): for 'weft net push --fd', and for such links to be made without
    /// mounting again
    #[arg(long)]
    pub opens: bool,
    /// Forget that links of the volume wanted the kernel to tell of opens: for one whose links no
    /// longer do
    #[arg(long, conflicts_with = "opens")]
    pub no_opens: bool,
    /// Most bytes of memory that programs map to read blocks in place (weft cat, grep, wc and pipe,
    /// and those that use libweft); 0: none (default: an eighth of the memory). It is taken when
    /// they ask
    #[arg(long, value_parser = size::parse, value_name = "SIZE")]
    pub shared_memory: Option<u64>,
    /// Serve the volume over NFS version 3, at this address; NFS and MOUNT share the port
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 0..=1, default_missing_value = "127.0.0.1:2049", value_parser = serving::served_at)]
    pub nfs: Option<SocketAddr>,
    #[command(flatten)]
    pub served: Served,
    /// Write messages to this file (default: weft.log in the volume, or VOLUME.log; for a volume in
    /// PostgreSQL a file in /var/log/weft, or of an ordinary user in ~/.local/state/weft)
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
}

/// Options by which a daemon opens a volume.
#[derive(Args)]
pub struct Open {
    /// Refuse every change
    #[arg(short, long)]
    pub read_only: bool,
    /// Show the volume as it was at this moment, read-only: a commit (@1234), a time in UTC
    /// (2026-11-28, 2026-11-28T12:30:00, with +01:00 of that offset), a time ago (-5m, -2h30m, -3d,
    /// -1w, yesterday), now, or the name of a snapshot. Of a time it is the last commit kept at or
    /// before it ('weft history'); changes that wait in the intent log are not shown. The volume
    /// may be mounted meanwhile
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    pub at: Option<Moment>,
    /// If a log of a volume that was not unmounted cleanly is missing, damaged, or of another
    /// moment, or a segment file is missing, or the volume cannot take an operation of its log any
    /// more: go on without what is lost with it. What is given up is named, and copies of the logs
    /// that are given up in part are kept beside them.
    /// Without this the volume is refused and nothing is changed
    #[arg(long)]
    pub accept_loss: bool,
    /// Longest time in seconds between a change and when it survives anything: by a commit, or,
    /// where programs call fsync, in the intent log, of which commits then follow within ten
    /// seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, allow_negative_numbers = true, value_parser = interval)]
    pub commit_interval: f64,
    /// Most bytes of changes kept in memory
    #[arg(long, value_parser = size::parse, value_name = "SIZE", default_value = "256M")]
    pub dirty_max: u64,
    /// Most bytes of cached inodes and names
    #[arg(long, value_parser = size::parse, value_name = "SIZE", default_value = "256M")]
    pub metadata_cache: u64,
    /// Most bytes of cached blocks; 0 switches the cache off (default: 64M below a mount, where the
    /// kernel keeps what is read and written; for 'weft serve' a quarter of the memory)
    #[arg(long, value_parser = size::parse, value_name = "SIZE")]
    pub block_cache: Option<u64>,
    /// Bytes read ahead of each program that reads a file from front to back, at most a quarter of
    /// the block cache; 0 switches it off (default: 8M, in PostgreSQL 16M)
    #[arg(long, value_parser = size::parse, value_name = "SIZE")]
    pub read_ahead: Option<u64>,
    /// Do not store files in one piece again, in the background, that small writes have fragmented:
    /// 'weft defragment' does it when asked to
    #[arg(long)]
    pub no_merge: bool,
    /// Most bytes kept, in the volume, of what transformation links gave, also while it is not
    /// mounted; 0 keeps nothing
    #[arg(long, value_parser = size::parse, value_name = "SIZE", default_value = "4G")]
    pub memo: u64,
    /// Most bytes in temporary files of the networks of one user's links (sort, tac, tail, zip,
    /// encrypt and joins keep there what does not fit in memory), half of them of one network.
    /// Those of all users take a quarter of what is free where they are (TMPDIR, else /tmp), which
    /// is the only bound for the user who mounts the volume
    #[arg(long, value_parser = size::parse, value_name = "SIZE", default_value = "2G")]
    pub temporary: u64,
    /// The directory of the keys that links may name (the stages encrypt and decrypt), as files of
    /// age-keygen that nobody else may read. Links that use them are for the user who mounts the
    /// volume, and for the super-user
    #[arg(long, value_name = "DIR")]
    pub keys: Option<PathBuf>,
    /// Whose transformation links show anything, and who may push networks onto files: a link that
    /// takes long can keep others waiting who use its directory. Where others than the user who
    /// mounts can use the volume (root's mounts, allow_other, 'weft serve', --nfs): own, if not
    /// given; else everybody
    #[arg(long, value_name = "WHOSE")]
    pub links: Option<LinkOwners>,
    /// Whose transformation links may run code that their maker brings (the stages exec, wasm and
    /// library)
    #[arg(long, value_name = "WHOSE", default_value = "root")]
    pub exported_stages: Whose,
    /// Keep all privileges and system calls that the daemon is started with, and let debuggers in.
    /// Otherwise root's daemon gives up the privileges that serving does not take, and root's
    /// daemon and 'weft serve' the system calls
    #[arg(long)]
    pub no_confinement: bool,
    /// Name of the directory in each directory by which the past of a volume that keeps history can
    /// be read, as .weft/at/yesterday; off: there is none
    #[arg(long, value_name = "NAME", default_value = ".weft")]
    pub history_name: HistoryName,
    /// Never move access times
    #[arg(long, conflicts_with = "strictatime")]
    pub noatime: bool,
    /// Move access times at each read that reaches the daemon
    #[arg(long)]
    pub strictatime: bool,
    /// In PostgreSQL: how long to wait for another daemon that holds the volume to let go of it; 0
    /// if not given
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub wait: Option<u64>,
    /// In PostgreSQL: how long after the daemon's last sign of life another may take the volume; 15
    /// if not given
    #[arg(long, value_name = "SECONDS", value_parser = lease)]
    pub lease: Option<u64>,
    /// In PostgreSQL: how long operations wait for a server that has gone before they fail; 60 if
    /// not given
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub patience: Option<u64>,
    /// In PostgreSQL: keep blocks that are read and written in a file of this directory, too, on a
    /// disk of this machine, from one mount to the next. What is in it is not encrypted, and none
    /// of it is needed
    #[arg(long, value_name = "DIR")]
    pub disk_cache: Option<PathBuf>,
    /// Most bytes that the disk cache takes; 10G if not given
    #[arg(long, value_parser = size::parse, value_name = "SIZE")]
    pub disk_cache_size: Option<u64>,
    /// Format of the log: text, or json, a line each with all fields
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub log_format: LogLines,
    /// Tell metrics in the format of Prometheus, and health, to whoever connects to this address by
    /// HTTP: /metrics, /healthz, /readyz. A port alone is one of this machine's own (127.0.0.1). No
    /// metric names a file, a user or a client
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = told_at)]
    pub metrics: Option<SocketAddr>,
}

/// Format of a log's lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogLines {
    #[default]
    Text,
    Json,
}

impl From<LogLines> for weft_vfs::LogFormat {
    fn from(lines: LogLines) -> weft_vfs::LogFormat {
        match lines {
            LogLines::Text => weft_vfs::LogFormat::Text,
            LogLines::Json => weft_vfs::LogFormat::Json,
        }
    }
}

#[derive(Args)]
pub struct Umount {
    /// The directory where it is mounted
    pub directory: PathBuf,
    /// Unmount even if it is in use, or if not all changes can be committed: it goes when the last
    /// user does, and what cannot be committed then is given up
    #[arg(short, long)]
    pub lazy: bool,
    /// Seconds after which this gives up, whatever it waits for; 0: never
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value_t = 300)]
    pub timeout: u64,
}
