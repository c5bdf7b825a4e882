//! A module that runs.

use super::engine::{Running, TABLE_MAX, TICK, engine, module, said};
use crate::exported::code::{AGAIN, Bounds, Code, ENDED, FAILED, Given, failure};
use crate::exported::idle::AllWaiting;
use crate::interrupt::is_interrupted;
use crate::stage::StageError;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use wasmtime::{InstancePre, Memory, ResourceLimiter, Store, Trap, TypedFunc, UpdateDeadline, WasmParams, WasmResults};
use weft_block::Buffer;

/// Bytes of memory that all modules have together.
const ALL_BYTES_MAX: usize = 2 << 30;
static ALL_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Bytes of memory that one which waits has at most.
const SMALL_BYTES: usize = 2 << 20;

/// Time that a module may take in all.
const ALL_TIME: Duration = Duration::from_hours(1);

/// A module that runs, on one stream.
pub(super) struct Instance {
    store: Store<Memories>,
    memory: Memory,
    input: TypedFunc<u32, u32>,
    advance: TypedFunc<(u32, u32, u32), u64>,
    message: Option<TypedFunc<(), u64>>,
    bounds: Bounds,
    left: Duration,
}

/// Memory that an instance has taken of the memory for all.
pub(super) struct Memories {
    taken: usize,
    max: usize,
    /// Bytes granted last, which it may not have got.
    granted: usize,
}

impl ResourceLimiter for Memories {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let more = desired.saturating_sub(current);
        self.granted = 0;
        if self.taken.saturating_add(more) > self.max {
            return Ok(false);
        }
        let fits = |all: usize| all.checked_add(more).filter(|all| *all <= ALL_BYTES_MAX);
        // What others take must not change what it gives, but end it.
        ALL_BYTES
            .try_update(Ordering::Relaxed, Ordering::Relaxed, fits)
            .map_err(|_| wasmtime::Error::msg("all modules together take as much memory as they may"))?;
        self.taken += more;
        self.granted = more;
        Ok(true)
    }

    fn memory_grow_failed(&mut self, _: wasmtime::Error) -> wasmtime::Result<()> {
        let granted = std::mem::take(&mut self.granted);
        self.taken -= granted;
        ALL_BYTES.fetch_sub(granted, Ordering::Relaxed);
        Ok(())
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(desired <= TABLE_MAX)
    }

    fn memories(&self) -> usize {
        1
    }
}

impl Drop for Memories {
    fn drop(&mut self) {
        ALL_BYTES.fetch_sub(self.taken, Ordering::Relaxed);
    }
}

impl Instance {
    /// Begins to run `module` with `words`, each ended by a NUL.
    pub(super) fn new(module: &InstancePre<Memories>, bounds: Bounds, words: &[u8]) -> Result<Instance, StageError> {
        let mut store = Store::new(engine()?, Memories { taken: 0, max: bounds.memory_bytes, granted: 0 });
        store.limiter(|memories| memories);
        let mut left = ALL_TIME;
        let instance = timed(&mut store, bounds.call, &mut left, |store| module.instantiate(store))?;
        let memory = instance
            .get_memory(&mut store, "memory")
            .ok_or_else(|| StageError::data("the module exports no 'memory'"))?;
        let input = function(&instance, &mut store, "weft_input")?.ok_or_else(|| missing("weft_input"))?;
        let advance = function(&instance, &mut store, "weft_advance")?.ok_or_else(|| missing("weft_advance"))?;
        let message = function(&instance, &mut store, "weft_message")?;
        let begin: Option<TypedFunc<(u32, u32), u32>> = function(&instance, &mut store, "weft_begin")?;
        let mut running = Instance { store, memory, input, advance, message, bounds, left };
        match begin {
            None if words.is_empty() => {}
            None => return Err(StageError::data("the module takes no arguments: it exports no 'weft_begin'")),
            Some(begin) => {
                let input = running.put(words)?;
                if running.call(&begin, input)? != 0 {
                    return Err(running.failure());
                }
            }
        }
        Ok(running)
    }

    fn call<P: WasmParams, R: WasmResults>(&mut self, of: &TypedFunc<P, R>, with: P) -> Result<R, StageError> {
        timed(&mut self.store, self.bounds.call, &mut self.left, |store| of.call(store, with))
    }

    /// Has `bytes` lie where the module wants them, and tells where, and how many they are.
    fn put(&mut self, bytes: &[u8]) -> Result<(u32, u32), StageError> {
        let len = u32::try_from(bytes.len()).map_err(|_| StageError::data("that is too much for a module"))?;
        let input = self.input.clone();
        let at = self.call(&input, len)?;
        let memory = self.memory.data_mut(&mut self.store);
        let place = range(at, len).and_then(|range| memory.get_mut(range));
        place.ok_or_else(|| outside("weft_input", at, len))?.copy_from_slice(bytes);
        Ok((at, len))
    }

    /// Returns the error with the module's failure message.
    fn failure(&mut self) -> StageError {
        let told = self.message.clone().and_then(|message| self.call(&message, ()).ok());
        let range = told.map(places).and_then(|(at, count)| range(at, count));
        failure::<Instance>(range.and_then(|range| self.memory.data(&self.store).get(range)))
    }
}

impl Code for Instance {
    const NAME: &'static str = "module";
    const IS_REPEATABLE: bool = true;
    const BYTES_MAX: usize = 4 << 20;
    const PIECE_BYTES: usize = 64 << 10;
    const IDLE_MAX: usize = 64;
    const BEGINNING: Duration = Duration::ZERO;

    fn waiting() -> &'static AllWaiting<Instance> {
        static WAITING: AllWaiting<Instance> = AllWaiting::new(Vec::new());
        &WAITING
    }

    fn begin(bytes: &[u8], digest: blake3::Hash, bounds: Bounds, words: &[u8]) -> Result<Instance, StageError> {
        Instance::new(&module(digest, bytes, bounds.owner)?, bounds, words)
    }

    fn advance(&mut self, input: &[u8], is_last: bool) -> Result<Given, StageError> {
        let (input, len) = if input.is_empty() { (0, 0) } else { self.put(input)? };
        let advance = self.advance.clone();
        let given = self.call(&advance, (input, len, u32::from(is_last)))?;
        if given == FAILED {
            return Err(self.failure());
        }
        let (at, count) = places(given);
        let range = range(at, count)
            .filter(|range| range.end <= self.memory.data_size(&self.store))
            .ok_or_else(|| outside("weft_advance", at, count))?;
        Ok(Given { range, has_more: given & AGAIN != 0, has_ended: given & ENDED != 0 })
    }

    fn copy(&self, range: Range<usize>) -> Buffer {
        // It was in the memory, which only grows.
        Buffer::copy_of(&self.memory.data(&self.store)[range])
    }

    fn rest(&mut self) -> bool {
        self.left = ALL_TIME;
        self.store.data().taken <= SMALL_BYTES
    }
}

/// Lets a module run until it is done, or its time is up.
fn timed<T>(
    store: &mut Store<Memories>,
    call: Duration,
    left: &mut Duration,
    run: impl FnOnce(&mut Store<Memories>) -> wasmtime::Result<T>,
) -> Result<T, StageError> {
    let time = call.min(*left);
    // Part of a tick has passed.
    let mut ticks = time.as_millis().div_ceil(TICK.as_millis()) + 1;
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(move |_| {
        ticks -= 1;
        match (ticks, is_interrupted()) {
            (_, true) => Err(StageError::Stopped.into()),
            (0, false) => Err(Trap::Interrupt.into()),
            _ => Ok(UpdateDeadline::Continue(1)),
        }
    });
    let _ticking = Running::begin()?;
    let begun = Instant::now();
    let done = run(store);
    *left = left.saturating_sub(begun.elapsed());
    done.map_err(|error| match (error.downcast_ref::<Trap>(), error.downcast_ref::<StageError>()) {
        (Some(Trap::Interrupt), _) => StageError::Idle(time),
        (_, Some(StageError::Stopped)) => StageError::Stopped,
        _ => StageError::data(format!("the module was stopped: {}", said(&error))),
    })
}

/// A function that the module may export.
fn function<P: WasmParams, R: WasmResults>(
    instance: &wasmtime::Instance,
    store: &mut Store<Memories>,
    name: &str,
) -> Result<Option<TypedFunc<P, R>>, StageError> {
    let Some(found) = instance.get_func(&mut *store, name) else { return Ok(None) };
    let wrong = |error: wasmtime::Error| StageError::data(format!("'{name}' of the module: {}", said(&error)));
    found.typed(&*store).map(Some).map_err(wrong)
}

fn missing(name: &str) -> StageError {
    StageError::data(format!("the module exports no '{name}'"))
}

fn outside(of: &str, at: u32, len: u32) -> StageError {
    StageError::data(format!("'{of}' of the module told of {len} bytes from {at} on, which are not in its memory"))
}

fn range(at: u32, len: u32) -> Option<Range<usize>> {
    let at = usize::try_from(at).ok()?;
    Some(at..at.checked_add(usize::try_from(len).ok()?)?)
}

/// Returns the address and the length of the bytes that a module tells of.
fn places(told: u64) -> (u32, u32) {
    let [at, len] = [told >> 32, told & (AGAIN - 1)];
    (u32::try_from(at).expect("32 bits"), u32::try_from(len).expect("30 bits"))
}
