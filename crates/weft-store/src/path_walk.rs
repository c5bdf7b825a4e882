//! The walk to a file or directory by its path, which root does with care: a user who can write
//! into a directory on it could lead root to another user's file.

use crate::error::{Error, Result};
use crate::user::User;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, open, openat, readlinkat, statat};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Most symbolic links that are followed, as the kernel does (path_resolution(7)).
const LINKS_MAX: usize = 40;

/// Flags by which a step is made: nothing is opened yet.
const STEP: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A way, as it was gone.
#[derive(Debug)]
pub struct PathWalk {
    /// The path without symbolic links of what it leads to.
    pub path: PathBuf,
    /// The directory that it leads to, or that the file lies in which it leads to.
    directory: OwnedFd,
    /// The name of that file.
    file: Option<OsString>,
    /// The symbolic links on the way, and the numbers of the users who can have them lead there:
    /// their owners, and those of the directories that they lie in.
    links: Vec<(OsString, Vec<u32>)>,
}

impl PathWalk {
    /// Walks to `path` step by step, so that all answers are of one walk.
    ///
    /// # Errors
    /// Those of path_resolution(7).
    pub fn to(path: &Path) -> io::Result<PathWalk> {
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
                    let changers = changers(&fstat(&directory)?);
                    let target = OsString::from_vec(readlinkat(&found, "", Vec::new())?.into_bytes());
                    if target.as_bytes().starts_with(b"/") {
                        directory = open("/", STEP | OFlags::DIRECTORY, Mode::empty())?;
                    }
                    steps.extend(self::steps(Path::new(&target)));
                    links.push((step, [vec![stat.st_uid], changers].concat()));
                }
                FileType::Directory => directory = found,
                _ => file = Some(step),
            }
        }
        let path = path_of(&directory)?;
        let path = file.as_ref().map_or(path.clone(), |file| path.join(file));
        Ok(PathWalk { path, directory, file, links })
    }

    /// True if it leads to a directory.
    #[must_use]
    pub fn is_to_directory(&self) -> bool {
        self.file.is_none()
    }

    /// The directory that it leads to, or that the file lies in which it leads to.
    #[must_use]
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// The number of the owner of that directory.
    ///
    /// # Errors
    /// It cannot be looked at.
    pub fn directory_owner(&self) -> io::Result<u32> {
        Ok(fstat(&self.directory)?.st_uid)
    }

    /// The number of the owner of file `name` in the directory that it leads to, or of the file
    /// that it leads to, if it leads there. Where there is no such file it is that of the
    /// directory, whose owner may put one there in a moment.
    ///
    /// # Errors
    /// The directory cannot be looked at.
    pub fn owner_of(&self, name: &str) -> io::Result<u32> {
        let file = self.file.as_deref().unwrap_or(OsStr::new(name));
        let found = look_in(&self.directory, || statat(&self.directory, file, AtFlags::SYMLINK_NOFOLLOW));
        found.map_or_else(|_| self.directory_owner(), |stat| Ok(stat.st_uid))
    }

    /// Refuses a way that root went by a symbolic link of another user than root and `owner`, who
    /// owns what it leads to. It was called `named`.
    ///
    /// # Errors
    /// `Unusable`.
    pub fn refuse_links_of_others(&self, owner: u32, named: &Path) -> Result<()> {
        let is_others = |user: &&u32| geteuid().is_root() && ![0, owner].contains(user);
        let others = self.links.iter().find_map(|(link, users)| Some((link, users.iter().find(is_others)?)));
        let Some((link, user)) = others else { return Ok(()) };
        let user = if *user == EVERYBODY { "everybody".into() } else { format!("user {user}") };
        Err(Error::Unusable(format!(
            "{} leads by a symbolic link of {user} ({}) to what belongs to user {owner}: root follows only links of \
             its own and of that owner; name it itself, {}",
            named.display(),
            Path::new(link).display(),
            self.path.display()
        )))
    }
}

/// Looks into `directory`; if root is not let, as its daemon is not, with the rights of the
/// directory's owner.
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

/// Returns the user or group, other than root, that can replace the file at `path`, and the
/// directory on the way in which it can. `path` has no symbolic links.
pub(crate) fn replacer(path: &Path) -> Option<(&Path, String)> {
    path.ancestors().skip(1).find_map(|directory| Some((directory, anothers(directory)?)))
}

/// The user or group, if any, other than root, that can change names of root's in `directory`.
fn anothers(directory: &Path) -> Option<String> {
    let stat = statat(CWD, directory, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    match changers(&stat)[..] {
        [0] => None,
        [0, ..] if stat.st_mode & 0o002 == 0 => Some(format!("group {}", stat.st_gid)),
        [0, ..] => Some("everybody".into()),
        _ => Some(format!("user {}", stat.st_uid)),
    }
}

/// Stands for users that a directory lets in.
const EVERYBODY: u32 = u32::MAX;

/// The users who can change names of others in the directory of these attributes.
fn changers(directory: &Stat) -> Vec<u32> {
    let is_sticky = directory.st_mode & 0o1000 != 0;
    let is_open = directory.st_mode & 0o002 != 0 || directory.st_mode & 0o020 != 0 && directory.st_gid != 0;
    let others = (is_open && !is_sticky).then_some(EVERYBODY);
    std::iter::once(directory.st_uid).chain(others).collect()
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
            let way = PathWalk::to(&place.join(name)).expect("gone");
            assert_eq!(way.path, place.join(name).canonicalize().expect("there"), "{name}");
            assert_eq!(way.links.len(), links, "{name}");
        }
        for name in ["loop", "a/file/x", "none", "a/file/.", "a/file/"] {
            let (way, kernel) = (PathWalk::to(&place.join(name)), place.join(name).canonicalize());
            let code = |error: io::Error| error.raw_os_error();
            assert_eq!(way.map(|way| way.path).map_err(code), kernel.map_err(code), "{name}");
        }
        let here = PathWalk::to(Path::new(".")).expect("gone");
        assert_eq!(here.path, std::env::current_dir().expect("there").canonicalize().expect("there"));
    }
}
