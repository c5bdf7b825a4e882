//! Bounds of the extended attributes that a stream brings: those of setxattr(2) on a mount.

use super::wrong;
use crate::Name;
use crate::error::Result;
use crate::row::InodeRow;
use weft_digest::Kind;

/// Most bytes in a value (`XATTR_SIZE_MAX` of Linux).
const VALUE_BYTES_MAX: usize = 64 << 10;

/// Most bytes of all values of an inode: 1 MiB that a mount lets programs set, and a value that
/// Weft itself sets.
const VALUES_BYTES_MAX: usize = (1 << 20) + VALUE_BYTES_MAX;

/// Most bytes in the list of names, each with its NUL: `XATTR_LIST_MAX`, and the names that Weft
/// itself gives.
const NAMES_BYTES_MAX: usize = 68 << 10;

/// Bytes of attributes of an inode.
#[derive(Default)]
pub(super) struct Total {
    names: usize,
    values: usize,
}

impl Total {
    /// Adds an attribute. False if an inode cannot have as many bytes of them.
    pub(super) fn add(&mut self, name: &Name, value_len: usize) -> bool {
        self.names += name.as_bytes().len() + 1;
        self.values += value_len;
        self.names <= NAMES_BYTES_MAX && self.values <= VALUES_BYTES_MAX
    }
}

/// Refuses an attribute that the inode `row` cannot have.
pub(super) fn refuse(row: &InodeRow, name: &Name, value: &[u8]) -> Result<()> {
    let is_kept = match name.as_bytes() {
        b"system.posix_acl_access" => !matches!(row.kind, Kind::Symlink | Kind::Transformation) && is_acl(value),
        b"system.posix_acl_default" => row.kind == Kind::Directory && is_acl(value),
        name => [b"user.".as_slice(), b"trusted.", b"security."]
            .iter()
            .any(|space| name.starts_with(space) && name.len() > space.len()),
    };
    match is_kept && value.len() <= VALUE_BYTES_MAX {
        true => Ok(()),
        false => Err(wrong(&format!(
            "inode {} has an attribute {} that none can have",
            row.ino.0,
            name.as_bytes().escape_ascii()
        ))),
    }
}

const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// True if `value` is a POSIX ACL (linux/posix_acl_xattr.h): a version and entries in the order of
/// their tags, one each for owner, group and others, and a mask where users or groups are named.
fn is_acl(value: &[u8]) -> bool {
    let Some((&[2, 0, 0, 0], rest)) = value.split_first_chunk::<4>() else { return false };
    let (entries, []) = rest.as_chunks::<8>() else { return false };
    let tag = |entry: &[u8; 8]| u16::from_le_bytes([entry[0], entry[1]]);
    let count = |wanted: u16| entries.iter().filter(|entry| tag(entry) == wanted).count();
    let is_known = |entry: &[u8; 8]| [USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER].contains(&tag(entry));
    entries.iter().all(|entry| is_known(entry) && u16::from_le_bytes([entry[2], entry[3]]) <= 7)
        && entries.windows(2).all(|pair| tag(&pair[0]) <= tag(&pair[1]))
        && [USER_OBJ, GROUP_OBJ, OTHER].into_iter().all(|tag| count(tag) == 1)
        && count(MASK) <= 1
        && (count(USER) + count(GROUP) == 0 || count(MASK) == 1)
}
