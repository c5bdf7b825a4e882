//! The intent log when a volume opens and closes: what it has beyond the last commit is applied
//! again, then the mount begins an epoch of its own, which ends when all is in the database.

use super::Vfs;
use super::unapplied::{Purpose, Replay, UnappliedList, decoded};
use std::sync::atomic::Ordering;
use weft_store::log::{Behind, Loss, Record, epoch_without_log, needs_log};
use weft_store::{Durability, OpNo};
use weft_tree::{Error, ErrorKind, Miss, Mutation, Result, Stop, journal};

/// Position of a log record relative to the operations before it.
#[derive(PartialEq, Eq)]
enum Followed {
    Directly,
    AfterGap,
}

impl Vfs {
    /// The end that what is lost is to come to.
    pub(super) fn accepted_loss(&self) -> Loss {
        self.log.as_ref().map_or(Loss::Refuse, |log| log.lock().file.loss())
    }

    /// Applies the operations that follow the last commit, as far as they follow without a gap.
    /// Gives those that cannot be applied, if that is not an error.
    pub(super) fn replay(&self, purpose: Purpose) -> Result<UnappliedList> {
        let header = self.store.header()?;
        let Some(log) = &self.log else {
            let is_missed = needs_log(header.counters.epoch);
            return if is_missed { Err(no_log()) } else { Ok(UnappliedList::default()) };
        };
        let lost = log.lock().file.check(&header)?;
        if let Some(lost) = lost {
            tracing::warn!("going on without what is lost, as asked for: {}", lost.given_up());
        }
        let mut replay = Replay::new(purpose);
        let carried = log.lock().file.carried(header.counters.epoch)?;
        carried.iter().try_for_each(|record| self.replay_carried(record, &mut replay))?;
        let mut after = OpNo(0);
        loop {
            let (records, lost) = {
                let log = log.lock();
                (log.file.records(header.counters.epoch, after)?, log.file.take_given_up())
            };
            if let Some(lost) = lost {
                tracing::warn!("going on without what is lost, as asked for: {}", lost.given_up());
                self.set_log_aside()?;
            }
            let Some(last) = records.last() else { return replay.finish() };
            after = last.first;
            for record in &records {
                match self.replay_record(record, &mut replay) {
                    Ok(Followed::Directly) => {}
                    Ok(Followed::AfterGap) => return replay.finish(),
                    // What comes behind cannot be told without a commit.
                    Err(error) if error.kind() == ErrorKind::WouldBlock && replay.must_not_commit() => {
                        return replay.finish();
                    }
                    Err(error) => return Err(error),
                }
            }
        }
    }

    fn replay_record(&self, record: &Record, replay: &mut Replay) -> Result<Followed> {
        let mut op = record.first;
        for operation in journal::split(&record.bytes) {
            let next = self.state.lock().tree.counters.op.next();
            if op > next {
                return Ok(Followed::AfterGap);
            }
            if op == next {
                self.replay_operation(op, operation, replay)?;
            }
            op = op.next();
        }
        Ok(Followed::Directly)
    }

    /// Applies `bytes` as operation `op`, or passes over it if it cannot be applied.
    fn replay_operation(&self, op: OpNo, bytes: &[u8], replay: &mut Replay) -> Result<()> {
        let mutation = match decoded(bytes) {
            Ok(mutation) => mutation,
            Err(error) => return self.pass(op, None, error, replay),
        };
        let must_not_commit = replay.must_not_commit();
        let performed = self.run(|state| match state.perform(&mutation) {
            Err(Stop::Miss(Miss::Room(_) | Miss::Commit | Miss::Space)) if must_not_commit => {
                Err(ErrorKind::WouldBlock.into())
            }
            performed => performed,
        });
        if performed.is_ok() {
            self.recovered.fetch_add(1, Ordering::Relaxed);
        }
        performed.or_else(|error| self.pass(op, Some(&mutation), error, replay))
    }

    /// Goes on after operation `op`, which failed with `error` and has changed nothing.
    fn pass(&self, op: OpNo, operation: Option<&Mutation<'_>>, error: Error, replay: &mut Replay) -> Result<()> {
        replay.pass(self, op, operation, error)?;
        // It counts as made: those behind it have the numbers that follow.
        self.state.lock().tree.counters.op = op;
        Ok(())
    }

    /// Puts back over damaged blocks what the last commit could not store.
    fn replay_carried(&self, record: &Record, replay: &mut Replay) -> Result<()> {
        for operation in journal::split(&record.bytes) {
            let mutation = decoded(operation);
            let applied = match &mutation {
                Ok(Mutation::Write { ino, offset, data, .. }) => {
                    self.run(|state| state.tree.apply_carried(*ino, *offset, data))
                }
                Ok(_) | Err(_) => Err(ErrorKind::Corrupt.into()),
            };
            if let Err(error) = applied {
                replay.pass(self, record.first, mutation.as_ref().ok(), error)?;
            }
        }
        Ok(())
    }

    /// Makes the first commit of the mount's own epoch. Only once it is durable may the log be
    /// written over.
    pub(super) fn begin_epoch(&self) -> Result<()> {
        let last = self.store.header()?.commit;
        let (before, mut epoch, op) = {
            let log = self.log.as_ref().map(|log| log.lock());
            let mut state = self.state.lock();
            let before = state.tree.counters.epoch;
            let epoch = log.as_ref().map_or_else(|| epoch_without_log(before), |log| log.file.next_epoch(before));
            state.tree.counters.epoch = epoch;
            (before, epoch, state.tree.counters.op)
        };
        if let Some(log) = &self.log {
            let mut log = log.lock();
            match log.file.prepare(epoch, last) {
                Err(error) if error.kind() == weft_store::ErrorKind::Full && log.file.go_without() => {
                    tracing::warn!("{error}; until the next mount each fsync is a commit");
                    epoch = epoch_without_log(before);
                    self.state.lock().tree.counters.epoch = epoch;
                }
                prepared => prepared?,
            }
        }
        let committed = self.commit_once(&mut self.committing.lock(), Durability::Durable);
        if let Err(error) = committed {
            if error.kind() == ErrorKind::NoSpace && self.options.background {
                // Programs can read, and remove things. The committer tries again, and what the log
                // holds counts until it has succeeded.
                return Ok(());
            }
            // Bytes over a damaged block that the log keeps are no reason not to open the rest.
            let is_kept = error.kind() == ErrorKind::Corrupt && self.state.lock().durable >= op;
            if !is_kept || self.log.is_none() || self.store.header()?.counters.epoch != epoch {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Makes a last commit, with which the volume needs no log to be opened again. Nothing is to be
    /// committed any more.
    pub(super) fn end_epoch(&self) -> Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        let mut turn = self.committing.lock();
        {
            let mut log = log.lock();
            if !log.is_begun {
                return Ok(());
            }
            let mut state = self.state.lock();
            let Some(epoch) = log.file.leave(state.tree.counters.epoch, true) else { return Ok(()) };
            state.tree.counters.epoch = epoch;
        }
        match self.commit_once(&mut turn, Durability::Durable) {
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                tracing::warn!(
                    "all is committed, but the volume needs its intent log to be opened again: keep it with the volume"
                );
                return Ok(());
            }
            committed => committed?,
        }
        let last = self.store.header()?.commit;
        let behind = self.store.cut().unwrap_or_else(|error| {
            self.report("cannot cut off what belongs to no commit; the next mount does", &error.into());
            Behind::Unknown
        });
        log.lock().file.close(last, behind)?;
        Ok(())
    }
}

/// A volume that needs a log is opened without one.
fn no_log() -> Error {
    weft_store::Error::Lost("the volume was not unmounted cleanly, and its intent log is missing".into()).into()
}
