//! `weft mount`, also as mount(8) calls its helpers.

use crate::arguments::Mount;
use crate::daemon::{self, Side};
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use weft_fuse::{MountOptions, Placement, Session, SessionOptions, Transport};
use weft_store::log::IntentLog;
use weft_store::sqlite;
use weft_vfs::{AtimePolicy, Options, SystemClock, Vfs};

/// Bytes of the intent log: two halves, each for what the journal holds at most.
pub const LOG_BYTES: u64 = 16 << 20;

/// The arguments that `mount.weft SOURCE DIR [-sfnv] [-o OPTIONS]` stands for, if the program was called so.
pub fn helper_arguments(words: &[OsString]) -> Option<Vec<OsString>> {
    let name = Path::new(words.first()?).file_name()?.to_str()?;
    if !name.starts_with("mount.") {
        return None;
    }
    let mut arguments: Vec<OsString> = vec!["weft".into(), "mount".into()];
    let mut words = words[1..].iter();
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("-o") => arguments.extend(["-o".into(), words.next()?.clone()]),
            // Sloppy, fake, no mtab, verbose: nothing to do differently.
            Some("-s" | "-f" | "-n" | "-v") => {}
            Some("-t") => drop(words.next()),
            _ => arguments.push(word.clone()),
        }
    }
    Some(arguments)
}

/// Mounts a volume.
pub fn run(mut arguments: Mount) -> Result<ExitCode> {
    let mut mount = MountOptions { source: arguments.volume.display().to_string(), ..MountOptions::default() };
    take_options(&mut arguments, &mut mount)?;
    mount.read_only |= arguments.read_only;
    arguments.read_only = mount.read_only;
    // The daemon leaves this directory.
    arguments.volume = std::path::absolute(&arguments.volume).context("cannot tell where the volume is")?;
    arguments.directory = std::path::absolute(&arguments.directory).context("cannot tell where to mount")?;
    if arguments.foreground {
        let signals = daemon::block_signals();
        let mounted = start(&arguments, &mount)?;
        return serve(mounted, signals);
    }
    match daemon::split()? {
        Side::Front(code) => Ok(code),
        Side::Daemon(starting) => {
            let signals = daemon::block_signals();
            match start(&arguments, &mount) {
                Ok(mounted) => {
                    starting.succeeded(&mounted.log)?;
                    serve(mounted, signals)
                }
                Err(error) => {
                    starting.failed(&error);
                    Ok(ExitCode::FAILURE)
                }
            }
        }
    }
}

struct Mounted {
    volume: sqlite::Volume,
    vfs: Arc<Vfs>,
    session: Session,
    log: PathBuf,
}

/// Opens a volume's store, with errors that say what to do.
pub fn open_store(path: &Path) -> Result<sqlite::Volume> {
    sqlite::open(path).with_context(|| format!("cannot open volume {}", path.display()))
}

/// Opens a volume for operations.
pub fn open_volume(path: &Path, options: Options) -> Result<(sqlite::Volume, Arc<Vfs>)> {
    let volume = open_store(path)?;
    let log = IntentLog::open(&volume.layout.log, LOG_BYTES)?;
    let vfs = Vfs::open(volume.store.clone(), Some(log), options, Arc::new(SystemClock))
        .with_context(|| format!("cannot open volume {}", path.display()))?;
    Ok((volume, vfs))
}

/// Commits all and lets go of a volume.
pub fn close_volume(volume: &sqlite::Volume, vfs: &Vfs) -> Result<()> {
    vfs.close()
        .context("not all changes could be committed; they are lost with this process unless they were synced")?;
    if volume.layout.segments.is_none() {
        // All is in the one file now; what is left of the log says nothing.
        std::fs::remove_file(&volume.layout.log).context("cannot remove the empty intent log")?;
    }
    Ok(())
}

fn start(arguments: &Mount, mount: &MountOptions) -> Result<Mounted> {
    if !arguments.directory.is_dir() {
        bail!("{} is not a directory; make it first", arguments.directory.display());
    }
    let (volume, vfs) = open_volume(&arguments.volume, vfs_options(arguments)?)?;
    let options = SessionOptions {
        transport: transport(&arguments.transport)?,
        placement: placement(&arguments.placement)?,
        ..SessionOptions::default()
    };
    let session = Session::mount(vfs.clone(), &arguments.directory, mount, options)?;
    let log = arguments.log.clone().unwrap_or_else(|| match &volume.layout.segments {
        Some(_) => arguments.volume.join("weft.log"),
        None => arguments.volume.with_added_extension("log"),
    });
    Ok(Mounted { volume, vfs, session, log })
}

fn serve(mounted: Mounted, signals: libc::sigset_t) -> Result<ExitCode> {
    let unmounter = mounted.session.unmounter();
    std::thread::Builder::new().name("weft-signal".into()).spawn(move || {
        loop {
            daemon::await_signal(&signals);
            if let Err(error) = unmounter.unmount() {
                eprintln!("weft: {error}");
            }
        }
    })?;
    let served = mounted.session.run().context("the kernel ended the mount");
    close_volume(&mounted.volume, &mounted.vfs)?;
    served.map(|()| ExitCode::SUCCESS)
}

fn vfs_options(arguments: &Mount) -> Result<Options> {
    let interval = Duration::try_from_secs_f64(arguments.commit_interval).ok().filter(|interval| !interval.is_zero());
    let Some(commit_interval) = interval else {
        bail!("commit interval {} is not a number of seconds above 0", arguments.commit_interval);
    };
    Ok(Options {
        commit_interval,
        dirty_bytes_max: arguments.dirty_max.max(8 << 20),
        metadata_cache_bytes: arguments.metadata_cache,
        block_cache_bytes: arguments.block_cache,
        atime: match (arguments.noatime, arguments.strictatime) {
            (true, _) => AtimePolicy::Never,
            (_, true) => AtimePolicy::Always,
            _ => AtimePolicy::Relative,
        },
        read_only: arguments.read_only,
        background_commits: true,
    })
}

fn transport(text: &str) -> Result<Transport> {
    match text {
        "auto" => Ok(Transport::Automatic),
        "device" => Ok(Transport::Device),
        other => bail!("transport '{other}' is neither 'auto' nor 'device'"),
    }
}

fn placement(text: &str) -> Result<Placement> {
    Ok(match text {
        "follow" => Placement::Follow,
        "free" => Placement::Free,
        number => {
            Placement::Processor(number.parse().with_context(|| {
                format!("placement '{number}' is neither 'follow', 'free' nor a processor's number")
            })?)
        }
    })
}

/// Takes what `-o` says. Options that mount(8) and fstab(5) keep for themselves are passed over.
fn take_options(arguments: &mut Mount, mount: &mut MountOptions) -> Result<()> {
    for option in std::mem::take(&mut arguments.options) {
        let (name, value) = option.split_once('=').unwrap_or((&option, ""));
        let size = || crate::size::parse(value).map_err(|error| anyhow::anyhow!("option {name}: {error}"));
        match name {
            "ro" => arguments.read_only = true,
            "noatime" => arguments.noatime = true,
            "strictatime" => arguments.strictatime = true,
            "relatime" => (arguments.noatime, arguments.strictatime) = (false, false),
            "allow_other" => mount.allow_other = true,
            "suid" | "dev" => mount.suid_and_devices = true,
            "noexec" => mount.no_exec = true,
            "commit-interval" => {
                arguments.commit_interval = value.parse().with_context(|| format!("option {name}: '{value}'"))?;
            }
            "dirty-max" => arguments.dirty_max = size()?,
            "metadata-cache" => arguments.metadata_cache = size()?,
            "block-cache" => arguments.block_cache = size()?,
            "transport" => arguments.transport = value.into(),
            "placement" => arguments.placement = value.into(),
            "log" => arguments.log = Some(value.into()),
            ""
            | "rw"
            | "defaults"
            | "auto"
            | "noauto"
            | "user"
            | "nouser"
            | "users"
            | "owner"
            | "group"
            | "_netdev"
            | "nofail"
            | "exec"
            | "nosuid"
            | "nodev"
            | "async"
            | "diratime"
            | "nodiratime"
            | "default_permissions"
            | "fsname"
            | "subtype"
            | "comment" => {}
            name if name.starts_with("x-") => {}
            name => bail!("unknown mount option '{name}'; 'weft mount --help' lists them"),
        }
    }
    Ok(())
}
