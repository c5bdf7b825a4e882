//! Opening files of a volume so that nobody else's file is taken for one, and nobody else may read
//! them.
//!
//! A symbolic link is not followed, a pipe is not waited for, a device is not touched: whoever may
//! write into the directory of a volume can put any of them there. New files are their owner's
//! alone.

use crate::error::{Error, Result};
use rustix::fs::{AtFlags, OFlags, StatxAttributes, StatxFlags};
use std::fs::{DirBuilder, File, FileType, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Flags of open(2) for every file of a volume.
pub(crate) const FLAGS: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// Returns options that open a file of a volume, made with permissions 0600 if it is made.
pub(crate) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.custom_flags(FLAGS.bits().cast_signed()).mode(0o600);
    options
}

/// Opens the file at `path` by `options`, which come from [`options`]. Errors: also if it is no
/// regular file.
pub(crate) fn open(options: &OpenOptions, path: &Path) -> io::Result<File> {
    let file = options.open(path).map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP) => symbolic_link(),
        // A pipe that nobody reads, or a socket.
        Some(libc::ENXIO) => not_regular("a pipe or socket"),
        _ => error,
    })?;
    refuse_kind(file.metadata()?.file_type())?;
    Ok(file)
}

/// Refuses a file of a `kind` that no file of a volume has.
pub(crate) fn refuse_kind(kind: FileType) -> io::Result<()> {
    if kind.is_file() {
        return Ok(());
    }
    if kind.is_symlink() {
        return Err(symbolic_link());
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

fn symbolic_link() -> io::Error {
    io::Error::other("it is a symbolic link; put the file itself there")
}

fn not_regular(what: &str) -> io::Error {
    io::Error::other(format!("it is {what}, and no regular file"))
}

/// Makes a directory that is its owner's alone.
pub(crate) fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// Device and number of the inode at `path`, which no other file has while this one is open.
pub(crate) fn identity(path: &Path) -> io::Result<(u64, u64)> {
    path.symlink_metadata().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Refuses a database that is mounted by itself: SQLite's write-ahead log lies beside another name
/// of it, and would not be found.
pub(crate) fn refuse_mounted(database: &File, path: &Path) -> Result<()> {
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
    rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::empty())
        .is_ok_and(|stat| stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_regular_files_are_opened_and_new_ones_are_closed_to_others() {
        let directory = tempfile::tempdir().expect("a directory");
        let (file, link) = (directory.path().join("file"), directory.path().join("link"));
        open(options().write(true).create(true), &file).expect("made");
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
}
