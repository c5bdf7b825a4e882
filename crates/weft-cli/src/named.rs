//! Names of volumes and of places in them: `VOLUME:PATH` as users write it, and as daemons tell
//! it.

use crate::{mounted, shown};
use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use weft_store::Location;
use weft_store::postgres::is_address;

/// Splits `named` into the volume and the path in it, if it is `VOLUME:PATH` and no file has that
/// name.
///
/// The volume's own name may hold colons: it is the longest existing prefix of `named` before a
/// colon. Without one, text that begins with '/' or '.' is a path, and else the first colon counts.
pub fn in_volume(named: &OsStr) -> Option<(&OsStr, &OsStr)> {
    let bytes = named.as_bytes();
    if let Some(rest) = after_scheme(bytes) {
        // The first colon after the host, before which there may be one of a port.
        let after_host = rest + bytes[rest..].iter().position(|byte| b"/?".contains(byte))?;
        let colon = bytes[after_host..].iter().position(|byte| *byte == b':')?;
        return Some(apart(bytes, after_host + colon));
    }
    let is_there = |path: &[u8]| Path::new(OsStr::from_bytes(path)).symlink_metadata().is_ok();
    if is_there(bytes) {
        return None;
    }
    let colons = || (0..bytes.len()).filter(|at| bytes[*at] == b':');
    let longest = colons().rev().find(|colon| is_there(&bytes[..*colon]));
    let is_path = bytes.first().is_some_and(|first| b"/.".contains(first));
    longest.or_else(|| colons().next().filter(|_| !is_path)).map(|colon| apart(bytes, colon))
}

/// Splits `VOLUME:PATH` where a volume is: names in a mounted volume may have colons, too.
pub fn volume_and_path(named: &OsStr) -> Option<(&Path, &OsStr)> {
    let (volume, path) = in_volume(named)?;
    let volume = Path::new(volume);
    // What begins like a path, or in a mount, and is no volume lies there, or nowhere.
    let is_path = || {
        named.as_bytes().first().is_some_and(|first| b"/.".contains(first))
            || mounted::InMount::find(Path::new(named)).is_ok_and(|place| place.is_some())
    };
    (is_volume(volume) || !is_path()).then_some((volume, path))
}

/// True if `named` names a volume: its address, itself, or its mount point.
pub fn is_volume(named: &Path) -> bool {
    let is_address = Location::parse(named).is_ok_and(|location| location.path().is_none());
    is_address || mounted::is_mount_point(named) || weft_store::sqlite::is_volume(named)
}

/// Returns the volume in files, a directory, that `path` is or lies in, there or not.
pub fn volume_around(path: &Path) -> Option<PathBuf> {
    // Of one that is there the last name may be a symbolic link, too.
    let real = path.canonicalize().ok().or_else(|| resolved(path).ok());
    let path = real.or_else(|| std::path::absolute(path).ok())?;
    let is_volume = |path: &&Path| path.is_dir() && weft_store::sqlite::is_volume(path);
    path.ancestors().find(is_volume).map(Path::to_path_buf)
}

/// Splits `VOLUME@MOMENT` into the volume and the text of the moment; all of `named` is the volume
/// if a file has that name, or if the last part has no `@`.
pub fn at_moment(named: &OsStr) -> (&Path, Option<&OsStr>) {
    let bytes = named.as_bytes();
    // There may be one before the host, and in the names of directories.
    let from = match after_scheme(bytes) {
        Some(host) => bytes[host..].iter().position(|byte| b"/?".contains(byte)).map_or(bytes.len(), |at| host + at),
        None => bytes.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1),
    };
    let mut ats = (from..bytes.len()).filter(|at| bytes[*at] == b'@');
    let is_there = |at: &usize| Path::new(OsStr::from_bytes(&bytes[..*at])).symlink_metadata().is_ok();
    // The volume's own name may hold some, too, as of `in_volume`.
    let at = ats.clone().rev().find(is_there).or_else(|| ats.next());
    match at.filter(|at| *at > 0 && Path::new(named).symlink_metadata().is_err()) {
        Some(at) => {
            let (volume, moment) = apart(bytes, at);
            (Path::new(volume), Some(moment))
        }
        None => (Path::new(named), None),
    }
}

/// Returns the position of the host in the address of a database.
fn after_scheme(named: &[u8]) -> Option<usize> {
    let end = named.windows(3).position(|bytes| bytes == b"://")? + 3;
    std::str::from_utf8(&named[..end]).is_ok_and(is_address).then_some(end)
}

/// Returns the parts of `named` before and behind the colon at `colon`.
fn apart(named: &[u8], colon: usize) -> (&OsStr, &OsStr) {
    (OsStr::from_bytes(&named[..colon]), OsStr::from_bytes(&named[colon + 1..]))
}

/// Returns the volume at `location` as daemons name it, from any directory.
pub fn volume(location: &Location) -> String {
    match location.path() {
        Some(path) => path_of(path),
        None => location.to_string(),
    }
}

/// The server and its database, if the volume at `location` lies in one.
pub fn server(location: &Location) -> Option<String> {
    location.address().map(|address| address.server().to_owned())
}

fn path_of(path: &Path) -> String {
    shown::path(&path.canonicalize().unwrap_or_else(|_| path.into()))
}

/// Returns `path` from the root of the system, without symbolic links or `..` on the way to its
/// last name.
pub fn resolved(path: &Path) -> Result<PathBuf> {
    let Some(Component::Normal(name)) = path.components().next_back() else { return Ok(path.canonicalize()?) };
    let parent = weft_store::parent_of(path);
    let parent = parent.canonicalize().with_context(|| format!("there is no directory {}", parent.display()))?;
    Ok(parent.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_stands_behind_the_volume() {
        for (named, volume, moment) in [
            ("v.weft", "v.weft", None),
            ("v.weft@monday", "v.weft", Some("monday")),
            ("/a@b/v.weft@@12", "/a@b/v.weft", Some("@12")),
            ("postgres://me@host/files?schema=s", "postgres://me@host/files?schema=s", None),
            ("postgres://me@host/files?schema=s@-5m", "postgres://me@host/files?schema=s", Some("-5m")),
            ("postgres:///files@now", "postgres:///files", Some("now")),
        ] {
            assert_eq!(at_moment(OsStr::new(named)), (Path::new(volume), moment.map(OsStr::new)), "{named}");
        }
    }
}
