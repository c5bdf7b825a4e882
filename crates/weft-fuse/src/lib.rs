//! The FUSE protocol to `vfs` calls and back: nothing of what the file system means lives here.
//!
//! `protocol` knows the bytes, `dispatch` the translation, `transport` how requests arrive and
//! replies leave, `mount` how the kernel is asked for a mount point,
//! `nothing` is a file system that stores nothing, to measure what FUSE costs.

mod dispatch;
mod latency_guard;
mod mount;
mod nothing;
mod notify;
mod options;
mod protocol;
mod session;
mod transport;

pub use dispatch::{REFUSE_CHANGES, TAKE_CHANGES};
pub use mount::{MountError, MountOptions, check_mount_point, remount, unmount};
pub use nothing::Nothing;
pub use options::{Inviter, LockKeeper, Placement, SessionOptions, Transport};
pub use session::{Leaver, Session, Teller, Unmounter};

/// Takes any bytes as one request against `vfs`, for fuzzing: must neither panic nor hang.
#[cfg(feature = "testing")]
pub fn fuzz_request(vfs: &std::sync::Arc<weft_vfs::Vfs>, bytes: &[u8]) {
    use transport::handler::Handler;
    let options = SessionOptions { locks: LockKeeper::Volume, ..SessionOptions::default() };
    let server = dispatch::Server::new(vfs.clone(), options, None, None);
    if let Some(request) = protocol::Request::parse(bytes) {
        server.serve(&request, &mut protocol::Reply::default());
    }
}
