//! Stages that are code in a file: their options, and instances that wait for more to do.

use super::code::{Bounds, Code};
use super::stream::Stream;
use crate::arguments::Arguments;
use crate::flow::{Input, Output};
use crate::language::{Call, NetworkError};
use crate::network::Network;
use crate::run::Sources;
use crate::stage::{Keeps, Progress, Running, Stage, StageError};
use blake3::Hash;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Seconds that code may take for a piece, unless it is told otherwise; and the most it can be told.
const CALL_SECONDS: u64 = 10;
const CALL_SECONDS_MAX: u64 = 3600;

/// MiB of memory that code may have, unless it is told otherwise; and the most it can be told.
const MEMORY_MIB: usize = 64;
pub(super) const MEMORY_MIB_MAX: usize = 1024;

/// The stage that `call` is, of code of this kind.
pub(super) fn stage<C: Code>(call: &Call) -> Result<Stage, NetworkError> {
    let mut arguments = Arguments::with_files(call, "lp", "mtu")?;
    let at = |option| arguments.word(option).map_or(call.name.at, |word| word.at);
    let seconds = arguments.value('t', "a number of seconds")?.unwrap_or(CALL_SECONDS);
    if !(1..=CALL_SECONDS_MAX).contains(&seconds) {
        let message = format!("a {} can have 1 to {CALL_SECONDS_MAX} seconds for a piece", C::NAME);
        return Err(NetworkError::new(message, at('t')));
    }
    let mib = arguments.value('m', "a number of MiB")?.unwrap_or(MEMORY_MIB);
    if !(1..=MEMORY_MIB_MAX).contains(&mib) {
        return Err(NetworkError::new(format!("a {} can have 1 to {MEMORY_MIB_MAX} MiB", C::NAME), at('m')));
    }
    let inverse = arguments.word('u').map(|word| {
        let wrong = |error| NetworkError::new(format!("what undoes it makes no sense: {error} of it"), word.at);
        let network = Network::parse(&word.text).map_err(wrong)?;
        if network.reads_files() {
            return Err(NetworkError::new("what undoes it takes no files but modules and libraries", word.at));
        }
        Ok((word.text.clone(), network))
    });
    let inverse = inverse.transpose()?;
    let file = arguments.file(&format!("a file that holds a {}", C::NAME))?;
    let mut words = Vec::new();
    while let Some(word) = arguments.optional() {
        words.extend_from_slice(word.text.as_bytes());
        words.push(0);
    }
    let place = arguments.has('p');
    let keeps = Keeps { length: place || arguments.has('l'), place };
    let bounds = Bounds { call: Duration::from_secs(seconds), memory_bytes: mib << 20, length: keeps.length, place };
    let undone = inverse.iter().flat_map(|(_, network)| network.modules().iter().copied());
    let modules = [file].into_iter().chain(undone).collect();
    let idle = Arc::new(Idle::<C>(Mutex::default()));
    let start = move |sources: &mut dyn Sources| {
        let bytes = read::<C>(sources, file)?;
        let digest = blake3::hash(&bytes);
        let code = idle.take(digest).map_or_else(|| C::begin(&bytes, digest, bounds, &words), Ok)?;
        Ok(Lent { stream: Some(Stream::new(code, bounds)), digest, idle: place.then(|| idle.clone()) })
    };
    let inverse = inverse.map(|(text, _)| text);
    Ok(Stage { keeps, inverse, modules, is_exported: true, ..Stage::reading(start) })
}

/// Instances that wait for other parts of what they work on: those that make each byte of one alone need not begin anew for each part.
struct Idle<C: Code>(Mutex<Vec<(Hash, C)>>);

impl<C: Code> Idle<C> {
    /// One of the code with this digest, if there is any. Others are of no use any more.
    fn take(&self, digest: Hash) -> Option<C> {
        let mut idle = self.0.lock();
        let before = idle.len();
        idle.retain(|(of, _)| *of == digest);
        let taken = idle.pop().map(|(_, code)| code);
        C::idle().fetch_sub(before - idle.len(), Ordering::Relaxed);
        taken
    }

    fn put(&self, digest: Hash, code: C) {
        let mut idle = self.0.lock();
        let fits = |all| Some(all + 1).filter(|all| *all <= C::ALL_IDLE_MAX);
        if idle.len() < C::IDLE_MAX && C::idle().try_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok() {
            idle.push((digest, code));
        }
    }
}

impl<C: Code> Drop for Idle<C> {
    fn drop(&mut self) {
        C::idle().fetch_sub(self.0.get_mut().len(), Ordering::Relaxed);
    }
}

/// Code that runs, and waits for more when it is done.
struct Lent<C: Code> {
    /// None once it has failed.
    stream: Option<Stream<C>>,
    digest: Hash,
    /// Where it waits, if it may.
    idle: Option<Arc<Idle<C>>>,
}

impl<C: Code> Running for Lent<C> {
    fn advance(&mut self, input: &mut Input, output: &mut Output) -> Result<Progress, StageError> {
        let Some(stream) = &mut self.stream else { return Ok(Progress::Ended) };
        let progress = stream.advance(input, output);
        if matches!(progress, Err(_) | Ok(Progress::Ended)) {
            let code = self.stream.take().filter(|_| progress.is_ok() && self.idle.is_some());
            if let (Some(idle), Some(code)) = (&self.idle, code.and_then(Stream::into_code)) {
                idle.put(self.digest, code);
            }
        }
        progress
    }
}

/// All of file `number`.
fn read<C: Code>(sources: &mut dyn Sources, number: usize) -> Result<Vec<u8>, StageError> {
    let mut source = sources.file(number).map_err(StageError::Source)?;
    let mut bytes = Vec::new();
    while let Some(slice) = source.next().map_err(StageError::Source)? {
        bytes.extend_from_slice(&slice);
        if bytes.len() > C::BYTES_MAX {
            return Err(StageError::data(format!("a {} has at most {} MiB", C::NAME, C::BYTES_MAX >> 20)));
        }
    }
    Ok(bytes)
}
