//! Dependence of rates on how many names a directory has: as many files in directories of a
//! thousand names each, and all of them in one. Bursts of a thousand files end before anything is
//! committed, and would compare other things besides.

use super::files;
use crate::place::Place;
use crate::scale::Scale;
use crate::timing::time;
use anyhow::Result;
use rustix::fd::OwnedFd;
use std::ffi::CString;
use std::path::PathBuf;
use std::time::Duration;

/// Names in each of the small directories.
const FEW: usize = 1000;

pub(super) const CREATE: &[(&str, &str)] = &[("flat-create-few", "files/s"), ("flat-create-all", "files/s")];
pub(super) const STAT: &[(&str, &str)] = &[("flat-stat-few", "calls/s"), ("flat-stat-all", "calls/s")];
pub(super) const UNLINK: &[(&str, &str)] = &[("flat-unlink-few", "files/s"), ("flat-unlink-all", "files/s")];

/// Files with numbers, `each` of them in a directory.
struct Spread {
    path: PathBuf,
    names: Vec<CString>,
    each: usize,
}

impl Spread {
    fn fresh(place: &Place, name: &str, count: usize, each: usize) -> Result<Spread> {
        let path = place.fresh(name)?;
        (0..count.div_ceil(each)).try_for_each(|i| std::fs::create_dir(path.join(i.to_string())))?;
        Ok(Spread { path, names: files::names(count)?, each })
    }

    fn filled(place: &Place, name: &str, count: usize, each: usize) -> Result<Spread> {
        let spread = Spread::fresh(place, name, count, each)?;
        spread.time(make_empty)?;
        Ok(spread)
    }

    /// Times `call` on all files, one after the other.
    fn time(&self, mut call: impl FnMut(&OwnedFd, &CString) -> Result<()>) -> Result<Duration> {
        time(|| {
            self.names.chunks(self.each).enumerate().try_for_each(|(i, names)| {
                let directory = files::open_directory(&self.path.join(i.to_string()))?;
                names.iter().try_for_each(|name| call(&directory, name))
            })
        })
    }

    fn rate(&self, call: impl FnMut(&OwnedFd, &CString) -> Result<()>) -> Result<f64> {
        Ok(self.names.len() as f64 / self.time(call)?.as_secs_f64())
    }
}

fn make_empty(directory: &OwnedFd, name: &CString) -> Result<()> {
    files::make(directory, name, &[])
}

/// `rate` of the files in small directories, and of those in one.
fn both(place: &Place, scale: &Scale, rate: impl Fn(&str, usize) -> Result<f64>) -> Result<Vec<f64>> {
    let rates = vec![rate("few", FEW)?, rate("all", scale.count)?];
    place.retire("few")?;
    place.retire("all")?;
    Ok(rates)
}

pub(super) fn create(place: &Place, scale: &Scale) -> Result<Vec<f64>> {
    both(place, scale, |name, each| Spread::fresh(place, name, scale.count, each)?.rate(make_empty))
}

pub(super) fn stat(place: &Place, scale: &Scale) -> Result<Vec<f64>> {
    both(place, scale, |name, each| Spread::filled(place, name, scale.count, each)?.rate(files::look))
}

pub(super) fn unlink(place: &Place, scale: &Scale) -> Result<Vec<f64>> {
    both(place, scale, |name, each| Spread::filled(place, name, scale.count, each)?.rate(files::remove))
}
