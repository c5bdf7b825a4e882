//! Views: links that look like directories. What they show of a directory or an archive is looked
//! at anew by each operation, and has inodes that nobody stores.

pub(crate) mod entry;
pub(crate) mod listing;
pub(crate) mod members;
pub(crate) mod shown;
pub(crate) mod virtual_inodes;
