//! `weft check --salvage`.

use super::rehearsal;
use crate::command::transfer::{Unfinished, steps};
use crate::failure::one_line;
use crate::mounted;
use crate::opened::{Opened, Settings};
use crate::shown::{self, counted};
use crate::size::show;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use weft_store::log::Loss;
use weft_store::sqlite::{Making, Missing, Salvaged};
use weft_store::{Location, OpenOptions};
use weft_vfs::{Options, Unapplied};

/// Copies the readable parts of a broken volume to a new one. Exit code 1 if something is missing.
pub fn run(volume: &Path, new: &Path, json: bool) -> Result<ExitCode> {
    let (volume, new) = (mounted::unmounted(volume)?, Location::parse(new)?);
    let unfinished = new.path().map(|new| Unfinished::of(new).map(Arc::new)).transpose()?;
    if let Some(unfinished) = &unfinished {
        unfinished.go_when_interrupted(format!("{volume} is as it was, and {new} was not made"))?;
    }
    let nothing = Making::default();
    let making = unfinished.as_ref().map_or(&nothing, |unfinished| &unfinished.making);
    let bar = steps();
    let salvaged = volume.salvage(&new, making, &mut |progress| bar.show(progress));
    drop(bar);
    let mut salvaged = salvaged.with_context(|| format!("cannot salvage volume {volume}"))?;
    give_up(&new, &mut salvaged)?;
    if json {
        outln!("{:#}", as_json(&salvaged));
    } else {
        print(&salvaged, &new);
    }
    Ok(if salvaged.missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Gives up the operations that wait in the volume `new` and that it cannot take, as what they are
/// about could not be salvaged, so that it can be mounted. The others are applied with that.
fn give_up(new: &Location, salvaged: &mut Salvaged) -> Result<()> {
    if salvaged.waiting == 0 {
        return Ok(());
    }
    let Some(Ok(unapplied)) = rehearsal::unapplied(new) else { return Ok(()) };
    if unapplied.named.is_empty() {
        return Ok(());
    }
    let given_up = |Unapplied { op, path, kind, why }| Missing {
        kind: "operation",
        what: path,
        why: format!("operation {}, {kind}, was synced and cannot be applied: {why}; it is given up", op.0),
    };
    salvaged.missing.extend(unapplied.named.into_iter().map(given_up));
    if unapplied.more > 0 {
        let why = format!("{} more that cannot be applied are given up", unapplied.more);
        salvaged.missing.push(Missing { kind: "operation", what: b"others".into(), why });
    }
    let path = new.path().context("the new volume is in files")?;
    let hold = OpenOptions { loss: Loss::Accept, ..OpenOptions::default() };
    let vfs = Options { background: false, ..Options::default() };
    match Opened::open(path, Settings { vfs, ..Settings::default() }, hold).and_then(Opened::close) {
        Ok(()) => salvaged.waiting = 0,
        // The volume is there, and its first mount says the same.
        Err(error) => {
            let what = b"that wait in the intent log".into();
            salvaged.missing.push(Missing { kind: "operations", what, why: one_line(&error) });
        }
    }
    Ok(())
}

/// Returns the number of missing parts by kind.
fn counts(salvaged: &Salvaged) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    salvaged.missing.iter().for_each(|missing| *counts.entry(missing.kind).or_insert(0) += 1);
    counts
}

fn print(salvaged: &Salvaged, new: &Location) {
    for Missing { kind, what, why } in &salvaged.missing {
        outln!("{kind} {}: {}", shown::message(&String::from_utf8_lossy(what)), shown::message(why));
    }
    let Salvaged { files, directories, others, bytes, nameless, unproved, damaged, .. } = salvaged;
    let but = |count, how| match count {
        0 => None,
        count => Some(format!("{} {how}", counted(count, "file", "files"))),
    };
    let but = [but(*damaged, "with damaged bytes"), but(*unproved, "that may be incomplete")];
    let but = but.into_iter().flatten().collect::<Vec<_>>().join(" and ");
    let but = if but.is_empty() { but } else { format!(" but {but}") };
    outln!(
        "{new}: {}, {} and {}, {}, all verified{but}",
        counted(*files, "file", "files"),
        counted(*directories, "directory", "directories"),
        counted(*others, "other", "others"),
        show(*bytes)
    );
    match nameless {
        0 => {}
        1 => outln!("{new}: 1 of them is in /lost+found, as its name is gone"),
        _ => outln!("{new}: {nameless} of them are in /lost+found, as their names are gone"),
    }
    let is_or_are = |count| if count == 1 { "is" } else { "are" };
    if salvaged.by_entries > 0 {
        let count = salvaged.by_entries;
        let are = is_or_are(count);
        outln!("{new}: {count} of them {are} proved by the hashes of entries, as digests are damaged");
    }
    if salvaged.by_rows > 0 {
        let count = salvaged.by_rows;
        let are = is_or_are(count);
        outln!(
            "{new}: {count} of them {are} verified by sums of rows and hashes of blocks alone, as digests are damaged: \
             whole, but nothing proves that all of it is of one moment"
        );
    }
    if salvaged.waiting > 0 {
        let (waiting, them) = match salvaged.waiting {
            1 => ("1 operation that was synced waits".to_owned(), "it"),
            many => (format!("{many} operations that were synced wait"), "them"),
        };
        outln!("{new}: {waiting} in the intent log; the next mount applies {them}");
    }
    let counts = counts(salvaged).into_iter().map(|(kind, count)| format!("{kind} {count}")).collect::<Vec<_>>();
    match counts.len() {
        0 => outln!("{new}: nothing is missing"),
        _ => outln!("{new}: missing or incomplete: {}", counts.join(", ")),
    }
}

fn as_json(salvaged: &Salvaged) -> Value {
    let missing = |Missing { kind, what, why }: &Missing| json!({ "kind": kind, "what": String::from_utf8_lossy(what), "why": why });
    json!({
        "files": salvaged.files,
        "directories": salvaged.directories,
        "others": salvaged.others,
        "bytes": salvaged.bytes,
        "in_lost_and_found": salvaged.nameless,
        "proved_by_entries": salvaged.by_entries,
        "verified_by_rows": salvaged.by_rows,
        "unproved": salvaged.unproved,
        "with_damaged_bytes": salvaged.damaged,
        "operations_waiting": salvaged.waiting,
        "missing_by_kind": counts(salvaged),
        "missing": salvaged.missing.iter().map(missing).collect::<Vec<_>>(),
    })
}
