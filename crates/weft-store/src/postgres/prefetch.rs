//! The rows that the digests of a commit will need, fetched together: a commit costs a few round
//! trips however much it changes.
//!
//! Nothing depends on this being complete: a missing row is read when it is needed, one by one.

use super::connection::Call;
use super::digests::Stored;
use super::read::int;
use super::statements as sql;
use crate::Name;
use crate::batch::{Batch, NameChange};
use crate::digests::{LEAVES_MAX, after};
use crate::error::Result;
use crate::overlay::Snapshot;
use crate::row::Ino;
use rustc_hash::FxHashSet;
use std::collections::{BTreeMap, BTreeSet};
use weft_digest::Kind;

/// Names whose entries change, by directory.
type Changed = BTreeMap<Ino, BTreeSet<Name>>;

/// Longer than any name, and after it.
const PAST_ALL_NAMES: [u8; 256] = [u8::MAX; 256];

/// Inodes asked for in one statement: their rows are in memory together.
const INODES_MAX: usize = 4096;

/// Fetches the rows that `batch` needs into `rows`, of a volume
/// with blocks of `block_size` bytes.
pub(super) fn prefetch(rows: &Stored<'_>, batch: &Batch, block_size: u64) -> Result<()> {
    let removed = batch.removed().filter(|ino| rows.may_have(*ino)).collect::<Vec<_>>();
    rows.learn_leaving(&removed, block_size)?;
    let removed = removed.into_iter().collect::<FxHashSet<_>>();
    let mut changed = Changed::new();
    let mut inos = BTreeSet::new();
    for change in &batch.names {
        let (parent, name) = match change {
            NameChange::Put(row) => {
                inos.insert(row.ino);
                (row.parent, &row.name)
            }
            NameChange::Remove { parent, name } => (*parent, name),
        };
        // Of what is removed itself nobody asks what is in it.
        if !removed.contains(&parent) {
            inos.insert(parent);
            changed.entry(parent).or_default().insert(name.clone());
        }
    }
    inos.extend(batch.put_inodes().map(|row| row.ino));
    inodes(rows, inos, &mut changed)?;
    let all = changed.iter().flat_map(|(parent, names)| names.iter().map(|name| (*parent, name.as_bytes())));
    entries(rows, all.filter(|(parent, _)| rows.may_have(*parent)).collect())
}

/// Fetches inodes, their names, and all directories above them.
fn inodes(rows: &Stored<'_>, mut inos: BTreeSet<Ino>, changed: &mut Changed) -> Result<()> {
    let mut seen = BTreeSet::new();
    while !inos.is_empty() {
        rows.learn_inodes(inos.iter().copied())?;
        let mut above = BTreeSet::new();
        for ino in inos {
            seen.insert(ino);
            if !rows.may_have(ino) {
                continue;
            }
            if let Some(inode) = rows.inode(ino)?
                && inode.kind == Kind::Directory
            {
                above.insert(inode.parent);
            }
            for (parent, name) in rows.names_of(ino)? {
                above.insert(parent);
                changed.entry(parent).or_default().insert(name);
            }
        }
        inos = above.into_iter().filter(|ino| !seen.contains(ino)).collect();
    }
    Ok(())
}

/// Fetches the branches on the way to each name, a level at a time, then the entries where there
/// are no more branches.
fn entries(rows: &Stored<'_>, names: Vec<(Ino, &[u8])>) -> Result<()> {
    let mut open = names;
    let mut buckets = BTreeSet::new();
    for len in 0.. {
        if open.is_empty() {
            break;
        }
        let prefixes = open.iter().map(|(parent, name)| (*parent, name[..len].to_vec())).collect::<BTreeSet<_>>();
        rows.learn_branches(&prefixes)?;
        let mut deeper = Vec::new();
        for (parent, name) in open {
            let prefix = &name[..len];
            if rows.branch(parent, prefix)?.is_none() {
                buckets.insert((parent, prefix.to_vec()));
            } else if name.len() > len {
                deeper.push((parent, name));
            }
        }
        open = deeper;
    }
    rows.learn_entries(buckets)
}

impl Stored<'_> {
    /// Fetches those inodes, with their names, that are not known.
    fn learn_inodes(&self, inos: impl Iterator<Item = Ino>) -> Result<()> {
        let unknown = inos.filter(|ino| self.may_have(*ino) && !self.knows_inode(*ino)).map(|ino| int(ino.0));
        let unknown = unknown.collect::<Vec<_>>();
        if unknown.is_empty() {
            return Ok(());
        }
        self.begin_inodes(unknown.iter().map(|ino| Ino(ino.unsigned_abs())));
        let both = [sql::DIGEST_INODES, sql::NAMES_OF];
        let of = |inos: &[i64]| both.map(|statement| Call::new(statement, vec![Box::new(inos.to_vec())]));
        let calls = unknown.chunks(INODES_MAX).flat_map(of).collect::<Vec<_>>();
        self.take_all(&calls, |place, found| match place % both.len() {
            0 => self.take_inodes(&found),
            _ => self.take_names(&found),
        })
    }

    /// Fetches those of `removed` for which more than a digest may be kept: few, as most are small
    /// files.
    fn learn_leaving(&self, removed: &[Ino], block_size: u64) -> Result<()> {
        let of = |inos: &[Ino]| {
            let inos = inos.iter().map(|ino| int(ino.0)).collect::<Vec<_>>();
            Call::new(sql::LEAVING, vec![Box::new(inos), Box::new(int(block_size))])
        };
        self.take_leaving(&[])?;
        let calls = removed.chunks(INODES_MAX).map(of).collect::<Vec<_>>();
        self.take_all(&calls, |_, found| self.take_leaving(&found))
    }

    fn learn_branches(&self, prefixes: &BTreeSet<(Ino, Vec<u8>)>) -> Result<()> {
        let unknown = prefixes.iter().filter(|key| !self.knows_branch(key)).collect::<Vec<_>>();
        let call = |(parent, prefix): &&(Ino, Vec<u8>)| {
            Call::new(sql::BRANCH, vec![Box::new(int(parent.0)), Box::new(prefix.clone())])
        };
        let calls = unknown.iter().map(call).collect::<Vec<_>>();
        self.take_all(&calls, |place, found| self.take_branch(unknown[place], &found))
    }

    fn learn_entries(&self, buckets: BTreeSet<(Ino, Vec<u8>)>) -> Result<()> {
        // More than any bucket holds: what is longer is read again when it is needed.
        let limit = 4 * LEAVES_MAX as i64;
        let call = |(parent, prefix): &(Ino, Vec<u8>)| {
            let end = after(prefix).unwrap_or_else(|| PAST_ALL_NAMES.to_vec());
            Call::new(
                sql::ENTRIES,
                vec![Box::new(int(parent.0)), Box::new(prefix.clone()), Box::new(end), Box::new(limit)],
            )
        };
        let calls = buckets.iter().map(call).collect::<Vec<_>>();
        let mut keys = buckets.into_iter();
        self.take_all(&calls, |_, found| {
            let whole = keys.next().filter(|_| (found.len() as i64) < limit);
            whole.map_or(Ok(()), |key| self.take_entries(key, &found))
        })
    }
}
