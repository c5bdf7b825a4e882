//! Files, links and devices whose kept digest is damaged, while the rest of their rows is whole.
//!
//! The sums of rows cover what lies in them, each block hashes to its value, and the file says how
//! many bytes its blocks have: that it is whole is known. The hash of an entry, where there is one,
//! covers the digest too, and so proves the file as its own digest would, or contradicts it.

use super::{Missing, Salvage, drop_inode};
use crate::error::Result;
use crate::sqlite::scan::{Proof, Scan};
use rusqlite::Connection;

impl Salvage<'_> {
    /// Gives each of them the digest of its content, or drops it, if an entry contradicts that.
    pub(super) fn prove_undigested(&mut self, connection: &Connection, scan: &Scan<'_>) -> Result<()> {
        for ino in std::mem::take(&mut self.undigested) {
            let (kind, why) = match scan.adopt(ino)? {
                Proof::Entry => {
                    self.told.by_entries += 1;
                    continue;
                }
                Proof::Rows => {
                    self.told.by_rows += 1;
                    let why = "its digest is damaged, and no entry has a hash that proves its content: brought as the \
                               sums of its rows and the hashes of its blocks verify it, none of which is missing";
                    ("digest", why)
                }
                Proof::Contradiction => {
                    drop_inode(connection, ino)?;
                    ("file", "its digest is damaged, and its content is not what the hash of its entry says")
                }
            };
            self.told.missing.push(Missing { kind, what: self.path(ino), why: why.into() });
        }
        Ok(())
    }
}
