//! Rights on the past: those of then, as far as they hold now.
//!
//! What was open then and is closed now stays closed, so that closing a file helps after its
//! content has leaked. An inode that is gone now has the rights that it had. Rows of a view are
//! narrowed when they are read ([`Narrowing`]): all that goes by them, links and digests too, goes
//! by rights that hold.
//!
//! Nobody gets privileges from the past: set-user-id, capabilities and device nodes work for nobody
//! but those who have them anyway.

use crate::asker::Subject;
use crate::volume::Vfs;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::Weak;
use weft_store::{HistoryFor, Ino, InodeRow, Kind, Name, PastFilter, Store};
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

    /// The rights on `ino` now; none if it is gone.
    fn now(&self, ino: Ino) -> weft_store::Result<Option<Subject>> {
        match self.present.upgrade() {
            Some(present) => present.present_rights(ino),
            None => Err(weft_store::Error::Unusable("the volume is being closed".into())),
        }
    }
}

impl PastFilter for Narrowing {
    fn inode(&self, row: &mut InodeRow) -> weft_store::Result<()> {
        // A link is open to those who may read what it leads to.
        if !matches!(row.kind, Kind::Transformation | Kind::Symlink) {
            let now = self.now(row.ino)?;
            row.permissions = narrowed(row, now.as_ref(), self.readers);
        }
        Ok(())
    }

    fn xattrs(&self, row: &InodeRow, values: &mut Vec<(Name, Vec<u8>)>) -> weft_store::Result<()> {
        values.retain(|(name, _)| name.as_bytes() != CAPABILITY);
        let Some(list) = values.iter().position(|(name, _)| name.as_bytes() == ACCESS_ACL) else { return Ok(()) };
        let now = self.now(row.ino)?;
        let then = subject(row, Acl::parse(&values[list].1).ok());
        let stays = self.readers == HistoryFor::All && now.as_ref().is_none_or(|now| is_same(&then, now));
        if !stays {
            values.remove(list);
        }
        Ok(())
    }
}

impl Vfs {
    /// Rights on inode `ino` of the present. None if there is none.
    fn present_rights(&self, ino: Ino) -> weft_store::Result<Option<Subject>> {
        let (finished, in_memory) = {
            let state = self.state.lock();
            let look = |inode: &weft_tree::Inode| {
                let list = inode.xattrs.as_ref().map(|xattrs| xattrs.map.get(ACCESS_ACL).cloned());
                (inode.row.clone(), list)
            };
            let known = state.tree.inodes.peek(&ino);
            if known.is_some_and(|inode| inode.dead) {
                return Ok(None);
            }
            (state.tree.finished, known.map(look))
        };
        match in_memory {
            Some((row, Some(list))) => return Ok(Some(subject(&row, list.and_then(|list| Acl::parse(&list).ok())))),
            Some((row, None)) => return with_list(&*self.store, &row).map(Some),
            None => {}
        }
        if let Some(known) = self.known_rights(ino, finished) {
            return Ok(known);
        }
        // Numbers between those that are read are of inodes that are gone, if of any.
        let rows = self.store.inodes(ino, READ_TOGETHER)?;
        let end = if rows.len() < READ_TOGETHER { u64::MAX } else { rows.last().map_or(u64::MAX, |row| row.ino.0) };
        let nearby = ino.0..=end.min(ino.0.saturating_add(READ_TOGETHER as u64));
        let mut read = nearby.map(|number| (Ino(number), None)).collect::<FxHashMap<_, _>>();
        for row in rows {
            let Some(rights) = read.get_mut(&row.ino) else { continue };
            if row.ino == ino || !row.has_xattrs() {
                *rights = Some(with_list(&*self.store, &row)?);
            } else {
                // Its list is read when it is asked for.
                read.remove(&row.ino);
            }
        }
        let found = read.get(&ino).cloned().flatten();
        let mut known = self.past.rights.0.lock();
        if known.finished == finished && known.rights.len() < KNOWN_MAX {
            known.rights.extend(read);
        }
        Ok(found)
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

/// Rights on the inode that has this row in `store`.
fn with_list(store: &dyn Store, row: &InodeRow) -> weft_store::Result<Subject> {
    let mut list = None;
    if row.has_xattrs() {
        let values = store.xattrs(row.ino)?;
        list =
            values.iter().find(|(name, _)| name.as_bytes() == ACCESS_ACL).and_then(|(_, list)| Acl::parse(list).ok());
    }
    Ok(subject(row, list))
}

fn subject(row: &InodeRow, acl: Option<Acl>) -> Subject {
    Subject { uid: row.uid, gid: row.gid, permissions: row.permissions, acl }
}

fn is_same(then: &Subject, now: &Subject) -> bool {
    (then.uid, then.gid, then.permissions & 0o777, &then.acl) == (now.uid, now.gid, now.permissions & 0o777, &now.acl)
}

/// The permission bits of then, `row`, that hold with the rights of `now`, for `readers`.
fn narrowed(row: &InodeRow, now: Option<&Subject>, readers: HistoryFor) -> u32 {
    let mut bits = match row.kind {
        Kind::Directory => row.permissions,
        Kind::BlockDevice | Kind::CharDevice => 0,
        _ => row.permissions & !(libc::S_ISUID | libc::S_ISGID),
    };
    if let Some(now) = now {
        bits = held(bits, row, now);
    }
    match readers {
        HistoryFor::All => bits,
        // Others may go through directories to what is theirs.
        HistoryFor::Owner if row.kind == Kind::Directory => bits & !0o066,
        HistoryFor::Owner | HistoryFor::Root => bits & !0o077,
    }
}

/// Those of `bits`, of an inode that was `then`, which its rights `now` have, too.
fn held(bits: u32, then: &InodeRow, now: &Subject) -> u32 {
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
        let is_as_it_was = then.kind != Kind::Directory && allowed & 4 != 0;
        let has = if is_as_it_was { had } else { had & (allowed | 2) };
        left |= has << shift;
    }
    left
}

#[cfg(test)]
mod tests;
