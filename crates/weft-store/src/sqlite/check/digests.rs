//! Checks of stored digests. Each follows from rows below it, so each is compared with the digest
//! that those give; wrong ones are rebuilt.
//!
//! But a digest of a file that is whole, and is not that of content whose rows are whole, is
//! evidence: the content is of another moment, or damaged where nothing else shows it. It stays
//! until the user gives it up. Other damage upsets digests, too: they are reported only where there
//! is none, and where a repair has changed the content, its digest follows.

use super::{Checker, FINDINGS_MAX, Finding, Outcome, survey};
use crate::digests::{Digester, ZeroValues};
use crate::error::{ErrorKind, Result};
use crate::finding::Repair;
use crate::sqlite::digests::Rows;
use crate::sqlite::read::sql;
use crate::sqlite::scan::{OTHER_CONTENT, Scan, Unlike, go_on};
use crate::store::Header;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Checker<'_> {
    pub(super) fn scan<T>(&self, header: &Header, look: impl FnOnce(&Scan<'_>) -> Result<T>) -> Result<T> {
        let digester = Digester::new(Arc::new(ZeroValues::default()));
        let segments = self.segments();
        let elsewhere = self.elsewhere.as_ref().map(|elsewhere| elsewhere.read);
        let rows =
            Rows { connection: &self.connection, segments: segments.as_ref(), wait: &|| (), elsewhere, keeping: None };
        look(&Scan { digester: &digester, rows: &rows, block_size: u64::from(header.options.block_size) })
    }

    /// Files whose content contradicts its digest before anything is repaired: a repair of
    /// something else must not have the digest follow.
    pub(super) fn contradictions(&self, header: &Header) -> Result<Unlike> {
        if !header.options.digests || self.is_damaged || self.options.repair != Repair::Yes {
            return Ok(Unlike::new());
        }
        match self.scan(header, |scan| scan.contradictions(self.options.read_data)) {
            // Rows that break other rules tell nothing of that kind.
            Err(error) if error.kind() == ErrorKind::Corrupt => Ok(Unlike::new()),
            found => found,
        }
    }

    pub(super) fn digests(&mut self, header: &Header, before: &Unlike) -> Result<()> {
        let others = self.findings.iter().any(|finding| finding.outcome != Outcome::Note);
        if !header.options.digests {
            return Ok(());
        }
        let read_data = self.options.read_data;
        let is_repair = self.repaired() == Outcome::Repaired;
        let (wrong, stay) = self.scan(header, |scan| {
            let mut wrong = if others { Vec::new() } else { scan.wrong(read_data, &mut go_on)? };
            let mut stay = Unlike::new();
            if is_repair && self.options.repair == Repair::Yes && (others || !wrong.is_empty()) {
                // As all are rebuilt, by the blocks, too: no digest may be lost for one that fits
                // content that was not looked at.
                stay = scan.contradictions(true)?;
                if others {
                    // What the repair has changed follows.
                    stay.retain(|ino, digest| before.get(ino) == Some(digest));
                }
                let told = wrong.iter().map(|(ino, _)| *ino).collect::<BTreeSet<_>>();
                wrong.extend(stay.keys().filter(|ino| !told.contains(ino)).map(|ino| (*ino, OTHER_CONTENT)));
            }
            if is_repair && (others || wrong.iter().any(|(ino, _)| !stay.contains_key(ino))) {
                scan.renew(&stay)?;
            }
            Ok((wrong, stay))
        })?;
        for (ino, what) in wrong.iter().take(FINDINGS_MAX) {
            let outcome = if stay.contains_key(ino) { Outcome::Damaged } else { self.repaired() };
            self.find(sql(ino.0), (*what).into(), outcome)?;
        }
        if wrong.len() > FINDINGS_MAX {
            let outcome = if stay.is_empty() { self.repaired() } else { Outcome::Damaged };
            self.findings.push(Finding::more(wrong.len() - FINDINGS_MAX, outcome));
        }
        // The repair's own commit is of the content that is taken as it is.
        let is_given_up = is_repair && stay.is_empty() && wrong.iter().any(|(_, what)| *what == OTHER_CONTENT);
        if !others && !is_given_up {
            let wrong = survey::commits(&self.connection, header)?;
            wrong.into_iter().for_each(|what| self.volume_finding(what));
        }
        Ok(())
    }
}
