//! `weft du`.

use super::digest::list::escape;
use super::subject::Subject;
use super::transfer::path_as_json;
use crate::arguments::Du;
use crate::{output, shown, size};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::path::Path;
use std::process::ExitCode;
use weft_store::OpenOptions;
use weft_vfs::{Usage, UsageBelow, usage_below};

/// Tells the bytes that a directory takes, and the names in it.
pub fn run(arguments: &Du) -> Result<ExitCode> {
    let named = Path::new(&arguments.path);
    let subject = Subject::demand(&arguments.path)?;
    subject.commit_first("what was written since the last commit is not counted");
    let what = || format!("cannot tell the bytes of {}", shown::path(named));
    let opened = subject.location.engine().open_beside(OpenOptions::default()).with_context(what)?;
    let found = usage_below(&*opened.store, &subject.path, arguments.history).with_context(what)?;
    match arguments.json {
        true => outln!("{:#}", as_json(&found, arguments)),
        false => print(&found, arguments),
    }
    let rest = "the past may have more: many of its blocks belong to several files".to_owned();
    crate::notes::tell((!found.is_complete).then_some(rest));
    Ok(ExitCode::SUCCESS)
}

/// The names, those that take most first.
fn sorted(found: &UsageBelow, is_by_past: bool) -> Vec<(&Vec<u8>, Usage)> {
    let mut names = found.names.iter().map(|(name, usage)| (name, *usage)).collect::<Vec<_>>();
    names.sort_by_key(|(_, usage)| {
        let (first, second) = if is_by_past { (usage.past, usage.present) } else { (usage.present, usage.past) };
        (Reverse(first), Reverse(second))
    });
    names
}

fn print(found: &UsageBelow, arguments: &Du) {
    let line = |usage: &Usage, path: &[u8]| {
        let mut line = format!("{:>12}", size::show(usage.present)).into_bytes();
        if arguments.history {
            line.extend(format!("{:>12}", size::show(usage.past)).into_bytes());
        }
        line.extend(b"  ");
        line.extend(escape(path));
        line.push(b'\n');
        output::write(&line);
    };
    outln!("{:>12}{}  path", "present", if arguments.history { "        past" } else { "" });
    let names = sorted(found, arguments.history);
    let limit = if arguments.summarize { 0 } else { arguments.limit };
    names.iter().take(limit).for_each(|(name, usage)| line(usage, name));
    if !arguments.summarize && names.len() > limit {
        let left = shown::counted((names.len() - limit) as u64, "more name", "more names");
        outln!("and {left}; -n lists more");
    }
    line(&found.all, arguments.path.as_encoded_bytes());
}

fn as_json(found: &UsageBelow, arguments: &Du) -> Value {
    let past = |usage: &Usage| arguments.history.then_some(usage.past);
    let names = sorted(found, arguments.history).into_iter().map(|(name, usage)| {
        let mut value = path_as_json(name);
        value.insert("present".into(), usage.present.into());
        value.insert("past".into(), past(&usage).into());
        Value::from(value)
    });
    json!({
        "present": found.all.present,
        "past": past(&found.all),
        "complete": found.is_complete,
        "names": if arguments.summarize { Value::Null } else { names.collect::<Vec<_>>().into() },
    })
}
