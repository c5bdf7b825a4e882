//! `weft import --dry-run`: what an import would do, by names, kinds, lengths and times alone.
//!
//! No content is read. Nothing is changed.

use super::content::looks_same;
use super::{DIRECTORY_IN_THE_WAY, IN_THE_WAY, Importer};
use crate::command::transfer::{Directory, TreePath, What, Words, find};
use anyhow::{Result, ensure};
use rustix::fs::{AtFlags, Stat};
use std::collections::HashSet;
use weft_vfs::{Attributes, Ino, Kind};

pub(super) const WORDS: Words =
    Words { done: "looked at", told: "would import", again: "the same command looks again" };

/// A directory that would be copied, and the one of its name in the volume, if there is one.
type Waiting = (TreePath, Option<Ino>);

impl Importer<'_> {
    /// Counts and names what [`Importer::all`] would copy, keep, and could not copy.
    pub(super) fn rehearse(&self, path: &[Vec<u8>]) -> Result<()> {
        let target = find(self.vfs, path).ok();
        let is_directory = target.as_ref().is_none_or(|target| target.kind == Kind::Directory);
        ensure!(is_directory, "{DIRECTORY_IN_THE_WAY}");
        let mut waiting = vec![(self.root.top().way().clone(), target.map(|target| target.ino))];
        let mut met = HashSet::new();
        while let Some((way, there)) = waiting.pop() {
            let Some((names, directory)) = self.listed(&way) else { continue };
            for name in names {
                if !self.transfer.goes_on() {
                    return Ok(());
                }
                if self.is_excluded(&way, &name) {
                    self.transfer.exclude();
                    continue;
                }
                match rustix::fs::statat(&directory, &name[..], AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) if stat.st_nlink > 1 && Kind::from_mode(stat.st_mode) != Some(Kind::Directory) => {
                        // Of several names one is copied, as far as they can be seen from here.
                        if met.insert((stat.st_dev, stat.st_ino)) {
                            waiting.extend(self.rehearse_entry((&directory, &name), &stat, there)?);
                        }
                    }
                    Ok(stat) => waiting.extend(self.rehearse_entry((&directory, &name), &stat, there)?),
                    Err(error) => {
                        let path = directory.path_of(&name);
                        self.transfer.fail_with(What::File, &path, "cannot import it", &error.into());
                    }
                }
            }
        }
        Ok(())
    }

    /// The same of one entry, for a directory `there`; returns what is to be looked at in it.
    fn rehearse_entry(
        &self,
        (directory, name): (&Directory, &[u8]),
        stat: &Stat,
        there: Option<Ino>,
    ) -> Result<Option<Waiting>> {
        let path = || directory.path_of(name);
        let there: Option<Attributes> = match there {
            Some(parent) => self.in_the_way(parent, name)?,
            None => None,
        };
        let Some(kind) = Kind::from_mode(stat.st_mode) else {
            self.transfer.fail(What::Special, &path(), "cannot import it: an unknown kind");
            return Ok(None);
        };
        let is_same = |there: &Attributes| match kind {
            Kind::File => looks_same(stat, there),
            kind => there.kind == kind,
        };
        let is_directory = kind == Kind::Directory;
        match &there {
            Some(there) if is_same(there) => self.transfer.keep(),
            Some(other) if other.kind == Kind::Directory => {
                self.transfer.fail(What::File, &path(), DIRECTORY_IN_THE_WAY);
            }
            Some(_) if is_directory || !self.overwrite => {
                let what = if is_directory { What::Directory } else { What::File };
                self.transfer.fail(what, &path(), IN_THE_WAY);
                return Ok(None);
            }
            _ if is_directory => self.transfer.progress.directory(),
            _ if kind == Kind::File => self.transfer.progress.file(stat.st_size.cast_unsigned()),
            _ => self.transfer.progress.other(),
        }
        let below = || (directory.way().below(name), there.as_ref().map(|there| there.ino));
        Ok(is_directory.then(below))
    }
}
