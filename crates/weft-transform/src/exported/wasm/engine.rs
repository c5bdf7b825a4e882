//! State that all modules share: the engine, modules compiled once each, and the clock that ends
//! their time.

use super::MEMORY_BYTES_MAX;
use super::compiler::{self, Failure};
use super::instance::Memories;
use crate::exported::be_ordinary;
use crate::interrupt::{PERIOD, is_interrupted};
use crate::stage::StageError;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Duration;
use wasmtime::{Config, Engine, InstancePre, Linker, Module, PoolingAllocationConfig};

/// Interval at which running modules check whether their time is up.
pub(super) const TICK: Duration = Duration::from_millis(100);

/// Modules that are kept compiled, and how many bytes of them.
const MODULES_MAX: usize = 64;
const MODULE_BYTES_MAX: usize = 64 << 20;

/// Bytes of stack that a module may take.
const STACK_BYTES: usize = 512 << 10;

/// Modules that run at once, at most: more than there are views that somebody may be in the middle
/// of. Each takes address space, and memory as far as it uses some.
const INSTANCES_MAX: u32 = 5000;

/// Tables of a module, and entries of one, at most.
const TABLES_MAX: u32 = 4;
pub(super) const TABLE_MAX: usize = 20_000;

/// Bytes of memory, of those that a module has begun to use, which the next one finds mapped.
const RESIDENT_BYTES: usize = 256 << 10;

/// Returns the configuration shared by processes that compile modules and those that run them.
fn config() -> Config {
    let mut config = Config::new();
    config.epoch_interruption(true).max_wasm_stack(STACK_BYTES);
    // The same of the same, on any machine: what it gives is kept.
    config.cranelift_nan_canonicalization(true).wasm_relaxed_simd(false);
    config
}

/// Returns an engine that compiles modules and runs none.
pub(super) fn compiling() -> Result<Engine, String> {
    Engine::new(&config()).map_err(|error| error.to_string())
}

static ENGINE: LazyLock<Result<Engine, String>> = LazyLock::new(|| {
    let config = config();
    let mut places = PoolingAllocationConfig::new();
    places.total_core_instances(INSTANCES_MAX).total_memories(INSTANCES_MAX).total_tables(INSTANCES_MAX);
    places.max_tables_per_module(TABLES_MAX).table_elements(TABLE_MAX);
    places.max_memory_size(MEMORY_BYTES_MAX).linear_memory_keep_resident(RESIDENT_BYTES);
    let engine = Engine::new(config.clone().allocation_strategy(places));
    // Where there is not so much address space, each gets its own when it begins.
    engine.or_else(|_| Engine::new(&config)).map_err(|error| error.to_string())
});

/// Returns the engine that runs modules.
pub(super) fn engine() -> Result<&'static Engine, StageError> {
    ENGINE.as_ref().map_err(|error| StageError::data(format!("modules cannot be run here: {error}")))
}

/// Modules that were compiled, by the digests of what they were compiled from; the one used last
/// comes last.
static COMPILED: Mutex<Vec<Compiled>> = Mutex::new(Vec::new());

struct Compiled {
    digest: blake3::Hash,
    /// As it was written, and once it is compiled as that made it.
    bytes: usize,
    /// None until it is compiled.
    module: Arc<Mutex<Option<Made>>>,
}

/// A module, or why it is none.
type Made = Result<InstancePre<Memories>, String>;

/// The module that `bytes` are, of this digest, for user `owner`.
pub(super) fn module(digest: blake3::Hash, bytes: &[u8], owner: u32) -> Result<InstancePre<Memories>, StageError> {
    let place = {
        let mut compiled = COMPILED.lock();
        let known = compiled.iter().position(|known| known.digest == digest).map(|at| compiled.remove(at));
        let entry = known.unwrap_or_else(|| Compiled { digest, bytes: bytes.len(), module: Arc::default() });
        let place = entry.module.clone();
        compiled.push(entry);
        forget_old(&mut compiled);
        place
    };
    // Whoever wants the same one waits here, and nobody else.
    let mut module = loop {
        if let Some(module) = place.try_lock_for(PERIOD) {
            break module;
        }
        if is_interrupted() {
            return Err(StageError::Stopped);
        }
    };
    if let Some(made) = &*module {
        return made.clone().map_err(StageError::Data);
    }
    let engine = engine()?;
    let made = match compiler::compile(bytes, digest, owner) {
        Ok(made) => {
            let mut compiled = COMPILED.lock();
            if let Some(known) = compiled.iter_mut().find(|known| known.digest == digest) {
                known.bytes = made.len();
            }
            forget_old(&mut compiled);
            drop(compiled);
            runnable(engine, &made)
        }
        Err(Failure::Own(why)) => Err(why),
        Err(Failure::Now(error)) => return Err(error),
    };
    module.insert(made).clone().map_err(StageError::Data)
}

/// Has no more be kept than may be.
fn forget_old(compiled: &mut Vec<Compiled>) {
    let bytes = |all: &[Compiled]| all.iter().map(|known| known.bytes).sum::<usize>();
    while compiled.len() > 1 && (compiled.len() > MODULES_MAX || bytes(compiled) > MODULE_BYTES_MAX) {
        compiled.remove(0);
    }
}

/// The module that `made` was made of, by this program.
fn runnable(engine: &Engine, made: &[u8]) -> Made {
    // SAFETY: it is what `Engine::precompile_module` gave, in this process or in one that this
    // program began, that ended well, and that reached nothing but the module and the pipe. Who has
    // found a way to have that make other code of a module has found one against a compiler in this
    // process, too.
    let module = unsafe { Module::deserialize(engine, made) };
    let module = module.map_err(|error| format!("it cannot be run: {}", said(&error)))?;
    let mut linker = Linker::new(engine);
    // What it imports is not there; a module that never calls it may run.
    let linked = linker.define_unknown_imports_as_traps(&module).and_then(|()| linker.instantiate_pre(&module));
    linked.map_err(|error| format!("it cannot be run: {}", said(&error)))
}

/// Formats an error as one line.
pub(super) fn said(error: &wasmtime::Error) -> String {
    error.root_cause().to_string().lines().next().unwrap_or_default().to_owned()
}

/// Ticks as long as modules run, and for a while after that: whoever runs many need not wake it
/// each time.
static CLOCK: LazyLock<Clock> = LazyLock::new(|| {
    // Without it they would run for as long as they like; they are refused then.
    let started = thread::Builder::new().name("weft-clock".into()).spawn(|| CLOCK.tick());
    let (running, used, sleeps) = (AtomicUsize::new(0), AtomicBool::new(false), AtomicBool::new(false));
    Clock { running, used, sleeps, lock: Mutex::new(()), changed: Condvar::new(), has_started: started.is_ok() }
});

/// Ticks without a module that runs, after which the clock sleeps.
const IDLE_TICKS: u32 = 20;

struct Clock {
    /// Modules that run.
    running: AtomicUsize,
    /// One has run since the last tick.
    used: AtomicBool,
    /// It waits to be woken. Either it sees that one runs after it has said so, or that one sees
    /// it.
    sleeps: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
    has_started: bool,
}

impl Clock {
    fn tick(&self) {
        be_ordinary();
        let mut idle = 0;
        let mut locked = self.lock.lock();
        loop {
            self.changed.wait_for(&mut locked, TICK);
            if let Ok(engine) = engine() {
                engine.increment_epoch();
            }
            let is_idle = self.running.load(Ordering::SeqCst) == 0 && !self.used.swap(false, Ordering::SeqCst);
            idle = if is_idle { idle + 1 } else { 0 };
            if idle < IDLE_TICKS {
                continue;
            }
            self.sleeps.store(true, Ordering::SeqCst);
            while self.running.load(Ordering::SeqCst) == 0 && self.sleeps.load(Ordering::SeqCst) {
                self.changed.wait(&mut locked);
            }
            self.sleeps.store(false, Ordering::SeqCst);
            idle = 0;
        }
    }
}

/// A module runs as long as this is there.
pub(super) struct Running(());

impl Running {
    pub(super) fn begin() -> Result<Running, StageError> {
        if !CLOCK.has_started {
            return Err(StageError::data("modules cannot be run here: there is no thread for their clock"));
        }
        CLOCK.running.fetch_add(1, Ordering::SeqCst);
        CLOCK.used.store(true, Ordering::SeqCst);
        if CLOCK.sleeps.load(Ordering::SeqCst) {
            let _locked = CLOCK.lock.lock();
            CLOCK.sleeps.store(false, Ordering::SeqCst);
            CLOCK.changed.notify_one();
        }
        Ok(Running(()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        CLOCK.running.fetch_sub(1, Ordering::SeqCst);
    }
}
