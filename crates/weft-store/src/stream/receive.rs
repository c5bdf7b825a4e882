//! Receiving: records become commits of a volume.

use super::bounds::{refuse_later, refuse_part, shorten_holds};
use super::codec::{Position, RecordReader};
use super::frame::FrameReader;
use super::increment::{Increment, refuse_base};
use super::record::{Part, Record, StreamCommit, StreamCounts, StreamVolume};
use super::whole::Whole;
use super::{reached, received, wrong};
use crate::error::{Error, ErrorKind, Result};
use crate::finding::Progress;
use crate::past::HistoryFor;
use crate::row::Timestamp;
use crate::store::Store;
use std::io::Read;

/// A stream that is being received.
pub struct Incoming<R> {
    records: RecordReader<R>,
    volume: StreamVolume,
    /// The part that comes next.
    next: Option<Part>,
}

/// Choices of who receives.
#[derive(Clone, Debug, Default)]
pub struct ReceiveOptions {
    /// The history that a new volume keeps.
    pub history: ReceivedHistory,
    /// The time. Commits that are later by more than a day are refused.
    pub now: Timestamp,
}

/// The history that a new volume keeps from now on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ReceivedHistory {
    /// That by the rule of the volume that was sent.
    #[default]
    AsSent,
    /// That by this rule.
    By(String),
    /// None.
    Off,
}

/// A stream that was received.
#[derive(Clone, Debug)]
pub struct Received {
    /// The commit whose changes were received, if not a whole tree was.
    pub from: Option<StreamCommit>,
    /// The commit that was received.
    pub to: StreamCommit,
    /// Parts of the stream.
    pub parts: u64,
    /// Snapshots that it brought.
    pub snapshots: u64,
    /// Counts of all parts.
    pub counts: StreamCounts,
    /// Bytes of the stream.
    pub bytes: u64,
    /// The rule by which the volume keeps history.
    pub history: Option<String>,
}

/// True if `store`, a new volume that is not finished, has received something of a stream, which
/// goes on where it ended when it is received again.
///
/// # Errors
/// Those of the store.
pub fn is_begun(store: &dyn Store) -> Result<bool> {
    Ok(reached::is_kept(store)? || received::last(store)?.is_some())
}

/// A part on its way.
enum Taking<'a> {
    Whole(Box<Whole<'a>>),
    Increment(Box<Increment<'a>>),
}

impl<R: Read> Incoming<R> {
    /// Reads the beginning of a stream.
    ///
    /// # Errors
    /// `Unusable` if it is no stream that this program reads; [`Error::Stream`] if it is damaged;
    /// those of the input.
    pub fn open(input: R) -> Result<Incoming<R>> {
        let mut records = RecordReader::new(FrameReader::new(input)?);
        let Record::Volume(volume) = records.next()? else { return Err(wrong("it does not begin with a volume")) };
        let Record::Part(part) = records.next()? else { return Err(wrong("nothing of the volume is in it")) };
        Ok(Incoming { records, volume, next: Some(part) })
    }

    /// The volume that it is of.
    pub fn volume(&self) -> &StreamVolume {
        &self.volume
    }

    /// The commit that it begins from; none if it brings a whole tree, for a new volume.
    pub fn from(&self) -> Option<StreamCommit> {
        self.next.as_ref().and_then(|part| part.from)
    }

    /// Receives all into `store`: a volume that is new, if the stream brings a whole tree, and is
    /// of no use if this fails, but to receive the same stream into ([`is_begun`]). One in use is
    /// as a whole part of the stream left it, and goes on with the next one when the stream is
    /// received again.
    ///
    /// # Errors
    /// `Unusable` if no part of a stream of changes begins from the last commit of `store`;
    /// [`Error::Stream`] if it is damaged, ends early, or brings no tree; those of the store.
    pub fn receive(
        mut self,
        store: &dyn Store,
        options: &ReceiveOptions,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Received> {
        self.refuse_other_options(store)?;
        refuse_later(self.volume.created, options.now)?;
        let mut to = self.skip_received(store, progress)?;
        let from = self.from();
        let (mut parts, mut snapshots, mut counts) = (0, 0, StreamCounts::default());
        while let Some(mut part) = self.next.take() {
            refuse_part(&part, store, options.now)?;
            shorten_holds(&mut part, options.now);
            if to.is_some() && to != part.from {
                return Err(wrong("a part does not begin where the one before ends"));
            }
            (to, parts, snapshots) = (Some(part.to), parts + 1, snapshots + part.snapshots.len() as u64);
            counts.add(&self.part(store, part, options, progress)?);
        }
        let to = to.ok_or_else(|| wrong("nothing of the volume is in it"))?;
        let history = store.history()?.map(|history| history.rule);
        Ok(Received { from, to, parts, snapshots, counts, bytes: self.records.read(), history })
    }

    /// Passes over parts that do not begin from the last commit of `store`: it may have received
    /// them before. Returns the last commit of them that a new volume has, which is not finished.
    fn skip_received(&mut self, store: &dyn Store, progress: &mut dyn FnMut(Progress)) -> Result<Option<StreamCommit>> {
        let last = if reached::is_kept(store)? { None } else { received::last(store)? };
        let last = last.filter(|(uuid, _)| *uuid == self.volume.uuid);
        let (mut unfit, mut to) = (None, None);
        while let Some(part) = &self.next {
            let is_received = last.is_some_and(|(_, last)| part.to.number <= last);
            match part.from {
                // A volume in use is not asked to be a whole one.
                None if !is_received => return Ok(None),
                None => to = Some(part.to),
                Some(_) if to.is_some() && is_received => to = Some(part.to),
                Some(_) => match refuse_base(store, &self.volume, part) {
                    Ok(()) => return Ok(to),
                    Err(error) if error.kind() != ErrorKind::Unusable => return Err(error),
                    Err(error) => unfit = Some(error),
                },
            }
            let total = part.bytes_about;
            self.next = None;
            self.records(total, &mut |_, _| Ok(()), progress)?;
            self.after_part()?;
        }
        unfit.map_or(Ok(to), Err)
    }

    /// Has `take` look at the records of a part, of about `total` bytes. Returns their counts.
    fn records(
        &mut self,
        total: u64,
        take: &mut dyn FnMut(Record, Position) -> Result<()>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<StreamCounts> {
        self.records.begin_part();
        loop {
            let record = self.records.next()?;
            let done = self.records.counts.bytes.min(total);
            progress(Progress { step: "receiving", done, total });
            match record {
                Record::PartEnd(counts) if counts == self.records.counts => return Ok(counts),
                record => take(record, self.records.position())?,
            }
        }
    }

    /// Receives a part. It is committed once all of it is known to be whole.
    fn part(
        &mut self,
        store: &dyn Store,
        part: Part,
        options: &ReceiveOptions,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<StreamCounts> {
        let total = part.bytes_about;
        let has_snapshots = !part.snapshots.is_empty();
        let mut taking = match part.from {
            None => Taking::Whole(Box::new(Whole::new(store, &self.volume, part)?)),
            Some(_) => Taking::Increment(Box::new(Increment::new(store, &self.volume, part)?)),
        };
        let mut take = |record, position| match &mut taking {
            Taking::Whole(whole) => whole.take(record, position),
            Taking::Increment(increment) => increment.take(record),
        };
        let counts = self.records(total, &mut take, progress)?;
        self.after_part()?;
        match taking {
            Taking::Whole(whole) => whole.finish(self.history(options, has_snapshots)?)?,
            Taking::Increment(increment) => increment.finish()?,
        }
        Ok(counts)
    }

    /// Reads what follows a part.
    fn after_part(&mut self) -> Result<()> {
        match self.records.next()? {
            Record::End => self.records.end(),
            Record::Part(part) => {
                self.next = Some(part);
                Ok(())
            }
            _ => Err(wrong("a record stands where it cannot stand")),
        }
    }

    /// Returns the history that a new volume keeps.
    fn history(&self, options: &ReceiveOptions, has_snapshots: bool) -> Result<Option<(String, HistoryFor)>> {
        let sent = self.volume.history.clone();
        let readers = sent.as_ref().map(|(_, readers)| *readers).unwrap_or_default();
        match &options.history {
            ReceivedHistory::AsSent => Ok(sent),
            ReceivedHistory::By(rule) => Ok(Some((rule.clone(), readers))),
            ReceivedHistory::Off if has_snapshots || self.next.is_some() => {
                let why = "the stream brings snapshots, which a volume has only while it keeps history";
                Err(Error::Unusable(why.into()))
            }
            ReceivedHistory::Off => Ok(None),
        }
    }

    /// Refuses a volume that cannot hold what the stream brings.
    fn refuse_other_options(&self, store: &dyn Store) -> Result<()> {
        let header = store.header()?;
        let (here, there) = (header.options.block_size, self.volume.options.block_size);
        if here != there {
            return Err(Error::Unusable(format!(
                "the stream has blocks of {there} bytes, and the volume has blocks of {here} bytes"
            )));
        }
        Ok(())
    }
}
