//! A volume as of a commit of the past, which is only read.

use crate::Name;
use crate::disk_cache::DiskCacheStats;
use crate::error::{Error, Result};
use crate::past::PastStore;
use crate::round_trips::RoundTrips;
use crate::row::{BlockRef, CommitNo, CommitRow, Cookie, Ino, InodeRow, NameRow};
use crate::store::{
    BlockStore, CommitStore, Durability, Header, Maintenance, ReadMode, RowStore, Space, Store, Transaction,
};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use weft_block::Block;
use weft_digest::Digest;

/// The rows of a store as of one commit, and its blocks. Nothing can be committed.
pub struct At {
    store: Arc<dyn Store>,
    commit: CommitNo,
}

impl At {
    /// `store` as of `commit`. `Unusable` if that commit is not kept.
    pub fn new(store: Arc<dyn Store>, commit: CommitNo) -> Result<At> {
        match store.is_kept(commit)? {
            true => Ok(At { store, commit }),
            false => Err(not_kept(&*store, commit)?),
        }
    }
}

/// The reason that `commit` cannot be read.
fn not_kept(store: &dyn Store, commit: CommitNo) -> Result<Error> {
    let Some(history) = store.history()? else {
        return Ok(Error::Unusable("the volume keeps no history; 'weft history set' begins one".into()));
    };
    let number = commit.0;
    Ok(Error::Unusable(format!(
        "commit {number} is not kept any more, or never was: all commits are kept from {} on; 'weft history' lists the others",
        history.first.0
    )))
}

impl RowStore for At {
    fn header(&self) -> Result<Header> {
        Ok(Header { commit: self.commit, ..self.store.header()? })
    }

    fn inodes(&self, from: Ino, limit: usize) -> Result<Vec<InodeRow>> {
        let rows = self.store.inodes_at(self.commit, from, limit)?;
        Ok(rows.into_iter().map(|(row, _)| row).collect())
    }

    fn name(&self, parent: Ino, name: &Name) -> Result<Option<NameRow>> {
        self.store.name_at(self.commit, parent, name)
    }

    fn names(&self, parent: Ino, after: Cookie, limit: usize) -> Result<Vec<NameRow>> {
        self.store.names_at(self.commit, parent, after, limit)
    }

    fn extents(&self, ino: Ino, range: Range<u64>) -> Result<Vec<(u64, BlockRef)>> {
        self.store.extents_at(self.commit, ino, range)
    }

    fn xattrs(&self, ino: Ino) -> Result<Vec<(Name, Vec<u8>)>> {
        self.store.xattrs_at(self.commit, ino)
    }

    /// None: what had no name then may be open now.
    fn orphans(&self) -> Result<Vec<Ino>> {
        Ok(Vec::new())
    }

    fn digest(&self, ino: Ino) -> Result<Option<Digest>> {
        self.store.digest_at(self.commit, ino)
    }

    fn commits(&self, from: CommitNo, limit: usize) -> Result<Vec<CommitRow>> {
        let mut commits = self.store.commits(from, limit)?;
        commits.retain(|row| row.number <= self.commit);
        Ok(commits)
    }
}

impl BlockStore for At {
    fn read_block(&self, block: &BlockRef, mode: ReadMode) -> Result<Option<Block>> {
        self.store.read_block(block, mode)
    }

    fn read_part(&self, block: &BlockRef, range: Range<usize>, mode: ReadMode) -> Result<Option<(usize, Block)>> {
        self.store.read_part(block, range, mode)
    }

    fn read_blocks(&self, blocks: &[BlockRef], visit: &mut dyn FnMut(usize, Result<Block>)) -> Result<()> {
        self.store.read_blocks(blocks, visit)
    }

    fn run_bytes(&self) -> u64 {
        self.store.run_bytes()
    }
}

impl CommitStore for At {
    fn begin(&self, _durability: Durability) -> Result<Box<dyn Transaction + '_>> {
        Err(Error::Bug("a commit to the past".into()))
    }
}

impl Maintenance for At {
    fn is_remote(&self) -> bool {
        self.store.is_remote()
    }

    fn unanswered(&self) -> Option<Duration> {
        self.store.unanswered()
    }

    fn round_trips(&self) -> RoundTrips {
        self.store.round_trips()
    }

    fn disk_cache(&self) -> Option<DiskCacheStats> {
        self.store.disk_cache()
    }

    fn space(&self) -> Result<Space> {
        self.store.space()
    }
}

impl PastStore for At {}
