//! 4 KiB at random places of one file.

use crate::place::Place;
use crate::scale::Scale;
use crate::timing::time;
use anyhow::{Result, ensure};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

pub(super) const BLOCK: usize = 4096;

/// Calls in a sample without sync, and with.
const CALLS: usize = 20_000;
const CALLS_SYNCED: usize = 2000;

/// The sync after each write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sync {
    Never,
    /// fdatasync(2).
    Data,
    /// fsync(2).
    All,
}

/// Places in an order that is the same each time.
struct Places {
    state: u64,
    count: u64,
}

impl Places {
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % self.count * BLOCK as u64
    }
}

/// A file of a quarter of `--size`.
pub(super) fn prepare(place: &Place, scale: &Scale) -> Result<(File, u64)> {
    filled(place, "blocks", scale.size.div_ceil(4))
}

/// A file of `mebibytes`, each block filled with the low byte of its number, and the number of
/// blocks.
fn filled(place: &Place, name: &str, mebibytes: usize) -> Result<(File, u64)> {
    let count = (mebibytes << 20) as u64 / BLOCK as u64;
    let path = place.work.join(name);
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
    if file.metadata()?.len() != count * BLOCK as u64 {
        let run = 256;
        for start in (0..count).step_by(run) {
            let bytes: Vec<u8> =
                (start..count.min(start + run as u64)).flat_map(|i| [(i & 0xff) as u8; BLOCK]).collect();
            file.write_all_at(&bytes, start * BLOCK as u64)?;
        }
    }
    file.sync_all()?;
    Ok((file, count))
}

pub(super) fn read_cold(place: &Place, scale: &Scale) -> Result<f64> {
    let (file, count) = prepare(place, scale)?;
    drop(file);
    place.make_cold()?;
    let file = File::open(place.work.join("blocks"))?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random)?;
    let mut places = Places { state: 1, count };
    let mut buffer = [0; BLOCK];
    let (calls, keeps) = (CALLS_SYNCED, place.keeps_content());
    let taken = time(|| {
        for _ in 0..calls {
            let offset = places.next();
            file.read_exact_at(&mut buffer, offset)?;
            ensure!(!keeps || buffer[17] == ((offset / BLOCK as u64) & 0xff) as u8, "content is wrong");
        }
        Ok(())
    })?;
    Ok(calls as f64 / taken.as_secs_f64())
}

/// Writes `calls` blocks at places that follow from `seed`.
pub(super) fn write_some(file: &File, count: u64, seed: u64, calls: usize, sync: Sync) -> Result<()> {
    let mut places = Places { state: seed, count };
    for _ in 0..calls {
        let offset = places.next();
        // The same bytes as before, so that reading still knows what to expect.
        file.write_all_at(&[((offset / BLOCK as u64) & 0xff) as u8; BLOCK], offset)?;
        match sync {
            Sync::Never => {}
            Sync::Data => file.sync_data()?,
            Sync::All => file.sync_all()?,
        }
    }
    Ok(())
}

pub(super) fn write(place: &Place, scale: &Scale) -> Result<f64> {
    let (file, count) = prepare(place, scale)?;
    let taken = time(|| write_some(&file, count, 2, CALLS, Sync::Never))?;
    file.sync_all()?;
    Ok(CALLS as f64 / taken.as_secs_f64())
}

pub(super) fn write_fsync(place: &Place, scale: &Scale) -> Result<f64> {
    let (file, count) = prepare(place, scale)?;
    let taken = time(|| write_some(&file, count, 3, CALLS_SYNCED, Sync::All))?;
    Ok(CALLS_SYNCED as f64 / taken.as_secs_f64())
}

pub(super) fn write_fsync_four(place: &Place, scale: &Scale) -> Result<f64> {
    let (file, count) = prepare(place, scale)?;
    four_writers(&[(&file, count); 4])
}

/// Each writer has a file of its own.
pub(super) fn write_fsync_four_files(place: &Place, scale: &Scale) -> Result<f64> {
    let files = four_files(place, scale)?;
    four_writers(&files.each_ref().map(|(file, count)| (file, *count)))
}

/// Four files, together of a quarter of `--size`, and the number of blocks of each.
pub(super) fn four_files(place: &Place, scale: &Scale) -> Result<[(File, u64); 4]> {
    let file = |i: usize| filled(place, &format!("blocks.{i}"), scale.size.div_ceil(16));
    Ok([file(0)?, file(1)?, file(2)?, file(3)?])
}

fn four_writers(files: &[(&File, u64)]) -> Result<f64> {
    let taken = time(|| write_together(files, CALLS_SYNCED / 4, Sync::All))?;
    Ok((CALLS_SYNCED / 4 * 4) as f64 / taken.as_secs_f64())
}

/// Writes `calls` blocks of each of `files` at once.
pub(super) fn write_together(files: &[(&File, u64)], calls: usize, sync: Sync) -> Result<()> {
    std::thread::scope(|scope| {
        let writers = (4..).zip(files.iter().copied());
        let writers =
            writers.map(|(seed, (file, count))| scope.spawn(move || write_some(file, count, seed, calls, sync)));
        let writers: Vec<_> = writers.collect();
        writers.into_iter().try_for_each(|writer| writer.join().expect("a writer does not panic"))
    })
}
