//! `-o remount`: an existing mount takes changes, or refuses them.

use super::{options, source};
use crate::arguments::Mount;
use crate::failure::usage;
use crate::mounted;
use crate::proc_path::proc_path;
use anyhow::{Context, Result, bail};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::ioctl::{NoArg, Opcode, ioctl};
use std::fs::File;
use std::path::Path;
use std::process::ExitCode;
use weft_fuse::{MountError, MountOptions, REFUSE_CHANGES, TAKE_CHANGES};
use weft_store::{Location, PathWalk};
use weft_vfs::AtimePolicy;

/// Changes options of the mount. Refusing changes begins when all is committed.
pub fn run(mut arguments: Mount) -> Result<ExitCode> {
    let named = arguments.directory.clone();
    // From here on, all is read from the open directory, and done to it.
    let way = PathWalk::to(&named).with_context(|| format!("cannot find {}", named.display()))?;
    let (directory, place) = (way.path.clone(), way.directory());
    let Some((mounted, owner)) = mounted::volume_of(place, &directory).filter(|_| way.is_to_directory()) else {
        bail!("no volume is mounted at {}; mount it first", directory.display());
    };
    way.refuse_links_of_others(owner, &named)?;
    // mount(8) names the source itself where fstab(5) has no line.
    if source(&Location::parse(&arguments.volume)?) != mounted.as_os_str() {
        bail!(
            "{} is mounted at {}, and not {}; name the volume that is mounted there",
            mounted.display(),
            directory.display(),
            arguments.volume.display()
        );
    }
    if !rustix::process::geteuid().is_root() {
        bail!("only root may remount {}; unmount it and mount it again", directory.display());
    }
    let before = MountOptions::of(place, &directory)?;
    let mut wanted = before.clone();
    options::take(&mut arguments, &mut wanted)?;
    let times = match (arguments.open.noatime, arguments.open.strictatime) {
        (true, _) => AtimePolicy::Never,
        (_, true) => AtimePolicy::Always,
        _ => before.access_times,
    };
    if times != before.access_times {
        return usage("when access times move is said at the mount: unmount it, and mount it again".into());
    }
    let opened = File::open(proc_path(place)).with_context(|| format!("cannot open {}", directory.display()))?;
    if wanted.read_only {
        // The kernel first: it knows who has files open to write, and refuses then.
        remount_read_only((place, &directory), &wanted)?;
        if let Err(error) = tell::<REFUSE_CHANGES>(&opened, &directory) {
            weft_fuse::remount((place, &directory), &before)?;
            return Err(error);
        }
    } else {
        tell::<TAKE_CHANGES>(&opened, &directory)?;
        weft_fuse::remount((place, &directory), &wanted)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn remount_read_only((place, directory): (BorrowedFd<'_>, &Path), wanted: &MountOptions) -> Result<()> {
    let done = weft_fuse::remount((place, directory), wanted);
    if let Err(MountError::Refused { source, .. }) = &done
        && source.raw_os_error() == Some(libc::EBUSY)
    {
        bail!(
            "{0} still takes changes: programs have files of it open for writing, or files that were removed; end them \
             ('fuser -vm {0}' tells them, those that write with an F) and try again",
            directory.display()
        );
    }
    Ok(done?)
}

/// Sends the command to the daemon.
fn tell<const WHAT: Opcode>(opened: &File, directory: &Path) -> Result<()> {
    // SAFETY: these commands take and give nothing.
    let told = unsafe { ioctl(opened, NoArg::<WHAT>::new()) };
    match told {
        Err(Errno::ROFS) => {
            bail!("{} was mounted read-only; unmount it and mount it again without ro", directory.display())
        }
        Err(Errno::NOTTY) => {
            bail!("the daemon of {} is another version; unmount it and mount it again", directory.display())
        }
        Err(error) => Err(error).with_context(|| {
            format!(
                "{} takes changes as before, as not all can be committed; 'weft umount' tells more",
                directory.display()
            )
        }),
        Ok(()) => Ok(()),
    }
}
