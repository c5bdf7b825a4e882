//! Rights to an inode of users of whom not everything is known: a link's maker, whose further
//! groups nobody knows, or whoever asks.

use super::Asker;
use crate::state::State;
use weft_store::{Ino, Kind};
use weft_tree::{ACCESS_ACL, Acl, Stop};

/// The right to read, as the bit of one class.
pub const MAY_READ: u32 = 4;
/// The right to write; of a directory, to change its entries.
pub const MAY_WRITE: u32 = 2;
/// The right to search a directory.
pub const MAY_SEARCH: u32 = 1;
/// All rights.
const ALL: u32 = 7;

/// An inode, as far as rights follow from it.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its permission bits.
    pub permissions: u32,
    /// Its access control list, if it has one.
    pub acl: Option<Acl>,
}

impl Subject {
    /// The rights of one class, if no list says otherwise.
    fn class(&self, shift: u32) -> u32 {
        self.permissions >> shift & ALL
    }

    /// The rights that everybody has for sure.
    pub fn rights_of_everybody(&self) -> u32 {
        // A list may take from some what it gives to all others.
        if self.acl.is_some() { 0 } else { self.class(6) & self.class(3) & self.class(0) }
    }

    /// The rights that user `uid` has for sure; `is_member` tells of the user's groups.
    pub fn rights_of(&self, uid: u32, is_member: impl Fn(u32) -> Option<bool>) -> u32 {
        if uid == 0 {
            return ALL;
        }
        if uid == self.uid {
            return self.class(6);
        }
        let Some(acl) = &self.acl else {
            return match is_member(self.gid) {
                _ if self.class(3) == self.class(0) => self.class(0),
                Some(true) => self.class(3),
                Some(false) => self.class(0),
                None => self.class(3) & self.class(0),
            };
        };
        let has = |right: &u32| acl.surely_grants(self.gid, *right, |id| id == uid, &is_member);
        [MAY_READ, MAY_WRITE, MAY_SEARCH].into_iter().filter(has).sum()
    }

    /// The rights that the asker has for sure.
    pub fn rights_of_asker(&self) -> u32 {
        Asker::now(|asker| match asker {
            Asker::Holder => ALL,
            Asker::Anybody => self.rights_of_everybody(),
            Asker::User(person) => self.rights_of(person.uid(), |gid| person.is_member(gid)),
        })
    }
}

impl State {
    /// True if the asker may read inode `ino`, which is not opaque; a directory: list and search
    /// it.
    pub(crate) fn asker_may_read(&mut self, ino: Ino) -> Result<bool, Stop> {
        let is_directory = self.tree.inode(ino)?.row.kind == Kind::Directory;
        self.asker_may(ino, if is_directory { MAY_READ | MAY_SEARCH } else { MAY_READ })
    }

    /// True if the asker has all rights `wanted` on inode `ino`, which is not opaque.
    pub(crate) fn asker_may(&mut self, ino: Ino, wanted: u32) -> Result<bool, Stop> {
        let row = &self.tree.inode(ino)?.row;
        let (uid, gid, permissions, has_xattrs) = (row.uid, row.gid, row.permissions, row.has_xattrs());
        let acl = if has_xattrs { self.tree.xattrs(ino)?.map.get(ACCESS_ACL) } else { None };
        let acl = acl.map(|value| Acl::parse(value)).transpose()?;
        let subject = Subject { uid, gid, permissions, acl };
        let is_everybodys = subject.rights_of_everybody() & wanted == wanted;
        Ok(is_everybodys || subject.rights_of_asker() & wanted == wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(permissions: u32) -> Subject {
        Subject { uid: 7, gid: 8, permissions, acl: None }
    }

    #[test]
    fn a_user_has_what_its_class_gives() {
        let (member, stranger) = (|_: u32| Some(true), |_: u32| Some(false));
        assert_eq!(subject(0o640).rights_of(7, stranger), 6);
        assert_eq!(subject(0o640).rights_of(9, member), 4);
        assert_eq!(subject(0o640).rights_of(9, stranger), 0);
        // A group may have less than all others.
        assert_eq!(subject(0o604).rights_of(9, member), 0);
        assert_eq!(subject(0o604).rights_of(9, stranger), 4);
        assert_eq!(subject(0).rights_of(0, stranger), 7);
    }

    #[test]
    fn where_nobody_knows_the_groups_a_user_has_what_both_classes_give() {
        for (permissions, has) in [(0o640, 0), (0o604, 0), (0o644, 4), (0o664, 4)] {
            assert_eq!(subject(permissions).rights_of(9, |_| None), has, "{permissions:o}");
        }
    }
}
