//! What is in directories, and in views: for the ways to what is in views of views, and to targets
//! in them.
//!
//! What a view shows of a directory follows from that directory, as long as it calls things as they
//! are called there. Others have to be read: all names, or an archive. That is done without the
//! state's lock ([`Miss::Shown`]), and remembered for as long as the view leads to the same.

use crate::Version;
use crate::directories::listing::Seen;
use crate::layer::Links;
use crate::linked_tree::LinkedTree;
use crate::resolving::length::RETRY;
use crate::resolving::watch::{Cause, Of};
use rustc_hash::FxHashMap;
use std::time::Instant;
use weft_store::{Ino, Kind, Name, Timestamp};
use weft_tree::{ErrorKind, Miss, Result, Stop};

/// Names that are remembered.
const NAMES_MAX: usize = 1 << 14;

/// Cached entries of views, by view and name.
#[derive(Default)]
pub(crate) struct Shown(FxHashMap<(Ino, Name), Found>);

/// Cached result of a lookup of a name.
struct Found {
    /// The version that the view led to, and the time when its attributes changed.
    of: (Version, Timestamp),
    found: Result<Known, (ErrorKind, Instant)>,
}

/// The entry that a name stands for.
#[derive(Clone)]
enum Known {
    /// The entry with this name in the view's source.
    Called(Name),
    /// This member of an archive.
    Member(Ino),
}

impl LinkedTree<'_> {
    /// Returns the inode named `name` in `place`, a directory or a view. `NotFound`,
    /// `NotDirectory`, and as reading a view.
    pub(crate) fn within(&mut self, place: Ino, name: &Name) -> Result<Ino, Stop> {
        if self.tree.inode(place)?.row.kind != Kind::Transformation {
            return Ok(self.tree.existing(place, name.as_bytes())?.ino);
        }
        let seen = self.source_of(place)?;
        let shown = match &seen {
            Seen::Directory { renames: false, .. } => Known::Called(name.clone()),
            _ => self.remembered(place, name)?,
        };
        match (seen, shown) {
            (Seen::Directory { source, .. }, Known::Called(name)) => {
                let ino = self.appear(place, source, &name)?;
                self.unheld(ino);
                Ok(ino)
            }
            (_, Known::Member(ino)) if self.tree.inodes.peek(&ino).is_some() => Ok(ino),
            _ => Err(Miss::Shown(place, name.clone()).into()),
        }
    }

    /// Returns the cached entry for `name` in `view`.
    fn remembered(&mut self, view: Ino, name: &Name) -> Result<Known, Stop> {
        let of = self.resolve(view)?.told();
        let known = self.links.shown.0.get(&(view, name.clone())).filter(|known| known.of == of);
        match known.map(|known| &known.found) {
            Some(Ok(known)) => Ok(known.clone()),
            Some(Err((kind, at))) if at.elapsed() < RETRY => Err((*kind).into()),
            _ => Err(Miss::Shown(view, name.clone()).into()),
        }
    }

    /// Adds to `causes` what it follows from what a name in `place`, a directory or a view, names,
    /// or which names there are.
    pub(crate) fn follows_from(&mut self, place: Ino, of: Of, causes: &mut Vec<Cause>) -> Result<(), Stop> {
        if self.tree.inode(place)?.row.kind != Kind::Transformation {
            causes.push((place, of));
            return Ok(());
        }
        match self.source_of(place)? {
            Seen::Directory { source, renames } => {
                self.follows_from(source, if renames { Of::Names } else { of }, causes)
            }
            // It follows from the archive, as the view does.
            Seen::Archive(_) => Ok(()),
        }
    }
}

/// Tells failures that another asker need not have: what one is not told, or has no turn to find.
fn is_askers_own(kind: ErrorKind) -> bool {
    use ErrorKind::{AccessDenied, Busy, Interrupted, WouldBlock};
    matches!(kind, WouldBlock | AccessDenied | Busy | Interrupted)
}

impl Links<'_> {
    /// Looks for `name` in `view`, to have it remembered. `WouldBlock`.
    pub(crate) fn look_into(&self, view: Ino, name: &Name) -> Result<()> {
        let of = self.run(|state| Ok(state.resolve(view)?.told()))?;
        let found = match self.find_in(view, name) {
            Err(error) if is_askers_own(error.kind()) => return Err(error),
            found => found.map_err(|error| (error.kind(), Instant::now())),
        };
        self.locked(|state| {
            let shown = &mut state.links.shown.0;
            if shown.len() >= NAMES_MAX {
                shown.clear();
            }
            shown.insert((view, name.clone()), Found { of, found });
        });
        Ok(())
    }

    fn find_in(&self, view: Ino, name: &Name) -> Result<Known> {
        match self.run(|state| state.source_of(view))? {
            Seen::Directory { source, .. } => Ok(Known::Called(self.called(view, source, name)?)),
            Seen::Archive(archive) => self.look_up_member(view, &archive, name, |state, ino| {
                state.unheld(ino);
                Ok(Known::Member(ino))
            }),
        }
    }
}
