//! Digests of what is there now.

use crate::blocking::Wait;
use crate::volume::Vfs;
use weft_digest::{Content, Digest, FileHasher};
use weft_store::{Cookie, Ino, Kind, ListedRow, NAME_BYTES_MAX};
use weft_tree::{Changed, ErrorKind, Result};

/// Entries listed at once: as many as fit into an attribute, whatever their names.
const LISTED: usize = (64 << 10) / (ENTRY_BYTES + NAME_BYTES_MAX);

/// Bytes of a link that are hashed at once.
const READ_BYTES: usize = 1 << 20;

/// Bytes of an entry in [`encode`] beside its name.
const ENTRY_BYTES: usize = 8 + 1 + 2 + 32 + 1;

/// An entry as [`decode`] finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedEntry {
    /// Its position.
    pub cookie: Cookie,
    /// Kind of what it names.
    pub kind: Kind,
    /// The lower 12 bits of `st_mode` of what it names.
    pub permissions: u16,
    /// Digest under which the directory lists it.
    pub digest: Digest,
    /// Its name.
    pub name: Vec<u8>,
}

/// Entries as bytes, one after another: position (8 bytes, little endian), letter of the kind,
/// permissions (2 bytes), digest, length of the name (1 byte), name. Those without a digest are
/// left out.
pub(super) fn encode(entries: &[ListedRow]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for ListedRow { name, permissions, digest } in entries {
        let Some(digest) = digest else { continue };
        bytes.extend(name.cookie.0.to_le_bytes());
        bytes.push(name.kind.letter());
        bytes.extend((*permissions as u16 & 0o7777).to_le_bytes());
        bytes.extend(digest);
        bytes.push(u8::try_from(name.name.as_bytes().len()).expect("a name has 255 bytes at most"));
        bytes.extend(name.name.as_bytes());
    }
    bytes
}

/// Decodes the value of the attribute [`weft_attributes::Attribute::DigestEntries`]. None if no
/// volume gives such a value.
pub fn decode(mut bytes: &[u8]) -> Option<Vec<ListedEntry>> {
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        let (entry, rest) = bytes.split_first_chunk::<ENTRY_BYTES>()?;
        let (cookie, entry) = entry.split_first_chunk::<8>()?;
        let (letter, entry) = entry.split_first()?;
        let (permissions, entry) = entry.split_first_chunk::<2>()?;
        let (digest, len) = entry.split_first_chunk::<32>()?;
        let (name, rest) = rest.split_at_checked(usize::from(len[0]))?;
        bytes = rest;
        entries.push(ListedEntry {
            cookie: Cookie(u64::from_le_bytes(*cookie)),
            kind: Kind::from_letter(*letter)?,
            permissions: u16::from_le_bytes(*permissions),
            digest: *digest,
            name: name.to_vec(),
        });
    }
    Some(entries)
}

impl Vfs {
    /// BLAKE3 of the content of a file, or the digest of a directory, as a reader would find them
    /// now (docs/reference/digest.md). What changed is committed first, for digests follow from
    /// commits. None of what is neither, if the volume keeps no digests, or if the file is damaged
    /// or has so many zeros that hashing them takes long. `AccessDenied` to those who may not read
    /// all of it, `Stale`, and as [`Vfs::commit`]. `WouldBlock`.
    pub fn digest(&self, ino: Ino) -> Result<Option<Digest>> {
        let kind = self.committed(ino)?;
        if let Some(kind @ (Kind::File | Kind::Directory)) = kind {
            self.permit_digest(ino, kind)?;
        }
        Ok(match kind {
            Some(Kind::File) => self.store.content_digest(ino)?,
            Some(Kind::Directory) => self.store.digest(ino)?,
            Some(Kind::Transformation) => self.digest_of_link(ino)?,
            _ => None,
        })
    }

    /// BLAKE3 of what a link gives.
    fn digest_of_link(&self, ino: Ino) -> Result<Option<Digest>> {
        let mut hasher = FileHasher::new(Content::Always);
        let mut at = 0;
        loop {
            let rope = self.read(ino, at, READ_BYTES)?;
            if rope.is_empty() {
                return Ok(hasher.finish().content);
            }
            rope.slices().iter().for_each(|slice| hasher.update(slice));
            at += rope.len() as u64;
        }
    }

    /// BLAKE3 of the content of file `ino` as the last commit left it, whoever asks. None if the
    /// volume keeps no digests, or as of [`Vfs::digest`].
    pub fn committed_digest(&self, ino: Ino) -> Result<Option<Digest>> {
        Ok(self.store.content_digest(ino)?)
    }

    /// True if the stored content of a file is not what its digest says, though all its rows are
    /// whole: then one of them is of another moment, or damaged. False where that is not known.
    pub fn contradicts_digest(&self, ino: Ino) -> Result<bool> {
        if self.committed(ino)? != Some(Kind::File) {
            return Ok(false);
        }
        let row = self.run(|state| Ok(state.tree.inode(ino)?.row.clone()))?;
        Ok(weft_store::contradicts_digest(&*self.store, &row)?)
    }

    /// True if the content of `ino`, as of the earlier commit that this volume is opened as of, was
    /// taken out of history: it looks empty. False where the volume keeps no digests, which tell.
    pub fn has_forgotten(&self, ino: Ino) -> Result<bool> {
        let is_empty = self.committed(ino)? == Some(Kind::File) && self.attributes(ino)?.size == 0;
        // An empty file has a digest, too.
        Ok(is_empty && self.store.digest(ino)?.is_none() && self.store.digest(Ino::ROOT)?.is_some())
    }

    /// Returns the digest under which a directory lists `ino`; otherwise as [`Vfs::digest`].
    pub fn listed_digest(&self, ino: Ino) -> Result<Option<Digest>> {
        Ok(match self.committed(ino)? {
            Some(kind) => {
                self.permit_digest(ino, kind)?;
                self.store.digest(ino)?
            }
            None => None,
        })
    }

    /// The entries of directory `ino` after position `after`, some of them, as a reader would find
    /// them now, with what its digest says of them. `None` as of [`Vfs::digest`], and where the
    /// digest of one of them is not known. `AccessDenied` to those who may not list and search the
    /// directory, or to whom one of them may not be told.
    pub fn listed_entries(&self, ino: Ino, after: Cookie) -> Result<Option<Vec<ListedRow>>> {
        if self.committed(ino)? != Some(Kind::Directory) {
            return Ok(None);
        }
        // Kinds, permissions, and where symbolic links lead are told to those who may search it.
        if !self.run(|state| state.asker_may_read(ino))? {
            return Err(ErrorKind::AccessDenied.into());
        }
        if self.store.digest(ino)?.is_none() {
            return Ok(None);
        }
        let listed = self.store.listed(ino, after, LISTED)?;
        self.permit_digests(&mut listed.iter().map(|row| (row.name.ino, row.name.kind)).collect())?;
        Ok(listed.iter().all(|row| row.digest.is_some()).then_some(listed))
    }

    /// Has what concerns the digest of `ino` committed; tells its kind. None if that cannot be.
    fn committed(&self, ino: Ino) -> Result<Option<Kind>> {
        let (kind, is_committed) = self.run(|state| {
            let inode = state.tree.inode(ino)?;
            let (kind, is_clean) = (inode.row.kind, inode.changed == Changed::CLEAN);
            // Anything may lie under a directory; of others nothing but themselves counts.
            Ok((kind, if kind == Kind::Directory { state.tree.dirty_bytes == 0 } else { is_clean }))
        })?;
        if !is_committed {
            if self.options.read_only {
                // What the intent log holds is not in the store, and will not be.
                return Ok(None);
            }
            self.may_wait(Wait::Commit)?;
            self.commit()?;
        }
        self.may_wait(Wait::Read)?;
        Ok(Some(kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weft_store::{Name, NameRow};

    proptest! {
        #[test]
        fn entries_come_back_and_nothing_else_is_read_as_such(
            names in prop::collection::vec(prop::collection::vec(1u8..b'/', 1..255), 0..LISTED),
            digest: [u8; 32],
            cut: prop::sample::Index,
        ) {
            let rows = names.iter().enumerate().filter_map(|(at, bytes)| {
                let (name, cookie) = (Name::new(bytes).ok()?, Cookie(at as u64 + 3));
                let name = NameRow { parent: Ino::ROOT, name, ino: Ino(9), kind: Kind::Symlink, cookie };
                Some(ListedRow { name, permissions: 0o4755, digest: Some(digest) })
            });
            let rows = rows.collect::<Vec<_>>();
            let bytes = encode(&rows);
            prop_assert!(bytes.len() <= 64 << 10);
            let read = decode(&bytes).expect("readable");
            prop_assert_eq!(read.len(), rows.len());
            for (entry, row) in read.iter().zip(&rows) {
                prop_assert_eq!((&entry.name[..], entry.cookie), (row.name.name.as_bytes(), row.name.cookie));
                prop_assert_eq!((entry.kind, entry.permissions, entry.digest), (Kind::Symlink, 0o4755, digest));
            }
            // Cut anywhere, it is fewer entries, or none.
            let cut = cut.index(bytes.len() + 1);
            prop_assert!(decode(&bytes[..cut]).is_none_or(|some| read.starts_with(&some)));
        }
    }
}
