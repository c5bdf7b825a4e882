//! What is in directories, and in views: for the ways to what is in views of views, and to targets in them.
//!
//! What a view shows of a directory follows from that directory, as long as it calls things as they are called there. Others have to be read: all names, or an archive. That is
//! done without the state's lock ([`Miss::Shown`]), and remembered for as long as the view leads to the same.

use super::Version;
use super::folder::Seen;
use crate::error::{ErrorKind, Result};
use crate::state::State;
use crate::stop::{Miss, Stop};
use crate::volume::Vfs;
use rustc_hash::FxHashMap;
use std::time::{Duration, Instant};
use weft_store::{Ino, Kind, Name};

/// Names that are remembered.
const NAMES_MAX: usize = 1 << 14;

/// How long after a failure to find something it is not looked for again.
const RETRY: Duration = Duration::from_secs(1);

/// What names show in views.
#[derive(Default)]
pub(crate) struct Shown(FxHashMap<(Ino, Name), Found>);

/// What was found of a name.
struct Found {
    /// What the view led to.
    version: Version,
    found: Result<Ino, (ErrorKind, Instant)>,
}

impl State {
    /// What is called `name` in `place`, a directory or a view. `NotFound`, `NotDirectory`, and as reading a view.
    pub(super) fn within(&mut self, place: Ino, name: &Name) -> Result<Ino, Stop> {
        if self.inode(place)?.row.kind != Kind::Transformation {
            return Ok(self.existing(place, name.as_bytes())?.ino);
        }
        if let Seen::Directory { source, renames: false } = self.source_of(place)? {
            let ino = self.appear(place, source, name)?;
            self.unheld(ino);
            return Ok(ino);
        }
        let version = self.resolve(place)?.version;
        let known = self.shown.0.get(&(place, name.clone())).filter(|known| known.version == version);
        match known.map(|known| &known.found) {
            Some(Ok(ino)) if self.inodes.peek(ino).is_some() => Ok(*ino),
            Some(Err((kind, at))) if at.elapsed() < RETRY => Err((*kind).into()),
            _ => Err(Miss::Shown(place, name.clone()).into()),
        }
    }
}

impl Vfs {
    /// Looks for `name` in `view`, to have it remembered. `WouldBlock`.
    pub(crate) fn look_into(&self, view: Ino, name: &Name) -> Result<()> {
        let version = self.run(|state| Ok(state.resolve(view)?.version))?;
        let found = self.look_up_in_view(view, name, |state, ino| {
            state.unheld(ino);
            Ok(ino)
        });
        let found = match found {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(error),
            found => found.map_err(|error| (error.kind(), Instant::now())),
        };
        let shown = &mut self.state.lock().shown.0;
        if shown.len() >= NAMES_MAX {
            shown.clear();
        }
        shown.insert((view, name.clone()), Found { version, found });
        Ok(())
    }
}
