//! Options of the links of a mount: whose work, and with which bounds.

use std::path::PathBuf;
use weft_transform::Bounds;

/// Options of the links of a mount; nothing here changes what the volume is.
#[derive(Clone, Debug)]
pub struct LinkOptions {
    /// Most bytes kept of what links give; 0: nothing is kept.
    pub memo_bytes_max: u64,
    /// Bounds on what the networks of links keep while they run.
    pub networks: Bounds,
    /// Users whose links show anything, and who may push networks onto their files.
    pub owners: LinkOwners,
    /// Users whose links may run code of their own ([`weft_transform::Network::is_exported`]).
    pub exported: Exported,
    /// Keys that links may use, if any.
    pub keys: Option<Keys>,
}

impl Default for LinkOptions {
    fn default() -> LinkOptions {
        LinkOptions {
            memo_bytes_max: 4 << 30,
            networks: Bounds::default(),
            owners: LinkOwners::Everybody,
            exported: Exported::Root,
            keys: None,
        }
    }
}

impl LinkOptions {
    /// True if links of user `uid` may use keys.
    pub(crate) fn gives_keys(&self, uid: u32) -> bool {
        uid == 0 || self.keys.as_ref().is_some_and(|keys| keys.uid == uid)
    }
}

/// Keys that lie outside of the volume, each in a file.
#[derive(Clone, Debug)]
pub struct Keys {
    /// The directory.
    pub directory: PathBuf,
    /// Owner: links of that user and of the super-user may use them.
    pub uid: u32,
}

/// Users whose links may run code that their maker brings. The code runs without
/// privileges and with bounds, but it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exported {
    /// Nobody's.
    Nobody,
    /// Those of the super-user.
    Root,
    /// Everybody's.
    Everybody,
}

impl Exported {
    /// True if links of user `uid` are among them.
    pub(crate) fn allows(self, uid: u32) -> bool {
        match self {
            Exported::Nobody => false,
            Exported::Root => uid == 0,
            Exported::Everybody => true,
        }
    }
}

/// Users whose links work. The kernel locks an inode while it asks for its length, so that a link
/// that takes long can hold up those who use its directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkOwners {
    /// Nobody.
    Nobody,
    /// The super-user, and the user of this process.
    Own,
    /// Everybody.
    Everybody,
}

impl LinkOwners {
    /// True if user `uid` is among them.
    pub(crate) fn allows(self, uid: u32) -> bool {
        match self {
            LinkOwners::Nobody => false,
            LinkOwners::Own => uid == 0 || uid == rustix::process::geteuid().as_raw(),
            LinkOwners::Everybody => true,
        }
    }
}
