//! A call from the wire to its reply: served at once, or by a thread that may wait, and made
//! durable where that is asked for.

use super::replay::{Found, Key, must_not_be_repeated};
use super::replies::Ready;
use super::waits::{Alike, Asker, Begun};
use super::{May, Shared, waiting};
use crate::dispatch;
use crate::export::{Client, NOBODY};
use crate::machine::machine;
use crate::outcome::Outcome;
use crate::programs::NFS;
use crate::request::acts_as;
use crate::rpc::{self, Auth, Call, NoCall, Refusal, Reply};
use crate::v3;
use std::sync::{Arc, Weak};
use std::time::Instant;
use tokio::sync::mpsc::UnboundedSender;
use weft_links::WithLinks;
use weft_vfs::{Requester, set_requester};

/// Next step for a connection.
pub(super) enum Next {
    /// Send this reply.
    Reply(Reply),
    /// Wait: the reply will come.
    Running {
        /// Bytes to count until then.
        bytes: usize,
    },
    /// Do nothing.
    Nothing,
    /// Send this reply, and begin TLS.
    StartTls(Reply),
    /// End the connection, which is out of step.
    End,
}

/// A call on its way to its reply.
struct Running {
    shared: Arc<Shared>,
    asker: Asker,
    key: Option<Key>,
}

/// Serves `message`; a reply that is not ready at once goes to `sender`.
pub(super) fn serve(shared: &Arc<Shared>, client: &Client, message: &[u8], sender: &UnboundedSender<Ready>) -> Next {
    let begun = Instant::now();
    let call = match rpc::parse(message) {
        Ok(call) => call,
        Err(no_call) => {
            shared.service.refusals.no_call(&no_call);
            return match no_call {
                NoCall::Answer(answer) => Next::Reply(answer.into()),
                NoCall::Garbage => Next::End,
            };
        }
    };
    // Calls that are not let in are refused below, and not known here.
    let is_known = must_not_be_repeated(call.procedure) && acts_as(&shared.service, client, &call).is_some();
    let key = match is_known.then(|| shared.replays.find(client, &call, message, sender)) {
        None => None,
        Some(Found::New(key)) => Some(key),
        Some(Found::Answered(reply)) => return Next::Reply(reply),
        Some(Found::Running) => return Next::Nothing,
    };
    let (procedure, address) = (call.procedure, client.address);
    let asker = |bytes: usize| Asker { sender: sender.clone(), xid: call.xid, procedure, address, begun, bytes };
    let answered = |reply: &Reply| {
        if let Some(key) = key {
            shared.replays.answered(key, reply);
        }
        shared.service.calls.answered(procedure, address, begun);
    };
    match dispatch::serve(&shared.service, client, &call) {
        Outcome::Reply(reply) => {
            answered(&reply);
            Next::Reply(reply)
        }
        Outcome::Once(told, reply) => {
            if shared.stable.is_now(told) {
                answered(&reply);
                return Next::Reply(reply);
            }
            let bytes = reply.len();
            Running { shared: shared.clone(), asker: asker(bytes), key }.once_stable(reply);
            Next::Running { bytes }
        }
        Outcome::WouldWait => {
            let bytes = message.len();
            wait(shared, client, (&call, message), (asker(bytes), key));
            Next::Running { bytes }
        }
        Outcome::StartTls(reply) if shared.tls.is_some() => Next::StartTls(reply.into()),
        Outcome::StartTls(_) => Next::Reply(rpc::refused(call.xid, Refusal::NoSuchCredential).into()),
    }
}

/// Serves a call again, whose bytes are `message`, on a thread that may wait.
fn wait(
    shared: &Arc<Shared>,
    client: &Client,
    (call, message): (&Call<'_>, &[u8]),
    (asker, key): (Asker, Option<Key>),
) {
    let Begun::New(number) = shared.waits.begin(Alike::of(client, call), Some(asker)) else { return };
    let waiter = Waiter { shared: shared.clone(), number };
    let (requester, client, message) = (requester(shared, client, call, number), *client, message.to_vec());
    tokio::task::spawn_blocking(move || waiter.run(requester, &client, &message, key));
}

/// Returns the requester of `call`, which waits under `number`.
pub(super) fn requester(shared: &Shared, client: &Client, call: &Call<'_>, number: u64) -> Requester {
    let acts_as = match &call.auth {
        _ if call.procedure.program == NFS => acts_as(&shared.service, client, call),
        Auth::Sys(who) => Some(who.clone()),
        Auth::None | Auth::Tls => None,
    };
    let user = acts_as.map_or(NOBODY, |who| who.uid);
    Requester { user, thread: None, number: Some(number), host: Some(machine(client.address)) }
}

/// A call for a thread that may wait. Clients that wait for it are told when it goes.
struct Waiter {
    shared: Arc<Shared>,
    number: u64,
}

impl Waiter {
    fn run(self, requester: Requester, client: &Client, message: &[u8], key: Option<Key>) {
        let shared = &self.shared;
        if !shared.waits.is_wanted(self.number) {
            return;
        }
        set_requester(requester);
        let outcome = waiting(May::Wait, || {
            let call: Call<'_> = rpc::parse(message).expect("it was read before");
            dispatch::serve(&shared.service, client, &call)
        });
        set_requester(Requester::default());
        let running = |asker| Running { shared: shared.clone(), asker, key };
        let askers = shared.waits.end(self.number);
        match outcome {
            Outcome::Reply(reply) => askers.into_iter().for_each(|asker| running(asker).end(reply.clone())),
            Outcome::Once(_, reply) => askers.into_iter().for_each(|asker| running(asker).once_stable(reply.clone())),
            Outcome::WouldWait | Outcome::StartTls(_) => unreachable!("this thread may wait, and TLS does not"),
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        // The call had no reply, or is no longer wanted.
        drop(self.shared.waits.end(self.number));
    }
}

/// Ends what networks compute for calls.
fn interrupt(shared: &Shared, calls: Vec<u64>) {
    let Ok(links) = shared.service.vfs.links() else { return };
    calls.into_iter().for_each(|number| links.interrupt(number));
}

/// Handles a closed connection.
pub(super) fn left(shared: &Shared) {
    interrupt(shared, shared.waits.left());
}

/// Looks once for calls that have waited long. True if none waits.
pub(super) fn look(shared: &Shared) -> bool {
    let look = shared.waits.look();
    look.late.iter().for_each(Asker::put_off);
    interrupt(shared, look.ending);
    look.is_last
}

/// Looks for waiting calls, for as long as the server is there.
pub(super) async fn watch(shared: Weak<Shared>) {
    loop {
        let Some(until_look) = shared.upgrade().map(|shared| shared.waits.until_look()) else { return };
        until_look.await;
        let Some(shared) = shared.upgrade() else { return };
        if !look(&shared) {
            shared.waits.again();
        }
    }
}

impl Running {
    /// Sends `reply` once its changes are durable, or an error that they are not.
    fn once_stable(self, reply: Reply) {
        let shared = self.shared.clone();
        shared.stable.once_durable(Box::new(move |synced| match synced {
            Ok(()) => self.end(reply),
            Err(kind) => {
                let reply = v3::failed(self.asker.xid, self.asker.procedure.number, kind.into());
                self.end(reply);
            }
        }));
    }

    fn end(self, reply: Reply) {
        let reply = reply.to(self.asker.xid);
        if let Some(key) = self.key {
            self.shared.replays.answered(key, &reply);
        }
        let Asker { procedure, address, begun, .. } = self.asker;
        self.shared.service.calls.answered(procedure, address, begun);
        self.asker.answer(reply);
    }
}
