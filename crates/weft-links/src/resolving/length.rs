//! Lengths of what links give: those that follow from their targets, and those that somebody has
//! computed.

use super::resolve::Resolved;
use crate::Version;
use crate::linked_tree::LinkedTree;
use crate::results::view::Failure;
use std::time::Duration;
use weft_store::{Ino, Kind};
use weft_tree::{Miss, Result, Stop};

/// Time before an operation that failed in a way that may pass is retried: computing a length,
/// finding a name, reading from a hanging source.
pub(crate) const RETRY: Duration = Duration::from_secs(1);

/// Lengths that are remembered.
const LENGTHS_MAX: usize = 1 << 16;

/// The length of a version's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Length {
    pub(crate) bytes: u64,
    /// Failure of the computation, if it may pass.
    pub(crate) failed: Option<Failure>,
}

impl LinkedTree<'_> {
    /// True if the length of a link may be left open.
    pub(crate) fn leaves_open(&self, resolved: &Resolved) -> bool {
        self.links.is_told_of_opens && resolved.link.definition.lazy
    }

    /// Returns the length of link `ino`'s content.
    pub(crate) fn length(&mut self, ino: Ino, resolved: &Resolved) -> Result<Length, Stop> {
        match self.length_of(ino, resolved)? {
            Ok(length) => Ok(length),
            Err(unknown) => Err(Miss::Length(unknown).into()),
        }
    }

    /// The same, if it is known.
    pub(crate) fn length_told(&mut self, ino: Ino, resolved: &Resolved) -> Result<Option<Length>, Stop> {
        Ok(self.length_of(ino, resolved)?.ok())
    }

    /// The same as [`LinkedTree::length`]; else the link whose content has to be computed for that.
    fn length_of(&mut self, ino: Ino, resolved: &Resolved) -> Result<Result<Length, Ino>, Stop> {
        let part = resolved.link.part.filter(|_| resolved.link.keeps.length).map(|part| part.len);
        let drafted = self.current_draft(ino)?.and_then(|draft| draft.now()).map(|drafted| drafted.size);
        if let Some(known) = drafted.or(resolved.link.size).or(part) {
            return Ok(Ok(Length { bytes: known, failed: None }));
        }
        if !resolved.link.keeps.length {
            let known = self.links.lengths.get(&resolved.version).copied();
            let known = known.filter(|length| length.failed.is_none_or(|failure| failure.at.elapsed() < RETRY));
            return Ok(known.ok_or(ino));
        }
        let target = resolved.data();
        let inode = self.tree.inode(target)?;
        if inode.row.kind == Kind::File {
            return Ok(Ok(Length { bytes: inode.row.size, failed: None }));
        }
        let inner = self.resolve(target)?;
        self.length_of(target, &inner)
    }

    /// Has reading a version fail as computing its length did, for as long as somebody may have
    /// been told that length: of content that can be computed again, a part would pass for the
    /// whole.
    pub(crate) fn refuse_failed(&self, version: &Version) -> Result<(), Stop> {
        let failure = self.links.lengths.get(version).and_then(|length| length.failed);
        match failure.filter(|failure| failure.at.elapsed() < 2 * RETRY) {
            Some(failure) => Err(failure.kind.into()),
            None => Ok(()),
        }
    }

    /// Remembers how long the content of a version is.
    pub(crate) fn learn_length(&mut self, version: Version, length: Length) {
        if self.links.lengths.len() >= LENGTHS_MAX {
            self.links.lengths.clear();
        }
        self.links.lengths.insert(version, length);
    }
}
