//! The list of free pages, where it is all that is broken: the database is made anew without it.
//!
//! SQLite's `VACUUM` reads the trees alone, and replaces all of the database in one transaction: it
//! fails, and changes nothing, where a tree cannot be read. What rows hold is checked afterwards.

use super::integrity::{ADVICE, is_of_an_index};
use super::{Checker, Elsewhere, check_rows, failed};
use crate::error::{Error, Result};
use crate::files;
use crate::finding::{CheckOptions, Finding, Outcome, Progress, Repair};
use crate::sqlite::free_list;
use crate::sqlite::layout::Layout;
use rusqlite::Connection;

/// The state of the list of free pages.
#[derive(Debug)]
pub(super) enum FreePages {
    /// Nothing was found that SQLite would not tell.
    AsFound,
    /// It is not as it was left, as this says.
    Damaged(String),
    /// The database is to be made anew without it, for what this says.
    ToRebuild(Vec<String>),
    /// The database was made anew.
    Rebuilt,
}

/// Complaints that are told.
const TOLD_MAX: usize = 10;

/// Looks at the list of free pages of the volume of `layout`. Before anything else opens the
/// database: closing a file drops all locks of the process on it.
pub(super) fn look(layout: &Layout) -> Result<Option<String>> {
    let database = &layout.database;
    let opened = files::open(files::options().read(true), database);
    let file = opened.map_err(|source| Error::Io { what: "cannot open", path: database.clone(), source })?;
    let is_copied = layout.wal().metadata().map_or(true, |wal| wal.len() == 0);
    free_list::damage(&file, database, is_copied)
}

/// True if a complaint of SQLite is of the list of free pages, or follows from what is wrong there
/// (`sqlite3BtreeIntegrityCheck`): a page in use that the list names is met twice, and what only it
/// leads to is not met.
fn is_of_the_list(complaint: &str) -> bool {
    complaint.starts_with("Freelist: ")
        || complaint.contains("2nd reference to page ")
        || complaint.starts_with("Page ") && complaint.ends_with(": never used")
}

impl Checker<'_> {
    /// Tells what is wrong with the list of free pages, if that is all that SQLite complains of, or
    /// has it made anew. True if the check must not go on with this database, whose transaction is
    /// ended.
    pub(super) fn are_free_pages_damaged(&mut self, complaints: &[String]) -> Result<bool> {
        let told = match &self.free_pages {
            FreePages::Damaged(told) => vec![told.clone()],
            FreePages::AsFound => Vec::new(),
            FreePages::ToRebuild(_) | FreePages::Rebuilt => return Ok(false),
        };
        let is_any = !told.is_empty() || complaints.iter().any(|complaint| is_of_the_list(complaint));
        let are_trees_whole = complaints.iter().all(|complaint| is_of_the_list(complaint) || is_of_an_index(complaint));
        if self.elsewhere.is_some() || !is_any || !are_trees_whole {
            told.into_iter().for_each(|what| self.volume_finding(what));
            return Ok(false);
        }
        let mut told = if told.is_empty() {
            let database = self.layout.database.display();
            vec![format!(
                "the list of free pages in {database} is damaged: 'weft check --repair VOLUME' rebuilds the database \
                 without that list"
            )]
        } else {
            told
        };
        told.extend(complaints.iter().take(TOLD_MAX).map(|line| format!("database: {line}")));
        if complaints.len() > TOLD_MAX {
            told.push(format!("database: and {} more", complaints.len() - TOLD_MAX));
        }
        self.connection.execute_batch("ROLLBACK").map_err(failed)?;
        match self.options.repair {
            Repair::No => told.into_iter().for_each(|what| self.volume_finding(what)),
            Repair::Yes | Repair::Discard => self.free_pages = FreePages::ToRebuild(told),
        }
        Ok(true)
    }
}

/// Makes the database anew without its list of free pages, for what is `told`, and checks it then.
pub(super) fn rebuild(
    connection: Connection,
    layout: Layout,
    options: CheckOptions,
    (elsewhere, told): (Option<Elsewhere<'_>>, Vec<String>),
    progress: &mut dyn FnMut(Progress),
) -> Result<Vec<Finding>> {
    let finding = |outcome| move |what| Finding { path: None, what, outcome };
    if let Err(error) = connection.execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)") {
        let mut findings: Vec<_> = told.into_iter().map(finding(Outcome::Damaged)).collect();
        let what = format!("the database could not be made anew without its list of free pages: {error}; {ADVICE}");
        findings.push(finding(Outcome::Damaged)(what));
        return Ok(findings);
    }
    let mut findings: Vec<_> = told.into_iter().map(finding(Outcome::Repaired)).collect();
    findings.extend(check_rows(connection, layout, options, (elsewhere, FreePages::Rebuilt), progress)?);
    Ok(findings)
}
