//! What is said to clients about locks, while others are served: that one they waited for is theirs, that this server has restarted.

use super::calling::{call, call_program, port_of};
use super::{LockOptions, May, Shared, waiting};
use crate::export::Transport;
use crate::locking::nlm::{self, LockStatus};
use crate::locking::{Earlier, Message, Peer, nsm};
use crate::rpc::Procedure;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::sleep;
use weft_vfs::locks::Wanted;
use weft_vfs::{Vfs, say};

/// Clients that are being told something at the same time.
const CALLS_MAX: usize = 64;
/// After how long a client that does not answer is called again: at first, and at most.
const AGAIN: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_secs(16);
/// How long a client is told that a lock is its own: then it is for it to ask.
const GRANT_PATIENCE: Duration = Duration::from_secs(60);
/// How long a client is told of a restart.
const NOTICE_PATIENCE: Duration = Duration::from_secs(900);

/// Pauses between tries, ever longer, for a while.
struct Tries {
    pause: Duration,
    left: Duration,
}

impl Tries {
    fn during(patience: Duration) -> Tries {
        Tries { pause: AGAIN, left: patience }
    }

    /// Waits until it is time to try again; false if it is no more.
    async fn again(&mut self) -> bool {
        let Some(left) = self.left.checked_sub(self.pause) else { return false };
        sleep(self.pause).await;
        *self = Tries { pause: (2 * self.pause).min(AGAIN_MAX), left };
        true
    }
}

/// Sends what `messages` has until all ends.
pub(super) async fn send(mut messages: UnboundedReceiver<Message>, portmapper: u16, vfs: Arc<Vfs>) {
    let calls = Arc::new(Semaphore::new(CALLS_MAX));
    while let Some(message) = messages.recv().await {
        let Ok(permit) = calls.clone().acquire_owned().await else { return };
        let vfs = vfs.clone();
        tokio::spawn(async move {
            send_one(message, portmapper, &vfs).await;
            drop(permit);
        });
    }
}

async fn send_one(message: Message, portmapper: u16, vfs: &Vfs) {
    match message {
        Message::Result { to, procedure, arguments, place: _place } => {
            let procedure = Procedure { program: nlm::PROGRAM, version: 4, number: procedure };
            // If it is lost, the client asks again.
            let _ = call_program(&to, portmapper, procedure, &arguments).await;
        }
        Message::Granted { to, arguments, ino, request, grant } => {
            let procedure = Procedure { program: nlm::PROGRAM, version: 4, number: nlm::GRANTED };
            let mut tries = Tries::during(GRANT_PATIENCE);
            loop {
                let results = call_program(&to, portmapper, procedure, &arguments).await;
                let wanted = match results.ok().and_then(|results| nlm::answer(&results)) {
                    // It has just started, or does not answer.
                    Some(LockStatus::GRACE) | None => None,
                    Some(LockStatus::GRANTED) => Some(Wanted::Yes),
                    Some(_) => Some(Wanted::No),
                };
                if let Some(wanted) = wanted {
                    return vfs.locks().answer(ino, &request, grant, wanted);
                }
                if !tries.again().await {
                    // One that says nothing may still know of it: then it will ask, and hear that it has the lock.
                    return;
                }
            }
        }
    }
}

/// Tells `earlier` clients that this server has restarted, and ends the period of `grace` in which they claim what they held.
pub(super) fn restarted(earlier: Vec<Earlier>, options: &LockOptions, shared: &Arc<Shared>) {
    let LockOptions { portmapper, grace } = *options;
    let Some(state) = shared.service.locking.as_ref().map(|locking| locking.state()) else { return };
    for client in &earlier {
        let (to, shared) =
            (Peer { address: client.address, local: client.local, transport: Transport::Udp }, shared.clone());
        tokio::spawn(async move {
            let mut stop = shared.stop.clone();
            tokio::select! {
                () = tell(&to, portmapper, state) => {}
                _ = stop.wait_for(|stop| *stop) => {}
            }
        });
    }
    let shared = shared.clone();
    tokio::spawn(async move {
        sleep(grace).await;
        // Ended by a thread that may wait.
        tokio::task::spawn_blocking(move || {
            let ended =
                shared.service.locking.as_ref().map(|locking| waiting(May::Wait, || locking.end_grace(&earlier)));
            if let Some(Err(error)) = ended {
                say(format_args!("clients that had locks before cannot be forgotten: {error}"));
            }
        });
    });
}

/// Tells a host that this one has restarted, until it has heard of it.
async fn tell(to: &Peer, portmapper: u16, state: u32) {
    let mut tries = Tries::during(NOTICE_PATIENCE);
    while let Err(error) = notify(to, portmapper, state).await {
        if !tries.again().await {
            let what = "cannot be told to claim its locks again";
            return say(format_args!("{} {what}: {error}", to.address));
        }
    }
}

/// Tells a host that this one has restarted, by all the names that it may know it by.
async fn notify(to: &Peer, portmapper: u16, state: u32) -> io::Result<()> {
    let procedure = Procedure { program: nsm::PROGRAM, version: 1, number: nsm::NOTIFY };
    let node = rustix::system::uname();
    let name = node.nodename().to_bytes();
    let address = to.local.to_string();
    let port = port_of(to, portmapper, procedure).await?;
    for name in [address.as_bytes(), name] {
        let arguments = nsm::notice(name, state);
        call(SocketAddr::new(to.address, port), to.local, to.transport, procedure, &arguments).await?;
    }
    Ok(())
}
