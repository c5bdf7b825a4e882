//! The costs of history, as `weft history` tells them.

use crate::command::transfer::steps;
use crate::{shown, size};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use weft_store::{Counted, PastCosts, PastCount, Progress, Store, VersionCounts};

/// Versions that are looked at in one step: nothing is held back for longer than that takes.
const STEP: usize = 1 << 13;

/// Time that a count may take where little should be told of it.
const BRIEFLY: Duration = Duration::from_secs(2);

/// Counts for a short time the bytes that only the past of `store` has; tells them in words. None
/// if it keeps no history.
pub(in crate::command) fn briefly(store: &dyn Store) -> weft_store::Result<Option<(String, Value)>> {
    let Some(history) = store.history()? else { return Ok(None) };
    let Some(mut count) = PastCount::begin(store, Counted::All)? else { return Ok(None) };
    let begun = Instant::now();
    let mut has_more = true;
    while has_more && begun.elapsed() < BRIEFLY {
        has_more = count.step(store, STEP)?;
    }
    let costs = count.end(store)?;
    let (bytes, is_complete) = (costs.all(), costs.is_complete && !has_more);
    let least = if is_complete { "" } else { "at least " };
    let told = format!(
        "{least}{} that only the past has, {} of that to yield; kept by the rule '{}'",
        size::show(bytes.all()),
        size::show(bytes.unpinned),
        history.rule
    );
    let value = json!({
        "rule": history.rule,
        "bytes": bytes.all(),
        "bytes_unpinned": bytes.unpinned,
        "bytes_pinned": bytes.pinned,
        "complete": is_complete,
    });
    Ok(Some((told, value)))
}

/// Rows of versions, and bytes that the past alone has.
pub(super) struct Costs {
    versions: VersionCounts,
    bytes: PastCosts,
}

impl Costs {
    /// Counts those of `store`. None if it keeps no history.
    pub(super) fn count(store: &dyn Store) -> weft_store::Result<Option<Costs>> {
        let bar = steps();
        let step = "counting";
        bar.show(Progress { step, done: 0, total: 1 });
        let versions = store.version_counts()?;
        let total = versions.extents + versions.contents;
        let Some(mut count) = PastCount::begin(store, Counted::All)? else { return Ok(None) };
        while count.step(store, STEP)? {
            let done = count.versions();
            bar.show(Progress { step, done, total: total.max(done) });
        }
        Ok(Some(Costs { versions, bytes: count.end(store)? }))
    }

    pub(super) fn print(&self) {
        let VersionCounts { inodes, contents, names, extents, xattrs } = self.versions;
        let rows = shown::counted(self.versions.all(), "row", "rows");
        outln!(
            "versions    {rows}: inodes {inodes}, content {contents}, names {names}, extents {extents}, attributes {xattrs}"
        );
        let bytes = self.bytes.all();
        let least = if self.bytes.is_complete { "" } else { "at least " };
        outln!("bytes       {least}{} that only the past has", size::show(bytes.all()));
        outln!("  to yield  {}, which no snapshot has", size::show(bytes.unpinned));
        outln!("  pinned    {}, which snapshots have", size::show(bytes.pinned));
    }

    pub(super) fn as_json(&self) -> Value {
        let bytes = self.bytes.all();
        json!({
            "rows": self.versions.all(),
            "versions": self.versions,
            "bytes": bytes.all(),
            "bytes_unpinned": bytes.unpinned,
            "bytes_pinned": bytes.pinned,
            "complete": self.bytes.is_complete,
        })
    }
}
