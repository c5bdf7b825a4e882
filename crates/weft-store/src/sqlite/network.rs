//! Volumes on file systems of other machines, where two hosts could have the same one.
//!
//! The hold of a volume is flock(2). NFS and SMB can tell the server of it, and then it keeps other
//! hosts out; mounted with certain options they do not, and two daemons would write one database.

use super::layout::Layout;
use crate::error::{Error, Result};
use std::path::Path;

/// File systems that other hosts may have mounted, too, and that tell by an option that locks stay
/// on this host.
const TYPES: [&str; 5] = ["nfs", "nfs4", "cifs", "smb3", "smbfs"];

/// Options by which flock(2) is not told to the server (nfs(5), mount.cifs(8)).
const LOCAL: [&str; 4] = ["nolock", "local_lock=flock", "local_lock=all", "nobrl"];

/// Refuses a volume that two hosts could hold at once.
pub(super) fn refuse_shared(layout: &Layout) -> Result<()> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let directory = layout.database.parent().unwrap_or(Path::new("/"));
    match refusal(&mounts, directory, layout.segments.is_none()) {
        Some(why) => Err(Error::Unusable(format!("{} {why}", layout.volume.display()))),
        None => Ok(()),
    }
}

/// Returns the reason that a volume in `directory` cannot be used, by the file system mounted there
/// (proc_pid_mountinfo(5)).
fn refusal(mounts: &str, directory: &Path, is_one_file: bool) -> Option<String> {
    let mount = |line: &str| -> Option<(usize, String, String)> {
        let (before, after) = line.split_once(" - ")?;
        let point = before.split(' ').nth(4)?.replace("\\040", " ");
        let mut after = after.split(' ');
        let (kind, options) = (after.next()?, after.nth(1)?);
        directory.starts_with(&point).then(|| (point.len(), kind.to_owned(), options.to_owned()))
    };
    // What was mounted last hides what was mounted before.
    let (_, kind, options) = mounts.lines().filter_map(mount).enumerate().max_by_key(|(order, m)| (m.0, *order))?.1;
    if !TYPES.contains(&&*kind) {
        return None;
    }
    if is_one_file {
        return Some(format!(
            "lies on {kind}, where the locks of one file that is a volume get in each other's way; \
             keep a volume of '--blocks segments' there, or better on a local disk"
        ));
    }
    let option = options.split(',').find(|option| LOCAL.contains(option))?;
    Some(format!(
        "lies on {kind} mounted with '{option}': other hosts do not see who has the volume, and two that write to it \
         destroy it; mount {kind} with locks that the server knows of"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_of_other_hosts_are_refused_unless_they_are_told_of_locks() {
        let mounts = "1 0 8:1 / / rw - ext4 /dev/sda rw\n\
                      2 1 0:5 / /srv/a\\040b rw shared:1 - nfs4 host:/x rw,vers=4.2,local_lock=none\n\
                      3 1 0:6 / /srv/old rw - nfs host:/y rw,vers=3,nolock,local_lock=all\n\
                      4 1 0:7 / /srv/smb rw - cifs //host/z rw,nobrl\n\
                      5 3 8:2 / /srv/old/local rw - ext4 /dev/sdb rw\n";
        let of = |path: &str, is_one_file| refusal(mounts, Path::new(path), is_one_file);
        assert_eq!(of("/srv", true), None);
        assert_eq!(of("/srv/a b/v", false), None);
        assert!(of("/srv/a b", true).is_some_and(|why| why.contains("nfs4")));
        assert!(of("/srv/old/v", false).is_some_and(|why| why.contains("'nolock'")));
        assert!(of("/srv/smb/v", false).is_some_and(|why| why.contains("'nobrl'")));
        assert_eq!(of("/srv/old/local/v", false), None);
    }
}
