//! WebAssembly modules as stages: code that reaches nothing but the bytes it is given, with bounds on its time and its memory.
//!
//! What a module exports is in docs/networks.md. It is given bytes by having them written into its memory, and gives others by saying where they lie in it,
//! from where they are copied: once in, once out. Whatever it says is looked at before it is believed.

mod engine;
mod instance;

use crate::arguments::Arguments;
use crate::flow::{Input, Output};
use crate::language::{Call, NetworkError};
use crate::network::Network;
use crate::run::Sources;
use crate::stage::{Keeps, Progress, Running, Stage, StageError};
use blake3::Hash;
use instance::{Bounds, Instance};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Seconds that a module may take for a piece of at most 64 KiB, unless it is told otherwise; and the most it can be told.
const CALL_SECONDS: u64 = 10;
const CALL_SECONDS_MAX: u64 = 3600;

/// MiB of memory that a module may have, unless it is told otherwise; and the most it can be told.
const MEMORY_MIB: usize = 64;
const MEMORY_MIB_MAX: usize = 1024;
const MEMORY_BYTES_MAX: usize = MEMORY_MIB_MAX << 20;

/// Instances of a stage that wait for more, at most.
const IDLE_MAX: usize = 2;

/// Those of all stages.
const ALL_IDLE_MAX: usize = 64;
static IDLE: AtomicUsize = AtomicUsize::new(0);

/// Longest module, in bytes.
const MODULE_BYTES_MAX: usize = 4 << 20;

pub(crate) fn wasm(call: &Call) -> Result<Stage, NetworkError> {
    let mut arguments = Arguments::with_files(call, "lp", "mtu")?;
    let at = |option| arguments.word(option).map_or(call.name.at, |word| word.at);
    let seconds = arguments.value('t', "a number of seconds")?.unwrap_or(CALL_SECONDS);
    if !(1..=CALL_SECONDS_MAX).contains(&seconds) {
        let message = format!("a module can have 1 to {CALL_SECONDS_MAX} seconds for a piece");
        return Err(NetworkError::new(message, at('t')));
    }
    let mib = arguments.value('m', "a number of MiB")?.unwrap_or(MEMORY_MIB);
    if !(1..=MEMORY_MIB_MAX).contains(&mib) {
        return Err(NetworkError::new(format!("a module can have 1 to {MEMORY_MIB_MAX} MiB"), at('m')));
    }
    let inverse = arguments.word('u').map(|word| {
        let wrong = |error| NetworkError::new(format!("what undoes it makes no sense: {error} of it"), word.at);
        let network = Network::parse(&word.text).map_err(wrong)?;
        if network.reads_files() {
            return Err(NetworkError::new("what undoes it takes no files but modules", word.at));
        }
        Ok((word.text.clone(), network))
    });
    let inverse = inverse.transpose()?;
    let file = arguments.file("a file that holds a module")?;
    let mut words = Vec::new();
    while let Some(word) = arguments.optional() {
        words.extend_from_slice(word.text.as_bytes());
        words.push(0);
    }
    let place = arguments.has('p');
    let keeps = Keeps { length: place || arguments.has('l'), place };
    let bounds = Bounds { call: Duration::from_secs(seconds), memory_bytes: mib << 20, length: keeps.length };
    let undone = inverse.iter().flat_map(|(_, network)| network.modules().iter().copied());
    let modules = [file].into_iter().chain(undone).collect();
    let idle = Arc::new(Idle::default());
    let start = move |sources: &mut dyn Sources| {
        let module = read(sources, file)?;
        let digest = blake3::hash(&module);
        let begin = || Instance::new(&engine::module(digest, &module)?, bounds, &words);
        let instance = idle.take(digest).map_or_else(begin, Ok)?;
        Ok(Lent { instance: Some(instance), digest, idle: place.then(|| idle.clone()) })
    };
    let inverse = inverse.map(|(text, _)| text);
    Ok(Stage { keeps, inverse, modules, is_exported: true, ..Stage::reading(start) })
}

/// Instances that wait for other parts of what they work on: those that make each byte of one alone need not begin anew for each part.
#[derive(Default)]
struct Idle(Mutex<Vec<(Hash, Instance)>>);

impl Idle {
    /// One of the module with this digest, if there is any. Others are of no use any more.
    fn take(&self, digest: Hash) -> Option<Instance> {
        let mut idle = self.0.lock();
        let before = idle.len();
        idle.retain(|(of, _)| *of == digest);
        let taken = idle.pop().map(|(_, instance)| instance);
        IDLE.fetch_sub(before - idle.len(), Ordering::Relaxed);
        taken
    }

    fn put(&self, digest: Hash, instance: Instance) {
        let mut idle = self.0.lock();
        let fits = |all| Some(all + 1).filter(|all| *all <= ALL_IDLE_MAX);
        if idle.len() < IDLE_MAX && IDLE.try_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok() {
            idle.push((digest, instance));
        }
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        IDLE.fetch_sub(self.0.get_mut().len(), Ordering::Relaxed);
    }
}

/// A module that runs, and waits for more when it is done.
struct Lent {
    /// None once it has failed.
    instance: Option<Instance>,
    digest: Hash,
    /// Where it waits, if it may.
    idle: Option<Arc<Idle>>,
}

impl Running for Lent {
    fn advance(&mut self, input: &mut Input, output: &mut Output) -> Result<Progress, StageError> {
        let Some(instance) = &mut self.instance else { return Ok(Progress::Ended) };
        let progress = instance.advance(input, output);
        if progress.is_err() {
            self.instance = None;
        } else if progress.as_ref().is_ok_and(|progress| *progress == Progress::Ended) {
            let waits = self.instance.take().filter(Instance::is_small);
            if let (Some(idle), Some(mut instance)) = (&self.idle, waits) {
                instance.reset();
                idle.put(self.digest, instance);
            }
        }
        progress
    }
}

/// All of file `number`.
fn read(sources: &mut dyn Sources, number: usize) -> Result<Vec<u8>, StageError> {
    let mut source = sources.file(number).map_err(StageError::Source)?;
    let mut bytes = Vec::new();
    while let Some(slice) = source.next().map_err(StageError::Source)? {
        bytes.extend_from_slice(&slice);
        if bytes.len() > MODULE_BYTES_MAX {
            return Err(StageError::data(format!("a module has at most {} MiB", MODULE_BYTES_MAX >> 20)));
        }
    }
    Ok(bytes)
}
