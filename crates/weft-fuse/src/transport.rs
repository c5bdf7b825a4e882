//! Transport of requests and replies: over io_uring where the kernel has it on for FUSE, over the
//! FUSE device elsewhere.

mod company;
pub(crate) mod device;
pub(crate) mod handler;
pub(crate) mod handshake;
mod placement;
mod proc_stat;
pub(crate) mod scheduling;
mod turns;
pub(crate) mod uring;
mod user;
mod watchdog;

/// Kept by each thread that serves: a panic there ends the process. A mount that lacks a thread
/// would hang every program that uses it; one whose daemon is gone gives errors, and loses nothing
/// that was synced.
struct EndOnPanic;

impl Drop for EndOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!("a bug in Weft, told above: the daemon ends, unmount and mount again");
            std::process::abort();
        }
    }
}
