//! Extended attributes (xattr(7)), ACLs among them.

use super::digests::encode;
use crate::secrets::KEPT;
use crate::state::State;
use crate::volume::Vfs;
use std::borrow::Cow;
use std::collections::BTreeMap;
use weft_attributes::{Attribute, is_reserved};
use weft_store::{Cookie, Ino, Kind, Name};
use weft_tree::{ACCESS_ACL, Acl, DEFAULT_ACL, ErrorKind, Mutation, ROW_BYTES, Result, SetXattr, Stop, is_past};

/// Longest value (Linux `XATTR_SIZE_MAX`) and longest list of names (`XATTR_LIST_MAX`) in bytes.
const BYTES_MAX: usize = 64 << 10;

/// Bytes of all values of an inode together: they are in memory together, and one user's must not
/// keep others waiting until they are.
const ALL_BYTES_MAX: usize = 1 << 20;

impl Vfs {
    /// Value of the extended attribute `name`. `NoAttribute`, `NotSupported` (unknown namespace).
    /// [`Attribute`] says which of them tell what the volume knows.
    pub fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        if is_past(ino) {
            return self.past_xattr(ino, name);
        }
        let name = xattr_name(name)?;
        let attribute = Attribute::parse(name.as_bytes());
        let told = match attribute {
            Some(Attribute::Digest) => self.digest(ino)?.map(hex),
            Some(Attribute::ListedDigest) => self.listed_digest(ino)?.map(hex),
            Some(Attribute::DigestEntries { after }) => {
                self.listed_entries(ino, Cookie(after))?.map(|entries| encode(&entries))
            }
            Some(Attribute::Counts { offset }) => Some(self.counts(ino, offset)?.to_string().into_bytes()),
            Some(Attribute::Link | Attribute::Memo) if !self.is_opaque(ino)? => None,
            Some(told @ (Attribute::Link | Attribute::Memo)) => self.opaque.attribute(self, ino, told)?,
            _ => self.run(|state| {
                let value = state.tree.xattrs(ino)?.map.get(&name).cloned();
                let is_told = ino == Ino::ROOT && attribute == Some(Attribute::Opens) && state.is_told_of_opens;
                Ok(if value.is_some() && is_told { Some(b"told".to_vec()) } else { value })
            })?,
        };
        told.ok_or_else(|| ErrorKind::NoAttribute.into())
    }

    /// Names of all extended attributes, ascending, but those that only this volume can use.
    pub fn xattr_names(&self, ino: Ino) -> Result<Vec<Name>> {
        if is_past(ino) {
            return self.past_xattr_names(ino);
        }
        self.run(|state| {
            let names = state.tree.xattrs(ino)?.map.keys();
            let is_told = |name: &[u8]| !name.starts_with(KEPT) && Attribute::parse(name) != Some(Attribute::Opens);
            Ok(names.filter(|name| is_told(name.as_bytes())).cloned().collect())
        })
    }

    /// Sets an extended attribute (setxattr(2)). Setting an access ACL sets the permission bits
    /// that it stands for; `kill_set_group_id` then clears the set-group-id bit, for a caller not
    /// in the file's group. `Exists`, `NoAttribute`, `AttributeTooBig`, `Range` (name),
    /// `NotSupported` (namespace, or [`is_reserved`]), `NoSpace` (list full, or too many bytes
    /// together).
    pub fn set_xattr(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: SetXattr,
        kill_set_group_id: bool,
    ) -> Result<()> {
        let name = settable(name)?;
        if value.len() > BYTES_MAX {
            return Err(ErrorKind::AttributeTooBig.into());
        }
        let time = self.now();
        self.change(|state| {
            state.tree.room(ROW_BYTES + value.len() as u64)?;
            state.may_grow(0, 0)?;
            let map = &state.tree.xattrs(ino)?.map;
            match (mode, map.contains_key(&name)) {
                (SetXattr::Create, true) => return Err(ErrorKind::Exists.into()),
                (SetXattr::Replace, false) => return Err(ErrorKind::NoAttribute.into()),
                _ => {}
            }
            fits_list(map, &name)?;
            let others = map.iter().filter(|(other, _)| **other != name).map(|(_, value)| value.len()).sum::<usize>();
            if others + value.len() > ALL_BYTES_MAX {
                return Err(ErrorKind::NoSpace.into());
            }
            let (value, permissions) = state.follow_acl(ino, &name, value, kill_set_group_id)?;
            state.perform(&Mutation::Xattr { ino, name: name.clone(), value, permissions, time })
        })?;
        self.acl_changed(ino, &name);
        Ok(())
    }

    fn acl_changed(&self, ino: Ino, name: &Name) {
        if name.as_bytes() == ACCESS_ACL {
            self.blocks.shared.renew(ino);
            self.past_rights_changed(ino);
        }
    }

    /// Removes an extended attribute. `NoAttribute`, `NotSupported` ([`is_reserved`]).
    pub fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        let name = settable(name)?;
        let time = self.now();
        self.change(|state| {
            if !state.tree.xattrs(ino)?.map.contains_key(&name) {
                return Err(ErrorKind::NoAttribute.into());
            }
            state.perform(&Mutation::Xattr { ino, name: name.clone(), value: None, permissions: None, time })
        })?;
        self.acl_changed(ino, &name);
        Ok(())
    }
}

impl State {
    /// Returns the value to store under `name`, and the permission bits that follow if it is an
    /// access ACL.
    #[expect(clippy::type_complexity, reason = "a pair used once")]
    fn follow_acl<'a>(
        &mut self,
        ino: Ino,
        name: &Name,
        value: &'a [u8],
        kill_set_group_id: bool,
    ) -> Result<(Option<Cow<'a, [u8]>>, Option<u32>), Stop> {
        let is_access = name.as_bytes() == ACCESS_ACL;
        if !is_access && name.as_bytes() != DEFAULT_ACL {
            return Ok((Some(Cow::Borrowed(value)), None));
        }
        let row = &self.tree.inode(ino)?.row;
        match row.kind {
            // Those of an opaque inode follow from others.
            Kind::Symlink | Kind::Transformation => return Err(ErrorKind::NotSupported.into()),
            Kind::Directory => {}
            _ if is_access => {}
            _ => return Err(ErrorKind::NotPermitted.into()),
        }
        if value.is_empty() {
            return Ok((None, None));
        }
        let acl = Acl::parse(value)?;
        let stored = Cow::Owned(acl.to_bytes());
        if !is_access {
            return Ok((Some(stored), None));
        }
        let killed = if kill_set_group_id { libc::S_ISGID } else { 0 };
        let permissions = row.permissions & !0o777 & !killed | acl.permissions();
        Ok(((!acl.is_minimal()).then_some(stored), Some(permissions)))
    }
}

fn hex(digest: weft_digest::Digest) -> Vec<u8> {
    weft_digest::hex(&digest).into_bytes()
}

/// The name of an attribute that programs set and remove as they like. `NotSupported`.
fn settable(name: &[u8]) -> Result<Name> {
    if is_reserved(name) { Err(ErrorKind::NotSupported.into()) } else { xattr_name(name) }
}

/// `NoSpace` if one more attribute, `name`, makes a longer list than there can be.
pub(super) fn fits_list<V>(map: &BTreeMap<Name, V>, name: &Name) -> Result<()> {
    let listed: usize = map.keys().map(|name| name.as_bytes().len() + 1).sum();
    let fits = map.contains_key(name) || listed + name.as_bytes().len() < BYTES_MAX;
    if fits { Ok(()) } else { Err(ErrorKind::NoSpace.into()) }
}

/// The name of an attribute in a namespace that is kept.
fn xattr_name(name: &[u8]) -> Result<Name> {
    let kept = [b"user.".as_slice(), b"trusted.", b"security."];
    let in_namespace = kept.iter().any(|space| name.starts_with(space) && name.len() > space.len());
    if !in_namespace && name != ACCESS_ACL && name != DEFAULT_ACL {
        return Err(ErrorKind::NotSupported.into());
    }
    Name::of_xattr(name).map_err(|_| ErrorKind::Range.into())
}
