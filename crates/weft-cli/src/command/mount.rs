//! `weft mount`.

mod options;

use super::usage;
use crate::arguments::Mount;
use crate::daemon::{self, Side};
use crate::opened::Opened;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use weft_fuse::{MountOptions, Placement, Session, SessionOptions, Transport};
use weft_store::Location;
use weft_store::postgres::OpenOptions;
use weft_vfs::{AtimePolicy, Options};

/// Mounts a volume.
pub fn run(mut arguments: Mount) -> Result<ExitCode> {
    let location = Location::parse(&arguments.volume)?;
    // So that whoever looks at mounts finds it from anywhere.
    let source = match location.path() {
        Some(path) => path.canonicalize().unwrap_or_else(|_| path.into()).display().to_string(),
        None => location.to_string(),
    };
    let mut mount = MountOptions { source, ..MountOptions::default() };
    options::take(&mut arguments, &mut mount)?;
    mount.read_only = arguments.read_only;
    let plan = Plan { vfs: vfs_options(&arguments)?, session: session_options(&arguments)?, mount };
    // The daemon leaves this directory.
    if location.path().is_some() {
        arguments.volume = std::path::absolute(&arguments.volume).context("cannot tell where the volume is")?;
    }
    arguments.directory = std::path::absolute(&arguments.directory).context("cannot tell where to mount")?;
    if arguments.foreground {
        let signals = daemon::block_signals();
        let mounted = start(&arguments, plan)?;
        return serve(mounted, signals);
    }
    match daemon::split()? {
        Side::Front(code) => Ok(code),
        Side::Daemon(starting) => {
            let signals = daemon::block_signals();
            match start(&arguments, plan) {
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

/// What the arguments ask for, found to be right before anything is touched.
struct Plan {
    vfs: Options,
    session: SessionOptions,
    mount: MountOptions,
}

struct Mounted {
    opened: Opened,
    session: Session,
    log: PathBuf,
}

fn start(arguments: &Mount, plan: Plan) -> Result<Mounted> {
    // Before the volume is opened: a mistake must leave it as it was.
    let directory = weft_fuse::check_mount_point(&arguments.directory)?;
    let hold = OpenOptions {
        lease: Duration::from_secs(arguments.lease),
        wait: Duration::from_secs(arguments.wait),
        patience: Duration::from_secs(arguments.patience),
    };
    let opened = Opened::open(&arguments.volume, plan.vfs, hold)?;
    let session = match Session::mount(opened.vfs.clone(), &directory, &plan.mount, plan.session) {
        Ok(session) => session,
        Err(error) => {
            opened.close()?;
            return Err(error.into());
        }
    };
    let log = match (&arguments.log, &opened.layout) {
        (Some(log), _) => log.clone(),
        (None, Some(layout)) if layout.segments.is_some() => arguments.volume.join("weft.log"),
        (None, Some(_)) => arguments.volume.with_added_extension("log"),
        (None, None) => log_of(&directory)?,
    };
    Ok(Mounted { opened, session, log })
}

/// Where the messages about what is mounted at `directory` go if no file of the volume is near.
fn log_of(directory: &Path) -> Result<PathBuf> {
    let home = || {
        std::env::var_os("XDG_STATE_HOME")
            .map(PathBuf::from)
            .or_else(|| Some(std::env::home_dir()?.join(".local/state")))
    };
    let place = match rustix::process::geteuid().is_root() {
        true => PathBuf::from("/var/log"),
        false => home().context("cannot tell where to write messages; name a file with --log")?,
    };
    let place = place.join("weft");
    std::fs::create_dir_all(&place)
        .with_context(|| format!("cannot make {}; name a file with --log", place.display()))?;
    let name = directory.to_string_lossy().trim_matches('/').replace('/', "-");
    Ok(place.join(format!("{name}.log")))
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
    if mounted.opened.layout.is_none() {
        end_when_lost(&mounted.opened)?;
    }
    let served = mounted.session.run().context("the kernel ended the mount");
    mounted.opened.close()?;
    served.map(|()| ExitCode::SUCCESS)
}

/// Looks whether the volume is still ours.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Ends the daemon once another one has its volume. The mount stays, dead: whoever uses it is told, and neither reads what is not true any
/// more nor writes into the directory below.
fn end_when_lost(opened: &Opened) -> Result<()> {
    // The volume is let go of when the mount ends, whatever this thread does.
    let (store, vfs) = (Arc::downgrade(&opened.store), Arc::downgrade(&opened.vfs));
    let watch = move || {
        let why = loop {
            let Some(held) = store.upgrade() else { return };
            if let Some(why) = held.lost() {
                break why;
            }
            drop(held);
            #[expect(clippy::disallowed_methods, reason = "what happens to the volume is told to nobody")]
            std::thread::sleep(LOOK_AGAIN);
        };
        let left = vfs.upgrade().map_or(0, |vfs| vfs.stats().dirty_bytes);
        eprintln!("weft: {why}; {left} bytes of changes in memory could not be committed and are lost");
        std::process::exit(1);
    };
    std::thread::Builder::new().name("weft-held".into()).spawn(watch)?;
    Ok(())
}

fn vfs_options(arguments: &Mount) -> Result<Options> {
    let interval = Duration::try_from_secs_f64(arguments.commit_interval).ok().filter(|interval| !interval.is_zero());
    let Some(commit_interval) = interval else {
        return usage(format!("commit interval {} is not a number of seconds above 0", arguments.commit_interval));
    };
    Ok(Options {
        commit_interval,
        dirty_bytes_max: arguments.dirty_max.max(8 << 20),
        metadata_cache_bytes: arguments.metadata_cache,
        block_cache_bytes: arguments.block_cache,
        read_ahead_bytes: arguments.read_ahead,
        atime: match (arguments.noatime, arguments.strictatime) {
            (true, _) => AtimePolicy::Never,
            (_, true) => AtimePolicy::Always,
            _ => AtimePolicy::Relative,
        },
        read_only: arguments.read_only,
        background: true,
    })
}

fn session_options(arguments: &Mount) -> Result<SessionOptions> {
    Ok(SessionOptions {
        transport: transport(&arguments.transport)?,
        placement: placement(&arguments.placement)?,
        writeback: arguments.writeback,
        keep_awake: arguments.keep_awake,
        idle_policy: !arguments.no_idle_policy,
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
