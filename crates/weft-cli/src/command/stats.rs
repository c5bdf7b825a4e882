//! `weft stats`.

mod operations;
mod rates;
mod summary;

use crate::arguments::Stats;
use crate::daemons::{self, Running};
use crate::mounted;
use crate::output;
use crate::shown;
use anyhow::{Context, Result, anyhow, bail};
use operations::Counted;
use rates::Rates;
use rustix::io::Errno;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use weft_attributes::Attribute;
use weft_store::Location;

/// Prints the counters of a mount or a server.
pub fn run(arguments: &Stats) -> Result<ExitCode> {
    if arguments.operations {
        return print_operations(arguments);
    }
    let mut rates = Rates::default();
    loop {
        let stats = of(&arguments.named)?;
        match (arguments.json, arguments.watch) {
            (true, _) => outln!("{stats}"),
            (false, true) => rates.print(stats),
            (false, false) => summary::print(&stats),
        }
        if !goes_on(arguments) {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// Waits for the next look, if there is to be one.
fn goes_on(arguments: &Stats) -> bool {
    if !arguments.watch || output::has_failed() {
        return false;
    }
    #[expect(clippy::disallowed_methods, reason = "the user asked for one look each second")]
    std::thread::sleep(Duration::from_secs(1));
    true
}

/// Prints who does what. That is told to the user of the daemon alone.
fn print_operations(arguments: &Stats) -> Result<ExitCode> {
    let mut before = None;
    loop {
        let counted = Counted::of(&daemon_of(&arguments.named)?)?;
        let has_rates = before.is_some();
        if has_rates || !arguments.watch {
            counted.print(before.as_ref(), arguments.json);
        }
        if !goes_on(arguments) {
            return Ok(ExitCode::SUCCESS);
        }
        if has_rates && !arguments.json {
            outln!("");
        }
        before = Some(counted);
    }
}

/// Finds the daemon of the volume that is mounted at `named`, or that it names, or that is served
/// there.
fn daemon_of(named: &Path) -> Result<Running> {
    if mounted::is_mount_point(named) {
        return daemons::mounting(&named.canonicalize()?)?.ok_or_else(|| daemons::unasked(named));
    }
    daemons::of(named)?.ok_or_else(|| {
        let named = shown::path(named);
        anyhow!("no daemon of this user mounts or serves {named}; 'weft status' lists what they do")
    })
}

/// Returns the counters of the volume that is mounted at `named`; or of the one that it names, or
/// that is served there, if a daemon of this user has it.
fn of(named: &Path) -> Result<Value> {
    let of_mount = match named.to_str() {
        Some(text) if text.parse::<SocketAddr>().is_ok() => None,
        _ if Location::parse(named)?.address().is_some() => None,
        _ => Some(read(named)),
    };
    if let Some(Ok(stats)) = of_mount {
        return Ok(stats);
    }
    match (of_mount, daemons::of(named)) {
        (_, Ok(Some(daemon))) => daemon.told("/stats"),
        (Some(stats), _) => stats,
        (None, Err(error)) => Err(error),
        (None, Ok(None)) => {
            let named = Location::parse(named)?;
            bail!("no daemon of this user serves {named}; 'weft status' lists what they serve")
        }
    }
}

/// Longest wait for the kernel's answer about a mount.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// Answers of the kernel once the daemon has ended; "canceled" while it is ending.
const ENDED: [Errno; 3] = [Errno::NOTCONN, Errno::CONNABORTED, Errno::CANCELED];

/// True if the mount at `directory` has lost its daemon. The kernel may still have its attributes
/// cached, so this asks for data that only the daemon has.
pub fn is_dead(directory: &Path) -> bool {
    let mut nothing: [u8; 0] = [];
    rustix::fs::getxattr(directory, Attribute::Stats.name(), &mut nothing[..])
        .is_err_and(|error| ENDED.contains(&error))
}

/// Returns those of `directories` where the mount has lost its daemon, as far as the kernel tells
/// that soon: a daemon that does not answer holds up nobody here.
pub fn dead_among(directories: Vec<PathBuf>) -> Vec<PathBuf> {
    let (tell, told) = channel();
    let mut asked = 0;
    for directory in directories {
        let tell = tell.clone();
        let ask = move || drop(tell.send((is_dead(&directory), directory)));
        // It ends with this process, whatever it waits for.
        asked += usize::from(std::thread::Builder::new().spawn(ask).is_ok());
    }
    let until = Instant::now() + ANSWER_MAX;
    let answers = (0..asked).map_while(|_| told.recv_timeout(until.saturating_duration_since(Instant::now())).ok());
    answers.filter(|(is_dead, _)| *is_dead).map(|(_, directory)| directory).collect()
}

/// Returns the report of the daemon of the mount at `directory`.
pub fn read(directory: &Path) -> Result<Value> {
    let mut buffer = vec![0; 64 << 10];
    let len = match rustix::fs::getxattr(directory, Attribute::Stats.name(), &mut buffer) {
        Ok(len) => len,
        Err(error) if ENDED.contains(&error) => {
            bail!("{}", mounted::dead_at(directory))
        }
        Err(Errno::NOENT) => bail!("there is no directory {}", directory.display()),
        Err(Errno::ACCESS) => bail!("no permission to look at {}", directory.display()),
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOTDIR) => {
            bail!("{}", mounted::no_mount(directory))
        }
        Err(error) => bail!("cannot ask the daemon of {}: {error}", directory.display()),
    };
    // Any user may give a directory such an attribute.
    let device = rustix::fs::stat(directory).map(|stat| stat.st_dev);
    if !device.is_ok_and(|device| mounted::devices().contains(&device)) {
        bail!("{}", mounted::no_mount(directory));
    }
    serde_json::from_slice(&buffer[..len]).context("the daemon's answer cannot be read")
}
