//! Paths that no other user leads elsewhere.
//!
//! Root names a path in the past of a user's directory, and the user has made a symbolic link of a
//! directory on the way since: what is changed then would be another file. The kernel's own
//! resolution cannot be asked, as a link may come between a look and a use.

use crate::shown;
use anyhow::{Context, Result, bail, ensure};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Symbolic links on one way, at most (path_resolution(7)).
const LINKS_MAX: usize = 40;

/// The treatment of the last name of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Last {
    /// It stays, if it is a symbolic link.
    Stays,
    /// It is followed.
    Followed,
}

/// A path leads over a symbolic link of another user's.
#[derive(Debug)]
pub(super) struct ForeignLink {
    path: PathBuf,
    link: PathBuf,
    owner: u32,
    target: PathBuf,
}

impl std::fmt::Display for ForeignLink {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [path, link, target] = [&self.path, &self.link, &self.target].map(|path| shown::path(path));
        let owner = self.owner;
        write!(out, "{path} leads over {link}, a symbolic link of user {owner} to {target}; name the path itself")
    }
}

impl std::error::Error for ForeignLink {}

/// Returns `path` from the root of the system, without symbolic links or `..` as far as it exists.
/// Fails with [`ForeignLink`] where a link is followed that a user has made who is neither this one
/// nor the super-user.
pub(super) fn resolved(path: &Path, last: Last) -> Result<PathBuf> {
    let absolute = std::path::absolute(path)?;
    let trusted = [0, rustix::process::geteuid().as_raw()];
    let is_foreign = |link: &Metadata| !trusted.contains(&link.uid());
    let (mut at, mut links) = (PathBuf::from("/"), 0);
    let mut left = names(&absolute);
    while let Some(name) = left.pop_front() {
        if name == ".." {
            at.pop();
            continue;
        }
        let next = at.join(&name);
        if left.is_empty() && last == Last::Stays {
            return Ok(next);
        }
        let found = match next.symlink_metadata() {
            Ok(found) => found,
            // Of what was a directory then, and is a file now, nothing is there.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                let leads_back = left.iter().any(|name| name == "..");
                ensure!(!leads_back, "{} leads through '..' of a directory that is not there", shown::path(path));
                return Ok(left.iter().fold(next, |path, name| path.join(name)));
            }
            Err(error) => return Err(error).with_context(|| format!("cannot look at {}", shown::path(&next))),
        };
        if !found.is_symlink() {
            at = next;
            continue;
        }
        let target = std::fs::read_link(&next).with_context(|| format!("cannot read {}", shown::path(&next)))?;
        if is_foreign(&found) {
            bail!(ForeignLink { path: path.into(), link: next, owner: found.uid(), target });
        }
        links += 1;
        ensure!(links <= LINKS_MAX, "{} leads over too many symbolic links", shown::path(path));
        if target.is_absolute() {
            at = PathBuf::from("/");
        }
        names(&target).into_iter().rev().for_each(|name| left.push_front(name));
    }
    Ok(at)
}

/// The names in `path`, and `..`.
fn names(path: &Path) -> VecDeque<OsString> {
    let name = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    };
    path.components().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_path_is_what_the_kernel_makes_of_it() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        std::fs::create_dir_all(place.join("a/b")).unwrap();
        for (target, link) in [("a", "to-a"), ("../to-a/b", "a/to-b"), ("loop", "loop")] {
            symlink(target, place.join(link)).unwrap();
        }
        symlink(place.join("a"), place.join("a/b/top")).unwrap();
        for (path, whole) in [
            ("to-a/b/x", "a/b/x"),
            ("to-a/to-b/../b/x", "a/b/x"),
            ("a/b/top/b/none/x/y", "a/b/none/x/y"),
            ("to-a", "to-a"),
            ("to-a/..", ""),
            ("a/../a/b", "a/b"),
        ] {
            let expected = if whole.is_empty() { place.clone() } else { place.join(whole) };
            assert_eq!(resolved(&place.join(path), Last::Stays).unwrap(), expected, "{path}");
            let followed = place.join(path).canonicalize();
            assert_eq!(resolved(&place.join(path), Last::Followed).unwrap(), followed.unwrap_or(expected), "{path}");
        }
        std::fs::write(place.join("file"), "").unwrap();
        assert_eq!(resolved(&place.join("to-a/../file/x/y"), Last::Stays).unwrap(), place.join("file/x/y"));
        assert!(resolved(&place.join("none/../x"), Last::Stays).is_err());
        assert!(resolved(&place.join("loop/x"), Last::Stays).is_err());
    }
}
