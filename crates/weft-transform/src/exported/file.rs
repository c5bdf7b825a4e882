//! Stages that are code in a file: their options, and how they begin.

use super::code::{Bounds, Code};
use super::idle::{Idle, Lent};
use super::stream::Stream;
use crate::arguments::Arguments;
use crate::language::{Call, NetworkError};
use crate::network::Network;
use crate::source::Sources;
use crate::stage::{Keeps, Stage, StageError};
use rustix::process::geteuid;
use std::sync::Arc;
use std::time::Duration;

/// Seconds that code may take for a piece, unless it is told otherwise; and the most it can be
/// told.
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
    let bounds =
        Bounds { call: Duration::from_secs(seconds), memory_bytes: mib << 20, length: keeps.length, place, owner: 0 };
    let undone = inverse.iter().flat_map(|(_, network)| network.modules().iter().copied());
    let modules = [file].into_iter().chain(undone).collect();
    let idle = Arc::new(Idle::<C>::new());
    let start = move |sources: &mut dyn Sources| {
        let owner = sources.owner().unwrap_or_else(|| geteuid().as_raw());
        let bounds = Bounds { owner, ..bounds };
        let begin = |(digest, bytes): (blake3::Hash, Vec<u8>)| C::begin(&bytes, digest, bounds, &words);
        if !place {
            return Ok(Lent::own(Stream::new(begin(read::<C>(sources, file)?)?, bounds)));
        }
        if let Some(stamp) = sources.stamp(file).map_err(StageError::Source)? {
            return idle.lend(stamp, bounds, || begin(read::<C>(sources, file)?));
        }
        let read = read::<C>(sources, file)?;
        idle.lend(*read.0.as_bytes(), bounds, || begin(read))
    };
    let inverse = inverse.map(|(text, _)| text);
    Ok(Stage { keeps, inverse, modules, is_exported: true, is_repeatable: C::IS_REPEATABLE, ..Stage::reading(start) })
}

/// All of file `number`, and its digest.
fn read<C: Code>(sources: &mut dyn Sources, number: usize) -> Result<(blake3::Hash, Vec<u8>), StageError> {
    let mut source = sources.file(number).map_err(StageError::Source)?;
    let mut bytes = Vec::new();
    while let Some(slice) = source.next().map_err(StageError::Source)? {
        bytes.extend_from_slice(&slice);
        if bytes.len() > C::BYTES_MAX {
            return Err(StageError::data(format!("a {} has at most {} MiB", C::NAME, C::BYTES_MAX >> 20)));
        }
    }
    Ok((blake3::hash(&bytes), bytes))
}
