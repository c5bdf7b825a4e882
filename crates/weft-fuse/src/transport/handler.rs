//! The side that answers requests, as transports know it.

use super::scheduling::Scheduling;
use crate::options::SessionOptions;
use crate::protocol::{Offer, Reply, Request};

/// Transport of the requests to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Via {
    /// Over the device alone.
    Device,
    /// Over io_uring, those without a reply over the device.
    Rings,
}

/// Outcome of serving a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Served {
    /// The reply is made, if there is one.
    Done,
    /// The operation would wait on a thread that must not; nothing was changed.
    WouldBlock,
}

/// Answers the requests of one mount.
pub(crate) trait Handler: Send + Sync {
    /// Returns the options of the session.
    fn options(&self) -> &SessionOptions;

    /// Returns the seats for the threads that serve, if they take the idle policy.
    fn scheduling(&self) -> Option<&Scheduling>;

    /// True if requests may wait for another machine.
    fn waits_for_network(&self) -> bool;

    /// Answers INIT. Errors: the errno.
    fn init(&self, offer: &Offer, via: Via, reply: &mut Reply) -> Result<(), i32>;

    /// Hears how requests will come, before the first one does.
    fn begins(&self, via: Via);

    /// Serves `request`.
    fn serve(&self, request: &Request<'_>, reply: &mut Reply) -> Served;

    /// Hears that the program that waits for request `unique`, which was not served yet, was sent
    /// a signal.
    fn interrupted(&self, unique: u64);

    /// Hears that the mount is gone: nobody is left to be answered.
    fn ended(&self);
}
