//! `weft history`.

pub(super) mod costs;
mod excluding;
mod setting;

use super::transfer::path_as_json;
use crate::arguments::{History as Arguments, HistoryCommand};
use crate::daemons;
use crate::mounted::volume_named;
use crate::opened::{Opened, Settings};
use crate::{shown, size};
use anyhow::{Context, Result};
use costs::Costs;
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;
use weft_store::{CommitNo, History, HistoryFor, OpenOptions, Pin, PinKind, Rule, Store};
use weft_vfs::{ForgottenRecord, Vfs, excluded_patterns, forgotten_records};

/// Records of what was taken out that are printed for people.
const FORGOTTEN_SHOWN: usize = 5;

/// Tells what is kept of the past, or sets that.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    match (&arguments.command, &arguments.volume) {
        (Some(HistoryCommand::Set(set)), _) => setting::run(set)?,
        (Some(HistoryCommand::Forget(forget)), _) => super::restore::forget(&forget.path, forget.json)?,
        (Some(HistoryCommand::Exclude(exclude)), _) => excluding::run(exclude)?,
        (None, Some(volume)) => tell(volume, arguments.json)?,
        (None, None) => unreachable!("the parser demands one of them"),
    }
    Ok(ExitCode::SUCCESS)
}

fn tell(volume: &Path, as_json: bool) -> Result<()> {
    let location = volume_named(volume)?;
    let engine = location.engine();
    crate::notes::tell(engine.note(false));
    super::sync::commit_first(volume, &location, "what was written since the last commit is not counted");
    let opened = engine.open_beside(OpenOptions::default());
    let opened = opened.with_context(|| format!("cannot open volume {location}"))?;
    let what = || format!("cannot read volume {location}");
    if let Some(mut kept) = Kept::read(&*opened.store).with_context(what)? {
        // A daemon that cannot be asked has told why already.
        let daemon = daemons::using(volume).ok().flatten();
        let status = daemon.and_then(|daemon| daemon.status.ok());
        kept.no_room = status.and_then(|status| status["no_room"].as_str().map(str::to_owned));
        match as_json {
            true => outln!("{:#}", kept.as_json()),
            false => kept.print(),
        }
        return Ok(());
    }
    // What was taken out before.
    let forgotten = forgotten_records(&*opened.store).with_context(what)?;
    if as_json {
        let forgotten = forgotten.iter().map(forgotten_value).collect::<Vec<_>>();
        outln!("{:#}", json!({ "rule": null, "forgotten": forgotten }));
    } else {
        outln!("rule        off");
        print_forgotten(&forgotten);
    }
    Ok(())
}

/// The time at which `commit` was made, if that is remembered, in words.
fn made(store: &dyn Store, commit: CommitNo) -> weft_store::Result<String> {
    let row = store.commit_row(commit)?;
    Ok(row.map_or_else(|| "an unknown time".into(), |row| shown::time(row.time)))
}

/// Facts about the past of a volume.
struct Kept {
    history: History,
    /// Times of commits: of the first one from which on all are kept, and of the last one.
    first_made: String,
    last: (CommitNo, String),
    pins: Vec<(Pin, String)>,
    costs: Option<Costs>,
    /// Records of content that was taken out, the oldest first.
    forgotten: Vec<ForgottenRecord>,
    /// Patterns of paths that are excluded.
    excluded: Vec<Vec<u8>>,
    /// The reason that its daemon has no room for new content.
    no_room: Option<String>,
}

impl Kept {
    fn read(store: &dyn Store) -> weft_store::Result<Option<Kept>> {
        let Some(history) = store.history()? else { return Ok(None) };
        let made = |commit| made(store, commit);
        let last = store.header()?.commit;
        let pins = store.pins()?.into_iter().map(|pin| made(pin.commit).map(|time| (pin, time)));
        Ok(Some(Kept {
            first_made: made(history.first)?,
            last: (last, made(last)?),
            pins: pins.collect::<weft_store::Result<_>>()?,
            costs: Costs::count(store)?,
            forgotten: forgotten_records(store)?,
            excluded: excluded_patterns(store)?,
            no_room: None,
            history,
        }))
    }

    fn print(&self) {
        outln!("rule        {}", self.history.rule);
        outln!("for         {}", self.history.readers.name());
        outln!("all from    commit {}, made at {}", self.history.first.0, self.first_made);
        outln!("to          commit {}, made at {}", self.last.0.0, self.last.1);
        if let Some(costs) = &self.costs {
            costs.print();
        }
        if let Some(why) = &self.no_room {
            outln!("room        {}", shown::message(why));
        }
        for pattern in &self.excluded {
            outln!("excluded    {}", shown::message(&String::from_utf8_lossy(pattern)));
        }
        print_forgotten(&self.forgotten);
        for (pin, made) in &self.pins {
            let held = pin.held_until.map(|until| format!(", held until {}", shown::time(until))).unwrap_or_default();
            match pin.kind {
                PinKind::Snapshot => {
                    let name = shown::message(&String::from_utf8_lossy(&pin.name));
                    outln!("snapshot    {name}: commit {}, made at {made}{held}", pin.commit.0);
                }
                PinKind::Point => outln!("also        commit {}, made at {made}{held}", pin.commit.0),
            }
        }
    }

    fn as_json(&self) -> Value {
        let commit = |number: CommitNo, made: &str| json!({ "commit": number.0, "time": made });
        let pins = self.pins.iter().map(|(pin, made)| {
            json!({
                "kind": if pin.kind == PinKind::Snapshot { "snapshot" } else { "point" },
                "name": String::from_utf8_lossy(&pin.name),
                "commit": pin.commit.0,
                "time": made,
                "held_until": pin.held_until.map(shown::time),
            })
        });
        json!({
            "rule": self.history.rule,
            "for": self.history.readers.name(),
            "first": commit(self.history.first, &self.first_made),
            "last": commit(self.last.0, &self.last.1),
            "no_room": self.no_room,
            "excluded": self.excluded.iter().map(|pattern| String::from_utf8_lossy(pattern)).collect::<Vec<_>>(),
            "forgotten": self.forgotten.iter().map(forgotten_value).collect::<Vec<_>>(),
            "costs": self.costs.as_ref().map(Costs::as_json),
            "pins": pins.collect::<Vec<_>>(),
        })
    }
}

/// Prints the last of what was taken out.
fn print_forgotten(forgotten: &[ForgottenRecord]) {
    let before = forgotten.len().saturating_sub(FORGOTTEN_SHOWN);
    if before > 0 {
        outln!("forgotten   {} more before these; --json lists all", before);
    }
    for record in &forgotten[before..] {
        outln!(
            "forgotten   {}: {}, {} of {}, as user {} asked for",
            shown::time(record.time),
            shown::message(&String::from_utf8_lossy(&record.path)),
            shown::counted(record.versions, "version", "versions"),
            size::show(record.bytes),
            record.user
        );
    }
}

fn forgotten_value(record: &ForgottenRecord) -> Value {
    let mut value = path_as_json(&record.path);
    value.insert("time".into(), shown::exact_time(record.time).into());
    value.insert("user".into(), record.user.into());
    value.insert("files".into(), record.files.into());
    value.insert("versions".into(), record.versions.into());
    value.insert("bytes".into(), record.bytes.into());
    value.insert("inodes".into(), record.inodes.iter().map(|ino| ino.0).collect::<Vec<_>>().into());
    value.into()
}

/// Has a new volume, which nobody uses yet, keep history by `rule`.
pub fn begin(volume: &Path, rule: &Rule, readers: Option<HistoryFor>) -> Result<()> {
    changed(volume, |vfs| vfs.keep_history(&rule.to_string(), readers)).map(drop)
}

/// Has the daemon that uses `volume` do what `order` says, or does it by `alone` where none does.
/// Returns the commit.
pub(super) fn ordered(
    volume: &Path,
    order: &str,
    alone: impl FnOnce(&Vfs) -> weft_vfs::Result<CommitNo>,
) -> Result<u64> {
    if let Some(daemon) = daemons::using(volume)? {
        return daemon.order(order);
    }
    changed(volume, alone).map(|commit| commit.0)
}

/// Opens `volume`, which no daemon uses, and has `change` made. Returns what that does.
pub(super) fn changed<T>(volume: &Path, change: impl FnOnce(&Vfs) -> weft_vfs::Result<T>) -> Result<T> {
    let opened = Opened::open(volume, Settings::default(), OpenOptions::default())?;
    let changed = change(&opened.vfs);
    opened.close()?;
    Ok(changed?)
}

/// `text` as a part of what a daemon is asked for.
pub(super) fn in_target(text: &str) -> String {
    percent_encoding::percent_encode(text.as_bytes(), percent_encoding::NON_ALPHANUMERIC).to_string()
}
