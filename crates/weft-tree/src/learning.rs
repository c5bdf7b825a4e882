//! Takes in what was read from the store.

use crate::data::Stored;
use crate::inode::{Added, Changed, Inode, LISTED_MAX, Xattrs};
use crate::names::{Entry, NameKey, NameSlot};
use crate::stop::Stop;
use crate::tree::Tree;
use std::ops::Range;
use weft_store::{Ino, InodeRow, Name, NameRow};

impl Tree {
    /// Takes in a row that came with that of `wanted`.
    pub fn learn_inode(&mut self, row: InodeRow, wanted: Ino) {
        let ino = row.ino;
        if self.inodes.peek(&ino).is_some() {
            return;
        }
        if row.nlink == 0 {
            self.orphans.insert(ino);
        }
        // A commit has what it is, and need not be durable.
        let inode = Box::new(Inode { touched: self.counters.op, ..Inode::loaded(row) });
        if ino == wanted { self.inodes.insert(ino, inode) } else { self.inodes.insert_unused(ino, inode) }
    }

    /// Takes in that `name` in `parent` has this row, or none.
    pub fn learn_name(&mut self, parent: Ino, name: &Name, row: Option<NameRow>) {
        self.name_misses += 1;
        if self.names.peek(&NameKey(parent, name.as_bytes())).is_some() {
            return;
        }
        let stored = row.is_some();
        let entry = row.map(|row| Entry { ino: row.ino, kind: row.kind, cookie: row.cookie });
        self.names.insert((parent, name.clone()), NameSlot { entry, changed: Changed::CLEAN, stored });
    }

    /// Takes in all that is stored in `range` of indices of `ino`.
    pub fn learn_extents(&mut self, ino: Ino, range: Range<u64>, rows: Vec<(u64, Stored)>) {
        if let Some(inode) = self.inodes.get(&ino).filter(|inode| !inode.dead) {
            inode.data().learn(range, rows);
            self.inodes.reweigh(&ino);
        }
    }

    /// Takes in all extended attributes of `ino`.
    pub fn learn_xattrs(&mut self, ino: Ino, rows: Vec<(Name, Vec<u8>)>) {
        if let Some(inode) = self.inodes.get(&ino).filter(|inode| inode.xattrs.is_none()) {
            inode.xattrs = Some(Box::new(Xattrs { map: rows.into_iter().collect(), ..Xattrs::default() }));
            self.inodes.reweigh(&ino);
        }
    }

    /// Keeps the list of directory `ino`, of which `rows` are all that the store has: whoever lists
    /// it will look at what is in it. False if that is not as many entries as it counts: then rows
    /// may be gone, and nothing is kept.
    pub fn learn_list(&mut self, ino: Ino, rows: &[NameRow]) -> Result<bool, Stop> {
        let inode = self.directory(ino)?;
        let counted = inode.row.size;
        let directory = inode.directory();
        let is_stored =
            |row: &&NameRow| !directory.removed.contains_key(&row.cookie) && !directory.added.contains_key(&row.cookie);
        if (rows.iter().filter(is_stored).count() + directory.added.len()) as u64 != counted {
            return Ok(false);
        }
        directory.is_whole = true;
        if rows.len() + directory.added.len() > LISTED_MAX {
            return Ok(true);
        }
        let is_there = |row: &&NameRow| !directory.removed.contains_key(&row.cookie);
        let rows = rows.iter().filter(is_there).collect::<Vec<_>>();
        for row in &rows {
            let added = || Added { name: row.name.clone(), ino: row.ino, kind: row.kind, changed: Changed::CLEAN };
            directory.added.entry(row.cookie).or_insert_with(added);
        }
        directory.listed = true;
        directory.complete = true;
        self.inodes.reweigh(&ino);
        for row in rows {
            if self.names.peek(&NameKey(ino, row.name.as_bytes())).is_none() {
                let entry = Some(Entry { ino: row.ino, kind: row.kind, cookie: row.cookie });
                let slot = NameSlot { entry, changed: Changed::CLEAN, stored: true };
                self.names.insert((ino, row.name.clone()), slot);
            }
        }
        Ok(true)
    }
}
