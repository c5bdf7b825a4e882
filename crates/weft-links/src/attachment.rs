//! What is kept with the inode of a link or of an entry of a view.

use crate::definition::compiled::Link;
use crate::directories::entry::Shows;
use std::any::Any;
use std::sync::Arc;
use weft_tree::{Attached, Inode};

/// What is kept with an inode.
#[derive(Debug)]
pub(crate) enum Attachment {
    /// The compiled definition of a link in the volume.
    Link(Arc<Link>),
    /// A network that is pushed onto a file. What it is made of is counted there.
    Pushed(Arc<Link>),
    /// The place in its view, of an entry of a view that is a link.
    Shows(Arc<Shows>),
}

impl Attached for Attachment {
    fn weight(&self) -> usize {
        match self {
            Attachment::Link(link) => link.bytes(),
            Attachment::Pushed(link) => link.own_bytes(),
            Attachment::Shows(shows) => shows.bytes(),
        }
    }
}

impl Attachment {
    /// What is kept with `inode`.
    pub(crate) fn of(inode: &Inode) -> Option<&Attachment> {
        let attached: &dyn Any = inode.attached.as_deref()?;
        attached.downcast_ref()
    }

    /// The place in its view, of an entry of a view.
    pub(crate) fn shows(inode: &Inode) -> Option<&Arc<Shows>> {
        if let Some(Attachment::Shows(shows)) = Attachment::of(inode) { Some(shows) } else { None }
    }

    /// The compiled definition, of a link in the volume or a pushed network.
    pub(crate) fn link(inode: &Inode) -> Option<&Arc<Link>> {
        match Attachment::of(inode)? {
            Attachment::Link(link) | Attachment::Pushed(link) => Some(link),
            Attachment::Shows(_) => None,
        }
    }

    /// True if `inode` is a network that is pushed onto a file.
    pub(crate) fn is_pushed(inode: &Inode) -> bool {
        matches!(Attachment::of(inode), Some(Attachment::Pushed(_)))
    }

    /// Keeps this with `inode`.
    pub(crate) fn put(self, inode: &mut Inode) {
        inode.attached = Some(Box::new(self));
    }
}
