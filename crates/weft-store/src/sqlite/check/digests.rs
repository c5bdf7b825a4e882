//! Kept digests. Each follows from rows below it, so each is compared with what those give; what is wrong is made anew.
//!
//! Other damage upsets digests, too: they are reported only where there is none.

use super::{Checker, FINDINGS_MAX, Finding, Outcome};
use crate::digests::{Digester, ZeroValues};
use crate::error::Result;
use crate::row::{CommitNo, Ino};
use crate::sqlite::digests::Rows;
use crate::sqlite::read::{self, sql};
use crate::sqlite::scan::Scan;
use crate::store::Header;
use std::sync::Arc;

impl Checker<'_> {
    pub(super) fn digests(&mut self, header: &Header) -> Result<()> {
        let others = self.findings.iter().any(|finding| finding.outcome != Outcome::Note);
        if !header.options.digests {
            return Ok(());
        }
        let digester = Digester::new(Arc::new(ZeroValues::default()));
        let segments = self.segments();
        let elsewhere = self.elsewhere.as_ref().map(|elsewhere| elsewhere.read);
        let rows = Rows { connection: &self.connection, segments: segments.as_ref(), wait: &|| (), elsewhere };
        let block_size = u64::from(header.options.block_size);
        let scan = Scan { digester: &digester, rows: &rows, block_size };
        let wrong = if others { Vec::new() } else { scan.wrong(self.options.read_data)? };
        let is_repair = self.repaired() == Outcome::Repaired;
        if is_repair && (others || !wrong.is_empty()) {
            scan.renew()?;
        }
        for (ino, what) in wrong.iter().take(FINDINGS_MAX) {
            self.find(sql(ino.0), (*what).into(), self.repaired())?;
        }
        if wrong.len() > FINDINGS_MAX {
            let what = format!("and {} more of the same kind", wrong.len() - FINDINGS_MAX);
            self.findings.push(Finding { path: None, what, outcome: self.repaired() });
        }
        if !others {
            self.commits(header)?;
        }
        Ok(())
    }

    /// What commits say of the tree, and of each other.
    fn commits(&mut self, header: &Header) -> Result<()> {
        let commits = read::commits(&self.connection, CommitNo(0), usize::MAX)?;
        let root = read::digest_of(&self.connection, Ino::ROOT)?;
        let last = commits.iter().find(|commit| commit.number == header.commit);
        if last.is_some_and(|last| last.root != root) {
            self.volume_finding(format!("commit {}, the last one, is not of this tree", header.commit.0));
        }
        for pair in commits.windows(2) {
            if pair[1].number == pair[0].number.next() && pair[1].previous != pair[0].digest() {
                self.volume_finding(format!("commit {} does not follow from the one before", pair[1].number.0));
            }
        }
        Ok(())
    }
}
