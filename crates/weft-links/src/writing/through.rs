//! Writing through links that can be undone: bytes in their places at once, else all of it when who
//! writes is done.

use crate::definition::Writing;
use crate::layer::Links;
use crate::resolving::attributes::WRITE;
use crate::resolving::reach::MAY_WRITE;
use crate::resolving::resolve::Resolved;
use crate::resolving::watch::Of;
use crate::results::reading::Kept;
use crate::results::sources::Targets;
use crate::results::view::{Stopped, stopped};
use crate::writing::drafts::{Content, Draft, Written};
use crate::writing::opening::Opening;
use parking_lot::MutexGuard;
use std::borrow::Cow;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use weft_block::{Rope, Slice};
use weft_store::{Ino, Kind};
use weft_transform::interrupt;
use weft_transform::{Network, Run, RunError, Source, WithInput};
use weft_tree::{Attributes, Caller, ErrorKind, MakeNode, Privileges, Replacement, Result, SetAttributes, Writer};
use weft_vfs::Change;
use weft_vfs::blocking::{self, Wait};

/// Bytes filled at once.
const FILL_BYTES: usize = 1 << 20;

/// Length above which content that replaces a whole target is first written to a file of its own.
const AT_ONCE_BYTES: usize = 1 << 20;

impl Links<'_> {
    /// As [`weft_vfs::Vfs::write`], through link `ino` into its target, or what is kept of it.
    /// `AccessDenied` if that cannot be.
    pub(crate) fn write_link(&self, ino: Ino, offset: u64, data: &[u8], writer: Writer) -> Result<Privileges> {
        if let Some(draft) = self.run(|state| state.draft_with(ino, MAY_WRITE))? {
            self.edit_draft(ino, &draft, Kept::All, |content| content.write(self, offset, data))?;
            return Ok(Privileges::Kept);
        }
        let resolved = self.writable_in_places(ino)?;
        if !resolved.lets_anybody(WRITE) || !resolved.may_write {
            return Err(ErrorKind::AccessDenied.into());
        }
        let inverse = resolved.link.inverse.as_ref().ok_or(ErrorKind::AccessDenied)?;
        let target = resolved.data();
        // Those who keep copies of the target are told, which may take a while.
        self.may_wait(Wait::Commit)?;
        blocking::waiting(|| {
            let mut files = Targets::new(self.weak(), ino, &resolved);
            let size = self.attributes(target)?.size;
            self.fill(target, inverse, &mut files, size..offset)?;
            let bytes = self.undone(inverse, &mut files, data.to_vec())?;
            let written = self.write(target, offset, &bytes.contiguous(), writer);
            self.target_changed(&resolved, size.min(offset)..offset + data.len() as u64);
            written
        })
    }

    /// As [`weft_vfs::Vfs::set_attributes`]: size and times are those of what link `ino` leads to,
    /// the rest its own. `AccessDenied` if that cannot be.
    pub(crate) fn set_link_attributes(&self, ino: Ino, changes: SetAttributes) -> Result<Attributes> {
        let resolved = self.run(|state| state.resolve(ino))?;
        let inverse = resolved.link.inverse.as_ref().ok_or(ErrorKind::AccessDenied)?;
        let SetAttributes { permissions, uid, gid, writer, .. } = changes;
        if permissions.is_some() || uid.is_some() || gid.is_some() {
            let own = SetAttributes { permissions, uid, gid, writer, ..SetAttributes::default() };
            self.set_attributes(ino, own)?;
        }
        match resolved.writing {
            Writing::Not => return Err(ErrorKind::AccessDenied.into()),
            _ if !resolved.may_write => return Err(ErrorKind::AccessDenied.into()),
            Writing::Whole => self.set_draft_size(ino, changes.size)?,
            Writing::Places => {
                self.may_wait(Wait::Commit)?;
                blocking::waiting(|| self.set_target_attributes(ino, &resolved, inverse, changes))?;
            }
        }
        self.attributes(ino)
    }

    fn set_target_attributes(
        &self,
        ino: Ino,
        resolved: &Resolved,
        inverse: &Network,
        changes: SetAttributes,
    ) -> Result<()> {
        let target = resolved.data();
        let mut files = Targets::new(self.weak(), ino, resolved);
        let before = self.attributes(target)?.size;
        self.fill(target, inverse, &mut files, before..changes.size.unwrap_or(0))?;
        let SetAttributes { size, atime, mtime, writer, .. } = changes;
        let set = SetAttributes { size, atime, mtime, writer, ..SetAttributes::default() };
        self.set_attributes(target, set)?;
        self.target_changed(resolved, before.min(size.unwrap_or(before))..u64::MAX);
        Ok(())
    }

    /// Tells those who keep copies of the target of a link that was written through.
    fn target_changed(&self, resolved: &Resolved, range: Range<u64>) {
        // Who writes to a file onto which something is pushed has its pages in hand, and they are
        // what is seen of it.
        if resolved.link.of.is_none() {
            self.announce([Change::Target { ino: resolved.data(), range }]);
        }
    }

    /// Cuts off what link `ino` gives, or adds zeros: for good when who has it open closes it, or
    /// at once if nobody has.
    fn set_draft_size(&self, ino: Ino, size: Option<u64>) -> Result<()> {
        let Some(size) = size else { return Ok(()) };
        let kept = if size == 0 { Kept::Nothing } else { Kept::All };
        let set = |draft: &Draft| self.edit_draft(ino, draft, kept, |content| content.resize(self, size));
        if let Some(draft) = self.run(|state| state.current_draft(ino))? {
            return set(&draft);
        }
        self.may_wait(Wait::Network)?;
        blocking::waiting(|| {
            if !matches!(self.opened(ino, true)?, Opening::Draft { .. }) {
                // It leads elsewhere now.
                return Err(ErrorKind::AccessDenied.into());
            }
            let set = self.draft(ino).map_or(Ok(()), |draft| set(&draft)).and_then(|()| self.flush(ino));
            self.closed(ino)?;
            set
        })
    }

    /// Returns the offset of the next byte appended to link `ino`, if it is open to be written as a
    /// whole.
    pub fn end_of_draft(&self, ino: Ino) -> Result<Option<u64>> {
        let Some(draft) = self.run(|state| state.draft_with(ino, MAY_WRITE))? else { return Ok(None) };
        match &*self.begun(ino, &draft, Kept::All)? {
            Written::Here(content) => content.len(self).map(Some),
            Written::Nothing | Written::Ended => Err(ErrorKind::NotSynchronized.into()),
        }
    }

    /// Returns the draft of link `ino`, if it is open to be written as a whole.
    pub(crate) fn draft(&self, ino: Ino) -> Option<Arc<Draft>> {
        self.locked(|state| state.links.drafts.get(ino).cloned())
    }

    /// Changes what was written to link `ino`. As [`weft_vfs::Vfs::write`], and `NotSynchronized`
    /// if the last one has closed it meanwhile who had it open.
    fn edit_draft(
        &self,
        ino: Ino,
        draft: &Draft,
        kept: Kept,
        edit: impl FnOnce(&mut Content) -> Result<()>,
    ) -> Result<()> {
        let mut written = self.begun(ino, draft, kept)?;
        let Written::Here(content) = &mut *written else { return Err(ErrorKind::NotSynchronized.into()) };
        edit(content)?;
        draft.written(content.len(self)?, self.now());
        drop(written);
        self.draft_changed(ino);
        Ok(())
    }

    /// Tells of links that follow from link `ino`, to which something is written.
    pub(crate) fn draft_changed(&self, ino: Ino) {
        let outdated = self.locked(|state| {
            state.links.watches.changed((ino, Of::Itself));
            state.links.watches.take_outdated()
        });
        self.announce_outdated(outdated);
    }

    /// Returns the content written to link `ino`. If there is none yet, begins it with the link's
    /// content, or empty, as `kept` says.
    fn begun<'a>(&self, ino: Ino, draft: &'a Draft, kept: Kept) -> Result<MutexGuard<'a, Written>> {
        let mut content = match draft.content.try_lock() {
            Some(content) => content,
            None => {
                self.may_wait(Wait::Network)?;
                blocking::waiting(|| self.lock_computing(&draft.content))?
            }
        };
        if matches!(*content, Written::Nothing) {
            self.may_wait(Wait::Network)?;
            *content = Written::Here(blocking::waiting(|| self.content_of_link(ino, kept))?);
        }
        Ok(content)
    }

    /// Puts what was written to link `ino` into its target, if that does not have it.
    pub(crate) fn store_draft(&self, ino: Ino, draft: &Draft) -> Result<()> {
        if !draft.is_new() {
            return Ok(());
        }
        self.may_wait(Wait::Network)?;
        blocking::waiting(|| {
            let written = self.lock_computing(&draft.content)?;
            if let Written::Here(content) = &*written
                && draft.is_new()
            {
                while !self.computing(|| self.store(ino, draft, content))?? {
                    self.make_room(ino)?;
                }
                draft.stored();
            }
            Ok(())
        })
    }

    /// The same. False if the network cannot begin now, as others take too much.
    fn store(&self, ino: Ino, draft: &Draft, content: &Content) -> Result<bool> {
        let (mut link, mut from) = (ino, content.source(&self.weak()));
        let (target, resolved, files) = loop {
            let resolved = self.run(|state| {
                let resolved = state.resolve(link)?;
                // Who opened it was let write what it led to then.
                if link == ino && state.current_draft(ino)?.is_none() {
                    return Err(ErrorKind::AccessDenied.into());
                }
                Ok(resolved)
            })?;
            let inverse = resolved.link.inverse.as_ref().filter(|_| resolved.writing != Writing::Not);
            let inverse = inverse.ok_or(ErrorKind::AccessDenied)?;
            let mut files = Targets::new(self.weak(), link, &resolved);
            let mut written = Some(from);
            let input = || written.take().ok_or_else(|| io::Error::other("it is read once"));
            let run = Run::start(inverse, &mut WithInput { input, files: &mut files });
            match run {
                Ok(run) => from = Box::new(Undone { run, given: Vec::new().into_iter() }),
                Err(error) => return self.not_stored(&files, &error),
            }
            let target = resolved.data();
            if self.run(|state| Ok(state.tree.inode(target)?.row.kind))? == Kind::File {
                break (target, resolved, files);
            }
            link = target;
        };
        // It may have come to lead elsewhere meanwhile.
        if draft.led.base.is_none_or(|(base, _)| base != target) {
            return Err(ErrorKind::AccessDenied.into());
        }
        let mut made = None;
        let stored = self.put_into(target, &mut *from, &mut made);
        drop(from);
        made.into_iter().for_each(|made| self.release(made, 1));
        match stored {
            Ok(()) => {
                self.target_changed(&resolved, 0..u64::MAX);
                Ok(true)
            }
            Err(NotStored::Run(error)) => self.not_stored(&files, &error),
            Err(NotStored::Vfs(error)) => Err(error),
        }
    }

    fn not_stored(&self, files: &Targets, error: &RunError) -> Result<bool> {
        match stopped(self, files, error) {
            Stopped::Busy => Ok(false),
            Stopped::Failed(failure) => Err(failure.kind.into()),
            Stopped::Interrupted => Err(ErrorKind::Interrupted.into()),
            // Code that it runs was replaced meanwhile.
            Stopped::Changed | Stopped::NotKept => Err(ErrorKind::Io.into()),
        }
    }

    /// Makes all that comes `from` there the content of file `target`, by way of a file without a
    /// name, `made` then, if it is much.
    fn put_into(&self, target: Ino, from: &mut dyn Source, made: &mut Option<Ino>) -> Result<(), NotStored> {
        let (mut bytes, mut len) = (Vec::new(), 0);
        while let Some(slice) = from.next().map_err(NotStored::of)? {
            match *made {
                None if bytes.len() + slice.len() <= AT_ONCE_BYTES => bytes.extend_from_slice(&slice),
                None => {
                    let node = MakeNode { kind: Kind::File, permissions: 0, umask: 0, rdev: 0 };
                    let file = self.make_unnamed(Caller::ROOT, Ino::ROOT, node)?.ino;
                    *made = Some(file);
                    self.write(file, 0, &bytes, false)?;
                    self.write(file, bytes.len() as u64, &slice, false)?;
                    len = (bytes.len() + slice.len()) as u64;
                    bytes = Vec::new();
                }
                Some(file) => {
                    self.write(file, len, &slice, false)?;
                    len += slice.len() as u64;
                }
            }
        }
        let time = self.now();
        let with = made.map_or(Replacement::Bytes(Cow::Owned(bytes)), Replacement::ContentOf);
        Ok(self.change(|state| state.replace(target, &with, time))?)
    }

    /// Writes into `range` of `target`, which lies past its end, what reads as zeros through the
    /// link.
    fn fill(&self, target: Ino, inverse: &Network, files: &mut Targets, range: Range<u64>) -> Result<()> {
        if range.is_empty() || self.undone(inverse, files, vec![0])?.to_vec() == [0] {
            return Ok(());
        }
        let zeros = self.undone(inverse, files, vec![0; FILL_BYTES])?.contiguous().to_vec();
        let mut at = range.start;
        while at < range.end {
            if self.computing(interrupt::is_interrupted)? {
                return Err(ErrorKind::Interrupted.into());
            }
            let len = usize::try_from(range.end - at).map_or(FILL_BYTES, |left| left.min(FILL_BYTES));
            self.write(target, at, &zeros[..len], false)?;
            at += len as u64;
        }
        Ok(())
    }

    fn writable_in_places(&self, ino: Ino) -> Result<Resolved> {
        let resolved = self.run(|state| state.resolve(ino))?;
        if resolved.writing == Writing::Places { Ok(resolved) } else { Err(ErrorKind::AccessDenied.into()) }
    }

    /// Returns the bytes that the target must hold so that the link reads as `bytes`.
    fn undone(&self, inverse: &Network, files: &mut Targets, bytes: Vec<u8>) -> Result<Rope> {
        match self.applied(inverse, Rope::from(bytes), files)? {
            Some(undone) => Ok(undone),
            // Code that it runs was replaced meanwhile.
            None => Err(ErrorKind::Io.into()),
        }
    }
}

/// Reason why content is not put into a target.
enum NotStored {
    Run(RunError),
    Vfs(weft_tree::Error),
}

impl NotStored {
    /// Converts the error of a network, or of several in a row: the error of the first that failed.
    fn of(error: io::Error) -> NotStored {
        match error.downcast::<RunError>() {
            Ok(RunError::Source(before)) => NotStored::of(before),
            Ok(error) => NotStored::Run(error),
            Err(error) => match error.downcast() {
                Ok(error) => NotStored::Vfs(error),
                Err(error) => NotStored::Run(RunError::Source(error)),
            },
        }
    }
}

impl From<weft_tree::Error> for NotStored {
    fn from(error: weft_tree::Error) -> NotStored {
        NotStored::Vfs(error)
    }
}

/// Output of a network, for another to read.
struct Undone {
    run: Run,
    given: std::vec::IntoIter<Slice>,
}

impl Source for Undone {
    fn next(&mut self) -> io::Result<Option<Slice>> {
        loop {
            if let Some(slice) = self.given.find(|slice| !slice.is_empty()) {
                return Ok(Some(slice));
            }
            match self.run.next().transpose().map_err(io::Error::other)? {
                Some(rope) => self.given = rope.slices().to_vec().into_iter(),
                None => return Ok(None),
            }
        }
    }
}
