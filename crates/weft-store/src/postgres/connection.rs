//! One connection to the server, used by one thread at a time.
//!
//! Whoever waits for an answer drives the connection itself: a thread of its own would have to be woken for each. Statements are
//! prepared at their first use; several go out together and cost one round trip.

use crate::error::{Error, Result, tells_the_end};
use crate::round_trips::{Class, Counts};
use bytes::Bytes;
use futures_util::future::{FusedFuture, maybe_done, try_join_all};
use futures_util::{FutureExt, SinkExt, TryStreamExt};
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row, Statement};

/// A parameter of a statement.
pub(super) type Parameter = Box<dyn ToSql + Sync + Send>;

/// Statements that stay prepared, and those of one round trip.
const PREPARED_MAX: usize = 256;

/// Statements that wait for their answers at once: each takes about a KiB in memory. More go out as these are answered.
const WAITING_MAX: usize = 1024;

/// What sends and receives.
pub(super) type Driving = Pin<Box<dyn Future<Output = Result<(), tokio_postgres::Error>> + Send>>;

/// The same; over once the connection is closed.
type Driver = Pin<Box<dyn FusedFuture<Output = Result<(), tokio_postgres::Error>> + Send>>;

/// The text of a statement: one of `statements`, or one that names the table of a file.
pub(super) type Text = Cow<'static, str>;

/// A statement with its parameters.
pub(super) struct Call {
    statement: Text,
    parameters: Vec<Parameter>,
    /// Those of the parameters, if it is not worth preparing.
    types: Option<Vec<Type>>,
}

impl Call {
    /// Of a statement that is prepared once and remembered.
    pub(super) fn new(statement: impl Into<Text>, parameters: Vec<Parameter>) -> Call {
        Call { statement: statement.into(), parameters, types: None }
    }

    /// Of a statement that will hardly be said again, or names what is not there before those sent with it are done.
    pub(super) fn once(statement: impl Into<Text>, parameters: Vec<(Parameter, Type)>) -> Call {
        let (parameters, types) = parameters.into_iter().unzip();
        Call { statement: statement.into(), parameters, types: Some(types) }
    }
}

/// A connection.
pub(super) struct Connection {
    runtime: Runtime,
    client: Client,
    driver: Driver,
    prepared: HashMap<Text, Statement>,
    counts: Arc<Counts>,
    class: Class,
    /// What is said before the next statements, in one round trip with them.
    prefix: Option<&'static str>,
    /// True if the server has warned of something.
    warned: Arc<AtomicBool>,
    /// How the session is told from others, if its settings have it.
    pub(super) mark: Option<String>,
    /// Whether the server has said that it ends.
    is_ending: bool,
    /// Whether each file's rows may lie on a node of their own, so that no join reaches those of another file.
    pub(super) lies_apart: bool,
}

fn failed(what: &'static str) -> impl Fn(tokio_postgres::Error) -> Error {
    move |source| Error::Postgres { what, source }
}

/// Has `driver` send and receive until `future` is there.
fn drive<T>(runtime: &Runtime, driver: &mut Driver, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    runtime.block_on(poll_fn(|context| {
        loop {
            if let Poll::Ready(value) = future.as_mut().poll(context) {
                return Poll::Ready(value);
            }
            // Closed, it has told whoever waits.
            if driver.is_terminated() || driver.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
        }
    }))
}

/// Has `visit` look at the result of each of `requests` as it comes. They are sent in the order in which they are first polled, [`WAITING_MAX`] at once, and
/// answered in that order: until one is answered, none after it need be looked at again.
async fn in_order<T>(requests: impl Iterator<Item = impl Future<Output = T>>, mut visit: impl FnMut(T)) {
    let mut requests = requests.map(|request| Box::pin(maybe_done(request))).fuse();
    let mut sent = VecDeque::new();
    poll_fn(|context| {
        loop {
            while sent.len() < WAITING_MAX
                && let Some(mut request) = requests.next()
            {
                let _ = request.as_mut().poll(context);
                sent.push_back(request);
            }
            let Some(request) = sent.front_mut() else { return Poll::Ready(()) };
            if request.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            visit(request.as_mut().take_output().expect("it is done"));
            sent.pop_front();
        }
    })
    .await;
}

/// A runtime for one connection.
pub(super) fn runtime() -> Result<Runtime> {
    let built = Builder::new_current_thread().enable_all().build();
    built.map_err(|source| Error::Io { what: "cannot wait for", path: "the server".into(), source })
}

impl Connection {
    /// Takes over what was connected on `runtime`.
    pub(super) fn new(
        runtime: Runtime,
        (client, driver): (Client, Driving),
        counts: Arc<Counts>,
        warned: Arc<AtomicBool>,
    ) -> Connection {
        let (driver, prepared) = (Box::pin(driver.fuse()), HashMap::new());
        Connection {
            runtime,
            client,
            driver,
            prepared,
            counts,
            class: Class::Lease,
            prefix: None,
            warned,
            mark: None,
            is_ending: false,
            lies_apart: false,
        }
    }

    /// Whether the server has gone, as far as is known.
    pub(super) fn is_closed(&self) -> bool {
        self.is_ending || self.client.is_closed()
    }

    /// True if the server has warned of something since this was asked last.
    pub(super) fn take_warning(&mut self) -> bool {
        self.warned.swap(false, Ordering::Relaxed)
    }

    fn noted<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(Error::Postgres { source, .. }) = &result {
            self.is_ending |= tells_the_end(source);
        }
        result
    }

    /// From now on round trips are for this.
    pub(super) fn count_as(&mut self, class: Class) {
        self.class = class;
    }

    fn count(&self) {
        self.counts.count(self.class);
    }

    /// Runs statements without parameters, in one string.
    pub(super) fn run(&mut self, what: &'static str, statements: &str) -> Result<()> {
        self.count();
        let run = drive(&self.runtime, &mut self.driver, self.client.batch_execute(statements));
        self.noted(run.map_err(failed(what)))
    }

    /// Has `statement` said before the next ones, without waiting for it.
    pub(super) fn say_first(&mut self, statement: &'static str) {
        self.prefix = Some(statement);
    }

    /// Forgets what was to be said; tells whether there was anything.
    pub(super) fn unsay(&mut self) -> bool {
        self.prefix.take().is_some()
    }

    /// Prepares what is not yet, in one round trip.
    fn prepare<'a>(&mut self, what: &'static str, statements: impl Iterator<Item = &'a Text>) -> Result<()> {
        let wanted = statements.collect::<BTreeSet<_>>();
        if self.prepared.len() > PREPARED_MAX {
            // Those of tables that are not read now.
            self.prepared.retain(|statement, _| matches!(statement, Cow::Borrowed(_)) || wanted.contains(statement));
        }
        let missing = wanted.into_iter().filter(|statement| !self.prepared.contains_key(*statement));
        let missing = missing.collect::<Vec<_>>();
        if missing.is_empty() {
            return Ok(());
        }
        self.count();
        let all = try_join_all(missing.iter().map(|statement| self.client.prepare(statement)));
        let prepared = drive(&self.runtime, &mut self.driver, all).map_err(failed(what));
        let prepared = self.noted(prepared)?;
        self.prepared.extend(missing.into_iter().cloned().zip(prepared));
        Ok(())
    }

    /// The rows of each of `calls`, which go out together, and cost a round trip for each [`WAITING_MAX`] of them. The first error is told; after one in a transaction nothing but rolling back
    /// is left.
    pub(super) fn query_all(&mut self, what: &'static str, calls: &[Call]) -> Result<Vec<Vec<Row>>> {
        let mut rows = Vec::with_capacity(calls.len());
        let mut failure = Ok(());
        let sent = self.visit_all(what, calls, |answer| match answer {
            Ok(found) => rows.push(found),
            Err(error) if failure.is_ok() => failure = Err(error),
            Err(_) => {}
        });
        failure.and(sent).map(|()| rows)
    }

    /// Has `visit` look at the rows of each of `calls`, which go out together, as they come, or at why there are none. Fails if the connection
    /// breaks, or what stands behind it; from there on nothing is visited.
    pub(super) fn visit_all(
        &mut self,
        what: &'static str,
        calls: &[Call],
        mut visit: impl FnMut(Result<Vec<Row>>),
    ) -> Result<()> {
        if calls.is_empty() {
            return Ok(());
        }
        let lasting = calls.iter().filter(|call| call.types.is_none());
        self.prepare(what, lasting.map(|call| &call.statement))?;
        (0..calls.len().div_ceil(WAITING_MAX)).for_each(|_| self.count());
        let (client, prepared) = (&self.client, &self.prepared);
        let prefix = self.prefix.take();
        let query = async |call: Option<&Call>| {
            let Some(call) = call else {
                return (true, client.batch_execute(prefix.unwrap_or_default()).await.map(|()| Vec::new()));
            };
            let parameters = call.parameters.iter().map(|parameter| &**parameter as &(dyn ToSql + Sync));
            let rows = match &call.types {
                None => client.query_raw(&prepared[&call.statement], parameters).await,
                Some(types) => client.query_typed_raw(&call.statement, parameters.zip(types.iter().cloned())).await,
            };
            (false, async { rows?.try_collect::<Vec<Row>>().await }.await)
        };
        let first = prefix.is_some().then_some(None);
        let (mut is_ending, mut failure) = (false, Ok(()));
        let all = in_order(first.into_iter().chain(calls.iter().map(Some)).map(query), |(is_prefix, answer)| {
            if failure.is_err() {
                // Whoever visits knows answers by their order.
                return;
            }
            let is_over = answer.as_ref().is_err_and(|error| error.is_closed() || tells_the_end(error));
            is_ending |= is_over;
            let answer = answer.map_err(failed(what));
            match answer {
                Err(error) if is_prefix || is_over => failure = Err(error),
                Ok(_) if is_prefix => {}
                answer => visit(answer),
            }
        });
        drive(&self.runtime, &mut self.driver, all);
        self.is_ending |= is_ending;
        failure
    }

    /// Has `take` look at the rows of each of `calls`, by its place among them, as they come. The first error is told, of a call or of `take`.
    pub(super) fn take_all(
        &mut self,
        what: &'static str,
        calls: &[Call],
        mut take: impl FnMut(usize, Vec<Row>) -> Result<()>,
    ) -> Result<()> {
        let (mut places, mut taken) = (0.., Ok(()));
        let sent = self.visit_all(what, calls, |answer| {
            let place = places.next().unwrap_or_default();
            if taken.is_ok() {
                taken = answer.and_then(|rows| take(place, rows));
            }
        });
        sent.and(taken)
    }

    /// The rows of one statement.
    pub(super) fn query(
        &mut self,
        what: &'static str,
        statement: impl Into<Text>,
        parameters: Vec<Parameter>,
    ) -> Result<Vec<Row>> {
        let rows = self.query_all(what, &[Call::new(statement, parameters)])?.pop();
        Ok(rows.unwrap_or_default())
    }

    /// Visits the rows of a statement as they come, however many there are. An error ends the connection's use: rows may be on their way.
    pub(super) fn each(
        &mut self,
        what: &'static str,
        statement: &str,
        mut visit: impl FnMut(&Row) -> Result<()>,
    ) -> Result<()> {
        self.count();
        let client = &self.client;
        let all = async {
            let rows = client.query_raw::<_, &(dyn ToSql + Sync), _>(statement, []).await.map_err(failed(what))?;
            let mut rows = pin!(rows);
            while let Some(row) = rows.try_next().await.map_err(failed(what))? {
                visit(&row)?;
            }
            Ok(())
        };
        drive(&self.runtime, &mut self.driver, all)
    }

    /// Feeds `chunks` to a `COPY … FROM STDIN`; tells how many rows it took.
    pub(super) fn copy(
        &mut self,
        what: &'static str,
        statement: Text,
        chunks: impl IntoIterator<Item = Bytes>,
    ) -> Result<u64> {
        if let Some(prefix) = self.prefix.take() {
            self.run(what, prefix)?;
        }
        self.prepare(what, std::iter::once(&statement))?;
        self.count();
        let (client, statement) = (&self.client, &self.prepared[&statement]);
        let copy = async {
            let mut sink = pin!(client.copy_in::<_, Bytes>(statement).await?);
            for chunk in chunks {
                sink.feed(chunk).await?;
            }
            sink.as_mut().finish().await
        };
        let copied = drive(&self.runtime, &mut self.driver, copy).map_err(failed(what));
        self.noted(copied)
    }
}
