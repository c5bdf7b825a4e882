//! Views of directories: what is in them is what is in their source, looked at whenever somebody asks.

use super::definition::{self, LinkDefinition, Looks, ViewKind};
use super::resolve::{DIGESTED_A_STEP, Resolved};
use super::unstored::{is_unstored, symlink_number, unstored_number};
use crate::attributes::{Attributes, DirEntry};
use crate::caller::Caller;
use crate::error::{Error, ErrorKind, Result};
use crate::inode::Inode;
use crate::state::State;
use crate::stop::Stop;
use crate::volume::Vfs;
use std::collections::HashSet;
use std::sync::Arc;
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
        let found = self.look_up_in_view(caller, view, &Name::new(name)?);
        found.map_err(|error| if error.kind() == ErrorKind::NotFound { ErrorKind::NotShown.into() } else { error })
    }

    fn look_up_in_view(&self, caller: Caller, view: Ino, name: &Name) -> Result<Attributes> {
        let give = |state: &mut State, ino| state.give_unstored(caller, ino);
        let (source, renames) = match self.run(|state| state.source_of(view))? {
            Seen::Directory { source, renames } => (source, renames),
            Seen::Archive(archive) => return self.look_up_member(view, &archive, name, give),
        };
        let found = if renames { self.called(view, source, name)? } else { name.clone() };
        self.run(|state| {
            let ino = state.appear(view, source, &found)?;
            if state.shows_again(ino)? {
                state.unheld(ino);
                return Err(ErrorKind::Loop.into());
            }
            give(state, ino)
        })
    }

    /// What is called otherwise in `source` that `view` calls `name`. `NotFound`.
    pub(super) fn called(&self, view: Ino, source: Ino, name: &Name) -> Result<Name> {
        let found = self.shown(view, source)?.into_iter().find(|shown| shown.name == *name);
        Ok(found.ok_or(ErrorKind::NotFound)?.source.name)
    }

    /// As [`Vfs::read_directory`], of a view.
    pub(crate) fn list_view(&self, view: Ino, after: Cookie, limit: usize) -> Result<Vec<DirEntry>> {
        let (source, renames) = match self.run(|state| state.source_of(view))? {
            Seen::Directory { source, renames } => (source, renames),
            Seen::Archive(archive) => return self.list_members(view, &archive, after, limit),
        };
        let entry = |shown: Entry| {
            let Entry { name, source: DirEntry { name: within, kind, cookie, ino } } = shown;
            let number = self.run(|state| state.number_in_view(view, &within, kind, ino));
            // What is damaged is so to whoever looks it up.
            let ino = number.unwrap_or_else(|_| unstored_number(view, within.as_bytes()));
            DirEntry { name, ino, kind, cookie }
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

    /// The inode of what is called `name` in `source`, a directory or a view, as `view` shows it.
    pub(super) fn appear(&mut self, view: Ino, source: Ino, name: &Name) -> Result<Ino, Stop> {
        let entry = self.within(source, name)?;
        let found = self.inode(entry)?.row.clone();
        let (link, generation) = (self.link_of(view)?, self.inode(view)?.row.generation);
        let Some(Looks::Directory(names)) = &link.looks else { return Err(ErrorKind::NotDirectory.into()) };
        let directory = &link.definition.targets[link.data][..];
        // That of the root ends with it already.
        let target = [directory.strip_suffix(b"/").unwrap_or(directory), b"/", name.as_bytes()].concat();
        let is_directory = match found.kind {
            Kind::Directory => true,
            Kind::Transformation => self.link_of(entry)?.looks.is_some(),
            _ => false,
        };
        let only = names.only.as_ref().filter(|_| !is_directory);
        self.resolving.take(only.map_or(0, |only| only.match_steps(name.as_bytes())))?;
        let shows = only.is_none_or(|only| only.is_match(name.as_bytes()));
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
            direct: link.definition.direct,
            fuse: link.definition.fuse,
            view: if is_directory { link.definition.view.clone() } else { ViewKind::File },
            trusted: link.definition.trusted,
        };
        let (kind, inline) = match found.kind {
            Kind::Symlink => (Kind::Symlink, found.inline.clone().unwrap_or_default()),
            kind if is_shown(kind) => (Kind::Transformation, Slice::from(inner.encode())),
            _ => return Err(ErrorKind::NotFound.into()),
        };
        self.resolving.take(2 + inline.len() / DIGESTED_A_STEP)?;
        let ino = self.number_in_view(view, name, found.kind, entry)?;
        let parent = self.stored_view(view)?;
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
            xattrs: 0,
            parent,
            ..found
        };
        let mut inode = Inode::loaded(row);
        if is_directory && self.inodes.get(&ino).is_none_or(|known| known.row != inode.row) {
            let link = definition::read_shown(&inode, names).ok_or_else(|| Error::new(ErrorKind::Corrupt, ino))?;
            inode.link = Some(Arc::new(link));
        }
        self.put_unstored(inode);
        Ok(ino)
    }

    /// The number of what `view` shows of `name`, which is inode `found`.
    fn number_in_view(&mut self, view: Ino, name: &Name, kind: Kind, found: Ino) -> Result<Ino, Stop> {
        if kind != Kind::Symlink {
            return Ok(unstored_number(view, name.as_bytes()));
        }
        // That of one in a view tells which it is.
        let changed = if is_unstored(found) { 0 } else { self.inode(found)?.row.ctime.0 };
        let version = [&found.0.to_le_bytes()[..], &changed.to_le_bytes()].concat();
        Ok(symlink_number(view, name.as_bytes(), &version))
    }

    /// The view in the volume that is `view`, or of which that is an entry, at any depth.
    pub(super) fn stored_view(&mut self, view: Ino) -> Result<Ino, Stop> {
        Ok(if is_unstored(view) { self.inode(view)?.row.parent } else { view })
    }

    /// Whether `ino`, which appears in a view, is a view by way of the one in which it appears: it would show itself without an end.
    fn shows_again(&mut self, ino: Ino) -> Result<bool, Stop> {
        let mut at = ino;
        // Or what it shows does, which appears in a view, too.
        while is_unstored(at) {
            let row = &self.inode(at)?.row;
            let (kind, view) = (row.kind, row.parent);
            if kind != Kind::Transformation || self.link_of(at)?.looks.is_none() {
                break;
            }
            match self.resolve(at) {
                Ok(resolved) if resolved.leads_by(view) => return Ok(true),
                Ok(resolved) => at = resolved.data(),
                // It leads nowhere, which whoever looks into it comes to hear of.
                Err(Stop::Fail(_)) => break,
                Err(miss) => return Err(miss),
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::super::rename::tests::COMPILED;
    use super::*;
    use crate::caller::MakeNode;
    use crate::clock::ManualClock;
    use crate::options::Options;
    use weft_store::VolumeOptions;
    use weft_testkit::CrashStore;

    /// Looking at one stopped the file system for as long as that takes, and each kept a copy.
    #[test]
    fn directories_in_a_view_share_its_compiled_names() {
        let store = Arc::new(CrashStore::new(VolumeOptions::default()));
        let options = Options { background: false, ..Options::default() };
        let vfs = Vfs::open(store, None, options, Arc::new(ManualClock::default())).expect("opens");
        let directory = MakeNode { kind: Kind::Directory, permissions: 0o755, umask: 0, rdev: 0 };
        let make = |parent, name: &str| vfs.make(Caller::ROOT, parent, name.as_bytes(), directory).expect("made").ino;
        let source = make(Ino::ROOT, "source");
        for number in 0..20 {
            make(make(source, &number.to_string()), "deep");
        }
        let (rename, only) = (Some("s/QQ/z/".to_owned()), Some("QQ".to_owned()));
        let view = ViewKind::Directory { rename, only };
        let definition = LinkDefinition { view, ..LinkDefinition::new(vec![b"/source".to_vec()], "upper") };
        let view = vfs.make_link(Caller::ROOT, Ino::ROOT, b"view", 0o777, &definition).expect("made").ino;
        let find = |at, name: &str| vfs.lookup(Caller::ROOT, at, name.as_bytes()).expect("shown").ino;
        find(view, "0");
        let before = COMPILED.get();
        let deep: Vec<Ino> = (0..20).map(|number| find(find(view, &number.to_string()), "deep")).collect();
        assert_eq!(COMPILED.get(), before);
        let mut state = vfs.state.lock();
        let mut names = |ino| state.inodes.get(&ino).and_then(|inode| inode.link.as_ref()?.names().cloned());
        let own = names(view).expect("it has some");
        assert!(deep.into_iter().all(|ino| names(ino).is_some_and(|names| Arc::ptr_eq(&names, &own))));
        // Counted where they are.
        drop(own);
        let link = LinkDefinition { view: ViewKind::Directory { rename: None, only: None }, ..definition };
        drop(state);
        let plain = vfs.make_link(Caller::ROOT, Ino::ROOT, b"plain", 0o777, &link).expect("made").ino;
        find(plain, "0");
        let mut state = vfs.state.lock();
        let mut weight = |ino| crate::cache::Cached::weight(state.inodes.get(&ino).expect("in memory"));
        assert!(weight(view) > weight(plain) + 1024);
    }
}
