//! Small writes that programs make durable, with their rates and what the disk has to write for
//! them.
//!
//! The second figure counts the bytes that reach the device below until everything has settled: all
//! that is synced, and what a volume does when it is unmounted. Others who write to that device
//! meanwhile are counted, too.

use super::blocks::{self, BLOCK, Sync};
use crate::device::Device;
use crate::place::Place;
use crate::scale::Scale;
use crate::timing::time;
use anyhow::{Result, ensure};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::time::Duration;

/// Start of the units of what the disk has to do for a program: less is better.
pub(crate) const COST: &str = "disk bytes";

/// Bytes of an append.
const APPENDED: usize = 100;

/// Writers, each with a file of its own.
const WRITERS: usize = 4;

/// Writes before the one sync, as a multiple of `--count`.
const UNSYNCED: usize = 3;

pub(super) const FDATASYNC: &[(&str, &str)] =
    &[("random-write-fdatasync", "calls/s"), ("random-write-fdatasync-disk", "disk bytes/byte")];
pub(super) const FDATASYNC_FOUR: &[(&str, &str)] =
    &[("random-write-fdatasync-4-files", "calls/s"), ("random-write-fdatasync-4-files-disk", "disk bytes/byte")];
pub(super) const APPEND: &[(&str, &str)] =
    &[("append-100-fsync", "calls/s"), ("append-100-fsync-disk", "disk bytes/call")];
pub(super) const ONE_FSYNC: &[(&str, &str)] =
    &[("random-write-one-fsync", "calls/s"), ("random-write-one-fsync-disk", "disk bytes/byte")];

/// Work whose cost is counted.
#[derive(Clone, Copy)]
struct Work {
    calls: usize,
    /// Bytes that it writes, or 1 for each call: what the cost is shared among.
    units: usize,
}

impl Work {
    fn of_blocks(calls: usize) -> Work {
        Work { calls, units: calls * BLOCK }
    }

    /// Rate and cost of `run`. Nothing of the place may be open before it, nor after it. NaN in the
    /// place of the cost if no device is found.
    fn measure(self, place: &Place, run: impl FnOnce() -> Result<Duration>) -> Result<Vec<f64>> {
        place.settle()?;
        let device = Device::below(&place.work);
        let written = || device.as_ref().and_then(Device::bytes_written);
        let before = written();
        let taken = run()?;
        place.settle()?;
        let cost = written().zip(before).map(|(after, before)| (after - before) as f64 / self.units as f64);
        Ok(vec![self.calls as f64 / taken.as_secs_f64(), cost.unwrap_or(f64::NAN)])
    }
}

/// Each write of 4 KiB is synced.
pub(super) fn fdatasync(place: &Place, scale: &Scale) -> Result<Vec<f64>> {
    let (_, count) = blocks::prepare(place, scale)?;
    Work::of_blocks(scale.count).measure(place, || {
        let (file, _) = blocks::prepare(place, scale)?;
        time(|| blocks::write_some(&file, count, 8, scale.count, Sync::Data))
    })
}

/// The same by several writers, each in a file of its own.
pub(super) fn fdatasync_four(place: &Place, scale: &Scale) -> Result<Vec<f64>> {
    blocks::four_files(place, scale)?;
    let each = scale.count.div_ceil(WRITERS);
    Work::of_blocks(each * WRITERS).measure(place, || {
        let files = blocks::four_files(place, scale)?;
        time(|| blocks::write_together(&files.each_ref().map(|(file, count)| (file, *count)), each, Sync::Data))
    })
}

/// Lines added to a file, each synced.
pub(super) fn append(place: &Place, scale: &Scale) -> Result<Vec<f64>> {
    let path = place.fresh("appended")?.join("file");
    File::create(&path)?.sync_all()?;
    let line = [b'x'; APPENDED];
    let rates = Work { calls: scale.count, units: scale.count }.measure(place, || {
        let mut file = OpenOptions::new().append(true).open(&path)?;
        time(|| {
            (0..scale.count).try_for_each(|_| {
                file.write_all(&line)?;
                Ok(file.sync_all()?)
            })
        })
    })?;
    let is_right = std::fs::read(&path)? == line.repeat(scale.count);
    ensure!(is_right || !place.keeps_content(), "content is wrong");
    place.retire("appended")?;
    Ok(rates)
}

/// Many writes of 4 KiB, and one sync of all of them.
pub(super) fn one_fsync(place: &Place, scale: &Scale) -> Result<Vec<f64>> {
    let (_, count) = blocks::prepare(place, scale)?;
    let calls = UNSYNCED * scale.count;
    Work::of_blocks(calls).measure(place, || {
        let (file, _) = blocks::prepare(place, scale)?;
        time(|| {
            blocks::write_some(&file, count, 9, calls, Sync::Never)?;
            Ok(file.sync_all()?)
        })
    })
}
