//! Stages that are somebody's own code, which nobody has to trust.

pub use refused_calls::refuse_to_daemon;
use rustix::thread::gettid;
use std::io;

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

/// Closes all files of this process but the standard ones.
///
/// # Safety
/// Nothing in this process owns one of those that are closed.
unsafe fn close_all_but_standard() -> io::Result<()> {
    // SAFETY: nobody owns them, as the caller says. musl has no function of the name.
    match unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
