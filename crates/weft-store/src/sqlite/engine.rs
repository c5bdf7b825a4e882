//! The engine of volumes in files.

use super::layout::Layout;
use super::open::Volume;
use super::{check, commits, medium, open, scrub, unfinished, upgrade, waiting};
use crate::engine::{Begun, Engine, OpenOptions, Opened};
use crate::error::{Error, Result};
use crate::finding::{CheckOptions, Finding, Progress};
use crate::log::Loss;
use crate::row::{CommitRow, Timestamp};
use crate::store::{Header, VolumeOptions};
use crate::upgrade::{Upgrade, Upgraded};
use crate::waiting::Waiting;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Bytes in a block, as `stat` counts them.
const STAT_BLOCK_BYTES: u64 = 512;

/// The volume at a path.
pub(crate) struct VolumeFiles<'a>(pub(crate) &'a Path);

impl VolumeFiles<'_> {
    fn open_by(&self, options: &OpenOptions, open: fn(&Path, Loss) -> Result<Volume>) -> Result<Opened> {
        if options.disk_cache.is_some() {
            let what = "lies on a disk of this machine already; a disk cache is for volumes in PostgreSQL";
            return Err(Error::Unusable(format!("{} {what}", self.0.display())));
        }
        let Volume { store, layout, set_aside, given_up } = open(self.0, options.loss)?;
        Ok(Opened { store, layout: Some(layout), log: None, set_aside, given_up })
    }
}

impl Engine for VolumeFiles<'_> {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn create(&self, options: &VolumeOptions, owner: (u32, u32), time: Timestamp) -> Result<()> {
        open::create(self.0, options, owner, time)
    }

    fn begin(&self, options: &VolumeOptions, time: Timestamp) -> Result<Begun> {
        let had_place = self.0.symlink_metadata().is_ok();
        // From its first moment on it is no volume, but what the same stream goes on with.
        open::create_as(unfinished::UNFINISHED, self.0, options, (0, 0), time)?;
        let begun = open::open_unfinished(self.0).transpose().unwrap_or_else(|| Err(unfinished::gone(self.0)));
        let Volume { store, layout, .. } = begun.inspect_err(|_| drop(self.discard(had_place)))?;
        let (layout, set_aside, given_up) = (Some(layout), Vec::new(), Vec::new());
        Ok(Begun { opened: Opened { store, layout, log: None, set_aside, given_up }, had_place })
    }

    fn begin_again(&self) -> Result<Option<Opened>> {
        let volume = open::open_unfinished(self.0)?;
        Ok(volume.map(|Volume { store, layout, set_aside, given_up }| Opened {
            store,
            layout: Some(layout),
            log: None,
            set_aside,
            given_up,
        }))
    }

    fn finish(&self) -> Result<()> {
        unfinished::finish(self.0)
    }

    fn discard(&self, had_place: bool) -> Result<()> {
        open::remove(&unfinished::layout(self.0), !had_place);
        Ok(())
    }

    fn open(&self, options: OpenOptions) -> Result<Opened> {
        self.open_by(&options, open::open_with)
    }

    fn open_to_read(&self, options: OpenOptions) -> Result<Opened> {
        self.open_by(&options, open::open_to_read)
    }

    fn open_beside(&self, options: OpenOptions) -> Result<Opened> {
        self.open_by(&options, |path, _| open::open_beside(path))
    }

    fn note(&self, is_checked: bool) -> Option<String> {
        medium::note(self.0, is_checked)
    }

    fn header(&self) -> Result<Header> {
        open::header(self.0)
    }

    fn commits(&self) -> Result<Vec<CommitRow>> {
        commits::commits(self.0)
    }

    fn waiting(&self) -> Result<Waiting> {
        waiting::waiting(self.0)
    }

    fn check(&self, options: CheckOptions, progress: &mut dyn FnMut(Progress)) -> Result<Vec<Finding>> {
        check::check(self.0, options, progress)
    }

    fn scrub(&self, progress: &mut dyn FnMut(Progress)) -> Result<Vec<Finding>> {
        scrub::scrub(self.0, progress)
    }

    fn upgrade(&self, mode: Upgrade, progress: &mut dyn FnMut(Progress)) -> Result<Upgraded> {
        upgrade::upgrade(self.0, mode, progress)
    }

    fn size(&self) -> Result<Option<u64>> {
        let (layout, _rights) = Layout::enter(self.0)?;
        let mut files = vec![layout.database.clone(), layout.log.clone()];
        if let Some(segments) = &layout.segments
            && let Ok(entries) = std::fs::read_dir(segments)
        {
            files.extend(entries.flatten().map(|entry| entry.path()));
        }
        let taken = files.iter().filter_map(|file| file.metadata().ok());
        Ok(Some(taken.map(|metadata| metadata.blocks() * STAT_BLOCK_BYTES).sum()))
    }
}
