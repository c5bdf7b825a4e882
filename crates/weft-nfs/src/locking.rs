//! Locks of NFS's clients: NLM asks for them, NSM reports restarted hosts.
//!
//! The locks themselves are in the volume's one table; this module knows their names on the wire
//! and their owners. Messages to clients go into a queue that another task sends; nothing here
//! waits for them.

mod arguments;
mod clients;
pub(crate) mod nlm;
pub(crate) mod nsm;
mod room;

pub(crate) use clients::{Earlier, Locking};

use crate::export::{Client, Transport};
use std::net::IpAddr;
use weft_vfs::Ino;
use weft_vfs::locks::{Grant, LockRequest};

/// Address at which a client is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) address: IpAddr,
    /// The address of this machine that it knows.
    pub(crate) local: IpAddr,
    pub(crate) transport: Transport,
}

impl From<&Client> for Peer {
    /// Returns the address for calls back to `client`.
    fn from(client: &Client) -> Peer {
        Peer { address: client.address, local: client.local, transport: client.transport }
    }
}

/// A message to a client.
#[derive(Debug)]
pub(crate) enum Message {
    /// A lock that the client waits for has been granted.
    Granted {
        to: Peer,
        /// `nlm4_testargs`.
        arguments: Vec<u8>,
        /// The lock: the client is to say whether it still wants it.
        ino: Ino,
        request: LockRequest,
        grant: Grant,
        /// Its place in the bounded room for such messages.
        place: room::Place,
    },
    /// Result of a call whose reply carries none.
    Result {
        to: Peer,
        /// Procedure of NLM.
        procedure: u32,
        arguments: Vec<u8>,
        /// Its place in the bounded room for such messages.
        place: room::Place,
    },
}
