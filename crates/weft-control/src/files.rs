//! Files of the volume, for programs that have no mount of it: read, written, listed, made, moved
//! and removed by requests at the control socket.
//!
//! A request is one of HTTP/1.1, named by its target; its query says of what it is. Paths begin at
//! the root of the volume, or where `at` or `in` says, and are hexadecimal in a query, as they are
//! any bytes; `id` names an inode as an answer before has told it. An answer is JSON, or the bytes
//! of a file. A request that fails is answered with `{"errno": NUMBER, "error": TEXT}`.
//!
//! Each is made with the rights of the user who connects, checked as for a client of NFS: nothing
//! is open between two requests, so a file that was removed is gone for its readers, too
//! (`ESTALE`). A few threads work on them, apart from those that tell the daemon's state: a volume
//! that is stuck holds up no other answer.

mod changes;
mod content;
mod path;
mod query;
mod refusal;
mod told;

use crate::answers::{Shared, refuse_bodies, unserved};
use axum::Router;
use axum::extract::rejection::ExtensionRejection;
use axum::extract::{Extension, FromRequestParts, RawQuery, Request, State};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::{get, post};
use path::TOPS;
use query::Query;
use refusal::{Refusal, refused};
use serde::Serialize;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};
use told::{Attributed, Listed, json_of};
use weft_vfs::{CommitNo, Cookie, Credentials, Latency, LatencyHistogram, User, Vfs, is_past, is_virtual};

/// Threads that work on files at once.
pub(crate) const WORKING_MAX: usize = 4;

/// Time within which one step of a request must be done.
const STEP_MAX: Duration = Duration::from_secs(60);

/// Entries of one answer.
const ENTRIES_MAX: usize = 4096;

/// Operations, as they are counted: the last names of their targets.
const OPERATIONS: [&str; 13] = [
    "attributes",
    "entries",
    "moment",
    "content",
    "create",
    "replace",
    "make-directory",
    "symlink",
    "set",
    "remove",
    "rename",
    "copy",
    "write",
];

/// Time that requests took until they were answered, by operation.
#[derive(Default)]
pub(crate) struct Counted([LatencyHistogram; OPERATIONS.len()]);

impl Counted {
    /// Those of operations that there were.
    pub(crate) fn operations(&self) -> Vec<(&'static str, Latency)> {
        let all = OPERATIONS.into_iter().zip(&self.0).map(|(name, counted)| (name, counted.latency()));
        all.filter(|(_, latency)| latency.count() > 0).collect()
    }
}

/// Counts a request, and has it answered.
async fn counted(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let name = request.uri().path().strip_prefix("/files/");
    let operation = OPERATIONS.iter().position(|operation| Some(*operation) == name);
    let begun = Instant::now();
    let answer = next.run(request).await;
    if let Some(operation) = operation {
        shared.files.0[operation].add(begun.elapsed());
    }
    answer
}

/// Refuses changes where the kernel keeps lengths and bytes of files for itself: it would put them
/// over what is changed here.
async fn refuse_changes(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    if request.method() != Method::GET && shared.vfs().is_some_and(|vfs| vfs.keeps_lengths()) {
        let why = "a mount with --writeback takes no changes here: mount the volume without it, or use the mount";
        return refused(StatusCode::CONFLICT, libc::EOPNOTSUPP, why);
    }
    next.run(request).await
}

/// Requests about files, each counted. One alone has a body.
pub(crate) fn router(shared: &Arc<Shared>) -> Router<Arc<Shared>> {
    Router::new()
        .route("/files/attributes", get(attributes))
        .route("/files/entries", get(entries))
        .route("/files/moment", get(moment))
        .route("/files/content", get(content::read))
        .route("/files/create", post(changes::create))
        .route("/files/replace", post(changes::replace))
        .route("/files/make-directory", post(changes::make_directory))
        .route("/files/symlink", post(changes::symlink))
        .route("/files/set", post(changes::set))
        .route("/files/remove", post(changes::remove))
        .route("/files/rename", post(changes::rename))
        .route("/files/copy", post(changes::copy))
        .layer(from_fn(refuse_bodies))
        .route("/files/write", post(content::write))
        .layer(from_fn_with_state(shared.clone(), refuse_changes))
        .layer(from_fn_with_state(shared.clone(), counted))
}

/// The volume, and as one user may use it.
pub(crate) struct Volume<'a> {
    pub(crate) vfs: &'a Vfs,
    pub(crate) user: User<'a>,
}

/// The daemon that is asked, and the user who asks.
#[derive(Clone)]
pub(crate) struct Asked {
    shared: Arc<Shared>,
    who: Arc<Credentials>,
}

impl FromRequestParts<Arc<Shared>> for Asked {
    type Rejection = ExtensionRejection;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Asked, ExtensionRejection> {
        let Extension(who) = Extension::from_request_parts(parts, shared).await?;
        Ok(Asked { shared: shared.clone(), who })
    }
}

impl Asked {
    /// Has `work` done by a thread that may wait, as the user who asks.
    ///
    /// Errors: an answer that says why it is not.
    async fn done<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Volume<'_>) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Response> {
        let Asked { shared, who } = self.clone();
        let worked = timeout(STEP_MAX, async move {
            let permit = shared.working.clone().acquire_owned().await.ok()?;
            // The permit goes with the thread, which nobody can end.
            let worked = move || (shared.work(|vfs| work(&Volume { vfs, user: vfs.user(&who) })), permit).0;
            spawn_blocking(worked).await.ok().flatten()
        });
        match worked.await {
            Ok(Some(worked)) => worked.map_err(|refusal| refusal.answer()),
            Ok(None) => Err(unserved()),
            Err(_) => {
                let seconds = STEP_MAX.as_secs();
                let why = format!("the volume has not answered within {seconds} seconds; a change may still be made");
                Err(refused(StatusCode::GATEWAY_TIMEOUT, libc::ETIMEDOUT, &why))
            }
        }
    }

    /// Answers what `work` tells, once it is done as `query` says, which has no other names than
    /// these.
    async fn told<T: Serialize + Send + 'static>(
        &self,
        query: Option<String>,
        names: &[&[&str]],
        work: impl FnOnce(&Volume<'_>, &Query) -> Result<T, Refusal> + Send + 'static,
    ) -> Response {
        let query = match Query::parse(query.as_deref(), names) {
            Ok(query) => query,
            Err(refusal) => return refusal.answer(),
        };
        let told = self.done(move |volume| work(volume, &query)).await;
        told.map_or_else(|refused| refused, |told| json_of(&told))
    }
}

/// Tells the attributes of an inode; of a symbolic link itself, if asked to.
async fn attributes(asked: Asked, RawQuery(query): RawQuery) -> Response {
    let attributed = |volume: &Volume<'_>, query: &Query| {
        let found = match query.id("id")? {
            Some(id) => volume.user.attributes(id)?,
            None if query.has("link") => path::find_itself(volume, query)?,
            None => path::find(volume, query)?,
        };
        Ok(Attributed::of(volume, &found)?)
    };
    asked.told(query, &[&["path", "id", "link"], &TOPS], attributed).await
}

/// Lists a directory, from the entry on that `after` is the place of.
async fn entries(asked: Asked, RawQuery(query): RawQuery) -> Response {
    let listed = |volume: &Volume<'_>, query: &Query| {
        let directory = path::named(volume, query)?;
        let after = Cookie(query.number("after")?.unwrap_or(0));
        let listed = volume.user.read_directory_attributes(directory, after, ENTRIES_MAX)?;
        // A view may have more when it lists few.
        let is_stored = !is_past(directory.ino) && !is_virtual(directory.ino);
        let is_end = is_stored && listed.len() < ENTRIES_MAX && volume.user.attributes(directory)?.computed.is_none();
        Ok(Listed::of(volume, directory, &listed, is_end || listed.is_empty())?)
    };
    asked.told(query, &[&["path", "id", "after"], &TOPS], listed).await
}

/// Tells the commit that a moment stands for.
async fn moment(asked: Asked, RawQuery(query): RawQuery) -> Response {
    let found = |volume: &Volume<'_>, query: &Query| {
        let moment = query.text("at")?.ok_or_else(|| Refusal::senseless("'at' is missing"))?;
        let (_, CommitNo(commit)) = volume.user.root_at(&moment)?;
        Ok(json!({ "commit": commit }))
    };
    asked.told(query, &[&["at"]], found).await
}
