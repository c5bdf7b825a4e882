//! The rows of the intent log in their order, and what of them is damaged or missing: as a mount
//! reads them, and as a check does.

use super::address::Address;
use super::connection::{Connection, Parameter};
use super::intents::{NO_OPERATION, marker};
use super::lease;
use super::open::look;
use super::read::{self, get, int, unsigned};
use super::statements as sql;
use crate::error::{Error, Result};
use crate::log::{DataLoss, Record, needs_log};
use crate::row::OpNo;
use crate::store::Header;
use crate::sums;
use crate::waiting::Waiting;

const WHAT: &str = "cannot read the intent log";

/// Bytes of records that are read together, unless one alone has more, and how many records that
/// may be.
const TOGETHER_BYTES: u64 = 8 << 20;
const TOGETHER_MAX: i64 = 4096;

/// Bytes of the sum behind the operations of a row.
const SUM: usize = 8;

/// The state that rows of the log are held against, in their order.
pub(super) struct Order {
    uuid: [u8; 16],
    epoch: u64,
    /// The operation that no row before has, nor the last commit.
    next: u64,
}

impl Order {
    /// Makes the order of the rows of `epoch`, for the volume with `header`.
    pub(super) fn of(header: &Header, epoch: u64) -> Order {
        Order { uuid: header.uuid, epoch, next: header.counters.op.0 + 1 }
    }

    /// The next records that begin after operation `after`: as many as may be in memory together,
    /// none if there are no more; and what is lost behind them.
    pub(super) fn page(&mut self, connection: &mut Connection, after: i64) -> Result<(Vec<Record>, Option<DataLoss>)> {
        let epoch = int(self.epoch);
        let limit = Box::new(TOGETHER_MAX);
        let sizes = connection.query(WHAT, sql::INTENTS_SIZES, vec![Box::new(epoch), Box::new(after), limit])?;
        if sizes.is_empty() {
            return Ok((Vec::new(), None));
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
            match self.record(row)? {
                Ok(record) => records.push(record),
                Err(lost) => return Ok((records, Some(lost))),
            }
        }
        Ok((records, None))
    }

    /// The record of a row `first, last, bytes`, or what is lost.
    fn record(&mut self, row: &tokio_postgres::Row) -> Result<std::result::Result<Record, DataLoss>> {
        let (first, last): (i64, i64) = (get(row, 0)?, get(row, 1)?);
        let mut bytes: Vec<u8> = get(row, 2)?;
        let (Ok(first), Ok(last)) = (u64::try_from(first), u64::try_from(last)) else {
            return Ok(Err(lost(self.next, "is damaged")));
        };
        if first > self.next {
            return Ok(Err(lost(self.next, "is missing")));
        }
        if !self.is_summed((first, last), &mut bytes) {
            return Ok(Err(lost(first, "is damaged")));
        }
        self.pass(last);
        Ok(Ok(Record { first: OpNo(first), last: OpNo(last), bytes }))
    }

    /// Reads the bytes that the last commit could not store, or returns words for their loss.
    pub(super) fn carried(&self, connection: &mut Connection) -> Result<std::result::Result<Option<Record>, DataLoss>> {
        let rows = connection.query(WHAT, sql::CARRIED, vec![Box::new(int(self.epoch))])?;
        let Some(row) = rows.first() else { return Ok(Ok(None)) };
        let (last, mut bytes): (i64, Vec<u8>) = (get(row, 0)?, get(row, 1)?);
        let (last, first) = (OpNo(last.unsigned_abs()), NO_OPERATION);
        let is_last = last.0 + 1 == self.next;
        Ok(if is_last && self.is_summed((first.0, last.0), &mut bytes) {
            Ok(Some(Record { first: last, last, bytes }))
        } else {
            let cause =
                "the row of the table intents that has what was synced over damaged blocks is damaged: that is lost";
            Err(DataLoss::new(cause, ADVICE))
        })
    }

    /// True if `bytes` end with their sum, which is taken off.
    fn is_summed(&self, operations: (u64, u64), bytes: &mut Vec<u8>) -> bool {
        let sum = bytes.len().checked_sub(SUM).map(|at| bytes.split_off(at));
        sum.is_some_and(|sum| sum == sums::intents(&self.uuid, self.epoch, operations, bytes).to_le_bytes())
    }

    /// Returns the loss if the log as a whole is gone. Epochs of older programs, which are even,
    /// have no mark whose absence would tell.
    pub(super) fn gone(&self, connection: &mut Connection) -> Result<Option<DataLoss>> {
        if !needs_log(self.epoch) {
            return Ok(None);
        }
        let rows = connection.query(WHAT, sql::MARKER, vec![Box::new(int(self.epoch))])?;
        let row = rows.first().map(|row| Ok::<_, Error>((get::<i64>(row, 0)?, get::<Vec<u8>>(row, 1)?)));
        let is_there =
            row.transpose()?.is_some_and(|(last, bytes)| last == 0 && bytes == marker(&self.uuid, self.epoch));
        Ok((!is_there).then(|| {
            let cause = format!(
                "the volume was not unmounted cleanly, and the table intents is not the one that its last mount wrote: \
                 what was synced after operation {} is lost",
                self.next - 1
            );
            DataLoss::new(cause, ADVICE)
        }))
    }

    /// Returns the loss if there are rows of an epoch that has not begun. Those of earlier ones
    /// mean nothing.
    pub(super) fn later(&self, connection: &mut Connection) -> Result<Option<DataLoss>> {
        let rows = connection.query(WHAT, sql::LATER_INTENT, vec![Box::new(int(self.epoch))])?;
        let first = rows.first().map(|row| get::<i64>(row, 0)).transpose()?;
        Ok(first.map(|first| lost(first.unsigned_abs(), "has an epoch that has not begun")))
    }

    /// Records up to operation `last` were read.
    pub(super) fn pass(&mut self, last: u64) {
        self.next = self.next.max(last.saturating_add(1));
    }
}

/// Advice where rows of the log are lost.
const ADVICE: &str = "restore the table, or mount with --accept-loss, which goes on without";

fn lost(op: u64, how: &str) -> DataLoss {
    let cause = format!("the row of operation {op} in the table intents {how}: what was synced from there on is lost");
    DataLoss::new(cause, ADVICE)
}

/// Returns the operations of the volume with `header` that wait in the log, in the transaction in
/// which the header was read.
pub(super) fn verify(connection: &mut Connection, header: &Header) -> Result<Waiting> {
    let mut order = Order::of(header, header.counters.epoch);
    let mut found = Waiting::default();
    let mut lost = order.gone(connection)?.or(order.later(connection)?);
    match order.carried(connection)? {
        Ok(carried) => found.is_carried = carried.is_some(),
        Err(carried) => lost = lost.or(Some(carried)),
    }
    let mut after = 0;
    loop {
        let (records, behind) = order.page(connection, after)?;
        let is_end = behind.is_some();
        lost = behind.or(lost);
        match records.last() {
            Some(last) if !is_end => after = int(last.first.0),
            _ => break,
        }
    }
    found.lost = lost.map(|lost| lost.to_string());
    found.operations = order.next - 1 - header.counters.op.0;
    Ok(found)
}

/// Operations that wait in the intent log of the volume at `address`, and what is lost of them, as
/// a mount would find it. Nothing while somebody holds the volume: then its daemon knows. Errors:
/// as of [`super::header`].
pub fn waiting(address: &Address) -> Result<Waiting> {
    let (mut connection, _) = look(address)?;
    connection.run(WHAT, sql::BEGIN_READING)?;
    let rows = connection.query(WHAT, sql::LEASE, Vec::new())?;
    let row = rows.first().ok_or_else(|| lease::damaged("the row of the lease is gone"))?;
    if get::<bool>(row, 2)? {
        return Ok(Waiting { is_held: true, ..Waiting::default() });
    }
    let header = read::header(&mut connection)?;
    verify(&mut connection, &header)
}
