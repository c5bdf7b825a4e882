//! A place in a volume, mounted or not, where something is or was.

use crate::daemons::{self, Running};
use crate::mounted::InMount;
use crate::named::{is_volume, volume_and_path};
use crate::{mounted, shown};
use anyhow::{Result, bail};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A place in a volume.
pub struct Place {
    pub way: Way,
    /// The path from the root of the volume.
    pub path: Vec<u8>,
    /// How its volume was named.
    of: Of,
}

/// How the volume of a place was named.
enum Of {
    /// By a path in a mount, which is this device.
    Mount(u64),
    /// By its name.
    Volume(PathBuf),
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
        let path = Path::new(named);
        let Some(place) = InMount::find_to_change(path)? else {
            if is_volume(path) {
                let volume = shown::word(named);
                bail!("{volume} is a volume; name a path in it, '{volume}:PATH', or all of it, '{volume}:'");
            }
            bail!(
                "{} is in no mounted volume; of one that is not mounted, name the volume and the path in it, with a colon \
                 between",
                shown::path(path)
            )
        };
        let root = place.root()?;
        let daemon = daemons::mounting(&root)?.ok_or_else(|| daemons::unasked(&root))?;
        if daemon.status.as_ref().is_ok_and(|status| !status["as_of"].is_null()) {
            bail!("{} shows the past, where nothing can be changed; name the path in the present", shown::path(&root));
        }
        let way = Way::Daemon(Box::new(daemon), Some(root));
        Ok(Place { way, path: place.path, of: Of::Mount(place.device) })
    }

    /// `path` in `volume`, which may be named by the directory where it is mounted.
    pub fn of_volume(volume: &Path, path: Vec<u8>) -> Result<Place> {
        let way = match daemons::using(volume)? {
            Some(daemon) => {
                let place = daemon.status.as_ref().ok().filter(|status| status["kind"] == "mount");
                let root = place.and_then(|status| status["place"].as_str()).map(PathBuf::from);
                Way::Daemon(Box::new(daemon), root.filter(|root| mounted::is_mount_point(root)))
            }
            None => Way::Alone(volume.to_owned()),
        };
        Ok(Place { way, path, of: Of::Volume(volume.to_owned()) })
    }

    /// Finds another place in the same volume: a path in the same mount, or a path in the volume.
    pub fn other(&self, named: &OsStr) -> Result<Vec<u8>> {
        let shown = || shown::path(Path::new(named));
        match (&self.of, volume_and_path(named)) {
            (Of::Volume(own), Some((other, path))) if is_same(own, other) => Ok(path.as_bytes().to_vec()),
            (Of::Volume(own), Some(_)) => bail!(
                "{} is not in {}, which is restored; 'weft export' copies to other places",
                shown(),
                shown::path(own)
            ),
            // A path in the volume, unless it leads into some mount.
            (Of::Volume(_), None) if InMount::find(Path::new(named))?.is_none() => Ok(named.as_bytes().to_vec()),
            (Of::Volume(own), None) => bail!(
                "{} is a path in a mount; name it as what is restored was named: '{}:PATH'",
                shown(),
                shown::path(own)
            ),
            (Of::Mount(device), _) => match InMount::find_to_change(Path::new(named))? {
                Some(other) if other.device == *device => Ok(other.path),
                _ => bail!("{} is not in the same mount; 'weft export' copies to other places", shown()),
            },
        }
    }
}

/// True if both name the same volume.
fn is_same(one: &Path, other: &Path) -> bool {
    one == other || matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}
