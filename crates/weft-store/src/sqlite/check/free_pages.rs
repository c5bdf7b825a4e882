//! The list of free pages, where it is all that is broken: the database is rebuilt without it.
//!
//! SQLite's `VACUUM` reads the trees alone, and replaces all of the database in one transaction: it
//! fails, and changes nothing, where a tree cannot be read. Pages that no tree leads to are gone
//! then, and a page whose pointer was lost looks like one that the list lost. So it runs only where
//! the list is wrong, and where a copy that was made in the same way lacks nothing.

use super::integrity::{ADVICE, COMPLAINTS_MAX, is_of_an_index, lines};
use super::{Checker, check_rows, connect, failed};
use crate::error::{Error, Result};
use crate::files;
use crate::finding::{CheckOptions, Finding, Outcome, Progress, Repair};
use crate::sqlite::free_list;
use crate::sqlite::held::Held;
use crate::sqlite::layout::Layout;
use crate::sqlite::pages::{Committed, PageSet};
use crate::sqlite::wal::Wal;
use rusqlite::Connection;
use tempfile::TempDir;

/// The byte of a database that SQLite locks, on a page that it never uses (file format, 1.4).
const LOCKED_AT: u32 = 1 << 30;

/// The state of the list of free pages.
#[derive(Debug)]
pub(super) enum FreePages {
    /// Nothing was found that SQLite would not tell. These are free, if that was looked at.
    AsFound(Option<PageSet>),
    /// It is not as it was left, as this says.
    Damaged(String),
    /// It is all that SQLite complains of, or that follows from it.
    Suspect(Complaints),
    /// The database was rebuilt, or is a copy without it.
    Rebuilt,
}

/// The complaints of SQLite, and what more is known.
#[derive(Debug)]
pub(super) struct Complaints {
    /// The difference of the list from its last state, if a seal or the list itself tells.
    list: Option<String>,
    lines: Vec<String>,
}

/// Looks at the list of free pages of the volume of `layout`. Before anything else opens the
/// database: closing a file drops all locks of the process on it.
pub(super) fn look(layout: &Layout) -> Result<FreePages> {
    let database = &layout.database;
    let io = |what| move |source| Error::Io { what, path: database.clone(), source };
    let file = files::open(files::options().read(true), database).map_err(io("cannot open"))?;
    let wal = Wal::look(database)?;
    let is_copied = layout.wal().metadata().map_or(true, |wal| wal.len() == 0);
    if let Some(wrong) = free_list::wrong(&file, database, is_copied)? {
        return Ok(FreePages::Damaged(wrong));
    }
    let alone = Committed::alone(&file).map_err(io("cannot read"))?;
    let pages = match &wal {
        Some(wal) => alone.with(wal)?,
        None => alone,
    };
    Ok(FreePages::AsFound(Some(free_list::free(&pages).map_err(io("cannot read"))?)))
}

/// True if a complaint of SQLite is of a page that nothing leads to (`sqlite3BtreeIntegrityCheck`).
fn is_of_an_orphan(complaint: &str) -> bool {
    complaint.starts_with("Page ") && complaint.ends_with(": never used")
}

/// Returns what SQLite complains of in pages that neither a tree nor the list of `free` ones leads
/// to, or both, in its words. It does not look at them, nor at the list, where a view or a virtual
/// table comes first among its tables, as its hash tables go: a root page of 0 in that place asks
/// for a check of parts (`sqlite3BtreeIntegrityCheck`).
pub(super) fn untold(connection: &Connection, free: &PageSet) -> Result<Vec<String>> {
    let number = |name: &str| connection.query_row(&format!("PRAGMA {name}"), (), |row| row.get::<_, u32>(0));
    let (page_bytes, last) = (number("page_size").map_err(failed)?, number("page_count").map_err(failed)?);
    let mut used = PageSet::new(last);
    let mut statement = connection.prepare("SELECT pageno FROM dbstat").map_err(failed)?;
    let mut rows = statement.query(()).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        used.insert(row.get(0).map_err(failed)?);
    }
    let lock = LOCKED_AT / page_bytes + 1;
    let wrong = (1..=last).filter_map(|page| match (used.has(page), free.has(page)) {
        (true, true) => Some(format!("Freelist: 2nd reference to page {page}")),
        (false, false) if page != lock => Some(format!("Page {page}: never used")),
        _ => None,
    });
    Ok(wrong.take(COMPLAINTS_MAX).collect())
}

/// True if a complaint of SQLite is of the list of free pages, or of pages that are met twice, as
/// those in use that the list names.
fn is_of_the_list(complaint: &str) -> bool {
    complaint.starts_with("Freelist: ") || complaint.contains("2nd reference to page ")
}

impl Complaints {
    /// True if nothing but pages are complained of that neither a tree nor the list leads to.
    fn are_orphans_alone(&self) -> bool {
        self.list.is_none() && !self.lines.iter().any(|line| is_of_the_list(line))
    }

    /// Returns lines for the user; the first one gives advice.
    fn told(&self, layout: &Layout, is_safe: bool) -> Vec<String> {
        let database = &layout.database;
        let first = if is_safe {
            free_list::line(database, self.list.as_deref())
        } else {
            format!(
                "nothing leads to some pages of {}: rows that lie there are missing, and no repair in place would \
                 keep them; 'weft check --salvage VOLUME NEW' brings them to a new volume",
                database.display()
            )
        };
        std::iter::once(first).chain(lines(&self.lines)).collect()
    }
}

impl Checker<'_> {
    /// True if SQLite complains of nothing but free pages, and what follows: this check must not go
    /// on with the database, whose transaction is ended.
    pub(super) fn are_free_pages_damaged(&mut self, complaints: &[String]) -> Result<bool> {
        let list = match &self.free_pages {
            FreePages::Damaged(told) => Some(told.clone()),
            FreePages::AsFound(_) => None,
            FreePages::Suspect(_) | FreePages::Rebuilt => return Ok(false),
        };
        let is_of_free_pages = |complaint: &str| is_of_the_list(complaint) || is_of_an_orphan(complaint);
        let is_any = list.is_some() || complaints.iter().any(|complaint| is_of_free_pages(complaint));
        let are_trees_whole =
            complaints.iter().all(|complaint| is_of_free_pages(complaint) || is_of_an_index(complaint));
        if self.elsewhere.is_some() || !is_any || !are_trees_whole {
            if let Some(wrong) = list {
                self.volume_finding(free_list::line(&self.layout.database, Some(&wrong)));
            }
            return Ok(false);
        }
        self.connection.execute_batch("ROLLBACK").map_err(failed)?;
        self.free_pages = FreePages::Suspect(Complaints { list, lines: complaints.to_vec() });
        Ok(true)
    }
}

/// Judges the `complaints`, and rebuilds the database without its list of free pages if that is
/// asked for and loses nothing; it is checked then.
pub(super) fn settle(
    connection: Connection,
    layout: Layout,
    options: CheckOptions,
    complaints: &Complaints,
    progress: &mut dyn FnMut(Progress),
) -> Result<Vec<Finding>> {
    let finding = |outcome| move |what| Finding::new(None, what, outcome);
    let inspected = match inspect(&connection, &layout, progress) {
        Ok(inspected) => inspected,
        Err(error) => {
            let what = format!("the database could not be copied without its list of free pages: {error}; {ADVICE}");
            vec![finding(Outcome::Damaged)(what)]
        }
    };
    let is_safe =
        !complaints.are_orphans_alone() && inspected.iter().all(|finding| finding.outcome != Outcome::Damaged);
    let told = complaints.told(&layout, is_safe);
    if options.repair == Repair::No || !is_safe {
        let mut findings: Vec<_> = told.into_iter().map(finding(Outcome::Damaged)).collect();
        findings.extend(inspected);
        return Ok(findings);
    }
    connection.execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)").map_err(failed)?;
    let mut findings: Vec<_> = told.into_iter().map(finding(Outcome::Repaired)).collect();
    findings.extend(check_rows(connection, layout, options, (None, FreePages::Rebuilt), progress)?);
    Ok(findings)
}

/// Checks the content that the trees lead to: a copy of the database, made of them alone and
/// removed again.
fn inspect(connection: &Connection, layout: &Layout, progress: &mut dyn FnMut(Progress)) -> Result<Vec<Finding>> {
    // A name that could be another volume's is not to be taken, nor removed.
    let place = files::parent_of(&layout.database);
    let made = TempDir::with_prefix_in(".weft-inspected-", place);
    let directory =
        made.map_err(|source| Error::Io { what: "cannot make a directory in", path: place.into(), source })?;
    let copy = Layout { database: directory.path().join("database"), ..layout.clone() };
    let held = Held::at(&copy.database)?;
    let name = held.path.to_str().ok_or_else(|| Error::Unusable("the name of the volume is no UTF-8".into()))?;
    // The rows are nobody else's: SQLite takes a file that is there and empty.
    let made = files::open(files::options().write(true).create_new(true), &copy.database);
    made.map_err(|source| Error::Io { what: "cannot make", path: copy.database.clone(), source })?;
    connection.execute("VACUUM INTO ?1", (name,)).map_err(failed)?;
    let options = CheckOptions { repair: Repair::No, read_data: false };
    let copied = connect(&copy.database, 64)?;
    check_rows(copied, copy.clone(), options, (None, FreePages::Rebuilt), progress)
}
