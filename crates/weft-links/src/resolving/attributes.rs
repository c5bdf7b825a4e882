//! Attributes of links, as programs see them, and as those do to whom a link is closed.

use super::length::Length;
use super::resolve::Resolved;
use crate::definition::Writing;
use crate::layer::{Links, WithLinks};
use crate::linked_tree::LinkedTree;
use crate::writing::drafts::Drafted;
use weft_store::{Ino, Kind};
use weft_tree::{Attributes, Error, ErrorKind, Reach, Result, Stop, is_virtual};
use weft_vfs::{Asker, Vfs};

/// Rights of all three classes.
pub(crate) const READ: u32 = 0o444;
pub(crate) const WRITE: u32 = 0o222;
const OWNERS_WRITE: u32 = 0o200;
pub(super) const SEARCH: u32 = 0o111;

/// Policy for a length that is unknown before the content is computed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Measure {
    Never,
    Always,
    /// Unless the link leaves it open.
    IfWanted,
}

impl LinkedTree<'_> {
    /// Attributes of inode `ino`, as programs see them: a transformation link is a regular file as
    /// long as what it gives. Of one that leads nowhere the length is 1, so that whoever reads it
    /// comes to hear of that.
    pub(crate) fn attributes(&mut self, ino: Ino) -> Result<Attributes, Stop> {
        let inode = self.tree.inode(ino)?;
        if inode.row.kind == Kind::Transformation {
            return self.link_attributes(ino, Measure::IfWanted);
        }
        Ok(inode.attributes())
    }

    /// The same for those who read no file beyond its length, whatever the link says of itself.
    pub(crate) fn attributes_measured(&mut self, ino: Ino) -> Result<Attributes, Stop> {
        let is_link = self.tree.inode(ino)?.row.kind == Kind::Transformation;
        if !is_link {
            return self.attributes(ino);
        }
        let attributes = self.link_attributes(ino, Measure::Always)?;
        Ok(Attributes { permissions: attributes.permissions & self.bits_without_opens(ino)?, ..attributes })
    }

    /// The permission bits that link `ino` can have for those of whom nobody tells when they open
    /// it and close it.
    fn bits_without_opens(&mut self, ino: Ino) -> Result<u32, Stop> {
        match self.resolve(ino) {
            Ok(resolved) if resolved.writing == Writing::Whole => Ok(0o777 & !WRITE),
            Ok(_) | Err(Stop::Fail(_)) => Ok(0o7777),
            Err(miss) => Err(miss),
        }
    }

    /// Attributes of link `ino`, as those see them to whom it is closed: they look the same
    /// whatever it leads to.
    pub(crate) fn closed_attributes(&mut self, ino: Ino) -> Result<Attributes, Stop> {
        Ok(Attributes { permissions: 0, reach: Reach::Nobody, ..self.indifferent(ino)? })
    }

    /// Attributes of view `ino` that say nothing of what it shows, and let those in to whom it is
    /// open.
    pub(crate) fn guarded_attributes(&mut self, ino: Ino) -> Result<Attributes, Stop> {
        // An entry of a view has the permission bits of what it shows.
        let own = if is_virtual(ino) { 0o777 } else { self.tree.inode(ino)?.row.permissions };
        Ok(Attributes {
            permissions: own & (READ | SEARCH | OWNERS_WRITE),
            reach: Reach::Some,
            ..self.indifferent(ino)?
        })
    }

    /// Attributes of link `ino` that follow from nothing but itself; of an entry of a view: from
    /// the view.
    fn indifferent(&mut self, ino: Ino) -> Result<Attributes, Stop> {
        let nowhere = self.nowhere(ino)?;
        if !self.is_shown(ino)? {
            return Ok(nowhere);
        }
        let view = self.stored_view(ino)?;
        let row = &self.tree.inode(view)?.row;
        let (atime, mtime, ctime, btime) = (row.atime, row.mtime, row.ctime, row.btime);
        Ok(Attributes { uid: row.uid, gid: row.gid, atime, mtime, ctime, btime, ..nowhere })
    }

    /// Attributes of link `ino`, which cannot be resolved because of `error`.
    fn unresolved(&mut self, ino: Ino, error: &Error) -> Result<Attributes, Stop> {
        if error.kind() == ErrorKind::AccessDenied {
            return self.closed_attributes(ino);
        }
        let reach = if self.links.resolving.is_private { Reach::Some } else { Reach::Everybody };
        Ok(Attributes { reach, ..self.nowhere(ino)? })
    }

    /// True if everybody may be told what link `ino` leads to.
    pub(crate) fn is_for_all(&mut self, ino: Ino) -> Result<bool, Stop> {
        match self.resolve(ino) {
            Ok(resolved) => Ok(resolved.is_for_all),
            Err(Stop::Fail(error)) => Ok(error.kind() != ErrorKind::AccessDenied && !self.links.resolving.is_private),
            Err(miss) => Err(miss),
        }
    }

    /// The same of link `ino`, without computing anything: 0 is a length that is not known.
    pub(crate) fn attributes_at_once(&mut self, ino: Ino) -> Result<Attributes, Stop> {
        self.link_attributes(ino, Measure::Never)
    }

    /// The same of one that was just changed, so that there is no going back to fetch what is
    /// missing: a link of which something is, looks as if it led nowhere.
    pub(crate) fn attributes_after(&mut self, ino: Ino) -> Result<Attributes, Stop> {
        match self.attributes(ino) {
            Err(Stop::Miss(_)) => Ok(self.nowhere(ino)?),
            attributes => attributes,
        }
    }

    /// Makes sure that link `ino`, which is about to be changed, can be resolved after that without
    /// going back.
    pub(crate) fn prepare(&mut self, ino: Ino) -> Result<(), Stop> {
        match self.resolve(ino) {
            Err(Stop::Miss(miss)) => Err(miss.into()),
            Ok(_) | Err(Stop::Opaque | Stop::Fail(_)) => Ok(()),
        }
    }

    /// Permission bits of link `ino`, as those see them of whom nobody tells when they open files:
    /// programs of a mount are checked by the kernel.
    pub(crate) fn permission_bits(&mut self, ino: Ino) -> Result<u32, Stop> {
        let own = self.tree.inode(ino)?.row.permissions;
        match self.resolve(ino) {
            Ok(resolved) => Ok(own & resolved.permissions() & self.bits_without_opens(ino)?),
            Err(Stop::Fail(error)) if error.kind() == ErrorKind::AccessDenied => Ok(0),
            Err(Stop::Fail(_)) => Ok(own),
            Err(miss) => Err(miss),
        }
    }

    /// Attributes of a link that leads nowhere.
    fn nowhere(&mut self, ino: Ino) -> Result<Attributes, Stop> {
        let own = self.tree.inode(ino)?.attributes();
        let looks = match self.looks_like_directory(ino) {
            Err(Stop::Miss(miss)) => return Err(miss.into()),
            looks => looks.is_ok_and(|looks| looks),
        };
        if looks {
            return Ok(Attributes { kind: Kind::Directory, nlink: 2, size: 0, allocated: 0, computed: Some(1), ..own });
        }
        Ok(Attributes { kind: Kind::File, size: 1, allocated: 0, computed: Some(0), ..own })
    }

    fn link_attributes(&mut self, ino: Ino, measure: Measure) -> Result<Attributes, Stop> {
        let own = self.nowhere(ino)?;
        let resolved = match self.resolve(ino) {
            Ok(resolved) => resolved,
            Err(Stop::Fail(error)) => return self.unresolved(ino, &error),
            Err(miss) => return Err(miss),
        };
        let reach = if resolved.is_for_all { Reach::Everybody } else { Reach::Some };
        let own = Attributes { reach, ..own };
        if self.links.watches.is_wanted {
            self.links.watches.watch(ino, &resolved.causes.all());
        }
        if resolved.link.looks.is_some() {
            let permissions = own.permissions & resolved.shown_permissions();
            let (mtime, ctime) = (resolved.mtime, own.ctime.max(resolved.ctime));
            let target = &self.tree.inode(resolved.data())?.row;
            let size = if target.kind == Kind::Directory { target.size } else { 0 };
            return Ok(Attributes { size, permissions, mtime, ctime, ..own });
        }
        let permissions = own.permissions & resolved.permissions();
        let (mtime, ctime) = (own.mtime.max(resolved.mtime), own.ctime.max(resolved.ctime));
        if let Some(Drafted { size, mtime: written }) = self.current_draft(ino)?.and_then(|draft| draft.now()) {
            let mtime = mtime.max(written);
            return Ok(Attributes { size, allocated: size, permissions, mtime, ctime, computed: Some(0), ..own });
        }
        let leaves_open = match measure {
            Measure::Never => true,
            Measure::Always => false,
            Measure::IfWanted => self.leaves_open(&resolved),
        };
        let length = if leaves_open { self.length_told(ino, &resolved)? } else { Some(self.length(ino, &resolved)?) };
        let Some(Length { bytes: size, failed }) = length else {
            // As other files of the system look that are made as they are read.
            return Ok(Attributes { size: 0, allocated: 0, permissions, mtime, ctime, computed: Some(0), ..own });
        };
        let (number, _) = resolved.version.split_first_chunk().expect("a digest is longer");
        // 0 is for what gives nothing, for now.
        let computed = Some(if failed.is_some() { 0 } else { u64::from_le_bytes(*number) | 1 });
        Ok(Attributes { size, allocated: size, permissions, mtime, ctime, computed, ..own })
    }

    /// Has those told when that changes who keep what they read of link `ino`, which leads to
    /// `resolved`.
    pub(crate) fn watch_read(&mut self, ino: Ino, resolved: &Resolved) {
        // Of one that is watched nothing has changed.
        if self.links.watches.is_wanted && !self.links.watches.is_watched(ino) {
            self.links.watches.watch(ino, &resolved.causes.all());
        }
    }
}

/// True if everybody may be told what inode `ino` of `vfs` gives: it is no link, or a link to what
/// everybody may read.
pub fn is_for_everybody(vfs: &Vfs, ino: Ino) -> bool {
    let _asking = Asker::Anybody.asks();
    let resolves = |links: Links<'_>| links.run(|state| state.resolve(ino)).is_ok();
    !vfs.is_opaque(ino).unwrap_or(false) || vfs.links().is_ok_and(resolves)
}
