//! A mounted volume: every operation of the file system.

use crate::attributes::{
    AllocateMode, Attributes, DirEntry, RenameMode, SetAttributes, SetXattr, Statfs, Whence,
};
use crate::caller::{Caller, MakeNode};
use crate::clock::Clock;
use crate::error::Result;
use crate::options::Options;
use crate::stats::Stats;
use std::sync::Arc;
use weft_block::Rope;
use weft_store::log::IntentLog;
use weft_store::{Cookie, Ino, Name, OpNo, Store};

/// A mounted volume. All methods may be called from any thread.
pub struct Vfs {}

#[allow(unused_variables, missing_docs)]
impl Vfs {
    /// Opens the volume in `store`: replays `log`, removes orphans, starts the committer.
    pub fn open(store: Arc<dyn Store>, log: Option<IntentLog>, options: Options, clock: Arc<dyn Clock>) -> Result<Vfs> { todo!() }
    /// Commits everything durably and stops. Dropping without it is a crash as far as uncommitted changes go.
    pub fn close(&self) -> Result<()> { todo!() }

    // names
    pub fn lookup(&self, caller: Caller, parent: Ino, name: &[u8]) -> Result<Attributes> { todo!() }
    /// The directory that holds directory `ino`.
    pub fn parent(&self, caller: Caller, ino: Ino) -> Result<Attributes> { todo!() }
    pub fn make(&self, caller: Caller, parent: Ino, name: &[u8], node: MakeNode) -> Result<Attributes> { todo!() }
    /// A file without a name (O_TMPFILE); it is always held once, whatever `caller.holds`.
    pub fn make_unnamed(&self, caller: Caller, parent: Ino, node: MakeNode) -> Result<Attributes> { todo!() }
    pub fn make_symlink(&self, caller: Caller, parent: Ino, name: &[u8], target: &[u8]) -> Result<Attributes> { todo!() }
    pub fn read_symlink(&self, ino: Ino) -> Result<Vec<u8>> { todo!() }
    pub fn link(&self, caller: Caller, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attributes> { todo!() }
    pub fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> { todo!() }
    pub fn remove_directory(&self, parent: Ino, name: &[u8]) -> Result<()> { todo!() }
    pub fn rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), mode: RenameMode) -> Result<()> { todo!() }
    /// Up to `limit` entries after `after`; fewer only at the end.
    pub fn read_directory(&self, ino: Ino, after: Cookie, limit: usize) -> Result<Vec<DirEntry>> { todo!() }
    /// The same with attributes; each inode is held once more if `caller.holds`.
    pub fn read_directory_attributes(&self, caller: Caller, ino: Ino, after: Cookie, limit: usize) -> Result<Vec<(DirEntry, Attributes)>> { todo!() }

    // attributes
    pub fn attributes(&self, ino: Ino) -> Result<Attributes> { todo!() }
    pub fn set_attributes(&self, ino: Ino, changes: SetAttributes) -> Result<Attributes> { todo!() }
    pub fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> { todo!() }
    pub fn xattr_names(&self, ino: Ino) -> Result<Vec<Name>> { todo!() }
    /// `kill_set_group_id`: setting an access ACL by one not in the file's group clears the set-group-id bit.
    pub fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: SetXattr, kill_set_group_id: bool) -> Result<()> { todo!() }
    pub fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> { todo!() }

    // data
    /// Up to `len` bytes at `offset`; fewer only at the end of the file.
    pub fn read(&self, ino: Ino, offset: u64, len: usize) -> Result<Rope> { todo!() }
    /// Writes all of `data`. `kill_privileges` as in `SetAttributes`.
    pub fn write(&self, ino: Ino, offset: u64, data: &[u8], kill_privileges: bool) -> Result<()> { todo!() }
    pub fn allocate(&self, ino: Ino, offset: u64, len: u64, mode: AllocateMode) -> Result<()> { todo!() }
    pub fn seek(&self, ino: Ino, offset: u64, whence: Whence) -> Result<u64> { todo!() }
    /// Copies up to `len` bytes, sharing whole blocks where they line up; tells how many.
    pub fn copy_range(&self, from: (Ino, u64), to: (Ino, u64), len: u64) -> Result<u64> { todo!() }

    // durability
    /// All operations before the call are durable when it returns.
    pub fn sync(&self) -> Result<()> { todo!() }
    /// Commits all changes to the store without forcing them to disk (tests, `weft stats`).
    pub fn commit(&self) -> Result<()> { todo!() }
    /// The last mutating operation, and the last one known durable.
    pub fn progress(&self) -> (OpNo, OpNo) { todo!() }

    // the volume
    pub fn statfs(&self) -> Result<Statfs> { todo!() }
    pub fn stats(&self) -> Stats { todo!() }
    /// Takes back `count` holds of `ino`. An inode without name and holds is deleted.
    pub fn release(&self, ino: Ino, count: u64) { }
    /// Holds `ino` once more.
    pub fn hold(&self, ino: Ino) { }
}
