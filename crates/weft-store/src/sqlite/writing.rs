//! Work that a transaction has done while it goes on: writing blocks, syncing them.

use super::segments::Segments;
use crate::batch::NewBlock;
use crate::error::{Error, Result};
use crate::row::Place;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

/// Calls' blocks that wait while those of another are being written: the disk never waits for the
/// committing thread to notice that it has finished.
const CALLS_WAITING: usize = 1;

/// Blocks and their places.
type Placed = (Vec<NewBlock>, Vec<Place>);

/// Writes blocks into segments, in their order.
pub(super) struct Writing {
    segments: Arc<Segments>,
    way: Option<SyncSender<Placed>>,
    work: Work,
}

impl Writing {
    pub(super) fn start(segments: Arc<Segments>) -> Writing {
        let (way, blocks) = sync_channel(CALLS_WAITING);
        let into = segments.clone();
        let work = Work::start_apart(move || append_all(&into, &blocks));
        // Without a thread each call writes its blocks itself.
        let way = work.is_some().then_some(way);
        Writing { segments, way, work: work.unwrap_or(Work::Done(Ok(()))) }
    }

    /// Has `blocks` written to `places`. Waits while those of too many calls wait. Once it has
    /// failed, what it was given is not written.
    pub(super) fn append(&mut self, blocks: Vec<NewBlock>, places: Vec<Place>) -> Result<()> {
        let Some(way) = &self.way else { return self.segments.append(&blocks, &places) };
        if way.send((blocks, places)).is_ok() {
            return Ok(());
        }
        self.way = None;
        let lost = Work::Done(Err(Error::Bug("blocks could not be written before".into())));
        std::mem::replace(&mut self.work, lost).finish()
    }

    /// Waits until all is written.
    pub(super) fn finish(self) -> Result<()> {
        drop(self.way);
        self.work.finish()
    }
}

fn append_all(segments: &Segments, blocks: &Receiver<Placed>) -> Result<()> {
    blocks.iter().try_for_each(|(blocks, places)| segments.append(&blocks, &places))
}

/// Work done meanwhile, on a thread of its own if one can be had.
pub(super) enum Work {
    Running(JoinHandle<Result<()>>),
    Done(Result<()>),
}

impl Work {
    /// Starts `work` on a thread of its own; none if that cannot be had.
    fn start_apart(work: impl FnOnce() -> Result<()> + Send + 'static) -> Option<Work> {
        let started = thread::Builder::new().name("weft-write".into()).spawn(work);
        started.ok().map(Work::Running)
    }

    pub(super) fn start(work: impl FnOnce() -> Result<()> + Send + 'static) -> Work {
        // Shared, so that it is not lost with a thread that cannot be started.
        let shared = Arc::new(Mutex::new(Some(work)));
        let take = |work: &Mutex<Option<_>>| work.lock().take();
        let own = shared.clone();
        let started = thread::Builder::new().name("weft-write".into()).spawn(move || take(&own).map_or(Ok(()), call));
        match started {
            Ok(thread) => Work::Running(thread),
            Err(_) => Work::Done(take(&shared).map_or(Ok(()), call)),
        }
    }

    /// Waits until it is done.
    pub(super) fn finish(self) -> Result<()> {
        match self {
            Work::Running(thread) => thread.join().expect("writing does not panic"),
            Work::Done(result) => result,
        }
    }
}

fn call(work: impl FnOnce() -> Result<()>) -> Result<()> {
    work()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{BlockId, Ino};
    use crate::sqlite::segments::Tail;
    use crate::store::ReadMode;
    use weft_block::Rope;

    fn block(number: usize) -> NewBlock {
        let bytes = vec![u8::try_from(number + 1).expect("few"); 64 << 10];
        NewBlock::new(BlockId(number as u64 + 1), Ino(16), Rope::from(bytes), 0)
    }

    #[test]
    fn all_calls_blocks_are_where_they_belong_when_it_has_finished() {
        let directory = tempfile::tempdir().expect("a directory");
        let segments = Arc::new(Segments::new(directory.path().to_path_buf()));
        let mut writing = Writing::start(segments.clone());
        let (mut tail, mut all) = (Tail { segment: 1, length: 0 }, Vec::new());
        for call in 0..8 {
            let blocks = (0..20).map(|i| block(20 * call + i)).collect::<Vec<_>>();
            let (places, after) = Segments::assign(tail, &blocks);
            tail = after;
            all.extend(places.iter().copied());
            writing.append(blocks, places).expect("written, or waiting to be");
        }
        writing.finish().expect("written");
        for (number, place) in all.into_iter().enumerate() {
            let Place::Segment { segment, offset } = place else { panic!("{place:?}") };
            let read = segments.read(segment, offset, 64 << 10, ReadMode::Blocking).expect("read").expect("there");
            assert_eq!(read[..], block(number).bytes.to_vec(), "block {number}");
        }
    }

    #[test]
    fn a_write_that_failed_is_told_once_more_at_the_end() {
        let directory = tempfile::tempdir().expect("a directory");
        let segments = Arc::new(Segments::new(directory.path().join("missing")));
        let mut writing = Writing::start(segments);
        let append = |writing: &mut Writing| {
            let blocks = vec![block(0)];
            let (places, _) = Segments::assign(Tail { segment: 1, length: 0 }, &blocks);
            writing.append(blocks, places)
        };
        while append(&mut writing).is_ok() {}
        assert!(writing.finish().is_err());
    }
}
