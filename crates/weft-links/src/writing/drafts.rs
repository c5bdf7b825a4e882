//! What programs write to links that are written as a whole, kept apart until they close them.
//!
//! A draft begins when somebody opens such a link to write, and ends when the last one who did has
//! closed it. It holds nothing until something is written; then it is what all who read the link
//! get. Its content lies in a file without a name or, if it is not to lie in the volume as it is,
//! in memory.

use crate::layer::Links;
use crate::writing::led::Led;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use weft_block::{Buffer, Rope, Slice};
use weft_store::{Ino, Kind, Timestamp};
use weft_transform::Source;
use weft_tree::{Caller, ErrorKind, MakeNode, Result};
use weft_vfs::Vfs;

/// Most bytes that the drafts of a volume may hold in memory.
const MEMORY_BYTES_MAX: u64 = 256 << 20;

/// Bytes read at once.
const READ_BYTES: usize = 1 << 20;

/// The drafts of a volume, by their links.
#[derive(Default)]
pub(crate) struct Drafts {
    open: FxHashMap<Ino, Open>,
    /// Bytes in memory.
    held: Arc<AtomicU64>,
    /// Number of writes to any draft so far: a source of unique change numbers.
    changes: Arc<AtomicU64>,
}

struct Open {
    /// Users who have it open; none for the holder of the volume.
    openers: Vec<Option<u32>>,
    draft: Arc<Draft>,
}

/// Pending content written to one link.
#[derive(Default)]
pub(crate) struct Draft {
    /// Attributes of the link once something is written. Locked while the volume's state is held,
    /// never the other way round.
    now: Mutex<Look>,
    pub(crate) content: Mutex<Written>,
    all_changes: Arc<AtomicU64>,
    /// True if a descriptor of it was closed while it was empty.
    spared: AtomicBool,
    /// The file that the link led to when it was opened.
    pub(crate) led: Led,
}

/// Content of a draft, or its absence.
#[derive(Default)]
pub(crate) enum Written {
    /// Nothing: nobody has written.
    #[default]
    Nothing,
    /// This.
    Here(Content),
    /// It has ended: whoever still has it is late.
    Ended,
}

#[derive(Clone, Copy, Default)]
struct Look {
    drafted: Option<Drafted>,
    /// True if the draft has content that its target lacks.
    is_new: bool,
    /// Change number: it tells its content from earlier content, and from that of other drafts. 0
    /// if nothing is written.
    change: u64,
}

/// Attributes of a link with a written draft.
#[derive(Clone, Copy)]
pub(crate) struct Drafted {
    pub(crate) size: u64,
    pub(crate) mtime: Timestamp,
}

/// The content of a draft.
pub(crate) enum Content {
    /// The content of a file without a name.
    File(Ino),
    /// These bytes.
    Memory { bytes: Arc<Vec<u8>>, held: Arc<AtomicU64> },
}

/// Result of closing a link.
pub(crate) enum Closed {
    /// It was the last one, and something is left to be stored.
    Unstored(Arc<Draft>),
    /// It was the last one.
    Last(Arc<Draft>),
    /// Others have it open, or nobody had.
    Shared,
}

impl Drafts {
    /// Returns the draft of `link`, shared by all who have it open to write.
    pub(crate) fn get(&self, link: Ino) -> Option<&Arc<Draft>> {
        self.open.get(&link).map(|open| &open.draft)
    }

    /// The same, if user `opener` is one of those.
    pub(crate) fn of_opener(&self, link: Ino, opener: Option<u32>) -> Option<Arc<Draft>> {
        self.open.get(&link).filter(|open| open.openers.contains(&opener)).map(|open| open.draft.clone())
    }

    /// Notes that one more, user `opener`, has `link` open to write, which leads to `led`.
    pub(crate) fn opened(&mut self, link: Ino, led: Led, opener: Option<u32>) {
        let all_changes = self.changes.clone();
        let draft = || Arc::new(Draft { led, all_changes, ..Draft::default() });
        let new = || Open { openers: Vec::new(), draft: draft() };
        self.open.entry(link).or_insert_with(new).openers.push(opener);
    }

    /// The links that somebody has open to write.
    pub(crate) fn links(&self) -> Vec<Ino> {
        self.open.keys().copied().collect()
    }

    /// Notes that user `opener` has closed it, unless something is to be stored before, which is
    /// only said if `stores`.
    pub(crate) fn closed(&mut self, link: Ino, opener: Option<u32>, stores: bool) -> Closed {
        let Some(open) = self.open.get_mut(&link) else { return Closed::Shared };
        if open.openers.len() > 1 {
            let who = open.openers.iter().position(|one| *one == opener).unwrap_or_default();
            open.openers.swap_remove(who);
            return Closed::Shared;
        }
        if stores && open.draft.is_new() {
            return Closed::Unstored(open.draft.clone());
        }
        self.open.remove(&link).map_or(Closed::Shared, |open| Closed::Last(open.draft))
    }
}

impl Draft {
    /// Returns the attributes of the link; none as long as nothing is written.
    pub(crate) fn now(&self) -> Option<Drafted> {
        self.now.lock().drafted
    }

    /// True if the draft has content that its target lacks.
    pub(crate) fn is_new(&self) -> bool {
        self.now.lock().is_new
    }

    /// Notes that it was written to at `mtime`, and holds `size` bytes.
    pub(crate) fn written(&self, size: u64, mtime: Timestamp) {
        let change = self.all_changes.fetch_add(1, Ordering::Relaxed) + 1;
        *self.now.lock() = Look { drafted: Some(Drafted { size, mtime }), is_new: true, change };
    }

    /// Returns the change number: it tells its content from earlier content, and from that of any
    /// other draft. 0 if nothing is written.
    pub(crate) fn change(&self) -> u64 {
        self.now.lock().change
    }

    /// True if it is empty, and no descriptor of it was closed before.
    pub(crate) fn waits_once(&self) -> bool {
        self.now().is_some_and(|now| now.size == 0) && !self.spared.swap(true, Ordering::Relaxed)
    }

    /// Notes that its target has all of it.
    pub(crate) fn stored(&self) {
        self.now.lock().is_new = false;
    }
}

impl Content {
    /// One without bytes, in memory if it `is_secret`.
    pub(crate) fn new(vfs: &Links<'_>, is_secret: bool) -> Result<Content> {
        if is_secret {
            let held = vfs.locked(|state| state.links.drafts.held.clone());
            return Ok(Content::Memory { bytes: Arc::default(), held });
        }
        let node = MakeNode { kind: Kind::File, permissions: 0, umask: 0, rdev: 0 };
        Ok(Content::File(vfs.make_unnamed(Caller::ROOT, Ino::ROOT, node)?.ino))
    }

    pub(crate) fn len(&self, vfs: &Links<'_>) -> Result<u64> {
        match self {
            Content::File(ino) => Ok(vfs.attributes(*ino)?.size),
            Content::Memory { bytes, .. } => Ok(bytes.len() as u64),
        }
    }

    /// As [`Vfs::read`].
    pub(crate) fn read(&self, vfs: &Links<'_>, offset: u64, len: usize) -> Result<Rope> {
        match self {
            Content::File(ino) => vfs.read(*ino, offset, len),
            Content::Memory { bytes, .. } => {
                Ok(Rope::from(Buffer::copy_of(within(bytes, offset, len)).freeze().whole()))
            }
        }
    }

    /// As [`Vfs::write`]. `NoSpace` if it would be too much in memory.
    pub(crate) fn write(&mut self, vfs: &Links<'_>, offset: u64, data: &[u8]) -> Result<()> {
        match self {
            Content::File(ino) => vfs.write(*ino, offset, data, false).map(|_| ()),
            Content::Memory { bytes, .. } => {
                let end = offset.saturating_add(data.len() as u64);
                if end > bytes.len() as u64 {
                    self.resize(vfs, end)?;
                }
                let Content::Memory { bytes, .. } = self else { return Ok(()) };
                // It was made so long, so places in it are small numbers.
                let start = usize::try_from(offset).map_err(|_| ErrorKind::NoSpace)?;
                Arc::make_mut(bytes)[start..start + data.len()].copy_from_slice(data);
                Ok(())
            }
        }
    }

    /// Cuts off or adds zeros. As [`Content::write`].
    pub(crate) fn resize(&mut self, vfs: &Links<'_>, size: u64) -> Result<()> {
        match self {
            Content::File(ino) => {
                let changes = weft_tree::SetAttributes { size: Some(size), ..Default::default() };
                vfs.set_attributes(*ino, changes).map(|_| ())
            }
            Content::Memory { bytes, held } => {
                let (before, wanted) = (bytes.len() as u64, usize::try_from(size).map_err(|_| ErrorKind::NoSpace)?);
                let more = size.saturating_sub(before);
                if held.fetch_add(more, Ordering::Relaxed).saturating_add(more) > MEMORY_BYTES_MAX {
                    held.fetch_sub(more, Ordering::Relaxed);
                    return Err(ErrorKind::NoSpace.into());
                }
                Arc::make_mut(bytes).resize(wanted, 0);
                held.fetch_sub(before.saturating_sub(size), Ordering::Relaxed);
                Ok(())
            }
        }
    }

    /// Gives it all, from the beginning, as it is now.
    pub(crate) fn source(&self, vfs: &Weak<Vfs>) -> Box<dyn Source> {
        let from = match self {
            Content::File(ino) => From::File(vfs.clone(), *ino),
            Content::Memory { bytes, .. } => From::Memory(bytes.clone()),
        };
        Box::new(Reading { from, at: 0, read: Vec::new().into_iter() })
    }

    /// Lets go of what it holds.
    pub(crate) fn end(self, vfs: &Links<'_>) {
        match self {
            Content::File(ino) => vfs.release(ino, 1),
            Content::Memory { bytes, held } => {
                held.fetch_sub(bytes.len() as u64, Ordering::Relaxed);
            }
        }
    }
}

/// The part of `bytes` from `offset` on, `len` of them at most.
fn within(bytes: &[u8], offset: u64, len: usize) -> &[u8] {
    let start = usize::try_from(offset).map_or(bytes.len(), |offset| offset.min(bytes.len()));
    &bytes[start..bytes.len().min(start.saturating_add(len))]
}

enum From {
    File(Weak<Vfs>, Ino),
    Memory(Arc<Vec<u8>>),
}

/// Reads a draft from the beginning.
struct Reading {
    from: From,
    at: u64,
    /// Slices that were read and not yet returned.
    read: std::vec::IntoIter<Slice>,
}

impl Source for Reading {
    fn next(&mut self) -> io::Result<Option<Slice>> {
        loop {
            if let Some(slice) = self.read.find(|slice| !slice.is_empty()) {
                return Ok(Some(slice));
            }
            let rope = match &self.from {
                From::File(vfs, ino) => {
                    let vfs = vfs.upgrade().ok_or_else(|| io::Error::other("the volume was closed"))?;
                    vfs.read(*ino, self.at, READ_BYTES).map_err(io::Error::other)?
                }
                From::Memory(bytes) => Rope::from(Buffer::copy_of(within(bytes, self.at, READ_BYTES)).freeze().whole()),
            };
            if rope.is_empty() {
                return Ok(None);
            }
            self.at += rope.len() as u64;
            self.read = rope.slices().to_vec().into_iter();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_to_close_is_told_what_is_left_to_store() {
        let mut drafts = Drafts::default();
        drafts.opened(Ino(7), Led::default(), Some(1));
        drafts.opened(Ino(7), Led::default(), Some(2));
        let draft = drafts.get(Ino(7)).expect("it is open").clone();
        assert!(draft.now().is_none());
        draft.written(3, Timestamp(1));
        assert!(matches!(drafts.closed(Ino(7), Some(1), true), Closed::Shared));
        assert!(drafts.of_opener(Ino(7), Some(1)).is_none() && drafts.of_opener(Ino(7), Some(2)).is_some());
        assert!(matches!(drafts.closed(Ino(7), Some(1), true), Closed::Unstored(_)));
        assert!(matches!(drafts.closed(Ino(7), Some(1), true), Closed::Unstored(_)), "until it is stored, it is open");
        draft.stored();
        assert!(matches!(drafts.closed(Ino(7), Some(1), true), Closed::Last(_)));
        assert!(drafts.get(Ino(7)).is_none());
        assert!(matches!(drafts.closed(Ino(7), Some(1), true), Closed::Shared));
    }
}
