//! Stages that are somebody's own code, which nobody has to trust.

pub use refused_calls::refuse_to_daemon;
use rustix::thread::gettid;

mod allowance;
mod code;
pub(crate) mod command;
mod confined;
pub(crate) mod decoding;
mod file;
mod groups;
mod idle;
pub(crate) mod library;
mod mounts;
mod namespaces;
mod refused_calls;
mod stream;
#[cfg(feature = "wasm")]
pub(crate) mod wasm;
#[cfg(not(feature = "wasm"))]
#[path = "exported/without_wasm.rs"]
pub(crate) mod wasm;
pub(crate) mod workers;
mod writing;

/// Has the calling thread be scheduled as any other, whatever the one was that started it: what
/// that one does for a request is no reason for what goes on after it.
fn be_ordinary() {
    let (this, priority) = (gettid().as_raw_nonzero().get(), 0);
    // SAFETY: the kernel reads `priority`, all that it takes of a `sched_param`, during the call,
    // and nothing else. If it cannot be, all is slower where much else runs. musl's function of the
    // name only fails.
    unsafe { libc::syscall(libc::SYS_sched_setscheduler, this, libc::SCHED_OTHER, &raw const priority) };
}
