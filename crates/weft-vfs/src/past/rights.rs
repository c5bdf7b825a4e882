//! Rights on the past: those of then, as far as they hold now.
//!
//! What was open then and is closed now stays closed, so that closing a file helps after its
//! content has leaked. The rights that an inode had last, of what is kept of it, count as its
//! rights now if it is gone: that a closed file is removed does not open it. So a commit learns of
//! a closing before it learns of a removal. Rows of a view are narrowed when they are read
//! ([`Narrowing`]): all that goes by them, links and digests too, goes by rights that hold.
//!
//! A list (ACL) of then holds if owner, group, permissions and list are the same now. It may have
//! kept somebody out whom the permissions let in, so that without it only the owner has rights.
//!
//! Nobody gets privileges from the past: set-user-id, capabilities and device nodes work for nobody
//! but those who have them anyway.

use crate::asker::Subject;
use crate::volume::Vfs;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::ops::Range;
use std::sync::Weak;
use weft_store::{CommitNo, HistoryFor, Ino, InodeRow, Kind, Name, PastFilter};
use weft_tree::{ACCESS_ACL, Acl, CAPABILITY};

/// Inodes of the present that are read together.
const READ_TOGETHER: usize = 128;

/// Inodes whose rights are remembered, at most.
const KNOWN_MAX: usize = 1 << 16;

/// Rights on inodes of the present that were asked for lately and are not in memory.
#[derive(Default)]
pub(super) struct PresentRights(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// Commits finished when they were read.
    finished: u64,
    /// None of inodes that are gone.
    rights: FxHashMap<Ino, Option<Subject>>,
}

impl PresentRights {
    pub(super) fn forget(&self, ino: Ino) {
        self.0.lock().rights.remove(&ino);
    }
}

/// Narrows rows of the past.
pub(super) struct Narrowing {
    present: Weak<Vfs>,
    readers: HistoryFor,
}

impl Narrowing {
    pub(super) fn new(present: Weak<Vfs>, readers: HistoryFor) -> Narrowing {
        Narrowing { present, readers }
    }

    /// The rights on `ino` now, or those it had last; none if nothing is known of it.
    fn now(&self, ino: Ino) -> weft_store::Result<Option<Subject>> {
        match self.present.upgrade() {
            Some(present) => present.present_rights(ino),
            None => Err(weft_store::Error::Unusable("the volume is being closed".into())),
        }
    }
}

impl PastFilter for Narrowing {
    fn inode(
        &self,
        row: &mut InodeRow,
        values: &dyn Fn() -> weft_store::Result<Vec<(Name, Vec<u8>)>>,
    ) -> weft_store::Result<()> {
        // A link is open to those who may read what it leads to.
        if !matches!(row.kind, Kind::Transformation | Kind::Symlink) {
            let then = with_list(row, values)?;
            let now = self.now(row.ino)?;
            row.permissions = narrowed(row.kind, &then, now.as_ref(), self.readers);
        }
        Ok(())
    }

    fn xattrs(&self, row: &InodeRow, values: &mut Vec<(Name, Vec<u8>)>) -> weft_store::Result<()> {
        values.retain(|(name, _)| name.as_bytes() != CAPABILITY);
        let Some(list) = values.iter().position(|(name, _)| name.as_bytes() == ACCESS_ACL) else { return Ok(()) };
        let now = self.now(row.ino)?;
        let then = subject(row, Some(&values[list].1));
        let stays = self.readers == HistoryFor::All && now.as_ref().is_none_or(|now| is_same(&then, now));
        if !stays {
            values.remove(list);
        }
        Ok(())
    }
}

impl Vfs {
    /// Rights on inode `ino` of the present, or those it had last if it is gone. None if nothing is
    /// known of it.
    fn present_rights(&self, ino: Ino) -> weft_store::Result<Option<Subject>> {
        let (finished, in_memory) = {
            let state = self.state.lock();
            let look = |inode: &weft_tree::Inode| {
                let list = inode.xattrs.as_ref().map(|xattrs| xattrs.map.get(ACCESS_ACL).cloned());
                (inode.row.clone(), list)
            };
            (state.tree.finished, state.tree.inodes.peek(&ino).map(look))
        };
        let stored = |ino| move || self.store.xattrs(ino);
        match in_memory {
            Some((row, Some(list))) => return Ok(Some(subject(&row, list.as_deref()))),
            Some((row, None)) => return with_list(&row, &stored(ino)).map(Some),
            None => {}
        }
        match self.known_rights(ino, finished) {
            Some(None) => return self.last_rights(ino, finished),
            Some(known) => return Ok(known),
            None => {}
        }
        // Numbers between those that are read are of inodes that are gone, if of any.
        let rows = self.store.inodes(ino, READ_TOGETHER)?;
        let end = if rows.len() < READ_TOGETHER { u64::MAX } else { rows.last().map_or(u64::MAX, |row| row.ino.0) };
        let nearby = ino.0..=end.min(ino.0.saturating_add(READ_TOGETHER as u64));
        let mut read = nearby.map(|number| (Ino(number), None)).collect::<FxHashMap<_, _>>();
        for row in rows {
            let Some(rights) = read.get_mut(&row.ino) else { continue };
            if row.ino == ino || !row.has_xattrs() {
                *rights = Some(with_list(&row, &stored(row.ino))?);
            } else {
                // Its list is read when it is asked for.
                read.remove(&row.ino);
            }
        }
        let found = read.get(&ino).cloned().flatten();
        self.remember_rights(finished, read);
        match found {
            Some(found) => Ok(Some(found)),
            None => self.last_rights(ino, finished),
        }
    }

    /// The rights that `ino`, which is gone, had last, of what is kept of it.
    fn last_rights(&self, ino: Ino, finished: u64) -> weft_store::Result<Option<Subject>> {
        let last = self.store.versions(ino, CommitNo(i64::MAX as u64), 1)?.into_iter().next();
        let Some((row, held)) = last else { return Ok(None) };
        let rights = match self.kept_within(&held)? {
            Some(kept) => with_list(&row, &|| self.store.xattrs_at(kept, ino))?,
            None => without_list(&row),
        };
        self.remember_rights(finished, [(ino, Some(rights.clone()))]);
        Ok(Some(rights))
    }

    /// The last commit of `held` that is kept. None of them need be: a version goes some time after
    /// the last commit that sees it.
    fn kept_within(&self, held: &Range<CommitNo>) -> weft_store::Result<Option<CommitNo>> {
        let Some(history) = self.store.history()? else { return Ok(None) };
        let last = CommitNo(held.end.0.saturating_sub(1));
        if last >= history.first {
            return Ok(Some(last));
        }
        Ok(self.store.pins()?.into_iter().map(|pin| pin.commit).filter(|commit| held.contains(commit)).max())
    }

    /// Remembers rights as of `finished` commits.
    fn remember_rights(&self, finished: u64, read: impl IntoIterator<Item = (Ino, Option<Subject>)>) {
        let mut known = self.past.rights.0.lock();
        if known.finished == finished && known.rights.len() < KNOWN_MAX {
            known.rights.extend(read);
        }
    }

    /// The rights that are remembered of `ino`, unless something was committed since.
    fn known_rights(&self, ino: Ino, finished: u64) -> Option<Option<Subject>> {
        let mut known = self.past.rights.0.lock();
        if known.finished != finished || known.rights.len() >= KNOWN_MAX {
            *known = Known { finished, rights: FxHashMap::default() };
        }
        known.rights.get(&ino).cloned()
    }
}

/// Rights on the inode of `row`, whose extended attributes `values` returns.
fn with_list(
    row: &InodeRow,
    values: &dyn Fn() -> weft_store::Result<Vec<(Name, Vec<u8>)>>,
) -> weft_store::Result<Subject> {
    let values = if row.has_xattrs() { values()? } else { Vec::new() };
    let list = values.iter().find(|(name, _)| name.as_bytes() == ACCESS_ACL);
    Ok(subject(row, list.map(|(_, list)| &list[..])))
}

/// Rights on the inode of `row`, whose extended attributes are not known: those of its owner alone,
/// if there may be a list.
fn without_list(row: &InodeRow) -> Subject {
    let permissions = if row.has_xattrs() { row.permissions & !0o077 } else { row.permissions };
    subject(&InodeRow { permissions, ..row.clone() }, None)
}

fn subject(row: &InodeRow, list: Option<&[u8]>) -> Subject {
    let acl = list.and_then(|list| Acl::parse(list).ok());
    Subject { uid: row.uid, gid: row.gid, permissions: row.permissions, acl }
}

fn is_same(then: &Subject, now: &Subject) -> bool {
    (then.uid, then.gid, then.permissions & 0o777, &then.acl) == (now.uid, now.gid, now.permissions & 0o777, &now.acl)
}

/// The permission bits of `then`, of an inode of this kind, that hold with the rights of `now`, for
/// `readers`.
fn narrowed(kind: Kind, then: &Subject, now: Option<&Subject>, readers: HistoryFor) -> u32 {
    let bits = match kind {
        Kind::Directory => then.permissions,
        Kind::BlockDevice | Kind::CharDevice => 0,
        _ => then.permissions & !(libc::S_ISUID | libc::S_ISGID),
    };
    let bits = match now {
        Some(now) if then.acl.is_none() => held(bits, kind, then, now),
        Some(now) if !is_same(then, now) => held(bits & !0o077, kind, then, now) & !0o077,
        _ => bits,
    };
    match readers {
        HistoryFor::All => bits,
        // Others may go through directories to what is theirs. A mask is no right of others.
        HistoryFor::Owner if kind == Kind::Directory && then.acl.is_none() => bits & !0o066,
        HistoryFor::Owner | HistoryFor::Root => bits & !0o077,
    }
}

/// Those of `bits`, of an inode that was `then`, which its rights `now` have, too.
fn held(bits: u32, kind: Kind, then: &Subject, now: &Subject) -> u32 {
    let class = |shift: u32| now.permissions >> shift & 7;
    let (user, group, other) = (class(6), class(3), class(0));
    let (is_owner, is_group) = (then.uid == now.uid, then.gid == now.gid);
    // Those who were others then may be the owner now, or in its group; a list may name them.
    let allowed = match (is_owner, is_group, now.acl.is_none()) {
        (true, _, false) => [user, 0, 0],
        (false, _, false) => [0, 0, 0],
        (true, true, true) => [user, group, other],
        (true, false, true) => [user, group & other, group & other],
        (false, _, true) => [group & other, user & group & other, user & group & other],
    };
    let mut left = bits & !0o777;
    for (allowed, shift) in allowed.into_iter().zip([6, 3, 0]) {
        let had = bits >> shift & 7;
        // The right to run a file says how it was, unless it lets somebody read it.
        let is_as_it_was = kind != Kind::Directory && allowed & 4 != 0;
        let has = if is_as_it_was { had } else { had & (allowed | 2) };
        left |= has << shift;
    }
    left
}

#[cfg(test)]
mod tests;
