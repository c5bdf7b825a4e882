//! A process that runs a library, as this process sees it.

use super::{loaded, started};
use crate::exported::workers::area::{Area, INPUT_BYTES};
use crate::exported::workers::channel::{Broken, Channel, SOON};
use crate::exported::workers::message::Reply;
use crate::exported::workers::worker;
use crate::stage::StageError;
use blake3::Hash;
use parking_lot::Mutex;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

/// Time after which a process is not used for another stream: in all it has an hour of a processor
/// ([`crate::exported::confined`]).
const USED_TIME: Duration = Duration::from_mins(30);

/// Time that a library may take in all, for one stream.
const ALL_TIME: Duration = Duration::from_hours(1);

/// Processors that this process may run on.
pub(super) static PROCESSORS: LazyLock<CpuSet> =
    LazyLock::new(|| sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new()));

/// Finds out where this process may run, if nobody has done it yet.
pub(in crate::exported) fn know_processors() {
    LazyLock::force(&PROCESSORS);
}

/// Libraries that lie in memory, for processes that begin to run them.
const IMAGES_MAX: usize = 8;
static IMAGES: Mutex<Vec<Arc<Image>>> = Mutex::new(Vec::new());

/// A library, in memory, where nothing changes it.
pub(in crate::exported) struct Image {
    pub(super) digest: Hash,
    file: File,
}

impl Image {
    /// The one that `bytes` are, of this digest.
    pub(in crate::exported) fn of(bytes: &[u8], digest: Hash) -> Result<Arc<Image>, StageError> {
        let mut images = IMAGES.lock();
        let known = images.iter().position(|image| image.digest == digest).map(|at| images.remove(at));
        let image = match known {
            Some(image) => image,
            None => Arc::new(Image::new(bytes, digest).map_err(unusable)?),
        };
        images.push(image.clone());
        if images.len() > IMAGES_MAX {
            images.remove(0);
        }
        Ok(image)
    }

    #[cfg(feature = "wasm")]
    pub(in crate::exported) fn file(&self) -> &File {
        &self.file
    }

    fn new(bytes: &[u8], digest: Hash) -> io::Result<Image> {
        let mut file = File::from(memfd_create("weft-library", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
        file.write_all(bytes)?;
        fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(Image { digest, file })
    }
}

/// A process that runs a library. It ends when this goes.
pub(super) struct Process {
    /// None once it has been waited for.
    child: Option<Child>,
    channel: Channel,
    /// Its share of what all may have.
    _share: started::Share,
    /// Time for one order, and what is left of the time for all.
    call: Duration,
    left: Duration,
    /// Time that earlier streams have used of it.
    used: Duration,
    /// The one processor that it is to run on, if it is.
    processor: Option<usize>,
}

impl Process {
    /// Starts one. It answers when it has loaded the library, and the library has taken the
    /// arguments, or has failed at that.
    pub(super) fn start(wanted: &started::Wanted, share: started::Share) -> Result<Process, StageError> {
        if wanted.words.len() > INPUT_BYTES {
            return Err(StageError::data("that is too much for a library"));
        }
        let (channel, other, theirs) = Channel::new().map_err(unusable)?;
        channel.area().put(0, &wanted.words);
        let program = worker::program().ok_or_else(|| StageError::data("this program cannot run libraries"))?;
        let mut command = Command::new(program);
        // What it does to confine itself it does once it runs: this process may have much memory,
        // and another must not begin as a copy of that.
        command.args([loaded::WORD, &wanted.memory_bytes.to_string()]).env_clear().current_dir("/").process_group(0);
        command
            .stdin(Stdio::from(other))
            .stdout(Stdio::from(theirs))
            .stderr(Stdio::from(wanted.image.file.try_clone().map_err(unusable)?));
        let child = command.spawn().map_err(|error| StageError::data(format!("cannot start a process: {error}")))?;
        let mut process = Process {
            child: Some(child),
            channel,
            _share: share,
            call: wanted.call,
            left: ALL_TIME,
            used: Duration::ZERO,
            processor: None,
        };
        process.order(wanted.words.len(), false)?;
        Ok(process)
    }

    /// Gives it `input`, at most [`INPUT_BYTES`], to do something with. It answers.
    pub(super) fn send(&mut self, input: &[u8], is_last: bool) -> Result<(), StageError> {
        self.channel.area().put(0, input);
        self.order(input.len(), is_last)
    }

    fn order(&mut self, len: usize, is_last: bool) -> Result<(), StageError> {
        self.come_near();
        self.channel.order(len, is_last).map_err(|broken| self.failed(broken))
    }

    /// Has it run on the processor where this thread is. While it works this thread waits, so they
    /// do not need two; and waking one that sleeps takes longer than most pieces do.
    fn come_near(&mut self) {
        let here = sched_getcpu();
        if self.processor != Some(here) {
            let mut processors = CpuSet::new();
            processors.set(here);
            self.run_on(&processors);
            self.processor = Some(here);
        }
    }

    /// Has it run where it can, as it takes long.
    fn go_anywhere(&mut self) {
        if self.processor.take().is_some() {
            self.run_on(&PROCESSORS);
        }
    }

    fn run_on(&self, processors: &CpuSet) {
        let pid = self.child.as_ref().and_then(|child| Pid::from_raw(i32::try_from(child.id()).ok()?));
        // Where it cannot be said, it only takes longer.
        let _ = pid.map(|pid| sched_setaffinity(Some(pid), processors));
    }

    /// Waits for its answer, within its time.
    pub(super) fn reply(&mut self) -> Result<Reply, StageError> {
        let time = self.call.min(self.left);
        let begun = Instant::now();
        let soon = self.channel.reply(SOON.min(time));
        let reply = match soon {
            Err(Broken::Late) if !time.saturating_sub(SOON).is_zero() => {
                self.go_anywhere();
                self.channel.reply(time.saturating_sub(SOON))
            }
            soon => soon,
        };
        self.left = self.left.saturating_sub(begun.elapsed());
        reply.map_err(|broken| match broken {
            Broken::Late => StageError::Idle(time),
            broken => self.failed(broken),
        })
    }

    fn failed(&mut self, broken: Broken) -> StageError {
        match broken {
            Broken::Ended => self.ended(),
            Broken::Late => StageError::Idle(self.call),
            Broken::Stopped => StageError::Stopped,
            Broken::Nonsense => StageError::data("the library's process answers what makes no sense"),
            Broken::Unusable(error) => unusable(error),
        }
    }

    /// Reaps the process, which is gone, and returns the error for its end.
    fn ended(&mut self) -> StageError {
        let status = self.child.take().and_then(|mut child| {
            // It may have closed its end only.
            let _ = child.kill();
            child.wait().ok()
        });
        let how = status.map(|status| status.to_string()).unwrap_or_default();
        StageError::data(format!("the library's process has ended with {how}"))
    }

    pub(super) fn has_ended(&mut self) -> bool {
        self.child.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)))
    }

    pub(super) fn area(&self) -> &Area {
        self.channel.area()
    }

    /// Begins to count its time anew. False if it has had too much already.
    pub(super) fn forget_time(&mut self) -> bool {
        self.used += ALL_TIME.saturating_sub(self.left);
        self.left = ALL_TIME;
        self.used < USED_TIME
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended.
            let _ = child.kill();
            started::wait_for(child);
        }
    }
}

/// Returns the error for a failure of the system.
fn unusable(error: impl Into<io::Error>) -> StageError {
    StageError::data(format!("the process of a library cannot be used: {}", error.into()))
}
