//! Arguments of commands that ask running daemons.

use super::seconds;
use clap::Args;
use std::path::PathBuf;

#[derive(Args)]
pub struct Stats {
    /// The directory where it is mounted; or the volume, or the address where it is served, if this
    /// user's daemon does that
    #[arg(value_name = "DIRECTORY|VOLUME|ADDRESS")]
    pub named: PathBuf,
    /// As JSON
    #[arg(long)]
    pub json: bool,
    /// Rates every second, until interrupted: a line each, or with --json all counters each time
    #[arg(long)]
    pub watch: bool,
    /// Tell who does what instead: operations with the time that they take, and processes and
    /// clients with their requests; with --watch those of each second. For the daemon's user alone
    #[arg(long)]
    pub operations: bool,
}

#[derive(Args)]
pub struct Config {
    /// Print it
    #[arg(long, required = true)]
    pub show: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Stop {
    /// The address where the volume is served, or the volume
    #[arg(value_name = "ADDRESS|VOLUME")]
    pub named: PathBuf,
    /// Seconds after which this gives up, while the server still ends; 0: never
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value_t = 300)]
    pub timeout: u64,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Status {
    /// The volume, or the directory where it is mounted; without it all are listed
    pub volume: Option<PathBuf>,
    /// As JSON, with the path of each control socket
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Sync {
    /// A directory of the mounted volume; or the volume, or the address where it is served, if this
    /// user's daemon does that
    #[arg(value_name = "DIRECTORY|VOLUME|ADDRESS")]
    pub named: PathBuf,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}
