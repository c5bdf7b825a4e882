//! The data that verifies parts of blocks. Reads do without it where it is missing, so repair
//! removes it where it is wrong.

use super::{Checker, FINDINGS_MAX, Finding, failed};
use crate::error::Result;
use crate::sqlite::read::sql;
use rusqlite::types::ValueRef;
use weft_digest::{PART_BYTES, Parts};

impl Checker<'_> {
    pub(super) fn parts(&mut self) -> Result<()> {
        let wrong = self.wrong_parts()?;
        let outcome = self.repaired();
        let mut clear = self.connection.prepare("UPDATE blocks SET parts = NULL WHERE id = ?1").map_err(failed)?;
        for id in &wrong {
            clear.execute((id,)).map_err(failed)?;
        }
        drop(clear);
        let finding = |what| Finding::new(None, what, outcome);
        let what = |id| finding(format!("block {id}: what verifies its parts is not of its value"));
        self.findings.extend(wrong.iter().take(FINDINGS_MAX).map(what));
        if wrong.len() > FINDINGS_MAX {
            self.findings.push(Finding::more(wrong.len() - FINDINGS_MAX, outcome));
        }
        Ok(())
    }

    fn wrong_parts(&self) -> Result<Vec<i64>> {
        let all = "SELECT id, length, value, parts FROM blocks WHERE parts IS NOT NULL";
        let mut statement = self.connection.prepare(all).map_err(failed)?;
        let mut rows = statement.query(()).map_err(failed)?;
        let mut wrong = Vec::new();
        while let Some(row) = rows.next().map_err(failed)? {
            let is_long = row.get::<_, i64>(1).is_ok_and(|length| length > sql(PART_BYTES as u64));
            let right = match (row.get_ref(2), row.get_ref(3)) {
                (Ok(ValueRef::Blob(value)), Ok(ValueRef::Blob(parts))) => {
                    value.try_into().is_ok_and(|value| Parts::from_bytes(parts, value, 0).is_some())
                }
                _ => false,
            };
            if !(is_long && right) {
                wrong.push(row.get(0).map_err(failed)?);
            }
        }
        Ok(wrong)
    }
}
