//! `weft log`.

mod changes;
mod names;

pub(super) use names::{Names, Place};

use super::subject::Subject;
use crate::arguments::Log;
use crate::mounted::volume_named;
use crate::shown;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::process::ExitCode;
use weft_digest::hex;
use weft_store::{CommitNo, CommitRow, Location, Moment, OpenOptions, Timestamp};
use weft_vfs::{Clock, SystemClock};

/// Lists commits, the last first. Exit code 1 if one does not follow from the one before.
pub fn run(arguments: &Log) -> Result<ExitCode> {
    if let Some(subject) = Subject::find(&arguments.volume)? {
        let since = arguments.since.as_ref().map(|moment| Since::find(&subject.location, moment)).transpose()?;
        changes::print(&subject, since.as_ref(), arguments.limit, arguments.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let location = volume_named(&arguments.volume)?;
    let engine = location.engine();
    crate::notes::tell(engine.note(false));
    let commits = engine.commits().with_context(|| format!("cannot read volume {location}"))?;
    crate::notes::tell_of_waiting(&location);
    let since = arguments.since.as_ref().map(|moment| Since::find(&location, moment)).transpose()?;
    let is_since = |commit: &&CommitRow| since.as_ref().is_none_or(|since| since.has(commit));
    let mut shown = commits.iter().rev().filter(is_since).take(arguments.limit.unwrap_or(usize::MAX));
    if arguments.json {
        outln!("{:#}", Value::from(shown.by_ref().map(as_json).collect::<Vec<_>>()));
    } else {
        shown.by_ref().for_each(print);
    }
    let broken = commits.windows(2).filter(|pair| !follows(&pair[0], &pair[1])).map(|pair| pair[1].number.0);
    let broken = broken.collect::<Vec<_>>();
    for number in &broken {
        errln!("weft: commit {number} does not follow from the one before it");
    }
    Ok(if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The first of the commits to list.
enum Since {
    Time(Timestamp),
    Commit(CommitNo),
}

impl Since {
    /// Returns the beginning that `moment` names. Times need no history: each commit has one.
    fn find(location: &Location, moment: &Moment) -> Result<Since> {
        let now = SystemClock.now();
        let context = || format!("cannot list what volume {location} has since then");
        let opened = || location.engine().open_beside(OpenOptions::default()).with_context(context);
        match moment {
            Moment::Ago(span) => Ok(Since::Time(Timestamp(now.0.saturating_sub(*span)))),
            Moment::Time(time) if *time <= now => Ok(Since::Time(*time)),
            Moment::Time(time) => {
                moment.refuse_future(&*opened()?.store, now).with_context(context)?;
                Ok(Since::Time(*time))
            }
            Moment::Commit(commit) => {
                moment.refuse_future(&*opened()?.store, now).with_context(context)?;
                Ok(Since::Commit(*commit))
            }
            Moment::Now | Moment::Snapshot(_) => {
                Ok(Since::Commit(moment.commit(&*opened()?.store, now).with_context(context)?))
            }
        }
    }

    fn has(&self, commit: &CommitRow) -> bool {
        match self {
            Since::Time(time) => commit.time >= *time,
            Since::Commit(first) => commit.number >= *first,
        }
    }
}

fn follows(before: &CommitRow, after: &CommitRow) -> bool {
    after.number == before.number.next() && after.previous == before.digest()
}

fn print(commit: &CommitRow) {
    let CommitRow { number, time, root, .. } = commit;
    let root = root.map_or_else(|| "no digest is kept".into(), |root| hex(&root));
    outln!("commit {:<8} {}  {root}", number.0, shown::exact_time(*time));
}

fn as_json(commit: &CommitRow) -> Value {
    json!({
        "number": commit.number.0,
        "time": shown::exact_time(commit.time),
        "time_nanoseconds": commit.time.0,
        "operation": commit.op.0,
        "root": commit.root.as_ref().map(hex),
        "previous": commit.previous.as_ref().map(hex),
        "digest": commit.digest().as_ref().map(hex),
    })
}
