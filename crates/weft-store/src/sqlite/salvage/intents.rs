//! The operations that were synced and not committed. They are copied into an intent log of the new
//! volume, whose first mount applies them as that of the broken one would have: each holds all that
//! was decided when it was made, and its number follows that of the commit that was brought.

use super::{Missing, failed, logs};
use crate::error::Result;
use crate::log::{IntentLog, Loss, Record, misfit};
use crate::sqlite::layout::Layout;
use crate::sqlite::open::{connect, read_header};
use crate::sqlite::read::sql;
use crate::sqlite::sums;
use crate::store::Header;

/// Bytes of an intent log beside its records: what begins each, and what fills its last sector.
const RECORD_EXTRA: u64 = 4096;

/// The result for the operations.
#[derive(Debug, Default)]
pub(super) struct Operations {
    /// Number of operations that wait in the new volume.
    pub(super) waiting: u64,
    /// Known losses.
    pub(super) missing: Vec<Missing>,
}

/// Copies the operations that wait in the log of `layout`, whose header is `volume`, to that of
/// `target`.
pub(super) fn bring(layout: &Layout, volume: Option<&Header>, target: &Layout) -> Operations {
    let of_log = |why: String| logs::missing("operations", &layout.log, why);
    let Some(volume) = volume else {
        let why = "the volume's own row is gone or an older one, so it is not known what was synced to it and not committed; none of \
                   it is brought";
        return Operations { waiting: 0, missing: vec![of_log(why.into())] };
    };
    let mut missing = Vec::new();
    let mut look = || -> Result<u64> {
        let Some(log) = IntentLog::read(&layout.log)? else {
            missing.extend(misfit(&layout.log, volume)?.map(|misfit| of_log(misfit.why)));
            return Ok(0);
        };
        let mut log = log.with(Loss::Accept);
        missing.extend(log.check(volume)?.map(|lost| of_log(lost.to_string())));
        if !log.carried().is_empty() {
            missing.push(of_log("bytes written over a damaged block are in it alone".into()));
        }
        let Some(last) = log.records().last().map(|last| last.last) else { return Ok(0) };
        let waiting = last.0.saturating_sub(volume.counters.op.0);
        if waiting > 0 {
            write(target, log.records())?;
        }
        Ok(waiting)
    };
    match look() {
        Ok(waiting) => Operations { waiting, missing },
        Err(error) => {
            missing.push(of_log(error.to_string()));
            Operations { waiting: 0, missing }
        }
    }
}

/// Writes `records` to the intent log of the new volume, which needs it from then on.
fn write(target: &Layout, records: &[Record]) -> Result<()> {
    let connection = connect(&target.database, 8)?;
    let header = read_header(&connection)?;
    let epoch = header.counters.epoch + 1;
    let bytes: u64 = records.iter().map(|record| 2 * record.bytes.len() as u64 + RECORD_EXTRA).sum();
    let mut log = IntentLog::open(&target.log, 2 * bytes)?;
    log.start(&header, epoch)?;
    records.iter().try_for_each(|record| log.append(record.first, record.last, &record.bytes.clone().into()))?;
    log.syncer()?.sync()?;
    connection.execute("UPDATE volume SET epoch = ?1", (sql(epoch),)).map_err(failed)?;
    sums::seal(&connection)?;
    connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").map_err(failed)?;
    connection.close().map_err(|(_, source)| failed(source))
}
