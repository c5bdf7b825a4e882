//! The content of one version of a link, computed from its beginning on as far as somebody reads.
//!
//! It is kept in a file without a name as long as there is room for it, and then computed once.
//! Else each reader that goes on somewhere has a run of the network of its own, with what it gave
//! last, so that reads that overtake each other find it.

use crate::Version;
use crate::layer::Links;
use crate::resolving::length::{Length, RETRY};
use crate::results::memo::{Key, Memo, Nameless};
use crate::results::sources::{TargetError, Targets};
use std::collections::VecDeque;
use std::io;
use std::time::Instant;
use weft_block::{Buffer, Rope, Slice};
use weft_store::{Ino, Kind};
use weft_transform::{Run, RunError, Sources, StageError};
use weft_tree::{Caller, ErrorKind, MakeNode, Result};

/// Bytes that a run holds behind where it is.
const BEHIND_BYTES: usize = 4 << 20;

/// Runs of one view, for readers at different places.
const RUNS_MAX: usize = 4;

/// A view.
pub(crate) struct View {
    targets: Targets,
    /// True if it is to be memoised, and no attempt was made yet.
    wants_keeping: bool,
    kept: Option<Kept>,
    /// Those used last come last.
    runs: Vec<Passage>,
    end: Option<End>,
}

/// A file that holds the first bytes of a view, and what computes the rest.
struct Kept {
    file: Nameless,
    len: u64,
    run: Option<Run>,
}

/// A run and the bytes that it has given.
struct Passage {
    run: Run,
    /// Bytes from here on are held.
    from: u64,
    held: VecDeque<Slice>,
    to: u64,
}

/// End of a view, with the error that ends it, if any.
#[derive(Clone, Copy)]
struct End {
    at: u64,
    error: Option<Failure>,
}

/// Failure of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) kind: ErrorKind,
    /// True if it would fail again: its input is wrong, not an event during the run.
    pub(crate) is_lasting: bool,
    pub(crate) at: Instant,
}

impl Failure {
    /// True if the next reader may retry. A network that timed out is not retried at once.
    pub(crate) fn is_over(&self) -> bool {
        !self.is_lasting && (self.kind != ErrorKind::TimedOut || self.at.elapsed() >= RETRY)
    }
}

/// Reason why a view gives no more bytes.
pub(crate) enum Stopped {
    /// Its targets have changed: another version is wanted.
    Changed,
    /// It cannot be kept. Nothing is lost, but where it was kept is given up.
    NotKept,
    /// The network cannot begin now, as others take too much.
    Busy,
    /// Nobody waits for it any more.
    Interrupted,
    /// The network failed so, where the view now ends.
    Failed(Failure),
}

/// Result of a step towards some bytes.
pub(crate) enum Step {
    /// They are in this file: read it there.
    InFile(Ino),
    /// Here they are, fewer only at the end.
    Here(Rope),
    /// There is more to be computed.
    Wanting,
}

impl View {
    /// One of which nothing is computed yet.
    pub(crate) fn new(targets: Targets, wants_keeping: bool) -> View {
        View { targets, wants_keeping, kept: None, runs: Vec::new(), end: None }
    }

    /// One that is `len` bytes in `file`.
    pub(crate) fn complete(targets: Targets, file: Nameless, len: u64) -> View {
        let kept = Some(Kept { file, len, run: None });
        View { targets, wants_keeping: false, kept, runs: Vec::new(), end: Some(End { at: len, error: None }) }
    }

    /// The file that holds all of it.
    pub(crate) fn whole(&self) -> Option<&Nameless> {
        let is_complete = self.end.is_some_and(|end| end.error.is_none());
        self.kept.as_ref().filter(|_| is_complete).map(|kept| &kept.file)
    }

    /// Returns the key of all of its content, now that `version` gives it.
    pub(crate) fn key(&self, vfs: &Links<'_>, version: Version) -> Option<Key> {
        vfs.memo_key(self.targets.ino, version).ok().flatten()
    }

    /// Lets go of the file that holds all of it.
    pub(crate) fn take_whole(&mut self) -> Option<Nameless> {
        self.whole()?;
        self.kept.take().map(|kept| kept.file)
    }

    /// True if sandboxed stages run: they use resources that others may lack.
    pub(crate) fn has_exported(&self) -> bool {
        self.targets.link.network.is_exported() && self.runs()
    }

    /// True if a network runs.
    pub(crate) fn runs(&self) -> bool {
        self.is_being_kept() || !self.runs.is_empty()
    }

    /// Returns the owner of its link.
    pub(crate) fn owner(&self) -> Option<u32> {
        self.targets.owner()
    }

    fn is_being_kept(&self) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.run.is_some())
    }

    /// Lets go of what runs, to be begun anew when somebody reads on: whoever drops it must hold no
    /// view.
    pub(crate) fn rest(&mut self) -> impl Send + use<> {
        let run = self.kept.as_mut().and_then(|kept| kept.run.take());
        if run.is_some() {
            self.give_up();
            self.wants_keeping = true;
        }
        (run, std::mem::take(&mut self.runs))
    }

    /// Bytes that it keeps.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.kept.as_ref().map_or(0, |kept| kept.len)
    }

    /// Returns the memoised part of its content.
    pub(crate) fn memo(&self) -> Memo {
        Memo { bytes: self.kept_bytes(), is_complete: self.whole().is_some() }
    }

    /// Keeps it no longer.
    pub(crate) fn give_up(&mut self) {
        self.kept = None;
    }

    /// Returns its length, if known. If it ends in an error, the length is one byte more, so that
    /// readers reach the error.
    pub(crate) fn len(&self) -> Option<Length> {
        let end = self.end?;
        let passing = end.error.filter(|error| !error.is_lasting);
        let bytes = end.at + u64::from(end.error.is_some());
        Some(Length { bytes, failed: passing })
    }

    /// Finds `len` bytes from `offset` on, if at least `least` of them were computed.
    pub(crate) fn find(&mut self, offset: u64, len: usize, least: usize) -> Result<Step, Stopped> {
        let (most, wanted) = (offset.saturating_add(len as u64), offset.saturating_add(least as u64));
        if let Some(End { at, error: Some(error) }) = self.end
            && wanted > at
        {
            return Err(Stopped::Failed(error));
        }
        if self.end.is_some_and(|end| offset >= end.at) {
            return Ok(Step::Here(Rope::new()));
        }
        if let Some(kept) = &self.kept {
            let is_there = wanted <= kept.len || self.end.is_some();
            return Ok(if is_there { Step::InFile(kept.file.ino) } else { Step::Wanting });
        }
        let end = self.end;
        let is_there =
            |run: &&Passage| run.from <= offset && (wanted <= run.to || end.is_some_and(|end| run.to == end.at));
        Ok(match self.runs.iter().find(is_there) {
            Some(run) => Step::Here(run.bytes(offset, most)),
            None => Step::Wanting,
        })
    }

    /// Computes a little more, for who reads at `offset`.
    pub(crate) fn advance(&mut self, vfs: &Links<'_>, offset: u64) -> Result<(), Stopped> {
        if std::mem::take(&mut self.wants_keeping) {
            let node = MakeNode { kind: Kind::File, permissions: 0, umask: 0, rdev: 0 };
            // What cannot be kept is computed again.
            let made = vfs.make_unnamed(Caller::ROOT, Ino::ROOT, node).ok();
            self.kept = made.map(|made| Kept { file: Nameless::held(vfs, made.ino), len: 0, run: None });
        }
        let next = match &mut self.kept {
            Some(kept) => kept.run(&mut self.targets).and_then(|run| run.next().transpose()),
            None => self.passage(offset).and_then(|passage| passage.run.next().transpose()),
        };
        match (next, &mut self.kept) {
            (Ok(Some(rope)), Some(kept)) => kept.append(vfs, &rope),
            (Ok(Some(rope)), None) => {
                self.runs.last_mut().expect("it has just run").append(&rope);
                Ok(())
            }
            (Ok(None), _) => {
                self.ends(None);
                Ok(())
            }
            (Err(error), _) => Err(self.failed(error)),
        }
    }

    /// The run that can give bytes from `offset` on, as the last one; if there is none, one from
    /// the beginning.
    fn passage(&mut self, offset: u64) -> Result<&mut Passage, RunError> {
        let nearest = self.runs.iter().enumerate().filter(|(_, run)| run.from <= offset).max_by_key(|(_, run)| run.to);
        if let Some((index, _)) = nearest {
            let run = self.runs.remove(index);
            self.runs.push(run);
        } else {
            let run = Run::start(&self.targets.link.clone().network, &mut self.targets)?;
            if self.runs.len() >= RUNS_MAX {
                self.runs.remove(0);
            }
            self.runs.push(Passage { run, from: 0, held: VecDeque::new(), to: 0 });
        }
        Ok(self.runs.last_mut().expect("one was pushed"))
    }

    /// All that there will be is there.
    fn ends(&mut self, error: Option<Failure>) {
        let at = match &mut self.kept {
            Some(kept) => {
                kept.run = None;
                kept.len
            }
            None => self.runs.last().map_or(0, |run| run.to),
        };
        self.end = Some(End { at, error });
    }

    fn failed(&mut self, error: RunError) -> Stopped {
        let Some(vfs) = self.targets.vfs.upgrade() else { return Stopped::Changed };
        // What others of the owner's keep, who were read a little and not to their ends, goes
        // first.
        let links = Links::of(&vfs);
        if error.lacks_room() && links.layer.views.rest_of(self.owner()) {
            return Stopped::Changed;
        }
        let stopped = stopped(&links, &self.targets, &error);
        if matches!(stopped, Stopped::Interrupted) && !matches!(error, RunError::Interrupted) {
            // It cannot go on where it was.
            drop(self.rest());
        }
        if let Stopped::Failed(failure) = stopped {
            self.ends(Some(failure));
        }
        stopped
    }
}

/// Converts the error that ended a network. A failure of the network is logged.
pub(crate) fn stopped(vfs: &Links<'_>, targets: &Targets, error: &RunError) -> Stopped {
    if matches!(error, RunError::Stage { source: StageError::Busy(_), .. }) {
        return Stopped::Busy;
    }
    let is_source = matches!(error, RunError::Source(source) if source.kind() == io::ErrorKind::Interrupted);
    if is_source || matches!(error, RunError::Interrupted | RunError::Stage { source: StageError::Stopped, .. }) {
        return Stopped::Interrupted;
    }
    let kind = match target_error(error) {
        Some(TargetError::Changed) => return Stopped::Changed,
        Some(TargetError::Vfs(error)) => error.kind(),
        None if matches!(error, RunError::Stage { source: StageError::Idle(_), .. }) => ErrorKind::TimedOut,
        None if error.is_full() => ErrorKind::NoSpace,
        None => ErrorKind::Io,
    };
    let is_data = matches!(error, RunError::Stage { source: StageError::Data(_), .. } | RunError::Before(_));
    let (network, path) = (&targets.link.network, vfs.path(targets.ino));
    tracing::warn!(user = weft_vfs::asking_user(), "the network of {} failed: {error}", String::from_utf8_lossy(&path));
    let is_lasting = is_data && !(network.is_exported() || network.has_keys());
    Stopped::Failed(Failure { kind, is_lasting, at: Instant::now() })
}

impl Kept {
    fn run(&mut self, targets: &mut Targets) -> Result<&mut Run, RunError> {
        if self.run.is_none() {
            self.run = Some(Run::start(&targets.link.clone().network, targets)?);
        }
        Ok(self.run.as_mut().expect("it was begun"))
    }

    fn append(&mut self, vfs: &Links<'_>, rope: &Rope) -> Result<(), Stopped> {
        for slice in rope.slices() {
            vfs.write(self.file.ino, self.len, slice, false).map_err(|_| Stopped::NotKept)?;
            self.len += slice.len() as u64;
        }
        Ok(())
    }
}

impl Passage {
    fn append(&mut self, rope: &Rope) {
        // A copy, in no more memory than it needs: a few bytes by reference may keep whole blocks
        // of the source.
        let mut bytes = Buffer::default();
        rope.slices().iter().for_each(|slice| bytes.extend_from_slice(slice));
        self.held.push_back(bytes.freeze().whole());
        self.to += rope.len() as u64;
        while let Some(first) = self.held.front()
            && self.to - self.from - first.len() as u64 >= BEHIND_BYTES as u64
        {
            self.from += first.len() as u64;
            self.held.pop_front();
        }
    }

    /// Returns the held bytes from `start` to `end`.
    fn bytes(&self, start: u64, end: u64) -> Rope {
        let mut rope = Rope::new();
        let mut at = self.from;
        for slice in &self.held {
            let len = slice.len() as u64;
            let within = |place: u64| usize::try_from(place.clamp(at, at + len) - at).expect("in a slice");
            let (first, last) = (within(start), within(end));
            if first < last {
                rope.push(slice.slice(first..last));
            }
            at += len;
        }
        rope
    }
}

/// Returns the error of a target, if that made a network fail.
fn target_error(error: &RunError) -> Option<&TargetError> {
    match error {
        RunError::Source(source) => source.get_ref()?.downcast_ref(),
        _ => None,
    }
}
