//! What a command reads of a volume that anybody may use meanwhile.

use super::transfer::Place;
use crate::daemons;
use crate::named::in_volume;
use anyhow::Result;
use std::ffi::OsStr;
use std::path::Path;
use weft_store::Moment;

/// Opens `VOLUME[:PATH]` to be read as of `at`; without it as it is now. A volume that a daemon of
/// this user has is read beside that, as of a commit that it makes now.
pub fn open(named: &OsStr, at: Option<&Moment>) -> Result<Place> {
    let volume = in_volume(named).map_or(named, |(volume, _)| volume);
    let is_used = at.is_none() && daemons::using(Path::new(volume))?.is_some();
    Place::open_at(named, if is_used { Some(&Moment::Now) } else { at })
}
