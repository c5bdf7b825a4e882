//! Where a network of a link reads: the link's targets, as they were when it began.
//!
//! The asker was let read them then ([`crate::resolving::reach`]); a network runs in any thread, so
//! from then on only its makers have to have that right.

use crate::Version;
use crate::definition::compiled::Link;
use crate::layer::Links;
use crate::resolving::resolve::Resolved;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Weak};
use weft_block::Slice;
use weft_store::Ino;
use weft_transform::{Bounds, Source, Sources};
use weft_tree::{Error, ErrorKind, is_virtual};
use weft_vfs::Asker;
use weft_vfs::Vfs;

/// Bytes read at once.
const READ_BYTES: usize = 1 << 20;

/// The targets of a link, in one version.
#[derive(Clone)]
pub(crate) struct Targets {
    pub(crate) vfs: Weak<Vfs>,
    pub(crate) ino: Ino,
    pub(crate) version: Version,
    pub(crate) link: Arc<Link>,
    inodes: Vec<Ino>,
}

/// Reason why a target cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TargetError {
    /// It is not what it was when the network began.
    #[error("what is read has changed")]
    Changed,
    /// Reading fails.
    #[error(transparent)]
    Vfs(#[from] Error),
}

impl Targets {
    pub(crate) fn new(vfs: Weak<Vfs>, ino: Ino, resolved: &Resolved) -> Targets {
        let Resolved { link, targets, version, .. } = resolved;
        Targets { vfs, ino, version: *version, link: link.clone(), inodes: targets.clone() }
    }

    /// True if the link still leads to the same version.
    fn are_the_same(&self, links: Links<'_>) -> bool {
        let _asking = Asker::Holder.asks();
        links.run(|state| state.resolve(self.ino)).is_ok_and(|now| now.version == self.version)
    }

    fn part(&self) -> Range<u64> {
        self.link.part.map_or(0..u64::MAX, |part| part.start..part.start.saturating_add(part.len))
    }

    fn open(&self, inodes: Vec<Ino>, part: Range<u64>) -> Box<dyn Source> {
        Box::new(Files { targets: self.clone(), module: None, left: inodes.into_iter(), part, open: None })
    }
}

impl Sources for Targets {
    fn input(&mut self) -> io::Result<Box<dyn Source>> {
        let is_data = |(number, _): &(usize, &Ino)| !self.link.modules.contains(number);
        let data = self.inodes.iter().enumerate().filter(is_data).map(|(_, ino)| *ino).collect();
        Ok(self.open(data, self.part()))
    }

    fn file(&mut self, number: usize) -> io::Result<Box<dyn Source>> {
        let ino = self.inodes[number];
        if !self.link.modules.contains(&number) {
            return Ok(self.open(vec![ino], self.part()));
        }
        let vfs = self.vfs.upgrade().ok_or_else(|| io::Error::other(TargetError::Changed))?;
        let _asking = Asker::Holder.asks();
        let content = Links::of(&vfs)
            .run(|state| state.content_of(ino))
            .map_err(|error| io::Error::other(TargetError::from(error)))?;
        let (targets, left) = (self.clone(), vec![ino].into_iter());
        Ok(Box::new(Files { targets, module: Some((ino, content)), left, part: 0..u64::MAX, open: None }))
    }

    fn stamp(&mut self, number: usize) -> io::Result<Option<Version>> {
        let vfs = self.vfs.upgrade().ok_or_else(|| io::Error::other(TargetError::Changed))?;
        let _asking = Asker::Holder.asks();
        let content = Links::of(&vfs).run(|state| state.content_of(self.inodes[number]));
        content.map(Some).map_err(|error| io::Error::other(TargetError::from(error)))
    }

    fn owner(&self) -> Option<u32> {
        let owner = |vfs: Arc<Vfs>| {
            Links::of(&vfs).run(|state| {
                let row = &state.tree.inode(self.ino)?.row;
                // What a view shows is another's, who has not said what is done with it.
                let maker = if is_virtual(self.ino) { row.parent } else { self.ino };
                Ok(state.tree.inode(maker)?.row.uid)
            })
        };
        // If it is gone meanwhile, it is nobody's.
        Some(self.vfs.upgrade().and_then(|vfs| owner(vfs).ok()).unwrap_or(u32::MAX))
    }

    fn bounds(&self) -> Option<Bounds> {
        // What is unmounted meanwhile ends soon.
        Some(self.vfs.upgrade().map_or_else(Bounds::default, |vfs| Links::of(&vfs).layer.options.networks))
    }

    fn key(&mut self, name: &str) -> io::Result<Vec<u8>> {
        let vfs = self.vfs.upgrade().ok_or_else(|| io::Error::other(TargetError::Changed))?;
        let none =
            || io::Error::new(io::ErrorKind::NotFound, "the volume was mounted without keys ('weft mount --keys')");
        weft_transform::read_key(&Links::of(&vfs).layer.options.keys.as_ref().ok_or_else(none)?.directory, name)
    }
}

/// Files that are read one after the other.
struct Files {
    targets: Targets,
    left: std::vec::IntoIter<Ino>,
    /// If it is a module, and what it was when it was opened: what else the link leads to may
    /// change meanwhile, as by who writes through it.
    module: Option<(Ino, Version)>,
    /// Range of bytes to read of each file.
    part: Range<u64>,
    /// A file, and where in it; with what was read of it and not given yet.
    open: Option<(Ino, u64, std::vec::IntoIter<Slice>)>,
}

impl Files {
    fn read(&mut self) -> Result<Option<Slice>, TargetError> {
        let _asking = Asker::Holder.asks();
        loop {
            let Some((ino, at, slices)) = &mut self.open else {
                let Some(next) = self.left.next() else { return Ok(None) };
                self.open = Some((next, self.part.start, Vec::new().into_iter()));
                continue;
            };
            if let Some(slice) = slices.find(|slice| !slice.is_empty()) {
                return Ok(Some(slice));
            }
            // Who unmounts wants nothing computed any more.
            let vfs = self.targets.vfs.upgrade().ok_or(TargetError::Changed)?;
            let len = usize::try_from(self.part.end - *at).map_or(READ_BYTES, |left| left.min(READ_BYTES));
            let rope = match vfs.read(*ino, *at, len) {
                // What appeared in a view is forgotten when many others did, and appears again.
                Err(error) if error.kind() == ErrorKind::Stale && is_virtual(*ino) => {
                    return Err(TargetError::Changed);
                }
                rope => rope?,
            };
            let is_the_same = match self.module {
                Some((ino, content)) => Links::of(&vfs).run(|state| state.content_of(ino))? == content,
                None => self.targets.are_the_same(Links::of(&vfs)),
            };
            if !is_the_same {
                return Err(TargetError::Changed);
            }
            if rope.is_empty() {
                self.open = None;
                continue;
            }
            *at += rope.len() as u64;
            *slices = rope.slices().to_vec().into_iter();
        }
    }
}

impl Source for Files {
    fn next(&mut self) -> io::Result<Option<Slice>> {
        self.read().map_err(|error| match error {
            TargetError::Vfs(error) if error.kind() == ErrorKind::Interrupted => io::ErrorKind::Interrupted.into(),
            error => io::Error::other(error),
        })
    }

    fn is_at_hand(&self) -> bool {
        true
    }
}
