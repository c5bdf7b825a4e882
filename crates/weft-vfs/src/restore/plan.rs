//! The plan of a restoration: which inodes change, come and go.

use super::left::Leaving;
use super::newest::Deleted;
use super::numbers::{Mapped, Numbers, Origin};
use super::path::{VolumePath, shown};
use super::report::{Effect, OUTSIDE_MAX, RestoreReport};
use super::rows::{Blocks, Rows};
use super::subtree::Subtree;
use super::{RestoreError, RestoreRequest, Restoring, Target, effects, refused};
use crate::exclusions::Exclusion;
use crate::secrets::KEPT;
use crate::volume::Vfs;
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;
use weft_digest::Digest;
use weft_store::{CommitNo, Ino, InodeRow, Kind, Name, NameRow, path_to};
use weft_tree::{ErrorKind, ParentChange, Restoration, RestoredContent, RestoredInode, RestoredXattrs, Stored};

/// A restoration, and what is told of it.
pub(super) struct Plan {
    pub(super) restoration: Restoration,
    pub(super) report: RestoreReport,
}

/// The place that is restored.
struct Place {
    /// Its directory and its name there; none of the root.
    entry: Option<(InodeRow, Name)>,
    /// The entry that is there now.
    now: Option<NameRow>,
    /// The inode that was there then, and its kind.
    then: (Ino, Kind),
    /// Names below it of which each is the only one in its directory that is brought back.
    only: Vec<Name>,
}

/// Plans what `request` wishes for, of a path as of commit `then`, where that is found as `deleted`
/// says.
pub(super) fn make(
    vfs: &Vfs,
    request: &RestoreRequest,
    (path, deleted): (&VolumePath, &Deleted),
    then: CommitNo,
) -> Restoring<Plan> {
    let (now, then) = (vfs.present_rows()?, vfs.past_rows(then));
    let place = find_place(request, (path, deleted), now, then)?;
    let mut past = Subtree::read(then, place.then.0, &place.only)?;
    let present = match (&place.now, &place.entry) {
        (Some(entry), _) => Subtree::read(now, entry.ino, &[])?,
        (None, None) => Subtree::read(now, Ino::ROOT, &[])?,
        (None, Some(_)) => Subtree::default(),
    };
    let count = (past.order.len() + past.entries + 1) as u64;
    let mut numbers = Numbers::reserve(vfs, count, request.is_rehearsal);
    let all_new = matches!(request.target, Target::Elsewhere(_));
    let mut report = RestoreReport { then: then.commit, ..RestoreReport::default() };
    let forgotten = then.forgotten(past.rows())?;
    if forgotten.contains(&place.then.0) {
        let why =
            format!("the content of {} as of commit {} was taken out of history", shown(path.names()), then.commit.0);
        return refused(format!("{why} ('weft history forget' or 'exclude')"));
    }
    let is_there = |ino: Ino| !all_new && present.inodes.contains_key(&ino);
    let gone = leave_forgotten(&mut past, &forgotten, is_there, &mut report);
    if request.target == Target::Place {
        let patterns = vfs.exclusions()?;
        let excluded = patterns.iter().filter_map(|pattern| Exclusion::parse(pattern).ok()).collect();
        Leaving::new((&mut past, &present), path.names(), excluded).leave(&gone);
    }
    let mut mapped =
        Mapped::choose(&past, &present, &mut numbers, all_new, |others| Ok(now.inodes(others)?.into_keys().collect()))?;
    let block_size = u64::from(vfs.block_size);
    if !all_new {
        let top = place.now.as_ref().map(|entry| entry.ino);
        mapped.keep_copies((&past, &present), top, |ino, other| {
            is_copy((then, &past.inodes[&ino].0), (now, &present.inodes[&other].0), block_size)
        })?;
    }
    let made = vfs.store.commit_row(then.commit)?;
    let made = made.map(|row| row.time);
    let mut planner = Planner {
        block_size,
        now,
        then,
        past,
        present,
        mapped,
        numbers,
        touched: FxHashSet::default(),
        blocks: AllBlocks::default(),
        restoration: Restoration { time: vfs.now(), ..Restoration::default() },
        forgotten,
        report: RestoreReport { made, ..report },
    };
    planner.plan_entries(&place);
    planner.read_blocks()?;
    planner.plan_inodes(&place)?;
    planner.plan_losing();
    planner.find_outside(vfs)?;
    let Planner { restoration, mut report, past, present, mapped, forgotten, .. } = planner;
    let trees = effects::Trees { past: &past, present: &present, mapped: &mapped, forgotten: &forgotten };
    effects::add(&trees, &restoration, &mut report);
    refuse_too_much(vfs, &restoration)?;
    refuse_kept_lengths(vfs, &restoration)?;
    Ok(Plan { restoration, report })
}

/// True if a file that is there now has the content and attributes that another one had then.
fn is_copy(
    (then, before): (Rows<'_>, &InodeRow),
    (now, after): (Rows<'_>, &InodeRow),
    block_size: u64,
) -> Restoring<bool> {
    let same = InodeRow {
        ino: after.ino,
        generation: after.generation,
        nlink: 1,
        atime: after.atime,
        ctime: after.ctime,
        ..before.clone()
    };
    if before.kind == Kind::Directory || same != *after || then.xattrs(before)? != now.xattrs(after)? {
        return Ok(false);
    }
    let of = |rows: Rows<'_>, row: &InodeRow| {
        let blocks = rows.blocks(std::iter::once(row), block_size)?.remove(&row.ino).unwrap_or_default();
        Ok::<_, RestoreError>(blocks)
    };
    let (dropped, put) = difference(&of(now, after)?, &of(then, before)?);
    Ok(dropped.is_empty() && put.is_empty())
}

/// Leaves the files of `past` out that are `forgotten`, but for those that are there, and notes
/// them all. Returns the entries of those left out.
fn leave_forgotten(
    past: &mut Subtree,
    forgotten: &FxHashSet<Ino>,
    is_there: impl Fn(Ino) -> bool,
    report: &mut RestoreReport,
) -> FxHashSet<(Ino, Name)> {
    if forgotten.is_empty() {
        return FxHashSet::default();
    }
    let paths = past.paths();
    past.order
        .iter()
        .filter(|ino| forgotten.contains(ino))
        .for_each(|ino| report.add(Effect::Forgotten, paths.get(ino), None));
    let is_out = |ino: Ino| forgotten.contains(&ino) && !is_there(ino);
    let out = past.names.values().flatten().filter(|entry| is_out(entry.ino));
    let out = out.map(|entry| (entry.parent, entry.name.clone())).collect();
    past.leave_out(is_out);
    out
}

/// Finds the place, then and now.
fn find_place(
    request: &RestoreRequest,
    (path, deleted): (&VolumePath, &Deleted),
    now: Rows<'_>,
    then: Rows<'_>,
) -> Restoring<Place> {
    let target = match &request.target {
        Target::Elsewhere(to) => VolumePath::parse(to)?,
        Target::Place | Target::EmptyPlace { .. } => path.clone(),
    };
    let wanted = match deleted.entry(then, path)? {
        Some(entry) => (entry.ino, entry.kind),
        None if path.names().is_empty() => (Ino::ROOT, Kind::Directory),
        None => return refused(format!("{} was not there at commit {}", shown(path.names()), then.commit.0)),
    };
    let Some((directory, name)) = target.split() else {
        return match request.target {
            Target::Place => Ok(Place { entry: None, now: None, then: wanted, only: Vec::new() }),
            _ => refused("/ is there".into()),
        };
    };
    if let Target::EmptyPlace { with_parents: true } = request.target
        && let Some(place) = missing_parents(path, now, then)?
    {
        return Ok(place);
    }
    let parent = match now.directory(directory) {
        Err(RestoreError::Refused(why)) if matches!(request.target, Target::EmptyPlace { with_parents: false }) => {
            return refused(format!("{why}; --parents brings back directories on the way, too"));
        }
        Err(RestoreError::Refused(why)) if request.target == Target::Place => {
            return refused(format!("{why} now; restore that, or 'weft undelete --parents' brings it back on the way"));
        }
        parent => parent?,
    };
    let present = now.name(parent.ino, name)?;
    if present.is_some() && request.target != Target::Place {
        return refused(format!("{} is there", shown(target.names())));
    }
    Ok(Place { entry: Some((parent, name.clone())), now: present, then: wanted, only: Vec::new() })
}

/// The topmost directory on the way to `path` that is not there any more, as the place that is
/// restored; none if all are there.
fn missing_parents(path: &VolumePath, now: Rows<'_>, then: Rows<'_>) -> Restoring<Option<Place>> {
    let names = path.names();
    for depth in 1..names.len() {
        if now.entry(&names[..depth])?.is_some() {
            continue;
        }
        let parent = now.directory(&names[..depth - 1])?;
        let Some(entry) = then.entry(&names[..depth])? else { return Ok(None) };
        let (entry, then) = (Some((parent, names[depth - 1].clone())), (entry.ino, entry.kind));
        return Ok(Some(Place { entry, now: None, then, only: names[depth..].to_vec() }));
    }
    Ok(None)
}

/// Refuses to give files other content where a client would go on by the lengths that it knows: it
/// would cut off what is read, and append in the midst of what was restored.
fn refuse_kept_lengths(vfs: &Vfs, restoration: &Restoration) -> Restoring<()> {
    let is_changed = |inode: &RestoredInode| {
        let is_file = inode.row.kind == Kind::File && inode.present.is_some();
        is_file && !matches!(inode.content, RestoredContent::Same)
    };
    if !vfs.keeps_lengths() || !restoration.inodes.iter().any(is_changed) {
        return Ok(());
    }
    refused(
        "below --writeback the kernel keeps the lengths of files that are there, and a restoration cannot change them: \
         mount the volume without --writeback, or restore to another place (--to)"
            .into(),
    )
}

/// Refuses what no commit could take at once.
fn refuse_too_much(vfs: &Vfs, restoration: &Restoration) -> Restoring<()> {
    let (cost, most) = (restoration.cost(u64::from(vfs.block_size)), vfs.options.dirty_bytes_max);
    if cost > most {
        let (cost, most) = (cost >> 20, most >> 20);
        return refused(format!(
            "it changes too much for one commit: {cost} MiB, of {most} at most; restore parts of it, or mount the volume \
             with a larger --dirty-max"
        ));
    }
    let rows = |rows: &mut dyn Iterator<Item = &InodeRow>| rows.map(|row| row.allocated).sum::<u64>();
    let restored = restoration.inodes.iter();
    let after = rows(&mut restored.clone().map(|inode| &inode.row));
    let before = rows(&mut restored.clone().filter_map(|inode| inode.present.as_ref()));
    let gone = restoration.losing.iter().map(|(row, _)| row).filter(|row| row.nlink <= 1);
    let before = before + rows(&mut { gone });
    let made = restored.filter(|inode| inode.present.is_none()).count() as u64;
    let made = made.saturating_sub(restoration.losing.len() as u64);
    match vfs.permit_restoring(after.saturating_sub(before), made, cost) {
        Err(error) if error.kind() == ErrorKind::NoSpace => refused(
            "there is no room for its rows; 'weft snapshot delete' and then 'weft gc' give back the space of what only \
             a snapshot has"
                .into(),
        ),
        permitted => Ok(permitted?),
    }
}

struct Planner<'a> {
    block_size: u64,
    now: Rows<'a>,
    then: Rows<'a>,
    past: Subtree,
    present: Subtree,
    mapped: Mapped,
    numbers: Numbers,
    /// Files of then without their content.
    forgotten: FxHashSet<Ino>,
    /// Directories whose entries change, and what these entries name.
    touched: FxHashSet<Ino>,
    blocks: AllBlocks,
    restoration: Restoration,
    report: RestoreReport,
}

/// Blocks of the files that may change.
#[derive(Default)]
struct AllBlocks {
    then: FxHashMap<Ino, Blocks>,
    now: FxHashMap<Ino, Blocks>,
    /// Digests of files of which one block is all.
    alone: FxHashMap<Ino, Digest>,
}

impl Planner<'_> {
    /// Plans which entries come and go.
    fn plan_entries(&mut self, place: &Place) {
        if let Some((directory, name)) = &place.entry {
            let ((ino, _), kind) = (self.mapped.of(place.then.0), place.then.1);
            let parent = directory.ino;
            let coming = Some(NameRow { parent, name: name.clone(), ino, kind, cookie: self.numbers.cookie() });
            let coming = coming.filter(|entry| place.now.as_ref().is_none_or(|now| now.ino != entry.ino));
            let is_directory = |entry: &NameRow| i64::from(entry.kind == Kind::Directory);
            let change = |gains: &dyn Fn(&NameRow) -> i64| {
                let lost = place.now.as_ref().filter(|_| coming.is_some()).map_or(0, gains);
                coming.as_ref().map_or(0, gains) - lost
            };
            self.restoration.parent = Some(ParentChange {
                row: directory.clone(),
                name: name.clone(),
                is_changed: coming.is_some(),
                entries: change(&|_| 1),
                directories: change(&is_directory),
            });
            if coming.is_some() {
                self.restoration.removed.extend(place.now.clone());
                self.restoration.added.extend(coming);
            }
        }
        for directory in self.past.order.clone() {
            self.plan_entries_of(directory);
        }
        for directory in &self.present.order {
            if !self.mapped.keeps(*directory) {
                self.restoration.removed.extend(self.present.names_of(*directory).iter().cloned());
            }
        }
        let entries = self.restoration.removed.iter().chain(&self.restoration.added);
        self.touched = entries.flat_map(|entry| [entry.parent, entry.ino]).collect();
    }

    /// The same in `directory`, as it was then.
    fn plan_entries_of(&mut self, directory: Ino) {
        let (parent, origin) = self.mapped.of(directory);
        let present = if origin == Origin::Kept { self.present.names_of(parent) } else { &[] };
        let mut present = present.iter().map(|entry| (&entry.name, entry)).collect::<FxHashMap<_, _>>();
        let mut added = Vec::new();
        for entry in self.past.names_of(directory) {
            let ino = self.mapped.of(entry.ino).0;
            match present.get(&entry.name) {
                Some(now) if now.ino == ino => {
                    present.remove(&entry.name);
                }
                _ => added.push(NameRow { parent, ino, cookie: self.numbers.cookie(), ..entry.clone() }),
            }
        }
        self.restoration.removed.extend(present.into_values().cloned());
        self.restoration.added.extend(added);
    }

    /// Reads the blocks of files that may change, then and now.
    fn read_blocks(&mut self) -> Restoring<()> {
        let is_kept = |ino: &Ino| self.mapped.of(*ino).1 == Origin::Kept;
        let may_change = |ino: &&Ino| !is_kept(ino) || self.past.inodes[*ino].1 != self.present.inodes[*ino].1;
        let changing = self.past.order.iter().filter(may_change);
        let then = || changing.clone().map(|ino| &self.past.inodes[ino].0);
        let now = changing.clone().filter(|ino| is_kept(ino)).map(|ino| &self.present.inodes[ino].0);
        self.blocks = AllBlocks {
            then: self.then.blocks(then(), self.block_size)?,
            alone: self.then.digests(then(), self.block_size)?,
            now: self.now.blocks(now, self.block_size)?,
        };
        Ok(())
    }

    /// Plans how inodes of then are to be.
    fn plan_inodes(&mut self, place: &Place) -> Restoring<()> {
        let mut parents = FxHashMap::default();
        for directory in &self.past.order {
            let above = self.mapped.of(*directory).0;
            parents.extend(self.past.names_of(*directory).iter().map(|entry| (entry.ino, above)));
        }
        let outside = place.entry.as_ref().map_or(Ino::ROOT, |(directory, _)| directory.ino);
        for ino in self.past.order.clone() {
            let parent = parents.get(&ino).copied().unwrap_or(outside);
            let restored = self.restored(ino, parent)?;
            self.restoration.inodes.extend(restored);
        }
        let kept = self.past.order.iter().map(|ino| self.mapped.of(*ino).0);
        self.restoration.relied_on = kept.chain(self.present.order.iter().copied()).collect();
        Ok(())
    }

    /// The inode `ino` of then as it is to be; none if it is so.
    fn restored(&self, ino: Ino, parent: Ino) -> Restoring<Option<RestoredInode>> {
        let (then, since) = &self.past.inodes[&ino];
        let (number, origin) = self.mapped.of(ino);
        let alone = self.blocks.alone.get(&ino).copied();
        let names = self.past.count(ino);
        let mut row = InodeRow {
            ino: number,
            generation: self.numbers.generation(origin, then.generation),
            nlink: names,
            ..then.clone()
        };
        if then.kind == Kind::Directory {
            let entries = self.past.names_of(ino);
            let directories = entries.iter().filter(|entry| entry.kind == Kind::Directory).count();
            row.size = entries.len() as u64;
            row.nlink = u32::try_from(directories + 2).unwrap_or(u32::MAX);
            row.parent = parent;
        }
        if origin == Origin::Copy {
            return Ok(None);
        }
        if origin != Origin::Kept {
            let content = RestoredContent::Whole(self.blocks.then.get(&ino).cloned().unwrap_or_default());
            let mut map = self.then.xattrs(then)?;
            if ino == Ino::ROOT {
                // They control the volume, are its secrets, and are no other directory's.
                map.retain(|name, _| !is_of_root(name));
                row.xattrs = u32::try_from(map.len()).unwrap_or(u32::MAX);
            }
            let changed = map.keys().cloned().collect::<Vec<_>>();
            let xattrs = (!changed.is_empty()).then_some(RestoredXattrs { map, changed });
            return Ok(Some(RestoredInode { present: None, row, content, alone, xattrs }));
        }
        let (now, last) = &self.present.inodes[&ino];
        row.generation = now.generation;
        let is_forgotten = self.forgotten.contains(&ino);
        if is_forgotten {
            row = InodeRow {
                size: now.size,
                allocated: now.allocated,
                mtime: now.mtime,
                inline: now.inline.clone(),
                ..row
            };
        }
        if then.kind != Kind::Directory {
            row.nlink = now.nlink.saturating_sub(self.present.count(ino)).saturating_add(names);
        }
        let is_touched = self.touched.contains(&number);
        let is_same_row = |row: &InodeRow| {
            let now = InodeRow { atime: row.atime, ctime: row.ctime, ..now.clone() };
            now == *row && !is_touched
        };
        // Any change of content or attributes is one of the row.
        if since == last {
            let is_same = is_same_row(&row);
            let (present, content, xattrs) = (Some(now.clone()), RestoredContent::Same, None);
            return Ok((!is_same).then_some(RestoredInode { present, row, content, alone: None, xattrs }));
        }
        let content = if is_forgotten { RestoredContent::Same } else { self.changed_content(then, now) };
        let xattrs = self.changed_xattrs(then, now)?;
        let count = |xattrs: &RestoredXattrs| u32::try_from(xattrs.map.len()).unwrap_or(u32::MAX);
        row.xattrs = xattrs.as_ref().map_or(now.xattrs, count);
        let is_same = is_same_row(&row) && content == RestoredContent::Same && xattrs.is_none();
        Ok((!is_same).then(|| RestoredInode { present: Some(now.clone()), row, content, alone, xattrs }))
    }

    /// The blocks that come and go where inode `now` gets the content of `then`.
    fn changed_content(&self, then: &InodeRow, now: &InodeRow) -> RestoredContent {
        if then.kind != Kind::File {
            return RestoredContent::Same;
        }
        let of = |blocks: &FxHashMap<Ino, Blocks>| blocks.get(&then.ino).cloned().unwrap_or_default();
        let (old, new) = (of(&self.blocks.now), of(&self.blocks.then));
        let (dropped, put) = difference(&old, &new);
        let is_same = dropped.is_empty() && put.is_empty() && then.size == now.size && then.inline == now.inline;
        match () {
            () if is_same => RestoredContent::Same,
            () if old.is_empty() || new.is_empty() => RestoredContent::Whole(new),
            () => RestoredContent::Partly(dropped, put),
        }
    }

    /// All extended attributes of then, with those that differ now; none if none does. The root
    /// keeps what controls the volume.
    fn changed_xattrs(&self, then: &InodeRow, now: &InodeRow) -> Restoring<Option<RestoredXattrs>> {
        let (mut new, old) = (self.then.xattrs(then)?, self.now.xattrs(now)?);
        if now.ino == Ino::ROOT {
            new.retain(|name, _| !is_of_root(name));
            new.extend(
                old.iter().filter(|(name, _)| is_of_root(name)).map(|(name, value)| (name.clone(), value.clone())),
            );
        }
        let names = new.keys().chain(old.keys()).collect::<FxHashSet<_>>();
        let differing = names.into_iter().filter(|name| new.get(*name) != old.get(*name));
        let mut changed = differing.cloned().collect::<Vec<_>>();
        changed.sort_unstable();
        Ok((!changed.is_empty()).then_some(RestoredXattrs { map: new, changed }))
    }

    /// Plans which inodes of now lose their names.
    fn plan_losing(&mut self) {
        for ino in self.present.order.iter().filter(|ino| !self.mapped.keeps(**ino)) {
            let row = self.present.inodes[ino].0.clone();
            let names = if row.kind == Kind::Directory { 1 } else { self.present.count(*ino) };
            self.restoration.losing.push((row, names));
        }
    }

    /// Finds paths outside at which changed files are seen.
    fn find_outside(&mut self, vfs: &Vfs) -> Restoring<()> {
        let of = |ino: Ino| vfs.store.names_of(ino);
        for restored in &self.restoration.inodes {
            let Some(now) = restored.present.as_ref().filter(|now| now.kind != Kind::Directory) else { continue };
            if now.nlink <= self.present.count(now.ino) {
                continue;
            }
            self.report.linked += 1;
            if self.report.outside.len() >= OUTSIDE_MAX {
                continue;
            }
            let is_outside = |parent: &Ino, name: &Name| {
                let top = self.restoration.parent.as_ref();
                let is_top = top.is_some_and(|top| top.row.ino == *parent && top.name == *name);
                !is_top && !self.present.names.contains_key(parent)
            };
            for (parent, name) in of(now.ino)?.into_iter().filter(|(parent, name)| is_outside(parent, name)) {
                let above = path_to(parent, of)?;
                let above: &[u8] = if above == b"/" { b"" } else { &above };
                self.report.outside.push([above, b"/", name.as_bytes()].concat());
            }
        }
        Ok(())
    }
}

/// True for attributes by which the root of a volume controls that, and for its secrets.
fn is_of_root(name: &Name) -> bool {
    name.as_bytes().starts_with(KEPT) || weft_attributes::is_reserved(name.as_bytes())
}

/// The ranges of indices at which `old` has blocks and `new` has none, and the blocks of `new` that
/// `old` does not have at their place.
fn difference(old: &[(u64, Stored)], new: &[(u64, Stored)]) -> (Vec<Range<u64>>, Blocks) {
    fn find(list: &[(u64, Stored)], index: u64) -> Option<&Stored> {
        list.binary_search_by_key(&index, |(index, _)| *index).ok().map(|at| &list[at].1)
    }
    let mut dropped = Vec::<Range<u64>>::new();
    for (index, _) in old.iter().filter(|(index, _)| find(new, *index).is_none()) {
        match dropped.last_mut() {
            Some(range) if range.end == *index => range.end += 1,
            _ => dropped.push(*index..index + 1),
        }
    }
    let is_other = |(index, stored): &&(u64, Stored)| find(old, *index).is_none_or(|old| !old.is_same(stored));
    (dropped, new.iter().filter(is_other).cloned().collect())
}
