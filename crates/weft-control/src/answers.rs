//! Answers of a daemon: its own state, commits that it makes now, what it keeps of the past, and
//! its end.
//!
//! All that could wait for the volume is asked by other threads, few of them, and within a time
//! limit: a volume that is stuck is reported, and holds up no other answer.

use crate::COMMIT_MAX;
use crate::defragmenting::{defragment_at, defragmented_value, file_request, fragments_at, fragments_value};
use crate::files::{self, WORKING_MAX};
use crate::hexadecimal::hex;
use crate::metrics::{self, Scraped};
use crate::operations::operations_value;
use crate::restoring::{report_value, restore_request};
use crate::sessions::{Sessions, session};
use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::{Extension, Path, RawQuery, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use parking_lot::RwLock;
use rustix::process::{Signal, getpid, kill_process};
use serde_json::{Value, json};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use weft_vfs::{
    Clock, CommitNo, HistoryFor, Limits, LimitsChange, Report, RestoreError, Stats, SystemClock, Timestamp, Vfs,
    printable, rfc3339,
};

/// Time within which the volume must answer.
const TELLING_MAX: Duration = Duration::from_secs(1);

/// Threads that ask the volume at once, beside the one that commits.
pub(crate) const ASKING_MAX: usize = 4;

/// The use that a daemon makes of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It has it mounted.
    Mount,
    /// It serves it to the network alone.
    Server,
}

impl Kind {
    /// Returns its name, as shown to users and in the names of sockets.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Mount => "mount",
            Kind::Server => "server",
        }
    }

    /// The one with this name.
    pub(crate) fn named(name: &str) -> Option<Kind> {
        [Kind::Mount, Kind::Server].into_iter().find(|kind| kind.name() == name)
    }
}

/// Returns all counters; none once nothing is served any more.
pub type Counters = Box<dyn Fn() -> Option<Report> + Send + Sync>;

/// A daemon as it tells of itself.
pub struct Daemon {
    /// The use that it makes of the volume.
    pub kind: Kind,
    /// The id of the volume.
    pub id: [u8; 16],
    /// The volume, as its user may name it.
    pub volume: String,
    /// The server and its database, in words, if the volume lies in one: what names the volume may
    /// leave them to the environment.
    pub server: Option<String>,
    /// The storage engine of the volume.
    pub engine: &'static str,
    /// The directory or the address at which it is used.
    pub place: String,
    /// True if nothing may be changed.
    pub read_only: bool,
    /// Time of the commit as of which it is shown, if that is not the last one.
    pub as_of: Option<Timestamp>,
    /// The volume itself. The daemon lets go of it when it likes.
    pub vfs: Weak<Vfs>,
    /// Function that returns the counters of `weft stats`.
    pub counters: Counters,
}

impl Daemon {
    /// Returns the id of the volume in hexadecimal.
    fn id(&self) -> String {
        hex(&self.id)
    }
}

/// The user who asks.
#[derive(Clone, Copy)]
pub(crate) struct Asker(pub(crate) u32);

/// The answers of a daemon, for the servers that give them.
#[derive(Clone)]
pub struct Answers(Arc<Shared>);

impl Answers {
    /// Returns those of `daemon`, which serves from now on.
    pub fn new(daemon: Daemon) -> Answers {
        Answers(Arc::new(Shared {
            daemon,
            since: SystemClock.now(),
            asking: Arc::new(Semaphore::new(ASKING_MAX)),
            committing: Arc::new(Semaphore::new(1)),
            working: Arc::new(Semaphore::new(WORKING_MAX)),
            files: files::Counted::default(),
            sessions: Sessions::new(),
            takes_work: RwLock::new(true),
        }))
    }

    /// Has no more files worked on, once the work of now is done.
    pub(crate) fn end_work(&self) {
        *self.0.takes_work.write() = false;
    }

    /// The sessions of programs with it.
    pub(crate) fn sessions(&self) -> &Sessions {
        &self.0.sessions
    }

    /// Returns the daemon.
    pub(crate) fn daemon(&self) -> &Daemon {
        &self.0.daemon
    }
}

/// State shared by all connections.
pub(crate) struct Shared {
    daemon: Daemon,
    since: Timestamp,
    asking: Arc<Semaphore>,
    /// Held by the connection that has the volume commit.
    committing: Arc<Semaphore>,
    /// Held by the threads that work on files.
    pub(crate) working: Arc<Semaphore>,
    /// Requests that were about files.
    pub(crate) files: files::Counted,
    pub(crate) sessions: Sessions,
    /// False once the daemon leaves the volume. Held while files are worked on, so that all which
    /// is answered is done before.
    takes_work: RwLock<bool>,
}

/// Requests that anybody may make who reaches the daemon: none names a file or changes anything.
fn open_routes() -> Router<Arc<Shared>> {
    Router::new()
        .route("/healthz", get(async || text(StatusCode::OK, "ok")))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
}

/// The answers to those alone.
pub(crate) fn open_router(answers: &Answers) -> Router {
    open_routes().layer(from_fn(refuse_bodies)).with_state(answers.0.clone())
}

/// All answers.
pub(crate) fn router(answers: &Answers) -> Router {
    open_routes()
        .route("/stats", get(stats))
        .route("/operations", get(operations))
        .route("/status", get(status))
        .route("/commit", post(commit))
        .route("/stop", post(stop))
        .route("/limits/{bytes}/{inodes}", post(set_limits))
        .route("/history/set/{rule}/{readers}", post(set_history))
        .route("/history/off", post(end_history))
        .route("/history/collect/{since}", post(collect_history))
        .route("/snapshots/create/{name}/{until}", post(create_snapshot))
        .route("/snapshots/delete/{name}", post(delete_snapshot))
        .route("/snapshots/rename/{name}/{new}", post(rename_snapshot))
        .route("/snapshots/hold/{name}/{until}", post(hold_snapshot))
        .route("/restore", post(restore))
        .route("/history/forget", post(forget_history))
        .route("/defragment", post(defragment))
        .route("/fragments", post(fragments))
        .route("/history/exclude", post(exclude_from_history))
        .route("/history/include", post(include_in_history))
        .layer(from_fn(refuse_bodies))
        .merge(files::router(&answers.0))
        .route("/session", post(session))
        .fallback(async || text(StatusCode::NOT_FOUND, "there is no such request"))
        .method_not_allowed_fallback(async || {
            text(StatusCode::METHOD_NOT_ALLOWED, "this request is made by the other of GET and POST")
        })
        .with_state(answers.0.clone())
}

/// Refuses requests that bring something: none needs to, so nobody makes this process keep it.
pub(crate) async fn refuse_bodies(request: Request, next: Next) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    text(StatusCode::PAYLOAD_TOO_LARGE, "a request has no body here")
}

pub(crate) fn text(code: StatusCode, line: &str) -> Response {
    let line = format!("{}\n", printable(line));
    (code, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], Body::from(line)).into_response()
}

/// The answer of a daemon that has let go of its volume.
pub(crate) fn unserved() -> Response {
    text(StatusCode::SERVICE_UNAVAILABLE, "the volume is served no more")
}

fn json(value: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], Body::from(format!("{value}\n"))).into_response()
}

/// Has `question` asked by a thread that may wait.
///
/// Errors: an answer that says why there is none.
async fn asked<T: Send + 'static>(
    shared: &Arc<Shared>,
    question: impl FnOnce(&Shared) -> Option<T> + Send + 'static,
) -> Result<T, Response> {
    let own = shared.clone();
    let answered = timeout(TELLING_MAX, async move {
        let permit = own.asking.clone().acquire_owned().await.ok()?;
        // The permit goes with the thread, which nobody can end.
        let answered = spawn_blocking(move || (question(&own), permit).0);
        answered.await.ok().flatten()
    });
    match answered.await {
        Ok(Some(answer)) => Ok(answer),
        Ok(None) => Err(unserved()),
        Err(_) => Err(text(StatusCode::SERVICE_UNAVAILABLE, "the volume does not answer")),
    }
}

async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    let failed = asked(&shared, |shared| Some(failure(&(shared.daemon.counters)()?.volume))).await;
    match failed {
        Ok(None) => text(StatusCode::OK, "ready"),
        Ok(Some(why)) => text(StatusCode::SERVICE_UNAVAILABLE, &why),
        Err(unanswered) => unanswered,
    }
}

/// Returns the reason, by the counters, that the volume is not served or no change becomes durable.
fn failure(volume: &Stats) -> Option<String> {
    let failed = || Some(format!("the last commit failed: {}", volume.commit_error.as_ref()?));
    let unanswered = || {
        let seconds = volume.unanswered_seconds?;
        Some(format!("the database server has not answered for {seconds} seconds"))
    };
    volume.lost.clone().or_else(failed).or_else(unanswered).or_else(|| volume.failed_writeback.clone())
}

async fn stats(State(shared): State<Arc<Shared>>) -> Response {
    let stats = asked(&shared, |shared| serde_json::to_value((shared.daemon.counters)()?).ok()).await;
    stats.map_or_else(|unanswered| unanswered, |stats| json(&stats))
}

async fn operations(State(shared): State<Arc<Shared>>) -> Response {
    let told =
        asked(&shared, |shared| Some(operations_value(&(shared.daemon.counters)()?, &shared.files.operations()))).await;
    told.map_or_else(|unanswered| unanswered, |told| json(&told))
}

async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    match asked(&shared, |shared| metrics::text(shared.scraped()?).ok()).await {
        Ok(told) => ([(header::CONTENT_TYPE, metrics::MEDIA_TYPE)], Body::from(told)).into_response(),
        Err(unanswered) => unanswered,
    }
}

/// Has a server end as by SIGTERM: once all is committed. A mount goes by umount(2) alone, which
/// fails while programs use it.
async fn stop(State(shared): State<Arc<Shared>>) -> Response {
    if shared.daemon.kind == Kind::Mount {
        return text(StatusCode::CONFLICT, "a mount ends when it is unmounted");
    }
    match kill_process(getpid(), Signal::TERM) {
        Ok(()) => json(&json!({ "pid": std::process::id() })),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, &format!("cannot end this process: {error}")),
    }
}

async fn status(State(shared): State<Arc<Shared>>) -> Response {
    let status = asked(&shared, Shared::status).await;
    status.map_or_else(|unanswered| unanswered, |status| json(&status))
}

impl Shared {
    /// Does `work` with the volume, unless the daemon leaves that; it does not leave meanwhile.
    pub(crate) fn work<T>(&self, work: impl FnOnce(&Vfs) -> T) -> Option<T> {
        let takes_work = self.takes_work.read();
        let vfs = self.vfs().filter(|_| *takes_work)?;
        Some(work(&vfs))
    }

    /// The volume, as long as it is served.
    pub(crate) fn vfs(&self) -> Option<Arc<Vfs>> {
        self.daemon.vfs.upgrade()
    }

    fn scraped(&self) -> Option<Scraped> {
        let daemon = &self.daemon;
        let report = (daemon.counters)()?;
        Some(Scraped {
            kind: daemon.kind.name(),
            volume: daemon.id(),
            engine: daemon.engine,
            since: self.since,
            committed: daemon.vfs.upgrade()?.last_commit().1,
            is_ready: failure(&report.volume).is_none(),
            files: self.files.operations(),
            report,
        })
    }

    fn status(&self) -> Option<Value> {
        let daemon = &self.daemon;
        let Report { transport, volume, .. } = (daemon.counters)()?;
        let (commit, time) = daemon.vfs.upgrade()?.last_commit();
        let (messages, log_is_full) = weft_vfs::recent_messages();
        let age = time.map(|time| (SystemClock.now().0.saturating_sub(time.0)).max(0) / 1_000_000_000);
        Some(json!({
            "volume": daemon.volume,
            "server": daemon.server,
            "id": daemon.id(),
            "engine": daemon.engine,
            "kind": daemon.kind.name(),
            "place": daemon.place,
            "pid": std::process::id(),
            "since": rfc3339(self.since),
            "transport": transport,
            "nfs": volume.nfs.as_ref().map(|nfs| nfs.address),
            "read_only": daemon.read_only,
            "as_of": daemon.as_of.map(rfc3339),
            "commit": commit.0,
            "committed": time.map(rfc3339),
            "commit_age_seconds": age,
            "error": failure(&volume),
            "no_room": volume.no_room,
            "bytes_used": volume.bytes_used,
            "inodes_used": volume.inodes_used,
            "dirty_bytes": volume.dirty_bytes,
            "sessions": self.sessions.count(),
            "log_is_full": log_is_full,
            "messages": messages,
        }))
    }
}

async fn commit(State(shared): State<Arc<Shared>>) -> Response {
    let committed = committing(shared, |vfs| vfs.commit_durably().map(|commit| (commit, vfs.failed_writeback())));
    match committed.await {
        Ok(Ok((CommitNo(number), None))) => json(&json!({ "commit": number })),
        Ok(Ok((_, Some(missing)))) => text(StatusCode::INTERNAL_SERVER_ERROR, &missing),
        Ok(Err(error)) => text(StatusCode::INTERNAL_SERVER_ERROR, &format!("cannot commit: {error}")),
        Err(unanswered) => unanswered,
    }
}

/// Has `commit` done, which commits, by a thread that may wait: one at a time.
///
/// Errors: an answer that says why there is none.
async fn committing<T: Send + 'static>(
    shared: Arc<Shared>,
    commit: impl FnOnce(&Vfs) -> T + Send + 'static,
) -> Result<T, Response> {
    let committed = timeout(COMMIT_MAX, async move {
        let turn = shared.committing.clone().acquire_owned().await.ok()?;
        let vfs = shared.daemon.vfs.upgrade()?;
        spawn_blocking(move || (commit(&vfs), turn).0).await.ok()
    });
    match committed.await {
        Ok(Some(committed)) => Ok(committed),
        Ok(None) => Err(unserved()),
        Err(_) => {
            let seconds = COMMIT_MAX.as_secs();
            let line = format!("the commit has not ended within {seconds} seconds; it is still tried");
            Err(text(StatusCode::GATEWAY_TIMEOUT, &line))
        }
    }
}

/// Has `change` change what is kept of the past, and logs `done` once it is.
async fn change(
    shared: Arc<Shared>,
    (Asker(user), done): (Asker, String),
    change: impl FnOnce(&Vfs) -> weft_vfs::Result<CommitNo> + Send + 'static,
) -> Response {
    let logged = move |vfs: &Vfs| {
        change(vfs).inspect(|commit| {
            let done = printable(&done);
            tracing::info!(user, commit = commit.0, "{done}, as user {user} asked for");
        })
    };
    match committing(shared, logged).await {
        Ok(Ok(CommitNo(number))) => json(&json!({ "commit": number })),
        Ok(Err(error)) => text(StatusCode::CONFLICT, &error.to_string()),
        Err(unanswered) => unanswered,
    }
}

/// Changes the limits of the volume. Each is a number, `none`, or `same`: it stays as it is.
async fn set_limits(
    State(shared): State<Arc<Shared>>,
    Extension(Asker(user)): Extension<Asker>,
    Path((bytes, inodes)): Path<(String, String)>,
) -> Response {
    let limit = |text: &str| match text {
        "same" => Some(None),
        "none" => Some(Some(None)),
        number => {
            number.parse::<u64>().ok().filter(|max| (1..=i64::MAX as u64).contains(max)).map(|max| Some(Some(max)))
        }
    };
    let (Some(bytes_max), Some(inodes_max)) = (limit(&bytes), limit(&inodes)) else {
        return text(StatusCode::BAD_REQUEST, "a limit is a number from 1 on, 'none' or 'same'");
    };
    let change = LimitsChange { bytes_max, inodes_max };
    let changed = committing(shared, move |vfs| {
        vfs.change_limits(change).inspect(|(limits, CommitNo(commit))| {
            let Limits { bytes_max, inodes_max } = limits;
            tracing::info!(user, commit, bytes_max, inodes_max, "limits are set, as user {user} asked for");
        })
    });
    match changed.await {
        Ok(Ok((Limits { bytes_max, inodes_max }, CommitNo(commit)))) => {
            json(&json!({ "commit": commit, "bytes_max": bytes_max, "inodes_max": inodes_max }))
        }
        Ok(Err(error)) => text(StatusCode::CONFLICT, &error.to_string()),
        Err(unanswered) => unanswered,
    }
}

/// Keeps history by a rule, for readers; `same`: for those who may read it already.
async fn set_history(
    State(shared): State<Arc<Shared>>,
    Extension(asker): Extension<Asker>,
    Path((rule, readers)): Path<(String, String)>,
) -> Response {
    let done = format!("history is kept by the rule '{rule}' from now on");
    change(shared, (asker, done), move |vfs| vfs.keep_history(&rule, HistoryFor::named(&readers))).await
}

async fn end_history(State(shared): State<Arc<Shared>>, Extension(asker): Extension<Asker>) -> Response {
    change(shared, (asker, "all history is dropped, and none is kept from now on".into()), Vfs::end_history).await
}

/// Gives up some of the past that nobody sees; 0: it is the first request.
async fn collect_history(State(shared): State<Arc<Shared>>, Path(since): Path<u64>) -> Response {
    match committing(shared, move |vfs| vfs.collect_history(Some(CommitNo(since)))).await {
        Ok(Ok(collected)) => json(&json!({
            "since": collected.since.0,
            "swept": collected.swept.0,
            "until": collected.until.0,
            "is_done": collected.is_done,
            "bytes_before": collected.bytes_before,
            "bytes_free": collected.bytes_free,
            "clock_jump_seconds": collected.clock_jump.map(|jump| jump.0.as_secs()),
        })),
        Ok(Err(error)) => text(StatusCode::CONFLICT, &error.to_string()),
        Err(unanswered) => unanswered,
    }
}

/// Makes a snapshot; 0: it is not held.
async fn create_snapshot(
    State(shared): State<Arc<Shared>>,
    Extension(asker): Extension<Asker>,
    Path((name, until)): Path<(String, i64)>,
) -> Response {
    let until = Some(Timestamp(until)).filter(|until| until.0 != 0);
    let held = until.map_or_else(String::new, |until| format!(", and held until {}", rfc3339(until)));
    let done = format!("snapshot '{name}' is made{held}");
    change(shared, (asker, done), move |vfs| vfs.create_snapshot(&name, until)).await
}

async fn delete_snapshot(
    State(shared): State<Arc<Shared>>,
    Extension(asker): Extension<Asker>,
    Path(name): Path<String>,
) -> Response {
    change(shared, (asker, format!("snapshot '{name}' is deleted")), move |vfs| vfs.delete_snapshot(&name)).await
}

async fn rename_snapshot(
    State(shared): State<Arc<Shared>>,
    Extension(asker): Extension<Asker>,
    Path((name, new)): Path<(String, String)>,
) -> Response {
    let done = format!("snapshot '{name}' is renamed to '{new}'");
    change(shared, (asker, done), move |vfs| vfs.rename_snapshot(&name, &new)).await
}

async fn hold_snapshot(
    State(shared): State<Arc<Shared>>,
    Extension(asker): Extension<Asker>,
    Path((name, until)): Path<(String, i64)>,
) -> Response {
    let until = Timestamp(until);
    let done = format!("snapshot '{name}' is held until {}", rfc3339(until));
    change(shared, (asker, done), move |vfs| vfs.hold_snapshot(&name, until)).await
}

/// Has the earlier content of files whose paths are like a pattern go soon.
async fn exclude_from_history(
    State(shared): State<Arc<Shared>>,
    Extension(asker): Extension<Asker>,
    RawQuery(query): RawQuery,
) -> Response {
    let done = |pattern: &str| format!("history keeps no content of {pattern} from now on");
    change_by_pattern(shared, (asker, done), query, Vfs::exclude_from_history).await
}

async fn include_in_history(
    State(shared): State<Arc<Shared>>,
    Extension(asker): Extension<Asker>,
    RawQuery(query): RawQuery,
) -> Response {
    let done = |pattern: &str| format!("history keeps the content of {pattern} again");
    change_by_pattern(shared, (asker, done), query, Vfs::include_in_history).await
}

/// Has `by_pattern` change what is kept, by the pattern that `query` has.
async fn change_by_pattern(
    shared: Arc<Shared>,
    (asker, done): (Asker, impl FnOnce(&str) -> String),
    query: Option<String>,
    by_pattern: fn(&Vfs, &[u8]) -> weft_vfs::Result<CommitNo>,
) -> Response {
    let Some(request) = query.as_deref().and_then(restore_request) else {
        return text(StatusCode::BAD_REQUEST, "that is no pattern");
    };
    let done = done(&String::from_utf8_lossy(&request.path));
    change(shared, (asker, done), move |vfs| by_pattern(vfs, &request.path)).await
}

/// Takes the content of a file, by its path, out of the past.
async fn forget_history(
    State(shared): State<Arc<Shared>>,
    Extension(Asker(user)): Extension<Asker>,
    RawQuery(query): RawQuery,
) -> Response {
    let Some(request) = query.as_deref().and_then(restore_request) else {
        return text(StatusCode::BAD_REQUEST, "that is no path");
    };
    let forget = move |vfs: &Vfs| Ok((vfs.forget_history_by_order(&request.path, user)?, vfs.last_commit().0.0));
    match committing(shared, forget).await {
        Ok(Ok((files, commit))) => json(&json!({ "files": files, "commit": commit })),
        Ok(Err::<_, RestoreError>(error)) => text(StatusCode::CONFLICT, &error.to_string()),
        Err(unanswered) => unanswered,
    }
}

/// Merges blocks of a file, from a byte on, as far as one commit goes.
async fn defragment(State(shared): State<Arc<Shared>>, RawQuery(query): RawQuery) -> Response {
    let Some((path, from)) = query.as_deref().and_then(file_request) else {
        return text(StatusCode::BAD_REQUEST, "that is no path");
    };
    let merge = move |vfs: &Vfs| defragment_at(vfs, &path, from);
    match committing(shared, merge).await {
        Ok(Ok(done)) => json(&defragmented_value(&done)),
        Ok(Err(error)) => text(StatusCode::CONFLICT, &error.to_string()),
        Err(unanswered) => unanswered,
    }
}

/// Tells how a file is stored.
async fn fragments(State(shared): State<Arc<Shared>>, RawQuery(query): RawQuery) -> Response {
    let Some((path, _)) = query.as_deref().and_then(file_request) else {
        return text(StatusCode::BAD_REQUEST, "that is no path");
    };
    match committing(shared, move |vfs: &Vfs| fragments_at(vfs, &path)).await {
        Ok(Ok(found)) => json(&fragments_value(found.as_ref())),
        Ok(Err(error)) => text(StatusCode::CONFLICT, &error.to_string()),
        Err(unanswered) => unanswered,
    }
}

/// Restores something of the past. Nobody but the holder of the volume and root gets here, who may
/// do all with it.
async fn restore(
    State(shared): State<Arc<Shared>>,
    Extension(Asker(user)): Extension<Asker>,
    RawQuery(query): RawQuery,
) -> Response {
    let Some(request) = query.as_deref().and_then(restore_request) else {
        return text(StatusCode::BAD_REQUEST, "that is no request to restore something");
    };
    let restored = move |vfs: &Vfs| {
        vfs.restore(&request).inspect(|report| {
            if !request.is_rehearsal {
                let path = printable(&String::from_utf8_lossy(&request.path));
                let commit = report.then.0;
                tracing::info!(user, commit, "{path} is restored as of commit {commit}, as user {user} asked for");
            }
        })
    };
    match committing(shared, restored).await {
        Ok(Ok(report)) => json(&report_value(&report)),
        Ok(Err(error)) => text(StatusCode::CONFLICT, &error.to_string()),
        Err(unanswered) => unanswered,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_commit_and_a_lost_volume_are_why_a_daemon_is_not_ready() {
        let with = |change: fn(&mut Stats)| {
            let mut stats = Stats::default();
            change(&mut stats);
            failure(&stats)
        };
        assert_eq!(with(|_| ()), None);
        let failed = with(|stats| stats.commit_error = Some("no space".into()));
        assert_eq!(failed.as_deref(), Some("the last commit failed: no space"));
        let lost = with(|stats| (stats.lost, stats.commit_error) = (Some("taken".into()), Some("x".into())));
        assert_eq!(lost.as_deref(), Some("taken"));
        assert_eq!(with(|stats| stats.failed_writeback = Some("bytes".into())).as_deref(), Some("bytes"));
        let unanswered =
            with(|stats| (stats.unanswered_seconds, stats.failed_writeback) = (Some(20), Some("bytes".into())));
        assert_eq!(unanswered.as_deref(), Some("the database server has not answered for 20 seconds"));
    }

    #[test]
    fn times_are_told_in_utc() {
        assert_eq!(rfc3339(Timestamp(1_500_000_000)), "1970-01-01T00:00:01.500Z");
    }
}
