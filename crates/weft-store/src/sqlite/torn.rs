//! Tells a frame that a power cut has torn from one that has rotted, where it lies over an older
//! one in the write-ahead log.
//!
//! The frame alone cannot tell: the sector that is wrong may be the one that the older frame had.
//! What fsyncs relied on can. Before one is answered because a commit has what it asks for, the
//! intent log names that commit, durably; and each of its records names the durable commit that it
//! follows. So if the database, as SQLite sees it with the frames before this one, has all commits
//! that its intent log names, no fsync relied on the frame. If it has not, it is refused in any
//! case.

use super::connection::{AtClose, at_close, connect_beside};
use super::layout::Layout;
use super::open::read_header;
use crate::error::Result;
use crate::log::{misfit, needs_log};
use crate::store::Header;

/// True if no fsync was answered by what lies behind the frames that SQLite takes. A volume that
/// needs no intent log has none that could tell. No file of the database may be open: closing it
/// drops the locks on it.
pub(super) fn is_torn(layout: &Layout) -> Result<bool> {
    // What cannot be read is not told from rot.
    let Ok(header) = header(layout) else { return Ok(false) };
    Ok(needs_log(header.counters.epoch) && misfit(&layout.log, &header)?.is_none())
}

/// Reads the header of the volume. Changes nothing of it.
fn header(layout: &Layout) -> Result<Header> {
    let connection = connect_beside(&layout.database)?;
    at_close(&connection, AtClose::Leave)?;
    read_header(&connection)
}
