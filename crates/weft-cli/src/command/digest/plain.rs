//! Files and directories of any file system.

use super::super::transfer::{CHUNK_BYTES, Progress};
use super::tree::{Found, Listed, Tree, Whole, of_file};
use anyhow::{Context, Result, anyhow};
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use weft_digest::{Content, Digest, FileHasher, Kind};

/// What `path` names; a symbolic link stands for its target, and `-` for standard input.
pub fn digest(path: &Path, progress: &Progress) -> Result<Found> {
    if path == Path::new("-") {
        return of_file(&Plain { top: Path::new("/dev/stdin") }, &PathBuf::from("/dev/stdin"), progress);
    }
    let node = path.to_path_buf();
    let tree = Plain { top: path };
    if std::fs::metadata(path)?.is_dir() {
        Ok(Whole::of(&tree, node, progress)?.found())
    } else {
        of_file(&tree, &node, progress)
    }
}

/// By what a directory lists the file at `path`.
pub fn listed(path: &Path) -> Result<Digest> {
    let mut hasher = FileHasher::new(Content::IfListed);
    read(&mut File::open(path)?, &mut hasher)?;
    Ok(hasher.finish().listed)
}

/// All below the directory at `path`.
pub fn whole(path: &Path, progress: &Progress) -> Result<Whole> {
    Whole::of(&Plain { top: path }, path.to_path_buf(), progress)
}

struct Plain<'a> {
    /// The one path of which a symbolic link is followed.
    top: &'a Path,
}

impl Tree for Plain<'_> {
    type Node = PathBuf;

    fn entries(&self, directory: &PathBuf) -> Result<Vec<Listed<PathBuf>>> {
        let listed = || -> Result<_> {
            let mut listed = Vec::new();
            for entry in std::fs::read_dir(directory)? {
                let entry = entry?;
                let (node, status) = (entry.path(), entry.metadata()?);
                let kind = Kind::from_mode(status.mode())
                    .ok_or_else(|| anyhow!("{} is of an unknown kind", node.display()))?;
                let permissions = (status.mode() & 0o7777) as u16;
                let name = entry.file_name().into_vec();
                listed.push(Listed { name, kind, permissions, rdev: status.rdev(), node });
            }
            Ok(listed)
        };
        listed().with_context(|| format!("cannot list {}", directory.display()))
    }

    fn read(&self, path: &PathBuf, hasher: &mut FileHasher) -> Result<u64> {
        let follow = if path == self.top { OFlags::empty() } else { OFlags::NOFOLLOW };
        let open = || rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC | follow, Mode::empty());
        let mut read = || -> Result<u64> { read(&mut File::from(open()?), hasher) };
        read().with_context(|| format!("cannot read {}", path.display()))
    }

    fn target(&self, link: &PathBuf) -> Result<Vec<u8>> {
        let target = std::fs::read_link(link).with_context(|| format!("cannot read the link {}", link.display()))?;
        Ok(target.as_os_str().as_bytes().to_vec())
    }
}

fn read(file: &mut File, hasher: &mut FileHasher) -> Result<u64> {
    let status = file.metadata()?;
    let has_holes = status.is_file() && status.blocks() * 512 < status.size();
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut at = 0;
    loop {
        let end = if has_holes { skip_hole(file, &mut at, status.size(), hasher)? } else { u64::MAX };
        while at < end {
            let wanted = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
            let count = file.read(&mut buffer[..wanted])?;
            if count == 0 {
                return Ok(at);
            }
            hasher.update(&buffer[..count]);
            at += count as u64;
        }
    }
}

/// Goes to the next data from `at` on, and tells where it ends.
fn skip_hole(file: &File, at: &mut u64, size: u64, hasher: &mut FileHasher) -> Result<u64> {
    let data = match rustix::fs::seek(file, SeekFrom::Data(*at)) {
        Ok(data) => data,
        // The rest is a hole.
        Err(Errno::NXIO) => rustix::fs::seek(file, SeekFrom::Start(size.max(*at)))?,
        Err(error) => return Err(error.into()),
    };
    hasher.zeros(data - *at);
    *at = data;
    if data >= size {
        // What was added meanwhile is read to its end.
        return Ok(u64::MAX);
    }
    let end = rustix::fs::seek(file, SeekFrom::Hole(data))?;
    rustix::fs::seek(file, SeekFrom::Start(data))?;
    Ok(end)
}
