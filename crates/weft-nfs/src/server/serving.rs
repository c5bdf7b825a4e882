//! A call from the wire to its reply: served at once, or by whoever may wait, and made durable where that is asked for.

use super::replay::{Found, Key};
use super::{May, Shared, waiting};
use crate::dispatch::Outcome;
use crate::export::Client;
use crate::rpc::{self, Call, NoCall, Procedure, Refusal, Reply};
use crate::v3;
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedSender;

/// A reply that was waited for.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) reply: Reply,
    /// Bytes that the call was counted with while it ran; none if it was not counted.
    pub(super) ran: Option<usize>,
}

/// What comes next.
pub(super) enum Next {
    /// This is to be sent.
    Reply(Reply),
    /// The reply will come.
    Running {
        /// To be counted until then.
        bytes: usize,
    },
    /// Nothing, here.
    Nothing,
    /// This is to be sent, and TLS begins.
    StartTls(Reply),
    /// The connection has lost its way.
    End,
}

/// A call on its way to its reply.
struct Running {
    shared: Arc<Shared>,
    sender: UnboundedSender<Ready>,
    xid: u32,
    procedure: Procedure,
    key: Option<Key>,
    bytes: usize,
}

/// Serves `message`; what is not ready at once goes to `sender`.
pub(super) fn serve(shared: &Arc<Shared>, client: &Client, message: &[u8], sender: &UnboundedSender<Ready>) -> Next {
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
    let key = match shared.replays.find(client.address, &call, message, sender) {
        None => None,
        Some(Found::New(key)) => Some(key),
        Some(Found::Answered(reply)) => return Next::Reply(reply),
        Some(Found::Running) => return Next::Nothing,
    };
    let running = |bytes: usize| Running {
        shared: shared.clone(),
        sender: sender.clone(),
        xid: call.xid,
        procedure: call.procedure,
        key,
        bytes,
    };
    match shared.service.serve(client, &call) {
        Outcome::Reply(reply) => {
            if let Some(key) = key {
                shared.replays.answered(key, &reply);
            }
            Next::Reply(reply)
        }
        Outcome::Once(told, reply) => {
            if shared.stable.is_now(told) {
                if let Some(key) = key {
                    shared.replays.answered(key, &reply);
                }
                return Next::Reply(reply);
            }
            let bytes = reply.len();
            running(bytes).once_stable(reply);
            Next::Running { bytes }
        }
        Outcome::WouldWait => {
            let bytes = message.len();
            wait(running(bytes), *client, message.to_vec());
            Next::Running { bytes }
        }
        Outcome::StartTls(reply) if shared.tls.is_some() => Next::StartTls(reply.into()),
        Outcome::StartTls(_) => Next::Reply(rpc::refused(call.xid, Refusal::NoSuchCredential).into()),
    }
}

/// Serves `message` again, on a thread that may wait.
fn wait(running: Running, client: Client, message: Vec<u8>) {
    tokio::task::spawn_blocking(move || {
        let shared = running.shared.clone();
        let outcome = waiting(May::Wait, || {
            let call: Call<'_> = rpc::parse(&message).expect("it was read before");
            shared.service.serve(&client, &call)
        });
        match outcome {
            Outcome::Reply(reply) => running.end(reply),
            Outcome::Once(_, reply) => running.once_stable(reply),
            Outcome::WouldWait | Outcome::StartTls(_) => unreachable!("this thread may wait, and TLS does not"),
        }
    });
}

impl Running {
    /// Sends `reply` once what it tells is durable, or that it is not.
    fn once_stable(self, reply: Reply) {
        let shared = self.shared.clone();
        shared.stable.once_durable(Box::new(move |synced| match synced {
            Ok(()) => self.end(reply),
            Err(kind) => {
                let reply = v3::failed(self.xid, self.procedure.number, kind.into());
                self.end(reply);
            }
        }));
    }

    fn end(self, reply: Reply) {
        if let Some(key) = self.key {
            self.shared.replays.answered(key, &reply);
        }
        // If the connection is gone, the client will ask again over another one.
        let _ = self.sender.send(Ready { reply, ran: Some(self.bytes) });
    }
}
