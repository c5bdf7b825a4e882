//! A place in a volume, mounted or not, where something is or was.

use super::unasked;
use crate::daemons::{self, Running};
use crate::named::in_volume;
use crate::{mounted, shown};
use anyhow::{Context, Result, bail};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use weft_store::Location;

/// A place in a volume.
pub struct Place {
    pub way: Way,
    /// The path from the root of the volume.
    pub path: Vec<u8>,
    /// The device of the mount, if a path in that was named.
    device: Option<u64>,
}

/// The way to a volume.
pub enum Way {
    /// By the daemon that uses it, and where it is mounted.
    Daemon(Box<Running>, Option<PathBuf>),
    /// By opening it.
    Alone(PathBuf),
}

impl Place {
    /// Finds what `named` names: `VOLUME:PATH`, or a path in a mounted volume.
    pub fn find(named: &OsStr) -> Result<Place> {
        if let Some((volume, path)) = volume_and_path(named) {
            return Place::of_volume(volume, path.as_bytes().to_vec());
        }
        let absolute = resolved(Path::new(named))?;
        let Some((path, device)) = mounted::in_volume(&absolute) else {
            bail!(
                "{} is in no mounted volume; of one that is not mounted, name the volume and the path in it, with a colon \
                 between",
                shown::path(Path::new(named))
            )
        };
        let root = mounted::root_of(device).context("the mount shows a part of its volume; name VOLUME:PATH")?;
        let daemon = daemons::mounting(&root)?.ok_or_else(|| unasked(&root))?;
        if daemon.status.as_ref().is_ok_and(|status| !status["as_of"].is_null()) {
            bail!("{} shows the past, where nothing can be changed; name the path in the present", shown::path(&root));
        }
        let path = path.into_os_string().into_encoded_bytes();
        Ok(Place { way: Way::Daemon(Box::new(daemon), Some(root)), path, device: Some(device) })
    }

    /// `path` in `volume`, which may be named by the directory where it is mounted.
    pub fn of_volume(volume: &Path, path: Vec<u8>) -> Result<Place> {
        let mounted = mounted::volume_at(volume);
        let way = match daemons::of(&mounted)? {
            Some(daemon) => {
                let place = daemon.status.as_ref().ok().filter(|status| status["kind"] == "mount");
                let root = place.and_then(|status| status["place"].as_str()).map(PathBuf::from);
                Way::Daemon(Box::new(daemon), root.filter(|root| mounted::is_mount_point(root)))
            }
            None => Way::Alone(volume.to_owned()),
        };
        Ok(Place { way, path, device: None })
    }

    /// Finds another place in the same volume: a path in the same mount, or a path in the volume.
    pub fn other(&self, named: &OsStr) -> Result<Vec<u8>> {
        let Some(device) = self.device else {
            let path = volume_and_path(named).map_or(named, |(_, path)| path);
            return Ok(path.as_bytes().to_vec());
        };
        match mounted::in_volume(&resolved(Path::new(named))?) {
            Some((path, other)) if other == device => Ok(path.into_os_string().into_encoded_bytes()),
            _ => bail!(
                "{} is not in the same mount; 'weft export' copies to other places",
                shown::path(Path::new(named))
            ),
        }
    }
}

/// Splits `VOLUME:PATH`, where a volume is: names in a mounted volume may have colons, too.
fn volume_and_path(named: &OsStr) -> Option<(&Path, &OsStr)> {
    let (volume, path) = in_volume(named)?;
    let volume = Path::new(volume);
    let is_address = Location::parse(volume).is_ok_and(|location| location.path().is_none());
    let is_volume = is_address || mounted::is_mount_point(volume) || weft_store::sqlite::is_volume(volume);
    // What begins like a path and is no volume lies in a mount, or nowhere.
    let is_path = named.as_bytes().first().is_some_and(|first| b"/.".contains(first));
    (is_volume || !is_path).then_some((volume, path))
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
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => at = parent,
            Err(error) => return Err(error).with_context(|| format!("cannot look at {}", shown::path(parent))),
        }
    }
    bail!("{} leads through '..' of a directory that is not there", shown::path(path))
}
