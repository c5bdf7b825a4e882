//! Views of directories: what is in them is what is in their source, looked at whenever somebody
//! asks.

use crate::Version;
use crate::attachment::Attachment;
use crate::definition::Looks;
use crate::definition::names::Names;
use crate::directories::entry::What;
use crate::directories::virtual_inodes::{symlink_number, virtual_number};
use crate::layer::Links;
use crate::linked_tree::LinkedTree;
use crate::resolving::reach::Maker;
use crate::resolving::resolve::{DIGESTED_A_STEP, Resolved};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use weft_store::{Cookie, Ino, InodeRow, Kind, Name, Timestamp};
use weft_transform::interrupt;
use weft_tree::{Attributes, Caller, DirEntry, ErrorKind, Inode, Result, Stop, is_virtual};
use weft_vfs::blocking::{self, Wait};

/// Entries of a source that are looked at together.
const PAGE: usize = 1024;

/// Source of a view.
pub(crate) enum Seen {
    Directory { source: Ino, renames: bool },
    Archive(Resolved),
}

/// Names that are renamed before it is asked whether anybody waits for them: one may take
/// milliseconds.
const RENAMED_AT_ONCE: usize = 16;

/// Views of which it is remembered how they call all that they show, and bytes that this takes.
const RENAMED_VIEWS_MAX: usize = 8;
const RENAMED_BYTES_MAX: usize = 32 << 20;

/// The entries of some views that rename; the one used last comes last.
#[derive(Default)]
pub(crate) struct Renamed(Mutex<Vec<RenamedView>>);

/// The entries of one.
struct RenamedView {
    view: Ino,
    /// The version and time that the view led to then.
    of: (Version, Timestamp),
    all: Arc<Vec<Entry>>,
    /// Bytes of memory that they take, about.
    bytes: usize,
}

impl Renamed {
    /// The entries of `view`, which leads to `of`, and is used now.
    fn used(&self, view: Ino, of: (Version, Timestamp)) -> Option<Arc<Vec<Entry>>> {
        let mut views = self.0.lock();
        let at = views.iter().position(|known| known.view == view && known.of == of)?;
        let found = views.remove(at);
        let all = found.all.clone();
        views.push(found);
        Some(all)
    }

    /// Keeps the entries of `view`, if they are not too many. Others go, those used longest ago
    /// first.
    fn keep(&self, view: Ino, of: (Version, Timestamp), all: &Arc<Vec<Entry>>) {
        let bytes_of =
            |entry: &Entry| size_of::<Entry>() + entry.name.as_bytes().len() + entry.source.name.as_bytes().len() + 64;
        let bytes = all.iter().map(bytes_of).sum();
        if bytes > RENAMED_BYTES_MAX {
            return;
        }
        let mut views = self.0.lock();
        views.retain(|known| known.view != view);
        views.push(RenamedView { view, of, all: all.clone(), bytes });
        while views.len() > RENAMED_VIEWS_MAX
            || views.iter().map(|known| known.bytes).sum::<usize>() > RENAMED_BYTES_MAX
        {
            views.remove(0);
        }
    }
}

/// An entry of a view.
#[derive(Clone)]
struct Entry {
    name: Name,
    /// As it is called where it is.
    source: DirEntry,
}

impl Links<'_> {
    /// As [`Vfs::lookup`], in something that may look like a directory.
    pub(crate) fn lookup_in_view(&self, caller: Caller, view: Ino, name: &[u8]) -> Result<Attributes> {
        self.look_up_in_view(caller, view, &Name::new(name)?)
    }

    fn look_up_in_view(&self, caller: Caller, view: Ino, name: &Name) -> Result<Attributes> {
        let give = |state: &mut LinkedTree<'_>, ino| state.give_virtual(caller, ino);
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

    /// Returns the name in `source` of the entry that `view` renames to `name`. `NotFound`.
    pub(crate) fn called(&self, view: Ino, source: Ino, name: &Name) -> Result<Name> {
        let shown = self.shown(view, source)?;
        let found = shown.iter().find(|shown| shown.name == *name).ok_or(ErrorKind::NotFound)?;
        Ok(found.source.name.clone())
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
            let ino = number.unwrap_or_else(|_| virtual_number(view, within.as_bytes()));
            DirEntry { name, ino, kind, cookie }
        };
        if renames {
            // Which of those that get the same name is seen follows from all of them.
            let shown = self.shown(view, source)?;
            let shown = shown.iter().filter(|shown| shown.source.cookie > after);
            return Ok(shown.take(limit).cloned().map(entry).collect());
        }
        let mut listed = Vec::new();
        let mut after = after;
        while listed.len() < limit {
            let page = match self.read_directory(source, after, limit - listed.len()) {
                // Whoever goes on after those that are listed comes to it.
                Err(error) if error.kind() == ErrorKind::Corrupt && !listed.is_empty() => break,
                page => page?,
            };
            let Some(last) = page.last() else { break };
            after = last.cookie;
            let seen = page.into_iter().filter(|source| is_shown(source.kind));
            listed.extend(seen.map(|source| entry(Entry { name: source.name.clone(), source })));
        }
        Ok(listed)
    }

    /// All that is seen in `view`, which renames, of directory `source`: of those that get the same
    /// name, the first. `Interrupted`, `Busy`, `WouldBlock`.
    fn shown(&self, view: Ino, source: Ino) -> Result<Arc<Vec<Entry>>> {
        let look = |state: &mut LinkedTree<'_>| {
            let resolved = state.resolve(view)?;
            Ok((resolved.link.clone(), resolved.told()))
        };
        let (link, of) = self.run(look)?;
        if let Some(all) = self.layer.renamed.used(view, of) {
            return Ok(all);
        }
        let names = link.names().ok_or(ErrorKind::NotDirectory)?;
        self.may_wait(Wait::Network)?;
        let all = Arc::new(blocking::waiting(|| self.computing(|| self.rename_all(names, source)))??);
        if self.run(look)?.1 == of {
            self.layer.renamed.keep(view, of, &all);
        }
        Ok(all)
    }

    /// Reads all of `source`. A turn of the asker's user is taken for that: it may be large, and
    /// nobody else is to wait for it.
    fn rename_all(&self, names: &Names, source: Ino) -> Result<Vec<Entry>> {
        #[cfg(test)]
        tests::RENAMED.set(tests::RENAMED.get() + 1);
        let (mut all, mut taken, mut after) = (Vec::new(), HashSet::new(), Cookie(0));
        loop {
            let page = self.read_directory(source, after, PAGE)?;
            let Some(last) = page.last() else { return Ok(all) };
            after = last.cookie;
            for (number, source) in page.into_iter().filter(|source| is_shown(source.kind)).enumerate() {
                if number % RENAMED_AT_ONCE == 0 && interrupt::is_interrupted() {
                    return Err(ErrorKind::Interrupted.into());
                }
                let rename = names.rename.as_ref().filter(|_| source.kind == Kind::File);
                let own = source.name.as_bytes();
                let called = rename.map_or_else(|| own.to_vec(), |rule| rule.apply(own));
                // What cannot be called so is not seen.
                let Ok(name) = Name::new(&called) else { continue };
                if taken.insert(name.clone()) {
                    all.push(Entry { name, source });
                }
            }
        }
    }
}

/// True if views show entries of this kind.
fn is_shown(kind: Kind) -> bool {
    matches!(kind, Kind::File | Kind::Directory | Kind::Symlink | Kind::Transformation)
}

impl LinkedTree<'_> {
    /// Returns the source of `view`. `NotDirectory` if it is a view of a file.
    pub(crate) fn source_of(&mut self, view: Ino) -> Result<Seen, Stop> {
        if self.tree.inode(view)?.row.kind != Kind::Transformation {
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
    pub(crate) fn appear(&mut self, view: Ino, source: Ino, name: &Name) -> Result<Ino, Stop> {
        let entry = self.within(source, name)?;
        let found = self.tree.inode(entry)?.row.clone();
        let (link, generation) = (self.link_of(view)?, self.tree.inode(view)?.row.generation);
        let Some(Looks::Directory(names)) = &link.looks else { return Err(ErrorKind::NotDirectory.into()) };
        let is_directory = match found.kind {
            Kind::Directory => true,
            Kind::Transformation => self.looks_like_directory(entry)?,
            _ => false,
        };
        let only = names.only.as_ref().filter(|_| !is_directory);
        self.links.resolving.take(only.map_or(0, |only| only.match_steps(name.as_bytes())))?;
        let shows = only.is_none_or(|only| only.is_match(name.as_bytes()));
        let (kind, inline, what) = match found.kind {
            Kind::Symlink => (Kind::Symlink, Some(found.inline.clone().unwrap_or_default()), None),
            kind if !is_shown(kind) => return Err(ErrorKind::NotFound.into()),
            _ if is_directory => (Kind::Transformation, None, Some(What::Directory)),
            _ if shows => (Kind::Transformation, None, Some(What::Transformed)),
            _ => (Kind::Transformation, None, Some(What::Untouched)),
        };
        let size = inline.as_ref().map_or(0, |target| target.len());
        self.links.resolving.take(2 + size / DIGESTED_A_STEP)?;
        let ino = self.number_in_view(view, name, found.kind, entry)?;
        let parent = self.stored_view(view)?;
        let Maker { uid, gid } = self.shown_owner(parent, &found)?;
        let permissions = if kind == Kind::Symlink { 0o777 } else { 0o777 & found.permissions };
        let (nlink, xattrs, size) = (1, 0, size as u64);
        let row =
            InodeRow { ino, generation, kind, permissions, nlink, size, inline, xattrs, parent, uid, gid, ..found };
        let mut inode = Inode::loaded(row);
        if let Some(what) = what {
            Attachment::Shows(self.shows(view, name, what)?).put(&mut inode);
        }
        self.put_virtual(inode);
        Ok(ino)
    }

    /// The owner of what a view shows of `found`. A user can have a view call anything by any name
    /// and say anything: that must not look as if it were somebody else's. Root may give away
    /// files.
    fn shown_owner(&mut self, view: Ino, found: &InodeRow) -> Result<Maker, Stop> {
        let maker = self.maker_of(view)?;
        let is_theirs = maker.uid == 0 || maker.uid == found.uid;
        Ok(if is_theirs { Maker { uid: found.uid, gid: found.gid } } else { maker })
    }

    /// The number of what `view` shows of `name`, which is inode `found`.
    fn number_in_view(&mut self, view: Ino, name: &Name, kind: Kind, found: Ino) -> Result<Ino, Stop> {
        if kind != Kind::Symlink {
            return Ok(virtual_number(view, name.as_bytes()));
        }
        // That of one in a view tells which it is.
        let changed = if is_virtual(found) { 0 } else { self.tree.inode(found)?.row.ctime.0 };
        let version = [&found.0.to_le_bytes()[..], &changed.to_le_bytes()].concat();
        Ok(symlink_number(view, name.as_bytes(), &version))
    }

    /// The view in the volume that is `view`, or of which that is an entry, at any depth.
    pub(crate) fn stored_view(&mut self, view: Ino) -> Result<Ino, Stop> {
        Ok(if is_virtual(view) { self.tree.inode(view)?.row.parent } else { view })
    }

    /// True if `ino`, an entry of a view, is itself a view that leads through the view in which it
    /// appears: it would show itself without end.
    fn shows_again(&mut self, ino: Ino) -> Result<bool, Stop> {
        let mut at = ino;
        // Or what it shows does, which appears in a view, too.
        while is_virtual(at) {
            let row = &self.tree.inode(at)?.row;
            let (kind, view) = (row.kind, row.parent);
            if kind != Kind::Transformation || !self.looks_like_directory(at)? {
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
    use super::*;
    use crate::definition::names::tests::COMPILED;
    use crate::definition::{LinkDefinition, ViewKind};
    use crate::options::LinkOptions;
    use crate::results::{Lane, set_lane};
    use std::cell::Cell;
    use weft_store::VolumeOptions;
    use weft_testkit::CrashStore;
    use weft_tree::MakeNode;
    use weft_vfs::{ManualClock, Options, Requester, Vfs, set_requester};

    thread_local! {
        /// Directories all of whose names this thread has renamed.
        pub(crate) static RENAMED: Cell<usize> = const { Cell::new(0) };
    }

    fn volume() -> Arc<Vfs> {
        let store = Arc::new(CrashStore::new(VolumeOptions::default()));
        let options = Options { background: false, ..Options::default() };
        crate::open(store, None, options, LinkOptions::default(), Arc::new(ManualClock::default())).expect("opens")
    }

    fn view(vfs: &Vfs, name: &[u8], rename: &str) -> Ino {
        let view = ViewKind::Directory { rename: Some(rename.into()), only: None };
        let definition = LinkDefinition { view, ..LinkDefinition::new(vec![b"/source".to_vec()], "upper") };
        Links::of(vfs).make_link(Caller::ROOT, Ino::ROOT, name, 0o777, &definition).expect("made").ino
    }

    /// A source with two files, and a way to make more.
    fn source(vfs: &Vfs) -> impl Fn(&str) + use<'_> {
        let node = |kind| MakeNode { kind, permissions: 0o755, umask: 0, rdev: 0 };
        let source = vfs.make(Caller::ROOT, Ino::ROOT, b"source", node(Kind::Directory)).expect("made").ino;
        let make = move |name: &str| {
            vfs.make(Caller::ROOT, source, name.as_bytes(), node(Kind::File)).expect("made");
        };
        make("a");
        make("b");
        make
    }

    #[test]
    fn names_of_a_view_are_made_once_for_a_state_of_its_source() {
        let vfs = volume();
        let make = source(&vfs);
        let view = view(&vfs, b"view", "s/$/.x/");
        let before = RENAMED.get();
        for _ in 0..10 {
            assert!(vfs.lookup(Caller::ROOT, view, b"a.x").is_ok() && vfs.lookup(Caller::ROOT, view, b"b.x").is_ok());
            assert!(vfs.lookup(Caller::ROOT, view, b"c.x").is_err());
            assert_eq!(vfs.read_directory(view, Cookie(0), 1).expect("listed").len(), 1);
        }
        assert_eq!(RENAMED.get(), before + 1);
        make("c");
        assert!(vfs.lookup(Caller::ROOT, view, b"c.x").is_ok());
        assert_eq!(RENAMED.get(), before + 2);
    }

    #[test]
    fn names_that_are_kept_have_a_bound() {
        let renamed = Renamed::default();
        let entries = |bytes: usize| {
            let name = Name::new(&[b'n'; 255]).expect("a name");
            let (kind, cookie) = (Kind::File, Cookie(3));
            let entry = Entry { name: name.clone(), source: DirEntry { name, ino: Ino(2), kind, cookie } };
            Arc::new(vec![entry; bytes / 510])
        };
        let of = (Version::default(), Timestamp(0));
        (2..5).for_each(|view| renamed.keep(Ino(view), of, &entries(RENAMED_BYTES_MAX / 3)));
        assert!(renamed.0.lock().iter().map(|known| known.bytes).sum::<usize>() <= RENAMED_BYTES_MAX);
        assert!(renamed.used(Ino(4), of).is_some() && renamed.used(Ino(2), of).is_none());
        renamed.keep(Ino(5), of, &entries(RENAMED_BYTES_MAX));
        assert!(renamed.used(Ino(5), of).is_none());
        (10..30).for_each(|view| renamed.keep(Ino(view), of, &entries(510)));
        assert_eq!(renamed.0.lock().len(), RENAMED_VIEWS_MAX);
    }

    /// They took all who serve, also for programs that had been killed.
    #[test]
    fn renaming_takes_a_turn_of_those_who_compute_and_ends_when_nobody_waits() {
        let vfs = volume();
        let _make_more = source(&vfs);
        let (one, two) = (view(&vfs, b"one", "s/$/.x/"), view(&vfs, b"two", "s/$/.y/"));
        set_requester(Requester { user: 7, number: Some(1), ..Requester::default() });
        Links::of(&vfs).interrupt(1);
        let kind = |found: Result<Attributes>| found.expect_err("it fails").kind();
        assert_eq!(kind(vfs.lookup(Caller::ROOT, one, b"a.x")), ErrorKind::Interrupted);
        set_requester(Requester { user: 7, number: Some(2), ..Requester::default() });
        assert!(vfs.lookup(Caller::ROOT, one, b"a.x").is_ok(), "nobody remembers that");
        // Of two who serve one computes already.
        let lane = Lane::new(2);
        set_lane(lane.clone());
        let (computes, done) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                set_lane(lane);
                Links::of(&vfs)
                    .computing(|| {
                        computes.wait();
                        done.wait();
                    })
                    .expect("a turn");
            });
            computes.wait();
            let found = vfs.lookup(Caller::ROOT, two, b"a.y");
            let known = vfs.lookup(Caller::ROOT, one, b"b.x");
            done.wait();
            assert_eq!(kind(found), ErrorKind::Busy);
            assert!(known.is_ok());
        });
        assert!(vfs.lookup(Caller::ROOT, two, b"a.y").is_ok());
    }

    /// Looking at one stopped the file system for as long as that takes, and each kept a copy.
    #[test]
    fn directories_in_a_view_share_its_compiled_names() {
        let vfs = volume();
        let directory = MakeNode { kind: Kind::Directory, permissions: 0o755, umask: 0, rdev: 0 };
        let make = |parent, name: &str| vfs.make(Caller::ROOT, parent, name.as_bytes(), directory).expect("made").ino;
        let source = make(Ino::ROOT, "source");
        for number in 0..20 {
            make(make(source, &number.to_string()), "deep");
        }
        let (rename, only) = (Some("s/QQ/z/".to_owned()), Some("QQ".to_owned()));
        let view = ViewKind::Directory { rename, only };
        let definition = LinkDefinition { view, ..LinkDefinition::new(vec![b"/source".to_vec()], "upper") };
        let view = Links::of(&vfs).make_link(Caller::ROOT, Ino::ROOT, b"view", 0o777, &definition).expect("made").ino;
        let find = |at, name: &str| vfs.lookup(Caller::ROOT, at, name.as_bytes()).expect("shown").ino;
        find(view, "0");
        let before = COMPILED.get();
        let deep: Vec<Ino> = (0..20).map(|number| find(find(view, &number.to_string()), "deep")).collect();
        assert_eq!(COMPILED.get(), before);
        let links = Links::of(&vfs);
        links.locked(|state| {
            let mut names = |ino| state.link_of(ino).ok().and_then(|link| link.names().cloned());
            let own = names(view).expect("it has some");
            assert!(deep.into_iter().all(|ino| names(ino).is_some_and(|names| Arc::ptr_eq(&names, &own))));
        });
        // Counted where they are.
        let link = LinkDefinition { view: ViewKind::Directory { rename: None, only: None }, ..definition };
        let plain = links.make_link(Caller::ROOT, Ino::ROOT, b"plain", 0o777, &link).expect("made").ino;
        find(plain, "0");
        links.locked(|state| {
            let mut weight = |ino| weft_tree::Cached::weight(state.tree.inodes.get(&ino).expect("in memory"));
            assert!(weight(view) > weight(plain) + 1024);
        });
    }
}
