//! Restorations as a daemon is asked for them, and as they are told.
//!
//! A request is the query of a URL; texts are hexadecimal, as paths are any bytes.

use crate::hexadecimal::{hex, unhex};
use serde_json::{Value, json};
use weft_vfs::{CommitNo, Effect, Moment, RestoreReport, RestoreRequest, Target, Timestamp};

/// What a daemon is asked for to do as `request` says.
pub fn restore_target(request: &RestoreRequest) -> String {
    let RestoreRequest { path, at, target, is_rehearsal } = request;
    let mut query = format!("/restore?path={}", hex(path));
    if let Some(moment) = at {
        query += &format!("&at={}", hex(moment_as_text(moment).as_bytes()));
    }
    match target {
        Target::Place => {}
        Target::Elsewhere(to) => query += &format!("&to={}", hex(to)),
        Target::EmptyPlace { with_parents: false } => query += "&empty=",
        Target::EmptyPlace { with_parents: true } => query += "&empty=&parents=",
    }
    if *is_rehearsal {
        query += "&rehearsal=";
    }
    query
}

/// What a daemon is asked for to take the content of `path` out of the past.
pub fn forget_target(path: &[u8]) -> String {
    path_target("/history/forget", path)
}

/// What a daemon is asked for to do what `order` says with `path`, or a pattern of paths.
pub fn path_target(order: &str, path: &[u8]) -> String {
    format!("{order}?path={}", hex(path))
}

/// The request that `query` is; none if it is none.
pub(crate) fn restore_request(query: &str) -> Option<RestoreRequest> {
    let mut request = RestoreRequest { path: Vec::new(), at: None, target: Target::Place, is_rehearsal: false };
    let mut has_path = false;
    for pair in query.split('&') {
        let (name, value) = pair.split_once('=')?;
        let value = unhex(value)?;
        match name {
            "path" => (request.path, has_path) = (value, true),
            "at" => request.at = Some(moment_of(&String::from_utf8(value).ok()?)?),
            "to" => request.target = Target::Elsewhere(value),
            "empty" => request.target = Target::EmptyPlace { with_parents: false },
            "parents" => request.target = Target::EmptyPlace { with_parents: true },
            "rehearsal" => request.is_rehearsal = true,
            _ => return None,
        }
    }
    has_path.then_some(request)
}

/// A report, as commands print it.
pub fn report_value(report: &RestoreReport) -> Value {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let paths = report.paths.iter().map(|path| {
        let from = path.from.as_ref().map(|from| text(from));
        json!({ "effect": word(path.effect), "path": text(&path.path), "from": from })
    });
    json!({
        "as_of": { "commit": report.then.0, "time": report.made.map(weft_vfs::rfc3339) },
        "commit": report.committed.map(|CommitNo(number)| number),
        "back": report.back,
        "moved": report.moved,
        "changed": report.changed,
        "removed": report.removed,
        "unchanged": report.unchanged,
        "forgotten": report.forgotten,
        "paths": paths.collect::<Vec<_>>(),
        "linked": report.linked,
        "outside": report.outside.iter().map(|path| text(path)).collect::<Vec<_>>(),
    })
}

fn word(effect: Effect) -> &'static str {
    match effect {
        Effect::Back => "back",
        Effect::Moved => "moved",
        Effect::Changed => "changed",
        Effect::Removed => "removed",
        Effect::Forgotten => "forgotten",
    }
}

/// A moment as text; users write others.
fn moment_as_text(moment: &Moment) -> String {
    match moment {
        Moment::Now => "now".into(),
        Moment::Commit(CommitNo(number)) => format!("commit {number}"),
        Moment::Time(Timestamp(time)) => format!("time {time}"),
        Moment::Ago(span) => format!("ago {span}"),
        Moment::Snapshot(name) => format!("snapshot {name}"),
    }
}

fn moment_of(text: &str) -> Option<Moment> {
    if text == "now" {
        return Some(Moment::Now);
    }
    let (kind, value) = text.split_once(' ')?;
    Some(match kind {
        "commit" => Moment::Commit(CommitNo(value.parse().ok()?)),
        "time" => Moment::Time(Timestamp(value.parse().ok()?)),
        "ago" => Moment::Ago(value.parse().ok()?),
        "snapshot" => Moment::Snapshot(value.into()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_comes_through_as_it_was() {
        let moments = [
            None,
            Some(Moment::Now),
            Some(Moment::Commit(CommitNo(7))),
            Some(Moment::Time(Timestamp(-5))),
            Some(Moment::Ago(3)),
            Some(Moment::Snapshot("a b&c=d".into())),
        ];
        let targets = [
            Target::Place,
            Target::Elsewhere(b"\xff/\n".into()),
            Target::EmptyPlace { with_parents: false },
            Target::EmptyPlace { with_parents: true },
        ];
        for at in moments {
            for target in &targets {
                for is_rehearsal in [false, true] {
                    let path = b"/a\xfe%/&=".to_vec();
                    let request = RestoreRequest { path, at: at.clone(), target: target.clone(), is_rehearsal };
                    let asked = restore_target(&request);
                    let read = restore_request(asked.strip_prefix("/restore?").expect("a query")).expect("a request");
                    assert_eq!(read, request);
                }
            }
        }
    }

    #[test]
    fn other_queries_are_no_requests() {
        for query in ["", "path", "path=0", "path=zz", "path=00&at=6e", "at=6e6f77", "path=2f&what="] {
            assert_eq!(restore_request(query), None, "{query}");
        }
    }
}
