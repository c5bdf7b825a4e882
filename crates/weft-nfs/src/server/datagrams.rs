//! Calls that come as datagrams: to the portmapper, and all but NFS itself. Each has one reply, and
//! is forgotten.

use super::serving::requester;
use super::waits::Begun;
use super::{May, Shared, waiting};
use crate::dispatch;
use crate::export::{Client, Transport};
use crate::outcome::Outcome;
use crate::rpc::{self, NoCall};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::UdpSocket;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::sleep;
use weft_vfs::{Requester, set_requester};

/// Longest call that is read.
const CALL_BYTES_MAX: usize = 8 << 10;
/// Longest reply that is sent: a caller that forges another's address must not have that one
/// flooded.
const REPLY_BYTES_MAX: usize = 512;
/// Calls served at the same time; beyond, they wait in the system's queue, or get lost there.
const RUNNING_MAX: usize = 16;

/// Pause before more are received, after that failed.
const AGAIN: Duration = Duration::from_millis(100);

/// Serves `socket` until the server stops.
pub(super) async fn serve(socket: UdpSocket, shared: Arc<Shared>) {
    let socket = Arc::new(socket);
    let Ok(local) = socket.local_addr() else { return };
    let running = Arc::new(Semaphore::new(RUNNING_MAX));
    let mut stop = shared.stop.clone();
    let mut call = vec![0; CALL_BYTES_MAX];
    loop {
        let Ok(permit) = running.clone().acquire_owned().await else { return };
        let received = tokio::select! {
            received = socket.recv_from(&mut call) => received,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        let Ok((len, peer)) = received else {
            sleep(AGAIN).await;
            continue;
        };
        let (message, shared, socket) = (call[..len].to_vec(), shared.clone(), socket.clone());
        tokio::task::spawn_blocking(move || {
            let reply = waiting(May::Wait, || answer(&shared, local.ip(), peer, &message));
            if let Some(reply) = reply.filter(|reply| reply.len() <= REPLY_BYTES_MAX) {
                // A reply that is lost is asked for again.
                let _ = Handle::current().block_on(socket.send_to(&reply, peer));
            }
            drop(permit);
        });
    }
}

fn answer(shared: &Shared, local: IpAddr, peer: SocketAddr, message: &[u8]) -> Option<Vec<u8>> {
    let begun = Instant::now();
    let (address, port) = (peer.ip().to_canonical(), peer.port());
    let client = Client { address, port, local: local.to_canonical(), transport: Transport::Udp, tls: false };
    let call = match rpc::parse(message) {
        Ok(call) => call,
        Err(no_call) => {
            shared.service.refusals.no_call(&no_call);
            return match no_call {
                NoCall::Answer(answer) => Some(answer),
                NoCall::Garbage => None,
            };
        }
    };
    // Whether the caller still waits is unknown.
    let Begun::New(number) = shared.waits.begin(None, None) else { return None };
    set_requester(requester(shared, &client, &call, number));
    let outcome = dispatch::serve(&shared.service, &client, &call);
    set_requester(Requester::default());
    shared.waits.end(number);
    shared.service.calls.answered(call.procedure, address, begun);
    match outcome {
        Outcome::Reply(reply) | Outcome::Once(_, reply) => Some(reply.head),
        Outcome::StartTls(_) => Some(rpc::refused(call.xid, rpc::Refusal::NoSuchCredential)),
        Outcome::WouldWait => None,
    }
}
