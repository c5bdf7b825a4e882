//! The first exchange with the kernel: the features of each side, and the transport.

use super::handler::{Handler, Via};
use super::uring::Rings;
use crate::options::{LockKeeper, Transport};
use crate::protocol::{Offer, Opcode, REQUEST_BYTES_MAX, Reply, Request};
use std::fs::File;
use std::io;
use std::sync::Arc;

/// Answers the kernel's INIT, which waits in the device since the mount. Returns the queues that
/// were agreed on.
pub(crate) fn shake_hands(device: &Arc<File>, server: &Arc<dyn Handler>) -> io::Result<Option<Rings>> {
    let mut buffer = vec![0; REQUEST_BYTES_MAX];
    let mut reply = Reply::default();
    loop {
        let len = rustix::io::read(device, &mut buffer)?;
        let offer = Request::parse(&buffer[..len])
            .filter(|request| Opcode::from_number(request.header.opcode) == Some(Opcode::Init))
            .and_then(|request| Some((request.header.unique, Offer::parse(request.body).ok()?)));
        let Some((unique, offer)) = offer else {
            return Err(io::Error::other("the kernel did not begin with INIT"));
        };
        let rings = prepare(&offer, device, server);
        let via = if rings.is_some() { Via::Rings } else { Via::Device };
        reply.begin();
        let outcome = server.init(&offer, via, &mut reply);
        reply.finish(unique, outcome.err().unwrap_or(0));
        rustix::io::write(device, reply.head())?;
        if outcome.is_err() {
            return Err(io::Error::other("the kernel's FUSE protocol is older than 7.31 (Linux 5.4)"));
        }
        if offer.is_settled() {
            server.begins(via);
            return Ok(rings);
        }
    }
}

/// Prepares queues, if they are offered and wanted. If that fails, the device serves.
fn prepare(offer: &Offer, device: &Arc<File>, server: &Arc<dyn Handler>) -> Option<Rings> {
    let options = server.options();
    if options.transport != Transport::Automatic || options.locks != LockKeeper::Kernel || !offer.has_rings() {
        return None;
    }
    Rings::prepare(device, server).ok()
}
