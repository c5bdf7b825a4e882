//! The intent log as rows: an fsync costs one short transaction instead of a commit.
//!
//! Records are written in the order in which they were appended; those who sync at once share a
//! transaction, which checks the lease as commits do, and that the last commit and the record
//! before are still there. A commit removes the records of the operations that it contains.

mod in_rows;

use super::PostgresStore;
use super::connection::{Call, Connection, Parameter};
use super::read::{get, int};
use super::settings;
use super::statements as sql;
use super::waiting::Order;
use crate::batch::Batch;
use crate::error::{Error, Result};
use crate::log::{DataLoss, Loss, Record, needs_log};
use crate::round_trips::Class;
use crate::row::OpNo;
use crate::store::Header;
use crate::sums;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weft_block::Rope;

const WHAT: &str = "cannot write the intent log";

/// Bytes of operations after which a commit is due.
const BYTES_EAGER: u64 = 128 << 20;

/// Most bytes of operations between two commits.
const BYTES_MAX: u64 = 256 << 20;

/// The log of one mounted volume.
pub struct Intents {
    shared: Arc<Shared>,
    epoch: u64,
    /// Bytes since the last commit began.
    used: u64,
    given_up: Mutex<GivenUp>,
}

/// Operations of the log that are given up, as loss is accepted.
#[derive(Default)]
struct GivenUp {
    /// The loss that nobody was told of yet.
    untold: Option<DataLoss>,
    /// The loss last told.
    told: Option<DataLoss>,
    /// True if their rows were copied.
    is_set_aside: bool,
}

/// Writes appended records.
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
    /// Number of records ever appended.
    appended: u64,
    /// Number of them that the latest commit to begin contains.
    committing: u64,
    /// Number of them that durable commits contain.
    committed: u64,
}

struct Line {
    /// None before the first use, and after it broke.
    connection: Option<Connection>,
    /// Number of appended records that were written, or failed to be.
    written: u64,
    /// Missing records, if any: those after the one number, up to the other. Nothing is written
    /// behind them, as nothing counts after a gap.
    missing: Option<(u64, u64)>,
    /// The record written last, by its epoch and its first and last operations.
    last: Option<(u64, OpNo, OpNo)>,
}

impl Intents {
    /// Makes the log of the volume that `store` holds.
    pub(super) fn new(store: Arc<PostgresStore>) -> Intents {
        let line = Mutex::new(Line { connection: None, written: 0, missing: None, last: None });
        Intents {
            shared: Arc::new(Shared { store, queue: Mutex::default(), line }),
            epoch: 0,
            used: 0,
            given_up: Mutex::default(),
        }
    }

    /// Looks whether the log is there that the volume, which says `header` of itself, needs. Tells
    /// of one that is gone, if that is accepted.
    pub fn check(&self, header: &Header) -> Result<Option<DataLoss>> {
        let gone = self
            .shared
            .store
            .read(Class::Commits, |connection| Order::of(header, header.counters.epoch).gone(connection))?;
        gone.as_ref().map_or(Ok(()), |gone| self.refuse_unless_accepted(gone))?;
        Ok(gone)
    }

    /// The next records of `epoch` that begin after operation `after`, in order: as many as may be
    /// in memory together, none if there are no more. `Lost` if one is damaged or missing; where
    /// that is accepted, those before it are all.
    pub fn records(&self, epoch: u64, after: OpNo) -> Result<Vec<Record>> {
        const WHAT: &str = "cannot read the intent log";
        self.shared.store.read(Class::Commits, |connection| {
            let mut order = Order::of(&self.shared.store.header.lock(), epoch);
            let after = int(after.0);
            if after == 0 {
                if let Some(lost) = order.later(connection)? {
                    self.refuse(lost)?;
                }
            } else {
                let before = connection.query(WHAT, sql::INTENTS_UP_TO, vec![Box::new(int(epoch)), Box::new(after)])?;
                let last = before.first().map(|row| get::<Option<i64>>(row, 0)).transpose()?.flatten();
                order.pass(last.map_or(0, i64::unsigned_abs));
            }
            let (records, lost) = order.page(connection, after)?;
            if let Some(lost) = lost {
                self.refuse(lost)?;
            }
            Ok(records)
        })
    }

    /// Reads the bytes that the last commit, of `epoch`, could not store. `Lost` if they are
    /// damaged, unless that is accepted.
    pub fn carried(&self, epoch: u64) -> Result<Option<Record>> {
        self.shared.store.read(Class::Commits, |connection| {
            let order = Order::of(&self.shared.store.header.lock(), epoch);
            match order.carried(connection)? {
                Ok(carried) => Ok(carried),
                Err(lost) => self.refuse(lost).map(|()| None),
            }
        })
    }

    /// Returns the action to take where the log lacks records that it should have.
    pub fn loss(&self) -> Loss {
        self.shared.store.loss
    }

    /// An error, unless loss is accepted; that is to be told then.
    fn refuse(&self, lost: DataLoss) -> Result<()> {
        self.refuse_unless_accepted(&lost)?;
        let mut given_up = self.given_up.lock();
        if given_up.told.as_ref() != Some(&lost) {
            given_up.untold = Some(lost);
        }
        Ok(())
    }

    fn refuse_unless_accepted(&self, lost: &DataLoss) -> Result<()> {
        match self.shared.store.loss {
            Loss::Refuse => Err(Error::Lost(lost.to_string())),
            Loss::Accept => Ok(()),
        }
    }

    /// Returns the operations that [`Intents::records`] gave up, as loss is accepted. Each is
    /// reported once.
    pub fn take_given_up(&self) -> Option<DataLoss> {
        let mut given_up = self.given_up.lock();
        let untold = given_up.untold.take();
        if untold.is_some() {
            given_up.told.clone_from(&untold);
        }
        untold
    }

    /// Copies all rows before some are given up. Returns the place of the copy, once.
    pub fn set_aside(&self) -> Result<Option<String>> {
        let mut given_up = self.given_up.lock();
        if given_up.is_set_aside {
            return Ok(None);
        }
        self.shared.store.read(Class::Commits, |connection| {
            connection.query("cannot copy the intent log", sql::SET_ASIDE, Vec::new()).map(|_| ())
        })?;
        given_up.is_set_aside = true;
        let address = &self.shared.store.connector.address;
        Ok(Some(format!("the rows with a negative epoch in the table intents of {address}")))
    }

    /// Appends to `epoch` from now on. The commit that began it has removed what was logged before.
    pub fn start(&mut self, epoch: u64) {
        self.epoch = epoch;
        self.used = 0;
        self.shared.queue.lock().epoch = epoch;
    }

    /// True if `bytes` more may be appended.
    pub fn fits(&self, bytes: usize) -> bool {
        self.used + bytes as u64 <= BYTES_MAX
    }

    /// True if anything was appended since the last commit began.
    pub fn is_used(&self) -> bool {
        self.used > 0
    }

    /// True if a commit is due.
    pub fn is_half_full(&self) -> bool {
        self.used > BYTES_EAGER
    }

    /// Appends operations; [`IntentSync::sync`] writes them.
    pub fn append(&mut self, first: OpNo, last: OpNo, bytes: &Rope) {
        self.used += bytes.len() as u64;
        let mut queue = self.shared.queue.lock();
        queue.records.push(Record { first, last, bytes: bytes.to_vec() });
        queue.appended += 1;
    }

    /// Returns the handle that writes all that was appended before the write begins.
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

/// Begins `epoch` of the volume that says `header` of itself, as a part of the commit that does:
/// what was logged before means nothing any more. An odd one has a row without operations, by which
/// its log is missed if it is gone as a whole. Nothing if that is its epoch already.
pub(super) fn begin_epoch(header: &Header, epoch: u64) -> Vec<Call> {
    if header.counters.epoch == epoch {
        return Vec::new();
    }
    let mut calls = vec![Call::new(sql::FORGET_EPOCHS, Vec::new())];
    if needs_log(epoch) {
        let sum = marker(&header.uuid, epoch).to_vec();
        calls.push(Call::new(sql::MARK, vec![Box::new(int(epoch)), Box::new(sum)]));
    }
    calls
}

/// Has the commit of `batch` keep what it could not store, and forget what those before it could
/// not. `has_carried` tells whether there may be such.
pub(super) fn carry(header: &Header, batch: &Batch, has_carried: &AtomicBool) -> Vec<Call> {
    let mut calls = Vec::new();
    let is_needed = !batch.carried.is_empty();
    if has_carried.load(Ordering::Relaxed) || is_needed {
        calls.push(Call::new(sql::FORGET_CARRIED, Vec::new()));
    }
    if is_needed {
        has_carried.store(true, Ordering::Relaxed);
        let (epoch, op) = (batch.counters.epoch, batch.counters.op);
        let record = Record { first: NO_OPERATION, last: op, bytes: batch.carried.clone() };
        let bytes = summed(&header.uuid, epoch, record);
        calls.push(Call::new(sql::CARRY, vec![Box::new(int(epoch)), Box::new(int(op.0)), Box::new(bytes)]));
    }
    calls
}

/// The bytes of the row without operations.
pub(super) fn marker(uuid: &[u8; 16], epoch: u64) -> [u8; 8] {
    sums::intents(uuid, epoch, (0, 0), &[]).to_le_bytes()
}

/// Number used in sums as the first operation of bytes that a commit could not store: no record has
/// it.
pub(super) const NO_OPERATION: OpNo = OpNo(0);

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
        let (uuid, commit) = {
            let header = self.store.header.lock();
            (header.uuid, header.commit)
        };
        let before = line.last.filter(|(of, ..)| *of == epoch);
        let last = records.last().map(|record| (epoch, record.first, record.last));
        let trusts_server = self.store.connector.address.trusts_server;
        let mut parameters: Vec<Parameter> =
            vec![Box::new(self.store.held()?.epoch()), Box::new(int(epoch)), Box::new(trusts_server)];
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
        parameters.extend([Box::new(uuid.to_vec()) as Parameter, Box::new(int(commit.0))]);
        parameters.extend([before.map(|(_, first, _)| first), before.map(|(.., last)| last)].map(|op| {
            let op: Parameter = Box::new(op.map(|op| int(op.0)));
            op
        }));
        connection.take_warning();
        let rows = connection.query(WHAT, statement, parameters)?;
        if rows.len() != count {
            self.store.refuse_other(connection)?;
            settings::refuse_weak(connection, &self.store.connector.address)?;
            // The record before is gone: a commit contains both.
            return Err(Error::Interrupted);
        }
        line.last = last;
        if connection.take_warning() { self.store.confirm(connection) } else { Ok(()) }
    }
}
