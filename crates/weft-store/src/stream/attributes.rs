//! The extended attributes that a stream has: those that setxattr(2) sets on a mount, with its
//! bounds, and records of what was taken out of history.
//!
//! All else that a volume keeps for itself on its root is of the place where it is: keys that sign
//! handles, clients with locks, paths whose history goes early. A stream from elsewhere must decide
//! none of that.

use super::wrong;
use crate::Name;
use crate::error::Result;
use crate::past::{FORGOTTEN, FORGOTTEN_BYTES_MAX, FORGOTTEN_MAX, FORGOTTEN_TOTAL_MAX};
use crate::row::{Ino, InodeRow, OWN_XATTRS};
use crate::store::Store;
use weft_digest::Kind;

/// Attributes of an inode.
pub(super) type Xattrs = Vec<(Name, Vec<u8>)>;

/// Most bytes in a value (`XATTR_SIZE_MAX` of Linux).
const VALUE_BYTES_MAX: usize = 64 << 10;

/// Most bytes of all values of an inode: 1 MiB that a mount lets programs set, and a value that
/// Weft itself sets.
const VALUES_BYTES_MAX: usize = (1 << 20) + VALUE_BYTES_MAX;

/// Most bytes in the list of names, each with its NUL: `XATTR_LIST_MAX`, and the names that Weft
/// itself gives.
const NAMES_BYTES_MAX: usize = 68 << 10;

/// Digits of the time in the name of a record.
const TIME_DIGITS: usize = 20;

/// Bytes of attributes of an inode.
#[derive(Default)]
pub(super) struct Total {
    names: usize,
    values: usize,
    records: usize,
    record_bytes: usize,
}

impl Total {
    /// Adds an attribute. False if an inode cannot have as many bytes of them.
    pub(super) fn add(&mut self, name: &Name, value_len: usize) -> bool {
        if name.as_bytes().starts_with(FORGOTTEN) {
            self.records += 1;
            self.record_bytes += value_len;
            return self.records <= FORGOTTEN_MAX && self.record_bytes <= FORGOTTEN_TOTAL_MAX;
        }
        self.names += name.as_bytes().len() + 1;
        self.values += value_len;
        self.names <= NAMES_BYTES_MAX && self.values <= VALUES_BYTES_MAX
    }
}

/// True if `name` is that of a record of what was taken out of history.
fn is_record(name: &[u8]) -> bool {
    let time = name.strip_prefix(FORGOTTEN);
    time.is_some_and(|time| time.len() == TIME_DIGITS && time.iter().all(u8::is_ascii_digit))
}

/// Returns the attributes of inode `row` of `store` that are sent, and the row as it is sent: it
/// counts these alone.
pub(super) fn sent(store: &dyn Store, row: &InodeRow) -> Result<(InodeRow, Xattrs)> {
    let mut all = if row.has_xattrs() { store.xattrs(row.ino)? } else { Vec::new() };
    let before = all.len();
    // The root's alone can be others: what another inode has of them is there by mistake, and no
    // stream may have it.
    let is_sent = |name: &[u8]| !name.starts_with(OWN_XATTRS) || row.ino == Ino::ROOT && is_record(name);
    all.retain(|(name, _)| is_sent(name.as_bytes()));
    let left_out = u32::try_from(before - all.len()).unwrap_or(u32::MAX);
    Ok((InodeRow { xattrs: row.xattrs.saturating_sub(left_out), ..row.clone() }, all))
}

/// Returns `row` of `store` as it is sent.
pub(super) fn sent_row(store: &dyn Store, row: &InodeRow) -> Result<InodeRow> {
    if row.has_xattrs() { Ok(sent(store, row)?.0) } else { Ok(row.clone()) }
}

/// Refuses an attribute that the inode `row` cannot have.
pub(super) fn refuse(row: &InodeRow, name: &Name, value: &[u8]) -> Result<()> {
    let is_kept = match name.as_bytes() {
        b"system.posix_acl_access" => !matches!(row.kind, Kind::Symlink | Kind::Transformation) && is_acl(value),
        b"system.posix_acl_default" => row.kind == Kind::Directory && is_acl(value),
        name if row.ino == Ino::ROOT && is_record(name) => value.len() <= FORGOTTEN_BYTES_MAX,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Batch, InodeChange, XattrChange};
    use crate::memory::MemoryStore;
    use crate::store::{CommitStore, Durability, RowStore, VolumeOptions};

    #[test]
    fn no_inode_sends_what_controls_the_volume_or_is_its_secret() {
        let store = MemoryStore::new(VolumeOptions::default());
        let header = store.header().expect("readable");
        let root = InodeRow { xattrs: 2, ..store.inodes(Ino::ROOT, 1).expect("readable").remove(0) };
        let other = InodeRow { ino: Ino(20), xattrs: 2, ..root.clone() };
        let mut batch = Batch { commit: header.commit.next(), counters: header.counters, ..Batch::default() };
        batch.counters.next_id = 21;
        for row in [&root, &other] {
            batch.inodes.push(InodeChange::Put(row.clone()));
            for name in ["weft.secret.handles", "user.own"] {
                let name = Name::of_xattr(name.as_bytes()).expect("a name");
                batch.xattrs.push(XattrChange { ino: row.ino, name, value: Some(b"value".to_vec()) });
            }
        }
        store.apply(&batch, Durability::Durable).expect("applied");
        for row in [&root, &other] {
            let (sent, xattrs) = sent(&store, row).expect("readable");
            let names = xattrs.iter().map(|(name, _)| name.as_bytes()).collect::<Vec<_>>();
            assert_eq!((sent.xattrs, names), (1, vec![&b"user.own"[..]]));
            assert_eq!(sent_row(&store, row).expect("readable").xattrs, 1);
        }
    }
}
