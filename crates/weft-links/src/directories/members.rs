//! Views of archives: their members, read where they lie.

use crate::attachment::Attachment;
use crate::definition::compiled::Link;
use crate::definition::{Looks, Part};
use crate::directories::entry::What;
use crate::directories::virtual_inodes::{symlink_number, virtual_number};
use crate::layer::Links;
use crate::linked_tree::LinkedTree;
use crate::resolving::resolve::Resolved;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;
use weft_block::{Rope, Slice};
use weft_store::{Cookie, Ino, InodeRow, Kind, Name, Timestamp};
use weft_transform::archive::{self, Kind as MemberKind, Member, Room};
use weft_transform::{Charge, interrupt};
use weft_tree::{DirEntry, ErrorKind, Inode, Result, Stop};
use weft_vfs::blocking::{self, Wait};

/// Bytes of an archive that are read at once while its members are looked for.
const READ_BYTES: usize = 64 << 10;

/// The error of who reads an archive for nobody any more: those who read would go on after
/// `Interrupted`.
const INTERRUPTED: io::ErrorKind = io::ErrorKind::BrokenPipe;

/// Message for an archive that is not listed because its members take more memory than the user's
/// networks may.
const TOO_MUCH: &str = "its members take more memory than networks of its view's owner may have now";

/// Bytes of memory that all indexes may take, and so one of them.
const INDEX_BYTES_MAX: usize = 256 << 20;

/// About how many bytes an entry takes beside its name and target, and a directory with an entry,
/// for which its map makes room for several.
const NODE_BYTES: usize = 200;
const DIRECTORY_BYTES: usize = 1400;

/// Longest path of a member that is shown (`PATH_MAX`): no program could name a longer one.
const PATH_BYTES_MAX: usize = 4096;

/// Archives whose members are known, at most.
const INDEXES_MAX: usize = 8;

/// The members of some archives; the one used last comes last.
#[derive(Default)]
pub(crate) struct Indexes(Mutex<Vec<Known>>);

/// The members of one.
struct Known {
    /// The version of a link to all of it.
    version: crate::Version,
    archive: Ino,
    index: Arc<Index>,
}

/// Archives whose members are known, and those of them that were changed or deleted since.
#[derive(Default)]
pub(crate) struct Archives {
    /// By the files whose content they are made of.
    indexed: FxHashMap<Ino, Vec<Ino>>,
    gone: Vec<Ino>,
}

impl Archives {
    /// Notes that inode `ino` is deleted, or has another content.
    pub(crate) fn changed(&mut self, ino: Ino) {
        self.gone.extend(self.indexed.remove(&ino).unwrap_or_default());
    }

    /// True if there are none.
    pub(crate) fn are_none(&self) -> bool {
        self.indexed.is_empty()
    }

    /// Notes that `archive` was indexed, which is made of `files`, and that of all there were only
    /// those of `kept` are left.
    fn indexed(&mut self, archive: Ino, files: Vec<Ino>, kept: &[Ino]) {
        for file in files {
            self.indexed.entry(file).or_default().push(archive);
        }
        self.indexed.retain(|_, archives| {
            archives.sort_unstable();
            archives.dedup();
            archives.retain(|archive| kept.contains(archive));
            !archives.is_empty()
        });
    }
}

impl Indexes {
    /// The index of `version`, which is used now.
    fn used(&self, version: crate::Version) -> Option<Arc<Index>> {
        let mut all = self.0.lock();
        let at = all.iter().position(|known| known.version == version)?;
        let found = all.remove(at);
        let index = found.index.clone();
        all.push(found);
        Some(index)
    }

    /// Keeps one more, in the place of what there was of the same archive. Those used longest ago
    /// go until all have room. Tells the archives of which there are some.
    fn keep(&self, new: Known) -> Vec<Ino> {
        let mut all = self.0.lock();
        let mut gone: Vec<Known> = all.extract_if(.., |known| known.archive == new.archive).collect();
        all.push(new);
        while all.len() > INDEXES_MAX || all.iter().map(|known| known.index.bytes).sum::<usize>() > INDEX_BYTES_MAX {
            gone.push(all.remove(0));
        }
        let indexed = all.iter().map(|known| known.archive).collect();
        drop(all);
        drop(gone);
        indexed
    }

    /// Forgets those of `archives`.
    fn forget(&self, archives: &[Ino]) {
        let is_gone = |known: &mut Known| archives.contains(&known.archive);
        // They may be large, so the lock is free by then.
        let gone: Vec<Known> = self.0.lock().extract_if(.., is_gone).collect();
        drop(gone);
    }

    /// Bytes of memory that all take, about.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.0.lock().iter().map(|known| known.index.bytes).sum()
    }
}

/// The members of an archive, as a tree.
#[derive(Debug, Default)]
struct Index {
    /// Directories by their paths, without slashes around; the root is empty. Names in them, and
    /// what they name.
    directories: BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, Node>>,
    /// Bytes of memory that they take, about.
    bytes: usize,
}

#[derive(Clone, Debug)]
struct Node {
    kind: NodeKind,
    permissions: u32,
    changed: Option<i64>,
}

#[derive(Clone, Debug)]
enum NodeKind {
    Directory,
    Symlink(Vec<u8>),
    File { start: u64, stored: u64, size: u64, network: Option<String> },
}

impl Index {
    /// As a tree; refused if that takes too much memory, as of many long paths.
    fn new(members: Vec<Member>, room: Room<'_>) -> io::Result<Index> {
        let mut index = Index::default();
        index.directories.entry(Vec::new()).or_default();
        for member in members {
            index.add(member);
            if !room(index.bytes) {
                return Err(io::ErrorKind::OutOfMemory.into());
            }
            if index.bytes > INDEX_BYTES_MAX {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "its paths and targets are too many and too long",
                ));
            }
        }
        Ok(index)
    }

    fn directory(&mut self, path: Vec<u8>) -> &mut BTreeMap<Vec<u8>, Node> {
        let bytes = path.len() + DIRECTORY_BYTES;
        self.directories.entry(path).or_insert_with(|| {
            self.bytes += bytes;
            BTreeMap::new()
        })
    }

    /// Adds a member whose path leads somewhere within. What comes later wins, but for files in the
    /// place of directories that hold something.
    fn add(&mut self, member: Member) {
        let names = member.path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".");
        let names: Vec<&[u8]> = names.collect();
        if member.path.len() > PATH_BYTES_MAX {
            return;
        }
        let Some((name, parents)) = names.split_last() else { return };
        if names.iter().any(|name| Name::new(name).is_err()) {
            return;
        }
        let (kind, usual) = match member.kind {
            MemberKind::Directory => (NodeKind::Directory, 0o755),
            MemberKind::Symlink(target) => (NodeKind::Symlink(target), 0o777),
            MemberKind::File { start, stored, network, size } => {
                (NodeKind::File { start, stored, size, network }, 0o644)
            }
        };
        let mut path = Vec::new();
        for parent in parents {
            let made = Node { kind: NodeKind::Directory, permissions: 0o755, changed: None };
            let node = self.directory(path.clone()).entry(parent.to_vec()).or_insert(made.clone());
            if !matches!(node.kind, NodeKind::Directory) {
                *node = made;
            }
            path = joined(&path, parent);
            self.directory(path.clone());
        }
        let own = joined(&path, name);
        if matches!(kind, NodeKind::Directory) {
            self.directory(own);
        } else if self.directories.contains_key(&own) {
            return;
        }
        let node = Node { kind, permissions: member.permissions.unwrap_or(usual), changed: member.changed };
        let target = if let NodeKind::Symlink(target) = &node.kind { target.len() } else { 0 };
        self.bytes += name.len() + target + NODE_BYTES;
        self.directory(path).insert(name.to_vec(), node);
    }
}

impl Node {
    /// The number of what `view` shows at `path`, which is this one.
    fn number(&self, view: Ino, resolved: &Resolved, path: &[u8]) -> Ino {
        match self.kind {
            NodeKind::Symlink(_) => symlink_number(view, path, &resolved.source),
            _ => virtual_number(view, path),
        }
    }
}

fn joined(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() }
}

impl Links<'_> {
    /// As [`Links::look_up_in_view`], in a view of an archive.
    pub(crate) fn look_up_member<T>(
        &self,
        view: Ino,
        resolved: &Resolved,
        name: &Name,
        then: impl Fn(&mut LinkedTree<'_>, Ino) -> Result<T, Stop>,
    ) -> Result<T> {
        let index = self.index(view, resolved)?;
        let path = within(&resolved.link)?;
        let node =
            index.directories.get(path).and_then(|names| names.get(name.as_bytes())).ok_or(ErrorKind::NotFound)?;
        self.run(|state| {
            let ino = state.appear_member(view, resolved, (&joined(path, name.as_bytes()), name), node)?;
            then(state, ino)
        })
    }

    /// As [`Vfs::read_directory`], of a view of an archive: by the order of names.
    pub(crate) fn list_members(
        &self,
        view: Ino,
        resolved: &Resolved,
        after: Cookie,
        limit: usize,
    ) -> Result<Vec<DirEntry>> {
        let index = self.index(view, resolved)?;
        let path = within(&resolved.link)?;
        let names = index.directories.get(path).ok_or(ErrorKind::NotFound)?;
        // The first cookies are never given out.
        let first = Cookie(0).next().next().next();
        let seen = names.iter().zip(first.0..).skip_while(|(_, cookie)| *cookie <= after.0).take(limit);
        let entry = |((name, node), cookie): ((&Vec<u8>, &Node), u64)| {
            let kind = match node.kind {
                NodeKind::Directory => Kind::Directory,
                NodeKind::Symlink(_) => Kind::Symlink,
                NodeKind::File { .. } => Kind::File,
            };
            let ino = node.number(view, resolved, &joined(path, name));
            Ok(DirEntry { name: Name::new(name)?, ino, kind, cookie: Cookie(cookie) })
        };
        seen.map(entry).collect()
    }

    /// The members of the archive that `view` shows.
    fn index(&self, view: Ino, resolved: &Resolved) -> Result<Arc<Index>> {
        let version = resolved.source;
        if let Some(index) = self.layer.indexes.used(version) {
            return Ok(index);
        }
        self.may_wait(Wait::Commit)?;
        let archive = resolved.data();
        // As for networks, it counts for the user whose view it is.
        let owner = self.run(|state| Ok(state.maker_of(view)?.uid))?;
        let mut charge = Charge::of(Some(owner), self.layer.options.networks);
        let mut archive_read = Archive { links: *self, ino: archive, at: 0, read: (0, Rope::new()) };
        let index = blocking::waiting(|| self.computing(|| indexed(&mut archive_read, &mut charge)))?;
        if index.as_ref().is_err_and(|error| error.kind() == INTERRUPTED) {
            return Err(ErrorKind::Interrupted.into());
        }
        let index = index.map_err(|error| {
            let path = self.path(view);
            // What follows a colon may be bytes of the archive, which are no business of whoever
            // reads the log.
            let error = error.to_string();
            let why = error.split([':', '\n']).next().unwrap_or_default();
            tracing::warn!(
                user = weft_vfs::asking_user(),
                "{} cannot be listed as an archive: {why}",
                String::from_utf8_lossy(&path)
            );
            ErrorKind::Io
        })?;
        if self.run(|state| state.resolve(view))?.source != version {
            // It was changed while it was read; whoever asks again sees it as it is.
            return Err(ErrorKind::Io.into());
        }
        let index = Arc::new(index);
        let indexed = self.layer.indexes.keep(Known { version, archive, index: index.clone() });
        let is_same = self.run(|state| {
            // What it is made of may have changed just now, before that was noted.
            let resolved = state.resolve(view)?;
            let files = state.files_of(&resolved);
            state.links.archives.indexed(archive, files, &indexed);
            Ok(resolved.source == version)
        });
        if !is_same.unwrap_or(false) {
            self.layer.indexes.forget(&[archive]);
        }
        Ok(index)
    }

    /// Forgets the members of archives that were changed or deleted.
    pub(crate) fn forget_archives(&self) {
        let gone = self.locked(|state| std::mem::take(&mut state.links.archives.gone));
        if !gone.is_empty() {
            self.layer.indexes.forget(&gone);
        }
    }
}

fn within(link: &Link) -> Result<&[u8]> {
    match &link.looks {
        Some(Looks::Archive { within }) => Ok(within),
        _ => Err(ErrorKind::NotDirectory.into()),
    }
}

/// Reads all of an archive's index, as far as `charge` allows.
fn indexed(archive: &mut Archive<'_>, charge: &mut Charge) -> io::Result<Index> {
    let mut taken = 0;
    let members = members(archive, &mut |bytes| {
        taken = bytes;
        charge.raise(bytes)
    });
    let index = members.and_then(|members| Index::new(members, &mut |bytes| charge.raise(taken.saturating_add(bytes))));
    index.map_err(|error| match error.kind() {
        io::ErrorKind::OutOfMemory => io::Error::new(error.kind(), TOO_MUCH),
        _ => error,
    })
}

/// The members of an archive, which is of tar unless it begins as those of zip do.
fn members(archive: &mut Archive<'_>, room: Room<'_>) -> io::Result<Vec<Member>> {
    let mut begin = [0; 4];
    let count = archive.read(&mut begin)?;
    archive.seek(SeekFrom::Start(0))?;
    if matches!(&begin[..count], b"PK\x03\x04" | b"PK\x05\x06") {
        archive::zip_members(archive, room)
    } else {
        archive::tar_members(archive, room)
    }
}

/// A file, as programs read one.
struct Archive<'a> {
    links: Links<'a>,
    ino: Ino,
    at: u64,
    /// The bytes read last, and their offset.
    read: (u64, Rope),
}

impl Read for Archive<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (from, rope) = &self.read;
        if self.at < *from || self.at >= from + rope.len() as u64 {
            if interrupt::is_interrupted() {
                return Err(INTERRUPTED.into());
            }
            let rope = self.links.read(self.ino, self.at, READ_BYTES);
            self.read = (self.at, rope.map_err(|error| io::Error::from_raw_os_error(error.errno()))?);
        }
        let (from, rope) = &self.read;
        let mut skip = usize::try_from(self.at - from).expect("in what was read");
        for slice in rope.slices() {
            if skip < slice.len() {
                let bytes = &slice[skip..];
                let count = bytes.len().min(buffer.len());
                buffer[..count].copy_from_slice(&bytes[..count]);
                self.at += count as u64;
                return Ok(count);
            }
            skip -= slice.len();
        }
        Ok(0)
    }
}

impl Seek for Archive<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let beyond = || io::Error::from(io::ErrorKind::InvalidInput);
        self.at = match to {
            SeekFrom::Start(at) => at,
            SeekFrom::Current(by) => self.at.checked_add_signed(by).ok_or_else(beyond)?,
            SeekFrom::End(by) => {
                let attributes = self.links.run(|state| state.attributes_measured(self.ino));
                let size = attributes.map_err(|error| io::Error::from_raw_os_error(error.errno()))?.size;
                size.checked_add_signed(by).ok_or_else(beyond)?
            }
        };
        Ok(self.at)
    }
}

impl LinkedTree<'_> {
    /// The files from whose content that of a link follows.
    fn files_of(&mut self, resolved: &Resolved) -> Vec<Ino> {
        let sources = resolved.sources();
        sources.filter(|ino| self.tree.inodes.get(ino).is_some_and(|inode| inode.row.kind == Kind::File)).collect()
    }

    /// The inode of the member at `path`, as `view` shows it.
    fn appear_member(
        &mut self,
        view: Ino,
        resolved: &Resolved,
        (path, name): (&[u8], &Name),
        node: &Node,
    ) -> Result<Ino, Stop> {
        let owner = self.tree.inode(resolved.data())?.row.clone();
        let ino = node.number(view, resolved, path);
        let (kind, inline, what) = match &node.kind {
            NodeKind::Symlink(target) => (Kind::Symlink, target.clone(), None),
            NodeKind::Directory => (Kind::Transformation, Vec::new(), Some(What::Directory)),
            NodeKind::File { start, stored, size, network } => {
                let part = Part { start: *start, len: *stored, of: resolved.source };
                let unpack = network.clone().ok_or(ErrorKind::NotSupported)?;
                let what = What::Member { unpack, part, size: *size };
                (Kind::Transformation, [start.to_le_bytes(), stored.to_le_bytes()].concat(), Some(what))
            }
        };
        let inline = if what.is_some() { [&resolved.source[..], &inline].concat() } else { inline };
        let at = node.changed.map_or(owner.mtime, |seconds| Timestamp::from_parts(seconds, 0));
        // Who may read the archive may read all of it. A copy of a directory can be changed.
        let permissions = match &node.kind {
            NodeKind::Symlink(_) => 0o777,
            NodeKind::Directory => node.permissions & 0o777,
            NodeKind::File { .. } => node.permissions & 0o555,
        };
        let inline = Some(Slice::from(inline));
        let (nlink, xattrs, allocated) = (1, 0, 0);
        let parent = self.stored_view(view)?;
        let size = if let NodeKind::Symlink(target) = &node.kind { target.len() as u64 } else { owner.size };
        let row = InodeRow {
            ino,
            kind,
            permissions,
            nlink,
            inline,
            xattrs,
            parent,
            size,
            allocated,
            mtime: at,
            btime: at,
            ..owner
        };
        let mut inode = Inode::loaded(row);
        let is_link = what.is_some();
        if let Some(what) = what {
            Attachment::Shows(self.shows(view, name, what)?).put(&mut inode);
        }
        self.put_virtual(inode);
        if is_link {
            // Its network and the view's may make no sense together.
            self.link_of(ino)?;
        }
        Ok(ino)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::{LinkDefinition, ViewKind};
    use crate::options::LinkOptions;
    use weft_store::VolumeOptions;
    use weft_testkit::CrashStore;
    use weft_tree::{Caller, MakeNode, SetAttributes};
    use weft_vfs::{ManualClock, Options, Vfs};

    fn symlink(number: usize, target: usize) -> Member {
        let (path, kind) = (number.to_string().into_bytes(), MemberKind::Symlink(vec![b't'; target]));
        Member { path, kind, permissions: None, changed: None }
    }

    #[test]
    fn targets_and_directories_count_in_the_memory_of_an_index() {
        let index =
            Index::new((0..100).map(|number| symlink(number, 4000)).collect(), &mut |_| true).expect("it is small");
        assert!(index.bytes > 100 * 4000);
        let deep = |number| Member { path: format!("{number}/member").into_bytes(), ..symlink(0, 1) };
        let index = Index::new((0..100).map(deep).collect(), &mut |_| true).expect("it is small");
        assert!(index.bytes > 100 * 11 * size_of::<(Vec<u8>, Node)>());
    }

    #[test]
    fn all_indexes_together_have_a_bound_and_each_archive_has_one() {
        let indexes = Indexes::default();
        let known = |archive, version, bytes| {
            let index = Arc::new(Index { bytes, ..Index::default() });
            Known { version: [version; 32], archive: Ino(archive), index }
        };
        for archive in 1..=4 {
            indexes.keep(known(archive, 0, INDEX_BYTES_MAX / 3));
        }
        assert!(indexes.bytes() <= INDEX_BYTES_MAX);
        assert_eq!(indexes.keep(known(4, 1, INDEX_BYTES_MAX / 3)), [Ino(2), Ino(3), Ino(4)]);
        assert_eq!(indexes.keep(known(5, 2, INDEX_BYTES_MAX)), [Ino(5)]);
        assert!(indexes.used([2; 32]).is_some() && indexes.used([1; 32]).is_none());
    }

    fn volume(links: LinkOptions) -> Arc<Vfs> {
        let store = Arc::new(CrashStore::new(VolumeOptions::default()));
        let options = Options { background: false, ..Options::default() };
        crate::open(store, None, options, links, Arc::new(ManualClock::default())).expect("opens")
    }

    fn tar(members: usize) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        for number in 0..members {
            let mut header = tar::Header::new_gnu();
            header.set_size(1);
            tar.append_data(&mut header, format!("member{number}"), &b"m"[..]).expect("added");
        }
        tar.into_inner().expect("whole")
    }

    /// A view of archive `target`, of user `uid`.
    fn view(vfs: &Vfs, name: &str, target: &str, uid: u32) -> Ino {
        let link = LinkDefinition::new(vec![target.as_bytes().to_vec()], "identity");
        let link = LinkDefinition { view: ViewKind::Members, ..link };
        let maker = Caller { uid, ..Caller::ROOT };
        Links::of(vfs).make_link(maker, Ino::ROOT, name.as_bytes(), 0o777, &link).expect("made").ino
    }

    fn archive(vfs: &Vfs, members: usize) -> Ino {
        let file = MakeNode { kind: Kind::File, permissions: 0o644, umask: 0, rdev: 0 };
        let archive = vfs.make(Caller::ROOT, Ino::ROOT, b"archive", file).expect("made").ino;
        vfs.write(archive, 0, &tar(members), true).expect("written");
        archive
    }

    #[test]
    fn members_of_an_archive_that_is_gone_are_forgotten() {
        let vfs = volume(LinkOptions::default());
        let archive = archive(&vfs, 1);
        let view = view(&vfs, "view", "/archive", 0);
        vfs.lookup(Caller::ROOT, view, b"member0").expect("shown");
        assert!(Links::of(&vfs).layer.indexes.bytes() > 0);
        vfs.release(archive, 1);
        vfs.unlink(Ino::ROOT, b"archive").expect("removed");
        vfs.commit().expect("committed");
        assert_eq!(Links::of(&vfs).layer.indexes.bytes(), 0);
    }

    /// It stayed until others took its place.
    #[test]
    fn members_of_an_archive_that_was_overwritten_are_forgotten() {
        let vfs = volume(LinkOptions::default());
        let archive = archive(&vfs, 1);
        let direct = view(&vfs, "view", "/archive", 0);
        let plain = LinkDefinition::new(vec![b"/archive".to_vec()], "identity");
        Links::of(&vfs).make_link(Caller::ROOT, Ino::ROOT, b"link", 0o666, &plain).expect("made");
        let by_link = view(&vfs, "view of a link", "/link", 0);
        for view in [direct, by_link] {
            vfs.lookup(Caller::ROOT, view, b"member0").expect("shown");
            vfs.commit().expect("committed");
            assert!(Links::of(&vfs).layer.indexes.bytes() > 0, "what changes no content changes nothing");
            vfs.write(archive, 0, b"x", true).expect("written");
            vfs.commit().expect("committed");
            assert_eq!(Links::of(&vfs).layer.indexes.bytes(), 0);
            vfs.write(archive, 0, &tar(1), true).expect("written");
        }
        vfs.lookup(Caller::ROOT, direct, b"member0").expect("shown");
        let empty = SetAttributes { size: Some(0), ..SetAttributes::default() };
        vfs.set_attributes(archive, empty).expect("cut");
        vfs.commit().expect("committed");
        assert_eq!(Links::of(&vfs).layer.indexes.bytes(), 0);
    }

    /// Each had a bound, and as many as were asked for at once had none.
    #[test]
    fn archives_that_are_indexed_at_once_count_for_their_users() {
        use weft_transform::Bounds;
        let networks = Bounds { memory_bytes: 1 << 30, ..Bounds::default() };
        let vfs = volume(LinkOptions { networks, ..LinkOptions::default() });
        let archive = archive(&vfs, 1000);
        let (own, of_another) = (view(&vfs, "own", "/archive", 4_100_000), view(&vfs, "other", "/archive", 4_100_001));
        // What the user has at work has half of all.
        let mut charges: Vec<Charge> = (0..3).map(|_| Charge::of(Some(4_100_000), networks)).collect();
        for (charge, mib) in charges.iter_mut().zip([256, 255, 1]) {
            assert!(charge.raise(mib << 20));
        }
        let failed = vfs.lookup(Caller::ROOT, own, b"member0").expect_err("there is no room");
        assert_eq!(failed.kind(), ErrorKind::Io);
        assert_eq!(Links::of(&vfs).layer.indexes.bytes(), 0);
        vfs.lookup(Caller::ROOT, of_another, b"member0").expect("shown");
        Links::of(&vfs).layer.indexes.forget(&[archive]);
        drop(charges);
        vfs.lookup(Caller::ROOT, own, b"member0").expect("shown");
    }
}
