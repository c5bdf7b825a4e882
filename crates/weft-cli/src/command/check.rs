//! `weft check`.

mod salvage;

use super::damages;
use super::transfer::steps;
use crate::arguments::Check;
use crate::shown;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::process::ExitCode;
use weft_store::sqlite::{Closing, close_to_others};
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
    let location = Location::parse(&arguments.volume)?;
    super::tell(location.note(true).filter(|_| !arguments.repair));
    let bar = steps();
    let findings = location.check(options, &mut |progress| bar.show(progress));
    drop(bar);
    let mut findings = findings.with_context(|| format!("cannot check volume {location}"))?;
    findings.extend(open_to_others(&location, options.repair));
    let count = |outcome| findings.iter().filter(|finding| finding.outcome == outcome).count();
    let (damaged, repaired) = (count(Outcome::Damaged), count(Outcome::Repaired));
    if arguments.json {
        outln!("{:#}", as_json(&findings, damaged, repaired));
    } else {
        findings.iter().for_each(|finding| outln!("{}", shown::message(&finding.to_string())));
        outln!("{location}: {}", verdict(damaged, repaired, arguments.repair, advice(&findings)));
    }
    Ok(if damaged + repaired == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Tells which files of the volume are open to other users, and closes them if it is repaired.
fn open_to_others(location: &Location, repair: Repair) -> Vec<Finding> {
    let closing = if repair == Repair::No { Closing::Look } else { Closing::Close };
    let lines = location.path().map(|path| close_to_others(path, closing)).unwrap_or_default();
    let finding = |what| Finding { path: None, what, outcome: Outcome::Note };
    lines.into_iter().map(finding).collect()
}

/// Source of the advice on damage that is left.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Advice {
    /// A finding gives it.
    Finding,
    /// The last line gives it.
    Verdict,
}

fn advice(findings: &[Finding]) -> Advice {
    let gives = |what: &str| what.contains("--accept-loss") || what.contains("--salvage");
    let is_given = findings.iter().any(|finding| finding.outcome == Outcome::Damaged && gives(&finding.what));
    if is_given { Advice::Finding } else { Advice::Verdict }
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
            let found = damages(damaged);
            format!("{found} found; nothing was changed, 'weft check --repair' repairs what can be")
        }
        (damaged, repaired, true) => {
            format!("{} repaired, {damaged} left; copy what is whole with 'weft export'", damages(repaired))
        }
    }
}

fn as_json(findings: &[Finding], damaged: usize, repaired: usize) -> Value {
    let findings: Vec<Value> = findings
        .iter()
        .map(|finding| {
            let path = finding.path.as_ref().map(|path| String::from_utf8_lossy(path));
            let outcome = match finding.outcome {
                Outcome::Note => "note",
                Outcome::Damaged => "damaged",
                Outcome::Repaired => "repaired",
            };
            json!({ "path": path, "what": finding.what, "outcome": outcome })
        })
        .collect();
    json!({ "clean": damaged == 0, "damaged": damaged, "repaired": repaired, "findings": findings })
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
        assert!(verdict(1, 0, false, advice).contains("'weft check --repair'"));
        assert!(verdict(1, 0, true, advice).contains("'weft export'"));
    }
}
