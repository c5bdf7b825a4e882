//! Views of directories: what is in them is what is in their source, looked at whenever somebody asks.

use super::definition::{LinkDefinition, Looks, ViewKind};
use super::resolve::Resolved;
use super::unstored::{is_unstored, unstored_number};
use crate::attributes::{Attributes, DirEntry};
use crate::caller::Caller;
use crate::error::{ErrorKind, Result};
use crate::inode::Inode;
use crate::state::State;
use crate::stop::Stop;
use crate::volume::Vfs;
use std::collections::HashSet;
use weft_block::Slice;
use weft_store::{Cookie, Ino, InodeRow, Kind, Name};

/// Entries of a source that are looked at together.
const PAGE: usize = 1024;

/// What a view looks into.
pub(super) enum Seen {
    Directory { source: Ino, renames: bool },
    Archive(Resolved),
}

/// An entry of a view.
struct Entry {
    name: Name,
    /// As it is called where it is.
    source: DirEntry,
}

impl Vfs {
    /// As [`Vfs::lookup`], in something that may look like a directory. `NotShown` where there is nothing.
    pub(crate) fn lookup_in_view(&self, caller: Caller, view: Ino, name: &[u8]) -> Result<Attributes> {
        let found = self.look_up_in_view(view, &Name::new(name)?, |state, ino| state.give_unstored(caller, ino));
        found.map_err(|error| if error.kind() == ErrorKind::NotFound { ErrorKind::NotShown.into() } else { error })
    }

    /// Has `name` appear in `view`, and does `then` to it, while it is there. `NotFound`, and as reading what the view shows.
    pub(super) fn look_up_in_view<T>(
        &self,
        view: Ino,
        name: &Name,
        then: impl Fn(&mut State, Ino) -> Result<T, Stop>,
    ) -> Result<T> {
        let (source, renames) = match self.run(|state| state.source_of(view))? {
            Seen::Directory { source, renames } => (source, renames),
            Seen::Archive(archive) => return self.look_up_member(view, &archive, name, then),
        };
        let found = if renames {
            self.shown(view, source)?.into_iter().find(|shown| shown.name == *name).map(|shown| shown.source.name)
        } else {
            Some(name.clone())
        };
        let found = found.ok_or(ErrorKind::NotFound)?;
        self.run(|state| {
            let ino = state.appear(view, source, &found)?;
            then(state, ino)
        })
    }

    /// As [`Vfs::read_directory`], of a view.
    pub(crate) fn list_view(&self, view: Ino, after: Cookie, limit: usize) -> Result<Vec<DirEntry>> {
        let (source, renames) = match self.run(|state| state.source_of(view))? {
            Seen::Directory { source, renames } => (source, renames),
            Seen::Archive(archive) => return self.list_members(view, &archive, after, limit),
        };
        let entry = |shown: Entry| {
            let Entry { name, source: DirEntry { name: within, kind, cookie, .. } } = shown;
            DirEntry { name, ino: unstored_number(view, within.as_bytes()), kind, cookie }
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
            listed.extend(seen.map(|source| entry(Entry { name: source.name.clone(), source })));
        }
        Ok(listed)
    }

    /// All that is seen in `view` of directory `source`: of those that get the same name, the first.
    fn shown(&self, view: Ino, source: Ino) -> Result<Vec<Entry>> {
        let link = self.run(|state| state.link_of(view))?;
        let Some(Looks::Directory(names)) = &link.looks else { return Err(ErrorKind::NotDirectory.into()) };
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
                    all.push(Entry { name, source });
                }
            }
        }
    }
}

/// Whether entries of this kind are seen in views.
fn is_shown(kind: Kind) -> bool {
    matches!(kind, Kind::File | Kind::Directory | Kind::Symlink | Kind::Transformation)
}

impl State {
    /// What `view` looks into. `NotDirectory` if it is a view of a file.
    pub(super) fn source_of(&mut self, view: Ino) -> Result<Seen, Stop> {
        if self.inode(view)?.row.kind != Kind::Transformation {
            return Err(ErrorKind::NotDirectory.into());
        }
        let resolved = self.resolve(view)?;
        match &resolved.link.looks {
            None => Err(ErrorKind::NotDirectory.into()),
            Some(Looks::Directory(names)) => {
                Ok(Seen::Directory { source: resolved.data(), renames: names.rename.is_some() })
            }
            Some(Looks::Archive { .. }) => Ok(Seen::Archive(resolved)),
        }
    }

    /// The inode of what is called `name` in `source`, a directory or a view, as `view` shows it. `Loop` if that is a view which shows `view` again.
    pub(super) fn appear(&mut self, view: Ino, source: Ino, name: &Name) -> Result<Ino, Stop> {
        let entry = self.within(source, name)?;
        let found = self.inode(entry)?.row.clone();
        let (link, generation) = (self.link_of(view)?, self.inode(view)?.row.generation);
        let Some(Looks::Directory(names)) = &link.looks else { return Err(ErrorKind::NotDirectory.into()) };
        let target = [&link.definition.targets[link.data][..], b"/", name.as_bytes()].concat();
        let is_directory = match found.kind {
            Kind::Directory => true,
            Kind::Transformation => self.link_of(entry)?.looks.is_some(),
            _ => false,
        };
        let shows = names.only.as_ref().is_none_or(|only| only.is_match(name.as_bytes()));
        let (targets, network, write) = if is_directory || shows {
            let mut targets = link.definition.targets.clone();
            targets[link.data] = target;
            (targets, link.definition.network.clone(), link.definition.write.clone())
        } else {
            (vec![target], "identity".into(), None)
        };
        let inner = LinkDefinition {
            targets,
            network,
            write,
            memo: link.definition.memo,
            lazy: link.definition.lazy,
            fuse: link.definition.fuse,
            view: if is_directory { link.definition.view.clone() } else { ViewKind::File },
        };
        let (kind, inline) = match found.kind {
            Kind::Symlink => (Kind::Symlink, found.inline.clone().unwrap_or_default()),
            kind if is_shown(kind) => (Kind::Transformation, Slice::from(inner.encode())),
            _ => return Err(ErrorKind::NotFound.into()),
        };
        let ino = unstored_number(view, name.as_bytes());
        // The view in the volume of which this is an entry, at any depth.
        let parent = if is_unstored(view) { self.inode(view)?.row.parent } else { view };
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
            parent,
            ..found
        };
        self.put_unstored(Inode::loaded(row));
        if is_directory && found.kind == Kind::Transformation && self.resolve(ino)?.leads_by(parent) {
            return Err(ErrorKind::Loop.into());
        }
        Ok(ino)
    }
}
