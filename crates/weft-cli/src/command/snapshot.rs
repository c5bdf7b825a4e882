//! `weft snapshot`.

use super::history::{in_target, ordered};
use super::subject::Subject;
use crate::arguments::{
    CreateSnapshot, DeleteSnapshot, DiffSnapshots, HoldSnapshot, NamedSnapshot, RenameSnapshot, Snapshot,
    SnapshotCommand,
};
use crate::mounted::volume_named;
use crate::shown;
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;
use weft_store::{CommitRow, Moment, OpenOptions, Pin, PinKind, Timestamp};
use weft_vfs::{Clock, SystemClock};

/// Makes, lists, compares, renames, holds or deletes snapshots, or restores one.
pub fn run(arguments: &Snapshot) -> Result<ExitCode> {
    match &arguments.command {
        SnapshotCommand::Create(create) => make(create)?,
        SnapshotCommand::List(list) => print(&list.volume, list.json)?,
        SnapshotCommand::Diff(diff) => return Ok(differences(diff)),
        SnapshotCommand::Restore(restore) => super::restore::snapshot(restore)?,
        SnapshotCommand::Delete(snapshot) => delete(snapshot)?,
        SnapshotCommand::Rename(snapshot) => rename(snapshot)?,
        SnapshotCommand::Hold(hold) => hold_until(hold)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints what has changed since a snapshot, up to another one or to now.
fn differences(DiffSnapshots { volume, name, later, shown }: &DiffSnapshots) -> ExitCode {
    let to = later.as_ref().unwrap_or(&Moment::Now);
    super::diff::moments(|| Subject::of_volume(volume), [name, to], shown)
}

/// Refuses a name that no snapshot of `volume` has.
pub(super) fn refuse_unknown(volume: &Path, name: &str) -> Result<()> {
    let opened = volume_named(volume)?.engine().open_beside(OpenOptions::default())?;
    let is_it = |pin: &Pin| pin.kind == PinKind::Snapshot && pin.name == name.as_bytes();
    let is_known = opened.store.history()?.is_none() || opened.store.pins()?.iter().any(is_it);
    ensure!(
        is_known,
        "there is no snapshot '{name}'; 'weft snapshot list {}' lists them",
        shown::word(volume.as_os_str())
    );
    Ok(())
}

/// The time after so many nanoseconds.
fn later(span: i64) -> Timestamp {
    Timestamp(SystemClock.now().0.saturating_add(span))
}

fn make(create: &CreateSnapshot) -> Result<()> {
    let NamedSnapshot { volume, name } = &create.snapshot;
    let until = create.hold.map(|span| later(span.0));
    let order = format!("/snapshots/create/{}/{}", in_target(name), until.map_or(0, |until| until.0));
    let commit = ordered(volume, &order, |vfs| vfs.create_snapshot(name, until));
    let commit = commit.with_context(|| format!("cannot make a snapshot of volume {}", shown::path(volume)))?;
    if create.json {
        outln!("{:#}", json!({ "name": name, "commit": commit, "held_until": until.map(shown::time) }));
        return Ok(());
    }
    let held = until.map(|until| format!(", held until {}", shown::time(until))).unwrap_or_default();
    outln!("snapshot {}: commit {commit}{held}", shown::message(name));
    Ok(())
}

fn delete(DeleteSnapshot { snapshot, json: as_json }: &DeleteSnapshot) -> Result<()> {
    let NamedSnapshot { volume, name } = snapshot;
    let order = format!("/snapshots/delete/{}", in_target(name));
    let deleted = ordered(volume, &order, |vfs| vfs.delete_snapshot(name));
    let commit = deleted.with_context(|| format!("cannot delete a snapshot of volume {}", shown::path(volume)))?;
    match as_json {
        true => outln!("{:#}", json!({ "name": name, "deleted_by": commit })),
        false => outln!("snapshot {}: deleted", shown::message(name)),
    }
    Ok(())
}

fn rename(RenameSnapshot { snapshot, new, json: as_json }: &RenameSnapshot) -> Result<()> {
    let NamedSnapshot { volume, name } = snapshot;
    let order = format!("/snapshots/rename/{}/{}", in_target(name), in_target(new));
    let renamed = ordered(volume, &order, |vfs| vfs.rename_snapshot(name, new));
    renamed.with_context(|| format!("cannot rename a snapshot of volume {}", shown::path(volume)))?;
    match as_json {
        true => outln!("{:#}", json!({ "name": new, "renamed_from": name })),
        false => outln!("snapshot {}: renamed from {}", shown::message(new), shown::message(name)),
    }
    Ok(())
}

fn hold_until(HoldSnapshot { snapshot, time, json: as_json }: &HoldSnapshot) -> Result<()> {
    let (NamedSnapshot { volume, name }, until) = (snapshot, later(time.0));
    let order = format!("/snapshots/hold/{}/{}", in_target(name), until.0);
    let held = ordered(volume, &order, |vfs| vfs.hold_snapshot(name, until));
    held.with_context(|| format!("cannot hold a snapshot of volume {}", shown::path(volume)))?;
    match as_json {
        true => outln!("{:#}", json!({ "name": name, "held_until": shown::time(until) })),
        false => outln!("snapshot {}: held until {}", shown::message(name), shown::time(until)),
    }
    Ok(())
}

fn print(volume: &Path, as_json: bool) -> Result<()> {
    let location = volume_named(volume)?;
    let opened = location.engine().open_beside(OpenOptions::default());
    let store = opened.with_context(|| format!("cannot open volume {location}"))?.store;
    let mut snapshots = Vec::new();
    for pin in store.pins()?.into_iter().filter(|pin| pin.kind == PinKind::Snapshot) {
        let commit = store.commit_row(pin.commit)?;
        snapshots.push((pin, commit));
    }
    if as_json {
        let all = snapshots.iter().map(|(pin, commit)| as_value(pin, commit.as_ref())).collect::<Vec<_>>();
        outln!("{:#}", json!(all));
        return Ok(());
    }
    for (pin, _) in snapshots {
        let name = shown::message(&String::from_utf8_lossy(&pin.name));
        let held = pin.held_until.map(|until| format!("  held until {}", shown::time(until))).unwrap_or_default();
        outln!("{}  commit {}  {name}{held}", shown::time(pin.made), pin.commit.0);
    }
    Ok(())
}

fn as_value(pin: &Pin, commit: Option<&CommitRow>) -> serde_json::Value {
    json!({
        "name": String::from_utf8_lossy(&pin.name),
        "commit": pin.commit.0,
        "made": shown::time(pin.made),
        "committed": commit.map(|row| shown::time(row.time)),
        "root_digest": commit.and_then(|row| row.root).map(|root| weft_digest::hex(&root)),
        "held_until": pin.held_until.map(shown::time),
    })
}
