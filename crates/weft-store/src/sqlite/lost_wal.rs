//! Losses with the write-ahead log of a volume, looked for before SQLite opens it: damage in it,
//! which SQLite passes over, or commits between the database and it.

use super::foreign::Alone;
use super::gap::{self, Gap};
use super::layout::{Layout, remove_file};
use super::salvage;
use super::torn::is_torn;
use super::wal::{Found, PAGE_DEFAULT, Wal};
use crate::copies::sync_beside;
use crate::error::{Error, Result};

/// The reasons that a mount does not go on from the write-ahead log by itself.
pub(super) struct LostWal {
    /// The damage to it, if any.
    rot: Option<String>,
    /// The gap between it and the database.
    gap: Option<Gap>,
}

impl LostWal {
    /// Looks at the log of the volume of `layout`, which has `alone` without it. None if all is in
    /// order. No file of the database may be open: closing it drops the locks on it.
    pub(super) fn look(layout: &Layout, alone: &Alone) -> Result<Option<LostWal>> {
        let Some(wal) = Wal::look(&layout.database)? else { return Ok(None) };
        let (found, first) = gap::scan(&wal)?;
        let lost = LostWal { rot: rot_of_log(&found, layout)?, gap: Gap::behind(alone, first) };
        Ok(Some(lost).filter(|lost| lost.rot.is_some() || lost.gap.is_some()))
    }

    /// The refusal of the volume of `layout`.
    pub(super) fn refusal(&self, layout: &Layout) -> Error {
        match (&self.rot, self.gap) {
            (None, Some(gap)) => gap.refusal(layout),
            (why, _) => would_lose(layout, why.as_deref().unwrap_or_default()),
        }
    }

    /// Gives up what is lost of the volume of `layout` whose files are those of `files`, where
    /// there is a copy of the log; describes it. What the log's own sums put right is not lost. A
    /// log that does not go on from the database is removed.
    pub(super) fn give_up(self, layout: &Layout, files: &Layout, alone: &Alone) -> Result<Vec<String>> {
        let corrected = correct(files)?.map(|told| {
            format!("nothing where the write-ahead log {} tells the right bytes ({told})", layout.wal().display())
        });
        let left = if corrected.is_some() { LostWal::look(files, alone)? } else { Some(self) };
        if left.as_ref().is_some_and(|left| left.gap.is_some()) {
            remove_file(&files.wal())?;
            sync_beside(&files.wal())?;
        }
        let left = left.map(|left| left.given_up(layout)).unwrap_or_default();
        Ok(corrected.into_iter().chain(left).collect())
    }

    fn given_up(self, layout: &Layout) -> Vec<String> {
        let rot = self.rot.map(|why| format!("the write-ahead log {} is damaged: {why}", layout.wal().display()));
        rot.into_iter().chain(self.gap.map(|gap| gap.given_up(layout))).collect()
    }
}

/// Puts right what the write-ahead log of `layout` itself tells of the damage in it; says what.
fn correct(layout: &Layout) -> Result<Option<String>> {
    let Some(mut wal) = Wal::open(&layout.database)? else { return Ok(None) };
    let told = wal.correct(PAGE_DEFAULT, salvage::holds)?;
    if told.is_empty() {
        return Ok(None);
    }
    wal.write_corrections()?;
    Ok(Some(told.join("; ")))
}

/// The refusal of the volume of `layout` for its write-ahead log, if there is one. Where only
/// copies of its files are read, they are those of `read`.
pub(super) fn refusal(layout: &Layout, read: &Layout) -> Result<Option<Error>> {
    Ok(LostWal::look(read, &Alone::look(read))?.map(|lost| lost.refusal(layout)))
}

/// Returns the damage to the write-ahead log in which all this was `found`, if any.
fn rot_of_log(found: &Found, layout: &Layout) -> Result<Option<String>> {
    let Some(rot) = &found.rot else { return Ok(None) };
    if !rot.is_certain && is_torn(layout)? {
        return Ok(None);
    }
    Ok(Some(format!("{}, after {} whole frames that end a commit", rot.why, found.committed)))
}

/// The refusal of a volume whose write-ahead log is damaged.
fn would_lose(layout: &Layout, why: &str) -> Error {
    let (wal, volume) = (layout.wal(), layout.volume.display());
    Error::Lost(format!(
        "the write-ahead log {} is damaged ({why}): commits behind that would be lost, synced ones too; \
         'weft check --salvage VOLUME NEW' brings all files that can be verified to a new volume, those behind the \
         damage too; a copy of {volume} brings it back as it was when the copy was made; 'weft mount --accept-loss' \
         goes on from the log where its own sums tell the right bytes, else gives up all commits behind the damage, \
         and keeps a copy of the log",
        wal.display()
    ))
}
