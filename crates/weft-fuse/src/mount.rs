//! Asks the kernel for a mount point: by mount(2) as root, by `fusermount3` otherwise.

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use std::ffi::{CString, OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, IoSliceMut};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use weft_store::{PathWalk, parent_of};
use weft_vfs::AtimePolicy;

/// Options of a mount point.
#[derive(Clone, Debug, Default)]
pub struct MountOptions {
    /// Source that `mount` and `df` show; `weft` if empty.
    pub source: OsString,
    /// True if other users may use it; always so when root mounts.
    pub allow_other: bool,
    /// True if the kernel refuses changes.
    pub read_only: bool,
    /// True if set-user-id and set-group-id programs on it get other rights; only root may ask for
    /// it.
    pub suid: bool,
    /// True if device nodes on it work; only root may ask for it.
    pub devices: bool,
    /// True if programs on it may not run.
    pub no_exec: bool,
    /// Policy for access times, as the list of mounts shows it. The policy of the volume itself is
    /// given where the volume is opened.
    pub access_times: AtimePolicy,
}

impl MountOptions {
    /// Returns the source; the kernel takes no empty one.
    fn source(&self) -> &OsStr {
        if self.source.is_empty() { OsStr::new("weft") } else { &self.source }
    }

    /// True if other users than the one who mounts may use it.
    pub fn is_shared(&self) -> bool {
        self.allow_other || rustix::process::geteuid().is_root()
    }

    /// Returns the flags for mount(2).
    fn flags(&self) -> libc::c_ulong {
        let flags = [
            (self.read_only, libc::MS_RDONLY),
            (!self.suid, libc::MS_NOSUID),
            (!self.devices, libc::MS_NODEV),
            (self.no_exec, libc::MS_NOEXEC),
            // Without either, a mount gets MS_RELATIME, and a remount leaves what there is.
            (self.access_times == AtimePolicy::Never, libc::MS_NOATIME),
            (self.access_times == AtimePolicy::Always, libc::MS_STRICTATIME),
        ];
        flags.iter().filter(|(set, _)| *set).fold(0, |all, (_, flag)| all | flag)
    }

    /// Returns the options, as far as a remount can change them, of the file system mounted where
    /// `place`, called `directory`, was opened.
    pub fn of(place: impl AsFd, directory: &Path) -> Result<MountOptions, MountError> {
        use rustix::fs::StatVfsMountFlags as Flags;
        let stat = rustix::fs::fstatvfs(place).map_err(|error| MountError::no_directory(directory, error.into()))?;
        let has = |flag| stat.f_flag.contains(flag);
        Ok(MountOptions {
            read_only: has(Flags::RDONLY),
            suid: !has(Flags::NOSUID),
            devices: !has(Flags::NODEV),
            no_exec: has(Flags::NOEXEC),
            access_times: match (has(Flags::NOATIME), has(Flags::RELATIME)) {
                (true, _) => AtimePolicy::Never,
                (false, true) => AtimePolicy::Relative,
                (false, false) => AtimePolicy::Always,
            },
            ..MountOptions::default()
        })
    }
}

/// Reason that a mount or unmount failed, in one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The directory is not there or not a directory.
    #[error("cannot mount at {}: {source}; {}", path.display(), advice(source))]
    Directory {
        /// The mount point.
        path: PathBuf,
        /// Cause.
        source: Error,
    },
    /// Something is mounted there.
    #[error("{} is already a mount point; unmount it first ('weft umount {}')", .0.display(), .0.display())]
    InUse(PathBuf),
    /// The file system mounted there has lost its daemon.
    #[error("{} is a mount point whose daemon has ended; unmount it first ('weft umount {}')", .0.display(), .0.display())]
    Dead(PathBuf),
    /// An ordinary user may not write to the directory.
    #[error("no permission to mount at {}: you must be able to write to it; use a directory of your own", .0.display())]
    NotYours(PathBuf),
    /// `/dev/fuse` cannot be opened.
    #[error("cannot open /dev/fuse: {0}; load the kernel's fuse module, or ask for access to it")]
    Device(Error),
    /// Processors cannot be kept awake.
    #[error("cannot keep processors awake: /dev/cpu_dma_latency: {0}; mount as root, or without keep-awake")]
    Awake(Error),
    /// `fusermount3` is needed and not installed.
    #[error("mounting as an ordinary user needs fusermount3; install the fuse3 package, or mount as root")]
    NoHelper,
    /// `fusermount3` refused.
    #[error("fusermount3 refused: {0}")]
    Helper(String),
    /// The kernel refused.
    #[error("cannot {what} {}: {source}", path.display())]
    Refused {
        /// Mount at or unmount.
        what: &'static str,
        /// The mount point.
        path: PathBuf,
        /// Cause.
        source: Error,
    },
}

/// Advice about a mount point that is no directory.
fn advice(error: &Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::NotADirectory => "name a directory",
        _ => "make the directory first",
    }
}

impl MountError {
    pub(crate) fn no_directory(path: &Path, source: Error) -> MountError {
        MountError::Directory { path: path.into(), source }
    }
}

/// Checks that a file system can be mounted at `directory`, as far as possible without trying.
/// Returns its absolute path without links.
pub fn check_mount_point(directory: &Path) -> Result<PathBuf, MountError> {
    let refused = |source: Error| match source.raw_os_error() {
        Some(libc::ENOTCONN | libc::ECONNABORTED) => MountError::Dead(directory.into()),
        // The file system mounted there may not even report its root.
        Some(libc::EIO) if is_mount_point(directory) => MountError::InUse(directory.into()),
        _ if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            MountError::no_directory(directory, source)
        }
        _ => MountError::Refused { what: "mount at", path: directory.into(), source },
    };
    let way = PathWalk::to(directory).map_err(refused)?;
    let owner = way.directory_owner().map_err(refused)?;
    way.refuse_links_of_others(owner, directory).map_err(|error| refused(Error::other(error)))?;
    let absolute = way.path;
    if !absolute.metadata().map_err(refused)?.is_dir() {
        return Err(refused(Error::from(ErrorKind::NotADirectory)));
    }
    if is_mount_point(&absolute) {
        return Err(MountError::InUse(absolute));
    }
    // fusermount3 asks for this too, but after the volume was opened.
    if !rustix::process::geteuid().is_root() && rustix::fs::access(&absolute, rustix::fs::Access::WRITE_OK).is_err() {
        return Err(MountError::NotYours(absolute));
    }
    Ok(absolute)
}

/// Kind of a file system that is mounted, as the list of mounts shows it behind `fuse.`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subtype {
    /// A volume.
    Weft,
    /// One that stores nothing.
    Nothing,
}

impl Subtype {
    fn name(self) -> &'static str {
        match self {
            Subtype::Weft => "weft",
            Subtype::Nothing => "nothing",
        }
    }
}

/// Mounts at `directory`, which [`check_mount_point`] gave; gives the device to serve.
pub(crate) fn mount(directory: &Path, subtype: Subtype, options: &MountOptions) -> Result<File, MountError> {
    if rustix::process::geteuid().is_root() {
        mount_directly(directory, subtype, options)
    } else {
        mount_by_helper(directory, subtype, options)
    }
}

/// True if a file system is mounted exactly at `directory`.
pub(crate) fn is_mount_point(directory: &Path) -> bool {
    device_at(directory).is_some()
}

/// Returns the device, as `MAJOR:MINOR`, of the topmost file system mounted exactly at `directory`
/// (proc_pid_mountinfo(5)).
fn device_at(directory: &Path) -> Option<String> {
    let mounts = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let wanted = escape(directory);
    let at = |line: &[u8]| {
        let mut words = line.split(|byte| *byte == b' ').skip(2);
        let device = words.next()?;
        (words.nth(1)? == wanted).then(|| String::from_utf8_lossy(device).into_owned())
    };
    mounts.split(|byte| *byte == b'\n').filter_map(at).next_back()
}

/// KiB that the kernel reads ahead of a program. With the kernel's default of 128 for file systems
/// like this one, daemon and program wait for each other.
const READ_AHEAD_KIB: u32 = 1024;

/// Makes the kernel read further ahead at `directory`, if this process may set that.
pub(crate) fn read_further_ahead(directory: &Path) {
    if let Some(device) = device_at(directory) {
        // Only speed depends on it.
        let _ = std::fs::write(format!("/sys/class/bdi/{device}/read_ahead_kb"), READ_AHEAD_KIB.to_string());
    }
}

/// Returns a path as `mountinfo` writes it.
fn escape(path: &Path) -> Vec<u8> {
    let mut escaped = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => escaped.extend_from_slice(format!("\\{byte:03o}").as_bytes()),
            byte => escaped.push(*byte),
        }
    }
    escaped
}

fn mount_directly(directory: &Path, subtype: Subtype, options: &MountOptions) -> Result<File, MountError> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse").map_err(MountError::Device)?;
    let data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions,allow_other,max_read={}",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
        crate::protocol::DATA_BYTES_MAX,
    );
    let refused = |source| MountError::Refused { what: "mount at", path: directory.into(), source };
    let place = place(directory).map_err(refused)?;
    let text = |bytes: &[u8]| CString::new(bytes).map_err(|_| refused(Error::from(ErrorKind::InvalidInput)));
    let (source, target) = (text(options.source().as_bytes())?, text(proc_path(&place).as_bytes())?);
    let (kind, data) = (text(format!("fuse.{}", subtype.name()).as_bytes())?, text(data.as_bytes())?);
    // SAFETY: all pointers are to NUL-terminated strings that outlive the call.
    let result =
        unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), options.flags(), data.as_ptr().cast()) };
    if result == 0 { Ok(device) } else { Err(refused(Error::last_os_error())) }
}

/// Opens `directory`, which has no symbolic links in it. A user who may write to a directory on the
/// way cannot replace it before the mount.
fn place(directory: &Path) -> Result<OwnedFd, Error> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let place = rustix::fs::open(directory, flags, Mode::empty())?;
    if std::fs::read_link(proc_path(&place))? != directory {
        return Err(Error::other("somebody replaced it, or a directory on the way, by a symbolic link"));
    }
    Ok(place)
}

/// Returns the path of an open file (proc_pid_fd(5)).
fn proc_path(open: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", open.as_raw_fd())
}

fn mount_by_helper(directory: &Path, subtype: Subtype, options: &MountOptions) -> Result<File, MountError> {
    let refused = |source| MountError::Refused { what: "mount at", path: directory.into(), source };
    let (ours, theirs) = UnixStream::pair().map_err(refused)?;
    rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty()).map_err(|error| refused(error.into()))?;
    let mut list = OsString::from("fsname=");
    for byte in options.source().as_bytes() {
        if matches!(byte, b'\\' | b',') {
            list.push("\\");
        }
        list.push(OsStr::from_bytes(&[*byte]));
    }
    let (kind, bytes_max) = (subtype.name(), crate::protocol::DATA_BYTES_MAX);
    list.push(format!(",subtype={kind},default_permissions,max_read={bytes_max}"));
    for (set, option) in [
        (options.allow_other, ",allow_other"),
        (options.read_only, ",ro"),
        (options.no_exec, ",noexec"),
        // The helper knows no word for strict ones.
        (options.access_times == AtimePolicy::Never, ",noatime"),
    ] {
        if set {
            list.push(option);
        }
    }
    let mut command = Command::new("fusermount3");
    command.arg("-o").arg(list).arg("--").arg(directory);
    command.env("_FUSE_COMMFD", theirs.as_fd().as_raw_fd().to_string());
    let output = command.stdin(Stdio::null()).stdout(Stdio::null()).output().map_err(|_| MountError::NoHelper)?;
    drop(theirs);
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        return Err(MountError::Helper(message.trim().trim_start_matches("fusermount3: ").to_owned()));
    }
    receive(&ours).map_err(refused)
}

/// Receives the descriptor that `fusermount3` sends.
fn receive(socket: &UnixStream) -> Result<File, Error> {
    let mut byte = [0];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut data = [IoSliceMut::new(&mut byte)];
    rustix::net::recvmsg(socket, &mut data, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let descriptors = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    descriptors.map(|fd: OwnedFd| File::from(fd)).ok_or_else(|| Error::other("fusermount3 sent no descriptor"))
}

/// Changes the options of the file system mounted where `place`, called `directory`, was opened.
/// Only root may.
pub fn remount((place, directory): (BorrowedFd<'_>, &Path), options: &MountOptions) -> Result<(), MountError> {
    let refused = |source| MountError::Refused { what: "remount", path: directory.into(), source };
    let target = CString::new(proc_path(&place)).map_err(|_| refused(ErrorKind::InvalidInput.into()))?;
    let flags = libc::MS_REMOUNT | options.flags();
    let none = std::ptr::null();
    // SAFETY: the path ends with a NUL; a file system of this kind takes nothing more.
    let result = unsafe { libc::mount(none, target.as_ptr(), none, flags, none.cast()) };
    if result == 0 { Ok(()) } else { Err(refused(Error::last_os_error())) }
}

/// Unmounts `directory`; if `lazily`, as soon as nothing uses it any more.
pub fn unmount(directory: &Path, lazily: bool) -> Result<(), MountError> {
    let refused = |source| MountError::Refused { what: "unmount", path: directory.into(), source };
    if rustix::process::geteuid().is_root() {
        use rustix::mount::UnmountFlags;
        let flags = if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
        let name = directory.file_name().ok_or_else(|| refused(ErrorKind::InvalidFilename.into()))?;
        // A user who may write to a directory on the way could have put a link to another mount
        // there.
        let way = PathWalk::to(parent_of(directory)).map_err(refused)?;
        way.refuse_links_of_others(0, directory).map_err(|error| refused(Error::other(error)))?;
        return rustix::mount::unmount(
            Path::new(&proc_path(&way.directory())).join(name),
            flags | UnmountFlags::NOFOLLOW,
        )
        .map_err(|error| refused(error.into()));
    }
    let mut command = Command::new("fusermount3");
    command.arg(if lazily { "-uz" } else { "-u" }).arg("--").arg(directory);
    let output = command.stdin(Stdio::null()).output().map_err(|_| MountError::NoHelper)?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    // It looks for mounts of this user alone.
    if message.contains("mtab") && is_mount_point(directory) {
        return Err(MountError::Helper("another user mounted it; that user can unmount it, or root".into()));
    }
    Err(MountError::Helper(message.trim().trim_start_matches("fusermount3: ").to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_mounted_behind_a_link_that_came_after_the_check() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("own/m")).unwrap();
        std::fs::create_dir_all(root.join("other/m")).unwrap();
        let checked = check_mount_point(&root.join("own/m")).unwrap();
        assert!(place(&checked).is_ok());
        // The directory itself, then one on the way.
        std::fs::rename(root.join("own/m"), root.join("own/old")).unwrap();
        std::os::unix::fs::symlink(root.join("other/m"), &checked).unwrap();
        assert!(place(&checked).is_err());
        std::fs::rename(root.join("own"), root.join("gone")).unwrap();
        std::os::unix::fs::symlink(root.join("other"), root.join("own")).unwrap();
        assert!(place(&checked).unwrap_err().to_string().contains("replaced it"));
    }

    #[test]
    fn a_remount_concerns_what_was_looked_at_whatever_comes_in_its_place() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("SKIPPED a_remount_concerns_what_was_looked_at: needs root");
        }
        use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
        let directory = tempfile::tempdir().unwrap();
        let at = |path: &str| directory.path().join(path);
        for path in ["own/m", "others/m"] {
            std::fs::create_dir_all(at(path)).unwrap();
            mount("none", at(path), "tmpfs", MountFlags::empty(), c"size=64k").unwrap();
        }
        let way = PathWalk::to(&at("own/m")).unwrap();
        std::fs::rename(at("own"), at("gone")).unwrap();
        std::os::unix::fs::symlink(at("others"), at("own")).unwrap();
        let looked = MountOptions::of(way.directory(), &at("own/m"));
        let options = MountOptions { read_only: true, ..MountOptions::default() };
        let done = remount((way.directory(), &at("own/m")), &options);
        let written = ["gone/m/file", "others/m/file"].map(|path| std::fs::write(at(path), "").is_ok());
        drop(way);
        ["gone/m", "others/m"].iter().for_each(|path| unmount(at(path), UnmountFlags::DETACH).unwrap());
        assert!(!looked.unwrap().read_only);
        done.unwrap();
        assert_eq!(written, [false, true]);
    }
}
