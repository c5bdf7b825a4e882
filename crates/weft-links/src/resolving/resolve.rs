//! Follows links to their targets, as the volume is now.

use super::attributes::{READ, WRITE};
use super::causes::Causes;
use super::reach::{MAY_READ, MAY_SEARCH, MAY_WRITE, Maker, Step};
use super::rights::{Owner, rights};
use super::steps::Steps;
use super::watch::{Cause, Of};
use crate::Version;
use crate::definition::compiled::Link;
use crate::definition::{Looks, Writing};
use crate::linked_tree::LinkedTree;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use weft_store::{Ino, Kind, Timestamp};
use weft_tree::{ErrorKind, Inode, Result, Stop, is_virtual};

/// Links from which links may be made, one from the other.
pub(crate) const DEPTH_MAX: usize = 16;

/// Bytes of a definition that are digested or copied for each step that they count as.
pub(crate) const DIGESTED_A_STEP: usize = 512;

/// Targets that are copied for each step that they count as.
const COPIED_A_STEP: usize = 64;

/// A resolved link.
#[derive(Clone, Debug)]
pub(crate) struct Resolved {
    pub(crate) link: Arc<Link>,
    pub(crate) targets: Vec<Ino>,
    /// Version of its targets' content.
    pub(crate) source: Version,
    /// Version of its content.
    pub(crate) version: Version,
    /// True if its data lie in a file, and are not the content of another link.
    pub(crate) is_of_file: bool,
    /// True if computing it needs keys: its content must not be stored in the clear.
    pub(crate) is_secret: bool,
    /// Mode in which it can be written.
    pub(crate) writing: Writing,
    /// True if everybody may be told what it leads to ([`crate::resolving::reach`]).
    pub(crate) is_for_all: bool,
    /// True if the asker and all makers may write to its data.
    pub(crate) may_write: bool,
    /// The causes that all this depends on.
    pub(super) causes: Arc<Causes>,
    /// Rights of the three classes on all targets at once, as permission bits.
    pub(super) rights: u32,
    pub(super) mtime: Timestamp,
    pub(super) ctime: Timestamp,
}

/// Links that are being resolved.
#[derive(Default)]
pub(crate) struct Resolving {
    /// Number of links being resolved, each for the sake of the one before.
    depth: usize,
    /// The makers of those, none twice.
    pub(crate) makers: Vec<Maker>,
    /// True if something on the way of the first of them, as far as it was followed, is not for
    /// everybody.
    pub(super) is_private: bool,
    /// Those that were, for the first of them: nothing changes meanwhile, and ways through views
    /// come to the same ones again and again. With the makers whose rights were asked for.
    known: FxHashMap<(Ino, Vec<Maker>), Resolved>,
    /// Steps that all of them took.
    steps: Steps,
}

impl Resolving {
    /// Begins with another request, which holds the lock from now on. A long resolving stops with
    /// `Miss::Turn` if it `takes_turns`.
    pub(crate) fn begin(&mut self, takes_turns: bool) {
        self.steps.begin(takes_turns);
    }

    /// Begins with another link.
    pub(crate) fn restart(&mut self) {
        self.steps.restart();
    }

    /// Takes `steps` for what is done as if a link were resolved.
    pub(crate) fn take_alone(&mut self, steps: usize) -> Result<(), Stop> {
        self.steps.take(steps)
    }

    /// Takes `steps` for the links that are being resolved, if any are. `Loop` if that is too many;
    /// `Miss::Turn` if they wait for one.
    pub(crate) fn take(&mut self, steps: usize) -> Result<(), Stop> {
        if self.depth > 0 { self.steps.take(steps) } else { Ok(()) }
    }
}

impl LinkedTree<'_> {
    /// Resolves link `ino`. `AccessDenied` if it is closed to the asker
    /// ([`crate::resolving::reach`]), `NotFound`, `Loop`, `IsDirectory`, `Invalid` (it leads to an
    /// inode that is no file), `Corrupt`.
    pub(crate) fn resolve(&mut self, ino: Ino) -> Result<Resolved, Stop> {
        if self.links.resolving.depth >= DEPTH_MAX {
            return Err(ErrorKind::Loop.into());
        }
        let maker = self.maker_of(ino)?;
        let makers = &mut self.links.resolving.makers;
        let is_another = maker.uid != 0 && !makers.contains(&maker);
        if is_another {
            makers.push(maker);
        }
        let resolved = if self.links.resolving.depth == 0 { self.resolve_first(ino) } else { self.resolve_known(ino) };
        if is_another {
            self.links.resolving.makers.pop();
        }
        resolved
    }

    fn resolve_first(&mut self, ino: Ino) -> Result<Resolved, Stop> {
        self.links.resolving.depth = 1;
        self.links.resolving.is_private = false;
        self.links.resolving.restart();
        let resolved = self.resolve_anew(ino);
        self.links.resolving.depth = 0;
        self.links.resolving.known.clear();
        resolved
    }

    fn resolve_known(&mut self, ino: Ino) -> Result<Resolved, Stop> {
        let key = (ino, self.links.resolving.makers.clone());
        if let Some(known) = self.links.resolving.known.get(&key) {
            return Ok(known.clone());
        }
        self.links.resolving.depth += 1;
        let resolved = self.resolve_anew(ino);
        self.links.resolving.depth -= 1;
        if let Ok(resolved) = &resolved {
            self.links.resolving.known.insert(key, resolved.clone());
        }
        resolved
    }

    fn resolve_anew(&mut self, ino: Ino) -> Result<Resolved, Stop> {
        let link = self.link_of(ino)?;
        self.links.resolving.take(1 + link.definition.network.len() / DIGESTED_A_STEP)?;
        // Entries of views share those of the view.
        if let Some(names) = link.names().filter(|_| !is_virtual(ino)) {
            self.links.resolving.take(names.compile_steps())?;
        }
        let row = &self.tree.inode(ino)?.row;
        let owner = Owner { uid: row.uid, gid: row.gid };
        let mut content = Vec::new();
        let (mtime, ctime) = (row.mtime, row.ctime);
        // Of an entry of a view it was asked whose the view is.
        if !is_virtual(ino) && !self.may_have(&link, owner.uid) {
            return Err(ErrorKind::NotPermitted.into());
        }
        let (targets, source, version) = (Vec::new(), Version::default(), Version::default());
        let is_secret = link.has_keys();
        // Who writes all of it anew has to tell when that is done.
        let writing = if self.links.is_told_of_opens { link.writing() } else { by_places_alone(link.writing()) };
        let mut resolved = Resolved {
            is_secret,
            writing,
            targets,
            source,
            version,
            is_of_file: false,
            is_for_all: true,
            may_write: true,
            causes: Arc::default(),
            rights: 0o777,
            mtime,
            ctime,
            link: link.clone(),
        };
        for (number, path) in link.targets().enumerate() {
            self.links.resolving.take(1)?;
            let (target, way) = match link.of {
                Some(target) if number == link.data => (target, 0o777),
                _ => self.walk(path, owner, &mut resolved)?,
            };
            resolved.follows_from((target, Of::Itself));
            let (times, rights) = self.reach(&mut resolved, &mut content, (number, target), owner)?;
            // Who uses the file onto which it is pushed has opened that.
            let rights = if link.of == Some(target) { 0o777 } else { rights };
            resolved.rights &= way & rights;
            resolved.mtime = resolved.mtime.max(times.0);
            resolved.ctime = resolved.ctime.max(times.1);
            resolved.targets.push(target);
        }
        resolved.source = weft_digest::digest(&content);
        if let Some(part) = link.part {
            if part.of != resolved.source {
                // Where it was, there is something else now.
                return Err(ErrorKind::Stale.into());
            }
            content.extend([part.start, part.len].into_iter().flat_map(u64::to_le_bytes));
        }
        content.extend(link.definition.network.as_bytes());
        // What is written to it and not in its target yet.
        content.extend(self.links.drafts.get(ino).map_or(0, |draft| draft.change()).to_le_bytes());
        resolved.version = weft_digest::digest(&content);
        Ok(resolved)
    }

    /// Adds to `resolved` what follows from one of its targets, and to `content` what tells which
    /// content that has; gives its times and what the classes of `owner` may do with it.
    fn reach(
        &mut self,
        resolved: &mut Resolved,
        content: &mut Vec<u8>,
        (number, target): (usize, Ino),
        owner: Owner,
    ) -> Result<((Timestamp, Timestamp), u32), Stop> {
        let link = resolved.link.clone();
        let wants_directory = number == link.data && matches!(link.looks, Some(Looks::Directory(_)));
        let row = &self.tree.inode(target)?.row;
        let (kind, step) = (row.kind, Step::of(row));
        // Who uses the file onto which it is pushed has opened that.
        if link.of != Some(target) && matches!(kind, Kind::File | Kind::Directory) {
            let wanted = if kind == Kind::Directory { MAY_READ | MAY_SEARCH } else { MAY_READ };
            self.reached(resolved, step, wanted, number == link.data)?;
        }
        match kind {
            Kind::Transformation => {
                match (wants_directory, self.looks_like_directory(target)?) {
                    (false, true) => return Err(ErrorKind::IsDirectory.into()),
                    (true, false) => return Err(ErrorKind::NotDirectory.into()),
                    _ => {}
                }
                let inner = self.resolve(target)?;
                self.links.resolving.take(inner.steps())?;
                if link.of != Some(target) {
                    let wanted = if wants_directory { MAY_READ | MAY_SEARCH } else { MAY_READ };
                    self.reached(resolved, step, wanted, number == link.data)?;
                }
                // What is pushed onto a link gives what that gives.
                resolved.is_for_all &= inner.is_for_all;
                resolved.may_write &= number != link.data || inner.may_write;
                content.extend(inner.version);
                resolved.is_secret |= inner.is_secret;
                if number == link.data {
                    resolved.writing = through(resolved.writing, inner.writing);
                }
                Arc::make_mut(&mut resolved.causes).add(&inner.causes);
                Ok(((inner.mtime, inner.ctime), self.rights_of_link(target, &inner, owner)?))
            }
            Kind::Directory if !wants_directory => Err(ErrorKind::IsDirectory.into()),
            Kind::File if wants_directory => Err(ErrorKind::NotDirectory.into()),
            Kind::File | Kind::Directory => {
                resolved.is_of_file |= number == link.data && kind == Kind::File;
                content.extend(stamp(self.tree.inode(target)?));
                let has_acl = self.has_acl(target)?;
                let row = &self.tree.inode(target)?.row;
                Ok(((row.mtime, row.ctime), rights(row, has_acl, owner)))
            }
            _ => Err(ErrorKind::Invalid.into()),
        }
    }

    /// Notes in `resolved` who may do what with the inode of `step`, of which those who ask need to
    /// have `wanted`. `AccessDenied`.
    pub(super) fn reached(
        &mut self,
        resolved: &mut Resolved,
        step: Step,
        wanted: u32,
        is_data: bool,
    ) -> Result<(), Stop> {
        let writes = if is_data && resolved.writing != Writing::Not { MAY_WRITE } else { 0 };
        let rights = self.rights_to(step, wanted | writes)?;
        if rights.of_these & wanted != wanted {
            return Err(ErrorKind::AccessDenied.into());
        }
        let is_private = rights.of_everybody & wanted != wanted;
        resolved.is_for_all &= !is_private;
        self.links.resolving.is_private |= is_private;
        resolved.may_write &= !is_data || rights.of_these & MAY_WRITE != 0;
        Ok(())
    }

    /// Returns the version of the content of file or link `ino`.
    pub(crate) fn content_of(&mut self, ino: Ino) -> Result<Version, Stop> {
        let inode = self.tree.inode(ino)?;
        if inode.row.kind != Kind::Transformation {
            return Ok(weft_digest::digest(&stamp(inode)));
        }
        Ok(self.resolve(ino)?.version)
    }

    /// True if links of user `uid` work, and that user may have, and ordered, all code that `link`
    /// runs, and may use its keys.
    fn may_have(&self, link: &Link, uid: u32) -> bool {
        let has_keys = self.links.options.gives_keys(uid);
        let may_run = link.definition.trusted && self.links.options.exported.allows(uid);
        self.links.options.owners.allows(uid) && (!link.is_exported() || may_run) && (!link.has_keys() || has_keys)
    }
}

impl Resolved {
    /// The first target that holds no code for the network, and the only one of a link that keeps
    /// anything of it, or looks like a directory.
    pub(crate) fn data(&self) -> Ino {
        self.targets[self.link.data]
    }

    /// Notes that it follows from `cause`. It is shared with nobody yet.
    pub(super) fn follows_from(&mut self, cause: Cause) {
        Arc::make_mut(&mut self.causes).own().push(cause);
    }

    /// The steps that copying it counts as.
    pub(super) fn steps(&self) -> usize {
        1 + self.targets.len() / COPIED_A_STEP
    }

    /// Returns its version: that of its content, and the time of the attributes of what it leads
    /// to.
    pub(crate) fn told(&self) -> (Version, Timestamp) {
        (self.version, self.ctime)
    }

    /// The inodes that it follows from.
    pub(crate) fn sources(&self) -> impl Iterator<Item = Ino> + use<> {
        self.causes.all().into_iter().filter(|(_, of)| *of == Of::Itself).map(|(ino, _)| ino)
    }

    /// True if inode `ino` is on the way to its targets.
    pub(crate) fn leads_by(&self, ino: Ino) -> bool {
        self.causes.all().contains(&(ino, Of::Itself))
    }

    /// True if the link's owner may read all that it leads to.
    pub(crate) fn owner_may_read(&self) -> bool {
        self.rights & 0o400 != 0
    }

    /// True if any class has one of `rights` by way of the link. If not, users who opened the link
    /// when it led elsewhere have none either.
    pub(crate) fn lets_anybody(&self, rights: u32) -> bool {
        self.rights & rights != 0
    }

    /// The permission bits that a link to it can have.
    pub(super) fn permissions(&self) -> u32 {
        let rights = self.shown_permissions();
        if self.writing == Writing::Not { rights & !WRITE } else { rights }
    }

    /// The permission bits that a directory in a view shows: also the right to change it, which
    /// nobody has there, as a copy of it is to be changed as the original is.
    pub(super) fn shown_permissions(&self) -> u32 {
        // Who may read an archive may enter its directories, and run what is in them.
        let is_archive = self.link.part.is_some() || matches!(self.link.looks, Some(Looks::Archive { .. }));
        if is_archive { self.rights | (self.rights & READ) >> 2 } else { self.rights }
    }
}

/// Returns the writing mode of a link that leads through a link with the mode `inner`.
fn through(writing: Writing, inner: Writing) -> Writing {
    match (writing, inner) {
        (Writing::Not, _) | (_, Writing::Not) => Writing::Not,
        (Writing::Places, Writing::Places) => Writing::Places,
        _ => Writing::Whole,
    }
}

fn by_places_alone(writing: Writing) -> Writing {
    if writing == Writing::Whole { Writing::Not } else { writing }
}

/// Returns bytes that identify the current content of file `inode`: they change with it.
fn stamp(inode: &Inode) -> Vec<u8> {
    let row = &inode.row;
    // What was not changed since it was read from the store changed last when its attributes did,
    // or before.
    let changed = if inode.content.0 == 0 { row.ctime.0.cast_unsigned() } else { 0 };
    [row.ino.0, row.generation.into(), inode.content.0, changed, row.size]
        .into_iter()
        .flat_map(u64::to_le_bytes)
        .collect()
}
