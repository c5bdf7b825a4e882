//! The volume as of commits that somebody looks at: each is a [`Vfs`] of its own, read-only, which
//! shares the cache of blocks with the present.

use super::rights::Narrowing;
use crate::opaque::Layer;
use crate::options::{AtimePolicy, Options};
use crate::user::User;
use crate::volume::Vfs;
use parking_lot::Mutex;
use std::sync::Arc;
use weft_store::{At, CommitNo, Ino, Timestamp};
use weft_tree::{Credentials, Error, ErrorKind, Result};

/// Commits that are open at once, at most.
const OPEN_MAX: usize = 16;

/// Time since it was last used for which the commit of a view is in use, in nanoseconds.
const IN_USE: i64 = 600 * 1_000_000_000;

/// The volume as of a commit.
pub(crate) struct View {
    /// A volume that only reads.
    pub(super) vfs: Arc<Vfs>,
    /// Its rows.
    pub(super) at: Arc<At>,
}

impl View {
    /// The volume as of its commit, as user `who` may use it.
    pub(crate) fn user<'a>(&'a self, who: &'a Credentials) -> User<'a> {
        self.vfs.user(who)
    }
}

/// The open ones, the one used last at the end.
#[derive(Default)]
pub(crate) struct Views(Mutex<Vec<Open>>);

struct Open {
    commit: CommitNo,
    /// None if it was closed for another reason than that nobody uses it: its commit is still in
    /// use.
    view: Option<Arc<View>>,
    used: Timestamp,
}

impl Views {
    fn find(&self, commit: CommitNo, now: Timestamp) -> Option<Arc<View>> {
        let mut open = self.0.lock();
        let at = open.iter().position(|open| open.commit == commit)?;
        let Open { view, .. } = open.remove(at);
        let view = view?;
        open.push(Open { commit, view: Some(view.clone()), used: now });
        Some(view)
    }

    fn add(&self, commit: CommitNo, view: Arc<View>, now: Timestamp) {
        let mut open = self.0.lock();
        let gone = if open.len() >= OPEN_MAX { Some(open.remove(0)) } else { None };
        open.push(Open { commit, view: Some(view), used: now });
        drop(open);
        // Closing one may take long.
        drop(gone);
    }

    /// Closes all.
    pub(crate) fn clear(&self) {
        let gone = self.0.lock().iter_mut().filter_map(|open| open.view.take()).collect::<Vec<_>>();
        drop(gone);
    }

    /// Closes those that nobody has used for long, and returns the commits of the others.
    pub(super) fn in_use(&self, now: Timestamp) -> Vec<CommitNo> {
        let is_old = |open: &mut Open| now.0.saturating_sub(open.used.0) >= IN_USE;
        let mut open = self.0.lock();
        let gone = open.extract_if(.., is_old).collect::<Vec<_>>();
        let commits = open.iter().map(|open| open.commit).collect();
        drop(open);
        drop(gone);
        commits
    }

    fn all(&self) -> Vec<Arc<View>> {
        self.0.lock().iter().filter_map(|open| open.view.clone()).collect()
    }
}

impl Vfs {
    /// The volume as of `commit`. `Stale` if it is not kept, or history is not kept any more.
    pub(super) fn view(&self, commit: CommitNo) -> Result<Arc<View>> {
        let now = self.now();
        if let Some(view) = self.past.views.find(commit, now) {
            return Ok(view);
        }
        let view = Arc::new(self.open_view(commit)?);
        self.past.views.add(commit, view.clone(), now);
        Ok(view)
    }

    fn open_view(&self, commit: CommitNo) -> Result<View> {
        self.may_read_rows()?;
        let readers = (*self.past.readers.read()).ok_or(ErrorKind::Stale)?;
        let filter = Arc::new(Narrowing::new(self.weak(), readers));
        let at = At::filtered(self.store.clone(), commit, filter).map_err(|error| match error {
            weft_store::Error::Unusable(_) => ErrorKind::Stale.into(),
            error => Error::from(error),
        })?;
        let at = Arc::new(at);
        let options = Options {
            metadata_cache_bytes: self.options.metadata_cache_bytes / OPEN_MAX as u64,
            shared_bytes_max: 0,
            read_ahead_bytes: Some(0),
            atime: AtimePolicy::Never,
            read_only: true,
            background: false,
            history_name: None,
            ..self.options.clone()
        };
        let layer: Layer = self.opaque.another();
        let blocks = Some(self.blocks.clone());
        let vfs = Vfs::open_with(layer, at.clone(), None, options, self.clock.clone(), blocks)?;
        Ok(View { vfs, at })
    }

    /// Commits that somebody looks at.
    pub(crate) fn commits_in_use(&self) -> Vec<CommitNo> {
        self.past.views.in_use(self.now())
    }

    /// The content that `ino` had is kept no more: nobody is to read what is left of it in memory.
    pub(crate) fn past_content_gone(&self, ino: Ino) {
        self.past.views.clear();
        let numbers = self.past.numbers.of(ino);
        self.announce_to_all(numbers.into_iter().map(|ino| crate::Change::Content { ino, range: 0..u64::MAX }));
    }

    /// Rights on `ino` have changed, so that its past is for others, too, or not for them any more.
    pub(crate) fn past_rights_changed(&self, ino: Ino) {
        self.past.rights.forget(ino);
        for view in self.past.views.all() {
            let tree = &mut view.vfs.state.lock().tree;
            // Reads under way may have seen the rights of before, and begin again.
            tree.finished += 1;
            tree.inodes.remove(&ino);
        }
        let numbers = self.past.numbers.of(ino);
        self.announce_to_all(numbers.into_iter().map(|ino| crate::Change::Attributes { ino }));
    }
}
