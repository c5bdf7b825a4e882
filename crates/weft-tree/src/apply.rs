//! Applies mutations to the state in memory.
//!
//! Each function first makes sure that all it needs is in memory (stopping if not), then changes
//! it; past that point it cannot fail. The caller has checked that the mutation is allowed.

mod attributes;
mod content;
mod entries;
mod parts;

pub use attributes::CAPABILITY;
pub use content::taken;
pub use entries::{ACCESS_ACL, DEFAULT_ACL};
pub use parts::PART_BLOCKS;

use crate::mutation::{Mutation, Replacement};
use crate::stop::Stop;
use crate::tree::Tree;

impl Tree {
    /// Applies `mutation`.
    pub fn apply(&mut self, mutation: &Mutation<'_>) -> Result<(), Stop> {
        match mutation {
            Mutation::Make { parent, name, inode } => self.apply_make(*parent, name.as_ref(), inode),
            Mutation::Link { ino, parent, name, cookie, time } => {
                self.apply_link(*ino, (*parent, name), *cookie, *time)
            }
            Mutation::Remove { parent, name, time } => self.apply_remove(*parent, name, *time),
            Mutation::Rename { from, to, exchange: false, cookie, time } => self.apply_rename(from, to, *cookie, *time),
            Mutation::Rename { from, to, exchange: true, time, .. } => self.apply_exchange(from, to, *time),
            Mutation::Whiteout { from, to, cookie, inode, time } => {
                self.apply_whiteout(from, to, *cookie, inode, *time)
            }
            Mutation::Attributes { ino, set, time } => self.apply_attributes(*ino, set, *time),
            Mutation::Write { ino, offset, data, lost, time } => {
                self.know_lost(*ino, *lost)?;
                self.apply_write(*ino, *offset, data)?;
                self.apply_written(*ino, *lost, *time);
                Ok(())
            }
            Mutation::Zero { ino, offset, len, size, lost, time } => {
                self.know_lost(*ino, *lost)?;
                self.apply_zero(*ino, *offset..offset.saturating_add(*len), *size)?;
                self.apply_written(*ino, *lost, *time);
                Ok(())
            }
            Mutation::Share { from, to, count, size, lost, time } => {
                self.know_lost(to.0, *lost)?;
                self.apply_share(*from, *to, *count, *size)?;
                self.apply_written(to.0, *lost, *time);
                Ok(())
            }
            Mutation::Replace { ino, with, lost, time } => {
                self.know_lost(*ino, *lost)?;
                match with {
                    Replacement::Bytes(bytes) => self.apply_replace(*ino, bytes)?,
                    Replacement::ContentOf(from) => self.apply_replace_by(*ino, *from)?,
                }
                self.apply_written(*ino, *lost, *time);
                Ok(())
            }
            Mutation::Xattr { ino, name, value, permissions, time } => {
                self.apply_xattr(*ino, name, value.as_deref(), *permissions, *time)
            }
        }
    }
}
