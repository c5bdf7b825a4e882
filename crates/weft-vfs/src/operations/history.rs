//! The past that users have kept: by a rule, and as snapshots.

use crate::message::rfc3339;
use crate::volume::Vfs;
use weft_store::history::Rule;
use weft_store::{CommitNo, HistoryChange, HistoryFor, Moment, Pin, PinKind, Timestamp};
use weft_tree::{Error, Result};

impl Vfs {
    /// Keeps history by `rule` from now on, or by that rule instead of another one; for `readers`,
    /// or for those who may read it already. Returns the commit that says so. Refused if it is no
    /// rule; other errors as of [`Vfs::change_history`].
    pub fn keep_history(&self, rule: &str, readers: Option<HistoryFor>) -> Result<CommitNo> {
        let rule = rule.parse::<Rule>().map_err(|why| refused(why.to_string()))?;
        let changed = self.change_history(|_, _| {
            let before = self.store.history()?.map(|history| history.readers);
            let readers = readers.or(before).unwrap_or_default();
            Ok(vec![HistoryChange::Keep(rule.to_string(), readers)])
        })?;
        Ok(changed.last())
    }

    /// Keeps no history any more, and removes what there is. Returns the commit that says so, or
    /// the last one if no history was kept. Refused while there are snapshots.
    pub fn end_history(&self) -> Result<CommitNo> {
        let changed = self.change_history(|_, _| {
            let end = self.store.history()?.map(|_| HistoryChange::End);
            Ok(end.into_iter().collect())
        })?;
        Ok(changed.last())
    }

    /// Keeps the volume as it is now, as the snapshot `name`, which nobody removes before
    /// `held_until`. Returns its commit. Refused if there is one of that name, if the name could be
    /// taken for a time or a path, if that time has passed, and where no history is kept.
    pub fn create_snapshot(&self, name: &str, held_until: Option<Timestamp>) -> Result<CommitNo> {
        refuse_name(name)?;
        held_until.map_or(Ok(()), |until| self.refuse_passed(until))?;
        let changed = self.change_history(|header, made| {
            if self.find_snapshot(name)?.is_some() {
                return Err(refused(format!("there is a snapshot '{name}' already")));
            }
            let (kind, name) = (PinKind::Snapshot, name.as_bytes().to_vec());
            Ok(vec![HistoryChange::Pin(Pin { commit: header.commit, kind, name, made, held_until })])
        })?;
        Ok(changed.tree)
    }

    /// Removes the snapshot `name`. Returns the commit that does. Refused while it is held.
    pub fn delete_snapshot(&self, name: &str) -> Result<CommitNo> {
        let changed = self.change_history(|_, _| {
            let Pin { commit, kind, name, .. } = self.snapshot(name)?;
            Ok(vec![HistoryChange::Unpin(commit, kind, name)])
        })?;
        Ok(changed.last())
    }

    /// Gives the snapshot `from`, with its hold, the name `to`. Returns the commit that does.
    /// Refused if there is one of that name, or if it could be taken for a time or a path.
    pub fn rename_snapshot(&self, from: &str, to: &str) -> Result<CommitNo> {
        refuse_name(to)?;
        let changed = self.change_history(|_, _| {
            let Pin { commit, name, .. } = self.snapshot(from)?;
            if self.find_snapshot(to)?.is_some() {
                return Err(refused(format!("there is a snapshot '{to}' already")));
            }
            Ok(vec![HistoryChange::Rename(commit, name, to.as_bytes().to_vec())])
        })?;
        Ok(changed.last())
    }

    /// Holds the snapshot `name`, which nobody removes before `until`. Returns the commit that says
    /// so. Refused if it is held for longer, or that time has passed.
    pub fn hold_snapshot(&self, name: &str, until: Timestamp) -> Result<CommitNo> {
        self.refuse_passed(until)?;
        let changed = self.change_history(|_, _| {
            let pin = self.snapshot(name)?;
            Ok(vec![HistoryChange::Pin(Pin { held_until: Some(until), ..pin })])
        })?;
        Ok(changed.last())
    }

    /// Refuses a hold that would hold nothing.
    fn refuse_passed(&self, until: Timestamp) -> Result<()> {
        if until > self.now() {
            return Ok(());
        }
        Err(refused(format!("{} has passed, and nothing can be held until then", rfc3339(until))))
    }

    fn snapshot(&self, name: &str) -> Result<Pin> {
        self.find_snapshot(name)?.ok_or_else(|| refused(format!("there is no snapshot '{name}'")))
    }

    fn find_snapshot(&self, name: &str) -> Result<Option<Pin>> {
        let is_it = |pin: &Pin| pin.kind == PinKind::Snapshot && pin.name == name.as_bytes();
        Ok(self.store.pins()?.into_iter().find(is_it))
    }
}

/// Refuses a name by which a snapshot could not be found again.
fn refuse_name(name: &str) -> Result<()> {
    Moment::refuse_snapshot_name(name)
        .map_err(|why| refused(format!("'{name}' cannot be the name of a snapshot: it {why}")))
}

fn refused(why: String) -> Error {
    weft_store::Error::Unusable(why).into()
}
