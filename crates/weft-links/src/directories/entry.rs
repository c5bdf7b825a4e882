//! Entries of views that are links. Each says where in its view it is, and no more: all else is the
//! view's, and is looked up there whenever somebody asks. So one takes a few hundred bytes whatever
//! the view's network is, however many of them programs hold.

use crate::attachment::Attachment;
use crate::definition::Part;
use crate::definition::compiled::Link;
use crate::linked_tree::LinkedTree;
use std::sync::Arc;
use weft_store::{Ino, Kind, Name};
use weft_tree::{Cached, Error, ErrorKind, Stop, is_virtual};

/// Bytes that links of members of archives may take which were used lately.
pub(crate) const MEMBERS_BYTES_MAX: usize = 4 << 20;

/// The place and kind of an entry of a view.
#[derive(Clone, Debug)]
pub(crate) struct Shows {
    below: Arc<Below>,
    what: What,
}

/// Way in which a view shows an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// As a directory.
    Directory,
    /// As a file that it transforms.
    Transformed,
    /// As a file that it leaves as it is.
    Untouched,
    /// As a member of an archive, which `unpack` makes of part of it: `size` bytes.
    Member { unpack: String, part: Part, size: u64 },
}

/// A place below a view. Those in a directory share the way there.
#[derive(Debug)]
pub(crate) struct Below {
    directory: Option<Arc<Below>>,
    name: Name,
}

impl Below {
    /// The path from the view on.
    fn path(&self) -> Vec<u8> {
        let mut names = vec![self.name.as_bytes()];
        let mut at = self;
        while let Some(directory) = &at.directory {
            names.push(directory.name.as_bytes());
            at = directory;
        }
        names.reverse();
        names.join(&b'/')
    }
}

impl Drop for Below {
    /// Lets go of the way there without a call in a call for each directory: there may be
    /// thousands.
    fn drop(&mut self) {
        let mut next = self.directory.take();
        while let Some(directory) = next {
            next = Arc::into_inner(directory).and_then(|mut alone| alone.directory.take());
        }
    }
}

impl Shows {
    /// True if `other` shows the same, of the same inode.
    pub(crate) fn is_like(&self, other: &Shows) -> bool {
        self.what == other.what
    }

    /// Bytes of memory, about.
    pub(crate) fn bytes(&self) -> usize {
        let member = if let What::Member { unpack, .. } = &self.what { unpack.len() + 16 } else { 0 };
        size_of::<Shows>() + size_of::<Below>() + self.below.name.as_bytes().len() + member + 48
    }
}

/// The link that computes a member of an archive.
pub(crate) struct MemberLink(Arc<Link>);

impl Cached for MemberLink {
    fn is_pinned(&self) -> bool {
        false
    }
    fn weight(&self) -> usize {
        self.0.bytes() + 128
    }
}

impl LinkedTree<'_> {
    /// Describes the entry `name` of `view` (or of an entry of one), shown as `what`.
    pub(crate) fn shows(&mut self, view: Ino, name: &Name, what: What) -> Result<Arc<Shows>, Stop> {
        let directory = Attachment::shows(self.tree.inode(view)?).map(|shows| shows.below.clone());
        Ok(Arc::new(Shows { below: Arc::new(Below { directory, name: name.clone() }), what }))
    }

    /// The link that entry `ino` of `view`, which is in the volume, is. As [`LinkedTree::link_of`]
    /// of that.
    pub(crate) fn link_shown(&mut self, ino: Ino, view: Ino, shows: &Shows) -> Result<Arc<Link>, Stop> {
        if let Some(known) = self.links.members.get(&ino) {
            return Ok(known.0.clone());
        }
        let view = self.link_of(view)?;
        let path = || shows.below.path();
        let link = match &shows.what {
            What::Directory => Some(view.directory(&path())),
            What::Transformed => Some(view.transformed(&path())),
            What::Untouched => view.untouched(&path()),
            What::Member { unpack, part, size } => view.member(unpack, *size, *part),
        };
        let link = Arc::new(link.ok_or_else(|| Error::new(ErrorKind::NotSupported, ino))?);
        if let What::Member { .. } = &shows.what {
            self.links.members.insert(ino, MemberLink(link.clone()));
            while self.links.members.evict().is_some() {}
        }
        Ok(link)
    }

    /// True if link `ino` looks like a directory.
    pub(crate) fn looks_like_directory(&mut self, ino: Ino) -> Result<bool, Stop> {
        match Attachment::shows(self.tree.inode(ino)?) {
            Some(shows) => Ok(shows.what == What::Directory),
            None => Ok(self.link_of(ino)?.looks.is_some()),
        }
    }

    /// True if `ino` is an entry of a view, and not a network that is pushed onto a file.
    pub(crate) fn is_shown(&mut self, ino: Ino) -> Result<bool, Stop> {
        Ok(is_virtual(ino) && !Attachment::is_pushed(self.tree.inode(ino)?))
    }

    /// The path of what `ino` shows, if it is an entry of a view.
    pub(crate) fn shown_target(&mut self, ino: Ino) -> Result<Option<Vec<u8>>, Stop> {
        if !is_virtual(ino) || self.tree.inode(ino)?.row.kind != Kind::Transformation {
            return Ok(None);
        }
        Ok(Some(self.link_of(ino)?.data_path().to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_below_a_view_takes_no_stack_however_deep_it_is() {
        let name = Name::new(b"d").expect("a name");
        let mut below = Arc::new(Below { directory: None, name: name.clone() });
        for _ in 0..1_000_000 {
            below = Arc::new(Below { directory: Some(below), name: name.clone() });
        }
        assert_eq!(below.path().len(), 2 * 1_000_000 + 1);
    }
}
