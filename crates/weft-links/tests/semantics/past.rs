//! A volume as of an earlier commit: the tree as it was then, links and digests included.

use crate::links::definition;
use crate::{DIRECTORY, FILE, mount_options, options, volume_options};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use weft_digest::Digest;
use weft_links::{LinkDefinition, ViewKind, WithLinks};
use weft_store::memory::MemoryStore;
use weft_store::{At, Batch, BlockHome, CommitNo, Durability, HistoryChange, HistoryFor, Store, VolumeOptions, sqlite};
use weft_vfs::{
    Caller, Cookie, ErrorKind, Ino, Kind, ManualClock, Options, RenameMode, SetAttributes, SetXattr, Timestamp, Vfs,
};

/// One file or directory, as programs see it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shown {
    kind: Kind,
    permissions: u32,
    nlink: u32,
    size: u64,
    mtime: Timestamp,
    content: Result<Vec<u8>, ErrorKind>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// A view of nothing has none.
    digest: Result<Option<Digest>, ErrorKind>,
}

/// All below the root, by path.
fn tree(vfs: &Vfs) -> BTreeMap<String, Shown> {
    let mut found = BTreeMap::new();
    walk(vfs, Ino::ROOT, "", &mut found);
    found
}

fn walk(vfs: &Vfs, ino: Ino, path: &str, found: &mut BTreeMap<String, Shown>) {
    let attributes = vfs.attributes(ino).expect("there");
    let content = match attributes.kind {
        Kind::Symlink => vfs.read_symlink(ino),
        Kind::Directory => Ok(Vec::new()),
        _ => vfs.read(ino, 0, 1 << 20).map(|rope| rope.to_vec()),
    };
    let content = content.map_err(|error| error.kind());
    let xattr = |name: weft_vfs::Name| {
        let value = vfs.xattr(ino, name.as_bytes()).expect("readable");
        (name.as_bytes().to_vec(), value)
    };
    let shown = Shown {
        kind: attributes.kind,
        permissions: attributes.permissions,
        nlink: attributes.nlink,
        size: attributes.size,
        mtime: attributes.mtime,
        content,
        xattrs: vfs.xattr_names(ino).expect("listed").into_iter().map(xattr).collect(),
        digest: vfs.digest(ino).map_err(|error| error.kind()),
    };
    found.insert(path.to_owned(), shown);
    if attributes.kind == Kind::Directory {
        for entry in vfs.read_directory(ino, Cookie(0), 1000).expect("listed") {
            let name = String::from_utf8(entry.name.as_bytes().to_vec()).expect("plain names");
            let below = vfs.lookup(Caller::ROOT, ino, name.as_bytes()).expect("named");
            walk(vfs, below.ino, &format!("{path}/{name}"), found);
        }
    }
}

/// Numbers that look random, and are the same each time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Makes a change somewhere; one that cannot be made there changes nothing.
fn change(vfs: &Vfs, numbers: &mut Numbers) {
    let find = |parent, name: &str| vfs.lookup(Caller::ROOT, parent, name.as_bytes()).ok().map(|found| found.ino);
    let directory = find(Ino::ROOT, ["d0", "d1", ".."][numbers.below(3) as usize]).unwrap_or(Ino::ROOT);
    let name = format!("f{}", numbers.below(5));
    let other = format!("f{}", numbers.below(5));
    let Some(ino) = find(directory, &name) else {
        let _ = match numbers.below(4) {
            0 => vfs.make(Caller::ROOT, Ino::ROOT, format!("d{}", numbers.below(2)).as_bytes(), DIRECTORY),
            1 => vfs.make_symlink(Caller::ROOT, directory, name.as_bytes(), other.as_bytes()),
            _ => vfs.make(Caller::ROOT, directory, name.as_bytes(), FILE),
        };
        return;
    };
    let set = |changes| vfs.set_attributes(ino, changes).map(|_| ());
    let _ = match numbers.below(9) {
        0 => set(SetAttributes { permissions: Some(numbers.below(0o1000) as u32), ..SetAttributes::default() }),
        1 => set(SetAttributes { size: Some(numbers.below(30_000)), ..SetAttributes::default() }),
        2 => vfs.set_xattr(ino, b"user.a", &[numbers.below(256) as u8; 9], SetXattr::Any, false),
        3 => vfs.remove_xattr(ino, b"user.a"),
        4 => vfs.rename((directory, name.as_bytes()), (Ino::ROOT, other.as_bytes()), RenameMode::Replace),
        5 => vfs.unlink(directory, name.as_bytes()),
        6 => vfs.link(Caller::ROOT, ino, Ino::ROOT, other.as_bytes()).map(|_| ()),
        _ => {
            let bytes = vec![b'a' + numbers.below(26) as u8; numbers.below(9000) as usize];
            vfs.write(ino, numbers.below(20_000), &bytes, false).map(|_| ())
        }
    };
}

/// Switches history on, in a commit of its own.
fn keep_history(store: &dyn Store) {
    let header = store.header().expect("readable");
    let history = vec![HistoryChange::Keep("all forever".into(), HistoryFor::All)];
    let batch = Batch { commit: header.commit.next(), counters: header.counters, history, ..Batch::default() };
    store.apply(&batch, Durability::Durable).expect("applied");
}

fn open(store: Arc<dyn Store>, options_of_mount: Options, clock: &Arc<ManualClock>) -> Arc<Vfs> {
    weft_links::open(store, None, options_of_mount, options(), clock.clone()).expect("opens")
}

/// Changes a tree over 30 commits, then reads each of them again.
fn each_commit_reads_as_it_was(store: &Arc<dyn Store>, seed: u64) {
    keep_history(&**store);
    let clock = Arc::new(ManualClock::default());
    let vfs = open(store.clone(), mount_options(), &clock);
    let make = |name: &[u8], node| vfs.make(Caller::ROOT, Ino::ROOT, name, node).expect("made").ino;
    let source = make(b"source", FILE);
    make(b"d0", DIRECTORY);
    let links = vfs.links().expect("with links");
    let upper = definition(&["/source"], "upper");
    links.make_link(Caller::ROOT, Ino::ROOT, b"upper", 0o666, &upper).expect("made");
    let view = ViewKind::Directory { rename: Some("s/^f/g/".into()), only: None };
    let view = LinkDefinition { view, ..definition(&["/d0"], "upper") };
    let mut numbers = Numbers(seed);
    let mut moments: Vec<(CommitNo, BTreeMap<String, Shown>)> = Vec::new();
    for round in 0..30u8 {
        if round == 3 {
            vfs.links().expect("with links").make_link(Caller::ROOT, Ino::ROOT, b"view", 0o777, &view).expect("made");
        }
        clock.advance(1_000_000_000);
        vfs.write(source, 0, &[b'a' + round % 26; 100], false).expect("written");
        (0..1 + numbers.below(6)).for_each(|_| change(&vfs, &mut numbers));
        vfs.sync().expect("synced");
        // Asking may commit results.
        let shown = tree(&vfs);
        vfs.sync().expect("synced");
        moments.push((store.header().expect("readable").commit, shown));
    }
    vfs.close().expect("closed");
    for (commit, then) in moments {
        let at: Arc<dyn Store> = Arc::new(At::new(store.clone(), commit).expect("kept"));
        let past = open(at, Options { read_only: true, ..mount_options() }, &clock);
        let found = tree(&past);
        assert_eq!(found.keys().collect::<Vec<_>>(), then.keys().collect::<Vec<_>>(), "seed {seed}: {commit:?}");
        for (path, shown) in &then {
            assert_eq!(&found[path], shown, "seed {seed}: '{path}' as of {commit:?}");
        }
        assert!(found.contains_key("/upper"), "the link is among them");
        past.close().expect("closed");
    }
}

#[test]
fn a_volume_in_memory_reads_as_of_each_commit_as_it_was() {
    for seed in 0..8 {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(volume_options()));
        each_commit_reads_as_it_was(&store, seed);
    }
}

fn in_files(home: BlockHome) {
    for seed in 0..3 {
        let directory = tempfile::tempdir().expect("a directory");
        let path: &Path = &directory.path().join("volume");
        let options = VolumeOptions { home, ..volume_options() };
        sqlite::create(path, &options, (0, 0), Timestamp(0)).expect("created");
        let store: Arc<dyn Store> = sqlite::open(path).expect("opened").store;
        each_commit_reads_as_it_was(&store, seed);
    }
}

#[test]
fn a_volume_of_segments_reads_as_of_each_commit_as_it_was() {
    in_files(BlockHome::Segments);
}

#[test]
fn a_volume_of_one_file_reads_as_of_each_commit_as_it_was() {
    in_files(BlockHome::Database);
}
