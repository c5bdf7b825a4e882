//! New blocks on their way: which table each goes to, and when it is sent.
//!
//! It knows blocks and the tables that hold their bytes, and no other rows. What is little is kept,
//! and goes along with the rows of the commit; what is much is sent as it comes, by `COPY` on a
//! thread of its own that has the connection meanwhile.

use super::{New, PostgresTransaction, WHAT};
use crate::batch::NewBlock;
use crate::error::Result;
use crate::postgres::connection::Call;
use crate::postgres::own;
use crate::postgres::sending::{Back, Sending, Table};
use crate::postgres::write::{BlockRow, Home};
use crate::references::References;
use crate::row::{BlockRef, Place};
use std::collections::BTreeMap;

/// Bytes of blocks that are sent with the rows; more of them go out as soon as they come.
const KEPT_BYTES_MAX: usize = 1 << 20;

impl PostgresTransaction<'_> {
    /// Takes a block, and tells where it will lie.
    pub(super) fn keep(&mut self, new: NewBlock) -> BlockRef {
        let table = self.table_for(&new);
        let block = new.at(match table {
            Table::Common => Place::File(new.owner),
            Table::Own(owner) => Place::Own(owner),
        });
        let BlockRef { id, length, base, value, .. } = block;
        self.new.insert(id, New { table, owner: new.owner, alone: new.alone, length, base, value });
        if let Some(cache) = &self.store.disk_cache {
            // Whatever becomes of the commit: it is found by its bytes alone.
            cache.keep(value, new.bytes.clone());
        }
        self.kept_bytes += new.bytes.len();
        self.kept.insert(id, new);
        block
    }

    /// Sends the blocks that are kept if they are many.
    pub(super) fn send_if_many(&mut self) -> Result<()> {
        if self.kept_bytes <= KEPT_BYTES_MAX {
            return Ok(());
        }
        let sent = self.send();
        if sent.is_err() {
            self.writer.in_doubt = true;
        }
        sent.map_err(|error| self.writer.interrupted(error))
    }

    /// Returns the table for a new block.
    fn table_for(&mut self, new: &NewBlock) -> Table {
        let owner = new.owner;
        let may_own = self.writer.own_table_from.is_some_and(|from| new.base >= from)
            && (self.touched.contains(&owner) || self.touched.len() < own::TOUCHED_MAX)
            && !self.writer.dropped.contains(&owner);
        if !may_own {
            return Table::Common;
        }
        if self.touched.insert(owner) && !self.writer.tables.contains(&owner) {
            self.unmade.insert(owner);
        }
        Table::Own(owner)
    }

    /// Sends the blocks that are kept: by `COPY` where there are many for one table.
    fn send(&mut self) -> Result<()> {
        let mut parcels = BTreeMap::<Table, Vec<NewBlock>>::new();
        for (id, new) in std::mem::take(&mut self.kept) {
            parcels.entry(self.new[&id].table).or_default().push(new);
        }
        self.kept_bytes = 0;
        let bytes = |blocks: &[NewBlock]| blocks.iter().map(|new| new.bytes.len()).sum::<usize>();
        let is_little = |table: &Table, blocks: &[NewBlock]| *table != Table::Common && bytes(blocks) < KEPT_BYTES_MAX;
        let (little, much): (BTreeMap<_, _>, BTreeMap<_, _>) =
            parcels.into_iter().partition(|(table, blocks)| is_little(table, blocks));
        let mut calls = self.make_tables();
        calls.extend(little.iter().map(own_blocks));
        if !calls.is_empty() {
            self.receive()?;
            self.writer.connection().query_all(WHAT, &calls)?;
        }
        much.into_iter().try_for_each(|(table, blocks)| self.copy(table, blocks))
    }

    /// Returns the calls that make the tables which files may not have yet.
    pub(super) fn make_tables(&mut self) -> Vec<Call> {
        own::make(std::mem::take(&mut self.unmade), self.writer.owner_role.as_deref())
    }

    fn copy(&mut self, table: Table, mut blocks: Vec<NewBlock>) -> Result<()> {
        if let Some(sending) = &mut self.sending {
            match sending.go_on(table, blocks) {
                Ok(()) => return Ok(()),
                Err(refused) => blocks = refused,
            }
        }
        self.receive()?;
        let connection = self.writer.connection.take().expect("nothing is on its way");
        match Sending::begin(connection, table, blocks) {
            Ok(sending) => {
                self.sending = Some(sending);
                Ok(())
            }
            Err(back) => self.take_back(back),
        }
    }

    /// Waits until what was sent has arrived.
    pub(super) fn receive(&mut self) -> Result<()> {
        self.sending.take().map_or(Ok(()), |sending| self.take_back(sending.end()))
    }

    fn take_back(&mut self, back: Back) -> Result<()> {
        let (connection, sent) = *back;
        self.writer.connection = Some(connection);
        sent
    }

    /// The rows of new blocks that are not there yet; takes the kept blocks.
    pub(super) fn new_rows(&mut self, references: &mut References<Home>) -> Result<Vec<BlockRow>> {
        let mut rows = Vec::new();
        for (id, new) in &self.new {
            let home = (new.owner, *id);
            let refs = references.take_new(home, *id)?;
            let kept = self.kept.get(id);
            if new.table == Table::Common && kept.is_none() {
                // It was sent with one.
                references.add(home, refs - 1);
                continue;
            }
            let bytes = kept.filter(|_| new.table == Table::Common).map(|kept| kept.bytes.clone());
            rows.push(BlockRow { home, refs, length: new.length, base: new.base, value: new.value, bytes });
        }
        Ok(rows)
    }
}

pub(super) fn own_blocks((table, blocks): (&Table, &Vec<NewBlock>)) -> Call {
    let Table::Own(owner) = table else { unreachable!("those of the common table go with their rows") };
    own::put(*owner, blocks)
}
