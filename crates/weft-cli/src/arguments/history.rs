//! Arguments of what is kept of the past.

use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::str::FromStr;
use weft_store::{Rule, RuleError};

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct History {
    /// The volume, or the directory where it is mounted
    #[arg(required = true)]
    pub volume: Option<PathBuf>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
    #[command(subcommand)]
    pub command: Option<HistoryCommand>,
}

#[derive(Subcommand)]
pub enum HistoryCommand {
    /// Keep history from now on, by a rule; change the rule; or keep none any more
    ///
    /// Exit code 0: it is set. 1: it could not be. 2: wrong usage.
    Set(SetHistory),
}

#[derive(Args)]
pub struct SetHistory {
    /// The volume, not mounted
    pub volume: PathBuf,
    /// Commits to keep: words with the time that each reaches back, such as 'all 1d, hourly 7d,
    /// daily 30d'
    ///
    /// The words are all, minutely, hourly, daily, weekly, monthly and yearly. Times are numbers
    /// with s, m, h, d, w or y, or forever. 'off' keeps no history and removes what there is; it is
    /// refused while there are snapshots.
    pub rule: Keeping,
}

/// A rule of history, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// No history is kept.
    Off,
    /// History is kept by this rule.
    By(Rule),
}

impl FromStr for Keeping {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Keeping, RuleError> {
        match text {
            "off" => Ok(Keeping::Off),
            rule => Ok(Keeping::By(rule.parse()?)),
        }
    }
}
