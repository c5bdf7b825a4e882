//! Names that were deleted, compared with those that a look at all commits finds.

use std::collections::BTreeMap;
use weft_store::{CommitNo, Cookie, Generation, Ino, Kind, Store};
use weft_vfs::{DeletedName, deleted_names};

/// What a name stood for: the inode, its kind and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    inode: (Ino, Generation),
    kind: Kind,
    size: u64,
}

type Entries = BTreeMap<Vec<u8>, Entry>;

/// All entries as of `commit`, by their paths.
fn entries(store: &dyn Store, commit: CommitNo) -> Entries {
    let (mut all, mut left) = (Entries::new(), vec![(Ino::ROOT, Vec::new())]);
    while let Some((directory, above)) = left.pop() {
        for entry in store.names_at(commit, directory, Cookie(0), 10_000).expect("listed") {
            let between = if above.is_empty() { &b""[..] } else { b"/" };
            let path = [&above[..], between, entry.name.as_bytes()].concat();
            if entry.kind == Kind::Directory {
                left.push((entry.ino, path.clone()));
            }
            let (row, _) = store.row_at(commit, entry.ino).expect("read").expect("there");
            all.insert(path, Entry { inode: (entry.ino, row.generation), kind: entry.kind, size: row.size });
        }
    }
    all
}

/// True if one of the directories `above` has been something else at any time: what was in it may
/// not be told then.
fn is_below_file<'a>(commits: &[Entries], mut above: impl Iterator<Item = &'a [u8]>) -> bool {
    above.any(|path| commits.iter().any(|then| then.get(path).is_some_and(|entry| entry.kind != Kind::Directory)))
}

/// The directory of `path`, none for the root, and the name in it.
fn name_in_directory<'a>(then: &Entries, path: &'a [u8]) -> (Option<(Ino, Generation)>, &'a [u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(end) => (Some(then[&path[..end]].inode), &path[end + 1..]),
        None => (None, path),
    }
}

/// True if what `path` names `then` is something else in the same directory `later`, wherever that
/// lay.
fn is_reused(then: &Entries, path: &[u8], later: &Entries) -> bool {
    let of = name_in_directory(then, path);
    later.iter().any(|(other, entry)| entry.inode != then[path].inode && name_in_directory(later, other) == of)
}

/// Checks what is told of a volume that keeps all commits from some on.
pub fn check(store: &dyn Store) {
    let (first, last) = (store.history().expect("read").expect("kept").first, store.header().expect("read").commit);
    let commits = (first.0..=last.0).map(|number| entries(store, CommitNo(number))).collect::<Vec<_>>();
    let now = commits.last().expect("one");
    let told = deleted_names(store, b"", usize::MAX).expect("told");
    assert!(told.is_complete);
    assert_eq!(told.count, told.names.len() as u64);
    assert!(told.names.is_sorted_by(|one, other| one.gone >= other.gone));
    let at = |commit: CommitNo| &commits[usize::try_from(commit.0 - first.0).expect("small")];
    let is_alive = |entry: &Entry| now.values().any(|other| other.inode == entry.inode);
    let mut paths = BTreeMap::<&[u8], &DeletedName>::new();
    for name in &told.names {
        assert!(!now.contains_key(&name.path), "{name:?} is there");
        if name.is_at_path {
            assert!(paths.insert(&name.path, name).is_none(), "{name:?} is told twice");
        }
        assert!(name.last < name.gone && name.gone <= last, "{name:?}");
        let entry = at(name.last).get(&name.path);
        let is_it = entry.is_some_and(|entry| entry.size == name.size && !is_alive(entry));
        assert!(is_it || !name.is_at_path, "{name:?}: {entry:?}");
        let is_moved = entry.is_some_and(|entry| at(name.gone).values().any(|other| other.inode == entry.inode));
        assert!(!is_moved || !name.is_at_path, "{name:?} was moved, and deleted by another name");
    }
    // The last path of each inode.
    let mut last_paths = BTreeMap::new();
    commits.iter().for_each(|then| last_paths.extend(then.iter().map(|(path, entry)| (entry.inode, path))));
    for (number, then) in (first.0..).zip(&commits) {
        for (path, entry) in then {
            let is_last = !commits.iter().zip(first.0..).any(|(later, at)| at > number && later.contains_key(path));
            let above = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| &path[..end]);
            let lay_there = above.clone().all(|above| last_paths[&then[above].inode] == above);
            let is_below_file = is_below_file(&commits, above.clone());
            let next = CommitNo((number + 1).min(last.0));
            let is_moved = at(next).values().any(|other| other.inode == entry.inode);
            if is_last && lay_there && !is_below_file && !is_moved {
                // Its directory may have lain elsewhere later, and be back.
                let was_elsewhere = || told.names.iter().find(|name| name.path == *path);
                let name = paths.get(&path[..]).copied().or_else(was_elsewhere);
                // Of a name that its directory has had again, the last one counts; that may be no
                // directory.
                let mut later = commits.iter().zip(first.0..).filter(|(_, at)| *at > number).map(|(later, _)| later);
                let way = above.clone().chain([&path[..]]).collect::<Vec<_>>();
                if name.is_none() && later.any(|later| way.iter().any(|path| is_reused(then, path, later))) {
                    continue;
                }
                let name = name.unwrap_or_else(|| panic!("{} is not told", String::from_utf8_lossy(path)));
                assert!(name.last.0 == number || !name.is_at_path && name.last.0 > number, "{name:?}");
                assert!(name.is_directory == (entry.kind == Kind::Directory) || !name.is_at_path, "{name:?}");
            }
        }
    }
}
