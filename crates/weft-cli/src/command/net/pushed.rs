//! `weft net push`, `pop` and `show`: networks on files in use, by the ioctls of
//! `include/weft_net.h`.

use super::super::networks::{Names, expanded, of_mount, root_above, said};

use crate::arguments::OpenFile;
use crate::failure::usage;
use crate::mounted;
use crate::named::resolved;
use crate::shown;
use anyhow::{Context, Result, bail};
use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl, open};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use serde_json::json;
use std::ffi::OsString;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use weft_transform::Network;

/// Argument of the ioctls.
#[repr(C)]
struct Argument {
    scope: u32,
    length: u32,
    text: [u8; TEXT_BYTES],
}

const TEXT_BYTES: usize = 8184;

const OPENED: u32 = 0;
const EVERYBODY: u32 = 1;

const PUSH: Opcode = opcode::write::<Argument>(b'W', 1);
const POP: Opcode = opcode::write::<Argument>(b'W', 2);
const SHOW: Opcode = opcode::read_write::<Argument>(b'W', 3);

impl Argument {
    fn new(scope: u32, text: &[u8]) -> Result<Argument> {
        let mut argument = Argument { scope, length: u32::try_from(text.len())?, text: [0; TEXT_BYTES] };
        let room = argument.text.get_mut(..text.len());
        room.context("the network is too long: 8 KiB with the paths of its code")?.copy_from_slice(text);
        Ok(argument)
    }
}

/// A file in use.
struct Used {
    file: OwnedFd,
    scope: u32,
}

impl Used {
    fn find(wanted: &OpenFile) -> Result<Used> {
        let (file, scope) = match (&wanted.path, wanted.fd) {
            (Some(path), _) => {
                let file = open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty());
                (file.with_context(|| format!("cannot open {}", path.display()))?, EVERYBODY)
            }
            (None, Some(number)) => (opened(number, wanted.pid)?, OPENED),
            (None, None) => return usage("name a file, or with --fd one that is open".into()),
        };
        Ok(Used { file, scope })
    }

    fn call<const OPCODE: Opcode>(&self, argument: &mut Argument) -> Result<()> {
        // SAFETY: the three ioctls take and give an `Argument`, and nothing that it points to.
        let done = unsafe { ioctl(&self.file, Updater::<OPCODE, Argument>::new(argument)) };
        match done {
            Err(Errno::NOTTY) => bail!("it is no file of a mounted volume"),
            Err(Errno::OPNOTSUPP) if self.scope == OPENED && OPCODE == PUSH => bail!(
                "for one that has it open: the volume must be mounted so that the kernel tells of opens \
                 ('weft mount --opens'), and the network must leave the length as it is"
            ),
            Err(Errno::PERM) => bail!(
                "it is for the owner of the file, and of what the network uses, to say; and whose networks work, for \
                 who mounts the volume ('weft mount --links')"
            ),
            Err(Errno::INVAL) if OPCODE == POP => bail!("nothing is pushed there"),
            Err(Errno::INVAL) => {
                bail!(
                    "networks are pushed onto regular files alone, and such a network reads nothing but the file, and code \
                     that it runs (--code)"
                )
            }
            Err(Errno::BUSY) => bail!("somebody is writing all of it anew; try again when it is closed"),
            Err(Errno::LOOP) => bail!("too many are pushed there"),
            done => Ok(done?),
        }
    }
}

/// Returns the open file `number` of a process: of this one, inherited from its parent, or of
/// another.
fn opened(number: i32, pid: Option<i32>) -> Result<OwnedFd> {
    let pid = match pid {
        Some(pid) => Pid::from_raw(pid).with_context(|| format!("{pid} is no process"))?,
        None => rustix::process::getpid(),
    };
    let process = pidfd_open(pid, PidfdFlags::empty()).with_context(|| format!("there is no process {pid}"))?;
    match pidfd_getfd(&process, number, PidfdGetfdFlags::empty()) {
        Err(Errno::BADF) => bail!("process {pid} has nothing open as {number}"),
        Err(Errno::PERM) => bail!("process {pid} is not yours"),
        file => Ok(file?),
    }
}

/// Pushes `network`, which runs the code in these files.
pub fn push(wanted: &OpenFile, network: &str, code: &[OsString]) -> Result<()> {
    let used = Used::find(wanted)?;
    let names = if network.contains('@') { names_of(&used.file)? } else { Names::new() };
    let network = expanded(network, &names)?;
    if let Err(error) = Network::parse(&network) {
        return usage(said(&network, &error));
    }
    let device = rustix::fs::fstat(&used.file)?.st_dev;
    let mut text = network.into_bytes();
    for file in code {
        let path = resolved(Path::new(file))?;
        match mounted::in_volume(&path) {
            Some((path, at)) if at == device => {
                text.push(0);
                text.extend_from_slice(path.as_os_str().as_bytes());
            }
            _ => bail!("{} is not in the same volume", file.display()),
        }
    }
    used.call::<PUSH>(&mut Argument::new(used.scope, &text)?)?;
    if used.scope == OPENED {
        // The page cache is for everybody.
        fcntl_setfl(&used.file, fcntl_getfl(&used.file)? | OFlags::DIRECT)?;
    }
    Ok(())
}

/// Pops the network that was pushed last.
pub fn pop(wanted: &OpenFile) -> Result<()> {
    let used = Used::find(wanted)?;
    used.call::<POP>(&mut Argument::new(used.scope, b"")?)
}

/// Prints the pushed networks, the last first.
pub fn show(wanted: &OpenFile, as_json: bool) -> Result<()> {
    let used = Used::find(wanted)?;
    let mut argument = Argument::new(used.scope, b"")?;
    used.call::<SHOW>(&mut argument)?;
    let told = argument.text.get(..argument.length as usize).unwrap_or_default();
    let networks = told.split(|byte| *byte == 0).filter(|network| !network.is_empty());
    let networks: Vec<_> = networks.map(String::from_utf8_lossy).collect();
    if as_json {
        outln!("{:#}", json!(networks));
    } else {
        networks.iter().for_each(|network| outln!("{}", shown::message(network)));
    }
    Ok(())
}

/// Returns the named networks of the volume of `file`.
fn names_of(file: &impl std::os::fd::AsFd) -> Result<Names> {
    let file: BorrowedFd<'_> = file.as_fd();
    let path = std::fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file)))?;
    root_above(path.as_os_str())?.map_or_else(|| Ok(Names::new()), |root| of_mount(&root))
}
