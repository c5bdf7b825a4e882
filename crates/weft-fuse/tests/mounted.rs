//! A real mount of a volume in memory, over each transport that this machine has.
//!
//! Needs root (or `fusermount3`) and `/dev/fuse`; says loudly what it could not test.

#[path = "mounted/fixture.rs"]
mod fixture;

#[path = "mounted/aio.rs"]
mod aio;
#[path = "mounted/computing.rs"]
mod computing;
#[path = "mounted/control.rs"]
mod control;
#[path = "mounted/files.rs"]
mod files;
#[path = "mounted/links.rs"]
mod links;
#[path = "mounted/links_at_once.rs"]
mod links_at_once;
#[path = "mounted/load.rs"]
mod load;
#[path = "mounted/locks.rs"]
mod locks;
#[path = "mounted/names.rs"]
mod names;
#[path = "mounted/nothing.rs"]
mod nothing;
#[path = "mounted/overlay.rs"]
mod overlay;
#[path = "mounted/privileges.rs"]
mod privileges;
#[path = "mounted/rights.rs"]
mod rights;
#[path = "mounted/sessions.rs"]
mod sessions;
#[path = "mounted/turns.rs"]
mod turns;
#[path = "mounted/writeback.rs"]
mod writeback;
