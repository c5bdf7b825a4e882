//! `weft restore`, `weft undelete`, `weft snapshot restore`, and `weft cp`.

mod deleted;
pub mod place;

use super::transfer::{find, names, path_as_json};
use crate::arguments::{Cp, Restore, RestoreSnapshot, Told, Undelete};
use crate::failure::usage;
use crate::opened::{Opened, Settings};
use crate::shown;
use anyhow::{Context, Result};
use place::{Place, Way};
use serde_json::Value;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;
use weft_control::{forget_target, report_value, restore_target};
use weft_store::{Moment, OpenOptions};
use weft_vfs::{RestoreRequest, Target};

/// Commands that take content out of history.
const TAKEN_OUT: &str = "'weft history forget' or 'exclude'";

/// Makes a path what it was.
pub fn run(arguments: &Restore) -> Result<ExitCode> {
    let place = Place::find(&arguments.path)?;
    let target = match &arguments.to {
        Some(to) => Target::Elsewhere(place.other(to)?),
        None => Target::Place,
    };
    let what = || format!("cannot restore {}", named(&arguments.path));
    let report = restored(place, Some(arguments.at.clone()), target, &arguments.told).with_context(what)?;
    let shown = arguments.to.as_ref().unwrap_or(&arguments.path);
    tell("restored", shown, &report, &arguments.told);
    Ok(ExitCode::SUCCESS)
}

/// Brings back what was deleted, or lists it.
pub fn undelete(arguments: &Undelete) -> Result<ExitCode> {
    if let Some(directory) = &arguments.list {
        deleted::list(directory, arguments.limit, arguments.told.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let path = arguments.path.as_ref().expect("the parser demands it");
    let target = Target::EmptyPlace { with_parents: arguments.parents };
    let what = || format!("cannot undelete {}", named(path));
    let report = restored(Place::find(path)?, arguments.at.clone(), target, &arguments.told).with_context(what)?;
    tell("undeleted", path, &report, &arguments.told);
    Ok(ExitCode::SUCCESS)
}

/// Copies what is there now to another path: a restoration as of the last commit.
pub fn copy(arguments: &Cp) -> Result<ExitCode> {
    let Cp { from, to, dry_run, json } = arguments;
    let what = || format!("cannot copy {} to {}", named(from), named(to));
    let place = Place::find(from)?;
    let target = Target::Elsewhere(place.other(to)?);
    let told = Told { dry_run: *dry_run, json: *json };
    let report = restored(place, Some(Moment::Now), target, &told).with_context(what)?;
    if *json || *dry_run {
        tell("copied", to, &report, &told);
        return Ok(ExitCode::SUCCESS);
    }
    let names = shown::counted(report["back"].as_u64().unwrap_or(0), "name", "names");
    outln!("{} is a copy of {}: {names}, which share all blocks with it", named(to), named(from));
    Ok(ExitCode::SUCCESS)
}

/// Makes all of a volume what a snapshot has.
pub fn snapshot(arguments: &RestoreSnapshot) -> Result<()> {
    let (volume, name) = (&arguments.snapshot.volume, &arguments.snapshot.name);
    let at = match name.parse() {
        Ok(at @ Moment::Snapshot(_)) => Some(at),
        _ => {
            let mut whole = volume.as_os_str().to_owned();
            whole.push(":");
            let whole = shown::word(&whole);
            return usage(format!(
                "'{name}' is no name of a snapshot; of a moment it is 'weft restore {whole} --at {name}'"
            ));
        }
    };
    let what = || format!("cannot restore volume {}", shown::path(volume));
    super::snapshot::refuse_unknown(volume, name).with_context(what)?;
    let place = Place::of_volume(volume, b"/".to_vec())?;
    let report = restored(place, at, Target::Place, &arguments.told).with_context(what)?;
    tell("restored", volume.as_os_str(), &report, &arguments.told);
    Ok(())
}

/// Takes the content of a file out of history.
pub fn forget(path: &OsStr, as_json: bool) -> Result<()> {
    let what = || format!("cannot take {} out of history", named(path));
    let Forgotten { files, commit, is_there } = forgotten(Place::find(path)?).with_context(what)?;
    if as_json {
        let mut value = path_as_json(path.as_bytes());
        value.insert("files".into(), files.into());
        value.insert("is_there".into(), is_there.into());
        value.insert("commit".into(), commit.into());
        outln!("{:#}", Value::from(value));
        return Ok(());
    }
    let (path, files) = (named(path), shown::counted(files, "file", "files"));
    match is_there {
        false => outln!("{path}: history has nothing of its content any more ({files})"),
        true => outln!(
            "{path}: history has nothing of its earlier content any more ({files}); what it holds now stays, and commits \
             and snapshots that have that show it: delete or overwrite the file first where that is to go, too"
        ),
    }
    Ok(())
}

/// The outcome of taking files out of history.
struct Forgotten {
    files: u64,
    /// The last commit then.
    commit: u64,
    /// True if a file is there now, as far as that is known.
    is_there: bool,
}

fn forgotten(place: Place) -> Result<Forgotten> {
    match place.way {
        Way::Daemon(daemon, root) => {
            let answer = daemon.answered(&forget_target(&place.path))?;
            let number = |name: &str| answer[name].as_u64().context("the daemon's answer cannot be read");
            let path = Path::new(OsStr::from_bytes(place.path.strip_prefix(b"/").unwrap_or(&place.path)));
            let is_there = root.is_some_and(|root| root.join(path).symlink_metadata().is_ok());
            Ok(Forgotten { files: number("files")?, commit: number("commit")?, is_there })
        }
        Way::Alone(volume) => {
            let opened = Opened::open(&volume, Settings::default(), OpenOptions::default())?;
            let files = opened.vfs.forget_history(&place.path, rustix::process::geteuid().as_raw());
            let commit = opened.vfs.last_commit().0.0;
            let is_there = names(&place.path).and_then(|names| find(&opened.vfs, &names)).is_ok();
            opened.close()?;
            Ok(Forgotten { files: files?, commit, is_there })
        }
    }
}

fn named(path: &OsStr) -> String {
    shown::path(path.as_ref())
}

/// Has the volume of `place` restored: by the daemon that uses it, or here. Returns the report.
fn restored(place: Place, at: Option<Moment>, target: Target, told: &Told) -> Result<Value> {
    let request = RestoreRequest { path: place.path, at, target, is_rehearsal: told.dry_run };
    match place.way {
        Way::Daemon(daemon, root) => {
            if let Some(root) = root {
                super::asking::pass_on(&root).context("changes that the kernel has cached cannot be written")?;
            }
            daemon.answered(&restore_target(&request))
        }
        Way::Alone(volume) => {
            let opened = Opened::open(&volume, Settings::default(), OpenOptions::default())?;
            let report = opened.vfs.restore(&request);
            opened.close()?;
            Ok(report_value(&report?))
        }
    }
}

/// Prints a report.
fn tell(done: &str, path: &OsStr, report: &Value, told: &Told) {
    if told.json {
        return outln!("{report:#}");
    }
    let count = |name: &str| report[name].as_u64().unwrap_or(0);
    let path = named(path);
    if told.dry_run {
        list(report, &path);
    }
    let as_of = &report["as_of"];
    let made = as_of["time"].as_str().map(|time| format!(", made at {time}")).unwrap_or_default();
    let done = if told.dry_run { format!("would be {done}") } else { done.to_owned() };
    let (back, changed, removed) = (count("back"), count("changed"), count("removed"));
    let moved = if count("moved") > 0 { format!("{} moved back, ", count("moved")) } else { String::new() };
    let commit = &as_of["commit"];
    outln!(
        "{path} {done} as of commit {commit}{made}: {back} brought back, {moved}{changed} changed, {removed} removed"
    );
    match count("forgotten") {
        0 => {}
        1 => outln!("1 file has no content in history any more, and is as it was before ({TAKEN_OUT})"),
        files => outln!("{files} files have no content in history any more, and are as before ({TAKEN_OUT})"),
    }
    let linked = count("linked");
    if linked > 0 {
        let outside = report["outside"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let outside = outside.map(shown::message).collect::<Vec<_>>().join(", ");
        let files = if linked == 1 { "1 changed file has" } else { &format!("{linked} changed files have") };
        outln!("{files} other hard links in the volume, which show the same: {outside}");
    }
}

/// Lists the effect on each name.
fn list(report: &Value, top: &str) {
    let top = top.trim_end_matches('/');
    let effects = report["paths"].as_array().into_iter().flatten();
    for effect in effects.clone() {
        let word = effect["effect"].as_str().unwrap_or_default();
        let below = effect["path"].as_str().unwrap_or_default();
        let how = if word == "moved" { "back from" } else { "moved back from" };
        let from = effect["from"].as_str().map(|from| format!(", {how} {top}{}", shown::message(from)));
        outln!("{word:<8} {top}{}{}", shown::message(below), from.unwrap_or_default());
    }
    let all = ["back", "moved", "changed", "removed", "forgotten"]
        .iter()
        .filter_map(|name| report[name].as_u64())
        .sum::<u64>();
    let more = all.saturating_sub(effects.count() as u64);
    if more > 0 {
        outln!("and {more} more");
    }
}
