//! The one place that decides who is told what links lead to.
//!
//! The rule: a link is *open* to an asker if the asker, and the maker of each link on the way, may
//! read each of its targets (of a directory that a view shows: read and search it), and may search
//! each directory on the way there, views included. To any other asker it is *closed*: its network
//! does not start, and nothing is told of its targets, not even whether they exist.
//!
//! Resolving a link asks here about each step before it looks at the next one, and fails with
//! `AccessDenied` where somebody lacks a right. There is no other way to a target, so this holds
//! for attributes, reads, writes, listings, kept results and digests alike.
//!
//! The asker is the thread's ([`Asker`]); the super-user and the holder of the volume may all. The
//! maker is the link's owner, with its group, as its row says; of an entry of a view it is the
//! owner of the view. The super-user may all as a maker, too, but lends that to no other maker.
//! Further groups of a maker are unknown: where they would matter a maker has the rights that it
//! has in any case.

use crate::asker::Asker;
use crate::state::State;
use weft_store::{Ino, InodeRow, Kind};
use weft_tree::{ACCESS_ACL, Acl, ErrorKind, Stop};

/// Rights, as the bits of one class.
pub(super) const MAY_READ: u32 = 4;
pub(super) const MAY_WRITE: u32 = 2;
pub(super) const MAY_SEARCH: u32 = 1;
const ALL: u32 = 7;

/// Bytes of access control lists that are searched for each step that they count as.
const LISTED_A_STEP: usize = 64;

/// The maker of a link: its owner and group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Maker {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// Rights to an inode, as the bits of one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rights {
    /// The rights of everybody.
    pub(super) of_everybody: u32,
    /// The rights that the asker and all makers have.
    pub(super) of_these: u32,
}

/// An inode on the way to a target, or a target, as far as its row tells of rights.
#[derive(Clone, Copy)]
pub(super) struct Step {
    ino: Ino,
    uid: u32,
    gid: u32,
    permissions: u32,
    may_have_acl: bool,
}

impl Step {
    pub(super) fn of(row: &InodeRow) -> Step {
        let InodeRow { ino, uid, gid, permissions, .. } = *row;
        // A link has none.
        let may_have_acl = row.has_xattrs() && row.kind != Kind::Transformation;
        Step { ino, uid, gid, permissions, may_have_acl }
    }
}

/// An inode, as far as rights follow from it.
struct Subject {
    uid: u32,
    gid: u32,
    permissions: u32,
    acl: Option<Acl>,
}

impl Subject {
    /// The rights of one class, if no list says otherwise.
    fn class(&self, shift: u32) -> u32 {
        self.permissions >> shift & ALL
    }

    /// The rights that user `uid` has for sure; `is_member` tells of the user's groups.
    fn rights_of(&self, uid: u32, is_member: impl Fn(u32) -> Option<bool>) -> u32 {
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
}

impl State {
    /// The rights to the inode of `step`, as far as `wanted` are concerned.
    pub(super) fn rights_to(&mut self, step: Step, wanted: u32) -> Result<Rights, Stop> {
        let Step { ino, uid, gid, permissions, may_have_acl } = step;
        let acl = if may_have_acl { self.tree.xattrs(ino)?.map.get(ACCESS_ACL) } else { None };
        let (acl, bytes) = (acl.map(|value| Acl::parse(value)).transpose()?, acl.map_or(0, |value| value.len()));
        self.links.resolving.take((1 + self.links.resolving.makers.len()) * bytes / LISTED_A_STEP)?;
        let subject = Subject { uid, gid, permissions, acl };
        let everybody = subject.class(6) & subject.class(3) & subject.class(0);
        // A list may take from some what it gives to all others.
        let of_everybody = if subject.acl.is_some() { 0 } else { everybody };
        if of_everybody & wanted == wanted {
            return Ok(Rights { of_everybody, of_these: of_everybody });
        }
        let of_asker = Asker::now(|asker| match asker {
            Asker::Holder => ALL,
            Asker::Anybody => of_everybody,
            Asker::User(person) => subject.rights_of(person.uid, |gid| person.is_member(gid)),
        });
        let of_maker = |maker: &Maker| subject.rights_of(maker.uid, |gid| (gid == maker.gid).then_some(true));
        let of_these = self.links.resolving.makers.iter().map(of_maker).fold(of_asker, |all, one| all & one);
        Ok(Rights { of_everybody, of_these })
    }

    /// The maker of link `ino`.
    pub(super) fn maker_of(&mut self, ino: Ino) -> Result<Maker, Stop> {
        let row = &self.tree.inode(ino)?.row;
        let (own, parent) = (Maker { uid: row.uid, gid: row.gid }, row.parent);
        // What is pushed onto a file is its owner's to push.
        if !self.is_shown(ino)? {
            return Ok(own);
        }
        let view = &self.tree.inode(parent)?.row;
        Ok(Maker { uid: view.uid, gid: view.gid })
    }

    /// `AccessDenied` unless the asker may be told the definition of link `ino`: as its owner, as
    /// the super-user, or if the link is open to the asker or leads nowhere.
    pub(crate) fn permit_definition(&mut self, ino: Ino) -> Result<(), Stop> {
        let maker = self.maker_of(ino)?;
        let is_makers = |asker: &Asker| matches!(asker, Asker::User(person) if person.uid == maker.uid);
        if Asker::now(|asker| asker.is_mighty() || is_makers(asker)) {
            return Ok(());
        }
        match self.resolve(ino) {
            Err(Stop::Fail(error)) if error.kind() == ErrorKind::AccessDenied => Err(error.into()),
            Ok(_) | Err(Stop::Fail(_)) => Ok(()),
            Err(miss) => Err(miss),
        }
    }

    /// True if the asker may read inode `ino`, which is no link; a directory: list and search it.
    pub(crate) fn asker_may_read(&mut self, ino: Ino) -> Result<bool, Stop> {
        let row = &self.tree.inode(ino)?.row;
        let wanted = if row.kind == Kind::Directory { MAY_READ | MAY_SEARCH } else { MAY_READ };
        let step = Step::of(row);
        Ok(self.rights_to(step, wanted)?.of_these & wanted == wanted)
    }

    /// True if the asker may add names to directory `parent`.
    pub(super) fn asker_may_add(&mut self, parent: Ino) -> Result<bool, Stop> {
        let step = Step::of(&self.tree.directory(parent)?.row);
        let wanted = MAY_WRITE | MAY_SEARCH;
        Ok(self.rights_to(step, wanted)?.of_these & wanted == wanted)
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
