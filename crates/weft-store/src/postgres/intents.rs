//! The intent log as rows: an fsync costs one short transaction instead of a commit.
//!
//! Records are written in the order in which they were appended; those who sync at once share a transaction, which checks the lease as commits
//! do. A commit removes the records of the operations that it contains.

use super::PostgresStore;
use super::connection::{Connection, Parameter};
use super::read::{get, int, unsigned};
use super::settings;
use super::statements as sql;
use crate::error::{Error, Result};
use crate::log::{Loss, Record};
use crate::round_trips::Class;
use crate::row::OpNo;
use crate::sums;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const WHAT: &str = "cannot write the intent log";

/// Bytes of operations after which a commit is due.
const BYTES_EAGER: u64 = 128 << 20;

/// Most bytes of operations between two commits.
const BYTES_MAX: u64 = 256 << 20;

/// Bytes of records that are read together, unless one alone has more, and how many records that may be.
const TOGETHER_BYTES: u64 = 8 << 20;
const TOGETHER_MAX: i64 = 4096;

/// Bytes of the sum behind the operations of a row.
const SUM: usize = 8;

/// The log of one mounted volume.
pub struct Intents {
    shared: Arc<Shared>,
    epoch: u64,
    /// Bytes since the last commit began.
    used: u64,
}

/// Writes what was appended.
pub struct IntentSync(Arc<Shared>);

struct Shared {
    store: Arc<PostgresStore>,
    queue: Mutex<Queue>,
    /// Locked before the queue.
    line: Mutex<Line>,
}

#[derive(Default)]
struct Queue {
    epoch: u64,
    records: Vec<Record>,
    /// How many were ever appended.
    appended: u64,
    /// How many of them the commit contains that began last.
    committing: u64,
    /// How many of them durable commits contain.
    committed: u64,
}

struct Line {
    /// None before the first use, and after it broke.
    connection: Option<Connection>,
    /// How many of those appended were written, or failed to be.
    written: u64,
    /// Those that are missing, if any: more than the one, up to the other. Nothing is written behind them, as nothing counts after a gap.
    missing: Option<(u64, u64)>,
}

impl Intents {
    /// Of the volume that `store` holds.
    pub(super) fn new(store: Arc<PostgresStore>) -> Intents {
        let line = Mutex::new(Line { connection: None, written: 0, missing: None });
        Intents { shared: Arc::new(Shared { store, queue: Mutex::default(), line }), epoch: 0, used: 0 }
    }

    /// The next records of `epoch` that begin after operation `after`, in order: as many as may be in memory together, none if there are no more.
    /// `Lost` if one is damaged or missing; where that is accepted, those before it are all.
    pub fn records(&self, epoch: u64, after: OpNo) -> Result<Vec<Record>> {
        const WHAT: &str = "cannot read the intent log";
        self.shared.store.read(Class::Commits, |connection| {
            let unsigned_epoch = epoch;
            let (epoch, after) = (int(epoch), int(after.0));
            let limit = Box::new(TOGETHER_MAX);
            let (op, uuid) = {
                let header = self.shared.store.header.lock();
                (header.counters.op.0, header.uuid)
            };
            let mut order = Order { uuid, epoch: unsigned_epoch, next: op + 1 };
            if after == 0 {
                if let Err(lost) = order.refuse_later(connection)? {
                    self.refuse(lost)?;
                }
            } else {
                let before = connection.query(WHAT, sql::INTENTS_UP_TO, vec![Box::new(epoch), Box::new(after)])?;
                let last = before.first().map(|row| get::<Option<i64>>(row, 0)).transpose()?.flatten();
                order.pass(last.map_or(0, i64::unsigned_abs));
            }
            let sizes = connection.query(WHAT, sql::INTENTS_SIZES, vec![Box::new(epoch), Box::new(after), limit])?;
            if sizes.is_empty() {
                return Ok(Vec::new());
            }
            let (mut last, mut bytes) = (after, 0);
            for row in &sizes {
                bytes += unsigned(row, 1)?;
                if bytes > TOGETHER_BYTES && last != after {
                    break;
                }
                last = get(row, 0)?;
            }
            let span: Vec<Parameter> = vec![Box::new(epoch), Box::new(after), Box::new(last)];
            let rows = connection.query(WHAT, sql::INTENTS, span)?;
            let mut records = Vec::with_capacity(rows.len());
            for row in &rows {
                match order.record(row)? {
                    Ok(record) => records.push(record),
                    Err(lost) => {
                        self.refuse(lost)?;
                        break;
                    }
                }
            }
            Ok(records)
        })
    }

    /// An error, unless loss is accepted.
    fn refuse(&self, lost: String) -> Result<()> {
        match self.shared.store.loss {
            Loss::Refuse => Err(Error::Lost(lost)),
            Loss::Accept => Ok(()),
        }
    }

    /// Begins `epoch`: what was logged before means nothing any more.
    pub fn start(&mut self, epoch: u64) -> Result<()> {
        self.epoch = epoch;
        self.used = 0;
        self.shared.queue.lock().epoch = epoch;
        self.shared.store.read(Class::Commits, |connection| {
            connection.query(WHAT, sql::FORGET_EPOCHS, vec![Box::new(int(epoch))]).map(|_| ())
        })
    }

    /// Whether so many more bytes may be appended.
    pub fn fits(&self, bytes: usize) -> bool {
        self.used + bytes as u64 <= BYTES_MAX
    }

    /// Whether anything was appended since the last commit began.
    pub fn is_used(&self) -> bool {
        self.used > 0
    }

    /// Whether a commit is due.
    pub fn is_half_full(&self) -> bool {
        self.used > BYTES_EAGER
    }

    /// Appends operations; [`IntentSync::sync`] writes them.
    pub fn append(&mut self, first: OpNo, last: OpNo, bytes: &[u8]) {
        self.used += bytes.len() as u64;
        let mut queue = self.shared.queue.lock();
        queue.records.push(Record { first, last, bytes: bytes.to_vec() });
        queue.appended += 1;
    }

    /// What writes all that was appended before it begins.
    pub fn syncer(&self) -> IntentSync {
        IntentSync(self.shared.clone())
    }

    /// A commit begins that contains all that was appended so far.
    pub fn switch(&mut self) {
        self.used = 0;
        let mut queue = self.shared.queue.lock();
        queue.committing = queue.appended;
    }

    /// A commit that began with [`Intents::switch`] is durable.
    pub fn release(&mut self) {
        let mut queue = self.shared.queue.lock();
        queue.committed = queue.committing;
    }
}

/// What rows of the log are held against, in their order.
pub(super) struct Order {
    pub(super) uuid: [u8; 16],
    pub(super) epoch: u64,
    /// The operation that no row before has, nor the last commit.
    pub(super) next: u64,
}

impl Order {
    /// The record of a row `first, last, bytes`, or what is lost.
    pub(super) fn record(&mut self, row: &tokio_postgres::Row) -> Result<std::result::Result<Record, String>> {
        let (first, last): (i64, i64) = (get(row, 0)?, get(row, 1)?);
        let mut bytes: Vec<u8> = get(row, 2)?;
        let (Ok(first), Ok(last)) = (u64::try_from(first), u64::try_from(last)) else {
            return Ok(Err(lost(self.next, "is damaged")));
        };
        if first > self.next {
            return Ok(Err(lost(self.next, "is missing")));
        }
        let sum = bytes.len().checked_sub(SUM).map(|at| bytes.split_off(at));
        if sum != Some(sums::intents(&self.uuid, self.epoch, (first, last), &bytes).to_le_bytes().to_vec()) {
            return Ok(Err(lost(first, "is damaged")));
        }
        self.pass(last);
        Ok(Ok(Record { first: OpNo(first), last: OpNo(last), bytes }))
    }

    /// What is lost if there are rows of an epoch that has not begun. Those of earlier ones mean nothing.
    pub(super) fn refuse_later(&self, connection: &mut Connection) -> Result<std::result::Result<(), String>> {
        const WHAT: &str = "cannot read the intent log";
        let rows = connection.query(WHAT, sql::LATER_INTENT, vec![Box::new(int(self.epoch))])?;
        let Some(row) = rows.first() else { return Ok(Ok(())) };
        Ok(Err(lost(get::<i64>(row, 0)?.unsigned_abs(), "has an epoch that has not begun")))
    }

    fn pass(&mut self, last: u64) {
        self.next = self.next.max(last.saturating_add(1));
    }
}

fn lost(op: u64, how: &str) -> String {
    format!(
        "the row of operation {op} in the table intents {how}: what was synced from there on is lost; \
         restore the table, or mount with --accept-loss, which goes on without"
    )
}

/// Operations as their row holds them: with their sum.
fn summed(uuid: &[u8; 16], epoch: u64, record: Record) -> Vec<u8> {
    let mut bytes = record.bytes;
    let sum = sums::intents(uuid, epoch, (record.first.0, record.last.0), &bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

impl IntentSync {
    /// Returns when all that was appended before is written, durably.
    pub fn sync(&self) -> Result<()> {
        let shared = &*self.0;
        let target = shared.queue.lock().appended;
        let mut line = shared.line.lock();
        let committed = shared.queue.lock().committed;
        line.missing = line.missing.filter(|(_, last)| *last > committed);
        if line.written < target {
            let (epoch, records, appended) = {
                let mut queue = shared.queue.lock();
                (queue.epoch, std::mem::take(&mut queue.records), queue.appended)
            };
            let before = std::mem::replace(&mut line.written, appended);
            if let Some((_, last)) = &mut line.missing {
                *last = appended;
                return Err(Error::Interrupted);
            }
            let written = shared.write(&mut line, epoch, records);
            if written.is_err() {
                line.missing = Some((before, appended));
                line.connection = None;
            }
            return written;
        }
        // Who was to write them for us was told why not.
        if line.missing.is_some_and(|(after, _)| target > after) { Err(Error::Interrupted) } else { Ok(()) }
    }
}

impl Shared {
    fn write(&self, line: &mut Line, epoch: u64, records: Vec<Record>) -> Result<()> {
        if line.connection.as_ref().is_none_or(Connection::is_closed) {
            let mut connection = self.store.connect()?;
            connection.count_as(Class::Commits);
            line.connection = Some(connection);
        }
        let connection = line.connection.as_mut().expect("just connected");
        self.store.has_intents.store(true, Ordering::Relaxed);
        let count = records.len();
        let uuid = self.store.header.lock().uuid;
        let trusts_server = self.store.connector.address.trusts_server;
        let mut parameters: Vec<Parameter> =
            vec![Box::new(self.store.lease.epoch()), Box::new(int(epoch)), Box::new(trusts_server)];
        let mut add = |firsts: Parameter, lasts: Parameter, bytes: Parameter| parameters.extend([firsts, lasts, bytes]);
        let statement = match <[Record; 1]>::try_from(records) {
            Ok([record]) => {
                add(
                    Box::new(int(record.first.0)),
                    Box::new(int(record.last.0)),
                    Box::new(summed(&uuid, epoch, record)),
                );
                sql::ADD_INTENT
            }
            Err(records) => {
                let of = |number: fn(&Record) -> OpNo| {
                    Box::new(records.iter().map(|record| int(number(record).0)).collect::<Vec<_>>())
                };
                let (firsts, lasts) = (of(|record| record.first), of(|record| record.last));
                let bytes = records.into_iter().map(|record| summed(&uuid, epoch, record)).collect::<Vec<_>>();
                add(firsts, lasts, Box::new(bytes));
                sql::ADD_INTENTS
            }
        };
        parameters.push(Box::new(uuid.to_vec()));
        connection.take_warning();
        let rows = connection.query(WHAT, statement, parameters)?;
        if rows.len() != count {
            self.store.refuse_other(connection)?;
            settings::refuse_weak(connection, &self.store.connector.address)?;
            return Err(Error::Interrupted);
        }
        if connection.take_warning() { self.store.confirm(connection) } else { Ok(()) }
    }
}
