//! Whiteouts, and overlayfs above a mount, which makes them.

use crate::fixture::{Mounted, on_each_transport};
use rustix::fs::{CWD, FileType, RenameFlags};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::CString;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

fn is_whiteout(path: &Path) -> bool {
    let is = fs::symlink_metadata(path).expect("there");
    is.file_type().is_char_device() && is.rdev() == 0 && is.mode() & 0o7777 == 0
}

#[test]
fn a_rename_may_leave_a_whiteout() {
    on_each_transport(|mounted| {
        let path = |name| mounted.path(name);
        let rename =
            |from, to, more| rustix::fs::renameat_with(CWD, path(from), CWD, path(to), RenameFlags::WHITEOUT | more);
        fs::create_dir(path("below")).expect("made");
        for name in ["a", "b", "c"] {
            fs::write(path(name), name).expect("written");
        }
        rename("a", "a moved", RenameFlags::empty()).expect("renamed");
        rename("b", "below/b", RenameFlags::empty()).expect("renamed");
        rename("c", "a moved", RenameFlags::empty()).expect("replaced");
        rename("below", "dir moved", RenameFlags::empty()).expect("renamed");
        for name in ["a", "b", "c", "below"] {
            assert!(is_whiteout(&path(name)), "{name}");
        }
        assert_eq!(fs::read(path("a moved")).expect("read"), b"c");
        assert_eq!(fs::read(path("dir moved/b")).expect("read"), b"b");
        let refused = rename("a moved", "dir moved", RenameFlags::NOREPLACE).expect_err("there");
        assert_eq!(refused, rustix::io::Errno::EXIST);
        assert_eq!(rename("a moved", "a", RenameFlags::EXCHANGE).expect_err("both"), rustix::io::Errno::INVAL);
        rename("a moved", "free", RenameFlags::NOREPLACE).expect("renamed");
        assert!(is_whiteout(&path("a moved")));
        let mut listed: Vec<_> =
            fs::read_dir(mounted.root()).expect("listed").map(|entry| entry.expect("an entry").file_name()).collect();
        listed.sort();
        assert_eq!(listed, ["a", "a moved", "b", "below", "c", "dir moved", "free"]);
    });
}

/// overlayfs, mounted until dropped.
struct Overlay {
    merged: PathBuf,
}

impl Overlay {
    /// Above directories `lower`, `upper`, `work` of the mount. None, said loudly, where the kernel
    /// has none.
    fn mount(mounted: &Mounted, lower: &Path) -> Option<Overlay> {
        let merged = lower.with_file_name("merged");
        for directory in [&mounted.path("upper"), &mounted.path("work"), &merged] {
            fs::create_dir_all(directory).expect("made");
        }
        let (upper, work) = (mounted.path("upper"), mounted.path("work"));
        let data = format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
        let data = CString::new(data).expect("no NUL");
        match mount("overlay", &merged, "overlay", MountFlags::empty(), Some(data.as_c_str())) {
            Ok(()) => Some(Overlay { merged }),
            Err(rustix::io::Errno::NODEV | rustix::io::Errno::PERM) => {
                eprintln!("SKIPPED: overlayfs cannot be mounted here: NOTHING was tested above a mount");
                None
            }
            Err(error) => panic!("overlayfs refuses the mount as its upper directory: {error}"),
        }
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let unmounted = unmount(&self.merged, UnmountFlags::DETACH);
        if !std::thread::panicking() {
            unmounted.expect("unmounts");
        }
    }
}

#[test]
fn overlayfs_takes_a_mount_as_its_upper_directory() {
    on_each_transport(|mounted| {
        let place = tempfile::tempdir().expect("a directory");
        let lower = place.path().join("lower");
        fs::create_dir_all(lower.join("directory/inner")).expect("made");
        for name in ["kept", "changed", "removed", "renamed", "directory/file", "directory/inner/file"] {
            fs::write(lower.join(name), name).expect("written");
        }
        for _ in 0..2 {
            // The second time what the first has done must be there.
            let Some(overlay) = Overlay::mount(mounted, &lower) else { return };
            let path = |name: &str| overlay.merged.join(name);
            if path("removed").exists() {
                fs::write(path("changed"), "other").expect("written");
                fs::remove_file(path("removed")).expect("removed");
                fs::rename(path("renamed"), path("new name")).expect("renamed");
                fs::remove_dir_all(path("directory")).expect("removed");
                fs::create_dir(path("directory")).expect("made again");
                fs::write(path("directory/other"), "x").expect("written");
            }
            assert_eq!(fs::read(path("kept")).expect("read"), b"kept");
            assert_eq!(fs::read(path("changed")).expect("read"), b"other");
            assert_eq!(fs::read(path("new name")).expect("read"), b"renamed");
            assert!(!path("removed").exists() && !path("renamed").exists());
            let listed: Vec<_> = fs::read_dir(path("directory")).expect("listed").flatten().collect();
            assert_eq!(listed.iter().map(|entry| entry.file_name()).collect::<Vec<_>>(), ["other"]);
        }
        for name in ["removed", "renamed"] {
            assert!(is_whiteout(&mounted.path("upper").join(name)), "{name}");
        }
        assert_eq!(fs::read(lower.join("changed")).expect("read"), b"changed");
    });
}

#[test]
fn a_node_that_is_made_as_a_whiteout_is_one() {
    on_each_transport(|mounted| {
        let path = mounted.path("made");
        rustix::fs::mknodat(CWD, &path, FileType::CharacterDevice, rustix::fs::Mode::empty(), 0).expect("made");
        assert!(is_whiteout(&path));
    });
}
