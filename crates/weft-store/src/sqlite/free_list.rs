//! The list of free pages of a database file, and a seal that tells whether it is as it was left.
//!
//! SQLite believes its list of free pages: one wrong byte in it names a page that is in use, and
//! what is written next goes over that. So whenever the whole write-ahead log has been copied into
//! the database, a digest of the list is put into its header, into bytes that SQLite reserves and
//! never looks at (72 to 91). Before the first change of a mount the list is compared with it.
//!
//! The seal speaks of the database file alone, which stays as it is between two copies of the log:
//! pages in the log are verified by the log's own sums. It names SQLite's count of changes of the
//! first page (24 to 27), which moves with each change of the list: a seal that names another count
//! says nothing. While the log is copied there is none, since of pages that were not synced any may
//! reach the disk.

use super::pages::{Committed, PageSet, header, word};
use crate::error::{Error, Result};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Offset of the seal in the header: the count of changes, and the start of a digest.
const SEAL_AT: usize = 72;
const SEAL_BYTES: usize = 20;

/// Bytes of the seal that are of the digest.
const DIGEST_BYTES: usize = SEAL_BYTES - 4;

/// The list of free pages as it lies in a file.
struct List {
    /// All of it, one page after another.
    bytes: Vec<u8>,
    /// The pages of it.
    pages: PageSet,
    /// The reason that it cannot be right, if so.
    wrong: Option<String>,
}

/// The seal of a `list` below `header`.
fn seal_of(header: &[u8], list: &List) -> [u8; SEAL_BYTES] {
    let mut seal = [0; SEAL_BYTES];
    seal[..4].copy_from_slice(&header[24..28]);
    seal[4..].copy_from_slice(&weft_digest::digest(&list.bytes)[..DIGEST_BYTES]);
    seal
}

impl List {
    /// Reads the list (file format, 1.5), as far as it can be one.
    fn read(pages: &Committed<'_>) -> io::Result<List> {
        let mut page = vec![0; pages.page_bytes()];
        pages.read(1, &mut page)?;
        let entries_max = ((pages.page_bytes() - usize::from(page[20])) / 4).saturating_sub(2);
        let (mut next, count) = (word(&page, 32), word(&page, 36));
        let mut list = List { bytes: page[32..40].to_vec(), pages: PageSet::new(pages.last()), wrong: None };
        let mut found = 0;
        while next != 0 {
            if next == 1 || !list.pages.insert(next) {
                list.wrong = Some(format!("page {next} cannot be part of it"));
                return Ok(list);
            }
            pages.read(next, &mut page)?;
            let entries = word(&page, 4) as usize;
            if entries > entries_max {
                list.wrong = Some(format!("page {next} names too many pages"));
                return Ok(list);
            }
            list.bytes.extend_from_slice(&page[..8 + 4 * entries]);
            for at in (8..8 + 4 * entries).step_by(4) {
                let named = word(&page, at);
                if named == 1 || !list.pages.insert(named) {
                    let what = format!("page {next} names page {named}, which is beyond the end or free twice");
                    list.wrong = list.wrong.or(Some(what));
                }
            }
            found += 1 + entries as u64;
            next = word(&page, 0);
        }
        if found != u64::from(count) && list.wrong.is_none() {
            list.wrong = Some(format!("it has {found} pages, and the header counts {count}"));
        }
        Ok(list)
    }
}

/// The pages of the list as `pages` has it, as far as it can be one.
pub(super) fn free(pages: &Committed<'_>) -> io::Result<PageSet> {
    Ok(List::read(pages)?.pages)
}

/// Returns the reason that the list of free pages in the database `file` is not as it was left, if
/// that can be told. The list is between two states if pages wait in the write-ahead log
/// (`is_copied` is false), and then only a seal counts.
fn look(file: &File, is_copied: bool) -> io::Result<Option<String>> {
    let header = header(file)?;
    let seal = &header[SEAL_AT..SEAL_AT + SEAL_BYTES];
    let is_sealed = seal[4..].iter().any(|byte| *byte != 0) && seal[..4] == header[24..28];
    if !is_sealed && !is_copied {
        return Ok(None);
    }
    let list = List::read(&Committed::alone(file)?)?;
    let is_other = is_sealed && seal != seal_of(&header, &list);
    Ok(match list.wrong {
        Some(wrong) if is_other || !is_sealed => Some(wrong),
        _ if is_other => Some("it has another digest".into()),
        _ => None,
    })
}

/// Describes, in a line, the damage to the list of free pages of the `database` in `file`, if that
/// can be told. `is_copied` as there are no frames in the write-ahead log.
pub(super) fn damage(file: &File, database: &Path, is_copied: bool) -> Result<Option<String>> {
    Ok(wrong(file, database, is_copied)?.map(|wrong| line(database, Some(&wrong))))
}

/// Returns the reason that the list of free pages in `file` is not as it was left, judged as by
/// [`damage`].
pub(super) fn wrong(file: &File, database: &Path, is_copied: bool) -> Result<Option<String>> {
    look(file, is_copied).map_err(|source| Error::Io { what: "cannot read", path: database.into(), source })
}

/// The line that tells damage of the list of `database`, and how it is `wrong` if that is known.
pub(super) fn line(database: &Path, wrong: Option<&str>) -> String {
    let wrong = wrong.map(|wrong| format!(" ({wrong})")).unwrap_or_default();
    format!(
        "the list of free pages in {} is damaged{wrong}: what is written next could go over pages that are in use; \
         'weft check --repair VOLUME' rebuilds the database without that list",
        database.display()
    )
}

/// Seals the list in `file`, which has all that was committed. One that cannot be right is not.
pub(super) fn seal(file: &File) -> io::Result<()> {
    let header = header(file)?;
    let list = List::read(&Committed::alone(file)?)?;
    if list.wrong.is_some() {
        return Ok(());
    }
    file.write_all_at(&seal_of(&header, &list), SEAL_AT as u64)
}

/// Takes the seal from `file`, durably.
pub(super) fn unseal(file: &File) -> io::Result<()> {
    file.write_all_at(&[0; SEAL_BYTES], SEAL_AT as u64)?;
    file.sync_data()
}
