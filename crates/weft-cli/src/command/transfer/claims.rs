//! Rights that a volume claims for its files. A user who can write its rows can claim that any file
//! is root's, and runs with root's rights. Root's export grants that to root's own volumes alone.

use super::{Transfer, What};
use rustix::process::geteuid;
use std::path::Path;
use weft_store::Location;
use weft_store::sqlite::{Layout, replaceable};
use weft_vfs::{Attributes, Kind};

/// Set-user-id and set-group-id.
const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;

/// Owner of the volume that root exports from, if it is known: another user.
#[derive(Clone, Copy, Debug)]
pub struct Claims(Option<u32>);

impl Claims {
    /// Returns the claims of the volume at `location`; none if root alone may have written it, or
    /// this is not root.
    pub fn of(location: &Location) -> Option<Claims> {
        if !geteuid().is_root() {
            return None;
        }
        // The users who may write to a remote database are unknown here.
        let Some(path) = location.path() else { return Some(Claims(None)) };
        let owner = Layout::find(path).ok().and_then(|layout| Some(layout.owner()?.number()));
        (owner.is_some() || replaceable(path).is_some()).then_some(Claims(owner))
    }

    /// Returns the permissions of `permissions` that a file of `attributes` gets: running it gives
    /// no more rights than those of the owner of the volume. Reports the rest.
    pub fn permissions(self, permissions: u32, attributes: &Attributes, transfer: &Transfer, path: &Path) -> u32 {
        let of_user = if Some(attributes.uid) == self.0 { 0 } else { SET_USER };
        // The groups of the owner are unknown here. On a directory the bit gives no rights.
        let of_group = if attributes.kind == Kind::Directory { 0 } else { SET_GROUP };
        let left_out = permissions & (of_user | of_group);
        if left_out != 0 {
            let which = if left_out & SET_USER != 0 { "set-user-id" } else { "set-group-id" };
            transfer.fail(What::Attribute, path, &self.why(which));
        }
        permissions & !left_out
    }

    /// Returns the reason that attribute `name` is left out, if it gives rights (capabilities(7))
    /// or is trusted as root's: `trusted.overlay.redirect` makes root's overlay show another
    /// directory.
    pub fn refusal_of_attribute(self, name: &[u8]) -> Option<String> {
        let is_believed = [&b"security."[..], b"trusted."].iter().any(|class| name.starts_with(class));
        is_believed.then(|| self.why(&String::from_utf8_lossy(name)))
    }

    /// Returns the reason that an entry of `kind` is left out, if it gives rights.
    pub fn refusal_of_kind(self, kind: Kind) -> Option<String> {
        matches!(kind, Kind::CharDevice | Kind::BlockDevice).then(|| self.why("a device"))
    }

    fn why(self, what: &str) -> String {
        let whose = self.0.map_or("that others may have written".into(), |user| format!("that belongs to user {user}"));
        format!(
            "{what} is left out, as root's export of a volume {whose} gives nobody more rights; mount it with \
             -o suid,dev, and copy it, if you trust what it says"
        )
    }
}
