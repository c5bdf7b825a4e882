//! Bringing back the past: a file or a subtree becomes what it was at an earlier commit.
//!
//! All of it is one operation and a part of one commit. The caller takes the turn to commit, so
//! that the store has every change and nothing is thinned out; plans by rows of then and now; and
//! applies the plan to the tree under one hold of its lock. What changes in between is dirty in
//! memory, so the plan is made again if it relied on that. No block is read or written: the
//! present names those of the past again.
//!
//! A restoration is not in the intent log. Until a commit has it, nothing of the past is given up:
//! blocks that it names may belong to the past alone.

mod deleted;
mod effects;
mod forgotten;
mod last_names;
mod left;
mod newest;
mod numbers;
mod path;
mod plan;
mod records;
mod report;
mod rows;
mod subtree;
mod usage;

pub use deleted::{DeletedName, DeletedNames, deleted_names};
pub use newest::last_commit_with;
pub use records::{ForgottenRecord, forgotten_records};
pub use report::{Effect, PathEffect, RestoreReport};
pub use usage::{Usage, UsageBelow, usage_below};

use crate::observe::Change;
use crate::state::State;
use crate::volume::Vfs;
use newest::Deleted;
use path::VolumePath;
use plan::Plan;
use rows::Rows;
use std::sync::atomic::Ordering;
use weft_store::{CommitNo, Durability, Ino, Moment, Name};
use weft_tree::{
    Error, ErrorKind, Mutation, Replacement, Restoration, RestoredContent, RestoredInode, Result, SetAttributes,
};

/// Plans that are made while others change what they rely on, before that is told.
const PLANS_MAX: usize = 8;

/// Plans that are made while changes go on; later ones hold those back.
const PLANS_BESIDE: usize = 4;

/// A wish for something of the past.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreRequest {
    /// Its path in the volume.
    pub path: Vec<u8>,
    /// The moment as of which it is wanted; none: the last kept commit that had it.
    pub at: Option<Moment>,
    /// The treatment of what is there now.
    pub target: Target,
    /// True if all is told and nothing changed.
    pub is_rehearsal: bool,
}

/// The place where something of the past is to be, and what may be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Its own place; what is there now is replaced.
    Place,
    /// Another place, where nothing is: all of it becomes new inodes.
    Elsewhere(Vec<u8>),
    /// Its own place, where nothing is.
    EmptyPlace {
        /// True if directories on the way that are not there any more are brought back, too,
        /// without what else was in them.
        with_parents: bool,
    },
}

/// The reason that something was not restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// It cannot be, for this reason.
    #[error("{0}")]
    Refused(String),
    /// This failed.
    #[error("{0}")]
    Failed(#[from] Error),
}

impl From<weft_store::Error> for RestoreError {
    fn from(error: weft_store::Error) -> RestoreError {
        match error {
            weft_store::Error::Unusable(why) => RestoreError::Refused(why),
            error => RestoreError::Failed(error.into()),
        }
    }
}

type Restoring<T> = std::result::Result<T, RestoreError>;

/// Refuses for a reason.
fn refused<T>(why: String) -> Restoring<T> {
    Err(RestoreError::Refused(why))
}

impl Vfs {
    /// Makes a path of the volume what it was at a moment, as `request` says, durably. Refused if
    /// nothing of that path is kept, if its directory is not there, and if it is too large for one
    /// commit.
    pub fn restore(&self, request: &RestoreRequest) -> Restoring<RestoreReport> {
        if self.options.read_only {
            return Err(Error::from(ErrorKind::ReadOnly).into());
        }
        let mut report = self.plan_and_apply(request)?;
        if !request.is_rehearsal {
            let op = self.state.lock().restored;
            self.name_commit(op)?;
            self.refuse_lost()?;
            report.committed = Some(self.last_commit().0);
        }
        Ok(report)
    }

    fn plan_and_apply(&self, request: &RestoreRequest) -> Restoring<RestoreReport> {
        let path = VolumePath::parse(&request.path)?;
        // Without the turn to commit: it may take long to find.
        let (moment, deleted) = match &request.at {
            Some(moment) => (moment.clone(), Deleted::AtPath),
            None => {
                self.commit_durably()?;
                let (commit, deleted) = newest::commit_with(&*self.store, &path)?;
                (Moment::Commit(commit), deleted)
            }
        };
        let mut held_back = None;
        for round in 0..PLANS_MAX {
            let mut turn = self.committing.lock();
            if round == PLANS_BESIDE {
                held_back = Some(self.hold_back());
            }
            let op = self.state.lock().tree.counters.op;
            self.commit_pending(&mut turn, op)?;
            let then = moment.past_commit(&*self.store, self.now())?;
            let plan = plan::make(self, request, (&path, &deleted), then)?;
            if request.is_rehearsal {
                return Ok(plan.report);
            }
            let Plan { restoration, report } = plan;
            let restored = restoration.inodes.iter().map(|inode| inode.row.ino).collect::<Vec<_>>();
            let (changes, rights) = (changes(&restoration), changed_rights(&restoration));
            if !self.apply_restoration(restoration)? {
                continue;
            }
            drop(held_back.take());
            let committed = self.commit_once(&mut turn, Durability::Durable);
            drop(turn);
            self.announce(changes);
            // Inodes that are there again have rights that their past has to follow.
            self.past.views.clear();
            restored.into_iter().for_each(|ino| self.past_rights_changed(ino));
            rights.iter().for_each(|(ino, changes)| self.rights_changed(*ino, changes));
            committed?;
            return Ok(report);
        }
        refused("it is changed all the time; try again when fewer programs write to it".into())
    }

    /// Applies `restoration`, unless something that it relies on has changed.
    fn apply_restoration(&self, restoration: Restoration) -> Result<bool> {
        let mut outdated = Vec::new();
        let applied = {
            let mut state = self.state.lock();
            if self.refuses_changes.load(Ordering::Relaxed) {
                return Err(ErrorKind::ReadOnly.into());
            }
            let applied = state.restore(restoration);
            outdated.append(&mut state.opaque.take_outdated());
            applied
        };
        self.announce_outdated(outdated);
        Ok(applied)
    }

    /// True if a restoration waits for its commit: blocks that it names may belong to the past
    /// alone.
    pub(crate) fn needs_past(&self) -> bool {
        let state = self.state.lock();
        state.committed < state.restored
    }

    /// The rows of the store as of its last commit.
    fn present_rows(&self) -> Result<Rows<'_>> {
        Ok(Rows::new(&*self.store, self.store.header()?.commit))
    }

    /// The rows of the store as of `commit`.
    fn past_rows(&self, commit: CommitNo) -> Rows<'_> {
        Rows::new(&*self.store, commit)
    }
}

impl State {
    /// Applies `restoration` as the next operation, and notes what follows from it. False if it is
    /// not current any more: then nothing has changed.
    fn restore(&mut self, restoration: Restoration) -> bool {
        if !self.tree.is_current(&restoration) {
            return false;
        }
        let told = mutations(&restoration);
        self.tree.restore(restoration);
        self.restored = self.tree.counters.op;
        for mutation in &told {
            self.opaque.performed(&mut self.tree, mutation);
            self.failed_writeback.follow(mutation, self.tree.block_size());
        }
        true
    }
}

/// Mutations that tell the layer above and the list of failed write-back what `restoration`
/// changes.
fn mutations(restoration: &Restoration) -> Vec<Mutation<'static>> {
    let time = restoration.time;
    let removed = restoration.removed.iter().map(|row| (row.parent, row.name.clone()));
    let removed = removed.map(|(parent, name)| Mutation::Remove { parent, name, time });
    let added = restoration.added.iter().map(|row| {
        let (parent, name) = (row.parent, row.name.clone());
        Mutation::Link { ino: row.ino, parent, name, cookie: row.cookie, time }
    });
    let inodes = restoration.inodes.iter().map(|inode| inode.row.ino);
    let inodes = inodes.chain(restoration.losing.iter().map(|(row, _)| row.ino));
    let replaced = inodes.map(|ino| {
        let with = Replacement::Bytes(Vec::new().into());
        Mutation::Replace { ino, with, lost: weft_tree::Lost::default(), time }
    });
    removed.chain(added).chain(replaced).collect()
}

/// Inodes that others may use from now on, or belong to others.
fn changed_rights(restoration: &Restoration) -> Vec<(Ino, SetAttributes)> {
    let changed = |inode: &RestoredInode| {
        let (now, then) = (inode.present.as_ref()?, &inode.row);
        let changes = SetAttributes {
            permissions: (now.permissions != then.permissions).then_some(then.permissions),
            uid: (now.uid != then.uid).then_some(then.uid),
            gid: (now.gid != then.gid).then_some(then.gid),
            ..SetAttributes::default()
        };
        let has_any = changes.permissions.is_some() || changes.uid.is_some() || changes.gid.is_some();
        has_any.then_some((now.ino, changes))
    };
    restoration.inodes.iter().filter_map(changed).collect()
}

/// All that protocols have to forget copies of.
fn changes(restoration: &Restoration) -> Vec<Change> {
    // All of a file, but not as if it was seen through other code from now on.
    const ALL: std::ops::Range<u64> = 0..i64::MAX as u64;
    let entries = restoration.removed.iter().chain(&restoration.added);
    let entry = |row: &weft_store::NameRow| Change::Entry { parent: row.parent, name: Name::clone(&row.name) };
    let inode = |inode: &RestoredInode| match inode.content {
        RestoredContent::Same => Change::Attributes { ino: inode.row.ino },
        _ => Change::Content { ino: inode.row.ino, range: ALL },
    };
    let losing = restoration.losing.iter().map(|(row, _)| Change::Attributes { ino: row.ino });
    entries.map(entry).chain(restoration.inodes.iter().map(inode)).chain(losing).collect()
}
