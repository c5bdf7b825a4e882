//! The way to a commit: `.weft`, `at` in it, and the moments there.

use super::node::{Identity, PastInode, PastNode};
use super::views::View;
use super::{Found, MovingName};
use crate::asker::{Asker, MAY_SEARCH};
use crate::volume::Vfs;
use weft_store::{CommitNo, Cookie, HistoryFor, Ino, InvalidMoment, Kind, Moment, Name, PinKind};
use weft_tree::{Attributes, Caller, DirEntry, Error, ErrorKind, Holds, Reach, Result};

/// Name of the directory of moments.
const AT: &[u8] = b"at";

/// The reason that nothing is shown as of a moment.
#[derive(Debug, thiserror::Error)]
pub enum MomentError {
    /// The text names none.
    #[error(transparent)]
    Invalid(#[from] InvalidMoment),
    /// Nothing is kept of it; in words.
    #[error("{0}")]
    NotKept(String),
    /// The user may not read it, or it could not be read.
    #[error(transparent)]
    Vfs(#[from] Error),
}

/// Where the cookies of listings begin: below it are those of `.` and `..`.
const FIRST_COOKIE: u64 = 3;

impl Vfs {
    /// Enters the past of `directory` by the name of its own, which no entry there has. `NotFound`
    /// unless the asker may read any of it.
    pub(crate) fn enter_past(&self, caller: Caller, directory: Ino) -> Result<Attributes> {
        self.permit_past()?;
        self.made(PastNode::Entrance(directory), caller.holds)
    }

    /// `NotFound` unless the asker may read any of the past.
    fn permit_past(&self) -> Result<()> {
        let readers = *self.past.readers.read();
        let may_enter = match readers {
            None => false,
            Some(HistoryFor::Root) => Asker::now(Asker::is_mighty),
            Some(HistoryFor::All | HistoryFor::Owner) => true,
        };
        if may_enter { Ok(()) } else { Err(ErrorKind::NotFound.into()) }
    }

    /// Attributes of what `name` in the made directory `parent` names.
    pub(super) fn lookup_made(
        &self,
        caller: Caller,
        parent: PastNode,
        name: &[u8],
        moving: MovingName,
    ) -> Result<Attributes> {
        match parent {
            PastNode::Entrance(directory) if name == AT => {
                // Another user may have been asked about on the way here.
                self.permit_past()?;
                self.made(PastNode::Moments(directory), caller.holds)
            }
            PastNode::Moments(directory) => self.lookup_moment(caller, directory, name, moving),
            PastNode::Entrance(_) => Err(ErrorKind::NotFound.into()),
            PastNode::Moment(..) | PastNode::Inode(_) => Err(ErrorKind::NotDirectory.into()),
        }
    }

    fn lookup_moment(&self, caller: Caller, directory: Ino, name: &[u8], moving: MovingName) -> Result<Attributes> {
        self.permit_past()?;
        let moment: Moment =
            std::str::from_utf8(name).ok().and_then(|name| name.parse().ok()).ok_or(ErrorKind::NotFound)?;
        let commit = self.past_commit(&moment).map_err(|error| match error {
            MomentError::Vfs(error) => error,
            MomentError::Invalid(_) | MomentError::NotKept(_) => ErrorKind::NotFound.into(),
        })?;
        match (moment, moving) {
            (Moment::Commit(_), _) | (_, MovingName::Directory) => self.enter_commit(caller.holds, directory, commit),
            (_, MovingName::Symlink) => self.made(PastNode::Moment(directory, commit), caller.holds),
        }
    }

    fn past_commit(&self, moment: &Moment) -> Result<CommitNo, MomentError> {
        self.may_read_rows()?;
        moment.past_commit(&*self.store, self.now()).map_err(|error| match error {
            weft_store::Error::Unusable(why) => MomentError::NotKept(why),
            error => MomentError::Vfs(error.into()),
        })
    }

    /// The root as of a moment, which `text` names, and the commit that it stands for.
    pub(crate) fn root_at(&self, caller: Caller, text: &str) -> Result<(Attributes, CommitNo), MomentError> {
        let moment: Moment = text.parse()?;
        if self.past.is_kept() {
            // Who may not read history hears nothing of it.
            self.permit_past()?;
        }
        let commit = self.past_commit(&moment)?;
        Ok((self.enter_commit(caller.holds, Ino::ROOT, commit)?, commit))
    }

    /// The directory `top` as of `commit`. `NotFound` if there was none, `AccessDenied` unless the
    /// asker may search the directories above it, wherever it lay then.
    fn enter_commit(&self, holds: Holds, top: Ino, commit: CommitNo) -> Result<Attributes> {
        let view = self.view(commit).map_err(|error| match error.kind() {
            ErrorKind::Stale => ErrorKind::NotFound.into(),
            _ => error,
        })?;
        let found = view.vfs.attributes(top);
        let attributes = match found {
            Err(error) if error.kind() == ErrorKind::Stale => return Err(ErrorKind::NotFound.into()),
            found => found?,
        };
        if attributes.kind != Kind::Directory {
            return Err(ErrorKind::NotFound.into());
        }
        view.permit_way_to(top)?;
        self.as_past(&view, PastInode { commit, top, ino: top }, attributes, holds)
    }

    /// Attributes of a made node.
    pub(super) fn made(&self, node: PastNode, holds: Holds) -> Result<Attributes> {
        let (PastNode::Entrance(directory) | PastNode::Moments(directory) | PastNode::Moment(directory, _)) = node
        else {
            return Err(ErrorKind::Stale.into());
        };
        let above = self.attributes(directory)?;
        let (kind, permissions, size) = match node {
            PastNode::Moment(_, commit) => (Kind::Symlink, 0o777, target(commit).len() as u64),
            _ => (Kind::Directory, 0o555, 0),
        };
        let ino = self.number_of(node, holds)?;
        let now = self.now();
        // Times say that what was kept of it may be old.
        Ok(Attributes {
            ino,
            generation: 0,
            kind,
            permissions,
            nlink: if kind == Kind::Directory { 2 } else { 1 },
            rdev: 0,
            size,
            allocated: 0,
            atime: now,
            mtime: now,
            ctime: now,
            computed: None,
            reach: Reach::Everybody,
            ..above
        })
    }

    /// The number of `node`.
    pub(super) fn number_of(&self, node: PastNode, holds: Holds) -> Result<Ino> {
        let identity = match node {
            PastNode::Inode(inode) => {
                let view = self.view(inode.commit)?;
                view.identity(inode)?
            }
            PastNode::Moment(..) if holds == Holds::Counted => self.past.numbers.single(),
            node => Identity::Node(node),
        };
        Ok(self.past.numbers.give(identity, node, holds))
    }

    /// Entries of made directory `node` after `after`.
    pub(super) fn list_made(&self, node: PastNode, after: Cookie, limit: usize) -> Result<Vec<DirEntry>> {
        let entries = match node {
            PastNode::Entrance(directory) => vec![(Name::new(AT)?, PastNode::Moments(directory), Kind::Directory)],
            PastNode::Moments(directory) => {
                self.may_read_rows()?;
                let mut snapshots = self.store.pins()?;
                snapshots.retain(|pin| pin.kind == PinKind::Snapshot);
                let entry = |pin: weft_store::Pin| {
                    let name = Name::new(&pin.name).ok()?;
                    Some((name, PastNode::Moment(directory, pin.commit), Kind::Symlink))
                };
                snapshots.into_iter().filter_map(entry).collect()
            }
            PastNode::Moment(..) | PastNode::Inode(_) => return Err(ErrorKind::NotDirectory.into()),
        };
        let listed = entries.into_iter().zip(FIRST_COOKIE..).filter(|(_, cookie)| *cookie > after.0).take(limit);
        listed
            .map(|((name, node, kind), cookie)| {
                let ino = self.past.numbers.give(Identity::Node(node), node, Holds::None);
                Ok(DirEntry { name, ino, kind, cookie: Cookie(cookie) })
            })
            .collect()
    }

    /// The target of made symbolic link `node`.
    pub(super) fn target_of_made(&self, node: PastNode) -> Result<Vec<u8>> {
        match node {
            PastNode::Moment(_, commit) => Ok(target(commit)),
            _ => Err(ErrorKind::Invalid.into()),
        }
    }

    /// The directory above `found`.
    pub(super) fn above(&self, caller: Caller, found: Found) -> Result<Attributes> {
        match found {
            Found::Made(PastNode::Entrance(directory)) => {
                let above = self.attributes(directory)?;
                if caller.holds == Holds::Counted {
                    self.hold(directory);
                }
                Ok(above)
            }
            Found::Made(PastNode::Moments(directory)) => self.made(PastNode::Entrance(directory), caller.holds),
            Found::Inode(_, PastInode { top, ino, .. }) if ino == top => {
                self.made(PastNode::Moments(top), caller.holds)
            }
            Found::Inode(view, inode) => {
                let above = view.vfs.parent(Caller { holds: Holds::None, ..caller }, inode.ino)?;
                self.as_past(&view, PastInode { ino: above.ino, ..inode }, above, caller.holds)
            }
            Found::Made(_) => Err(ErrorKind::NotDirectory.into()),
        }
    }
}

impl View {
    /// `AccessDenied` unless the asker may search all directories above `directory`.
    fn permit_way_to(&self, directory: Ino) -> Result<()> {
        if Asker::now(Asker::is_mighty) {
            return Ok(());
        }
        self.vfs.run(|state| {
            let mut at = directory;
            while at != Ino::ROOT {
                at = state.tree.directory(at)?.row.parent;
                if !state.asker_may(at, MAY_SEARCH)? {
                    return Err(ErrorKind::AccessDenied.into());
                }
            }
            Ok(())
        })
    }

    /// Identity of `inode`, which is of this commit.
    pub(super) fn identity(&self, inode: PastInode) -> Result<Identity> {
        let alone = Identity::Node(PastNode::Inode(inode));
        if weft_tree::is_virtual(inode.ino) {
            return Ok(alone);
        }
        let kind = self.vfs.run(|state| Ok(state.tree.inode(inode.ino)?.row.kind))?;
        if matches!(kind, Kind::Directory | Kind::Transformation) {
            return Ok(alone);
        }
        let since = self.at.since(inode.ino)?.ok_or(ErrorKind::Stale)?;
        Ok(Identity::Version(inode.ino, since))
    }
}

fn target(commit: CommitNo) -> Vec<u8> {
    format!("@{}", commit.0).into_bytes()
}
