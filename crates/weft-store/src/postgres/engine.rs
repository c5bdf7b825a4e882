//! The engine of volumes in PostgreSQL.

use super::address::Address;
use super::{PostgresStore, check, open, unfinished, upgrade, waiting};
use crate::engine::{Begun, Engine, OpenOptions, Opened};
use crate::error::Result;
use crate::finding::{CheckOptions, Finding, Outcome, Progress, Repair};
use crate::row::{CommitRow, Timestamp};
use crate::store::{Header, VolumeOptions};
use crate::upgrade::{Upgrade, Upgraded};
use crate::waiting::Waiting;
use std::sync::Arc;

/// The volume in the schema of an address.
pub(crate) struct VolumeSchema<'a>(pub(crate) &'a Address);

impl Engine for VolumeSchema<'_> {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn create(&self, options: &VolumeOptions, owner: (u32, u32), time: Timestamp) -> Result<()> {
        open::create(self.0, options, owner, time)
    }

    fn begin(&self, options: &VolumeOptions, time: Timestamp) -> Result<Begun> {
        let had_place = unfinished::has_schema(self.0)?;
        // From its first moment on nobody else opens it, so that it is ours to remove.
        open::create_as(unfinished::UNFINISHED, self.0, options, (0, 0), time)?;
        let store = open::open_unfinished(self.0, &hold()).inspect_err(|_| drop(self.discard(had_place)))?;
        Ok(Begun { opened: opened(store), had_place })
    }

    fn begin_again(&self) -> Result<Option<Opened>> {
        if !unfinished::is_left(self.0)? {
            return Ok(None);
        }
        open::open_unfinished(self.0, &hold()).map(opened).map(Some)
    }

    fn finish(&self) -> Result<()> {
        unfinished::finish(self.0)
    }

    fn discard(&self, had_place: bool) -> Result<()> {
        unfinished::discard(self.0, had_place)
    }

    fn open(&self, options: OpenOptions) -> Result<Opened> {
        Ok(opened(open::open(self.0, options)?))
    }

    fn open_beside(&self, options: OpenOptions) -> Result<Opened> {
        let store = open::open_beside(self.0, &options)?;
        Ok(Opened { store, layout: None, log: None, set_aside: Vec::new(), given_up: Vec::new() })
    }

    fn header(&self) -> Result<Header> {
        open::header(self.0)
    }

    fn commits(&self) -> Result<Vec<CommitRow>> {
        open::commits(self.0)
    }

    fn waiting(&self) -> Result<Waiting> {
        waiting::waiting(self.0)
    }

    fn check(&self, options: CheckOptions, progress: &mut dyn FnMut(Progress)) -> Result<Vec<Finding>> {
        check::check(self.0, options, progress)
    }

    fn scrub(&self, progress: &mut dyn FnMut(Progress)) -> Result<Vec<Finding>> {
        let options = CheckOptions { repair: Repair::No, read_data: true };
        let damaged = |finding: &Finding| finding.outcome == Outcome::Damaged;
        Ok(self.check(options, progress)?.into_iter().filter(damaged).collect())
    }

    fn upgrade(&self, mode: Upgrade, progress: &mut dyn FnMut(Progress)) -> Result<Upgraded> {
        upgrade::upgrade(self.0, mode, progress)
    }

    fn size(&self) -> Result<Option<u64>> {
        open::size(self.0)
    }
}

/// The way in which a volume is held that is being received.
fn hold() -> OpenOptions {
    OpenOptions { purpose: "receiving a stream".into(), ..OpenOptions::default() }
}

/// A volume that is open, with its intent log.
fn opened(store: Arc<PostgresStore>) -> Opened {
    let log = Some(Box::new(store.intents()) as _);
    Opened { store, layout: None, log, set_aside: Vec::new(), given_up: Vec::new() }
}
