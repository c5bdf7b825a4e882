//! Files that root makes in a volume of another user, and gives to that user before they are used.
//!
//! Root's daemon would otherwise leave files behind that lock the owner out. Only a file that was
//! made just now is given: it is new (`O_EXCL`) and open here, so nobody can have put another one
//! in its place. A daemon has `CAP_CHOWN` for such a volume alone, and in effect during that one
//! call: whatever else would change owners, SQLite above all, has no right to.

use crate::files;
use rustix::fs::{Dir, Gid, Mode, OFlags, Uid, fchown, fstat};
use rustix::process::geteuid;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The owner of a volume, seen by root, who is another user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) user: u32,
    group: u32,
}

impl Owner {
    /// The owner of the file at `path`. None if this is not root, or the file is root's.
    pub(crate) fn of(path: &Path) -> Option<Owner> {
        if !geteuid().is_root() {
            return None;
        }
        let metadata = path.symlink_metadata().ok()?;
        let owner = Owner { user: metadata.uid(), group: metadata.gid() };
        (metadata.is_file() && owner.user != 0).then_some(owner)
    }

    /// Gives `file` to the owner. The caller must know that it is the volume's.
    pub(crate) fn give(self, file: impl AsFd) -> io::Result<()> {
        if fstat(&file)?.st_uid == self.user {
            return Ok(());
        }
        let change = || fchown(&file, Some(Uid::from_raw(self.user)), Some(Gid::from_raw(self.group)));
        let changed = with_effective(|had| had.effective | had.permitted & CapabilitySet::CHOWN, change)?;
        changed.map_err(|error| self.refusal(error.into()))
    }

    fn refusal(self, error: io::Error) -> io::Error {
        let user = self.user;
        io::Error::other(format!(
            "it cannot be given to the owner of the volume (user {user}), whom it would lock out: {error}; use the \
             volume as that user"
        ))
    }
}

/// Does `work` with these of the capabilities in effect that this thread has.
fn with_effective<T>(wanted: impl FnOnce(CapabilitySets) -> CapabilitySet, work: impl FnOnce() -> T) -> io::Result<T> {
    let had = capabilities(None)?;
    let effective = wanted(had);
    if effective == had.effective {
        return Ok(work());
    }
    set_capabilities(None, CapabilitySets { effective, ..had })?;
    let done = work();
    set_capabilities(None, had)?;
    Ok(done)
}

/// Has SQLite do `work` on `database`. It would give its logs to the owner of the database if it
/// could, whatever had been put in their place.
pub(crate) fn without_giving<T>(database: &Path, work: impl FnOnce() -> T) -> io::Result<T> {
    match Owner::of(database) {
        Some(_) => with_effective(|had| had.effective - CapabilitySet::CHOWN, work),
        None => Ok(work()),
    }
}

/// Makes an empty file at `path` if there is none and root makes it for the owner of `database`,
/// whose it is then. For others it does nothing: they make their files as they open them.
pub(crate) fn make_file(path: &Path, database: &Path) -> io::Result<()> {
    let Some(owner) = Owner::of(database) else { return Ok(()) };
    let file = match files::open(files::options().write(true).create_new(true), path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        made => made?,
    };
    owner.give(&file).inspect_err(|_| {
        // The error is what the user must see.
        let _ = std::fs::remove_file(path);
    })
}

/// Makes a directory at `path`, for the owner of `database` if this is root, else for this user.
pub(crate) fn make_directory(path: &Path, database: &Path) -> io::Result<()> {
    files::make_directory(path)?;
    let Some(owner) = Owner::of(database) else { return Ok(()) };
    let flags = files::FLAGS | OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(path, flags, Mode::empty())?;
    // A directory cannot be open from the moment when it is made. An empty one gives nothing away.
    let is_entry = |name: &std::ffi::CStr| !matches!(name.to_bytes(), b"." | b"..");
    for entry in Dir::read_from(&directory)? {
        if is_entry(entry?.file_name()) {
            return Err(io::Error::other("something else was put in its place"));
        }
    }
    owner.give(&directory).inspect_err(|_| {
        let _ = std::fs::remove_dir(path);
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::chown;

    fn owner(path: &Path) -> u32 {
        path.symlink_metadata().expect("there").uid()
    }

    #[test]
    fn root_gives_away_what_it_makes_and_nothing_that_was_there() {
        if !geteuid().is_root() {
            return eprintln!("SKIPPED root_gives_away_what_it_makes_and_nothing_that_was_there: needs root");
        }
        let place = tempfile::tempdir().expect("a directory");
        let path = |name: &str| place.path().join(name);
        std::fs::write(path("database"), "").expect("written");
        make_file(&path("roots"), &path("database")).expect("nothing to do");
        assert!(!path("roots").exists());
        chown(path("database"), Some(65534), Some(65533)).expect("given");
        std::fs::write(path("secret"), "of root").expect("written");
        std::fs::hard_link(path("secret"), path("hard")).expect("linked");
        std::os::unix::fs::symlink(path("secret"), path("soft")).expect("linked");
        for name in ["secret", "hard", "soft", "new"] {
            make_file(&path(name), &path("database")).expect("made, or there");
        }
        make_directory(&path("segments"), &path("database")).expect("made");
        make_directory(&path("soft"), &path("database")).expect_err("it is there");
        let owners = ["secret", "hard", "soft", "new", "segments"].map(|name| owner(&path(name)));
        assert_eq!(owners, [0, 0, 0, 65534, 65534]);
        assert_eq!(path("new").metadata().expect("there").gid(), 65533);
    }

    #[test]
    fn the_right_to_change_owners_is_in_effect_for_one_call() {
        if !geteuid().is_root() {
            return eprintln!("SKIPPED the_right_to_change_owners_is_in_effect_for_one_call: needs root");
        }
        let place = tempfile::tempdir().expect("a directory");
        let (database, new) = (place.path().join("database"), place.path().join("new"));
        std::fs::write(&database, "").expect("written");
        chown(&database, Some(65534), Some(65534)).expect("given");
        // Capabilities are each thread's own.
        let work = || {
            let had = capabilities(None).expect("told");
            let effective = had.effective - CapabilitySet::CHOWN;
            set_capabilities(None, CapabilitySets { effective, ..had }).expect("lowered");
            make_file(&new, &database).expect("made");
            assert_eq!(owner(&new), 65534);
            assert!(!capabilities(None).expect("told").effective.contains(CapabilitySet::CHOWN));
            let permitted = had.permitted - CapabilitySet::CHOWN;
            let in_effect = || capabilities(None).expect("told").effective.contains(CapabilitySet::CHOWN);
            set_capabilities(None, had).expect("raised");
            assert!(!without_giving(&database, in_effect).expect("done") && in_effect());
            set_capabilities(None, CapabilitySets { effective, permitted, ..had }).expect("given up");
            std::fs::remove_file(&new).expect("removed");
            let error = make_file(&new, &database).expect_err("no right to");
            assert!(error.to_string().contains("whom it would lock out"), "{error}");
            assert!(!new.exists());
        };
        std::thread::scope(|scope| scope.spawn(work).join()).expect("it went well");
    }
}
