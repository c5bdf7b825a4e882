//! A small volume with some of everything, and all that can be done with it.

use crate::{BLOCK_BYTES, mount, volume_options};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weft_store::memory::MemoryStore;
use weft_store::parts::store_in_parts;
use weft_store::{BlockHome, Cookie, Ino, Kind, Maintenance, VolumeOptions, sqlite};
use weft_vfs::{AllocateMode, Caller, Holds, MakeNode, RenameMode, SetAttributes, SetXattr, Timestamp, Vfs, Whence};

const FILE: MakeNode = MakeNode { kind: Kind::File, permissions: 0o644, umask: 0, rdev: 0 };
const DIRECTORY: MakeNode = MakeNode { kind: Kind::Directory, permissions: 0o755, umask: 0, rdev: 0 };

/// Files whose content lies in blocks: directory, name, and length of what was written.
const LARGE: [(&[u8], &[u8], usize); 4] = [
    (b"dir", b"large", 5 * 4096 + 100),
    (b"dir", b"other", 2 * 4096),
    (b"sub", b"one", 4000),
    (b"sub", b"clone", 8192),
];

/// Most bytes read of a file: damage may make any of them look endless.
const READ_MAX: usize = 256 << 10;

/// Content by path.
pub type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

fn bytes(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add((i >> 8) as u8).wrapping_add(seed)).collect()
}

/// Fills an empty volume; tells the content of the files in blocks.
pub fn fill(vfs: &Vfs) -> Contents {
    let root = Caller::ROOT;
    let make = |parent: Ino, name: &[u8], node| vfs.make(root, parent, name, node).expect("made").ino;
    let dir = make(Ino::ROOT, b"dir", DIRECTORY);
    let sub = make(dir, b"sub", DIRECTORY);
    let mut contents = Contents::new();
    for (i, (parent, name, len)) in LARGE.iter().enumerate() {
        let (ino, path) = match *parent {
            b"dir" => (make(dir, name, FILE), [b"/dir/", *name].concat()),
            _ => (make(sub, name, FILE), [b"/dir/sub/", *name].concat()),
        };
        let content = bytes(i as u8, *len);
        vfs.write(ino, 0, &content, false).expect("written");
        contents.insert(path, content);
    }
    vfs.commit().expect("committed");
    let find = |parent, name: &[u8]| vfs.lookup(root, parent, name).expect("there").ino;
    let (large, clone) = (find(dir, b"large"), find(sub, b"clone"));
    vfs.allocate(large, 4096, 4096, AllocateMode::PunchHole).expect("punched");
    vfs.copy_range((large, 8192), (clone, 0), 4096).expect("shared");
    let (whole, shared) = (contents["/dir/large".as_bytes()].clone(), "/dir/sub/clone".as_bytes());
    contents.get_mut("/dir/large".as_bytes()).expect("there")[4096..8192].fill(0);
    contents.get_mut(shared).expect("there")[..4096].copy_from_slice(&whole[8192..12288]);
    let small = make(Ino::ROOT, b"small", FILE);
    vfs.write(small, 0, b"hello", false).expect("written");
    vfs.link(root, small, dir, b"second name").expect("linked");
    vfs.make_symlink(root, dir, b"symlink", b"sub/one").expect("made");
    vfs.set_xattr(large, b"user.comment", b"value", SetXattr::Any, false).expect("set");
    let held = Caller { holds: Holds::Counted, ..root };
    let orphan = vfs.make_unnamed(held, dir, FILE).expect("made").ino;
    vfs.write(orphan, 0, &bytes(9, 5000), false).expect("written");
    contents
}

/// The volume in memory.
pub fn in_memory() -> MemoryStore {
    let store = Arc::new(MemoryStore::new(volume_options(BlockHome::Database)));
    let vfs = mount(store.clone(), None).expect("an empty volume mounts");
    fill(&vfs);
    vfs.close().expect("closed");
    drop(vfs);
    Arc::into_inner(store).expect("nobody else has it")
}

/// The volume in files at `path`, in one file with blocks that are stored in parts; tells the
/// content of the files in blocks.
pub fn in_files(path: &Path, home: BlockHome) -> Contents {
    let in_parts = home == BlockHome::Database;
    let block_size = if in_parts { 4 * BLOCK_BYTES } else { BLOCK_BYTES };
    let options = VolumeOptions { block_size, ..volume_options(home) };
    sqlite::create(path, &options, (0, 0), Timestamp(0)).expect("made");
    let store = sqlite::open(path).expect("opens").store;
    let vfs = mount(store, None).expect("mounts");
    let contents = fill(&vfs);
    vfs.close().expect("closed");
    drop(vfs);
    if in_parts {
        let store = sqlite::open(path).expect("opens").store;
        store_in_parts(&*store, 7).expect("stored");
        store.close().expect("closed");
    }
    contents
}

/// The files of the volume at `path`: the database first.
pub fn files(path: &Path) -> Vec<PathBuf> {
    if path.is_dir() {
        vec![path.join("meta.sqlite"), path.join("segments/00000001.seg")]
    } else {
        vec![path.to_path_buf()]
    }
}

/// Reads all that a walk from the root finds, as far as it can be read; tells the content of
/// regular files.
pub fn look_at_all(vfs: &Vfs) -> Contents {
    let mut contents = Contents::new();
    let mut waiting = vec![(Vec::new(), Ino::ROOT)];
    let mut looked_at = 0;
    while let Some((path, directory)) = waiting.pop() {
        let mut after = Cookie(0);
        while let Ok(entries) = vfs.read_directory(directory, after, 3) {
            let Some(last) = entries.last() else { break };
            assert!(last.cookie > after, "a listing goes on");
            after = last.cookie;
            for entry in entries {
                let path = [&path[..], b"/", entry.name.as_bytes()].concat();
                look_at(vfs, entry.ino, &path, &mut contents);
                let found = vfs.lookup(Caller::ROOT, directory, entry.name.as_bytes());
                // Damage may make circles, and endless directories.
                looked_at += 1;
                if found.is_ok_and(|found| found.kind == Kind::Directory) && path.len() < 200 && looked_at < 200 {
                    waiting.push((path, entry.ino));
                }
            }
            if looked_at > 1000 {
                break;
            }
        }
        let _ = vfs.parent(Caller::ROOT, directory);
    }
    let _ = (vfs.statfs(), vfs.stats());
    contents
}

fn look_at(vfs: &Vfs, ino: Ino, path: &[u8], contents: &mut Contents) {
    let _ = (vfs.read_symlink(ino), vfs.xattr(ino, b"user.comment"));
    if let Ok(names) = vfs.xattr_names(ino) {
        names.iter().for_each(|name| drop(vfs.xattr(ino, name.as_bytes())));
    }
    let Ok(attributes) = vfs.attributes(ino) else { return };
    for offset in [0, 4096, attributes.size.saturating_sub(1)] {
        let _ = (vfs.seek(ino, offset, Whence::Data), vfs.seek(ino, offset, Whence::Hole));
        let _ = vfs.read(ino, offset, 4097);
    }
    if let Ok(content) = vfs.read(ino, 0, READ_MAX) {
        assert!(content.len() <= READ_MAX);
        contents.insert(path.to_vec(), content.to_vec());
    }
}

/// Changes some of everything, as far as it can be changed, and commits.
pub fn change_all(vfs: &Vfs) {
    let root = Caller::ROOT;
    let dir = vfs.lookup(root, Ino::ROOT, b"dir").map_or(Ino(16), |found| found.ino);
    let find = |name: &[u8]| vfs.lookup(root, dir, name).map_or(Ino(20), |found| found.ino);
    let (large, other, sub) = (find(b"large"), find(b"other"), find(b"sub"));
    let _ = vfs.write(large, 4000, &[7; 300], true);
    let _ = vfs.copy_range((large, 0), (other, 4096), 12288);
    let _ = vfs.set_attributes(large, SetAttributes { size: Some(4097), ..SetAttributes::default() });
    let _ = vfs.allocate(other, 100, 5000, AllocateMode::ZeroRange);
    let _ = vfs.commit();
    let _ = vfs.set_attributes(large, SetAttributes { permissions: Some(0o4711), ..SetAttributes::default() });
    let _ = vfs.set_xattr(large, b"user.comment", b"another", SetXattr::Any, false);
    let _ = vfs.rename((Ino::ROOT, b"dir"), (sub, b"moved"), RenameMode::Replace);
    let _ = vfs.rename((dir, b"sub"), (Ino::ROOT, b"moved"), RenameMode::Replace);
    let _ = vfs.rename((dir, b"other"), (Ino::ROOT, b"small"), RenameMode::Exchange);
    let _ = vfs.make(root, sub, b"new", FILE).map(|new| vfs.write(new.ino, 0, &[5; 9000], false));
    let _ = vfs.sync();
    for (parent, name) in
        [(sub, &b"one"[..]), (sub, b"clone"), (dir, b"large"), (dir, b"second name"), (dir, b"symlink")]
    {
        let _ = vfs.unlink(parent, name);
    }
    let _ = vfs.remove_directory(Ino::ROOT, b"moved");
    let _ = vfs.set_attributes(other, SetAttributes { size: Some(0), ..SetAttributes::default() });
    let _ = vfs.close();
}
