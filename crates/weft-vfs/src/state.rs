//! All that a mounted volume keeps in memory, under one lock: its tree, how far that has come to
//! the store, and what links are computed from.

use crate::links::LinkState;
use crate::options::Options;
use crate::volume::{FailedWriteback, Locality};
use weft_store::{CommitNo, Header, Ino, OpNo, Timestamp};
use weft_tree::{ErrorKind, Mutation, Rights, Stop, Tree};

/// The state.
pub(crate) struct State {
    /// The tree.
    pub(crate) tree: Tree,
    /// What links are computed from.
    pub(crate) links: LinkState,
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
    /// Kind of the last commit's failure, until a commit succeeds.
    pub(crate) failure: Option<ErrorKind>,
    /// Changes that the kernel could not pass on.
    pub(crate) failed_writeback: FailedWriteback,
    /// Bytes free under the volume when last looked at, and what was dirty then.
    pub(crate) space_free: u64,
}

impl State {
    /// The state of a volume just opened.
    pub(crate) fn new(header: &Header, options: &Options) -> State {
        let tree = Tree::new(header, options.metadata_cache_bytes, options.dirty_bytes_max);
        let op = tree.counters.op;
        State {
            tree,
            links: LinkState::new(options),
            committed: op,
            durable: op,
            logged: op,
            durable_commit: (header.commit, op),
            last_commit: (header.commit, None),
            named: op,
            locality: Locality::default(),
            failure: None,
            failed_writeback: FailedWriteback::default(),
            space_free: u64::MAX,
        }
    }

    /// Applies `mutation` as the next operation, and notes what follows from it.
    pub(crate) fn perform(&mut self, mutation: &Mutation<'_>) -> Result<(), Stop> {
        let before = self.links.before(&self.tree, mutation);
        self.tree.perform(mutation)?;
        self.links.performed(&mut self.tree, mutation, before);
        self.failed_writeback.follow(mutation, self.tree.block_size());
        Ok(())
    }

    /// Bytes of memory that inodes and names take, and what is known of those that are held.
    pub(crate) fn metadata_bytes(&self) -> usize {
        self.tree.metadata_bytes() + self.links.members.weight()
    }
}

impl Rights for State {
    fn tree(&mut self) -> &mut Tree {
        &mut self.tree
    }

    fn permission_bits(&mut self, ino: Ino) -> Result<u32, Stop> {
        self.bits_of_links_too(ino)
    }
}
