//! Digests from scratch: those that a store keeps must be the same.

use std::collections::{BTreeMap, BTreeSet};
use weft_digest::{Content, Digest, Entry, FileHasher, Kind, device, digest, directory, hex};
use weft_store::{CommitNo, Cookie, Ino, InodeRow, ReadMode, Store};

/// The first digest that `store` keeps and that is wrong, if any; what the last commit says of the
/// root included.
pub fn check_digests(store: &dyn Store) -> Result<(), String> {
    let mut scratch = Scratch { store, found: BTreeMap::new(), above: BTreeSet::new() };
    let root = scratch.of(Ino::ROOT)?;
    for (ino, expected) in &scratch.found {
        let kept = store.digest(*ino).map_err(|error| error.to_string())?;
        if kept != Some(*expected) {
            return Err(format!("inode {}: kept {}, should be {}", ino.0, show(kept), show(Some(*expected))));
        }
    }
    commits(store, root)
}

fn commits(store: &dyn Store, root: Digest) -> Result<(), String> {
    let commits = store.commits(CommitNo(0), usize::MAX).map_err(|error| error.to_string())?;
    let last = commits.last().ok_or("no commit is remembered")?;
    if last.root != Some(root) {
        return Err(format!("commit {}: root {}, should be {}", last.number.0, show(last.root), show(Some(root))));
    }
    for pair in commits.windows(2) {
        if pair[1].previous != pair[0].digest() {
            return Err(format!("commit {} does not name the one before it", pair[1].number.0));
        }
    }
    Ok(())
}

fn show(digest: Option<Digest>) -> String {
    digest.map_or("nothing".into(), |digest| hex(&digest))
}

struct Scratch<'a> {
    store: &'a dyn Store,
    found: BTreeMap<Ino, Digest>,
    above: BTreeSet<Ino>,
}

impl Scratch<'_> {
    fn row(&self, ino: Ino) -> Result<InodeRow, String> {
        let rows = self.store.inodes(ino, 1).map_err(|error| error.to_string())?;
        rows.into_iter().find(|row| row.ino == ino).ok_or(format!("inode {} is not there", ino.0))
    }

    fn of(&mut self, ino: Ino) -> Result<Digest, String> {
        if let Some(known) = self.found.get(&ino) {
            return Ok(*known);
        }
        let row = self.row(ino)?;
        let inline = row.inline.as_deref().unwrap_or_default();
        let found = match row.kind {
            Kind::Directory => self.directory(ino)?,
            Kind::File => self.file(&row)?,
            Kind::CharDevice | Kind::BlockDevice => {
                device(rustix::fs::major(u64::from(row.rdev)), rustix::fs::minor(u64::from(row.rdev)))
            }
            _ => digest(inline),
        };
        self.found.insert(ino, found);
        Ok(found)
    }

    fn directory(&mut self, ino: Ino) -> Result<Digest, String> {
        if !self.above.insert(ino) {
            return Err(format!("directory {} lies in itself", ino.0));
        }
        let names = self.store.names(ino, Cookie(0), usize::MAX).map_err(|error| error.to_string())?;
        let mut listed = Vec::new();
        for name in &names {
            let permissions = u16::try_from(self.row(name.ino)?.permissions).expect("12 bits");
            listed.push((name.name.as_bytes(), name.kind, permissions, self.of(name.ino)?));
        }
        self.above.remove(&ino);
        let entry = |(name, kind, permissions, digest)| Entry { name, kind, permissions, digest };
        Ok(directory(listed.into_iter().map(entry)))
    }

    fn file(&self, row: &InodeRow) -> Result<Digest, String> {
        let mut hasher = FileHasher::new(Content::IfListed);
        let mut at = 0;
        let mut take = |position: u64, bytes: &[u8]| {
            hasher.zeros(position - at);
            let bytes = &bytes[..bytes.len().min(usize::try_from(row.size - position).expect("short"))];
            hasher.update(bytes);
            at = position + bytes.len() as u64;
        };
        if let Some(inline) = &row.inline {
            take(0, inline);
        }
        for (span, block) in self.store.extents(row.ino, 0..u64::MAX).map_err(|error| error.to_string())? {
            let bytes = self.store.read_block(&block, ReadMode::Blocking).map_err(|error| error.to_string())?;
            take(span.start, &bytes.ok_or("a wait for ever ended")?);
        }
        hasher.zeros(row.size - at);
        Ok(hasher.finish().listed)
    }
}
