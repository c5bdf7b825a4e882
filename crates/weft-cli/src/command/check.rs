//! `weft check`.

mod rehearsal;
mod salvage;

use super::transfer::steps;
use super::{damages, is_advised, places};
use crate::advice::filled;
use crate::arguments::Check;
use crate::shown;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::process::ExitCode;
use weft_store::sqlite::{Closing, Giving, close_to_others, give_to_owner};
use weft_store::{CheckOptions, Finding, Location, Outcome, Repair};

/// Checks a volume. Exit code 0: it is whole; 1: damage was found, repaired or not.
pub fn run(arguments: &Check) -> Result<ExitCode> {
    if let Some(new) = arguments.new.as_ref().filter(|_| arguments.salvage) {
        return salvage::run(&arguments.volume, new, arguments.json);
    }
    let options = CheckOptions {
        repair: match (arguments.repair, arguments.discard) {
            (false, _) => Repair::No,
            (true, false) => Repair::Yes,
            (true, true) => Repair::Discard,
        },
        read_data: arguments.read_data,
    };
    let location = super::mounted::unmounted(&arguments.volume)?;
    super::tell(location.note(true).filter(|_| !arguments.repair));
    // Before the check, which removes the files that SQLite leaves beside a database that is only
    // read.
    let waiting = location.waiting().unwrap_or_default();
    // Before it, too: root's files in a user's volume cannot be opened with that user's rights.
    let permissions = permissions(&location, options.repair);
    let bar = steps();
    let findings = location.check(options, &mut |progress| bar.show(progress));
    drop(bar);
    if findings.is_err() {
        permissions.iter().for_each(|finding| errln!("weft: {}", shown::message(&filled(&finding.to_string()))));
    }
    let mut findings = findings.with_context(|| format!("cannot check volume {location}"))?;
    findings.extend(rehearsal::rehearse(&location, &waiting));
    findings.extend(permissions);
    let count = |outcome| places(findings.iter().filter(|finding| finding.outcome == outcome));
    let (damaged, repaired) = (count(Outcome::Damaged), count(Outcome::Repaired));
    if arguments.json {
        outln!("{:#}", as_json(&findings, arguments.read_data, damaged, repaired));
    } else {
        findings.iter().for_each(|finding| outln!("{}", shown::message(&filled(&finding.to_string()))));
        let verdict = match waiting.clause().filter(|_| arguments.repair && damaged == 0) {
            Some(waiting) => unfinished(repaired, &waiting),
            None if damaged + repaired == 0 && !arguments.read_data => CLEAN_UNREAD.into(),
            None => verdict(damaged, repaired, arguments.repair, advice(&findings)),
        };
        outln!("{}", shown::message(&format!("{location}: {}", filled(&verdict))));
    }
    Ok(if damaged + repaired == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Reports files of the volume that are open to other users or closed to its owner, and fixes that
/// if the volume is repaired.
fn permissions(location: &Location, repair: Repair) -> Vec<Finding> {
    let closing = if repair == Repair::No { Closing::Look } else { Closing::Close };
    let giving = if repair == Repair::No { Giving::Look } else { Giving::Give };
    let lines = |path| [close_to_others(path, closing), give_to_owner(path, giving)].concat();
    let lines = location.path().map(lines).unwrap_or_default();
    let finding = |what| Finding { path: None, what, outcome: Outcome::Note };
    lines.into_iter().map(finding).collect()
}

/// Verdict on a volume without damage in anything but its content, which was not read.
const CLEAN_UNREAD: &str = "clean; content was not read, which 'weft check --read-data VOLUME' does";

/// Returns the last line on `findings`, all of which are unrepaired damage.
pub(super) fn verdict_unchanged(findings: &[Finding]) -> String {
    verdict(places(findings).max(1), 0, false, advice(findings))
}

/// Advice on damage that is left.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Advice {
    /// A finding gives it.
    Finding,
    /// Damaged bytes, which no repair brings back, and no other damage.
    Bytes,
    /// Bytes are damaged among other damage.
    AlsoBytes,
    /// A repair, and then a copy of the undamaged files.
    Repair,
}

fn advice(findings: &[Finding]) -> Advice {
    let damaged = findings.iter().filter(|finding| finding.outcome == Outcome::Damaged).collect::<Vec<_>>();
    if damaged.iter().any(|finding| is_advised(finding)) {
        return Advice::Finding;
    }
    match damaged.iter().filter(|finding| finding.is_of_bytes()).count() {
        0 => Advice::Repair,
        bytes if bytes == damaged.len() => Advice::Bytes,
        _ => Advice::AlsoBytes,
    }
}

/// Remedy for damaged bytes.
const FROM_A_COPY: &str = "only a copy brings damaged bytes back: 'weft import --overwrite COPY VOLUME', with COPY a \
                           directory of whole copies of these files alone, at the same paths below it, as others in it \
                           replace newer ones; until then the rest of these files can be read";

/// Returns the verdict on a repaired volume that a mount will still change.
fn unfinished(repaired: usize, waiting: &str) -> String {
    let found =
        if repaired == 0 { "nothing to repair".into() } else { format!("{} found, all repaired", damages(repaired)) };
    format!("{found}; {waiting}")
}

fn verdict(damaged: usize, repaired: usize, repairing: bool, advice: Advice) -> String {
    match (damaged, repaired, repairing) {
        (0, 0, _) => "clean".into(),
        (0, repaired, _) => format!("{} found, all repaired; it is clean now", damages(repaired)),
        (damaged, _, false) if advice == Advice::Finding => {
            format!("{} found; nothing was changed, follow the advice above", damages(damaged))
        }
        (damaged, repaired, true) if advice == Advice::Finding => {
            format!("{} repaired, {damaged} left; follow the advice above", damages(repaired))
        }
        (damaged, _, false) => {
            let repair = "'weft check --repair VOLUME' repairs what can be";
            let advice = match advice {
                Advice::Bytes => FROM_A_COPY.into(),
                Advice::AlsoBytes => format!("{repair}; {FROM_A_COPY}"),
                Advice::Finding | Advice::Repair => repair.into(),
            };
            format!("{} found; nothing was changed, {advice}", damages(damaged))
        }
        (damaged, repaired, true) => {
            let advice = match advice {
                Advice::Bytes | Advice::AlsoBytes => FROM_A_COPY,
                Advice::Finding | Advice::Repair => "copy what is whole with 'weft export VOLUME DIRECTORY'",
            };
            format!("{} repaired, {damaged} left; {advice}", damages(repaired))
        }
    }
}

fn as_json(findings: &[Finding], read_data: bool, damaged: usize, repaired: usize) -> Value {
    let findings: Vec<Value> = findings
        .iter()
        .map(|finding| {
            let path = finding.path.as_ref().map(|path| String::from_utf8_lossy(path));
            let outcome = match finding.outcome {
                Outcome::Note => "note",
                Outcome::Damaged => "damaged",
                Outcome::Repaired => "repaired",
            };
            json!({ "path": path, "what": filled(&finding.what), "outcome": outcome })
        })
        .collect();
    json!({
        "clean": damaged == 0,
        "content_read": read_data,
        "damaged": damaged,
        "repaired": repaired,
        "findings": findings,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn damaged(what: &str) -> Finding {
        Finding { path: None, what: what.into(), outcome: Outcome::Damaged }
    }

    #[test]
    fn the_last_line_gives_no_other_advice_than_a_finding_does() {
        for said in ["mount with --accept-loss", "have 'weft check --salvage' bring what can be read"] {
            let findings = [damaged("a row is damaged"), damaged(said)];
            for (repaired, repairing) in [(0, false), (0, true), (3, true)] {
                let line = verdict(2, repaired, repairing, advice(&findings));
                assert!(line.ends_with("follow the advice above"), "{line}");
                assert!(!line.contains("--repair") && !line.contains("export"), "{line}");
            }
        }
        let advice = advice(&[damaged("a row is damaged")]);
        assert!(verdict(1, 0, false, advice).contains("'weft check --repair VOLUME'"));
        assert!(verdict(1, 0, true, advice).contains("'weft export VOLUME DIRECTORY'"));
    }

    #[test]
    fn no_repair_is_advised_against_damaged_bytes() {
        let bytes = damaged("bytes 0 to 65535 are damaged: block 1 has other bytes than were written");
        let alone = advice(std::slice::from_ref(&bytes));
        for repairing in [false, true] {
            let line = verdict(1, 0, repairing, alone);
            assert!(line.contains("'weft import --overwrite COPY VOLUME'") && !line.contains("--repair"), "{line}");
        }
        let line = verdict(2, 0, false, advice(&[bytes, damaged("a row is damaged")]));
        assert!(line.contains("--repair VOLUME'") && line.contains("--overwrite COPY VOLUME'"), "{line}");
    }
}
