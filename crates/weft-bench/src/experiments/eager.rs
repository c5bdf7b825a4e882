//! Digests the eager way, as HashFS kept them: each close hashes the whole file and the whole
//! directory anew. On any file system, for comparison with one that keeps digests up to date.

use crate::place::Place;
use crate::scale::Scale;
use crate::timing::time;
use anyhow::Result;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use weft_attributes::Attribute;
use weft_digest::{Digest, Entry, Kind, digest, directory};

/// Times that a file is rewritten in one run.
const REWRITES: usize = 64;

/// A directory whose digest is made anew at each close in it.
#[derive(Default)]
struct Eager {
    files: Vec<(String, Digest)>,
}

impl Eager {
    /// File `name` at `path` was closed.
    fn closed(&mut self, path: &Path, name: String) -> Result<Digest> {
        let content = digest(&std::fs::read(path)?);
        match self.files.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = content,
            None => self.files.push((name, content)),
        }
        Ok(directory(self.files.iter().map(|(name, digest)| Entry {
            name: name.as_bytes(),
            kind: Kind::File,
            permissions: 0o644,
            digest: *digest,
        })))
    }
}

/// Files a second, made in one directory.
pub(super) fn create(place: &Place, scale: &Scale) -> Result<f64> {
    let path = place.fresh("eager")?;
    let mut eager = Eager::default();
    let taken = time(|| {
        (0..scale.count).try_for_each(|number| {
            let name = format!("file{number:07}");
            let file = path.join(&name);
            File::create(&file)?;
            eager.closed(&file, name).map(|_| ())
        })
    })?;
    place.retire("eager")?;
    Ok(scale.count as f64 / taken.as_secs_f64())
}

/// Closes a second, of one large file after 4 KiB were written to it; `closed` is called after
/// each.
fn rewrites(place: &Place, scale: &Scale, mut closed: impl FnMut(&Path) -> Result<()>) -> Result<f64> {
    let path = place.fresh("eager")?.join("file");
    let pages = scale.size << 8;
    std::fs::write(&path, vec![0x5a; pages << 12])?;
    let taken = time(|| {
        (0..REWRITES).try_for_each(|number| {
            let file = OpenOptions::new().write(true).open(&path)?;
            file.write_all_at(&[number as u8; 4096], ((number * 7919 % pages) << 12) as u64)?;
            drop(file);
            closed(&path)
        })
    })?;
    place.retire("eager")?;
    Ok(REWRITES as f64 / taken.as_secs_f64())
}

/// Closes a second of a large file that is rewritten here and there.
pub(super) fn rewrite(place: &Place, scale: &Scale) -> Result<f64> {
    let mut eager = Eager::default();
    rewrites(place, scale, |path| eager.closed(path, "file".into()).map(|_| ()))
}

/// As [`rewrite`], but the digest is asked for: `user.weft.digest`, which volumes keep.
pub(super) fn rewrite_kept(place: &Place, scale: &Scale) -> Result<f64> {
    rewrites(place, scale, |path| {
        rustix::fs::getxattr(path, Attribute::Digest.name(), &mut [0; 64][..])?;
        Ok(())
    })
}
