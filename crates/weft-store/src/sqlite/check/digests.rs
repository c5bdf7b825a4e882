//! Kept digests. Each follows from rows below it, so each is compared with what those give; what is wrong is made anew.
//!
//! Other damage upsets digests, too: they are reported only where there is none.

use super::{Checker, FINDINGS_MAX, Finding, Outcome, survey};
use crate::digests::{Digester, ZeroValues};
use crate::error::Result;
use crate::sqlite::digests::Rows;
use crate::sqlite::read::sql;
use crate::sqlite::scan::{Scan, go_on};
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
        let wrong = if others { Vec::new() } else { scan.wrong(self.options.read_data, &mut go_on)? };
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
            let wrong = survey::commits(&self.connection, header)?;
            wrong.into_iter().for_each(|what| self.volume_finding(what));
        }
        Ok(())
    }
}
