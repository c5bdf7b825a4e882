//! Files that are made to take the place of others.

use super::{IfExists, User};
use weft_store::{Kind, NAME_BYTES_MAX};
use weft_tree::{ACCESS_ACL, Access, Attributes, ErrorKind, FileId, MakeNode, Result, SetAttributes, SetXattr};

/// The namespace of attributes that belong to users.
const USER_XATTRS: &[u8] = b"user.";

impl User<'_> {
    /// Makes an empty file in directory `parent`, under a name that none has, with owner, group,
    /// permissions, ACL and extended attributes of file `like`, as far as the user may set and read
    /// those. Nobody who may not read `like` may read it. As [`User::create`].
    pub fn make_like(&self, parent: FileId, name: &[u8], like: &Attributes) -> Result<Attributes> {
        let node = MakeNode { kind: Kind::File, permissions: 0o600, umask: 0, rdev: 0 };
        let made = self.create(parent, name, node, SetAttributes::default(), IfExists::Fail)?.value;
        let alike = self.make_alike(&made, like);
        if alike.is_err() {
            let _ = self.unlink(parent, name);
        }
        alike.and_then(|()| self.attributes(FileId::from(&made)))
    }

    /// Gives file `made` owner, group, permissions, ACL and extended attributes of file `like`, as
    /// [`User::make_like`] does.
    pub fn make_alike(&self, made: &Attributes, like: &Attributes) -> Result<()> {
        let file = FileId::from(made);
        let set = |changes: SetAttributes| self.set_attributes(file, changes, |_| true);
        let changed = |is: u32, was: u32| Some(is).filter(|_| is != was);
        let mut has_group = made.gid == like.gid;
        let owners = [(changed(like.uid, made.uid), None), (None, changed(like.gid, made.gid))];
        for (uid, gid) in owners.into_iter().filter(|owner| *owner != (None, None)) {
            match set(SetAttributes { uid, gid, ..SetAttributes::default() }) {
                Ok(_) => has_group |= gid.is_some(),
                Err(error) if error.kind() == ErrorKind::NotPermitted => {}
                Err(error) => return Err(error),
            }
        }
        self.copy_xattrs(file, like, has_group)?;
        // Another group is given no rights; a file with new content is no program that runs as
        // somebody else.
        let permissions = like.permissions & if has_group { 0o777 } else { 0o707 };
        set(SetAttributes { permissions: Some(permissions), ..SetAttributes::default() }).map(|_| ())
    }

    fn copy_xattrs(&self, file: FileId, like: &Attributes, has_group: bool) -> Result<()> {
        let ([may_read], _) = self.access(FileId::from(like), [Access::READ])?;
        for name in self.vfs.xattr_names(like.ino)? {
            let name = name.as_bytes();
            let is_acl = name == ACCESS_ACL;
            if !(is_acl && has_group || may_read && name.starts_with(USER_XATTRS)) {
                continue;
            }
            let set = self.vfs.xattr(like.ino, name);
            match set.and_then(|value| self.vfs.set_xattr(file.ino, name, &value, SetXattr::Any, true)) {
                // Attributes that the volume itself gives.
                Err(error) if matches!(error.kind(), ErrorKind::NotSupported | ErrorKind::NoAttribute) => {}
                set => set?,
            }
        }
        Ok(())
    }
}

/// Returns a name for a file that is to take the place of `name`: hidden, and not too long.
pub fn name_beside(name: &[u8], number: u64) -> Vec<u8> {
    let suffix = format!(".{number:016x}.part");
    let mut kept = name.len().min(NAME_BYTES_MAX - 1 - suffix.len());
    // No character is cut in two.
    while kept > 0 && kept < name.len() && name[kept] & 0xc0 == 0x80 {
        kept -= 1;
    }
    [b".", &name[..kept], suffix.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beside_are_not_too_long_and_cut_no_character() {
        assert_eq!(name_beside(b"f", 1), b".f.0000000000000001.part");
        for name in ["ü".repeat(127), "€".repeat(85), "x".repeat(255), "x".to_owned() + &"€".repeat(84)] {
            let beside = name_beside(name.as_bytes(), u64::MAX);
            assert!(beside.len() <= NAME_BYTES_MAX && beside.len() > NAME_BYTES_MAX - 4, "{}", beside.len());
            assert!(String::from_utf8(beside).is_ok(), "{name}");
        }
    }
}
