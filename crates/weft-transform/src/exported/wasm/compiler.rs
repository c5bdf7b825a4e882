//! Compiling in a process of its own: a module of a few MiB can be written so that it takes
//! gigabytes and minutes. The process is confined as those of libraries are, has bounds on memory
//! and time, and ends when nobody waits for it any more.
//!
//! Any program that runs libraries ([`worker::set_program`]) can be it. It has two files: the
//! module, as standard input, and a pipe, as standard output, for what is made of it. In a program
//! that cannot be it modules are compiled where they are wanted, without bounds.

use super::engine::{compiling, said};
use crate::exported::close_all_but_standard;
use crate::exported::library::Image;
use crate::exported::workers::{sandbox, worker};
use crate::interrupt::{PERIOD, is_interrupted};
use crate::stage::StageError;
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, setrlimit};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The first argument of such a process.
pub(in crate::exported) const WORD: &str = "compile-module";

/// Bytes of memory that compiling may take beyond what the process begins with, seconds of a
/// processor, and bytes of what is made.
const MEMORY_BYTES: usize = 256 << 20;
const SECONDS: u64 = 20;
const MADE_BYTES_MAX: usize = 32 << 20;

/// Time that it may take by the clock, where others want the processors, too.
const TIME: Duration = Duration::from_mins(2);

/// Modules that are compiled at once: of one user, and of all.
const OF_ONE_MAX: usize = 1;
const OF_ALL_MAX: usize = 4;

/// Comes before what is made of a module, or before what is wrong with it.
const MADE: u8 = 1;
const REFUSED: u8 = 0;

/// Reason why a module is not compiled.
pub(super) enum Failure {
    /// It is its own fault, and would be another time.
    Own(String),
    /// It may be compiled another time.
    Now(StageError),
}

/// The users for whom modules are compiled now, once for each module.
static COMPILING: Mutex<Vec<u32>> = Mutex::new(Vec::new());
static COMPILED: Condvar = Condvar::new();

/// The turn of a user to have a module compiled.
struct Turn(u32);

impl Turn {
    /// Waits until it comes. `Busy`, `Stopped`.
    fn of(owner: u32) -> Result<Turn, StageError> {
        let begun = Instant::now();
        let mut compiling = COMPILING.lock();
        let is_free =
            |all: &[u32]| all.len() < OF_ALL_MAX && all.iter().filter(|other| **other == owner).count() < OF_ONE_MAX;
        while !is_free(&compiling) {
            if is_interrupted() {
                return Err(StageError::Stopped);
            }
            if begun.elapsed() > TIME {
                return Err(StageError::Busy("other modules have been compiled for too long".into()));
            }
            COMPILED.wait_for(&mut compiling, PERIOD);
        }
        compiling.push(owner);
        Ok(Turn(owner))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut compiling = COMPILING.lock();
        if let Some(at) = compiling.iter().position(|owner| *owner == self.0) {
            compiling.swap_remove(at);
        }
        COMPILED.notify_all();
    }
}

/// Compiles the module `bytes`, of this digest, for user `owner`.
pub(super) fn compile(bytes: &[u8], digest: blake3::Hash, owner: u32) -> Result<Vec<u8>, Failure> {
    let _turn = Turn::of(owner).map_err(Failure::Now)?;
    let Some(program) = worker::program() else {
        let engine = compiling().map_err(Failure::Own)?;
        return engine.precompile_module(bytes).map_err(|error| Failure::Own(no_module(&error)));
    };
    let image = Image::of(bytes, digest).map_err(Failure::Now)?;
    let mut command = Command::new(program);
    command.arg(WORD).arg(MEMORY_BYTES.to_string()).env_clear().current_dir("/").process_group(0);
    let unusable =
        |error: io::Error| Failure::Now(StageError::data(format!("the process of a compiler cannot be used: {error}")));
    command.stdin(Stdio::from(image.file().try_clone().map_err(unusable)?));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().map_err(unusable)?;
    Compiler { child }.result()
}

fn no_module(error: &wasmtime::Error) -> String {
    format!("this is no WebAssembly module: {}", said(error))
}

/// A process that compiles. It ends when this goes.
struct Compiler {
    child: Child,
}

impl Drop for Compiler {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

impl Compiler {
    fn result(mut self) -> Result<Vec<u8>, Failure> {
        let told = self.told()?;
        let status = self.child.wait().ok();
        match (told.split_first(), status) {
            (Some((&MADE, made)), Some(status)) if status.success() => Ok(made.to_vec()),
            (Some((&REFUSED, why)), Some(status)) if status.success() => {
                Err(Failure::Own(String::from_utf8_lossy(why).into_owned()))
            }
            // It was out of memory, or of time.
            (_, Some(status)) if matches!(status.signal(), Some(libc::SIGABRT | libc::SIGXCPU | libc::SIGSEGV)) => Err(
                Failure::Own(format!("compiling it takes more than {SECONDS} seconds or {} MiB", MEMORY_BYTES >> 20)),
            ),
            (_, status) => {
                let how = status.map(|status| status.to_string()).unwrap_or_default();
                Err(Failure::Now(StageError::data(format!("the compiler's process has ended with {how}"))))
            }
        }
    }

    /// All that it says, within its time.
    fn told(&mut self) -> Result<Vec<u8>, Failure> {
        let begun = Instant::now();
        let stop = |error| Err(Failure::Now(error));
        let mut told = Vec::new();
        let mut part = vec![0; 64 << 10];
        let stdout = self.child.stdout.as_mut().expect("it is a pipe");
        let wait = Timespec { tv_sec: 0, tv_nsec: PERIOD.subsec_nanos().into() };
        loop {
            if is_interrupted() {
                return stop(StageError::Stopped);
            }
            if begun.elapsed() > TIME {
                return stop(StageError::Idle(TIME));
            }
            match poll(&mut [PollFd::new(stdout, PollFlags::IN)], Some(&wait)) {
                Ok(0) | Err(Errno::INTR) => continue,
                Ok(_) => {}
                Err(error) => return stop(StageError::Temporary(error.into())),
            }
            let count = stdout.read(&mut part).map_err(|error| Failure::Now(error.into()))?;
            if count == 0 {
                return Ok(told);
            }
            told.extend_from_slice(&part[..count]);
            if told.len() > MADE_BYTES_MAX {
                let mib = MADE_BYTES_MAX >> 20;
                return Err(Failure::Own(format!("it takes more than {mib} MiB when it is compiled")));
            }
        }
    }
}

/// Reads all of `file`, independently of the position that others who have it share.
fn all_of(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// Compiles the module that is standard input, and says what came of it.
pub(in crate::exported) fn run(memory_bytes: usize) -> io::Result<()> {
    // SAFETY: whoever started this process has given it these files, for this. Nothing else in it
    // uses them: it has only begun.
    let (module, mut to) = unsafe { (File::from_raw_fd(0), File::from(OwnedFd::from_raw_fd(1))) };
    // SAFETY: nothing in this process uses other files yet.
    unsafe { close_all_but_standard() }?;
    let mut say = |kind: u8, what: &[u8]| to.write_all(&[kind]).and_then(|()| to.write_all(what));
    // What the engine asks of the kernel it asks when it is made.
    let prepared = compiling().and_then(|engine| {
        let bytes = all_of(&module).map_err(|error| error.to_string())?;
        let time = Rlimit { current: Some(SECONDS), maximum: Some(SECONDS + 1) };
        setrlimit(Resource::Cpu, time).map_err(|error| error.to_string())?;
        sandbox::bounded(memory_bytes)?;
        // Where the kernel cannot, it compiles as any compiler does.
        let _ = sandbox::after_loading();
        Ok((engine, bytes))
    });
    let (engine, bytes) = match prepared {
        Ok(prepared) => prepared,
        // That is no fault of the module.
        Err(error) => return Err(io::Error::other(error)),
    };
    match engine.precompile_module(&bytes) {
        Ok(made) => say(MADE, &made),
        Err(error) => say(REFUSED, no_module(&error).as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_a_module_compiled_holds_up_nobody_else() {
        let (mine, another) = (Turn::of(1).unwrap(), Turn::of(2).unwrap());
        let waits = std::thread::spawn(|| crate::interrupt::during(|| true, || Turn::of(1).is_err()));
        assert!(waits.join().unwrap(), "one of mine is enough, and who is interrupted waits no longer");
        drop(mine);
        drop((Turn::of(1).unwrap(), another));
    }
}
