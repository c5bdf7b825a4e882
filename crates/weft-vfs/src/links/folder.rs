//! Views of directories: what is in them is what is in their source, looked at whenever somebody asks.
//!
//! Nothing of that is stored. An entry gets an inode in memory, with a number that follows from the view's and the name in the source, so that it
//! is the same one whenever it is looked for again; there are as many as somebody holds, and some more.

use super::definition::{LinkDefinition, ViewKind};
use crate::attributes::{Attributes, DirEntry};
use crate::caller::{Caller, Holds};
use crate::error::{ErrorKind, Result};
use crate::inode::Inode;
use crate::state::State;
use crate::stop::Stop;
use crate::volume::Vfs;
use std::collections::HashSet;
use weft_block::Slice;
use weft_store::{Cookie, Ino, InodeRow, Kind, Name};

/// Numbers from here on are of inodes that nobody stores.
const FIRST: u64 = 1 << 62;

/// Inodes that are not stored and that nobody holds, at most.
const UNHELD_MAX: usize = 1 << 14;

/// Entries of a source that are looked at together.
const PAGE: usize = 1024;

/// Whether inode `ino` is in memory alone.
pub(crate) fn is_unstored(ino: Ino) -> bool {
    ino.0 >= FIRST
}

/// An entry of a view.
struct Shown {
    name: Name,
    /// As it is called where it is.
    source: DirEntry,
}

impl Vfs {
    /// As [`Vfs::lookup`], in a directory that is a view.
    pub(crate) fn lookup_in_view(&self, caller: Caller, view: Ino, name: &[u8]) -> Result<Attributes> {
        let (source, renames) = self.run(|state| state.source_of(view))?;
        let name = Name::new(name)?;
        let found = if renames {
            self.shown(view, source)?.into_iter().find(|shown| shown.name == name).map(|shown| shown.source.name)
        } else {
            Some(name)
        };
        let found = found.ok_or(ErrorKind::NotFound)?;
        self.run(|state| {
            let ino = state.appear(view, source, &found)?;
            let attributes = state.attributes(ino)?;
            state.hold(caller, ino);
            if caller.holds == Holds::None {
                state.unheld(ino);
            }
            Ok(attributes)
        })
    }

    /// As [`Vfs::read_directory`], of a view.
    pub(crate) fn list_view(&self, view: Ino, after: Cookie, limit: usize) -> Result<Vec<DirEntry>> {
        let (source, renames) = self.run(|state| state.source_of(view))?;
        let entry = |shown: Shown| {
            let Shown { name, source: DirEntry { name: within, kind, cookie, .. } } = shown;
            DirEntry { name, ino: number(view, &within), kind, cookie }
        };
        if renames {
            // Which of those that get the same name is seen follows from all of them.
            let shown = self.shown(view, source)?.into_iter().filter(|shown| shown.source.cookie > after);
            return Ok(shown.take(limit).map(entry).collect());
        }
        let mut listed = Vec::new();
        let mut after = after;
        while listed.len() < limit {
            let page = self.read_directory(source, after, limit - listed.len())?;
            let Some(last) = page.last() else { break };
            after = last.cookie;
            let seen = page.into_iter().filter(|source| is_shown(source.kind));
            listed.extend(seen.map(|source| entry(Shown { name: source.name.clone(), source })));
        }
        Ok(listed)
    }

    /// All that is seen in `view` of directory `source`: of those that get the same name, the first.
    fn shown(&self, view: Ino, source: Ino) -> Result<Vec<Shown>> {
        let link = self.run(|state| state.link_of(view))?;
        let Some(names) = &link.directory else { return Err(ErrorKind::NotDirectory.into()) };
        let (mut all, mut taken, mut after) = (Vec::new(), HashSet::new(), Cookie(0));
        loop {
            let page = self.read_directory(source, after, PAGE)?;
            let Some(last) = page.last() else { return Ok(all) };
            after = last.cookie;
            for source in page.into_iter().filter(|source| is_shown(source.kind)) {
                let is_file = source.kind == Kind::File;
                let rename = names.rename.as_ref().filter(|_| is_file);
                let called =
                    rename.map_or_else(|| source.name.as_bytes().to_vec(), |rule| rule.apply(source.name.as_bytes()));
                // What cannot be called so is not seen.
                let Ok(name) = Name::new(&called) else { continue };
                if taken.insert(name.clone()) {
                    all.push(Shown { name, source });
                }
            }
        }
    }
}

/// Whether entries of this kind are seen in views.
fn is_shown(kind: Kind) -> bool {
    matches!(kind, Kind::File | Kind::Directory | Kind::Symlink | Kind::Transformation)
}

/// The number of what is called `name` where `view` looks.
fn number(view: Ino, name: &Name) -> Ino {
    let digest = weft_digest::digest(&[&view.0.to_le_bytes()[..], name.as_bytes()].concat());
    let (first, _) = digest.split_first_chunk().expect("a digest is longer");
    Ino(FIRST | u64::from_le_bytes(*first) >> 2)
}

impl State {
    /// The directory that `view` looks into, and whether it calls entries otherwise. `NotDirectory` if it is a view of a file.
    fn source_of(&mut self, view: Ino) -> Result<(Ino, bool), Stop> {
        if self.inode(view)?.row.kind != Kind::Transformation {
            return Err(ErrorKind::NotDirectory.into());
        }
        let resolved = self.resolve(view)?;
        let Some(names) = &resolved.link.directory else { return Err(ErrorKind::NotDirectory.into()) };
        Ok((resolved.targets[0], names.rename.is_some()))
    }

    /// The inode of what is called `name` in directory `source`, as `view` shows it.
    fn appear(&mut self, view: Ino, source: Ino, name: &Name) -> Result<Ino, Stop> {
        let entry = self.existing(source, name.as_bytes())?;
        let found = self.inode(entry.ino)?.row.clone();
        let (link, generation) = (self.link_of(view)?, self.inode(view)?.row.generation);
        let names = link.directory.as_ref().ok_or(ErrorKind::NotDirectory)?;
        let target = [&link.definition.targets[0][..], b"/", name.as_bytes()].concat();
        let is_directory = match found.kind {
            Kind::Directory => true,
            Kind::Transformation => self.link_of(entry.ino)?.directory.is_some(),
            _ => false,
        };
        let shows = names.only.as_ref().is_none_or(|only| only.is_match(name.as_bytes()));
        let inner = LinkDefinition {
            targets: vec![target],
            network: if is_directory || shows { link.definition.network.clone() } else { "identity".into() },
            memo: link.definition.memo,
            view: if is_directory { link.definition.view.clone() } else { ViewKind::File },
        };
        let (kind, inline) = match found.kind {
            Kind::Symlink => (Kind::Symlink, found.inline.clone().unwrap_or_default()),
            kind if is_shown(kind) => (Kind::Transformation, Slice::from(inner.encode())),
            _ => return Err(ErrorKind::NotFound.into()),
        };
        let ino = number(view, name);
        let permissions = if kind == Kind::Symlink { 0o777 } else { 0o777 & found.permissions };
        let size = inline.len() as u64;
        let row = InodeRow {
            ino,
            generation,
            kind,
            permissions,
            nlink: 1,
            size,
            inline: Some(inline),
            has_xattrs: false,
            ..found
        };
        if self.inodes.peek(&ino).is_none_or(|known| known.row != row) {
            self.inodes.insert(ino, Box::new(Inode::loaded(row)));
        }
        Ok(ino)
    }

    /// Notes that nobody holds `ino`, which is not stored, and forgets others like it if there are too many.
    pub(crate) fn unheld(&mut self, ino: Ino) {
        let Some(inode) = self.inodes.get(&ino) else { return };
        if !std::mem::replace(&mut inode.unheld, true) {
            self.unheld.push_back(ino);
        }
        while self.unheld.len() > UNHELD_MAX {
            let Some(oldest) = self.unheld.pop_front() else { return };
            if self.holds.contains_key(&oldest) {
                self.inodes.get(&oldest).into_iter().for_each(|inode| inode.unheld = false);
            } else {
                self.inodes.remove(&oldest);
            }
        }
    }
}
