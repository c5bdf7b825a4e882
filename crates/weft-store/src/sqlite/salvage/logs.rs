//! The write-ahead log of a broken volume, and the part of it that lies over the database.
//!
//! A write-ahead log of another moment is whole by itself, and would put older rows over newer
//! ones. It belongs to the database if it does not end before what the database has without it, nor
//! begin after that, and if the last commit of the database is the same one with it. Both are told
//! by rows, for SQLite may not be able to read any.

use super::overlay::Overlay;
use super::pages::{Pages, page_bytes};
use super::rows::{self, Found};
use super::{Missing, io};
use crate::error::Result;
use crate::files;
use crate::sqlite::gap::{self, Gap};
use crate::sqlite::inspect::inspect;
use crate::sqlite::layout::Layout;
use crate::sqlite::wal::Wal;
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
    let wal = layout.wal();
    let overlay = match overlay(layout) {
        Ok(Some((overlay, damage))) => {
            told.extend(damage.map(|damage| missing("write-ahead log", &wal, damage)));
            Some(overlay).filter(|overlay| !overlay.is_empty())
        }
        Ok(None) => None,
        Err(error) => {
            told.push(missing("write-ahead log", &wal, format!("{error}; nothing of it is used")));
            None
        }
    };
    let pages = open(layout, None)?;
    let (found, damaged) = rows::find(&pages, progress);
    let alone = Looked { pages, found, damaged, missing: told };
    let Some(overlay) = overlay else { return Ok(alone) };
    let pages = open(layout, Some(overlay))?;
    let (found, damaged) = rows::find(&pages, progress);
    let first = gap::first_in_log(layout)?;
    let unused = match older(&alone.found, first.as_ref()).or_else(|| foreign(&alone.found, &found)) {
        Some(why) => Some(format!("{why}, so it is of another moment: nothing of it is used")),
        None if found.inodes.is_empty() => {
            Some("no inode can be read with it; what the database has without it is brought, and may be older".into())
        }
        None => None,
    };
    match unused {
        Some(why) => {
            let mut alone = alone;
            alone.missing.push(missing("write-ahead log", &wal, why));
            Ok(alone)
        }
        None => Ok(Looked { pages, found, damaged, missing: alone.missing }),
    }
}

fn open(layout: &Layout, overlay: Option<Overlay>) -> Result<Pages> {
    let file = files::open(files::options().read(true), &layout.database);
    let file = file.map_err(io("cannot open", &layout.database))?;
    Pages::open(file, overlay).map_err(io("cannot read", &layout.database))
}

/// The pages of the write-ahead log, if there is one, and what is damaged of it.
fn overlay(layout: &Layout) -> Result<Option<(Overlay, Option<String>)>> {
    let Some(wal) = Wal::look(&layout.database)? else { return Ok(None) };
    let file = files::open(files::options().read(true), &layout.database);
    let file = file.map_err(io("cannot open", &layout.database))?;
    let page_bytes = match page_bytes(&file) {
        Some(bytes) => bytes,
        None => wal.page_bytes()?.unwrap_or(super::pages::PAGE_DEFAULT),
    };
    Overlay::read(wal, page_bytes).map(Some)
}

/// Returns the reason that a write-ahead log that begins with commit `first` does not follow a
/// database that has the rows `alone` without it.
fn older(alone: &Found, first: Option<&Header>) -> Option<String> {
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
