//! Locks of NFS's clients: NLM asks for them, NSM tells who has restarted.
//!
//! The locks themselves are in the volume's one table; this knows what they are called on the wire,
//! and whose they are. What is to be sent to clients goes into a queue that somebody empties;
//! nothing here waits for them.

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

/// Where a client is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) address: IpAddr,
    /// The address of this machine that it knows.
    pub(crate) local: IpAddr,
    pub(crate) transport: Transport,
}

impl From<&Client> for Peer {
    /// Where whoever calls is called back.
    fn from(client: &Client) -> Peer {
        Peer { address: client.address, local: client.local, transport: client.transport }
    }
}

/// What is to be said to a client.
#[derive(Debug)]
pub(crate) enum Message {
    /// A lock that it waits for is its own now.
    Granted {
        to: Peer,
        /// `nlm4_testargs`.
        arguments: Vec<u8>,
        /// What it is: the client is to say whether it still wants it.
        ino: Ino,
        request: LockRequest,
        grant: Grant,
        /// Its place among those that wait.
        place: room::Place,
    },
    /// What has come of a call whose reply says nothing.
    Result {
        to: Peer,
        /// Of NLM.
        procedure: u32,
        arguments: Vec<u8>,
        /// Its place among those that wait.
        place: room::Place,
    },
}
