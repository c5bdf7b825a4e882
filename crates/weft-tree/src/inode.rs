//! An inode in memory, with what is known of its content, attributes and entries.

use crate::attributes::{Attributes, Reach};
use crate::clock_map::Cached;
use crate::data::FileData;
use crate::inodes::is_virtual;
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use weft_store::{Cookie, Ino, InodeRow, Kind, Name, OpNo};

/// Generation of changes: a commit takes one. An item is dirty if it changed in one that has
/// not been committed; `Generation(0)` marks a clean one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Changed(pub u64);

impl Changed {
    /// Nothing to commit.
    pub const CLEAN: Changed = Changed(0);

    /// What changed in `generation`, which is in the store now, is clean.
    pub(crate) fn committed(&mut self, generation: Changed) {
        if *self == generation {
            *self = Changed::CLEAN;
        }
    }
}

/// What those who compute an opaque inode keep with it: they can make it again.
pub trait Attached: Any + Debug + Send {
    /// Bytes that it takes, about.
    fn weight(&self) -> usize;
}

/// An inode.
#[derive(Debug)]
pub struct Inode {
    /// Its row as the next commit would write it.
    pub row: InodeRow,
    /// Generation of its last change.
    pub changed: Changed,
    /// True if the store has (or is being given) a row for it.
    pub stored: bool,
    /// Generation in which somebody lost rights on it last, if the store has its row of before.
    pub closed: Changed,
    /// True if it was deleted; then it only waits for the commit that deletes its row.
    pub dead: bool,
    /// The operation that changed its content last, if that was since it was read from the store.
    pub content: OpNo,
    /// An operation not before the last one that changed anything of it.
    pub touched: OpNo,
    /// What is known of an opaque inode by those who compute it.
    pub attached: Option<Box<dyn Attached>>,
    /// Content of a regular file.
    pub data: Option<Box<FileData>>,
    /// Extended attributes, once looked at.
    pub xattrs: Option<Box<Xattrs>>,
    /// State of a directory's entries as a whole.
    pub directory: Option<Box<Directory>>,
}

/// All extended attributes of an inode.
#[derive(Debug, Default)]
pub struct Xattrs {
    /// Name to value.
    pub map: BTreeMap<Name, Vec<u8>>,
    /// Names whose rows the next commit writes or deletes.
    pub changed: BTreeSet<Name>,
}

impl Xattrs {
    /// The number of attributes, as their inode's row has it.
    pub fn count(&self) -> u32 {
        u32::try_from(self.map.len()).unwrap_or(u32::MAX)
    }

    /// Bytes they take, about.
    fn weight(&self) -> usize {
        self.map.iter().map(|(name, value)| name.as_bytes().len() + value.len() + 96).sum()
    }
}

/// Bytes of attributes that an inode keeps however many others there are.
const XATTRS_KEPT_BYTES: usize = 4 << 10;

/// Entries that a directory in memory lists by itself; of one with more only those are kept that
/// the store may not list.
pub const LISTED_MAX: usize = 1024;

/// Entries of a directory that the store does not list yet, or lists still.
#[derive(Debug, Default)]
pub struct Directory {
    /// True if every entry is in memory: a name that is not there does not exist.
    pub complete: bool,
    /// True if `added` holds every entry: the store need not be asked for a list.
    pub listed: bool,
    /// True if the store was asked for missing or damaged rows of entries, and found none.
    pub is_whole: bool,
    /// Entries the store may not list.
    pub added: BTreeMap<Cookie, Added>,
    /// Cookies the store may list although they are gone.
    pub removed: BTreeMap<Cookie, Changed>,
}

/// An entry the store may not list yet.
#[derive(Clone, Debug)]
pub struct Added {
    /// Its name.
    pub name: Name,
    /// The inode that it names.
    pub ino: Ino,
    /// Kind of what it names.
    pub kind: Kind,
    /// Generation in which it was added.
    pub changed: Changed,
}

impl Inode {
    /// An inode just read from the store.
    pub fn loaded(row: InodeRow) -> Inode {
        Inode {
            row,
            changed: Changed::CLEAN,
            stored: true,
            closed: Changed::CLEAN,
            dead: false,
            content: OpNo(0),
            touched: OpNo(0),
            attached: None,
            data: None,
            xattrs: None,
            directory: None,
        }
    }

    /// Its attributes, as its row has them. Those of an opaque inode are for whoever computes it to
    /// tell.
    pub fn attributes(&self) -> Attributes {
        let row = &self.row;
        Attributes {
            ino: row.ino,
            generation: row.generation,
            kind: row.kind,
            permissions: row.permissions,
            uid: row.uid,
            gid: row.gid,
            nlink: row.nlink,
            rdev: row.rdev,
            size: row.size,
            allocated: row.allocated,
            atime: row.atime,
            mtime: row.mtime,
            ctime: row.ctime,
            btime: row.btime,
            // A virtual one may be something else the next time.
            computed: is_virtual(row.ino).then_some(1),
            reach: Reach::Everybody,
        }
    }

    /// Its content, to look at or to change.
    pub fn data(&mut self) -> &mut FileData {
        let has_extents = self.row.inline.is_none() && self.row.allocated > 0;
        self.data.get_or_insert_with(|| {
            Box::new(if has_extents { FileData::default() } else { FileData::without_extents() })
        })
    }

    /// Its directory part.
    pub fn directory(&mut self) -> &mut Directory {
        self.directory.get_or_insert_default()
    }
}

impl Cached for Inode {
    fn is_pinned(&self) -> bool {
        // Blocks of a clean one may be merged by the commit in flight: who reads it from the store
        // meanwhile would believe the old ones.
        self.changed != Changed::CLEAN || self.data.as_ref().is_some_and(|data| !data.dirty.is_empty())
    }

    fn weight(&self) -> usize {
        size_of::<Inode>()
            + 64
            + self.row.inline.as_ref().map_or(0, |bytes| bytes.len() + 64)
            + self.attached.as_ref().map_or(0, |attached| attached.weight())
            + self.data.as_ref().map_or(0, |data| data.weight())
            + self.xattrs.as_ref().map_or(0, |xattrs| xattrs.weight())
            + self.directory.as_ref().map_or(0, |directory| {
                // What a commit will not take away.
                let listed = if directory.listed { directory.added.len() } else { 0 };
                size_of::<Directory>() + listed * (size_of::<(Cookie, Added)>() + 16)
            })
    }
    /// Drops what can be read again: the definition of a link from its row, a file's map and
    /// attributes from the store.
    fn shed(&mut self) -> bool {
        let has_attached = self.attached.take().is_some();
        // Those of one that changed may be on their way to the store.
        let has_xattrs = !self.is_pinned()
            && self.xattrs.take_if(|xattrs| xattrs.changed.is_empty() && xattrs.weight() > XATTRS_KEPT_BYTES).is_some();
        self.data.as_mut().is_some_and(|data| data.shed()) || has_attached || has_xattrs
    }
}

impl Cached for Box<Inode> {
    fn is_pinned(&self) -> bool {
        self.as_ref().is_pinned()
    }
    fn weight(&self) -> usize {
        self.as_ref().weight()
    }
    fn shed(&mut self) -> bool {
        self.as_mut().shed()
    }
}
