//! All that a mounted volume keeps in memory, under one lock: its tree, how far that has come to
//! the store, and what a layer above the vfs keeps of opaque inodes.

use crate::opaque::{Detail, Held, OpaqueState};
use crate::options::Options;
use crate::volume::{FailedWriteback, Locality};
use weft_store::{CommitNo, Header, Ino, Kind, Name, OpNo, Timestamp};
use weft_tree::{Attributes, ErrorKind, Mutation, Rights, Stop, Tree};

/// The state.
pub struct State {
    /// The tree.
    pub(crate) tree: Tree,
    /// The layer above, under the lock.
    pub(crate) opaque: Held,
    /// True if the way in reports opens and closes of files.
    pub(crate) is_told_of_opens: bool,
    /// The last operation in a commit.
    pub(crate) committed: OpNo,
    /// The last operation known to survive anything.
    pub(crate) durable: OpNo,
    /// The last operation in the intent log or in a durable commit: not before `durable`, and
    /// beyond it while the log is synced.
    pub(crate) logged: OpNo,
    /// The last durable commit, and its last operation.
    pub(crate) durable_commit: (CommitNo, OpNo),
    /// The last commit, and its time if it was made since the volume was opened.
    pub(crate) last_commit: (CommitNo, Option<Timestamp>),
    /// The last operation that cannot be lost unnoticed with the store's own log: a synced record
    /// of the intent log has it, or the intent log names its commit, or it was settled.
    pub(crate) named: OpNo,
    /// Inodes that were read from the store lately.
    pub(crate) locality: Locality,
    /// The last operation that restored something of the past.
    pub(crate) restored: OpNo,
    /// Kind of the last commit's failure, until a commit succeeds.
    pub(crate) failure: Option<ErrorKind>,
    /// Changes that the kernel could not pass on.
    pub(crate) failed_writeback: FailedWriteback,
    /// The name that leads to the past, while history is kept: no entry gets it.
    pub(crate) reserved: Option<Name>,
    /// Bytes free under the volume when last looked at, and what was dirty then.
    pub(crate) space_free: u64,
}

impl State {
    /// The state of a volume just opened.
    pub(crate) fn new(header: &Header, options: &Options, layer: Box<dyn OpaqueState>) -> State {
        let tree = Tree::new(header, options.metadata_cache_bytes, options.dirty_bytes_max);
        let op = tree.counters.op;
        State {
            tree,
            opaque: Held::new(layer),
            is_told_of_opens: false,
            committed: op,
            durable: op,
            logged: op,
            durable_commit: (header.commit, op),
            last_commit: (header.commit, None),
            named: op,
            locality: Locality::default(),
            restored: OpNo(0),
            failure: None,
            failed_writeback: FailedWriteback::default(),
            reserved: None,
            space_free: u64::MAX,
        }
    }

    /// Applies `mutation` as the next operation, and notes what follows from it.
    pub(crate) fn perform(&mut self, mutation: &Mutation<'_>) -> Result<(), Stop> {
        self.opaque.before(&self.tree, mutation);
        self.tree.perform(mutation)?;
        self.opaque.performed(&mut self.tree, mutation);
        self.failed_writeback.follow(mutation, self.tree.block_size());
        Ok(())
    }

    /// Bytes of memory that inodes and names take, and what is known of those that are held.
    pub(crate) fn metadata_bytes(&self) -> usize {
        self.tree.metadata_bytes() + self.opaque.weight()
    }

    /// The tree.
    pub fn tree(&mut self) -> &mut Tree {
        &mut self.tree
    }

    /// True if `ino` is opaque.
    pub(crate) fn is_opaque(&mut self, ino: Ino) -> Result<bool, Stop> {
        Ok(self.tree.inode(ino)?.row.kind == Kind::Transformation)
    }

    /// Attributes of inode `ino`, as programs see them; of an opaque one as the layer tells them.
    pub(crate) fn attributes(&mut self, ino: Ino) -> Result<Attributes, Stop> {
        self.attributes_in(ino, Detail::Usual)
    }

    /// The same of one that was just changed: nothing is fetched any more.
    pub(crate) fn attributes_after(&mut self, ino: Ino) -> Result<Attributes, Stop> {
        self.attributes_in(ino, Detail::Changed)
    }

    /// The same, in a `detail` that matters if it is opaque.
    pub(crate) fn attributes_in(&mut self, ino: Ino, detail: Detail) -> Result<Attributes, Stop> {
        let inode = self.tree.inode(ino)?;
        if inode.row.kind == Kind::Transformation {
            return self.opaque.layer().attributes(&mut self.tree, ino, detail);
        }
        Ok(inode.attributes())
    }

    /// Makes sure that attributes of `ino`, which is about to be changed, can be told after that.
    pub(crate) fn ready_for_attributes_after(&mut self, ino: Ino) -> Result<(), Stop> {
        if self.is_opaque(ino)? { self.opaque.layer().prepare(&mut self.tree, ino) } else { Ok(()) }
    }

    /// True if `ino`, which is opaque, looks like a directory.
    pub(crate) fn looks_like_directory(&mut self, ino: Ino) -> Result<bool, Stop> {
        self.opaque.layer().is_directory(&mut self.tree, ino)
    }
}

impl Rights for State {
    fn tree(&mut self) -> &mut Tree {
        &mut self.tree
    }

    fn permission_bits(&mut self, ino: Ino) -> Result<u32, Stop> {
        let row = &self.tree.inode(ino)?.row;
        match row.kind {
            Kind::Transformation => self.opaque.layer().permission_bits(&mut self.tree, ino),
            _ => Ok(row.permissions),
        }
    }
}
