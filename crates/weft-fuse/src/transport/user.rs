//! Users whose requests are told apart.

use crate::protocol::Header;
use weft_vfs::whose;

/// User whose turn a request takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum User {
    /// The kernel, which writes back and closes files for everybody.
    Kernel,
    /// A person ([`whose`]), the super-user included.
    Id(u32),
}

impl User {
    /// The user of a request.
    pub(super) fn of(header: &Header) -> User {
        // The kernel fills in neither for its own.
        if header.uid == 0 && header.pid == 0 { User::Kernel } else { User::Id(whose(header.uid)) }
    }
}
