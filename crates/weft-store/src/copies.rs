//! Copies of files beside themselves, of what is about to be given up or overwritten.

use crate::error::{Error, Result};
use crate::files;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Most copies of one file.
const COPIES_MAX: u32 = 1000;

/// Bytes of files that are compared at once.
const CHUNK_BYTES: usize = 64 << 10;

/// Copies the file at `path` beside itself, durably; none if there is nothing in it.
pub(crate) fn set_aside(path: &Path) -> Result<Option<PathBuf>> {
    let copy = copy(path)?;
    sync_beside(path)?;
    Ok(copy)
}

/// Makes the name of the file at `path` durable.
pub(crate) fn sync_beside(path: &Path) -> Result<()> {
    sync_directory(files::parent_of(path))
}

/// Makes the names in the directory at `path` durable.
pub(crate) fn sync_directory(path: &Path) -> Result<()> {
    let synced = File::open(path).and_then(|directory| directory.sync_all());
    synced.map_err(|source| Error::Io { what: "cannot sync", path: path.into(), source })
}

/// Copies a file beside itself, for its owner alone; none if there is nothing in it. A copy of the
/// same content that is there already will do: a mount that fails may be tried often.
pub(crate) fn copy(path: &Path) -> Result<Option<PathBuf>> {
    let io = |what| move |source| Error::Io { what, path: path.into(), source };
    let mut file = match files::open(files::options().read(true), path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file.map_err(io("cannot open"))?,
    };
    if file.metadata().map_err(io("cannot look at"))?.len() == 0 {
        return Ok(None);
    }
    for number in 1..=COPIES_MAX {
        let aside = path.with_added_extension(format!("aside-{number}"));
        let mut copy = match files::open(files::options().write(true).create_new(true), &aside) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                if is_same(&file, &aside) {
                    return Ok(Some(aside));
                }
                continue;
            }
            made => made.map_err(io("cannot make a copy of"))?,
        };
        let copied = std::io::copy(&mut file, &mut copy).and_then(|_| copy.sync_all());
        if let Err(source) = copied {
            // Half a copy helps nobody.
            let _ = files::remove(&aside);
            return Err(io("cannot copy")(source));
        }
        return Ok(Some(aside));
    }
    Err(Error::Unusable(format!("{} has {COPIES_MAX} copies already; move them elsewhere", path.display())))
}

/// True if the regular file at `path` can be read and has the content of `file`.
fn is_same(file: &File, path: &Path) -> bool {
    let Ok(copy) = files::open(files::options().read(true), path) else { return false };
    let lengths = [file, &copy].map(|file| file.metadata().map(|metadata| metadata.len()).ok());
    let [Some(length), Some(found)] = lengths else { return false };
    let mut chunks = [vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]];
    length == found
        && (0..length).step_by(CHUNK_BYTES).all(|at| {
            let here = usize::try_from(length - at).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
            let [one, other] = chunks.each_mut().map(|chunk| &mut chunk[..here]);
            file.read_exact_at(one, at).is_ok() && copy.read_exact_at(other, at).is_ok() && one == other
        })
}
