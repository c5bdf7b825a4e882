//! `weft mount`.

mod dead;
pub mod options;
mod remount;

use self::dead::Dead;
use self::options::Asked;
use crate::arguments::Mount;
use crate::confinement::Serves;
use crate::control_socket::{self, ControlSocket};
use crate::daemon::{self, Daemon, is_reexec};
use crate::failure::usage;
use crate::leaving;
use crate::named::volume_around;
use crate::opened::{Opened, Settings};
use crate::serving::{allow_connections, memory_bytes, say_if_unconfined, start_lender, start_nfs};
use crate::shown;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use weft_control::Kind;
use weft_fuse::{Inviter, LockKeeper, MountOptions, Placement, Session, SessionOptions, Transport};
use weft_store::Location;

/// Bytes of cached blocks: the kernel has its own cache above.
const BLOCK_CACHE_BYTES: u64 = 64 << 20;

/// Mounts a volume.
pub fn run(mut arguments: Mount) -> Result<ExitCode> {
    if options::asked(&arguments) == Asked::Remount {
        return remount::run(arguments);
    }
    refuse_swapped(&arguments)?;
    let location = Location::parse(&arguments.volume)?;
    let mut mount = MountOptions { source: source(&location), ..MountOptions::default() };
    options::take(&mut arguments, &mut mount)?;
    arguments.open.refuse_of_postgres(&location)?;
    if (mount.suid || mount.devices) && !rustix::process::geteuid().is_root() {
        return usage("only root may mount with suid or dev".into());
    }
    if arguments.writeback && arguments.open.at.is_some() {
        return usage("--writeback is for programs that write, and the past is only read: leave it out".into());
    }
    if arguments.writeback && arguments.nfs.is_some() {
        return usage(
            "--writeback and --nfs do not go together: the kernel would put the lengths and the bytes that it keeps over \
             those that clients write; leave one of them out"
                .into(),
        );
    }
    weft_vfs::set_log_format(arguments.open.log_format.into());
    let mut settings = arguments.open.settings(BLOCK_CACHE_BYTES, mount.is_shared() || arguments.nfs.is_some())?;
    settings.vfs.keep_written = arguments.nfs.is_some();
    // The kernel caches changes that the volume does not have.
    settings.vfs.shared_bytes_max = shared_bytes(&arguments)?;
    mount.access_times = settings.vfs.atime;
    let nfs = arguments.nfs.map(|address| arguments.served.options(address)).transpose()?;
    let plan = Plan { settings, session: session_options(&arguments)?, mount, nfs };
    // The daemon leaves this directory.
    if location.path().is_some() {
        arguments.volume = settled(&arguments.volume)?;
    }
    if let Some(cache) = &mut arguments.open.disk_cache {
        *cache = settled(cache)?;
    }
    arguments.directory = std::path::absolute(&arguments.directory).context("cannot tell where to mount")?;
    let [certificate, key, clients] = arguments.served.files();
    let files = [Some(&*arguments.directory), arguments.log.as_deref(), certificate, key, clients];
    arguments.open.confine(Serves::Mount, location.path(), &files)?;
    daemon::run(arguments.foreground, |daemon| start(&arguments, plan, daemon), |mounted| mounted.log.clone(), serve)
}

/// Returns the source of a mount of the volume at `location`. It leads there from any directory.
fn source(location: &Location) -> OsString {
    match location.path() {
        Some(path) => path.canonicalize().unwrap_or_else(|_| path.into()).into(),
        None => location.to_string().into(),
    }
}

fn shared_bytes(arguments: &Mount) -> Result<u64> {
    match (arguments.writeback, arguments.shared_memory) {
        (true, Some(1..)) => usage("below --writeback no memory is shared: leave --shared-memory out, or say 0".into()),
        (true, _) => Ok(0),
        (false, said) => Ok(said.unwrap_or_else(|| memory_bytes() / 8)),
    }
}

/// Settings from the arguments, checked before anything is touched.
struct Plan {
    settings: Settings,
    session: SessionOptions,
    mount: MountOptions,
    nfs: Option<weft_nfs::Options>,
}

struct Mounted {
    opened: Opened,
    session: Session,
    nfs: Option<weft_nfs::Server>,
    lender: Option<weft_share::Server>,
    control: ControlSocket,
    log: daemon::Log,
    /// The mount point, for a person.
    place: String,
}

/// Returns a path to the same file that does not lead through the mount point: `../VOLUME` from
/// there would.
fn settled(path: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(path).with_context(|| format!("cannot tell where {} is", path.display()))?;
    let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        return Ok(absolute.canonicalize().unwrap_or(absolute));
    };
    Ok(parent.canonicalize().map_or_else(|_| absolute.clone(), |parent| parent.join(name)))
}

/// Refuses swapped arguments: the volume comes first.
fn refuse_swapped(arguments: &Mount) -> Result<()> {
    let (first, second) = (&arguments.volume, &arguments.directory);
    if first.is_dir() && !weft_store::sqlite::is_volume(first) && weft_store::sqlite::is_volume(second) {
        let [volume, directory] = [second, first].map(|path| shown::word(path.as_os_str()));
        return usage(format!(
            "{} is no volume, and {} is one; the volume comes first: 'weft mount {volume} {directory}'",
            first.display(),
            second.display()
        ));
    }
    Ok(())
}

/// Refuses a mount in a volume: its files below the mount could not be reached, even by its daemon.
fn refuse_in_volume(directory: &Path) -> Result<()> {
    match volume_around(directory) {
        Some(volume) => bail!(
            "{} lies in the volume {}, whose files could not be reached below the mount; mount it elsewhere",
            directory.display(),
            volume.display()
        ),
        None => Ok(()),
    }
}

/// Refuses paths below the mount: the daemon would wait for itself.
fn refuse_below(directory: &Path, path: &Path, what: &str) -> Result<()> {
    let path = &std::path::absolute(path)?;
    let real = path.canonicalize().or_else(|_| path.parent().unwrap_or(path).canonicalize());
    if real.is_ok_and(|real| real.starts_with(directory)) {
        bail!(
            "{what} {} lies in {}, and could not be reached below the mount; mount it elsewhere",
            path.display(),
            directory.display()
        );
    }
    Ok(())
}

fn start(arguments: &Mount, plan: Plan, daemon: &Daemon) -> Result<Mounted> {
    let dead = is_reexec().then(|| Dead::watch(&arguments.directory)).transpose()?;
    // Before the volume is opened: a mistake must leave it as it was.
    let directory = match &dead {
        None => weft_fuse::check_mount_point(&arguments.directory)?,
        Some(_) => arguments.directory.clone(),
    };
    refuse_below(&directory, &arguments.volume, "the volume")?;
    refuse_in_volume(&directory)?;
    if let Some(log) = &arguments.log {
        refuse_below(&directory, log, "the log")?;
    }
    let log = daemon::find_log(arguments.log.as_deref())?;
    if let Some(cache) = &arguments.open.disk_cache {
        refuse_below(&directory, cache, "the disk cache")?;
    }
    let metrics = control_socket::listen(arguments.open.metrics)?;
    let lends = plan.settings.vfs.shared_bytes_max > 0;
    if lends {
        allow_connections();
    }
    arguments.open.say_if_cache_is_new(&arguments.volume);
    let purpose = format!("mounted at {}", directory.display());
    let open = || Opened::open(&arguments.volume, plan.settings.clone(), arguments.open.hold(purpose.clone()));
    let opened = leaving::open_after(&arguments.volume, open)?;
    daemon.hold_signals();
    let is_again = dead.is_some();
    let started = || {
        if arguments.no_opens {
            opened.vfs.want_opens_from_now(false).context("cannot forget that links want to know of opens")?;
        }
        dead.map_or(Ok(()), Dead::remove)?;
        let listener = lends.then(weft_share::Listener::new).transpose()?;
        let lender = listener.map(|listener| start_lender(listener, opened.vfs.clone())).transpose()?;
        let inviter = lender.as_ref().map(|lender| Inviter(Arc::new(lender.inviter())));
        let as_of_commit = opened.as_of.map(|as_of| as_of.commit.0);
        let options = SessionOptions { inviter, as_of_commit, ..plan.session };
        let session = Session::mount(opened.vfs.clone(), &directory, &plan.mount, options)?;
        let nfs = plan.nfs.map(|options| start_nfs(opened.vfs.clone(), options));
        Ok((session, lender, nfs.transpose()?))
    };
    let (session, lender, nfs) = match started() {
        Ok(started) => started,
        Err(error) => {
            opened.close()?;
            return Err(error);
        }
    };
    if is_again {
        tracing::info!("{} serves {} again", directory.display(), arguments.volume.display());
    }
    say_if_unconfined();
    let log = opened.log(log.as_deref(), &directory)?;
    let teller = session.teller();
    let place = shown::path(&directory);
    let control = ControlSocket::start(&opened, (Kind::Mount, place.clone()), metrics, move || teller.report());
    // Whoever mounts hears of it.
    control.say_if_missing();
    Ok(Mounted { opened, session, nfs, lender, control, log, place })
}

fn serve(mounted: Mounted, daemon: &Daemon) -> Result<ExitCode> {
    let supervisor = mounted.opened.begin(&format!("mounted at {}", mounted.place));
    let unmounter = mounted.session.unmounter();
    daemon.on_signal(move || {
        if let Err(error) = unmounter.unmount() {
            tracing::error!("{error}");
        }
    });
    mounted.opened.say_as_of();
    let (leaver, control) = (mounted.session.leaver(), mounted.control.clone());
    let leave = move || {
        leaver.leave();
        control.stop();
    };
    mounted.opened.leave_when_lost(daemon, leave)?;
    let served = mounted.session.run().context("the kernel ended the mount");
    supervisor.ends();
    mounted.control.stop();
    if let Some(lender) = mounted.lender {
        lender.stop();
    }
    if let Some(nfs) = &mounted.nfs {
        nfs.stop();
    }
    let left = mounted.opened.end(&format!("unmounted from {}", mounted.place));
    mounted.control.end(&left);
    left?;
    served.map(|()| ExitCode::SUCCESS)
}

fn session_options(arguments: &Mount) -> Result<SessionOptions> {
    Ok(SessionOptions {
        transport: transport(&arguments.transport)?,
        placement: placement(&arguments.placement)?,
        writeback: arguments.writeback,
        keep_awake: arguments.keep_awake,
        idle_policy: !arguments.no_idle_policy,
        opens: arguments.opens,
        // Locks of clients must count for programs here, and the other way round.
        locks: if arguments.served.portmap { LockKeeper::Volume } else { LockKeeper::Kernel },
        ..SessionOptions::default()
    })
}

fn transport(text: &str) -> Result<Transport> {
    match text {
        "auto" => Ok(Transport::Automatic),
        "device" => Ok(Transport::Device),
        other => usage(format!("transport '{other}' is neither 'auto' nor 'device'")),
    }
}

fn placement(text: &str) -> Result<Placement> {
    Ok(match text {
        "follow" => Placement::Follow,
        "free" => Placement::Free,
        number => match number.parse() {
            Ok(number) => Placement::Processor(number),
            Err(_) => {
                return usage(format!("placement '{number}' is neither 'follow', 'free' nor a processor's number"));
            }
        },
    })
}
