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

use crate::linked_tree::LinkedTree;
use weft_store::{Ino, InodeRow, Kind};
use weft_tree::{ACCESS_ACL, Acl, ErrorKind, Stop};
use weft_vfs::{Asker, Subject};
pub(crate) use weft_vfs::{MAY_READ, MAY_SEARCH, MAY_WRITE};

/// Bytes of access control lists that are searched for each step that they count as.
const LISTED_A_STEP: usize = 64;

/// The maker of a link: its owner and group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Maker {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// Rights to an inode, as the bits of one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rights {
    /// The rights of everybody.
    pub(crate) of_everybody: u32,
    /// The rights that the asker and all makers have.
    pub(crate) of_these: u32,
}

/// An inode on the way to a target, or a target, as far as its row tells of rights.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    ino: Ino,
    uid: u32,
    gid: u32,
    permissions: u32,
    may_have_acl: bool,
}

impl Step {
    pub(crate) fn of(row: &InodeRow) -> Step {
        let InodeRow { ino, uid, gid, permissions, .. } = *row;
        // A link has none.
        let may_have_acl = row.has_xattrs() && row.kind != Kind::Transformation;
        Step { ino, uid, gid, permissions, may_have_acl }
    }
}

impl LinkedTree<'_> {
    /// The rights to the inode of `step`, as far as `wanted` are concerned.
    pub(crate) fn rights_to(&mut self, step: Step, wanted: u32) -> Result<Rights, Stop> {
        let Step { ino, uid, gid, permissions, may_have_acl } = step;
        let acl = if may_have_acl { self.tree.xattrs(ino)?.map.get(ACCESS_ACL) } else { None };
        let (acl, bytes) = (acl.map(|value| Acl::parse(value)).transpose()?, acl.map_or(0, |value| value.len()));
        self.links.resolving.take((1 + self.links.resolving.makers.len()) * bytes / LISTED_A_STEP)?;
        let subject = Subject { uid, gid, permissions, acl };
        let of_everybody = subject.rights_of_everybody();
        if of_everybody & wanted == wanted {
            return Ok(Rights { of_everybody, of_these: of_everybody });
        }
        let of_asker = subject.rights_of_asker();
        let of_maker = |maker: &Maker| subject.rights_of(maker.uid, |gid| (gid == maker.gid).then_some(true));
        let of_these = self.links.resolving.makers.iter().map(of_maker).fold(of_asker, |all, one| all & one);
        Ok(Rights { of_everybody, of_these })
    }

    /// The maker of link `ino`.
    pub(crate) fn maker_of(&mut self, ino: Ino) -> Result<Maker, Stop> {
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
        let is_makers = |asker: &Asker| matches!(asker, Asker::User(person) if person.uid() == maker.uid);
        if Asker::now(|asker| asker.is_mighty() || is_makers(asker)) {
            return Ok(());
        }
        match self.resolve(ino) {
            Err(Stop::Fail(error)) if error.kind() == ErrorKind::AccessDenied => Err(error.into()),
            Ok(_) | Err(Stop::Fail(_)) => Ok(()),
            Err(miss) => Err(miss),
        }
    }

    /// True if the asker may add names to directory `parent`.
    pub(crate) fn asker_may_add(&mut self, parent: Ino) -> Result<bool, Stop> {
        let step = Step::of(&self.tree.directory(parent)?.row);
        let wanted = MAY_WRITE | MAY_SEARCH;
        Ok(self.rights_to(step, wanted)?.of_these & wanted == wanted)
    }
}
