//! Opening files of a volume so that nobody else's file is taken for one, and nobody else may read
//! them.
//!
//! No symbolic link is followed, on the way to the file neither (paths of a volume's files have
//! none): a user who may write into a directory there could put one into it. A pipe is not waited
//! for, a device is not touched. New files are their owner's alone.

use crate::error::Error;
use rustix::fs::{
    Access, AtFlags, CWD, Dir, Mode, OFlags, RenameFlags, ResolveFlags, StatxAttributes, StatxFlags, accessat, makedev,
    mkdirat, openat, openat2, renameat, renameat_with, statat, statx, unlinkat,
};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{File, FileType, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::OnceLock;

/// Flags of open(2) for every file of a volume.
pub(crate) const FLAGS: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// Returns options that open a file of a volume, made with permissions 0600 if it is made.
pub(crate) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.custom_flags(FLAGS.bits().cast_signed()).mode(0o600);
    options
}

/// Opens the file at `path` by `options`, which come from [`options`]. Errors: also if it is no
/// regular file, or there is a symbolic link on the way.
pub(crate) fn open(options: &OpenOptions, path: &Path) -> io::Result<File> {
    let (directory, name) = directory_of(path)?;
    // There, wherever that directory is by now.
    let inside = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
    let file = options.open(inside).map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP) => io::Error::other(LINK),
        // A pipe that nobody reads, or a socket.
        Some(libc::ENXIO) => not_regular("a pipe or socket"),
        _ => error,
    })?;
    refuse_kind(file.metadata()?.file_type())?;
    Ok(file)
}

/// Opens a file or directory of a volume to look at it.
pub(crate) fn open_any(path: &Path) -> rustix::io::Result<OwnedFd> {
    open_without_links(path, FLAGS | OFlags::RDONLY | OFlags::CLOEXEC)
}

/// Opens the directory at `path`, on which there is no symbolic link, to name what lies in it.
/// `LOOP` if there is one.
fn open_directory(path: &Path) -> rustix::io::Result<OwnedFd> {
    open_without_links(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC)
}

/// Asks if this thread may do that with what lies at `path`, by the rights that it has now:
/// access(2) asks by those that its process was started with.
pub(crate) fn may(path: &Path, access: Access) -> rustix::io::Result<()> {
    accessat(CWD, path, access, AtFlags::EACCESS)
}

/// Removes the file at `path`.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    let (directory, name) = directory_of(path)?;
    Ok(unlinkat(directory, name, AtFlags::empty())?)
}

/// Removes `name` in `directory` and what is below it, best effort: nothing that a link leads to,
/// and nothing deeper than volumes are.
pub fn remove_below(directory: BorrowedFd<'_>, name: &OsStr) {
    remove_to(directory, name, 3);
}

fn remove_to(directory: BorrowedFd<'_>, name: &OsStr, depth: u32) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if unlinkat(directory, name, AtFlags::empty()) != Err(Errno::ISDIR) {
        return;
    }
    let Some(below) = openat(directory, name, flags, Mode::empty()).ok().filter(|_| depth > 0) else { return };
    for entry in Dir::read_from(&below).into_iter().flatten().flatten() {
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            remove_to(below.as_fd(), OsStr::from_bytes(entry.file_name().to_bytes()), depth - 1);
        }
    }
    let _ = unlinkat(directory, name, AtFlags::REMOVEDIR);
}

/// The directory that `path` lies in, by its path.
#[must_use]
pub fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Renames within `directory` to a name that nothing has.
///
/// # Errors
/// `EXIST`: something has it.
pub fn rename_to_new(directory: impl AsFd, from: &Path, to: &Path) -> Result<(), Errno> {
    let directory = directory.as_fd();
    match renameat_with(directory, from, directory, to, RenameFlags::NOREPLACE) {
        // The file system cannot say "unless something is there".
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => match statat(directory, to, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => renameat(directory, from, directory, to),
            Err(error) => Err(error),
            Ok(_) => Err(Errno::EXIST),
        },
        renamed => renamed,
    }
}

/// Opens the directory that `path` lies in, and tells the name there.
pub(crate) fn directory_of(path: &Path) -> io::Result<(OwnedFd, &OsStr)> {
    let directory = open_directory(parent_of(path)).map_err(|errno| match errno {
        Errno::LOOP => io::Error::other("a directory on the way to it became a symbolic link meanwhile"),
        _ => errno.into(),
    })?;
    Ok((directory, path.file_name().ok_or(io::ErrorKind::InvalidFilename)?))
}

/// Opens `path`, on which there is no symbolic link. Kernels before 5.6 cannot tell but of its end.
fn open_without_links(path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    static IS_KNOWN: OnceLock<bool> = OnceLock::new();
    let look = || openat2(CWD, "/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::NO_SYMLINKS).is_ok();
    if *IS_KNOWN.get_or_init(look) {
        return openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
    }
    rustix::fs::open(path, flags, Mode::empty())
}

/// Refuses a file of a `kind` that no file of a volume has.
pub(crate) fn refuse_kind(kind: FileType) -> io::Result<()> {
    if kind.is_file() {
        return Ok(());
    }
    if kind.is_symlink() {
        return Err(io::Error::other(LINK));
    }
    Err(not_regular(if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }))
}

/// A refusal.
const LINK: &str = "it is a symbolic link; put the file itself there";

fn not_regular(what: &str) -> io::Error {
    io::Error::other(format!("it is {what}, and no regular file"))
}

/// Makes a directory that is its owner's alone.
pub(crate) fn make_directory(path: &Path) -> io::Result<()> {
    let (directory, name) = directory_of(path)?;
    Ok(mkdirat(directory, name, Mode::RWXU)?)
}

/// Removes `names` and what is below them, as far as they are in `directory`, and then that if
/// nothing else is in it and `itself`: best effort, wherever its path leads meanwhile.
pub(crate) fn remove_all(directory: &Path, names: &[OsString], itself: bool) {
    let Ok(open) = open_directory(directory) else { return };
    names.iter().for_each(|name| remove_below(open.as_fd(), name));
    if itself && let Ok((parent, name)) = directory_of(directory) {
        let _ = unlinkat(parent, name, AtFlags::REMOVEDIR);
    }
}

/// Device and number of the inode at `path`, which no other file has while this one is open.
pub(crate) fn identity(path: &Path) -> io::Result<(u64, u64)> {
    Ok(inode_at(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?.0)
}

/// Device and number of the inode at `path` in `directory`, and how many names it has.
///
/// Asks for no times, as stat(2) does: the kernel gives a file whose times were asked for others
/// with the next write (multigrain timestamps, Linux 6.13), and a sync of that then writes the
/// inode, too. A file is looked at after each sync.
pub(crate) fn inode_at(directory: impl AsFd, path: &Path, flags: AtFlags) -> rustix::io::Result<((u64, u64), u64)> {
    match statx(&directory, path, flags, StatxFlags::INO | StatxFlags::NLINK) {
        Ok(found) => {
            let device = makedev(found.stx_dev_major, found.stx_dev_minor);
            Ok(((device, found.stx_ino), found.stx_nlink.into()))
        }
        // Before Linux 4.11, or in a sandbox that is older than the call.
        Err(Errno::NOSYS | Errno::PERM) => {
            let found = statat(&directory, path, flags)?;
            Ok(((found.st_dev, found.st_ino), found.st_nlink))
        }
        Err(error) => Err(error),
    }
}

/// Refuses a database that is mounted by itself: SQLite's write-ahead log lies beside another name
/// of it, and would not be found.
pub(crate) fn refuse_mounted(database: &File, path: &Path) -> Result<(), Error> {
    if is_mount_point(database) {
        return Err(Error::Unusable(format!(
            "{} is a file mounted by itself (mount --bind), and what is written beside it is not found where it lies; \
             use it by its own path, or mount the directory that holds it",
            path.display()
        )));
    }
    Ok(())
}

/// True if `file` is the root of a mount (statx(2), since Linux 5.8; older ones do not tell).
fn is_mount_point(file: &File) -> bool {
    statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::empty())
        .is_ok_and(|stat| stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    fn an_inode_is_what_stat_says_of_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, link) = (directory.path().join("file"), directory.path().join("link"));
        let file = open(options().write(true).create_new(true), &path).expect("made");
        std::fs::hard_link(&path, directory.path().join("other")).expect("linked");
        std::os::unix::fs::symlink(&path, &link).expect("linked");
        let metadata = file.metadata().expect("there");
        let expected = ((metadata.dev(), metadata.ino()), 2);
        assert_eq!(inode_at(&file, Path::new(""), AtFlags::EMPTY_PATH), Ok(expected));
        assert_eq!(inode_at(CWD, &link, AtFlags::empty()), Ok(expected));
        assert_eq!(identity(&path).expect("there"), expected.0);
        assert_ne!(identity(&link).expect("there"), expected.0);
        assert_eq!(inode_at(CWD, &directory.path().join("none"), AtFlags::empty()), Err(Errno::NOENT));
    }

    #[test]
    fn only_regular_files_are_opened_and_new_ones_are_closed_to_others() {
        let directory = tempfile::tempdir().expect("a directory");
        let (file, link) = (directory.path().join("file"), directory.path().join("link"));
        open(options().write(true).create(true), &file).expect("made");
        open(options().write(true).create_new(true), &file).expect_err("it is there");
        assert_eq!(file.metadata().expect("there").permissions().mode() & 0o7777, 0o600);
        std::os::unix::fs::symlink(&file, &link).expect("linked");
        let pipe = directory.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
            .expect("made");
        for (path, word) in [(&link, "symbolic link"), (&pipe, "pipe")] {
            // Neither is waited for, though nobody writes to the pipe.
            let error = open(options().read(true), path).expect_err("refused");
            assert!(error.to_string().contains(word), "{error}");
        }
        let error = open(options().read(true), directory.path()).expect_err("refused");
        assert!(error.to_string().contains("directory"), "{error}");
    }

    #[test]
    fn no_link_is_followed_on_the_way_neither() {
        let directory = tempfile::tempdir().expect("a directory");
        let (real, link) = (directory.path().join("real"), directory.path().join("link"));
        std::fs::create_dir(&real).expect("made");
        std::os::unix::fs::symlink(&real, &link).expect("linked");
        std::fs::write(real.join("file"), "").expect("written");
        for error in [
            open(options().read(true), &link.join("file")).expect_err("refused"),
            open(options().write(true).create(true), &link.join("new")).expect_err("refused"),
        ] {
            assert!(error.to_string().contains("became a symbolic link"), "{error}");
        }
        remove(&link.join("file")).expect_err("refused");
        remove_all(&link, &["file".into()], true);
        make_directory(&link.join("new")).expect_err("refused");
        assert_eq!(real.read_dir().expect("there").count(), 1);
        std::fs::create_dir(real.join("below")).expect("made");
        std::fs::write(real.join("below/file"), "").expect("written");
        std::os::unix::fs::symlink(directory.path(), real.join("below/out")).expect("linked");
        remove_all(&real, &["none".into(), "below".into()], true);
        assert_eq!((real.read_dir().expect("there").count(), link.is_symlink()), (1, true));
        remove(&real.join("file")).expect("removed");
    }
}
