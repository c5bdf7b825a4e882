//! Tries, in memory, the operations that a mount will apply from the intent log.

use weft_store::log::IntentLog;
use weft_store::{Finding, Location, OpenOptions, Outcome, Waiting};
use weft_vfs::{ErrorKind, Unapplied, UnappliedList, Vfs};

const ADVICE: &str = "a mount is refused until it is given up with --accept-loss, which applies the rest";

/// Names the operations of `waiting` that a mount of the volume could not apply. Nothing is
/// written; a volume in PostgreSQL is held meanwhile. Reports nothing if the volume cannot be
/// opened.
pub fn rehearse(location: &Location, waiting: &Waiting) -> Vec<Finding> {
    // A mount that accepts the loss reports the rest.
    if waiting.operations == 0 || waiting.lost.is_some() {
        return Vec::new();
    }
    match unapplied(location) {
        None => Vec::new(),
        Some(Ok(found)) => findings(found),
        Some(Err(error)) => {
            let what = format!("the operations in the intent log could not be tried: {error}");
            let outcome = if error.kind() == ErrorKind::Corrupt { Outcome::Damaged } else { Outcome::Note };
            vec![Finding::new(None, what, outcome)]
        }
    }
}

/// Returns the operations in the intent log of a volume that a mount could not apply; none if the
/// volume cannot be opened.
pub fn unapplied(location: &Location) -> Option<weft_vfs::Result<UnappliedList>> {
    // The check of its rows reports why it cannot be opened.
    let volume = location.engine().open_to_read(OpenOptions::default()).ok()?;
    let file = volume.layout.as_ref().and_then(|layout| {
        let _rights = layout.rights().ok()?;
        IntentLog::read(&layout.log).ok().flatten()
    });
    let log = volume.log.or(file.map(Into::into));
    Some(Vfs::rehearse(volume.store, log))
}

fn findings(found: UnappliedList) -> Vec<Finding> {
    let more = found.more;
    let named = found.named.into_iter().map(|Unapplied { op, path, kind, why }| {
        let what = format!("operation {}, {kind}, was synced and cannot be applied: {why}; {ADVICE}", op.0);
        Finding::new(Some(path), what, Outcome::Damaged)
    });
    let what = format!("and {more} more operations that cannot be applied");
    let more = (more > 0).then(|| Finding::damage(what).of_places(usize::try_from(more).unwrap_or(usize::MAX)));
    named.chain(more).collect()
}
