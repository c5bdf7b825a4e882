//! Starter of processes that run libraries: it starts them, some before anybody wants them, and
//! waits for them to end.
//!
//! One thread does both, as long as this process runs: when a thread ends, processes that it
//! started are ended with it.

use super::process::{Image, PROCESSORS, Process};
use crate::exported::be_ordinary;
use crate::exported::code::Code;
use crate::exported::workers::decoders;
use crate::stage::StageError;
use parking_lot::Mutex;
use rustix::thread::sched_setaffinity;
use std::process::Child;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

/// Processes that run at once, at most, and bytes of memory that they may have together.
const PROCESSES_MAX: usize = 128;
const ALL_BYTES_MAX: usize = 8 << 30;

/// Processes that were started before anybody wants them, at most, and how long they wait to be
/// wanted.
const SPARE_MAX: usize = 8;
const SPARE_TIME: Duration = Duration::from_mins(1);

/// Parameters of a process.
#[derive(Clone)]
pub(super) struct Wanted {
    pub(super) image: Arc<Image>,
    pub(super) memory_bytes: usize,
    pub(super) call: Duration,
    /// The arguments.
    pub(super) words: Arc<[u8]>,
}

impl Wanted {
    fn is_like(&self, other: &Wanted) -> bool {
        self.image.digest == other.image.digest
            && (self.memory_bytes, self.call, &self.words) == (other.memory_bytes, other.call, &other.words)
    }
}

/// One process's share of the processes and memory that all may have.
pub(super) struct Share {
    memory_bytes: usize,
}

struct All {
    processes: usize,
    memory_bytes: usize,
}

static ALL: Mutex<All> = Mutex::new(All { processes: 0, memory_bytes: 0 });

impl Share {
    fn of(memory_bytes: usize) -> Option<Share> {
        let mut all = ALL.lock();
        if all.processes == PROCESSES_MAX || all.memory_bytes + memory_bytes > ALL_BYTES_MAX {
            return None;
        }
        all.processes += 1;
        all.memory_bytes += memory_bytes;
        Some(Share { memory_bytes })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut all = ALL.lock();
        all.processes -= 1;
        all.memory_bytes -= self.memory_bytes;
    }
}

/// A process that nobody has wanted yet.
struct Spare {
    of: Wanted,
    process: Process,
    since: Instant,
}

static SPARE: Mutex<Vec<Spare>> = Mutex::new(Vec::new());

/// Interval at which processes that were killed are checked for their end.
const ENDING_TIME: Duration = Duration::from_millis(50);

enum Task {
    /// Start one, and hand it over.
    Start(Wanted, Share, SyncSender<Result<Process, StageError>>),
    /// Start one that somebody will want.
    Prepare(Wanted),
    /// Wait for one that was killed.
    Wait(Child),
    /// Anything else.
    Other(Box<dyn FnOnce() + Send>),
}

static TASKS: LazyLock<Option<Sender<Task>>> = LazyLock::new(|| {
    let (sender, receiver) = channel();
    let begun = thread::Builder::new().name("weft-libraries".into()).spawn(move || work(&receiver));
    begun.is_ok().then_some(sender)
});

/// A process that runs what is wanted, and answers when it is ready; with `goes_on`, another one
/// like it will be wanted soon.
pub(super) fn take(wanted: Wanted, goes_on: bool) -> Result<Process, StageError> {
    let spare = {
        let mut spare = SPARE.lock();
        spare.iter().position(|spare| spare.of.is_like(&wanted)).map(|at| spare.remove(at).process)
    };
    let spare = spare.and_then(|mut process| (!process.has_ended()).then_some(process));
    let was_ready = spare.is_some();
    let tasks = TASKS.as_ref().ok_or_else(|| StageError::data("there is no thread to start processes"))?;
    let stopped = || StageError::data("the thread that starts processes has ended");
    let process = match spare {
        Some(process) => process,
        None => {
            let share = Share::of(wanted.memory_bytes).or_else(|| {
                // Whoever waits is worth less than who is wanted.
                let spare = std::mem::take(&mut *SPARE.lock());
                let idle = std::mem::take(&mut *Process::waiting().lock());
                drop((spare, idle));
                Share::of(wanted.memory_bytes)
            });
            let share = share.ok_or_else(|| {
                let gib = ALL_BYTES_MAX >> 30;
                StageError::Busy(format!(
                    "there are {PROCESSES_MAX} processes of libraries already, or they may have {gib} GiB together"
                ))
            })?;
            let (sender, receiver) = sync_channel(1);
            tasks.send(Task::Start(wanted.clone(), share, sender)).map_err(|_| stopped())?;
            receiver.recv().map_err(|_| stopped())??
        }
    };
    if goes_on || was_ready {
        // Without one it only takes longer.
        let _ = tasks.send(Task::Prepare(wanted));
    }
    Ok(process)
}

/// Has `work` done by the thread that starts processes, after what it was told before. False if it
/// is not there.
pub(in crate::exported) fn later(work: impl FnOnce() + Send + 'static) -> bool {
    TASKS.as_ref().is_some_and(|tasks| tasks.send(Task::Other(Box::new(work))).is_ok())
}

/// Waits, later, for a process that was killed.
pub(in crate::exported) fn wait_for(child: Child) {
    let Some(tasks) = TASKS.as_ref() else { return };
    if let Err(unsent) = tasks.send(Task::Wait(child))
        && let Task::Wait(mut child) = unsent.0
    {
        let _ = child.wait();
    }
}

fn work(tasks: &Receiver<Task>) {
    be_ordinary();
    // If it cannot be, it is only slower.
    let _ = sched_setaffinity(None, &PROCESSORS);
    let mut ending: Vec<Child> = Vec::new();
    let mut decoders_time = None;
    loop {
        let patience = if ending.is_empty() { decoders_time.unwrap_or(SPARE_TIME / 4) } else { ENDING_TIME };
        match tasks.recv_timeout(patience) {
            Ok(Task::Start(wanted, share, to)) => {
                // Whoever wanted it may be gone.
                let _ = to.send(Process::start(&wanted, share));
            }
            Ok(Task::Prepare(wanted)) => prepare(wanted),
            Ok(Task::Wait(child)) => ending.push(child),
            Ok(Task::Other(work)) => work(),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        ending.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        // They are dropped when nobody holds the lock any more: that is a task for this thread.
        let old: Vec<Spare> = SPARE.lock().extract_if(.., |spare| spare.since.elapsed() > SPARE_TIME).collect();
        drop(old);
        decoders_time = decoders::drop_old();
    }
}

fn prepare(wanted: Wanted) {
    if SPARE.lock().iter().any(|spare| spare.of.is_like(&wanted)) {
        return;
    }
    let process = Share::of(wanted.memory_bytes).and_then(|share| Process::start(&wanted, share).ok());
    if let Some(process) = process {
        let mut spare = SPARE.lock();
        spare.push(Spare { of: wanted, process, since: Instant::now() });
        let oldest = (spare.len() > SPARE_MAX).then(|| spare.remove(0));
        drop(spare);
        drop(oldest);
    }
}
