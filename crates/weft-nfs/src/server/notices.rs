//! Notices to clients about locks: that a lock they waited for is theirs, that this server has
//! restarted.

use super::calling::{call, call_program, port_of};
use super::turns::Turns;
use super::{LockOptions, May, Shared, waiting};
use crate::export::Transport;
use crate::locking::nlm::{self, LockStatus};
use crate::locking::{Earlier, Message, Peer, nsm};
use crate::programs::{NLM, NSM};
use crate::rpc::Procedure;
use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;

use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::sleep;
use weft_vfs::Vfs;
use weft_vfs::locks::Wanted;

/// Pause before a client that does not answer is called again: at first, and at most.
const AGAIN: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_secs(16);
/// Time in which a client is notified of a granted lock: afterwards the client must ask.
const GRANT_TIMEOUT: Duration = Duration::from_secs(60);
/// Time in which a client is notified of a restart.
const NOTICE_TIMEOUT: Duration = Duration::from_secs(900);

/// Pauses between tries, ever longer, for a while.
struct Tries {
    pause: Duration,
    left: Duration,
}

impl Tries {
    fn during(timeout: Duration) -> Tries {
        Tries { pause: AGAIN, left: timeout }
    }

    /// Waits until it is time to try again. False if the time is over.
    async fn again(&mut self) -> bool {
        let Some(left) = self.left.checked_sub(self.pause) else { return false };
        sleep(self.pause).await;
        *self = Tries { pause: (2 * self.pause).min(AGAIN_MAX), left };
        true
    }
}

/// Sends the messages of `messages` until all ends. Each message has a place in a bounded room, so
/// there are not too many.
pub(super) async fn send(mut messages: UnboundedReceiver<Message>, portmapper: u16, vfs: Arc<Vfs>, turns: Arc<Turns>) {
    while let Some(message) = messages.recv().await {
        let (vfs, turns) = (vfs.clone(), turns.clone());
        tokio::spawn(async move { send_one(message, portmapper, &vfs, &turns).await });
    }
}

async fn send_one(message: Message, portmapper: u16, vfs: &Vfs, turns: &Turns) {
    match message {
        Message::Result { to, procedure, arguments, place: _place } => {
            let procedure = Procedure { program: NLM, version: 4, number: procedure };
            // If it is lost, the client asks again.
            let _ = turns.call(to.address, call_program(&to, portmapper, procedure, &arguments)).await;
        }
        Message::Granted { to, arguments, ino, request, grant, place: _place } => {
            let procedure = Procedure { program: NLM, version: 4, number: nlm::GRANTED };
            let mut tries = Tries::during(GRANT_TIMEOUT);
            loop {
                let call = async {
                    // A client that has asked again knows it, and one that has given it up does not
                    // care.
                    let is_news = vfs.locks().is_unanswered(ino, &request, grant);
                    if is_news { Some(call_program(&to, portmapper, procedure, &arguments).await) } else { None }
                };
                let Some(results) = turns.call(to.address, call).await else { return };
                let wanted = match results.ok().and_then(|results| nlm::answer(&results)) {
                    // The client has just started, or does not answer.
                    Some(LockStatus::GRACE) | None => None,
                    Some(LockStatus::GRANTED) => Some(Wanted::Yes),
                    Some(_) => Some(Wanted::No),
                };
                if let Some(wanted) = wanted {
                    return vfs.locks().answer(ino, &request, grant, wanted);
                }
                if !tries.again().await {
                    // A client that says nothing may still know of it: then it will ask, and learn
                    // that it has the lock.
                    return;
                }
            }
        }
    }
}

/// Notifies `earlier` clients that this server has restarted, and ends the grace period of `grace`
/// in which they reclaim their locks.
pub(super) fn restarted(earlier: Vec<Earlier>, options: &LockOptions, shared: &Arc<Shared>, turns: &Arc<Turns>) {
    let LockOptions { portmapper, grace } = *options;
    let Some(state) = shared.service.locking.as_ref().map(|locking| locking.state()) else { return };
    // One host may have been many clients, and is notified once.
    let addresses: HashSet<_> = earlier.iter().map(|client| (client.address, client.local)).collect();
    for (address, local) in addresses {
        let to = Peer { address, local, transport: Transport::Udp };
        let (shared, turns) = (shared.clone(), turns.clone());
        tokio::spawn(async move {
            let mut stop = shared.stop.clone();
            tokio::select! {
                () = tell(&to, portmapper, state, &turns) => {}
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
                tracing::warn!("clients that had locks before cannot be forgotten: {error}");
            }
        });
    });
}

/// Notifies a host that this one has restarted, until it answers.
async fn tell(to: &Peer, portmapper: u16, state: u32, turns: &Turns) {
    let mut tries = Tries::during(NOTICE_TIMEOUT);
    while let Err(error) = turns.call(to.address, notify(to, portmapper, state)).await {
        if !tries.again().await {
            let what = "cannot be told to claim its locks again";
            return tracing::warn!("{} {what}: {error}", to.address);
        }
    }
}

/// Notifies a host that this one has restarted, by all the names that it may know it by.
async fn notify(to: &Peer, portmapper: u16, state: u32) -> io::Result<()> {
    let procedure = Procedure { program: NSM, version: 1, number: nsm::NOTIFY };
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
