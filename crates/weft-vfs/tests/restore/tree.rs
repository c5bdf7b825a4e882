//! A tree as programs see it, to be compared with another.

use std::collections::{BTreeMap, HashMap};
use weft_vfs::{Caller, Cookie, Ino, Kind, Timestamp, Vfs, Whence};

/// What is seen of one name. Two names of one inode have the same `first`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub kind: Kind,
    pub permissions: u32,
    pub owner: (u32, u32),
    pub rdev: u32,
    pub size: u64,
    pub allocated: u64,
    pub times: [Timestamp; 2],
    pub content: Vec<u8>,
    /// Where data begins and ends.
    pub data: Vec<u64>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The first path of the inode.
    pub first: String,
}

/// All names below a directory, and itself.
pub type Tree = BTreeMap<String, Seen>;

/// The tree at `path`, with paths from there; empty if there is none.
pub fn tree(vfs: &Vfs, path: &str) -> Tree {
    let mut tree = Tree::new();
    if let Some(ino) = find(vfs, path) {
        look(vfs, ino, String::new(), &mut tree, &mut HashMap::new());
    }
    // Whatever the order in which they are listed.
    let mut firsts = HashMap::new();
    for (path, seen) in &mut tree {
        seen.first = firsts.entry(seen.first.clone()).or_insert_with(|| path.clone()).clone();
    }
    tree
}

/// The inode at `path`.
pub fn find(vfs: &Vfs, path: &str) -> Option<Ino> {
    let mut names = path.split('/').filter(|name| !name.is_empty());
    names.try_fold(Ino::ROOT, |at, name| vfs.lookup(Caller::ROOT, at, name.as_bytes()).ok().map(|found| found.ino))
}

fn look(vfs: &Vfs, ino: Ino, path: String, tree: &mut Tree, firsts: &mut HashMap<Ino, String>) {
    let found = vfs.attributes(ino).expect("there");
    let first = firsts.entry(ino).or_insert_with(|| path.clone()).clone();
    let content = match found.kind {
        Kind::File => vfs.read(ino, 0, usize::try_from(found.size).expect("small")).expect("read").to_vec(),
        Kind::Symlink => vfs.read_symlink(ino).expect("read"),
        _ => Vec::new(),
    };
    let names = vfs.xattr_names(ino).expect("listed");
    let value = |name: &[u8]| vfs.xattr(ino, name).expect("there");
    let seen = Seen {
        kind: found.kind,
        permissions: found.permissions,
        owner: (found.uid, found.gid),
        rdev: found.rdev,
        size: found.size,
        allocated: found.allocated,
        times: [found.mtime, found.btime],
        data: if found.kind == Kind::File { edges(vfs, ino) } else { Vec::new() },
        content,
        xattrs: names.iter().map(|name| (name.as_bytes().to_vec(), value(name.as_bytes()))).collect(),
        first,
    };
    tree.insert(path.clone(), seen);
    if found.kind != Kind::Directory {
        return;
    }
    let (mut after, mut listed) = (Cookie(0), 0);
    loop {
        let page = vfs.read_directory(ino, after, 3).expect("listed");
        let Some(last) = page.last() else { break };
        after = last.cookie;
        for entry in page {
            let name = entry.name.as_bytes();
            let named = vfs.lookup(Caller::ROOT, ino, name).expect("there");
            assert_eq!(named.ino, entry.ino, "lookup and listing differ");
            if named.kind == Kind::Directory {
                assert_eq!(vfs.parent(Caller::ROOT, named.ino).expect("there").ino, ino, "its .. is another directory");
            }
            look(vfs, entry.ino, format!("{path}/{}", String::from_utf8_lossy(name)), tree, firsts);
            listed += 1;
        }
    }
    assert_eq!(listed, found.size, "{path} counts its entries");
}

/// Offsets at which data and holes begin, in turn.
fn edges(vfs: &Vfs, ino: Ino) -> Vec<u64> {
    let mut edges = Vec::new();
    let mut at = 0;
    while let Ok(data) = vfs.seek(ino, at, Whence::Data) {
        at = vfs.seek(ino, data, Whence::Hole).expect("a hole follows");
        edges.extend([data, at]);
    }
    edges
}

/// Checks that the numbers of links are those of the names.
pub fn check_links(vfs: &Vfs) {
    let all = tree(vfs, "/");
    let mut names = HashMap::<&str, u32>::new();
    all.values().for_each(|seen| *names.entry(&seen.first).or_default() += 1);
    for (path, seen) in &all {
        let found = vfs.attributes(find(vfs, path).expect("there")).expect("there");
        let below = all.keys().filter(|other| {
            other.strip_prefix(path.as_str()).is_some_and(|rest| rest.rfind('/') == Some(0))
                && all[*other].kind == Kind::Directory
        });
        let expected = match seen.kind {
            Kind::Directory => 2 + u32::try_from(below.count()).expect("few"),
            _ => names[seen.first.as_str()],
        };
        assert_eq!(found.nlink, expected, "links of {path}");
    }
}
