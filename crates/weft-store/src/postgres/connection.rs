//! One connection to the server, used by one thread at a time.
//!
//! The thread that waits for an answer drives the connection itself: a thread of its own would have
//! to be woken for each. Statements are prepared at their first use; several go out together and
//! cost one round trip.

use super::given_up::{IsGivenUp, given_up};
use super::identity::{self, Identity};
use crate::error::{Error, Result, tells_the_end};
use crate::round_trips::{Class, Counts};
use bytes::Bytes;
use futures_util::future::{Fuse, FusedFuture, OptionFuture, join, maybe_done, try_join_all};
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

/// Statements that wait for their answers at once: each takes about a KiB in memory. More go out as
/// these are answered.
const WAITING_MAX: usize = 1024;

/// The future that sends and receives.
pub(super) type Driving = Pin<Box<dyn Future<Output = Result<(), tokio_postgres::Error>> + Send>>;

/// The same; over once the connection is closed.
type Driver = Pin<Box<dyn FusedFuture<Output = Result<(), tokio_postgres::Error>> + Send>>;

/// The text of a statement: one of `statements`, or one that names the table of a file.
pub(super) type Text = Cow<'static, str>;

/// A statement with its parameters.
pub(super) struct Call {
    statement: Text,
    parameters: Vec<Parameter>,
    /// Types of the parameters, if it is not worth preparing.
    types: Option<Vec<Type>>,
}

impl Call {
    /// Makes a call of a statement that is prepared once and cached.
    pub(super) fn new(statement: impl Into<Text>, parameters: Vec<Parameter>) -> Call {
        Call { statement: statement.into(), parameters, types: None }
    }

    /// Makes a call of a statement that will hardly be used again, or that names objects which
    /// exist only after those sent with it are done.
    pub(super) fn once(statement: impl Into<Text>, parameters: Vec<(Parameter, Type)>) -> Call {
        let (parameters, types) = parameters.into_iter().unzip();
        Call { statement: statement.into(), parameters, types: Some(types) }
    }

    /// True if it reads rows, which another volume may have, too.
    fn is_reading(&self) -> bool {
        self.statement.trim_start_matches('(').starts_with("SELECT")
    }
}

/// The calls behind which a connection asks for the volume that it reads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// Each, as its rows are used before the next ones are there.
    Each,
    /// The last one: no rows are used before all are there.
    Last,
}

/// A connection.
pub(super) struct Connection {
    runtime: Runtime,
    client: Client,
    driver: Driver,
    /// Words for the server, for errors.
    server: Arc<str>,
    prepared: HashMap<Text, Statement>,
    counts: Arc<Counts>,
    class: Class,
    /// SQL sent before the next statements, in one round trip with them.
    prefix: Option<&'static str>,
    /// True if the server has warned of something.
    warned: Arc<AtomicBool>,
    /// Mark that tells the session from others, if its settings have one.
    pub(super) mark: Option<String>,
    /// The volume that it reads, once that is known: nothing is read of another one.
    pub(super) identity: Option<Arc<Identity>>,
    /// True if statements compare it themselves, where they can.
    pub(super) compares: bool,
    /// True if the server has said that it ends.
    is_ending: bool,
    /// True if each file's rows may lie on a node of their own, so that no join reaches those of
    /// another file.
    pub(super) lies_apart: bool,
    /// Tells whether whoever waits for what is read was killed: then the connection is closed.
    is_given_up: IsGivenUp,
}

fn failed(what: &'static str, server: &Arc<str>) -> impl Fn(tokio_postgres::Error) -> Error {
    move |source| Error::Postgres { what, server: server.clone(), source }
}

/// Has `driver` send and receive until `future` is there, or until it `is_given_up`, which closes
/// the connection.
fn drive<T>(runtime: &Runtime, (driver, is_given_up): (&mut Driver, IsGivenUp), future: impl Future<Output = T>) -> T {
    runtime.block_on(async {
        let (mut future, mut end) = (pin!(future), pin!(given_up(is_given_up)));
        poll_fn(|context| {
            loop {
                if let Poll::Ready(value) = future.as_mut().poll(context) {
                    return Poll::Ready(value);
                }
                // Closed, it has told those that wait.
                if driver.is_terminated() {
                    return Poll::Pending;
                }
                if driver.as_mut().poll(context).is_ready() {
                    continue;
                }
                if end.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                *driver = Box::pin(Fuse::<Driving>::terminated());
            }
        })
        .await
    })
}

/// The rows of `call`, one of those `prepared` or to be sent once.
async fn rows(
    client: &Client,
    prepared: &HashMap<Text, Statement>,
    call: &Call,
) -> std::result::Result<Vec<Row>, tokio_postgres::Error> {
    let parameters = call.parameters.iter().map(|parameter| &**parameter as &(dyn ToSql + Sync));
    let rows = match &call.types {
        None => client.query_raw(&prepared[&call.statement], parameters).await,
        Some(types) => client.query_typed_raw(&call.statement, parameters.zip(types.iter().cloned())).await,
    };
    rows?.try_collect().await
}

/// Has `visit` look at the result of each of `requests` as it comes. They are sent in the order in
/// which they are first polled, [`WAITING_MAX`] at once, and answered in that order: until one is
/// answered, none after it need be looked at again.
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
        server: &Arc<str>,
        counts: Arc<Counts>,
        (warned, is_given_up): (Arc<AtomicBool>, IsGivenUp),
    ) -> Connection {
        let (driver, prepared) = (Box::pin(driver.fuse()), HashMap::new());
        Connection {
            runtime,
            client,
            driver,
            server: server.clone(),
            prepared,
            counts,
            class: Class::Lease,
            prefix: None,
            warned,
            mark: None,
            identity: None,
            compares: false,
            is_ending: false,
            lies_apart: false,
            is_given_up,
        }
    }

    /// True if the server has gone, as far as is known.
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

    /// Counts round trips from now on as those of `class`.
    pub(super) fn count_as(&mut self, class: Class) {
        self.class = class;
    }

    fn count(&self) {
        self.counts.count(self.class);
    }

    /// Runs statements without parameters, in one string.
    pub(super) fn run(&mut self, what: &'static str, statements: &str) -> Result<()> {
        self.count();
        let run = drive(&self.runtime, (&mut self.driver, self.is_given_up), self.client.batch_execute(statements));
        self.noted(run.map_err(failed(what, &self.server)))
    }

    /// Has `statement` said before the next ones, without waiting for it.
    pub(super) fn say_first(&mut self, statement: &'static str) {
        self.prefix = Some(statement);
    }

    /// Forgets the SQL to be sent first; returns true if there was any.
    pub(super) fn unsay(&mut self) -> bool {
        self.prefix.take().is_some()
    }

    /// Prepares the statements that are not prepared yet, in one round trip.
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
        let identity = self.identity.as_ref().filter(|_| self.compares);
        let text = |statement| identity.map_or_else(|| identity::without(statement), |own| own.put_into(statement));
        let texts = missing.iter().map(|statement| text(statement)).collect::<Vec<_>>();
        let all = try_join_all(texts.iter().map(|text| self.client.prepare(text)));
        let prepared =
            drive(&self.runtime, (&mut self.driver, self.is_given_up), all).map_err(failed(what, &self.server));
        match self.noted(prepared) {
            Ok(prepared) => {
                self.prepared.extend(missing.into_iter().cloned().zip(prepared));
                Ok(())
            }
            // Another volume may lack the table.
            Err(error) => self.refuse_other().and(Err(error)),
        }
    }

    /// Returns the rows of each of `calls`, which go out together, and cost a round trip for each
    /// [`WAITING_MAX`] of them. The first error is returned; after one in a transaction nothing but
    /// rolling back is left.
    pub(super) fn query_all(&mut self, what: &'static str, calls: &[Call]) -> Result<Vec<Vec<Row>>> {
        let mut rows = Vec::with_capacity(calls.len());
        let mut failure = Ok(());
        let sent = self.send(what, (calls, Asked::Last), |answer| match answer {
            Ok(found) => rows.push(found),
            Err(error) if failure.is_ok() => failure = Err(error),
            Err(_) => {}
        });
        sent.and(failure).map(|()| rows)
    }

    /// Has `visit` look at the rows of each of `calls`, which go out together, as they come, or at
    /// why there are none. Fails if the connection breaks, or what stands behind it, or if another
    /// volume is read; from there on nothing is visited.
    pub(super) fn visit_all(
        &mut self,
        what: &'static str,
        calls: &[Call],
        visit: impl FnMut(Result<Vec<Row>>),
    ) -> Result<()> {
        self.send(what, (calls, Asked::Each), visit)
    }

    /// Sends as [`Connection::visit_all`] does; [`super::identity`] describes how rows of another
    /// volume are told from ours. Where a statement does not compare them itself, the server is
    /// asked behind those that `asked` says, in the same round trip. Asked before, it might answer
    /// for a volume that is exchanged a moment later.
    fn send(
        &mut self,
        what: &'static str,
        (calls, asked): (&[Call], Asked),
        mut visit: impl FnMut(Result<Vec<Row>>),
    ) -> Result<()> {
        let Some(last) = calls.last() else { return Ok(()) };
        let (identity, may_compare) = (self.identity.clone(), self.compares);
        let compares = |call: &Call| may_compare && call.types.is_none() && identity::has_place(&call.statement);
        let is_needed = calls.iter().any(|call| call.is_reading() && !compares(call));
        let own = identity
            .as_ref()
            .filter(|_| is_needed)
            .map(|identity| Call::new(identity.question().to_owned(), Vec::new()));
        let lasting = calls.iter().chain(&own).filter(|call| call.types.is_none());
        self.prepare(what, lasting.map(|call| &call.statement))?;
        (0..calls.len().div_ceil(WAITING_MAX)).for_each(|_| self.count());
        let (client, prepared) = (&self.client, &self.prepared);
        let prefix = self.prefix.take();
        let query = async |call: Option<&Call>| {
            let Some(call) = call else {
                let said = client.batch_execute(prefix.unwrap_or_default()).await;
                return (true, said.map(|()| Vec::new()), None);
            };
            let is_asked = asked == Asked::Each || std::ptr::eq(call, last);
            let own = own.as_ref().filter(|_| is_asked).map(|own| rows(client, prepared, own));
            let (answer, own) = join(rows(client, prepared, call), OptionFuture::from(own)).await;
            match answer {
                Err(error) if compares(call) => (false, Ok(Vec::new()), Some(error)),
                answer => (false, answer, own.and_then(std::result::Result::err)),
            }
        };
        let first = prefix.is_some().then_some(None);
        let (mut is_ending, mut failure, mut held) = (false, Ok(()), Vec::new());
        let all =
            in_order(first.into_iter().chain(calls.iter().map(Some)).map(query), |(is_prefix, answer, refusal)| {
                if failure.is_err() {
                    // The visitor knows answers by their order.
                    return;
                }
                let refused = identity.as_ref().zip(refusal.as_ref());
                if let Some(other) = refused.and_then(|(identity, refusal)| identity.refused(refusal)) {
                    failure = Err(other);
                    return;
                }
                let answer = answer.and_then(|rows| refusal.map_or(Ok(rows), Err));
                let is_over = answer.as_ref().is_err_and(|error| error.is_closed() || tells_the_end(error));
                is_ending |= is_over;
                let answer = answer.map_err(failed(what, &self.server));
                match answer {
                    Err(error) if is_prefix || is_over => failure = Err(error),
                    Ok(_) if is_prefix => {}
                    // Another volume may lack the table.
                    answer if answer.is_err() || !held.is_empty() => held.push(answer),
                    answer => visit(answer),
                }
            });
        drive(&self.runtime, (&mut self.driver, self.is_given_up), all);
        self.is_ending |= is_ending;
        if !held.is_empty() && failure.is_ok() {
            self.refuse_other()?;
            held.into_iter().for_each(visit);
        }
        failure
    }

    /// Fails if another volume is read, as far as that can be told.
    fn refuse_other(&mut self) -> Result<()> {
        let Some(identity) = self.identity.clone().filter(|_| !self.is_closed()) else { return Ok(()) };
        self.count();
        let asked =
            drive(&self.runtime, (&mut self.driver, self.is_given_up), self.client.batch_execute(identity.question()));
        asked.err().and_then(|error| identity.refused(&error)).map_or(Ok(()), Err)
    }

    /// Has `take` look at the rows of each of `calls`, by its place among them, as they come. The
    /// first error is returned, of a call or of `take`.
    pub(super) fn take_all(
        &mut self,
        what: &'static str,
        calls: &[Call],
        mut take: impl FnMut(usize, Vec<Row>) -> Result<()>,
    ) -> Result<()> {
        let (mut places, mut taken) = (0.., Ok(()));
        let sent = self.send(what, (calls, Asked::Last), |answer| {
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

    /// Visits the rows of a statement as they come, however many there are. An error ends the
    /// connection's use: rows may be on their way.
    pub(super) fn each(
        &mut self,
        what: &'static str,
        statement: &str,
        mut visit: impl FnMut(&Row) -> Result<()>,
    ) -> Result<()> {
        self.count();
        let client = &self.client;
        let all = async {
            let rows = client
                .query_raw::<_, &(dyn ToSql + Sync), _>(statement, [])
                .await
                .map_err(failed(what, &self.server))?;
            let mut rows = pin!(rows);
            while let Some(row) = rows.try_next().await.map_err(failed(what, &self.server))? {
                visit(&row)?;
            }
            Ok(())
        };
        drive(&self.runtime, (&mut self.driver, self.is_given_up), all)?;
        // Behind any statement it is asked which volume was read.
        self.query(what, "SELECT 1", Vec::new()).map(drop)
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
        let copied =
            drive(&self.runtime, (&mut self.driver, self.is_given_up), copy).map_err(failed(what, &self.server));
        self.noted(copied)
    }
}
