//! The way to a volume by its path, which root goes with care: whoever can write into a directory on
//! it could lead root to a volume of somebody else's.

use super::layout::DATABASE;
use crate::error::{Error, Result};
use crate::user::User;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, open, openat, readlinkat, statat};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most symbolic links that are followed, as the kernel does (path_resolution(7)).
const LINKS_MAX: usize = 40;

/// Flags by which a step is made: nothing is opened yet.
const STEP: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The way to a volume, as it was gone.
#[derive(Debug)]
pub(super) struct Way {
    /// The volume's path without symbolic links.
    pub(super) path: PathBuf,
    pub(super) is_directory: bool,
    /// The number of the owner of its database, or of its directory, in which there is none.
    owner: u32,
    /// The symbolic links on the way, and the numbers of their owners.
    links: Vec<(OsString, u32)>,
}

impl Way {
    /// The way to what lies at `path`, gone step by step, so that all that is told is of one way.
    pub(super) fn to(path: &Path) -> io::Result<Way> {
        if path.as_os_str().is_empty() {
            return Err(Errno::NOENT.into());
        }
        let is_absolute = path.is_absolute();
        let mut directory = open(if is_absolute { "/" } else { "." }, STEP | OFlags::DIRECTORY, Mode::empty())?;
        let (mut file, mut links) = (None, Vec::new());
        let mut steps = steps(path);
        while let Some(step) = steps.pop() {
            if file.is_some() {
                return Err(Errno::NOTDIR.into());
            }
            let found = look_in(&directory, || openat(&directory, &step, STEP, Mode::empty()))?;
            let stat = fstat(&found)?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Symlink if links.len() == LINKS_MAX => return Err(Errno::LOOP.into()),
                FileType::Symlink => {
                    let target = OsString::from_vec(readlinkat(&found, "", Vec::new())?.into_bytes());
                    if target.as_bytes().starts_with(b"/") {
                        directory = open("/", STEP | OFlags::DIRECTORY, Mode::empty())?;
                    }
                    steps.extend(self::steps(Path::new(&target)));
                    links.push((step, stat.st_uid));
                }
                FileType::Directory => directory = found,
                _ => file = Some(step),
            }
        }
        let database = file.as_deref().unwrap_or(OsStr::new(DATABASE));
        let owner = look_in(&directory, || statat(&directory, database, AtFlags::SYMLINK_NOFOLLOW));
        // There may be one in a moment, by whoever owns the directory.
        let owner = owner.or_else(|_| Ok::<_, io::Error>(fstat(&directory)?))?.st_uid;
        let (path, is_directory) = (path_of(&directory)?, file.is_none());
        Ok(Way { path: file.map_or(path.clone(), |file| path.join(file)), is_directory, owner, links })
    }
}

/// Looks into `directory`; if root is not let, as its daemon is not, with the rights of whoever the
/// directory belongs to.
fn look_in<T>(directory: &OwnedFd, look: impl Fn() -> rustix::io::Result<T>) -> io::Result<T> {
    match look() {
        Err(Errno::ACCESS) if geteuid().is_root() => {
            let _rights = User::numbered(fstat(directory)?.st_uid).take_files()?;
            Ok(look()?)
        }
        found => Ok(found?),
    }
}

/// The names on `path`, the last one first.
fn steps(path: &Path) -> Vec<OsString> {
    let bytes = path.as_os_str().as_bytes();
    let names = bytes.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
    // What has a slash behind it is a directory.
    let end = bytes.ends_with(b"/").then_some(&b"."[..]);
    let mut steps: Vec<_> = names.chain(end).map(|name| OsStr::from_bytes(name).to_owned()).collect();
    steps.reverse();
    steps
}

fn path_of(directory: &OwnedFd) -> io::Result<PathBuf> {
    let link = format!("/proc/self/fd/{}", directory.as_raw_fd());
    let told = readlinkat(CWD, link, Vec::new());
    let told = told.map_err(|error| io::Error::other(format!("/proc does not tell where it is: {error}")))?;
    Ok(OsString::from_vec(told.into_bytes()).into())
}

/// The owner of the volume that `way` leads to, if this is root and that is another user. Errors: a
/// link on the way, called `named`, is neither root's nor the owner's.
pub(super) fn owner_on(way: &Way, named: &Path) -> Result<Option<Arc<User>>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let owner = way.owner;
    if let Some((link, user)) = way.links.iter().find(|(_, user)| ![0, owner].contains(user)) {
        return Err(Error::Unusable(format!(
            "{} leads by a symbolic link of user {user} ({}) to a volume of user {owner}: root follows only links of its \
             own and of the volume's owner; name the volume itself, {}",
            named.display(),
            Path::new(link).display(),
            way.path.display()
        )));
    }
    Ok((owner != 0).then(|| Arc::new(User::numbered(owner))))
}

/// Tells, in a line for the user, if root's own volume at `path` lies where another user can put
/// another one in its place while root uses it.
pub fn replaceable(path: &Path) -> Option<String> {
    let way = Way::to(path).ok().filter(|way| geteuid().is_root() && way.owner == 0)?;
    let (directory, who) =
        way.path.ancestors().skip(1).find_map(|directory| Some((directory, anothers(directory)?)))?;
    Some(format!(
        "{} is root's and lies in {}, where {who} can put another volume of root's in its place while it is used; keep it \
         where only root changes names, or give it to that user (chown -R)",
        path.display(),
        directory.display()
    ))
}

/// The user or group, if any, other than root, that can change names of root's in `directory`.
fn anothers(directory: &Path) -> Option<String> {
    let metadata = directory.symlink_metadata().ok()?;
    let is_sticky = metadata.mode() & 0o1000 != 0;
    let (uid, gid) = (metadata.uid(), metadata.gid());
    match metadata.mode() {
        _ if uid != 0 => Some(format!("user {uid}")),
        mode if mode & 0o002 != 0 && !is_sticky => Some("everybody".into()),
        mode if mode & 0o020 != 0 && gid != 0 && !is_sticky => Some(format!("group {gid}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_way_is_told_as_the_kernel_goes_it() {
        let place = tempfile::tempdir().expect("a directory");
        let place = place.path().canonicalize().expect("there");
        std::fs::create_dir_all(place.join("a/b")).expect("made");
        std::fs::write(place.join("a/file"), "").expect("written");
        for (target, name) in [("b", "a/relative"), ("../a/file", "a/up"), ("loop", "loop"), ("a", "c")] {
            symlink(target, place.join(name)).expect("linked");
        }
        symlink(place.join("c/relative"), place.join("absolute")).expect("linked");
        for (name, links) in [
            ("a/b", 0),
            ("a/./b/..//b/", 0),
            ("c/relative/../relative", 3),
            ("absolute", 3),
            ("c/up", 2),
            ("a/file", 0),
        ] {
            let way = Way::to(&place.join(name)).expect("gone");
            assert_eq!(way.path, place.join(name).canonicalize().expect("there"), "{name}");
            assert_eq!(way.links.len(), links, "{name}");
        }
        for name in ["loop", "a/file/x", "none", "a/file/.", "a/file/"] {
            let (way, kernel) = (Way::to(&place.join(name)), place.join(name).canonicalize());
            let code = |error: io::Error| error.raw_os_error();
            assert_eq!(way.map(|way| way.path).map_err(code), kernel.map_err(code), "{name}");
        }
        let here = Way::to(Path::new(".")).expect("gone");
        assert_eq!(here.path, std::env::current_dir().expect("there").canonicalize().expect("there"));
    }
}
