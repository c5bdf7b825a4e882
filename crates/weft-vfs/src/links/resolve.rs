//! What a link leads to, as the volume is now.

use super::Version;
use super::causes::Causes;
use super::compiled::Link;
use super::definition::{Looks, Writing};
use super::drafts::Drafted;
use super::reach::{MAY_READ, MAY_SEARCH, MAY_WRITE, Maker, Step};
use super::steps::Steps;
use super::view::Failure;
use super::watch::{Cause, Of};
use crate::state::State;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::time::Duration;
use weft_store::{Ino, InodeRow, Kind, Name, Timestamp};
use weft_tree::{ACCESS_ACL, Attributes, Error, ErrorKind, Inode, Miss, Reach, Result, Stop, is_virtual};

/// Links from which links may be made, one from the other.
pub(super) const DEPTH_MAX: usize = 16;

/// Symbolic links on the way to a target (Linux `MAXSYMLINKS`).
pub(super) const SYMLINKS_MAX: usize = 40;

/// Bytes of a definition that are digested or copied for each step that they count as.
pub(super) const DIGESTED_A_STEP: usize = 512;

/// Targets that are copied for each step that they count as.
const COPIED_A_STEP: usize = 64;

/// Time before an operation that failed in a way that may pass is retried: computing a length,
/// finding a name, reading from a hanging source.
pub(super) const RETRY: Duration = Duration::from_secs(1);

/// Lengths that are remembered.
const LENGTHS_MAX: usize = 1 << 16;

/// Rights of all three classes.
pub(super) const READ: u32 = 0o444;
pub(super) const WRITE: u32 = 0o222;
const OWNERS_WRITE: u32 = 0o200;
const SEARCH: u32 = 0o111;

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
    /// True if everybody may be told what it leads to ([`super::reach`]).
    pub(crate) is_for_all: bool,
    /// True if the asker and all makers may write to its data.
    pub(crate) may_write: bool,
    /// The causes that all this depends on.
    causes: Arc<Causes>,
    /// Rights of the three classes on all targets at once, as permission bits.
    rights: u32,
    mtime: Timestamp,
    ctime: Timestamp,
}

/// Links that are being resolved.
#[derive(Default)]
pub(crate) struct Resolving {
    /// Number of links being resolved, each for the sake of the one before.
    depth: usize,
    /// The makers of those, none twice.
    pub(super) makers: Vec<Maker>,
    /// True if something on the way of the first of them, as far as it was followed, is not for
    /// everybody.
    is_private: bool,
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
    pub(super) fn restart(&mut self) {
        self.steps.restart();
    }

    /// Takes `steps` for what is done as if a link were resolved.
    pub(super) fn take_alone(&mut self, steps: usize) -> Result<(), Stop> {
        self.steps.take(steps)
    }

    /// Takes `steps` for the links that are being resolved, if any are. `Loop` if that is too many;
    /// `Miss::Turn` if they wait for one.
    pub(super) fn take(&mut self, steps: usize) -> Result<(), Stop> {
        if self.depth > 0 { self.steps.take(steps) } else { Ok(()) }
    }
}

/// Policy for a length that is unknown before the content is computed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Measure {
    Never,
    Always,
    /// Unless the link leaves it open.
    IfWanted,
}

/// Owner and group whose classes permission bits describe.
#[derive(Clone, Copy)]
struct Owner {
    uid: u32,
    gid: u32,
}

/// The length of a version's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Length {
    pub(crate) bytes: u64,
    /// Failure of the computation, if it may pass.
    pub(crate) failed: Option<Failure>,
}

impl State {
    /// Attributes of inode `ino`, as programs see them: a transformation link is a regular file as
    /// long as what it gives. Of one that leads nowhere the length is 1, so that whoever reads it
    /// comes to hear of that.
    pub(crate) fn attributes(&mut self, ino: Ino) -> Result<Attributes, Stop> {
        let inode = self.tree.inode(ino)?;
        if inode.row.kind == Kind::Transformation {
            return self.link_attributes(ino, Measure::IfWanted);
        }
        let attributes = inode.attributes();
        // It may be something else the next time.
        Ok(Attributes { computed: is_virtual(ino).then_some(1), ..attributes })
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
    pub(super) fn is_for_all(&mut self, ino: Ino) -> Result<bool, Stop> {
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
    pub(crate) fn ready_for_attributes_after(&mut self, ino: Ino) -> Result<(), Stop> {
        if self.tree.inode(ino)?.row.kind != Kind::Transformation {
            return Ok(());
        }
        match self.resolve(ino) {
            Err(Stop::Miss(miss)) => Err(miss.into()),
            Ok(_) | Err(Stop::Opaque | Stop::Fail(_)) => Ok(()),
        }
    }

    /// Permission bits of inode `ino`, as those see them of whom nobody tells when they open files:
    /// programs of a mount are checked by the kernel.
    pub(crate) fn bits_of_links_too(&mut self, ino: Ino) -> Result<u32, Stop> {
        let row = &self.tree.inode(ino)?.row;
        let (kind, own) = (row.kind, row.permissions);
        if kind != Kind::Transformation {
            return Ok(own);
        }
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
    pub(super) fn watch_read(&mut self, ino: Ino, resolved: &Resolved) {
        // Of one that is watched nothing has changed.
        if self.links.watches.is_wanted && !self.links.watches.is_watched(ino) {
            self.links.watches.watch(ino, &resolved.causes.all());
        }
    }

    /// Resolves link `ino`. `AccessDenied` if it is closed to the asker ([`super::reach`]),
    /// `NotFound`, `Loop`, `IsDirectory`, `Invalid` (it leads to an inode that is no file),
    /// `Corrupt`.
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
    fn reached(&mut self, resolved: &mut Resolved, step: Step, wanted: u32, is_data: bool) -> Result<(), Stop> {
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

    /// True if the length of a link may be left open.
    pub(super) fn leaves_open(&self, resolved: &Resolved) -> bool {
        self.links.is_told_of_opens && resolved.link.definition.lazy
    }

    /// Returns the length of link `ino`'s content.
    pub(super) fn length(&mut self, ino: Ino, resolved: &Resolved) -> Result<Length, Stop> {
        match self.length_of(ino, resolved)? {
            Ok(length) => Ok(length),
            Err(unknown) => Err(Miss::Length(unknown).into()),
        }
    }

    /// The same, if it is known.
    pub(super) fn length_told(&mut self, ino: Ino, resolved: &Resolved) -> Result<Option<Length>, Stop> {
        Ok(self.length_of(ino, resolved)?.ok())
    }

    /// The same as [`State::length`]; else the link whose content has to be computed for that.
    fn length_of(&mut self, ino: Ino, resolved: &Resolved) -> Result<Result<Length, Ino>, Stop> {
        let part = resolved.link.part.filter(|_| resolved.link.keeps.length).map(|part| part.len);
        let drafted = self.current_draft(ino)?.and_then(|draft| draft.now()).map(|drafted| drafted.size);
        if let Some(known) = drafted.or(resolved.link.size).or(part) {
            return Ok(Ok(Length { bytes: known, failed: None }));
        }
        if !resolved.link.keeps.length {
            let known = self.links.lengths.get(&resolved.version).copied();
            let known = known.filter(|length| length.failed.is_none_or(|failure| failure.at.elapsed() < RETRY));
            return Ok(known.ok_or(ino));
        }
        let target = resolved.data();
        let inode = self.tree.inode(target)?;
        if inode.row.kind == Kind::File {
            return Ok(Ok(Length { bytes: inode.row.size, failed: None }));
        }
        let inner = self.resolve(target)?;
        self.length_of(target, &inner)
    }

    /// True if links of user `uid` work, and that user may have, and ordered, all code that `link`
    /// runs, and may use its keys.
    fn may_have(&self, link: &Link, uid: u32) -> bool {
        let has_keys = uid == 0 || self.links.keys_of == Some(uid);
        let may_run = link.definition.trusted && self.links.exported.allows(uid);
        self.links.owners.allows(uid) && (!link.is_exported() || may_run) && (!link.has_keys() || has_keys)
    }

    /// Returns the version of the content of file or link `ino`.
    pub(super) fn content_of(&mut self, ino: Ino) -> Result<Version, Stop> {
        let inode = self.tree.inode(ino)?;
        if inode.row.kind != Kind::Transformation {
            return Ok(weft_digest::digest(&stamp(inode)));
        }
        Ok(self.resolve(ino)?.version)
    }

    /// Has reading a version fail as computing its length did, for as long as somebody may have
    /// been told that length: of content that can be computed again, a part would pass for the
    /// whole.
    pub(super) fn refuse_failed(&self, version: &Version) -> Result<(), Stop> {
        let failure = self.links.lengths.get(version).and_then(|length| length.failed);
        match failure.filter(|failure| failure.at.elapsed() < 2 * RETRY) {
            Some(failure) => Err(failure.kind.into()),
            None => Ok(()),
        }
    }

    /// Remembers how long the content of a version is.
    pub(crate) fn learn_length(&mut self, version: Version, length: Length) {
        if self.links.lengths.len() >= LENGTHS_MAX {
            self.links.lengths.clear();
        }
        self.links.lengths.insert(version, length);
    }

    /// The inode at `path`, and what the classes of `owner` may do there for all that the
    /// directories on the way allow. Adds what that follows from to `resolved`. `AccessDenied`
    /// before it looks for a name where those who ask may not.
    fn walk(&mut self, path: &[u8], owner: Owner, resolved: &mut Resolved) -> Result<(Ino, u32), Stop> {
        let mut names: Vec<Vec<u8>> = components(path);
        let (mut at, mut allowed, mut symlinks) = (Ino::ROOT, 0o777, 0);
        // Views know no way back.
        let mut way = Vec::new();
        while let Some(name) = names.pop() {
            self.links.resolving.take(1)?;
            let search = self.search(at, owner, resolved)?;
            allowed &= search | search << 1 | search << 2;
            if name == b".." {
                at = way.pop().unwrap_or(Ino::ROOT);
                continue;
            }
            let name = Name::new(&name)?;
            self.follows_from(at, Of::Name(name.clone()), Arc::make_mut(&mut resolved.causes).own())?;
            let found = self.within(at, &name)?;
            if self.tree.inode(found)?.row.kind != Kind::Symlink {
                way.push(at);
                at = found;
                continue;
            }
            symlinks += 1;
            if symlinks > SYMLINKS_MAX {
                return Err(ErrorKind::Loop.into());
            }
            let target = self.tree.inode(found)?.row.inline.clone().unwrap_or_default();
            if target.starts_with(b"/") {
                // It leads out of the volume, wherever that is mounted.
                return Err(ErrorKind::NotFound.into());
            }
            names.extend(components(&target));
        }
        Ok((at, allowed))
    }

    /// Returns the search rights of the classes of `owner` on `at`, a directory or a view, as
    /// permission bits. Adds the causes of that to `resolved`.
    fn search(&mut self, at: Ino, owner: Owner, resolved: &mut Resolved) -> Result<u32, Stop> {
        resolved.follows_from((at, Of::Itself));
        if self.tree.inode(at)?.row.kind != Kind::Transformation {
            let step = Step::of(&self.tree.directory(at)?.row);
            self.reached(resolved, step, MAY_SEARCH, false)?;
            let has_acl = self.has_acl(at)?;
            return Ok(rights(&self.tree.inode(at)?.row, has_acl, owner) & SEARCH);
        }
        let view = self.resolve(at)?;
        self.links.resolving.take(view.steps())?;
        if view.link.looks.is_none() {
            return Err(ErrorKind::NotDirectory.into());
        }
        let step = Step::of(&self.tree.inode(at)?.row);
        self.reached(resolved, step, MAY_SEARCH, false)?;
        resolved.is_for_all &= view.is_for_all;
        Arc::make_mut(&mut resolved.causes).add(&view.causes);
        Ok(self.rights_of_link(at, &view, owner)? & SEARCH)
    }

    /// Returns the rights of the classes of `owner` on link `ino`, which leads to `resolved`, as
    /// permission bits.
    fn rights_of_link(&mut self, ino: Ino, resolved: &Resolved, owner: Owner) -> Result<u32, Stop> {
        let row = self.tree.inode(ino)?.row.clone();
        let permissions = row.permissions & resolved.permissions();
        Ok(rights(&InodeRow { permissions, ..row }, false, owner))
    }

    /// True if inode `ino` has an access control list beyond its permission bits.
    fn has_acl(&mut self, ino: Ino) -> Result<bool, Stop> {
        if !self.tree.inode(ino)?.row.has_xattrs() {
            return Ok(false);
        }
        Ok(self.tree.xattrs(ino)?.map.contains_key(ACCESS_ACL))
    }
}

impl Resolved {
    /// The first target that holds no code for the network, and the only one of a link that keeps
    /// anything of it, or looks like a directory.
    pub(super) fn data(&self) -> Ino {
        self.targets[self.link.data]
    }

    /// Notes that it follows from `cause`. It is shared with nobody yet.
    fn follows_from(&mut self, cause: Cause) {
        Arc::make_mut(&mut self.causes).own().push(cause);
    }

    /// The steps that copying it counts as.
    fn steps(&self) -> usize {
        1 + self.targets.len() / COPIED_A_STEP
    }

    /// Returns its version: that of its content, and the time of the attributes of what it leads
    /// to.
    pub(super) fn told(&self) -> (Version, Timestamp) {
        (self.version, self.ctime)
    }

    /// The inodes that it follows from.
    pub(super) fn sources(&self) -> impl Iterator<Item = Ino> + use<> {
        self.causes.all().into_iter().filter(|(_, of)| *of == Of::Itself).map(|(ino, _)| ino)
    }

    /// True if inode `ino` is on the way to its targets.
    pub(super) fn leads_by(&self, ino: Ino) -> bool {
        self.causes.all().contains(&(ino, Of::Itself))
    }

    /// True if the link's owner may read all that it leads to.
    pub(super) fn owner_may_read(&self) -> bool {
        self.rights & 0o400 != 0
    }

    /// True if any class has one of `rights` by way of the link. If not, users who opened the link
    /// when it led elsewhere have none either.
    pub(super) fn lets_anybody(&self, rights: u32) -> bool {
        self.rights & rights != 0
    }

    /// The permission bits that a link to it can have.
    fn permissions(&self) -> u32 {
        let rights = self.shown_permissions();
        if self.writing == Writing::Not { rights & !WRITE } else { rights }
    }

    /// The permission bits that a directory in a view shows: also the right to change it, which
    /// nobody has there, as a copy of it is to be changed as the original is.
    fn shown_permissions(&self) -> u32 {
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

/// The names in `path`, the last first.
pub(super) fn components(path: &[u8]) -> Vec<Vec<u8>> {
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".");
    names.rev().map(<[u8]>::to_vec).collect()
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

/// Returns the rights of each class of `owner` on `row`, as permission bits. If a class spans
/// several classes of the row, or there is an ACL, it gets only the rights that all its members
/// surely have.
fn rights(row: &InodeRow, has_acl: bool, owner: Owner) -> u32 {
    let bits = row.permissions;
    let (of_owner, of_group, of_others) = (bits >> 6 & 7, bits >> 3 & 7, bits & 7);
    let strangers = if has_acl { 0 } else { of_group & of_others };
    let same_group = !has_acl && owner.gid == row.gid;
    let user = match owner.uid {
        0 => 7,
        uid if uid == row.uid => of_owner,
        _ => strangers,
    };
    let group = if same_group { of_group } else { strangers };
    let others = if same_group { of_others } else { strangers };
    user << 6 | group << 3 | others
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_gets_a_right_that_the_target_does_not_give() {
        let row = |permissions, uid, gid| InodeRow { permissions, ..InodeRow::new_root(uid, gid, Timestamp(0)) };
        let owner = |uid, gid| Owner { uid, gid };
        // The same people: the same bits.
        assert_eq!(rights(&row(0o640, 7, 8), false, owner(7, 8)), 0o640);
        // Another owner, of whom nobody knows whether it is in the group.
        assert_eq!(rights(&row(0o640, 7, 8), false, owner(9, 8)), 0o040);
        assert_eq!(rights(&row(0o644, 7, 8), false, owner(9, 8)), 0o444);
        // Another group: who is in that may be in the target's, or not.
        assert_eq!(rights(&row(0o604, 7, 8), false, owner(7, 9)), 0o600);
        assert_eq!(rights(&row(0o664, 7, 8), false, owner(7, 9)), 0o644);
        // A list gives and takes rights that no bits show.
        assert_eq!(rights(&row(0o666, 7, 8), true, owner(7, 8)), 0o600);
        assert_eq!(rights(&row(0o600, 7, 8), false, owner(0, 8)), 0o700);
    }
}
