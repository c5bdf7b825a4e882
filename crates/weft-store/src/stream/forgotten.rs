//! Files whose content was taken out of history: nobody could make the tree that had them, or tell
//! what changed it, so none is sent.

use super::changes::named;
use super::record::Part;
use super::send::{INODES_TOGETHER, NAMES_TOGETHER, Selection, plan};
use crate::error::{Error, Result};
use crate::past::At;
use crate::row::{Cookie, Ino, InodeRow};
use crate::store::{Header, Store};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use weft_digest::Kind;

/// Refuses to send what `selection` says of the volume in `store`, before anything is sent, if a
/// file of it has no content in history any more.
///
/// # Errors
/// `Unusable` if there is such a file, or if a commit is not there.
pub fn refuse_forgotten(store: &Arc<dyn Store>, selection: &Selection) -> Result<()> {
    let header = store.header()?;
    if store.history()?.is_none() {
        return Ok(());
    }
    plan(&**store, &header, selection)?.iter().try_for_each(|part| refuse_part(store, &header, part))
}

/// Refuses a part that has such a file.
fn refuse_part(store: &Arc<dyn Store>, header: &Header, part: &Part) -> Result<()> {
    if part.to.root.is_none() || part.from.is_none() && part.to.number == header.commit {
        return Ok(());
    }
    refuse_files_of(store, part).map_err(|error| match (error, &part.snapshots[..]) {
        (Error::Unusable(why), [snapshot, ..]) => {
            let name = snapshot.name.escape_ascii();
            Error::Unusable(format!("{why}; that is the snapshot '{name}': delete it, or send without --snapshots"))
        }
        (error, _) => error,
    })
}

/// The same of what is sent of files.
fn refuse_files_of(store: &Arc<dyn Store>, part: &Part) -> Result<()> {
    let to = At::new(store.clone(), part.to.number)?;
    let Some(from) = part.from else { return refuse_any(&to) };
    let before = At::new(store.clone(), from.number)?;
    for ino in store.changed_inodes((from.number, part.to.number))? {
        for then in [&before, &to] {
            named(then, ino)?.map_or(Ok(()), |row| refuse(then, &row))?;
        }
    }
    Ok(())
}

/// Refuses a tree that has such a file.
fn refuse_any(then: &dyn Store) -> Result<()> {
    let mut from = Ino::ROOT;
    loop {
        let rows = then.inodes(from, INODES_TOGETHER)?;
        let Some(last) = rows.last() else { return Ok(()) };
        from = last.ino.next();
        rows.iter().filter(|row| row.nlink > 0).try_for_each(|row| refuse(then, row))?;
    }
}

/// Refuses a file of which `then`, which keeps digests, has no content any more.
pub(super) fn refuse(then: &dyn Store, row: &InodeRow) -> Result<()> {
    // An empty file has a digest.
    if row.kind != Kind::File || row.size > 0 || then.digest(row.ino)?.is_some() {
        return Ok(());
    }
    let path = path_then(then, row.ino)?;
    Err(Error::Unusable(format!(
        "the content of {} as of commit {} was taken out of history ('weft history forget' or 'exclude'): send a later \
         commit, and changes from a later one",
        path.escape_ascii(),
        then.header()?.commit.0
    )))
}

/// A path of `ino` as of the commit that `then` shows. The names that an inode has lost are found
/// in directories alone, so this reads the tree.
fn path_then(then: &dyn Store, ino: Ino) -> Result<Vec<u8>> {
    let (mut from, mut parents) = (Ino::ROOT, FxHashMap::default());
    loop {
        let rows = then.inodes(from, INODES_TOGETHER)?;
        let Some(last) = rows.last() else { break };
        from = last.ino.next();
        for directory in rows.iter().filter(|row| row.kind == Kind::Directory) {
            let mut after = Cookie(0);
            loop {
                let names = then.names(directory.ino, after, NAMES_TOGETHER)?;
                let Some(last) = names.last() else { break };
                after = last.cookie;
                let kept = names.into_iter().filter(|name| name.kind == Kind::Directory || name.ino == ino);
                parents.extend(kept.map(|name| (name.ino, (name.parent, name.name))));
            }
        }
    }
    crate::path_to(ino, |ino| Ok(parents.get(&ino).cloned().into_iter().collect()))
}
