//! Arguments of what is kept of the past.

use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use weft_store::{HistoryFor, Moment, Name, Rule, RuleError};
use weft_vfs::{Clock, SystemClock};

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
    /// A rule that drops commits that are kept now needs --drop, and so does 'off'. Exit code 0: it
    /// is set, or would be. 1: it could not be, or commits would be dropped and --drop is not
    /// given. 2: wrong usage.
    Set(SetHistory),
    /// Take the content of a file out of all history, and give back its space
    ///
    /// As of earlier commits the file is there, and empty: its earlier content, and that of all
    /// files that had this name. What it holds now stays. Refused while a snapshot that is held has
    /// it. 'weft history' lists a record of it. Exit code 0: it is gone. 1: it could not be. 2:
    /// wrong usage.
    Forget(ForgetHistory),
    /// Have the earlier content of build trees and the like go some minutes after it was replaced,
    /// whatever the rule says
    ///
    /// As of earlier commits such files are there, and empty, as after 'weft history forget':
    /// names, attributes and digests stay. A daemon that has the volume mounted or serves it does
    /// that. What snapshots have stays, and so does all of a file that had another path, not
    /// excluded, in a commit that is kept. Exit code 0: it is set, or listed. 1: it could not be.
    /// 2: wrong usage.
    Exclude(ExcludeHistory),
}

#[derive(Args)]
pub struct ExcludeHistory {
    /// The volume, or the directory where it is mounted
    pub volume: PathBuf,
    /// A name, anywhere in the volume, or a path from its root: of files, or of directories with
    /// all in them, such as 'target' or 'src/*/build'; '*' and '?' are wildcards within a name
    #[arg(required_unless_present = "list")]
    pub pattern: Option<OsString>,
    /// Exclude it no more
    #[arg(long, requires = "pattern")]
    pub remove: bool,
    /// List the patterns
    #[arg(long, conflicts_with_all = ["pattern", "remove"])]
    pub list: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct ForgetHistory {
    /// A path in a mounted volume, there now or not; or VOLUME:PATH
    pub path: OsString,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct SetHistory {
    /// The volume, or the directory where it is mounted
    pub volume: PathBuf,
    /// Commits to keep: words with the time that each reaches back, such as 'all 1d, hourly 7d,
    /// daily 30d'
    ///
    /// The words are all, minutely, hourly, daily, weekly, monthly and yearly. Times are numbers
    /// with s, m, h, d, w or y, or forever. 'off' keeps no history and removes what there is; it is
    /// refused while there are snapshots.
    pub rule: Keeping,
    /// Those who may read the past where its rights let them: all, the owner of each file, or root;
    /// if not given, those who may already
    #[arg(long = "for", value_name = "WHOM", value_parser = readers)]
    pub readers: Option<HistoryFor>,
    /// Do it also if commits that are kept now will be dropped; they cannot be had back
    #[arg(long)]
    pub drop: bool,
    /// Tell how many commits would be dropped, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Those who may read the past.
pub fn readers(name: &str) -> Result<HistoryFor, String> {
    HistoryFor::named(name).ok_or_else(|| format!("'{name}' is not all, owner or root"))
}

#[derive(Args)]
pub struct Snapshot {
    #[command(subcommand)]
    pub command: SnapshotCommand,
}

#[derive(Subcommand)]
pub enum SnapshotCommand {
    /// Keep the volume as it is now, under a name, however old it gets
    ///
    /// Exit code 0: it is kept. 1: it could not be, or the database went away meanwhile: then it is
    /// tried again, and 'weft snapshot list' shows whether it was made. 2: wrong usage.
    Create(CreateSnapshot),
    /// List the snapshots of a volume
    ///
    /// Exit code 0: they are listed. 1: they could not be. 2: wrong usage.
    List(ListSnapshots),
    /// Tell what has changed since a snapshot, or from one to another, as 'weft diff --at' does
    ///
    /// Exit code 0: nothing. 1: something. 2: it could not be read.
    Diff(DiffSnapshots),
    /// Make all of a volume what it was at a snapshot, at once; history keeps what is there now
    ///
    /// Exit code 0: it is restored, or told. 1: it could not be. 2: wrong usage.
    Restore(super::RestoreSnapshot),
    /// Delete a snapshot; refused while it is held
    ///
    /// Exit code 0: it is deleted. 1: it could not be. 2: wrong usage.
    Delete(DeleteSnapshot),
    /// Give a snapshot another name; a hold goes along
    ///
    /// Exit code 0: it has the name. 1: it could not be. 2: wrong usage.
    Rename(RenameSnapshot),
    /// Hold a snapshot: nobody can delete it before a time, nor end the history
    ///
    /// Exit code 0: it is held. 1: it could not be, or is held for longer. 2: wrong usage.
    Hold(HoldSnapshot),
}

#[derive(Args)]
pub struct NamedSnapshot {
    /// The volume, or the directory where it is mounted
    pub volume: PathBuf,
    /// Name of the snapshot
    pub name: String,
}

#[derive(Args)]
pub struct DeleteSnapshot {
    #[command(flatten)]
    pub snapshot: NamedSnapshot,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct DiffSnapshots {
    /// The volume, or the directory where it is mounted
    pub volume: PathBuf,
    /// Name of the snapshot, or another moment, as of 'weft mount'
    #[arg(allow_hyphen_values = true)]
    pub name: Moment,
    /// A later snapshot or moment; without it, what is there now
    #[arg(allow_hyphen_values = true)]
    pub later: Option<Moment>,
    #[command(flatten)]
    pub shown: super::Shown,
}

#[derive(Args)]
pub struct RenameSnapshot {
    #[command(flatten)]
    pub snapshot: NamedSnapshot,
    /// Its new name
    pub new: String,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct CreateSnapshot {
    #[command(flatten)]
    pub snapshot: NamedSnapshot,
    /// Hold it: nobody can delete it for so long, such as 30d or 7y
    #[arg(long = "hold", value_name = "TIME")]
    pub hold: Option<Span>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct HoldSnapshot {
    #[command(flatten)]
    pub snapshot: NamedSnapshot,
    /// Time from now for which nobody can delete it, such as 30d or 7y
    pub time: Span,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct ListSnapshots {
    /// The volume, or the directory where it is mounted
    pub volume: PathBuf,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// A length of time, such as `30d` or `2h30m`, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub i64);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        let left = i64::MAX - SystemClock.now().0;
        // As it is written of a time ago.
        match format!("-{text}").parse() {
            Ok(Moment::Ago(span)) if span <= left => Ok(Span(span)),
            parsed if parsed.is_ok() || is_long(text) => {
                Err(format!("'{text}' is too long: times end in the year 2262; say {}y at most", left / YEAR))
            }
            _ => Err(format!("'{text}' is no length of time; say 90s, 5m, 12h, 30d, 4w or 7y")),
        }
    }
}

/// Nanoseconds of a year, as lengths of time have it.
const YEAR: i64 = 365 * 86_400 * 1_000_000_000;

/// True if `text` is numbers with units, which may be any.
fn is_long(text: &str) -> bool {
    let is_unit = |letter: char| "smhdwy".contains(letter);
    let is_part = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    text.strip_suffix(is_unit).is_some_and(|parts| parts.split(is_unit).all(is_part))
}

/// A rule of history, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// No history is kept.
    Off,
    /// History is kept by this rule.
    By(Rule),
}

impl Default for Keeping {
    /// The choice of a new volume that is told nothing else.
    fn default() -> Keeping {
        Keeping::By(Rule::default())
    }
}

impl fmt::Display for Keeping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Keeping::Off => f.write_str("off"),
            Keeping::By(rule) => rule.fmt(f),
        }
    }
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

/// Name of the directory that leads to the past, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryName(pub Option<Name>);

impl FromStr for HistoryName {
    type Err = String;

    fn from_str(text: &str) -> Result<HistoryName, String> {
        if text == "off" {
            return Ok(HistoryName(None));
        }
        Name::new(text.as_bytes())
            .map(|name| HistoryName(Some(name)))
            .map_err(|_| format!("'{text}' is no name of a file"))
    }
}
