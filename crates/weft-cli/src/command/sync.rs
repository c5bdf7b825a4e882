//! `weft sync`.

use super::asking::{LOG, asking, pass_on, why};
use super::stats;
use crate::arguments::Sync;
use crate::daemons;
use crate::failure::one_line;
use crate::mounted;
use crate::owner::Owner;
use crate::shown;
use anyhow::{Context, Result, bail};
use rustix::fs::StatVfsMountFlags;
use rustix::io::Errno;
use serde_json::json;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weft_attributes::Attribute;
use weft_store::Location;
use weft_vfs::Ino;

/// Makes a volume commit.
pub fn run(arguments: &Sync) -> Result<ExitCode> {
    let named = &arguments.named;
    if let Some(root) = mount_of(named)? {
        mounted::refuse_foreign_link(named)?;
        return sync_mount(&root, arguments.json);
    }
    let is_address = named.to_str().is_some_and(|text| text.parse::<SocketAddr>().is_ok());
    let Some(daemon) = daemons::of(named)? else {
        // A daemon may have no control socket.
        if let Some(root) =
            Location::parse(named).ok().filter(|_| !is_address).and_then(|at| mounted::directory_of(&at))
        {
            return sync_mount(&root, arguments.json);
        }
        bail!(
            "{} is no directory of a mounted volume, and no daemon of this user serves it; 'weft status' lists what they \
             serve. Of a volume that another user has mounted, name the directory",
            shown::path(named)
        )
    };
    let place = shown::path(named);
    let commit = daemon.commit().with_context(|| format!("{place} cannot be committed now; {LOG}"))?;
    match arguments.json {
        true => outln!("{:#}", json!({ "commit": commit })),
        false => outln!("all changes of {place} are committed (commit {commit})"),
    }
    Ok(ExitCode::SUCCESS)
}

fn sync_mount(root: &Path, as_json: bool) -> Result<ExitCode> {
    let place = shown::path(root);
    let committed = commit(root)?;
    if as_json {
        // None: another user is not told which one it is, and there is none of what is read-only.
        outln!("{:#}", json!({ "commit": committed }));
        return Ok(ExitCode::SUCCESS);
    }
    if rustix::fs::statvfs(root).is_ok_and(|stat| stat.f_flag.contains(StatVfsMountFlags::RDONLY)) {
        outln!("nothing of {place} can be changed: it is mounted read-only");
        return Ok(ExitCode::SUCCESS);
    }
    match committed {
        Some(commit) => outln!("all changes of {place} are committed (commit {commit})"),
        None => outln!("all changes of {place} are durable"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Has whoever uses the volume at `location`, which `named` names, commit, so that what programs
/// wrote is read there. If that fails, or if this user cannot ask whoever uses it, tells why, and
/// `instead`, what is done then. Tells of operations that wait for a mount, too.
pub fn commit_first(named: &Path, location: &Location, instead: &str) {
    let is_mount = mounted::is_mount_point(named);
    let mounted = if is_mount { Some(named.into()) } else { mounted::directory_of(location) };
    let committed = match (mounted, daemons::of(named)) {
        (Some(root), _) => root.canonicalize().map_err(Into::into).and_then(|root| commit(&root)),
        (None, Ok(Some(daemon))) => daemon.commit().map(Some),
        // Nobody has it, or somebody of whom nothing is known here.
        (None, _) => match location.engine().waiting() {
            Ok(waiting) if waiting.is_held => Ok(None),
            Ok(waiting) => {
                crate::notes::tell(waiting.note());
                return crate::notes::tell(waiting.lost);
            }
            // Opening it fails in the same way, and tells that.
            Err(_) => return,
        },
    };
    match committed {
        Ok(Some(_)) => {}
        Ok(None) if location.engine().header().is_err() => {}
        Ok(None) => crate::notes::tell(Some(format!(
            "{instead}: the volume is in use, and this user cannot have its daemon commit"
        ))),
        Err(error) => crate::notes::tell(Some(format!("{instead}: {}", one_line(&error)))),
    }
}

/// Returns the mount point of the volume that `path` lies in, if it lies in a mounted one.
fn mount_of(path: &Path) -> Result<Option<PathBuf>> {
    // The kernel reports the owner of a mount even where no other user may look into it.
    if mounted::is_mount_point(path) {
        return Ok(Some(path.canonicalize().or_else(|_| std::path::absolute(path))?));
    }
    match rustix::fs::stat(path) {
        Ok(stat) if mounted::devices().contains(&stat.st_dev) => {
            if weft_vfs::is_past(Ino(stat.st_ino)) {
                bail!(
                    "{} is in the past, of which nothing can be changed; name the directory in the present",
                    shown::path(path)
                );
            }
            Ok(mounted::root_of(stat.st_dev))
        }
        Err(Errno::ACCESS) => bail!("no permission to look at {}", shown::path(path)),
        Ok(_) | Err(_) => Ok(None),
    }
}

/// Makes all changes of the volume that is mounted at `root` durable. Returns the last commit then,
/// if this user may ask for one.
pub(super) fn commit(root: &Path) -> Result<Option<u64>> {
    let place = shown::path(root);
    let owner = Owner::of(root);
    if asking(owner, || stats::is_dead(root))? {
        asking(owner, || stats::read(root))??;
    }
    let failed = |why: &str| format!("not all changes of {place} can be made durable; {why}");
    // First, changes that the kernel has cached (`--writeback`).
    asking(owner, || pass_on(root).map_err(|error| (error, why(root))))?
        .map_err(|(error, why)| anyhow::Error::from(error).context(failed(&why)))?;
    // If the directory of sockets cannot be trusted, the other way remains.
    if let Some(daemon) = daemons::mounting(root).ok().flatten() {
        return daemon.commit().with_context(|| failed(LOG)).map(Some);
    }
    // syncfs(2) by itself reaches no daemon, and an fsync of a directory that did not change is
    // answered at once.
    let synced = asking(owner, || sync_by_attribute(root).map_err(|error| (error, why(root))))?;
    synced.map_err(|(error, why)| anyhow::Error::from(error).context(failed(&why)))
}

/// Has the daemon of the mount at `root` make all changes durable. Returns its last commit then, if
/// this user may have it commit.
fn sync_by_attribute(root: &Path) -> Result<Option<u64>, Errno> {
    let mut value = [0; 24];
    let length = rustix::fs::getxattr(root, &*Attribute::Commit.name(), &mut value[..])?;
    Ok(std::str::from_utf8(&value[..length]).ok().and_then(|number| number.parse().ok()))
}
