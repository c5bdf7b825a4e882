//! Reading links.

use crate::layer::Links;
use crate::linked_tree::LinkedTree;
use crate::resolving::attributes::READ;
use crate::resolving::reach::MAY_READ;
use crate::resolving::resolve::Resolved;
use crate::results::sources::Targets;
use crate::results::view::{Step, Stopped, View, stopped};
use crate::writing::drafts::{Content, Draft, Written};
use parking_lot::Mutex;
use std::sync::Arc;
use weft_block::Rope;
use weft_store::{Ino, Kind};
use weft_transform::Network;
use weft_tree::{Error, ErrorKind, Result, is_virtual};
use weft_vfs::blocking::{self, Wait};

/// Number of attempts to compute a view whose targets change meanwhile.
const ATTEMPTS: usize = 4;

/// Part of a view that a caller wants.
#[derive(Clone, Copy)]
enum Wanted {
    Bytes { offset: u64, len: usize, least: usize },
    Length,
}

/// Part of the link's content with which a draft begins.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    All,
    Nothing,
}

/// Bytes read at once into a draft.
const DRAFT_BYTES: usize = 1 << 20;

impl Links<'_> {
    /// As [`weft_vfs::Vfs::read`], of link `ino`. As [`LinkedTree::resolve`], and `Io` if the
    /// network fails there.
    pub(crate) fn read_link(&self, ino: Ino, offset: u64, len: usize) -> Result<Rope> {
        self.read_least(ino, offset, len, len)
    }

    /// As [`weft_vfs::Vfs::read`], but what a link gives comes as soon as there is any of it: there
    /// is more until nothing comes.
    pub fn read_some(&self, ino: Ino, offset: u64, len: usize) -> Result<Rope> {
        let is_link = self.is_opaque(ino).unwrap_or(false);
        if is_link { self.read_least(ino, offset, len, len.min(1)) } else { self.read(ino, offset, len) }
    }

    fn read_least(&self, ino: Ino, offset: u64, len: usize, least: usize) -> Result<Rope> {
        if let Some(draft) = self.run(|state| state.current_draft(ino))?
            && let Some(rope) = self.read_written(&draft, offset, len)?
        {
            return Ok(rope);
        }
        let rope = self.of_link(ino, Wanted::Bytes { offset, len, least })?;
        self.read_moves_atime(ino);
        Ok(rope)
    }

    /// As [`weft_vfs::Vfs::read`], of what is written to link `ino` as a whole, on behalf of one
    /// who has it open for that; that one reads it wherever the link leads now. None if nothing is
    /// written. `AccessDenied` to those who may not read any more what it led to then.
    pub fn read_draft(&self, ino: Ino, offset: u64, len: usize) -> Result<Option<Rope>> {
        let draft = self.run(|state| state.draft_with(ino, MAY_READ))?;
        draft.map_or(Ok(None), |draft| self.read_written(&draft, offset, len))
    }

    /// Part of what a draft holds; none if that is nothing yet, or it has ended.
    fn read_written(&self, draft: &Draft, offset: u64, len: usize) -> Result<Option<Rope>> {
        let content = match draft.content.try_lock() {
            Some(content) => content,
            None => {
                self.may_wait(Wait::Network)?;
                blocking::waiting(|| self.lock_computing(&draft.content))?
            }
        };
        match &*content {
            Written::Here(content) => content.read(self, offset, len).map(Some),
            Written::Nothing | Written::Ended => Ok(None),
        }
    }

    /// Has the length of link `ino` known.
    pub(crate) fn measure_link(&self, ino: Ino) -> Result<()> {
        self.of_link(ino, Wanted::Length).map(|_| ())
    }

    fn of_link(&self, ino: Ino, wanted: Wanted) -> Result<Rope> {
        for _ in 0..ATTEMPTS {
            let resolved = self.run(|state| {
                let resolved = state.resolve(ino)?;
                if matches!(wanted, Wanted::Bytes { .. }) {
                    state.refuse_failed(&resolved.version)?;
                    state.watch_read(ino, &resolved);
                }
                Ok(resolved)
            })?;
            if matches!(wanted, Wanted::Bytes { .. }) && !resolved.lets_anybody(READ) {
                return Err(ErrorKind::AccessDenied.into());
            }
            if let (true, Wanted::Bytes { offset, len, .. }) = (resolved.link.keeps.place, wanted) {
                if let Some(rope) = self.layer.places_ahead.read(self, (ino, &resolved), offset, len)? {
                    return Ok(rope);
                }
                if let Some(rope) = self.of_places(ino, &resolved, offset, len)? {
                    return Ok(rope);
                }
                continue;
            }
            if let Some(rope) = self.of_version(ino, &resolved, wanted)? {
                return Ok(rope);
            }
        }
        Err(self.changes_too_fast(ino))
    }

    /// Returns the bytes that position-preserving link `ino` gives from `offset` on; none if the
    /// link has changed meanwhile.
    pub(crate) fn of_places(&self, ino: Ino, resolved: &Resolved, offset: u64, len: usize) -> Result<Option<Rope>> {
        let (start, len) = match resolved.link.part {
            None => (0, len),
            Some(part) => {
                let left = usize::try_from(part.len.saturating_sub(offset)).unwrap_or(usize::MAX);
                (part.start, len.min(left))
            }
        };
        let bytes = match self.read(resolved.data(), start.saturating_add(offset), len) {
            // What appeared in a view is forgotten when many others did, and appears again.
            Err(error) if error.kind() == ErrorKind::Stale && is_virtual(resolved.data()) => return Ok(None),
            bytes => bytes?,
        };
        let mut files = Targets::new(self.weak(), ino, resolved);
        self.applied(&resolved.link.network, bytes, &mut files)
    }

    fn changes_too_fast(&self, ino: Ino) -> Error {
        let path = self.path(ino);
        tracing::warn!(
            user = weft_vfs::asking_user(),
            "{} cannot be read: its targets change faster",
            String::from_utf8_lossy(&path)
        );
        ErrorKind::Io.into()
    }

    /// Returns the content of link `ino`, or nothing of it, as the base of a draft. `AccessDenied`
    /// if the link leads elsewhere than when it was opened to write.
    pub(crate) fn content_of_link(&self, ino: Ino, kept: Kept) -> Result<Content> {
        for _ in 0..ATTEMPTS {
            let resolved = self.run(|state| {
                let resolved = state.resolve(ino)?;
                state.current_draft(ino)?.ok_or(ErrorKind::AccessDenied)?;
                Ok(resolved)
            })?;
            let mut content = Content::new(self, resolved.is_secret)?;
            // What was never written to may make no sense to the network.
            let is_empty = |state: &mut LinkedTree<'_>| {
                let row = &state.tree.inode(resolved.data())?.row;
                Ok(row.kind == Kind::File && row.size == 0)
            };
            if kept == Kept::Nothing || self.run(is_empty)? {
                return Ok(content);
            }
            match self.copy_version(ino, &resolved, &mut content) {
                Ok(true) => return Ok(content),
                Ok(false) => content.end(self),
                Err(error) => {
                    content.end(self);
                    return Err(error);
                }
            }
        }
        Err(self.changes_too_fast(ino))
    }

    /// False if that is not what the link leads to any more.
    fn copy_version(&self, ino: Ino, resolved: &Resolved, to: &mut Content) -> Result<bool> {
        let mut offset = 0;
        loop {
            let wanted = Wanted::Bytes { offset, len: DRAFT_BYTES, least: DRAFT_BYTES };
            let Some(rope) = self.of_version(ino, resolved, wanted)? else { return Ok(false) };
            if rope.is_empty() {
                return Ok(true);
            }
            for slice in rope.slices() {
                to.write(self, offset, slice)?;
                offset += slice.len() as u64;
            }
        }
    }

    /// Applies position-preserving `network` to `bytes`; none if the code that it runs has changed.
    pub(crate) fn applied(&self, network: &Network, bytes: Rope, files: &mut Targets) -> Result<Option<Rope>> {
        let apply =
            |bytes, files: &mut Targets| network.apply(bytes, files).map_err(|error| stopped(self, files, &error));
        let applied = if network.is_exported() {
            // Nobody knows how long that takes.
            self.may_wait(Wait::Places)?;
            loop {
                // The bytes stay, to begin anew with.
                match blocking::waiting(|| self.computing(|| apply(bytes.clone(), files)))? {
                    Err(Stopped::Busy) => self.make_room(files.ino)?,
                    applied => break applied,
                }
            }
        } else {
            // Native stages edit in place what nobody else has; they are never busy.
            apply(bytes, files)
        };
        match applied {
            Ok(applied) => Ok(Some(applied)),
            Err(Stopped::Failed(failure)) => Err(failure.kind.into()),
            Err(Stopped::Interrupted) => Err(ErrorKind::Interrupted.into()),
            Err(Stopped::Changed | Stopped::NotKept | Stopped::Busy) => Ok(None),
        }
    }

    /// Has others rest, so that the network of link `ino` can begin. `Io` if all are at work.
    pub(crate) fn make_room(&self, ino: Ino) -> Result<()> {
        if self.layer.views.rest() {
            return Ok(());
        }
        let path = self.path(ino);
        tracing::warn!(
            user = weft_vfs::asking_user(),
            "the network of {} cannot begin: others take too much",
            String::from_utf8_lossy(&path)
        );
        Err(ErrorKind::Io.into())
    }

    /// None if that is not what the link leads to any more.
    fn of_version(&self, ino: Ino, resolved: &Resolved, wanted: Wanted) -> Result<Option<Rope>> {
        let view = self.layer.views.get(self, ino, resolved)?;
        loop {
            match self.step(&view, resolved, wanted) {
                Ok(Step::Here(rope)) => return Ok(Some(rope)),
                Ok(Step::InFile(file)) => {
                    let Wanted::Bytes { offset, len, .. } = wanted else { return Ok(Some(Rope::new())) };
                    match self.read(file, offset, len) {
                        // It was given up meanwhile.
                        Err(error) if error.kind() == ErrorKind::Stale => {}
                        // It can be had again.
                        Err(error) if error.kind() == ErrorKind::Corrupt => {
                            self.layer.views.forget_all(&view);
                            return Ok(None);
                        }
                        read => return read.map(Some),
                    }
                }
                Ok(Step::Wanting) => {}
                Err(Problem::Failed(error)) => return Err(error),
                Err(Problem::Stopped(Stopped::Interrupted)) => {
                    // The table and this request have it.
                    if Arc::strong_count(&view) <= 2 {
                        let run = view.try_lock().map(|mut view| view.rest());
                        drop(run);
                    }
                    return Err(ErrorKind::Interrupted.into());
                }
                Err(Problem::Stopped(Stopped::NotKept)) => {
                    view.lock().give_up();
                    self.layer.views.keeps(self, &resolved.version, 0);
                }
                Err(Problem::Stopped(Stopped::Failed(failure))) => {
                    if failure.is_over() {
                        // The next one who asks has it tried again.
                        self.layer.views.forget(&resolved.version);
                        if failure.kind == ErrorKind::TimedOut {
                            return Ok(None);
                        }
                    }
                    let error = failure.kind;
                    return if matches!(wanted, Wanted::Length) { Ok(Some(Rope::new())) } else { Err(error.into()) };
                }
                Err(Problem::Stopped(Stopped::Busy)) => self.make_room(ino)?,
                Err(Problem::Stopped(Stopped::Changed)) => {
                    self.layer.views.forget(&resolved.version);
                    return Ok(None);
                }
            }
        }
    }

    /// Finds what is wanted, or computes a little.
    fn step(&self, view: &Mutex<View>, resolved: &Resolved, wanted: Wanted) -> Result<Step, Problem> {
        let mut locked = match view.try_lock() {
            Some(locked) => locked,
            // Whoever has it may compute for long.
            None => {
                self.may_wait(Wait::Network)?;
                blocking::waiting(|| self.lock_computing(view))?
            }
        };
        let found = match wanted {
            Wanted::Bytes { offset, len, least } => locked.find(offset, len, least)?,
            Wanted::Length if locked.len().is_some() => Step::Here(Rope::new()),
            Wanted::Length => Step::Wanting,
        };
        if !matches!(found, Step::Wanting) {
            if matches!(wanted, Wanted::Length) {
                self.learn(&locked, resolved, wanted);
            }
            return Ok(found);
        }
        // Half a step cannot be taken back.
        self.may_wait(Wait::Network)?;
        let offset = if let Wanted::Bytes { offset, .. } = wanted { offset } else { u64::MAX };
        let advanced = blocking::waiting(|| self.computing(|| locked.advance(self, offset)))?;
        self.learn(&locked, resolved, wanted);
        let bytes = locked.kept_bytes();
        let is_whole = advanced.is_ok() && locked.whole().is_some();
        drop(locked);
        advanced?;
        if bytes > 0 && !self.layer.views.keeps(self, &resolved.version, bytes) {
            return Err(Stopped::NotKept.into());
        }
        if is_whole {
            blocking::waiting(|| self.layer.views.complete(self, &resolved.version, &view.lock()));
        }
        Ok(Step::Wanting)
    }

    /// Remembers the length of what `view` has computed. Whoever reads is told of a failure that
    /// may pass; nobody needs a length for that.
    fn learn(&self, view: &View, resolved: &Resolved, wanted: Wanted) {
        if let Some(length) = view.len()
            && (length.failed.is_none() || matches!(wanted, Wanted::Length))
        {
            self.locked(|state| state.learn_length(resolved.version, length));
        }
    }
}

/// Reason why a step is not taken.
enum Problem {
    /// The thread may not wait for it, or nobody does any more.
    Failed(Error),
    Stopped(Stopped),
}

impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        Problem::Failed(error)
    }
}

impl From<Stopped> for Problem {
    fn from(stopped: Stopped) -> Problem {
        Problem::Stopped(stopped)
    }
}
