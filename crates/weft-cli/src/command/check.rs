//! `weft check`.

mod rehearsal;
mod salvage;

use super::transfer::steps;
use crate::advice::{filled, volume};
use crate::arguments::Check;
use crate::findings::{damages, is_advised, places};
use crate::shown;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;
use weft_store::sqlite::{Closing, Giving, close_to_others, give_to_owner};
use weft_store::{CheckOptions, Finding, Location, Outcome, Repair, Subject};

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
    refuse_mount_point(&arguments.volume)?;
    let location = crate::mounted::unmounted(&arguments.volume)?;
    crate::notes::tell(location.engine().note(true).filter(|_| !arguments.repair));
    // Before the check, which removes the files that SQLite leaves beside a database that is only
    // read.
    let waiting = location.engine().waiting().unwrap_or_default();
    // Before it, too: root's files in a user's volume cannot be opened with that user's rights.
    let permissions = permissions(&location, options.repair);
    let bar = steps();
    let findings = location.engine().check(options, &mut |progress| bar.show(progress));
    drop(bar);
    if findings.is_err() {
        permissions.iter().for_each(|finding| errln!("weft: {}", shown::message(&filled(&finding.to_string()))));
    }
    let mut findings = findings.with_context(|| format!("cannot check volume {location}"))?;
    findings.extend(rehearsal::rehearse(&location, &waiting));
    findings.extend(permissions);
    let mounted = crate::mounted::directory_of(&location);
    advise_on_segments(&mut findings, mounted.as_deref());
    let count = |outcome| places(findings.iter().filter(|finding| finding.outcome == outcome));
    let (damaged, repaired) = (count(Outcome::Damaged), count(Outcome::Repaired));
    if arguments.json {
        outln!("{:#}", as_json(&findings, arguments.read_data, damaged, repaired));
    } else {
        findings.iter().for_each(|finding| outln!("{}", shown::message(&filled(&finding.to_string()))));
        let verdict = match waiting.clause().filter(|_| arguments.repair && damaged == 0) {
            Some(waiting) => unfinished(repaired, &waiting),
            None if damaged + repaired == 0 && !arguments.read_data => CLEAN_UNREAD.into(),
            None => verdict(damaged, repaired, arguments.repair, &advice(&findings, mounted.as_deref())),
        };
        print_verdict(&location, &verdict);
    }
    Ok(if damaged + repaired == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Refuses a mount point: only a scrub looks at a volume beside its mount.
fn refuse_mount_point(named: &Path) -> Result<()> {
    if crate::mounted::is_mount_point(named) {
        let (volume, place) = (crate::mounted::volume_at(named), shown::word(named.as_os_str()));
        bail!(
            "{} is mounted at {place}: 'weft scrub {place}' reads and verifies all of it there; to check it, unmount it \
             first ('weft umount {place}'), and name the volume itself",
            volume.display()
        );
    }
    Ok(())
}

/// Reports files of the volume that are open to other users or closed to its owner, and fixes that
/// if the volume is repaired.
fn permissions(location: &Location, repair: Repair) -> Vec<Finding> {
    let closing = if repair == Repair::No { Closing::Look } else { Closing::Close };
    let giving = if repair == Repair::No { Giving::Look } else { Giving::Give };
    let lines = |path| [close_to_others(path, closing), give_to_owner(path, giving)].concat();
    let lines = location.path().map(lines).unwrap_or_default();
    let finding = |what| Finding::new(None, what, Outcome::Note);
    lines.into_iter().map(finding).collect()
}

/// Verdict on a volume without damage in anything but its content, which was not read.
const CLEAN_UNREAD: &str = "clean; content was not read, which 'weft check --read-data VOLUME' does";

/// Returns the last lines on `findings`, all of which are unrepaired damage, of a volume that may
/// be mounted.
pub(super) fn verdict_unchanged(findings: &[Finding], mounted: Option<&Path>) -> String {
    verdict(places(findings).max(1), 0, false, &advice(findings, mounted))
}

/// Prints the last lines on a volume.
pub(super) fn print_verdict(location: &Location, verdict: &str) {
    let lines = format!("{location}: {}", filled(verdict));
    lines.split('\n').for_each(|line| outln!("{}", shown::message(line)));
}

/// Adds the remedy to the first segment file that is lost.
pub(super) fn advise_on_segments(findings: &mut [Finding], mounted: Option<&Path>) {
    let in_the_past_alone = !findings.iter().any(|finding| finding.subject == Subject::Bytes)
        && findings.iter().any(|finding| finding.subject == Subject::Past);
    let Some(first) = findings.iter_mut().find(|finding| finding.subject == Subject::SegmentFile) else { return };
    first.what.push_str(match mounted {
        None if in_the_past_alone => {
            ": put it back from a copy; without one 'weft mount --accept-loss VOLUME DIRECTORY' goes on without the \
             blocks in it, which no file has any more; there 'weft history forget' gives up the past of those below, \
             or it goes by the rule"
        }
        None => {
            ": put it back from a copy; without one 'weft mount --accept-loss VOLUME DIRECTORY' goes on without the \
             blocks in it, and intact files can be copied over those below there"
        }
        Some(_) => ": put it back from a copy, or copy intact files over those below",
    });
}

/// Advice on damage that is left.
#[derive(Clone, PartialEq, Eq)]
enum Advice {
    /// A finding gives it.
    Finding,
    /// Damaged bytes, which no repair brings back, and no other damage. Has the remedy.
    Bytes(String),
    /// A repair, and then a copy of the undamaged files; and a remedy for damaged bytes, if there
    /// are any, too.
    Repair(&'static str, Option<String>),
}

const REPAIR: &str = "'weft check --repair VOLUME' repairs what can be";
const REPAIR_UNMOUNTED: &str = "once it is unmounted, 'weft check --repair VOLUME' repairs what can be";

/// The remedy for bytes that only earlier commits have.
const OF_THE_PAST: &str = "nothing brings back what only the past had: it goes when history drops those commits, or at \
                           once by 'weft history forget'";

fn advice(findings: &[Finding], mounted: Option<&Path>) -> Advice {
    let damaged = findings.iter().filter(|finding| finding.outcome == Outcome::Damaged).collect::<Vec<_>>();
    if damaged.iter().any(|finding| is_advised(finding)) {
        return Advice::Finding;
    }
    let repair = if mounted.is_some() { REPAIR_UNMOUNTED } else { REPAIR };
    let of = |subject| damaged.iter().find(|finding| finding.subject == subject);
    let remedy = match (of(Subject::Bytes), of(Subject::Past)) {
        (Some(first), _) => from_a_copy(first.path.as_deref().unwrap_or_default(), mounted),
        (None, Some(_)) => OF_THE_PAST.into(),
        (None, None) => return Advice::Repair(repair, None),
    };
    let is_of_bytes =
        |finding: &&Finding| matches!(finding.subject, Subject::Bytes | Subject::Past | Subject::SegmentFile);
    match damaged.iter().all(is_of_bytes) {
        true => Advice::Bytes(remedy),
        false => Advice::Repair(repair, Some(remedy)),
    }
}

/// Returns the remedy for damaged bytes, with commands for the file at `path`.
fn from_a_copy(path: &[u8], mounted: Option<&Path>) -> String {
    // No name may lead to it.
    let path = Path::new(OsStr::from_bytes(path.strip_prefix(b"/").unwrap_or(b"PATH")));
    let word = |directory: &Path| shown::word(directory.join(path).as_os_str());
    let copy = word(Path::new("BACKUP"));
    let commands = match mounted {
        Some(directory) => format!("\n    cp -a {copy} {}    # and so on", word(directory)),
        None => {
            let below = Path::new("COPY").join(path);
            let parent = shown::word(below.parent().unwrap_or(&below).as_os_str());
            format!(
                "\n    mkdir -p {parent}\n    cp -a {copy} {parent}    # and so on, for these files alone\n    weft import \
                 --overwrite COPY {}",
                volume()
            )
        }
    };
    format!("only copies bring damaged bytes back:{commands}")
}

/// Returns the verdict on a repaired volume that a mount will still change.
fn unfinished(repaired: usize, waiting: &str) -> String {
    let found =
        if repaired == 0 { "nothing to repair".into() } else { format!("{} found, all repaired", damages(repaired)) };
    format!("{found}; {waiting}")
}

fn verdict(damaged: usize, repaired: usize, repairing: bool, advice: &Advice) -> String {
    match (damaged, repaired, repairing) {
        (0, 0, _) => "clean".into(),
        (0, repaired, _) => format!("{} found, all repaired; it is clean now", damages(repaired)),
        (damaged, _, false) => {
            let advice = match advice {
                Advice::Finding => "follow the advice above".into(),
                Advice::Bytes(remedy) => remedy.clone(),
                Advice::Repair(repair, None) => (*repair).into(),
                Advice::Repair(repair, Some(remedy)) => format!("{repair}; {remedy}"),
            };
            format!("{} found; nothing was changed, {advice}", damages(damaged))
        }
        (damaged, repaired, true) => {
            let advice = match advice {
                Advice::Finding => "follow the advice above",
                Advice::Bytes(remedy) | Advice::Repair(_, Some(remedy)) => remedy,
                Advice::Repair(_, None) => "copy what is whole with 'weft export VOLUME DIRECTORY'",
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
        Finding::damage(what)
    }

    #[test]
    fn the_last_line_gives_no_other_advice_than_a_finding_does() {
        for said in ["mount with --accept-loss", "have 'weft check --salvage' bring what can be read"] {
            let findings = [damaged("a row is damaged"), damaged(said)];
            for (repaired, repairing) in [(0, false), (0, true), (3, true)] {
                let line = verdict(2, repaired, repairing, &advice(&findings, None));
                assert!(line.ends_with("follow the advice above"), "{line}");
                assert!(!line.contains("--repair") && !line.contains("export"), "{line}");
            }
        }
        let advice = advice(&[damaged("a row is damaged")], None);
        assert!(verdict(1, 0, false, &advice).contains("'weft check --repair VOLUME'"));
        assert!(verdict(1, 0, true, &advice).contains("'weft export VOLUME DIRECTORY'"));
    }

    #[test]
    fn no_repair_is_advised_against_damaged_bytes() {
        let path = Some(b"/a b/c".to_vec());
        let bytes = "bytes 0 to 65535 are damaged: block 1 has other bytes than were written";
        let bytes = Finding { path, ..damaged(bytes) }.about(Subject::Bytes);
        let alone = advice(std::slice::from_ref(&bytes), None);
        for repairing in [false, true] {
            let text = verdict(1, 0, repairing, &alone);
            let commands: Vec<_> = text.lines().skip(1).map(str::trim).collect();
            let expected = [
                "mkdir -p 'COPY/a b'",
                "cp -a 'BACKUP/a b/c' 'COPY/a b'    # and so on, for these files alone",
                "weft import --overwrite COPY VOLUME",
            ];
            assert_eq!(commands, expected);
            assert!(!text.contains("--repair"), "{text}");
        }
        let line = verdict(2, 0, false, &advice(&[bytes, damaged("a row is damaged")], None));
        assert!(line.contains("--repair VOLUME'") && line.contains("--overwrite COPY VOLUME"), "{line}");
    }

    /// `weft import` and `weft check --repair` refuse a volume that is mounted.
    #[test]
    fn files_of_a_mounted_volume_are_copied_over_in_the_mount() {
        let bytes = damaged("bytes 0 to 65535 are damaged: block 1 lies in a segment file that is missing");
        let bytes = Finding { path: Some(b"/c".to_vec()), ..bytes }.about(Subject::Bytes);
        let segment = damaged("segment file s/1.seg is missing").about(Subject::SegmentFile);
        let mut findings = [segment, bytes, damaged("a row is damaged")];
        let mounted = Some(Path::new("/mnt"));
        advise_on_segments(&mut findings, mounted);
        assert_eq!(
            findings[0].what,
            "segment file s/1.seg is missing: put it back from a copy, or copy intact files over those below"
        );
        let text = verdict_unchanged(&findings[..2], mounted);
        let told = "2 damaged places found; nothing was changed, only copies bring damaged bytes back:\n    cp -a BACKUP/c \
                    /mnt/c    # and so on";
        assert_eq!(text, told);
        assert!(verdict_unchanged(&findings, mounted).contains("once it is unmounted, 'weft check --repair VOLUME'"));
    }
}
