//! Fragments of a file as a daemon is asked about them, and as they are told.

use crate::hexadecimal::{hex, unhex};
use serde_json::{Value, json};
use weft_vfs::{Caller, Defragmented, ErrorKind, Fragments, Ino, Result, Vfs};

/// Returns the request to merge blocks of the file at `path` from byte `from` on.
pub fn defragment_target(path: &[u8], from: u64) -> String {
    format!("/defragment?path={}&from={from}", hex(path))
}

/// Returns the request to tell how the file at `path` is stored.
pub fn fragments_target(path: &[u8]) -> String {
    format!("/fragments?path={}", hex(path))
}

/// The path and the byte of a file that `query` names; none if it is no such request.
pub(crate) fn file_request(query: &str) -> Option<(Vec<u8>, u64)> {
    let (mut path, mut from) = (None, 0);
    for pair in query.split('&') {
        match pair.split_once('=')? {
            ("path", value) => path = Some(unhex(value)?),
            ("from", value) => from = value.parse().ok()?,
            _ => return None,
        }
    }
    Some((path?, from))
}

/// Finds the inode at `path`, counted from the root. Follows no links.
pub fn file_at(vfs: &Vfs, path: &[u8]) -> Result<Ino> {
    let mut names = path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b"."));
    names.try_fold(Ino::ROOT, |parent, name| Ok(vfs.lookup(Caller::ROOT, parent, name)?.ino))
}

/// Tells how the file at `path` is stored; none if it went, or if it is none that is stored, as a
/// transformation link is.
pub fn fragments_at(vfs: &Vfs, path: &[u8]) -> Result<Option<Fragments>> {
    of_stored(vfs, path, |ino| vfs.fragments(ino))
}

/// Merges blocks of the file at `path` from byte `from` on; nothing if it is none that is stored.
pub fn defragment_at(vfs: &Vfs, path: &[u8], from: u64) -> Result<Defragmented> {
    let merged = of_stored(vfs, path, |ino| vfs.defragment(ino, from))?;
    Ok(merged.unwrap_or(Defragmented { merged: 0, next: None }))
}

/// Asks about the file at `path`; none if it went, or if it is none that is stored.
fn of_stored<T>(vfs: &Vfs, path: &[u8], ask: impl FnOnce(Ino) -> Result<T>) -> Result<Option<T>> {
    let asked = file_at(vfs, path).and_then(|ino| if vfs.is_opaque(ino)? { Ok(None) } else { ask(ino).map(Some) });
    match asked {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Stale) => Ok(None),
        asked => asked,
    }
}

/// Fragments of a file, as commands print them; of none if it is none that is stored.
pub fn fragments_value(found: Option<&Fragments>) -> Value {
    let Some(Fragments { stored, blocks, runs, bytes }) = found else { return Value::Null };
    json!({ "stored_blocks": stored, "blocks": blocks, "runs": runs, "bytes": bytes })
}

/// A step of merging, as commands read it.
pub(crate) fn defragmented_value(done: &Defragmented) -> Value {
    json!({ "merged": done.merged, "next": done.next })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_comes_through_as_it_was() {
        let query = |target: String| target.split_once('?').expect("a query").1.to_owned();
        let path = b"a b/\xff&=".to_vec();
        assert_eq!(file_request(&query(defragment_target(&path, 7))), Some((path.clone(), 7)));
        assert_eq!(file_request(&query(fragments_target(&path))), Some((path, 0)));
        for wrong in ["", "path", "path=x", "from=1", "path=61&from=-1", "path=61&more=1"] {
            assert_eq!(file_request(wrong), None, "{wrong}");
        }
    }
}
