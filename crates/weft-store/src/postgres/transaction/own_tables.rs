//! Files' own tables in a commit: blocks that come and go there, and tables that get empty.
//!
//! It knows which blocks lose their last reference (`references`), not why.

use super::blocks::own_blocks;
use super::references::Plan;
use super::{PostgresTransaction, WHAT};
use crate::batch::NewBlock;
use crate::error::Result;
use crate::postgres::connection::Call;
use crate::postgres::own;
use crate::postgres::read::{int, unsigned};
use crate::postgres::sending::Table;
use crate::postgres::statements as sql;
use crate::row::{BlockId, Ino};
use std::collections::{BTreeMap, BTreeSet};

impl PostgresTransaction<'_> {
    /// Returns the calls that put blocks into files' own tables and remove them, and the owners
    /// whose tables have nothing left.
    pub(super) fn own_tables(&mut self, plan: &Plan) -> Result<(Vec<Call>, BTreeSet<Ino>)> {
        let mut little = BTreeMap::<Table, Vec<NewBlock>>::new();
        for (id, kept) in &self.kept {
            if let table @ Table::Own(_) = self.new[id].table {
                little.entry(table).or_default().push(kept.clone());
            }
        }
        let mut calls = self.make_tables();
        calls.extend(little.iter().map(own_blocks));
        let mut dead = BTreeMap::<Ino, Vec<BlockId>>::new();
        for (owner, id) in &plan.dead_in_own {
            dead.entry(*owner).or_default().push(*id);
        }
        // Those that get new blocks stay.
        let losing = dead.iter().filter(|(owner, _)| !self.touched.contains(owner));
        let losing = losing.map(|(owner, blocks)| (*owner, blocks.len() as u64)).collect::<Vec<_>>();
        let count = |(owner, dead): &(Ino, u64)| {
            Call::new(sql::COUNT_OWN, vec![Box::new(int(owner.0)), Box::new(int(dead + 1))])
        };
        let counts = self.writer.connection().query_all(WHAT, &losing.iter().map(count).collect::<Vec<_>>())?;
        let mut empty = BTreeSet::new();
        for ((owner, gone), count) in losing.into_iter().zip(counts) {
            let all = count.first().map(|row| unsigned(row, 0)).transpose()?;
            if all == Some(gone) {
                dead.remove(&owner);
                empty.insert(owner);
            }
        }
        calls.extend(dead.iter().map(|(owner, blocks)| own::remove(*owner, blocks)));
        if !empty.is_empty() {
            let owners = empty.iter().map(|owner| int(owner.0)).collect::<Vec<_>>();
            calls.push(Call::new(sql::ADD_DROPPED, vec![Box::new(owners)]));
        }
        Ok((calls, empty))
    }
}
