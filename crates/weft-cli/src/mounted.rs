//! Mounts of volumes (proc_pid_mountinfo(5)).

mod own_path;

use crate::command::asking::asking;
use crate::command::stats;
use crate::owner::Owner;
use crate::shown;
use anyhow::{Context, Result, bail};
use own_path::{ForeignLink, Last};
use rustix::fd::{AsFd, AsRawFd};
use std::ffi::OsString;
use std::io::ErrorKind::{NotADirectory, NotFound};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};
use weft_nfs::export::unescape;
use weft_store::Location;
use weft_store::sqlite::{Holder, Layout};
use weft_vfs::Ino;

/// A mount of a volume.
struct Mount {
    id: u64,
    device: u64,
    directory: PathBuf,
    volume: PathBuf,
    /// Directory of the volume that is seen there.
    root: PathBuf,
    /// The user and the group that mounted it.
    owner: (u32, u32),
}

/// A path in a mounted volume.
pub struct InMount {
    /// The path from the root of the volume.
    pub path: Vec<u8>,
    /// The device of the mount.
    pub device: u64,
}

impl InMount {
    /// Finds what `named` names, there or not. None if no volume is mounted on the way to it.
    pub fn find(named: &Path) -> Result<Option<InMount>> {
        InMount::of(&resolved(named)?)
    }

    /// Finds the same for a change that nobody may lead elsewhere. Refuses a path that leads over a
    /// symbolic link that another user made, who is not the super-user.
    pub fn find_to_change(named: &Path) -> Result<Option<InMount>> {
        InMount::of(&own_path::resolved(named, Last::Stays)?)
    }

    fn of(resolved: &Path) -> Result<Option<InMount>> {
        let Some((path, device)) = in_volume(resolved) else { return Ok(None) };
        refuse_path_into_past(resolved, device)?;
        Ok(Some(InMount { path: path.into_os_string().into_encoded_bytes(), device }))
    }

    /// Returns the mount point of the root of the volume.
    pub fn root(&self) -> Result<PathBuf> {
        root_of(self.device).context("the mount shows a part of its volume; name VOLUME:PATH")
    }
}

/// Returns `path` from the root of the system, without symbolic links or `..` as far as it exists.
fn resolved(path: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(path)?;
    let Some(Component::Normal(_)) = absolute.components().next_back() else { return Ok(absolute.canonicalize()?) };
    let mut missing = Vec::<OsString>::new();
    let mut at = absolute.as_path();
    while let (Some(name), Some(parent)) = (at.file_name(), at.parent()) {
        missing.push(name.to_owned());
        match parent.canonicalize() {
            Ok(parent) => return Ok(missing.iter().rev().fold(parent, |path, name| path.join(name))),
            Err(error) if matches!(error.kind(), NotFound | NotADirectory) => at = parent,
            Err(error) => return Err(error).with_context(|| format!("cannot look at {}", shown::path(parent))),
        }
    }
    bail!("{} leads through '..' of a directory that is not there", shown::path(path))
}

/// Refuses `named`, where it is a path to a directory over a symbolic link of another user's, who
/// is not the super-user: that could lead elsewhere at any time.
pub fn refuse_foreign_link(named: &Path) -> Result<()> {
    match own_path::resolved(named, Last::Followed) {
        Err(error) if error.is::<ForeignLink>() => Err(error),
        _ => Ok(()),
    }
}

/// Finds the place of `path`, which is absolute and has neither symbolic links nor `..`, in the
/// volume mounted on the way to it. Also returns the device of the mount.
pub fn in_volume(path: &Path) -> Option<(PathBuf, u64)> {
    let on_the_way = mounts().into_iter().filter(|mount| path.starts_with(&mount.directory));
    // The last mount hides earlier ones.
    let mount = on_the_way.enumerate().max_by_key(|(order, mount)| (mount.directory.as_os_str().len(), *order))?.1;
    let below = path.strip_prefix(&mount.directory).ok()?;
    Some((mount.root.join(below), mount.device))
}

/// Returns the mount point of the root of the volume that is mounted as `device`.
pub fn root_of(device: u64) -> Option<PathBuf> {
    let is_it = |mount: &Mount| mount.device == device && mount.root == Path::new("/");
    mounts().into_iter().rfind(is_it).map(|mount| mount.directory)
}

/// Returns the volumes that this user has mounted, and where.
pub fn of_this_user() -> Vec<(PathBuf, PathBuf)> {
    let user = rustix::process::geteuid().as_raw();
    let own = mounts().into_iter().filter(|mount| mount.owner.0 == user);
    own.map(|mount| (mount.volume, mount.directory)).collect()
}

/// Returns the directory where another user has mounted the volume that `file` belongs to, and that
/// user.
pub fn of_another_user(file: &Path) -> Option<(PathBuf, u32)> {
    let (file, user) = (std::path::absolute(file).ok()?, rustix::process::geteuid().as_raw());
    let is_it = |mount: &Mount| file.starts_with(&mount.volume) && mount.owner.0 != user;
    mounts().into_iter().rfind(is_it).map(|mount| (mount.directory, mount.owner.0))
}

/// Returns the volume that this user's process `pid` has mounted, and where, as far as the kernel
/// tells.
pub fn by_process(pid: u32) -> Option<(PathBuf, PathBuf)> {
    let holder = |volume: &Path| Layout::find(volume).ok().as_ref().and_then(Holder::of);
    of_this_user().into_iter().find(|(volume, _)| holder(volume).is_some_and(|holder| holder.pid == pid))
}

/// Returns the devices of all mounts of volumes.
pub fn devices() -> Vec<u64> {
    mounts().into_iter().map(|mount| mount.device).collect()
}

/// Returns the volume that is mounted at `path`, or else `path`.
pub fn volume_at(path: &Path) -> PathBuf {
    let wanted = path.canonicalize().unwrap_or_else(|_| path.into());
    let found = mounts().into_iter().rfind(|mount| mount.directory == wanted);
    found.map_or_else(|| path.into(), |mount| mount.volume)
}

/// Returns the volume whose mount point `directory` was opened as `place`, and the user who mounted
/// it.
pub fn volume_of(place: impl AsFd, directory: &Path) -> Option<(PathBuf, u32)> {
    let told = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", place.as_fd().as_raw_fd())).ok()?;
    let id = told.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse::<u64>().ok())?;
    let found = mounts().into_iter().find(|mount| mount.id == id && mount.directory == directory)?;
    Some((found.volume, found.owner.0))
}

/// Returns the volume that `named` names, for commands that need it unmounted.
pub fn unmounted(named: &Path) -> Result<Location> {
    let volume = volume_at(named);
    if volume != named {
        let (volume, place) = (volume.display(), shown::word(named.as_os_str()));
        bail!("{volume} is mounted at {place}; unmount it first ('weft umount {place}'), and name the volume itself");
    }
    refuse_below_mount(named)?;
    Ok(Location::parse(named)?)
}

/// Returns the volume that `named` names: itself, or its mount point. Refuses where its past is
/// mounted, which says nothing of the present.
pub fn volume_named(named: &Path) -> Result<Location> {
    Ok(Location::parse(&present_volume(named)?)?)
}

/// The same as a path.
pub fn present_volume(named: &Path) -> Result<PathBuf> {
    refuse_below_mount(named)?;
    let volume = volume_at(named);
    if volume != named {
        // Of a volume itself, whoever opens it sees to that.
        refuse_foreign_link(named)?;
    }
    if volume != named
        && let Some(commit) = commit_shown(named)
    {
        let (place, volume) = (shown::path(named), shown::path(&volume));
        bail!("{place} shows volume {volume} as of commit {commit}, in the past; name the volume itself");
    }
    if volume != named && Location::parse(&volume).is_ok_and(|at| at.path().is_some_and(|path| !path.exists())) {
        let (place, volume) = (shown::path(named), shown::path(&volume));
        bail!("volume {volume}, which is mounted at {place}, is not there any more: move it back where it was");
    }
    Ok(volume)
}

/// Returns the commit of the past that the mount at `directory` shows, if it shows one and answers.
fn commit_shown(directory: &Path) -> Option<u64> {
    let asked = asking(Owner::of(directory), || stats::read(directory)).ok()?;
    asked.ok()?["as_of_commit"].as_u64()
}

/// Refuses a path that leads from a mounted volume into its past by the path itself.
fn refuse_path_into_past(path: &Path, device: u64) -> Result<()> {
    let there = path.ancestors().find_map(|above| rustix::fs::lstat(above).ok());
    if there.is_some_and(|there| there.st_dev == device && weft_vfs::is_past(Ino(there.st_ino))) {
        bail!(
            "{} leads into the past; name the path in the present, and the moment with --at where the command takes that",
            shown::path(path)
        );
    }
    Ok(())
}

/// Refuses a path in a mounted volume that is neither its mount point nor another volume.
fn refuse_below_mount(named: &Path) -> Result<()> {
    match root_over(named).filter(|_| !is_mount_point(named) && !weft_store::sqlite::is_volume(named)) {
        Some(root) => bail!("{}", within(named, &root)),
        None => Ok(()),
    }
}

/// Refuses a path that is not there, and would be a part of a mounted volume.
pub fn refuse_missing_in_mount(named: &Path) -> Result<()> {
    if named.symlink_metadata().is_ok() {
        return Ok(());
    }
    let named = std::path::absolute(named)?;
    match named.ancestors().find(|above| above.exists()).and_then(root_over) {
        Some(root) => bail!("{}", within(&named, &root)),
        None => Ok(()),
    }
}

/// Says that `named` lies in the volume that is mounted at `root`.
fn within(named: &Path, root: &Path) -> String {
    let (named, root) = (shown::path(named), shown::word(root.as_os_str()));
    format!(
        "{named} is a part of the volume that is mounted at {root}; name that, or {root}:PATH where a path is taken"
    )
}

/// Returns the mount point of the volume that `path` is a part of, if it is one of a mounted one.
pub fn root_over(path: &Path) -> Option<PathBuf> {
    let device = rustix::fs::stat(path).ok()?.st_dev;
    if devices().contains(&device) { root_of(device) } else { None }
}

/// Returns the refusal of `named`, where no volume is mounted; says where it is mounted or served,
/// if it is a volume.
pub fn no_mount(named: &Path) -> String {
    let volume = named.canonicalize().unwrap_or_else(|_| named.into());
    // Its past may be mounted, too.
    let places = mounts().into_iter().filter(|mount| mount.volume == volume);
    let places = places.map(|mount| shown::word(mount.directory.as_os_str())).collect::<Vec<_>>();
    if let Some(root) = root_over(named).filter(|_| places.is_empty()) {
        return within(named, &root);
    }
    let place = Some(places.join(" and at ")).filter(|places| !places.is_empty());
    let place = place.map(|places| format!("; that volume is mounted at {places}"));
    let place = place.or_else(|| crate::daemons::serving(named).map(|served| format!("; that volume is {served}")));
    let what = match place.is_none() && weft_store::sqlite::is_volume(named) {
        true => "is a volume that is not mounted, and that no daemon of this user serves",
        false => "is not the mount point of a Weft volume",
    };
    format!("{} {what}{}", shown::path(named), place.unwrap_or_default())
}

/// Says of the dead mount at `directory` that `daemon` has ended, and how the volume is had again.
pub fn dead(daemon: &str, directory: &Path) -> String {
    let at = std::path::absolute(directory).unwrap_or_else(|_| directory.into());
    // A daemon of a volume in files waits for no other one.
    let waits = match Location::parse(&volume_at(&at)).is_ok_and(|location| location.path().is_some()) {
        true => "",
        false => ", or waits for the volume, which another one took",
    };
    let place = shown::word(directory.as_os_str());
    format!("{daemon} has ended{waits}; unmount it ('weft umount {place}'), then mount it again")
}

/// The same of the daemon of that mount.
pub fn dead_at(directory: &Path) -> String {
    dead(&format!("the daemon of {}", shown::path(directory)), directory)
}

/// Returns the directory where the volume at `location` is mounted, as far as no other user than
/// root could make that up.
pub fn directory_of(location: &Location) -> Option<PathBuf> {
    if let Some(path) = location.path() {
        return Holder::of(&Layout::find(path).ok()?)?.mounted_at;
    }
    let source = PathBuf::from(location.to_string());
    let user = rustix::process::geteuid().as_raw();
    let is_it = |mount: &Mount| mount.volume == source && (mount.owner.0 == 0 || mount.owner.0 == user);
    mounts().into_iter().rfind(is_it).map(|mount| mount.directory)
}

/// True if a volume is mounted at `path`.
pub fn is_mount_point(path: &Path) -> bool {
    volume_at(path) != path
}

/// Returns the topmost mount of a volume at `directory`: its device, and the numbers of the user
/// and the group that mounted it.
pub fn mount_at(directory: &Path) -> Option<(u64, (u32, u32))> {
    let found = mounts().into_iter().rfind(|mount| mount.directory == directory);
    found.map(|mount| (mount.device, mount.owner))
}

/// Returns a mount point of a part of `volume`, mounted as `device`. Once that is unmounted,
/// another volume may get its number.
pub fn place_of(device: u64, volume: &Path) -> Option<PathBuf> {
    place_among(mounts(), device, volume)
}

fn place_among(mounts: Vec<Mount>, device: u64, volume: &Path) -> Option<PathBuf> {
    let is_meant = |mount: &Mount| mount.device == device && mount.volume == volume;
    mounts.into_iter().rfind(is_meant).map(|mount| mount.directory)
}

/// Returns a directory below `directory` where a file system of any kind is mounted.
pub fn mounted_below(directory: &Path) -> Option<PathBuf> {
    let directory = directory.canonicalize().ok()?;
    let mounts = std::fs::read("/proc/self/mountinfo").ok()?;
    let mut all =
        mounts.split(|byte| *byte == b'\n').filter_map(|line| Some(path(line.split(|byte| *byte == b' ').nth(4)?)));
    all.find(|mount| mount.starts_with(&directory) && *mount != directory)
}

fn mounts() -> Vec<Mount> {
    seen_in("/proc/self/mountinfo")
}

fn seen_in(list: &str) -> Vec<Mount> {
    // A confined daemon hides its own list from processes with fewer privileges; nearly always it
    // sees the same.
    let mounts = std::fs::read(list).or_else(|_| std::fs::read("/proc/self/mountinfo")).unwrap_or_default();
    mounts.split(|byte| *byte == b'\n').filter_map(mount).collect()
}

fn mount(line: &[u8]) -> Option<Mount> {
    let mut words = line.split(|byte| *byte == b' ');
    let id = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
    let device = std::str::from_utf8(words.nth(1)?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let device = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
    let (root, directory) = (path(words.next()?), path(words.next()?));
    let mut after = words.skip_while(|word| *word != b"-").skip(1);
    if after.next()? != b"fuse.weft" {
        return None;
    }
    let volume = path(after.next()?);
    let options = String::from_utf8_lossy(after.next()?);
    let number = |name| options.split(',').find_map(|option| option.strip_prefix(name)?.parse().ok());
    let owner = (number("user_id=")?, number("group_id=")?);
    Some(Mount { id, device, directory, volume, root, owner })
}

/// Decodes a path of mountinfo.
fn path(word: &[u8]) -> PathBuf {
    OsString::from_vec(unescape(word)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_the_device_the_directory_and_the_volume() {
        let line = b"36 35 0:49 / /mnt/a\\040b rw,nosuid shared:1 master:2 - fuse.weft /srv/x\\134y.weft rw,user_id=1000,group_id=7,allow_other";
        let mount = mount(line).expect("one of a volume");
        assert_eq!(mount.id, 36);
        assert_eq!(mount.device, rustix::fs::makedev(0, 49));
        assert_eq!(mount.directory, Path::new("/mnt/a b"));
        assert_eq!((&*mount.volume, &*mount.root), (Path::new("/srv/x\\y.weft"), Path::new("/")));
        assert_eq!(mount.owner, (1000, 7));
        assert!(super::mount(b"36 35 0:49 / /mnt rw - ext4 /dev/sda rw").is_none());
        assert!(super::mount(b"").is_none());
    }

    /// An unmount that looked by the number alone found another volume, and did not wait.
    #[test]
    fn the_number_of_a_device_that_another_volume_got_leads_nowhere() {
        let line = b"36 35 0:49 / /mnt/b rw - fuse.weft /srv/b.weft rw,user_id=0,group_id=0";
        let device = rustix::fs::makedev(0, 49);
        let place = |volume: &str| place_among(mount(line).into_iter().collect(), device, Path::new(volume));
        assert_eq!(place("/srv/a.weft"), None);
        assert_eq!(place("/srv/b.weft").as_deref(), Some(Path::new("/mnt/b")));
    }
}
