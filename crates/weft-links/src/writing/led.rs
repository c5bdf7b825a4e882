//! A draft belongs to the file that its link led to when it began.
//!
//! Another user may turn the way of a link at any time. So a draft is seen through its link, and
//! written to by others than its openers, only while the link leads to the same file: resolving it
//! has then checked the asker and all makers against that. While it leads elsewhere, or nowhere,
//! the draft is its openers' alone, as long as they, and the makers of then, have the right to the
//! file of then. Nobody joins it.

use crate::linked_tree::LinkedTree;
use crate::resolving::reach::{MAY_READ, MAY_WRITE, Maker, Step};
use crate::resolving::resolve::DEPTH_MAX;
use crate::writing::drafts::Draft;
use std::sync::Arc;
use weft_store::{Generation, Ino, Kind};
use weft_tree::{ErrorKind, Stop};
use weft_vfs::Asker;

/// The file that a link leads to in the end; a link that can be written has one beside code.
#[derive(Clone, Debug, Default)]
pub(crate) struct Led {
    /// The file and its generation.
    pub(crate) base: Option<(Ino, Generation)>,
    /// The makers of all links on the way.
    makers: Vec<Maker>,
}

impl LinkedTree<'_> {
    /// The file that link `ino` leads to.
    fn led(&mut self, ino: Ino) -> Result<Led, Stop> {
        let (mut at, mut makers) = (ino, Vec::new());
        // As deep as links are resolved.
        for _ in 0..=DEPTH_MAX {
            let row = &self.tree.inode(at)?.row;
            if row.kind != Kind::Transformation {
                return Ok(Led { base: Some((at, row.generation)), makers });
            }
            makers.push(self.maker_of(at)?);
            at = self.resolve(at)?.data();
        }
        Err(ErrorKind::Loop.into())
    }

    /// The draft of link `ino`, if the link leads to the draft's file. As [`LinkedTree::resolve`].
    pub(crate) fn current_draft(&mut self, ino: Ino) -> Result<Option<Arc<Draft>>, Stop> {
        let Some(draft) = self.links.drafts.get(ino).cloned() else { return Ok(None) };
        Ok((self.led(ino)?.base == draft.led.base).then_some(draft))
    }

    /// Notes that the asker has link `ino` open to write as a whole. `NotSynchronized` if others do
    /// from when it led elsewhere.
    pub(crate) fn join_draft(&mut self, ino: Ino) -> Result<(), Stop> {
        let led = self.led(ino)?;
        if self.links.drafts.get(ino).is_some_and(|draft| draft.led.base != led.base) {
            return Err(ErrorKind::NotSynchronized.into());
        }
        self.links.drafts.opened(ino, led, Asker::now(Asker::uid));
        Ok(())
    }

    /// The draft of link `ino` that the asker may use with `right`: while the link leads elsewhere,
    /// as one who has it open. `AccessDenied`, and as [`LinkedTree::resolve`].
    pub(crate) fn draft_with(&mut self, ino: Ino, right: u32) -> Result<Option<Arc<Draft>>, Stop> {
        if self.links.drafts.get(ino).is_none() {
            return Ok(None);
        }
        let resolved = match self.resolve(ino) {
            Err(Stop::Fail(error)) => Err(error),
            resolved => Ok(resolved?),
        };
        if let Ok(resolved) = &resolved
            && let Some(draft) = self.current_draft(ino)?
        {
            let is_denied = right == MAY_WRITE && !resolved.may_write;
            return if is_denied { Err(ErrorKind::AccessDenied.into()) } else { Ok(Some(draft)) };
        }
        match (self.draft_of_opener(ino, right)?, resolved) {
            (Some(draft), _) => Ok(Some(draft)),
            (None, Ok(_)) => Ok(None),
            (None, Err(error)) => Err(error.into()),
        }
    }

    /// The draft of link `ino`, if the asker has that open. `AccessDenied` without `right` to the
    /// draft's file.
    fn draft_of_opener(&mut self, ino: Ino, right: u32) -> Result<Option<Arc<Draft>>, Stop> {
        let Some(draft) = self.links.drafts.of_opener(ino, Asker::now(Asker::uid)) else { return Ok(None) };
        let before = std::mem::replace(&mut self.links.resolving.makers, draft.led.makers.clone());
        let is_permitted = self.has_right_to(&draft.led, MAY_READ | right);
        self.links.resolving.makers = before;
        if is_permitted? { Ok(Some(draft)) } else { Err(ErrorKind::AccessDenied.into()) }
    }

    /// True if the asker and the makers have all rights `wanted` to a file, or it is gone.
    fn has_right_to(&mut self, led: &Led, wanted: u32) -> Result<bool, Stop> {
        let Some((base, generation)) = led.base else { return Ok(true) };
        let row = match self.tree.inode(base) {
            Ok(inode) => &inode.row,
            Err(Stop::Fail(error)) if error.kind() == ErrorKind::Stale => return Ok(true),
            Err(stop) => return Err(stop),
        };
        let (is_gone, step) = (row.generation != generation, Step::of(row));
        Ok(is_gone || self.rights_to(step, wanted)?.of_these & wanted == wanted)
    }
}
