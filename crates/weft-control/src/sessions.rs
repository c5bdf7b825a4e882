//! Sessions of programs with a daemon: connections by which each knows of the other that it is
//! still there.
//!
//! A session lasts from a request `POST /session` until its program has sent the end of the
//! request's body, or is gone. Its answer ends with one line of JSON: once the program has left it,
//! or else once the daemon has ended, and then it tells if all is committed. An answer that ends
//! without it comes from a daemon that was killed. A daemon may be told to end once it has no
//! session left ([`Sessions::end_when_unused`]); the last program that leaves hears how that went.

use crate::answers::{Shared, text};
use crate::server::Lasts;
use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::body::{Body as HttpBody, Bytes, Frame};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Most sessions at once: other connections must have room.
const SESSIONS_MAX: usize = 128;

/// Time in which a daemon hears that the program which started it needs it no more.
const STARTER_MAX: Duration = Duration::from_secs(1);

/// Action once there is no session left.
type Unused = Box<dyn FnOnce() + Send>;

/// The sessions of a daemon.
#[derive(Clone)]
pub(crate) struct Sessions {
    state: Arc<Mutex<Known>>,
    /// The last line of all answers, once the daemon has ended.
    ended: watch::Sender<Option<String>>,
}

#[derive(Default)]
struct Known {
    count: usize,
    /// Answers that are still to come: also of programs that have left, and wait for the end.
    answers: usize,
    /// True if the daemon ends, and takes no more.
    is_ending: bool,
    unused: Option<Unused>,
    /// True if there is or will be such an end: whoever leaves last waits for it.
    ends_when_unused: bool,
}

impl Sessions {
    pub(crate) fn new() -> Sessions {
        Sessions { state: Arc::default(), ended: watch::Sender::new(None) }
    }

    /// The number of sessions.
    pub(crate) fn count(&self) -> usize {
        self.state.lock().count
    }

    /// The number of connections at which a program waits for the end of a session.
    pub(crate) fn connections(&self) -> usize {
        self.state.lock().answers
    }

    /// Takes no more of them.
    pub(crate) fn close(&self) {
        self.state.lock().is_ending = true;
    }

    /// The daemon will end once there is no session: [`Sessions::end_when_unused`] follows.
    pub(crate) fn will_end_when_unused(&self) {
        self.state.lock().ends_when_unused = true;
    }

    /// Does `unused` once there is no session, and takes no more then.
    pub(crate) fn end_when_unused(&self, unused: impl FnOnce() + Send + 'static) {
        let mut known = self.state.lock();
        known.unused = Some(Box::new(unused));
        known.ends_when_unused = true;
        known.end_if_unused();
    }

    /// Tells all programs that the daemon has ended, and the reason that not all is committed, if
    /// that is so.
    pub(crate) fn tell_end(&self, failed: Option<&str>) {
        self.ended.send_replace(Some(line(&json!({ "ended": true, "committed": failed.is_none(), "error": failed }))));
    }

    fn begin(&self) -> Result<Session, &'static str> {
        let mut known = self.state.lock();
        if known.is_ending {
            return Err("this daemon is about to end");
        }
        if known.count >= SESSIONS_MAX {
            return Err("too many programs have a session with this daemon");
        }
        known.count += 1;
        known.answers += 1;
        Ok(Session { sessions: self.clone(), is_counted: true })
    }
}

impl Known {
    fn end_if_unused(&mut self) {
        if self.count == 0
            && let Some(unused) = self.unused.take()
        {
            self.is_ending = true;
            unused();
        }
    }
}

/// One session.
struct Session {
    sessions: Sessions,
    is_counted: bool,
}

impl Session {
    /// Its program leaves. Returns the time to wait for the end of the daemon, if that ends.
    fn leave(&mut self) -> Option<Duration> {
        let mut known = self.sessions.state.lock();
        if std::mem::take(&mut self.is_counted) {
            known.count -= 1;
            known.end_if_unused();
        }
        match known.is_ending {
            true => Some(Duration::MAX),
            // It may not have heard yet that the program which started it needs it no more.
            false => (known.ends_when_unused && known.count == 0).then_some(STARTER_MAX),
        }
    }

    /// Lasts until its program leaves it or the daemon ends. Returns the last line of its answer.
    async fn last(mut self, mut program: Body) -> String {
        let mut ended = self.sessions.ended.subscribe();
        let has_ended = async move {
            let line = ended.wait_for(Option::is_some).await;
            line.ok().and_then(|line| line.clone()).unwrap_or_default()
        };
        tokio::pin!(has_ended);
        tokio::select! {
            line = &mut has_ended => return line,
            () = end_of(&mut program) => {}
        }
        let ended = match self.leave() {
            Some(Duration::MAX) => Some(has_ended.await),
            Some(time) => timeout(time, has_ended).await.ok(),
            None => None,
        };
        ended.unwrap_or_else(|| line(&json!({ "ended": false })))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.leave();
        self.sessions.state.lock().answers -= 1;
    }
}

/// Waits until `program` sends nothing more: what it sends means nothing.
async fn end_of(program: &mut Body) {
    while let Some(Ok(_)) = std::future::poll_fn(|context| Pin::new(&mut *program).poll_frame(context)).await {}
}

fn line(told: &Value) -> String {
    format!("{told}\n")
}

/// Begins a session.
pub(crate) async fn session(
    State(shared): State<Arc<Shared>>,
    Extension(lasts): Extension<Lasts>,
    request: Request,
) -> Response {
    match shared.sessions.begin() {
        Err(why) => text(StatusCode::SERVICE_UNAVAILABLE, why),
        Ok(session) => {
            lasts.set();
            let lasting = Lasting(Some(tokio::spawn(session.last(request.into_body()))));
            ([(header::CONTENT_TYPE, "application/json")], Body::new(lasting)).into_response()
        }
    }
}

/// The answer of a session, which comes at its end. Dropped if its program is gone.
struct Lasting(Option<JoinHandle<String>>);

impl HttpBody for Lasting {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(lasting) = &mut self.0 else { return Poll::Ready(None) };
        let line = ready!(Pin::new(lasting).poll(context));
        self.0 = None;
        Poll::Ready(line.ok().map(|line| Ok(Frame::data(Bytes::from(line)))))
    }
}

impl Drop for Lasting {
    fn drop(&mut self) {
        if let Some(lasting) = &self.0 {
            lasting.abort();
        }
    }
}
