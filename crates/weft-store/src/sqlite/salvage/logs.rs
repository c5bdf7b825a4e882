//! The write-ahead log of a broken volume, and the part of it that lies over the database.
//!
//! A write-ahead log of another moment is whole by itself, and would put older rows over newer
//! ones. It belongs to the database if it does not end before what the database has without it, nor
//! begin after that, and if the last commit of the database is the same one with it. Both are told
//! by rows, for SQLite may not be able to read any.

use super::log_pages::{Log, LogPages};
use super::pages::{Pages, page_bytes};
use super::rows::{self, Found};
use super::{Missing, io, older};
use crate::batch::Counters;
use crate::error::Result;
use crate::files;
use crate::log::{IntentLog, Loss, epoch_as_of, misfit};
use crate::sqlite::gap::{self, Gap};
use crate::sqlite::inspect::inspect;
use crate::sqlite::layout::Layout;
use crate::sqlite::wal::{PAGE_DEFAULT, Wal};
use crate::store::Header;
use std::path::Path;

/// The content found in a broken volume.
pub(super) struct Looked {
    pub(super) pages: Pages,
    pub(super) found: Found,
    /// Number of damaged pages.
    pub(super) damaged: u64,
    /// Losses found in its files.
    pub(super) missing: Vec<Missing>,
}

pub(super) fn missing(kind: &'static str, path: &Path, why: impl Into<String>) -> Missing {
    Missing { kind, what: path.display().to_string().into_bytes(), why: why.into() }
}

/// Finds the rows of the volume of `layout`, with those in its write-ahead log if that belongs to
/// it.
pub(super) fn look(layout: &Layout, progress: &mut dyn FnMut(u64, u64)) -> Result<Looked> {
    let mut told = Vec::new();
    if let Err(error) = inspect(layout) {
        told.push(missing("volume", &layout.volume, error.to_string()));
    }
    let of_log = |why: String| missing("write-ahead log", &layout.wal(), why);
    let log = log(layout).unwrap_or_else(|error| {
        told.push(of_log(format!("{error}; nothing of it is used")));
        None
    });
    let alone = find(layout, None, progress)?;
    let Some(log) = log else { return Ok(alone.with(told)) };
    told.extend(corrected(&log.corrected).map(of_log));
    let first = gap::scan(log.taken.wal())?.1;
    let other = |found: &Found| before_log(&alone.found, first.as_ref()).or_else(|| foreign(&alone.found, found));
    let taken = if log.taken.is_empty() { None } else { Some(find(layout, Some(&log.taken), progress)?) };
    let is_damaged = log.damage.is_some() || is_behind(layout, &taken.as_ref().unwrap_or(&alone).found);
    let damage = log.damage.clone().unwrap_or_else(|| format!("what follows its frame {} is damaged", log.frames));
    let mut is_logged = false;
    if let Some(behind) = log.behind.filter(|_| is_damaged) {
        let mut all = find(layout, Some(&behind), progress)?;
        is_logged = are_logged(layout, &taken.as_ref().unwrap_or(&alone).found, &all.found);
        if other(&all.found).is_none() && !all.found.inodes.is_empty() && !is_logged {
            told.push(of_log(format!("{damage}; {} whole frames before and behind it are used", log.all)));
            if behind.has_damaged() {
                all.pages = all.pages.with(log.taken);
                told.extend(older::take(&all.pages, &mut all.found).map(of_log));
            }
            return Ok(all.with(told));
        }
    }
    if log.damage.is_some() {
        let behind = if is_logged { "the intent log has the operations" } else { "commits" };
        let are = if is_logged { "behind them" } else { "behind them are missing" };
        told.push(of_log(format!("{damage}; the {} whole frames before it are used, and {behind} {are}", log.frames)));
    }
    let Some(taken) = taken else { return Ok(alone.with(told)) };
    let unused = match other(&taken.found) {
        Some(why) => format!("{why}, so it is of another moment: nothing of it is used"),
        None if taken.found.inodes.is_empty() => {
            "no inode can be read with it; what the database has without it is brought, and may be older".into()
        }
        None => return Ok(taken.with(told)),
    };
    told.push(of_log(unused));
    Ok(alone.with(told))
}

impl Looked {
    fn with(self, missing: Vec<Missing>) -> Looked {
        Looked { missing, ..self }
    }
}

/// The rows of the database of `layout` under the pages of `log`.
fn find(layout: &Layout, log: Option<&LogPages>, progress: &mut dyn FnMut(u64, u64)) -> Result<Looked> {
    let pages = open(layout, log.cloned())?;
    let (found, damaged) = rows::find(&pages, progress);
    Ok(Looked { pages, found, damaged, missing: Vec::new() })
}

/// Describes damage that the log itself puts right.
fn corrected(corrected: &[String]) -> Option<String> {
    let more = corrected.len().checked_sub(1)?;
    let and = if more > 0 { format!("; {more} more bytes are wrong") } else { String::new() };
    Some(format!("{}{and}; that is put right, and its frames are used", corrected[0]))
}

/// The header of a volume with the rows `found` as of the newest commit that any of them tells of:
/// the volume's own row may be an older one. None if that is not known.
pub(super) fn current(layout: &Layout, found: &Found) -> Option<Header> {
    let (own, commit) = (found.volume.as_ref()?, found.newest());
    if own.commit >= commit {
        return Some(own.clone());
    }
    let (_, op) = *found.commits.get(&commit)?;
    let epoch = epoch_as_of(&layout.log, own, commit).ok()?.unwrap_or(0).max(own.counters.epoch);
    Some(Header { commit, counters: Counters { op, epoch, ..own.counters }, ..own.clone() })
}

/// True if the intent log has all operations that lie between the states `before` damage and
/// `behind` it: with them the former lacks nothing.
fn are_logged(layout: &Layout, before: &Found, behind: &Found) -> bool {
    let last_logged = |before: &Header| {
        let mut log = IntentLog::read(&layout.log).ok()??.with(Loss::Accept);
        log.check(before).ok()?;
        log.records().last().map(|record| record.last)
    };
    let logged = before.volume.as_ref().and_then(last_logged);
    logged.zip(current(layout, behind)).is_some_and(|(logged, behind)| logged >= behind.counters.op)
}

/// True if the intent log knows of commits that a volume with the rows `found` lacks.
fn is_behind(layout: &Layout, found: &Found) -> bool {
    let misfit = found.volume.as_ref().and_then(|volume| misfit(&layout.log, volume).ok()?);
    misfit.is_some_and(|misfit| misfit.is_ahead)
}

fn open(layout: &Layout, log: Option<LogPages>) -> Result<Pages> {
    let file = files::open(files::options().read(true), &layout.database);
    let file = file.map_err(io("cannot open", &layout.database))?;
    Pages::open(file, log).map_err(io("cannot read", &layout.database))
}

/// The pages of the write-ahead log, if there is one.
fn log(layout: &Layout) -> Result<Option<Log>> {
    let Some(wal) = Wal::look(&layout.database)? else { return Ok(None) };
    let file = files::open(files::options().read(true), &layout.database);
    let file = file.map_err(io("cannot open", &layout.database))?;
    let page_bytes = match page_bytes(&file) {
        Some(bytes) => bytes,
        None => wal.page_bytes()?.unwrap_or(PAGE_DEFAULT),
    };
    Log::read(wal, page_bytes).map(Some)
}

/// Returns the reason that a write-ahead log that begins with commit `first` does not follow a
/// database that has the rows `alone` without it.
fn before_log(alone: &Found, first: Option<&Header>) -> Option<String> {
    let (volume, first) = (alone.volume.as_ref()?, first?);
    let last = alone.commits.keys().next_back().copied().max(Some(volume.commit))?;
    let gap = Gap::between(last, first.commit).filter(|_| volume.uuid == first.uuid);
    gap.map(Gap::why)
}

/// Returns the reason that a write-ahead log does not belong to a database that has the rows
/// `alone` without it, and the rows `with` together with it.
fn foreign(alone: &Found, with: &Found) -> Option<String> {
    if let (Some(alone), Some(with)) = (&alone.volume, &with.volume)
        && alone.uuid != with.uuid
    {
        return Some("it is of another volume".into());
    }
    // Each commit writes the volume's row. One elsewhere than in its own page is not the last one.
    let last = |found: &Found| found.volume.as_ref().map(|volume| volume.commit);
    let (newest, end) = (alone.newest(), with.opened.or_else(|| last(with).filter(|_| alone.opened.is_none())));
    if let Some(end) = end.filter(|end| *end < newest) {
        return Some(format!("it ends with commit {}, and the database has commit {} without it", end.0, newest.0));
    }
    let (number, sum) = alone.commits.last_key_value()?;
    let other = with.commits.get(number).is_some_and(|other| other != sum);
    other.then(|| format!("its commit {} is not the one that the database has", number.0))
}
