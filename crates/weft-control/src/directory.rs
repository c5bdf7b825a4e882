//! The directory of control sockets: `/run/weft` for root, `weft` in the runtime directory of any
//! other user.
//!
//! Its path is the same for all daemons of a user, so nothing that somebody else made there may be
//! trusted: directory and parent must be the user's own (the parent may be root's), no symbolic
//! link, and writable by nobody else. A socket is named for the id of its volume, the kind of its
//! daemon and its process. A socket that nobody listens at is removed by the next process that
//! finds it: another daemon of its volume, or a program that looks for daemons. The directory is
//! locked (flock(2)) while one is removed or named, so that none is removed that a new daemon of
//! the same number has just named.

use crate::answers::Kind;
use crate::client::{Unanswered, connected};
use crate::hexadecimal::hex;
use rustix::fs::FlockOperation;
use rustix::process::geteuid;
use std::fs::{DirBuilder, File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The end of the name of each socket.
const SUFFIX: &str = ".socket";

/// Time to find out if somebody listens at a socket.
const LOOK_MAX: Duration = Duration::from_secs(1);

/// The reason that there is no directory for control sockets.
#[derive(Debug)]
pub enum DirectoryError {
    /// The user has no runtime directory.
    NoRuntimeDirectory,
    /// Somebody else owns it, or could change what is in it.
    Untrusted(PathBuf, &'static str),
    /// It cannot be made or looked at.
    System(PathBuf, io::Error),
}

impl std::fmt::Display for DirectoryError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DirectoryError::NoRuntimeDirectory => f.write_str(
                "XDG_RUNTIME_DIR names no directory of this user's own, and there is none in /run/user; set it to one that \
                 only this user can write",
            ),
            DirectoryError::Untrusted(path, why) => write!(f, "{} {why}; remove it", path.display()),
            DirectoryError::System(path, error) => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for DirectoryError {}

/// A control socket that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Socket {
    /// Its path.
    pub path: PathBuf,
    /// The id of the volume, in hexadecimal.
    pub volume: String,
    /// The use that its daemon makes of the volume.
    pub kind: Kind,
    /// The process that made it.
    pub pid: u32,
}

impl Socket {
    /// The socket at `path`, by its name.
    fn at(path: PathBuf) -> Option<Socket> {
        let name = path.file_name()?.to_str()?.strip_suffix(SUFFIX)?;
        let (volume, rest) = name.split_once('-')?;
        let (kind, pid) = rest.split_once('-')?;
        let is_id = volume.len() == 32 && volume.bytes().all(|byte| byte.is_ascii_hexdigit());
        let (kind, pid) = (Kind::named(kind)?, pid.parse().ok()?);
        let volume = volume.to_owned();
        is_id.then_some(Socket { path, volume, kind, pid })
    }
}

/// The control sockets of this user.
///
/// # Errors
/// The directory cannot be trusted or read. That there is none means that there are no sockets.
pub fn sockets() -> Result<Vec<Socket>, DirectoryError> {
    let directory = parent().map(|parent| parent.join("weft"));
    match directory.and_then(|directory| verify(&directory).map(|()| directory)) {
        Err(DirectoryError::NoRuntimeDirectory) => Ok(Vec::new()),
        Err(DirectoryError::System(_, error)) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        verified => sockets_in(&verified?),
    }
}

/// Returns the reason that daemons of this user have no control socket, if the directory for it
/// cannot be used.
pub fn missing() -> Option<DirectoryError> {
    parent().err()
}

/// Removes `socket` if nobody listens at it: its daemon was killed.
pub fn remove_stale(socket: &Socket) {
    let Some(directory) = socket.path.parent() else { return };
    // Somebody who removes or names one now leaves this one for the next time.
    if let Ok(_locked) = locked(directory, FlockOperation::NonBlockingLockExclusive)
        && is_stale(&socket.path)
    {
        let _ = std::fs::remove_file(&socket.path);
    }
}

/// Locks `directory` until the file is dropped.
fn locked(directory: &Path, how: FlockOperation) -> io::Result<File> {
    let locked = File::open(directory)?;
    rustix::fs::flock(&locked, how)?;
    Ok(locked)
}

fn sockets_in(directory: &Path) -> Result<Vec<Socket>, DirectoryError> {
    let system = |error| DirectoryError::System(directory.into(), error);
    let entries = std::fs::read_dir(directory).map_err(system)?;
    let mut found: Vec<Socket> = entries.filter_map(|entry| Socket::at(entry.ok()?.path())).collect();
    found.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

/// The directory, made if it is not there.
pub(crate) fn made() -> Result<PathBuf, DirectoryError> {
    made_in(&parent()?)
}

fn made_in(parent: &Path) -> Result<PathBuf, DirectoryError> {
    let directory = parent.join("weft");
    match DirBuilder::new().mode(0o700).create(&directory) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(DirectoryError::System(directory, error));
        }
        _ => {}
    }
    verify(&directory)?;
    Ok(directory)
}

/// The directory that holds it. What XDG_RUNTIME_DIR names may be another user's, as after su(1).
fn parent() -> Result<PathBuf, DirectoryError> {
    let user = geteuid();
    if user.is_root() {
        let parent = PathBuf::from("/run");
        return verify_parent(&parent).map(|()| parent);
    }
    let named = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let usual = PathBuf::from(format!("/run/user/{}", user.as_raw()));
    let trusted = named.into_iter().chain([usual]).find(|path| verify_parent(path).is_ok());
    trusted.ok_or(DirectoryError::NoRuntimeDirectory)
}

/// Refuses a directory in which somebody else than its user and root could replace what is there.
fn verify_parent(path: &Path) -> Result<(), DirectoryError> {
    let metadata = directory_at(path)?;
    if metadata.uid() != geteuid().as_raw() {
        return Err(DirectoryError::Untrusted(path.into(), "belongs to another user"));
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(DirectoryError::Untrusted(path.into(), "can be written by other users"));
    }
    Ok(())
}

/// Refuses a directory that is not its user's alone.
fn verify(path: &Path) -> Result<(), DirectoryError> {
    let metadata = directory_at(path)?;
    if metadata.uid() != geteuid().as_raw() {
        return Err(DirectoryError::Untrusted(path.into(), "belongs to another user"));
    }
    if metadata.mode() & 0o7777 != 0o700 {
        return Err(DirectoryError::Untrusted(path.into(), "is open to other users (its mode is not 0700)"));
    }
    Ok(())
}

fn directory_at(path: &Path) -> Result<Metadata, DirectoryError> {
    let metadata = path.symlink_metadata().map_err(|error| DirectoryError::System(path.into(), error))?;
    if metadata.is_dir() { Ok(metadata) } else { Err(DirectoryError::Untrusted(path.into(), "is no directory")) }
}

/// Listens in `directory` for the daemon of this process, which holds the volume with this `id`,
/// and removes the sockets of the volume that nobody listens at any more.
pub(crate) fn listen(directory: &Path, id: &[u8], kind: Kind) -> io::Result<(UnixListener, PathBuf)> {
    let volume = hex(id);
    let _locked = locked(directory, FlockOperation::LockExclusive)?;
    for socket in sockets_in(directory).unwrap_or_default() {
        if socket.volume == volume && is_stale(&socket.path) {
            let _ = std::fs::remove_file(&socket.path);
        }
    }
    let name = format!("{volume}-{}-{}{SUFFIX}", kind.name(), std::process::id());
    // It gets its name when it listens: before, it would be taken for a stale one.
    let (path, unnamed) = (directory.join(&name), directory.join(format!(".{name}")));
    let _ = std::fs::remove_file(&unnamed);
    let listener = UnixListener::bind(&unnamed)?;
    let named = std::fs::set_permissions(&unnamed, PermissionsExt::from_mode(0o600))
        .and_then(|()| std::fs::rename(&unnamed, &path));
    if let Err(error) = named {
        let _ = std::fs::remove_file(&unnamed);
        return Err(error);
    }
    Ok((listener, path))
}

fn is_stale(path: &Path) -> bool {
    // One whose queue is full has somebody who listens.
    matches!(connected(path, LOOK_MAX), Err(Unanswered::Gone))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::os::unix::fs::{FileTypeExt, chown};

    const ID: &[u8] = &[0xab; 16];

    #[test]
    fn a_directory_is_made_for_its_owner_alone_and_used_again() {
        let parent = tempfile::tempdir().expect("a directory");
        let made = made_in(parent.path()).expect("made");
        assert_eq!(made.metadata().expect("there").mode() & 0o7777, 0o700);
        assert_eq!(made_in(parent.path()).expect("there already"), made);
    }

    #[test]
    fn what_others_could_have_made_is_not_trusted() {
        let parent = tempfile::tempdir().expect("a directory");
        let (path, mode) = (parent.path().join("weft"), |mode| PermissionsExt::from_mode(mode));
        let refused = || matches!(made_in(parent.path()), Err(DirectoryError::Untrusted(..)));
        let elsewhere = tempfile::tempdir().expect("a directory");
        symlink(elsewhere.path(), &path).expect("a link");
        assert!(refused(), "a link");
        std::fs::remove_file(&path).expect("removed");
        std::fs::write(&path, "").expect("a file");
        assert!(refused(), "a file");
        std::fs::remove_file(&path).expect("removed");
        std::fs::create_dir(&path).expect("made");
        std::fs::set_permissions(&path, mode(0o755)).expect("opened");
        assert!(refused(), "open to others");
        std::fs::set_permissions(&path, mode(0o700)).expect("closed");
        assert!(!refused());
        if geteuid().is_root() {
            chown(&path, Some(65534), None).expect("given away");
            assert!(refused(), "another user's");
        }
        assert!(verify_parent(parent.path()).is_ok());
        std::fs::set_permissions(parent.path(), mode(0o777)).expect("opened");
        assert!(verify_parent(parent.path()).is_err());
    }

    #[test]
    fn a_stale_socket_of_the_volume_is_replaced_and_no_other() {
        let parent = tempfile::tempdir().expect("a directory");
        let directory = made_in(parent.path()).expect("made");
        let stale = |name: String| {
            drop(UnixListener::bind(directory.join(&name)).expect("bound"));
            directory.join(name)
        };
        let ours = stale(format!("{}-mount-1.socket", "ab".repeat(16)));
        let others = stale(format!("{}-mount-1.socket", "cd".repeat(16)));
        let name = format!("{}-server-2.socket", "ab".repeat(16));
        let _served = UnixListener::bind(directory.join(&name)).expect("bound");
        let (_listener, path) = listen(&directory, ID, Kind::Mount).expect("listening");
        assert!(!ours.exists() && others.exists() && directory.join(name).exists());
        let metadata = path.metadata().expect("there");
        assert!(metadata.file_type().is_socket() && metadata.mode() & 0o7777 == 0o600);
        let found = sockets_in(&directory).expect("listed");
        assert_eq!(found.len(), 3);
        let own = found.iter().find(|socket| socket.path == path).expect("listed");
        assert_eq!((own.kind, own.pid, &own.volume), (Kind::Mount, std::process::id(), &"ab".repeat(16)));
    }

    #[test]
    fn a_socket_is_removed_that_nobody_listens_at_and_no_other() {
        let parent = tempfile::tempdir().expect("a directory");
        let directory = made_in(parent.path()).expect("made");
        drop(UnixListener::bind(directory.join(format!("{}-mount-1.socket", "cd".repeat(16)))).expect("bound"));
        let (_listener, path) = listen(&directory, ID, Kind::Mount).expect("listening");
        let all = || sockets_in(&directory).expect("listed");
        assert_eq!(all().len(), 2);
        // As long as a daemon may be giving its socket that name.
        let naming = locked(&directory, FlockOperation::LockExclusive).expect("locked");
        all().iter().for_each(remove_stale);
        assert_eq!(all().len(), 2);
        drop(naming);
        all().iter().for_each(remove_stale);
        assert_eq!(all().iter().map(|socket| &socket.path).collect::<Vec<_>>(), [&path]);
    }

    #[test]
    fn names_that_are_no_sockets_are_passed_by() {
        for name in ["x", "ab-mount-1.socket", ".socket", "-mount-1.socket", "notes.txt"] {
            assert_eq!(Socket::at(name.into()), None, "{name}");
        }
        assert_eq!(Socket::at(format!("{}-other-1.socket", "ab".repeat(16)).into()), None);
    }
}
