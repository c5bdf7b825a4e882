//! The process that holds a volume, and the place where it has it mounted.
//!
//! The kernel alone is believed: its list of locks names the process, its list of mounts the place.
//! Others can write into that list: a user who may mount a FUSE file system chooses its source
//! freely. So a mount counts only if the user of the process mounted it, from the place where the
//! volume lies. Places are compared by the words of the lists, for looking at a path that another
//! user chose could wait for that user's file system.

use super::layout::Layout;
use crate::user::Rights;
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A process that holds a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its number.
    pub pid: u32,
    /// A directory where it has the volume mounted, if it has.
    pub mounted_at: Option<PathBuf>,
}

impl Holder {
    /// The holder of the volume of `layout`. None if there is none, or the kernel does not tell:
    /// the process is in another container, or the file system numbers its files in its own way.
    pub fn of(layout: &Layout) -> Option<Holder> {
        let _rights = layout.rights().ok()?;
        Holder::by(&layout.hold, layout).or_else(|| Holder::by(&layout.database, layout))
    }

    /// The same, by its lock of `file`.
    fn by(file: &Path, layout: &Layout) -> Option<Holder> {
        let place = place_of(file)?;
        let volume = layout.volume.canonicalize().ok()?;
        // Of processes root is told more than the owner of the volume, by whose rights files are
        // seen.
        Rights::roots(|| Holder::at(&place, &volume))
    }

    fn at(place: &str, volume: &Path) -> Option<Holder> {
        let pid = locker(place)?;
        let ours = mounts(&std::fs::read("/proc/self/mountinfo").ok()?);
        // Where that process sees nothing, or nobody sees what it sees.
        let theirs = std::fs::read(format!("/proc/{pid}/mountinfo")).map_or_else(|_| Vec::new(), |list| mounts(&list));
        Some(Holder { pid, mounted_at: users(pid).and_then(|users| mounted_at(&users, &theirs, &ours, volume)) })
    }
}

/// A volume that cannot be had, as it is held.
#[derive(Debug)]
pub struct InUse {
    volume: PathBuf,
    holder: Option<Holder>,
}

impl InUse {
    /// Describes the holder of the volume of `layout`, whose `file` is locked.
    pub(super) fn new(layout: &Layout, file: &Path) -> InUse {
        InUse { volume: layout.volume.clone(), holder: Holder::by(file, layout) }
    }

    /// The volume.
    pub fn volume(&self) -> &Path {
        &self.volume
    }

    /// The process that holds it, if that is known.
    pub fn pid(&self) -> Option<u32> {
        self.holder.as_ref().map(|holder| holder.pid)
    }
}

impl fmt::Display for InUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is in use by another process", self.volume.display())?;
        match &self.holder {
            None => f.write_str("; unmount it there first, or end what serves it"),
            Some(Holder { pid, mounted_at: None }) => {
                write!(
                    f,
                    " (number {pid}); wait for that process to end, or unmount the volume if a container has it mounted. 'kill {pid}' ends a daemon of Weft once it has committed all"
                )
            }
            Some(Holder { pid, mounted_at: Some(directory) }) => {
                let place = plain(directory);
                write!(
                    f,
                    " (number {pid}), which has it mounted at {place}; unmount it there first ('weft umount {place}')"
                )
            }
        }
    }
}

/// `path` without control characters: another user may have chosen it.
fn plain(path: &Path) -> String {
    path.to_string_lossy().chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// The place where `file` lies, as the list of locks names it (proc_locks(5)).
fn place_of(file: &Path) -> Option<String> {
    let is = file.metadata().ok()?;
    let (major, minor) = (rustix::fs::major(is.dev()), rustix::fs::minor(is.dev()));
    Some(format!("{major:02x}:{minor:02x}:{}", is.ino()))
}

/// The process that has locked what lies at `place`.
fn locker(place: &str) -> Option<u32> {
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| locker_in(line, place))
}

/// The process that has locked what lies at `place` whole, if a line tells of it. Those that wait
/// for the lock have an arrow in theirs.
fn locker_in(line: &str, place: &str) -> Option<u32> {
    let words: Vec<_> = line.split_whitespace().collect();
    match words[..] {
        [_, "FLOCK", _, _, pid, at, ..] if at == place => pid.parse().ok().filter(|pid| *pid != 0),
        _ => None,
    }
}

/// The numbers of the user of process `pid`: here, and in the user namespace of that process, by
/// which a mount in it is listed.
fn users(pid: u32) -> Option<[u32; 2]> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let user =
        status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().next()?.parse::<u32>().ok())?;
    let map = std::fs::read_to_string(format!("/proc/{pid}/uid_map")).unwrap_or_default();
    let inside = map.lines().find_map(|line| {
        let mut numbers = line.split_whitespace().map_while(|word| word.parse::<u32>().ok());
        let (inside, outside, count) = (numbers.next()?, numbers.next()?, numbers.next()?);
        let distance = user.checked_sub(outside).filter(|distance| *distance < count)?;
        inside.checked_add(distance)
    });
    Some([user, inside.unwrap_or(user)])
}

/// A line of a list of mounts (proc_pid_mountinfo(5)).
#[derive(Debug)]
struct Mount {
    device: Vec<u8>,
    /// The directory of the file system that is seen.
    root: PathBuf,
    /// The place where it is seen.
    directory: PathBuf,
    kind: Vec<u8>,
    source: PathBuf,
    options: Vec<u8>,
}

impl Mount {
    fn parse(line: &[u8]) -> Option<Mount> {
        let mut words = line.split(|byte| *byte == b' ');
        let (device, root, directory) = (words.nth(2)?.to_vec(), path(words.next()?), path(words.next()?));
        let mut after = words.skip_while(|word| *word != b"-").skip(1);
        let (kind, source, options) = (after.next()?.to_vec(), path(after.next()?), after.next()?.to_vec());
        Some(Mount { device, root, directory, kind, source, options })
    }

    /// True if it is a mount of a volume that one of `users` made.
    fn is_by(&self, users: &[u32]) -> bool {
        let options = String::from_utf8_lossy(&self.options);
        let user = options.split(',').find_map(|option| option.strip_prefix("user_id=")?.parse().ok());
        self.kind == b"fuse.weft" && user.is_some_and(|user| users.contains(&user))
    }
}

fn mounts(list: &[u8]) -> Vec<Mount> {
    list.split(|byte| *byte == b'\n').filter_map(Mount::parse).collect()
}

/// A path as a list of mounts writes it: some bytes as a backslash and three octal digits.
fn path(word: &[u8]) -> PathBuf {
    let (mut bytes, mut rest) = (Vec::with_capacity(word.len()), word);
    while let [first, after @ ..] = rest {
        match (first, after) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                bytes.push(((a - b'0') << 6) | ((b - b'0') << 3) | (c - b'0'));
                rest = after;
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

/// The file system that `path` lies in, by its device, and the place in it, whatever it is mounted
/// at.
fn place<'a>(mounts: &'a [Mount], path: &Path) -> Option<(&'a [u8], PathBuf)> {
    let on_the_way = mounts.iter().filter(|mount| path.starts_with(&mount.directory));
    // What was mounted last hides what was mounted before.
    let mount = on_the_way.enumerate().max_by_key(|(order, mount)| (mount.directory.as_os_str().len(), *order))?.1;
    Some((&mount.device, mount.root.join(path.strip_prefix(&mount.directory).ok()?)))
}

/// The directory where one of `users` has the volume mounted that lies at `volume` by the list
/// `ours`, and is mounted by the list `theirs`.
fn mounted_at(users: &[u32], theirs: &[Mount], ours: &[Mount], volume: &Path) -> Option<PathBuf> {
    let wanted = place(ours, volume)?;
    let mut found = theirs.iter().filter(|mount| mount.is_by(users));
    found.find(|mount| place(theirs, &mount.source).as_ref() == Some(&wanted)).map(|mount| mount.directory.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_found_by_where_its_file_lies() {
        let line = "12: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF";
        assert_eq!(locker_in(line, "fe:00:1234"), Some(4711));
        assert_eq!(locker_in(line, "fe:00:123"), None);
        assert_eq!(locker_in("12: -> FLOCK  ADVISORY  WRITE 4712 fe:00:1234 0 EOF", "fe:00:1234"), None);
        assert_eq!(locker_in("13: POSIX  ADVISORY  WRITE 4711 fe:00:1234 0 EOF", "fe:00:1234"), None);
        assert_eq!(locker_in("14: FLOCK  ADVISORY  WRITE 0 fe:00:1234 0 EOF", "fe:00:1234"), None);
    }

    #[test]
    fn this_process_holds_what_it_has_locked() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        assert_eq!(place_of(file.path()).and_then(|place| locker(&place)), None);
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).expect("locked");
        assert_eq!(place_of(file.path()).and_then(|place| locker(&place)), Some(std::process::id()));
        assert!(users(std::process::id()).expect("has one")[0] == rustix::process::getuid().as_raw());
    }

    #[test]
    fn a_mount_counts_only_if_the_user_of_the_holder_made_it_from_that_volume() {
        let base = "1 0 8:1 / / rw - ext4 /dev/sda rw\n2 1 8:1 /srv/real /srv/alias rw shared:1 - ext4 /dev/sda rw\n";
        let line = |at: &str, source: &str, user: u32| {
            format!("9 1 0:49 / {at} rw,nosuid shared:7 - fuse.weft {source} rw,user_id={user},group_id=0\n")
        };
        let found = |lines: &str, volume: &str| {
            let list = mounts(format!("{base}{lines}").as_bytes());
            mounted_at(&[7], &list, &list, Path::new(volume))
        };
        let (real, alias) = (line("/mnt/a\\040b", "/srv/real/v\\134y", 7), line("/mnt/c", "/srv/alias/v\\134y", 7));
        for volume in ["/srv/real/v\\y", "/srv/alias/v\\y"] {
            assert_eq!(found(&real, volume).as_deref(), Some(Path::new("/mnt/a b")));
            assert_eq!(found(&alias, volume).as_deref(), Some(Path::new("/mnt/c")));
        }
        assert_eq!(found(&real, "/srv/real/v"), None);
        assert_eq!(found(&line("/tmp/planted", "/srv/real/v", 8), "/srv/real/v"), None);
        assert_eq!(found("9 1 0:49 / /mnt rw - fuse.other /srv/v rw,user_id=7\nnonsense\n", "/srv/v"), None);
    }

    #[test]
    fn what_another_user_chose_is_shown_without_control_characters() {
        assert_eq!(plain(Path::new("/a\n\x1b[2Jb")), "/a\u{fffd}\u{fffd}[2Jb");
    }
}
