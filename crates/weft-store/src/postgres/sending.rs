//! Blocks on their way to the server, in one `COPY` for as long as they go to one table: the
//! committing thread makes the next ones meanwhile.

use super::connection::{Connection, Text};
use super::own;
use super::read::int;
use super::statements as sql;
use crate::batch::NewBlock;
use crate::error::{Error, Result};
use crate::row::{Ino, Place};
use crate::sums;
use bytes::{BufMut, Bytes, BytesMut};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

const WHAT: &str = "cannot send blocks";

/// Parcels that wait for those before them.
const WAITING_MAX: usize = 1;

/// The table that blocks go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Table {
    /// The table of all blocks, but those that have a table of their own.
    Common,
    /// The table of the blocks of one file.
    Own(Ino),
}

/// A connection and what came of the `COPY` on it.
pub(super) type Back = Box<(Connection, Result<()>)>;

/// The connection and the parcels to send on it; taken once.
type Task = Mutex<Option<(Connection, Receiver<Vec<NewBlock>>)>>;

/// A `COPY` under way.
pub(super) struct Sending {
    table: Table,
    parcels: SyncSender<Vec<NewBlock>>,
    /// Thread that returns the number of rows that the server took.
    thread: JoinHandle<(Connection, Result<u64>)>,
    expected: u64,
}

impl Sending {
    /// Begins with `blocks`, on a thread of its own; does all there is to do if none can be had.
    pub(super) fn begin(connection: Connection, table: Table, blocks: Vec<NewBlock>) -> Result<Sending, Back> {
        let expected = blocks.len() as u64;
        let (parcels, waiting) = sync_channel(WAITING_MAX);
        parcels.send(blocks).expect("there is room for one");
        // Shared, so that it is not lost with a thread that cannot be started.
        let shared = Arc::new(Mutex::new(Some((connection, waiting))));
        let own = shared.clone();
        let spawned = thread::Builder::new().name("weft-copy".into()).spawn(move || copy(&own, table));
        match spawned {
            Ok(thread) => Ok(Sending { table, parcels, thread, expected }),
            Err(_) => {
                drop(parcels);
                Err(check(copy(&shared, table), expected))
            }
        }
    }

    /// Sends more of them; gives them back if they go elsewhere, or the server takes no more.
    pub(super) fn go_on(&mut self, table: Table, blocks: Vec<NewBlock>) -> Result<(), Vec<NewBlock>> {
        if table != self.table {
            return Err(blocks);
        }
        let count = blocks.len() as u64;
        self.parcels.send(blocks).map_err(|refused| refused.0)?;
        self.expected += count;
        Ok(())
    }

    /// Waits until all has arrived.
    pub(super) fn end(self) -> Back {
        drop(self.parcels);
        check(self.thread.join().expect("sending does not panic"), self.expected)
    }
}

fn check((connection, rows): (Connection, Result<u64>), expected: u64) -> Back {
    let is_whole = |rows| if rows == expected { Ok(()) } else { Err(Error::Bug("blocks were copied in part".into())) };
    Box::new((connection, rows.and_then(is_whole)))
}

fn copy(task: &Task, table: Table) -> (Connection, Result<u64>) {
    let (mut connection, parcels) = task.lock().take().expect("taken once");
    let statement: Text = match table {
        Table::Common => sql::COPY_BLOCKS.into(),
        Table::Own(owner) => own::copy(owner).into(),
    };
    let rows = parcels.into_iter().flatten().flat_map(move |new| row(table, &new));
    let rows = connection.copy(WHAT, statement, framed(rows));
    (connection, rows)
}

/// Frames `rows` as `COPY … (FORMAT binary)` takes them (PostgreSQL documentation, COPY, "Binary
/// Format").
fn framed(rows: impl Iterator<Item = Bytes>) -> impl Iterator<Item = Bytes> {
    let header = Bytes::from_static(b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0");
    let end = Bytes::from_static(&[0xff, 0xff]);
    std::iter::once(header).chain(rows).chain(std::iter::once(end))
}

/// A block as a row; its bytes are not copied. In the common table it has one reference.
fn row(table: Table, new: &NewBlock) -> impl Iterator<Item = Bytes> + use<> {
    let mut head = BytesMut::with_capacity(128);
    let id = int(new.id.0);
    match table {
        Table::Common => {
            head.put_i16(8);
            for number in [int(new.owner.0), id, 1, int(new.bytes.len() as u64), int(new.base)] {
                head.put_i32(8);
                head.put_i64(number);
            }
            head.put_i32(32);
            head.put_slice(&new.value);
            head.put_i32(8);
            head.put_i64(sums::owned_block(new.owner, &new.at(Place::File(new.owner)), 1));
        }
        Table::Own(_) => {
            head.put_i16(2);
            head.put_i32(8);
            head.put_i64(id);
        }
    }
    head.put_i32(i32::try_from(new.bytes.len()).expect("a block has 4 MiB at most"));
    let slices = new.bytes.slices().iter().cloned().map(Bytes::from_owner).collect::<Vec<_>>();
    std::iter::once(head.freeze()).chain(slices)
}
