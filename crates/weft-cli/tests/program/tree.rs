//! A directory tree with one of everything, and the facts that tests compare.

use crate::place::is_root;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, SeekFrom, Stat, Timespec, Timestamps, XattrFlags};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// All facts about one file.
#[derive(Debug, PartialEq, Eq)]
pub struct Told {
    mode: u32,
    owner: (u32, u32),
    links: u64,
    /// The first path, in order, that names the same file.
    same_as: PathBuf,
    /// Not of directories: looking at them moves it.
    accessed: Option<(i64, u64)>,
    modified: (i64, u64),
    device: u64,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    content: Vec<u8>,
    /// Beginning and end of its data, between holes.
    data: Vec<(u64, u64)>,
}

impl Told {
    /// Takes the time of last access of `other`: reading has moved this one's.
    pub fn accessed_as(&mut self, other: &Told) {
        self.accessed = other.accessed;
    }
}

/// All facts about everything below a directory.
pub type Tree = BTreeMap<PathBuf, Told>;

/// Describes all below `root`, and `root` itself.
pub fn describe(root: &Path) -> Tree {
    let (mut told, mut seen) = (BTreeMap::new(), BTreeMap::new());
    let mut paths = vec![root.to_path_buf()];
    while let Some(path) = paths.pop() {
        let stat = rustix::fs::lstat(&path).unwrap();
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            paths.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            paths.sort();
            paths.reverse();
        }
        let below = path.strip_prefix(root).unwrap().to_path_buf();
        let same_as = seen.entry(stat.st_ino).or_insert_with(|| below.clone()).clone();
        told.insert(below, tell(&path, &stat, same_as));
    }
    told
}

fn tell(path: &Path, stat: &Stat, same_as: PathBuf) -> Told {
    let kind = FileType::from_raw_mode(stat.st_mode);
    let is_directory = kind == FileType::Directory;
    let (content, data) = match kind {
        FileType::RegularFile => read(path),
        FileType::Symlink => (std::fs::read_link(path).unwrap().into_os_string().into_encoded_bytes(), Vec::new()),
        _ => (Vec::new(), Vec::new()),
    };
    Told {
        mode: stat.st_mode,
        owner: (stat.st_uid, stat.st_gid),
        links: if is_directory { 0 } else { stat.st_nlink },
        same_as,
        accessed: (!is_directory && kind != FileType::Symlink).then_some((stat.st_atime, stat.st_atime_nsec)),
        modified: (stat.st_mtime, stat.st_mtime_nsec),
        device: stat.st_rdev,
        xattrs: xattrs(path),
        content,
        data,
    }
}

fn read(path: &Path) -> (Vec<u8>, Vec<(u64, u64)>) {
    let flags = OFlags::RDONLY | OFlags::NOATIME | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, path, flags, Mode::empty()).unwrap();
    let (mut data, mut at) = (Vec::new(), 0);
    while let Ok(start) = rustix::fs::seek(&file, SeekFrom::Data(at)) {
        at = rustix::fs::seek(&file, SeekFrom::Hole(start)).unwrap();
        data.push((start, at));
    }
    let file = File::from(file);
    let mut content = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
    file.read_exact_at(&mut content, 0).unwrap();
    (content, data)
}

fn xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0; 4096];
    let len = rustix::fs::llistxattr(path, &mut names).unwrap_or(0);
    let names = names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let value = |name: &[u8]| {
        let mut value = vec![0; 4096];
        let len = rustix::fs::lgetxattr(path, name, &mut value).unwrap();
        value.truncate(len);
        value
    };
    names.map(|name| (name.to_vec(), value(name))).collect()
}

/// `user::rwx,user:7:r--,group::r--,mask::rwx,other::---`, as the kernel takes it
/// (linux/posix_acl_xattr.h).
fn acl() -> Vec<u8> {
    let mut acl = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in
        [(1u16, 7u16, u32::MAX), (2, 4, 7), (4, 4, u32::MAX), (16, 7, u32::MAX), (32, 0, u32::MAX)]
    {
        acl.extend(tag.to_le_bytes());
        acl.extend(permissions.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    acl
}

/// Makes a tree with one of everything this user can make; describes it.
pub fn make(root: &Path) -> Tree {
    let deep = root.join("deep/er/and deeper");
    std::fs::create_dir_all(&deep).unwrap();
    std::fs::create_dir(root.join("empty")).unwrap();
    std::fs::write(root.join("nothing"), "").unwrap();
    std::fs::write(root.join("small"), "small").unwrap();
    let bytes: Vec<u8> = (0..900_000u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    std::fs::write(deep.join("large"), bytes).unwrap();
    std::fs::write(root.join(OsStr::from_bytes(b"bytes \xff\xfe\n\x01")), "odd").unwrap();
    std::fs::write(root.join("-rf"), "dash").unwrap();
    std::fs::hard_link(root.join("small"), deep.join("the same")).unwrap();
    symlink("nowhere/at all", root.join("dangling")).unwrap();
    symlink("deep", root.join("link to a directory")).unwrap();
    for program in ["suid", "sgid"] {
        std::fs::write(root.join(program), "#!").unwrap();
    }
    let sparse = File::create(root.join("sparse")).unwrap();
    sparse.write_all_at(&[1; 65536], 1 << 20).unwrap();
    sparse.write_all_at(&[2; 65536], 3 << 20).unwrap();
    sparse.set_len(5 << 20).unwrap();
    File::create(root.join("only a hole")).unwrap().set_len(1 << 20).unwrap();
    for (name, kind) in [("fifo", FileType::Fifo), ("socket", FileType::Socket)] {
        rustix::fs::mknodat(CWD, root.join(name), kind, Mode::RUSR, 0).unwrap();
    }
    if is_root() {
        make_as_root(root);
    } else {
        eprintln!("SKIPPED devices, other owners and trusted attributes in a tree: they need root");
    }
    decorate(root);
    describe(root)
}

fn make_as_root(root: &Path) {
    let null = rustix::fs::makedev(1, 3);
    rustix::fs::mknodat(CWD, root.join("device"), FileType::CharacterDevice, Mode::RUSR, null).unwrap();
    rustix::fs::mknodat(CWD, root.join("disk"), FileType::BlockDevice, Mode::RUSR, 0x1_23456).unwrap();
    for (name, uid, gid) in [("suid", 1000, 2000), ("deep/er", 5, 0), ("dangling", 70_000, 80_000), ("sparse", 1, 2)] {
        std::os::unix::fs::lchown(root.join(name), Some(uid), Some(gid)).unwrap();
    }
    set_xattr(&root.join("small"), "trusted.weft", b"t");
    // vfs_cap_data, revision 2: cap_net_raw, permitted.
    set_xattr(&root.join("sgid"), "security.capability", &[&[1, 0, 0, 2, 0, 32][..], &[0; 14]].concat());
}

fn set_xattr(path: &Path, name: &str, value: &[u8]) {
    if let Err(error) = rustix::fs::lsetxattr(path, name, value, XattrFlags::empty()) {
        eprintln!("SKIPPED {name} in a tree: {error}");
    }
}

fn decorate(root: &Path) {
    let mode = |name: &str, mode| {
        std::fs::set_permissions(root.join(name), PermissionsExt::from_mode(mode)).unwrap();
    };
    mode("suid", 0o4751);
    mode("sgid", 0o2710);
    mode("empty", 0o1777);
    mode("deep/er", 0o2750);
    set_xattr(&root.join("small"), "user.empty", b"");
    set_xattr(&root.join("deep"), "user.colour", b"blue\0green");
    set_xattr(&root.join("suid"), "system.posix_acl_access", &acl());
    set_xattr(&root.join("empty"), "system.posix_acl_default", &acl());
    let mut paths: Vec<PathBuf> = describe(root).into_keys().collect();
    // The deepest first; each a time of its own, before 1970 too.
    paths.reverse();
    for (at, path) in paths.iter().enumerate() {
        let seconds = i64::try_from(at).unwrap() * 100_000_000 - 300_000_000;
        let last_access = Timespec { tv_sec: seconds + 5, tv_nsec: 999_999_999 };
        let last_modification = Timespec { tv_sec: seconds, tv_nsec: 123_456_789 };
        let times = Timestamps { last_access, last_modification };
        rustix::fs::utimensat(CWD, root.join(path), &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}
