//! A file or directory in a volume, mounted or not, whose past is read beside whoever uses that.

use super::sync;
use super::transfer::{CHUNK_BYTES, Place, names};
use crate::mounted::{self, InMount, volume_named};
use crate::named::{is_volume, volume_and_path};
use crate::shown;
use anyhow::{Context, Result, bail, ensure};
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weft_digest::Kind;
use weft_store::{CommitNo, Location, Moment};
use weft_vfs::Vfs;

/// A file or directory in a volume, there now or not.
pub(super) struct Subject {
    pub(super) location: Location,
    /// The volume or its mount point.
    pub(super) named: PathBuf,
    /// The path from the root of the volume.
    pub(super) path: Vec<u8>,
}

impl Subject {
    /// Returns the file that `named` names: `VOLUME:PATH`, or a path in a mounted volume. None if
    /// it names a volume, or nothing in one.
    pub(super) fn find(named: &Path) -> Result<Option<Subject>> {
        if let Some((volume, path)) = volume_and_path(named.as_os_str()) {
            let location = volume_named(volume)?;
            return Ok(Some(Subject { location, named: volume.into(), path: path.as_bytes().to_vec() }));
        }
        if is_volume(named) {
            return Ok(None);
        }
        let Some(place) = InMount::find(named)? else { return Ok(None) };
        let named = place.root()?;
        Ok(Some(Subject { location: volume_named(&named)?, named, path: place.path }))
    }

    /// Returns the same, also all of a volume that is named itself, or by its mount point. Refuses
    /// all else.
    pub(super) fn demand(named: &OsStr) -> Result<Subject> {
        let path = Path::new(named);
        if mounted::is_mount_point(path) || is_volume(path) {
            return Subject::of_volume(path);
        }
        let outside =
            || format!("{} is in no mounted volume; of one that is not mounted, name VOLUME:PATH", shown::path(path));
        Subject::find(path)?.with_context(outside)
    }

    /// All of the volume that `named` names, itself or its mount point.
    pub(super) fn of_volume(named: &Path) -> Result<Subject> {
        Ok(Subject { location: volume_named(named)?, named: named.into(), path: Vec::new() })
    }

    /// Opens the volume, to be read as of `at`. What programs wrote is committed first if `at` has
    /// that.
    pub(super) fn open_at(&self, at: &Moment) -> Result<Place> {
        Place::of_parts(&self.named, &self.path, Some(at))
    }

    /// Opens the volume as of two moments. Returns also the commit of the second one.
    pub(super) fn open_between(&self, [from, to]: [&Moment; 2]) -> Result<(Place, (Arc<Vfs>, CommitNo))> {
        if *to == Moment::Now {
            self.commit_first("the last commit is read");
        }
        let place = self.open_at(from)?;
        let also = place.also_at(to)?;
        Ok((place, also))
    }

    /// Has whoever uses the volume commit. If that fails, tells why, and `instead`.
    pub(super) fn commit_first(&self, instead: &str) {
        sync::commit_first(&self.named, &self.location, instead);
    }

    /// Its name as a user writes it.
    pub(super) fn shown_in_volume(&self) -> String {
        let named = shown::path(&self.named);
        let path = self.shown();
        let path = path.trim_matches('/');
        match mounted::is_mount_point(&self.named) {
            true if path.is_empty() => named,
            true => format!("{}/{path}", named.trim_end_matches('/')),
            false if path.is_empty() => named,
            false => format!("{named}:{path}"),
        }
    }

    pub(super) fn shown(&self) -> String {
        shown::bytes(&self.path)
    }

    /// The names on the way from the root.
    pub(super) fn names(&self) -> Result<Vec<Vec<u8>>> {
        names(&self.path)
    }
}

/// The content of a file is not in history any more.
#[derive(Debug)]
pub(super) struct Forgotten;

impl fmt::Display for Forgotten {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("its content of then was taken out of history ('weft history forget' or 'exclude')")
    }
}

impl std::error::Error for Forgotten {}

/// Gives all bytes of the file at `path` to `take`, some at a time. Fails with [`Forgotten`].
pub(super) fn read(vfs: &Vfs, path: &[Vec<u8>], mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let file = super::transfer::find(vfs, path)?;
    match file.kind {
        Kind::File => {}
        Kind::Symlink => {
            let target = vfs.read_symlink(file.ino)?;
            bail!("it is a symbolic link to {}; name that", shown::bytes(&target))
        }
        kind => bail!("it is a {}", kind.in_words()),
    }
    ensure!(!vfs.has_forgotten(file.ino)?, Forgotten);
    let mut at = 0;
    loop {
        let bytes = vfs.read(file.ino, at, CHUNK_BYTES)?;
        if bytes.is_empty() {
            ensure!(file.computed.is_some() || at >= file.size, "it ends after {at} of {} bytes", file.size);
            return Ok(());
        }
        bytes.slices().iter().try_for_each(|slice| take(slice))?;
        at += bytes.len() as u64;
    }
}
