//! The request that a thread serves.

use crate::signals::is_killed;
use std::cell::Cell;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

/// The origin of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Requester {
    /// The user.
    pub user: u32,
    /// The thread of the program, if the way in tells: one that waits cannot have ended.
    pub thread: Option<u32>,
    /// Number that identifies the request, if it has one.
    pub number: Option<u64>,
    /// The host that it comes from, if it comes over a network.
    pub host: Option<IpAddr>,
}

impl Requester {
    /// The volume's holder, by no request.
    const HOLDER: Requester = Requester { user: 0, thread: None, number: None, host: None };
}

thread_local! {
    static REQUESTER: Cell<Requester> = const { Cell::new(Requester::HOLDER) };
}

/// Returns a number for a request that no other request has, those of kernels included.
pub fn request_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // A kernel counts its own from 1.
    NEXT.fetch_add(1, Ordering::Relaxed) | 1 << 63
}

/// Says for whom this thread works from now on.
pub fn set_requester(requester: Requester) {
    REQUESTER.set(requester);
}

/// Returns for whom this thread works.
pub fn requester() -> Requester {
    REQUESTER.get()
}

/// True if the program for which this thread works was killed, and waits for that alone.
pub fn is_requester_killed() -> bool {
    requester().thread.is_some_and(is_killed)
}

/// The user for whom this thread works.
pub(crate) fn requesting_user() -> u32 {
    requester().user
}
