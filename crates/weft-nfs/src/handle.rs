//! File handles, which name files on the wire (RFC 1813 2.3.3).
//!
//! A handle names an inode and the export through which it was found, and carries a keyed hash of
//! both, so that nobody can make one up or use it in another export. The key is the volume's:
//! handles outlive restarts and moves to another machine. In bytes: a version, three zeros, the
//! inode of the export's directory, that of the file, its generation, and 16 bytes of the hash. A
//! node of the past has another version, and instead of the file's inode the bytes that name it.

use crate::status::Status;
use smallvec::SmallVec;
use weft_vfs::{FileId, Generation, Ino, PAST_NODE_BYTES, PastNode, Secret};

/// Longest handle that anybody has (RFC 1813 2.4, `NFS3_FHSIZE`; NFS 4 has 128).
pub(crate) const HANDLE_BYTES_MAX: usize = 64;
const VERSION: [u8; 4] = [1, 0, 0, 0];
const VERSION_OF_PAST: [u8; 4] = [2, 0, 0, 0];
const HASH_BYTES: usize = 16;

/// The bytes of a handle.
pub(crate) type HandleBytes = SmallVec<[u8; HANDLE_BYTES_MAX]>;

/// Content of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    /// Directory that is exported.
    pub(crate) export: Ino,
    /// File that the handle names.
    pub(crate) file: Named,
}

/// A file as a handle names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// An inode of the volume.
    Present(FileId),
    /// A node of its past.
    Past(PastNode, Generation),
}

/// Key that makes and verifies handles.
pub(crate) struct HandleKey(Secret);

impl HandleKey {
    pub(crate) fn new(secret: Secret) -> HandleKey {
        HandleKey(secret)
    }

    /// Returns a number that distinguishes the export of directory `export` from others and from
    /// those of other volumes (`fsid`).
    pub(crate) fn fsid(&self, export: Ino) -> u64 {
        let hash = blake3::keyed_hash(&self.0, &export.0.to_be_bytes());
        u64::from_be_bytes(*hash.as_bytes().first_chunk().expect("a hash has 32 bytes"))
    }

    /// Returns the bytes of `handle`.
    pub(crate) fn seal(&self, handle: &Handle) -> HandleBytes {
        let mut bytes = HandleBytes::new();
        let export = handle.export.0.to_be_bytes();
        match &handle.file {
            Named::Present(FileId { ino, generation }) => {
                let parts: [&[u8]; 4] = [&VERSION, &export, &ino.0.to_be_bytes(), &generation.to_be_bytes()];
                parts.into_iter().for_each(|part| bytes.extend_from_slice(part));
            }
            Named::Past(node, generation) => {
                let parts: [&[u8]; 4] = [&VERSION_OF_PAST, &export, &node.to_bytes(), &generation.to_be_bytes()];
                parts.into_iter().for_each(|part| bytes.extend_from_slice(part));
            }
        }
        let seal = self.hash(&bytes);
        bytes.extend_from_slice(&seal);
        bytes
    }

    /// Returns the content of handle `bytes`. `BadHandle` if it was not made here.
    pub(crate) fn open(&self, bytes: &[u8]) -> Result<Handle, Status> {
        let end = bytes.len().checked_sub(HASH_BYTES).ok_or(Status::BadHandle)?;
        let (named, seal) = bytes.split_at(end);
        let expected = self.hash(named);
        // The time is the same however many bytes are right.
        let differ = expected.iter().zip(seal).fold(0, |differ, (ours, theirs)| differ | (ours ^ theirs));
        if differ != 0 {
            return Err(Status::BadHandle);
        }
        parse(named).ok_or(Status::BadHandle)
    }

    fn hash(&self, named: &[u8]) -> [u8; HASH_BYTES] {
        *blake3::keyed_hash(&self.0, named).as_bytes().first_chunk().expect("a hash has 32 bytes")
    }
}

/// The content of a handle of which these bytes are left without their hash.
fn parse(named: &[u8]) -> Option<Handle> {
    let (version, rest) = named.split_first_chunk::<4>()?;
    let (export, rest) = rest.split_first_chunk()?;
    let (file, generation) = rest.split_last_chunk()?;
    let generation = u32::from_be_bytes(*generation);
    let file = match *version {
        VERSION => Named::Present(FileId { ino: Ino(u64::from_be_bytes(file.try_into().ok()?)), generation }),
        VERSION_OF_PAST => {
            let node: &[u8; PAST_NODE_BYTES] = file.try_into().ok()?;
            Named::Past(PastNode::from_bytes(node)?, generation)
        }
        _ => return None,
    };
    Some(Handle { export: Ino(u64::from_be_bytes(*export)), file })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_vfs::{CommitNo, PastInode};

    const HANDLE: Handle = Handle { export: Ino(1), file: Named::Present(FileId { ino: Ino(1 << 40), generation: 7 }) };

    #[test]
    fn a_handle_of_the_past_opens_to_what_was_sealed() {
        let key = HandleKey::new([1; 32]);
        let node = PastNode::Inode(PastInode { commit: CommitNo(9), top: Ino(1), ino: Ino(1 << 40) });
        let handle = Handle { export: Ino(1), file: Named::Past(node, 7) };
        let sealed = key.seal(&handle);
        assert!(sealed.len() <= HANDLE_BYTES_MAX && !sealed.spilled());
        assert_eq!(key.open(&sealed), Ok(handle));
    }

    #[test]
    fn a_handle_opens_to_what_was_sealed_and_with_that_key_alone() {
        let key = HandleKey::new([1; 32]);
        let sealed = key.seal(&HANDLE);
        assert_eq!(key.open(&sealed), Ok(HANDLE));
        assert_eq!(HandleKey::new([2; 32]).open(&sealed), Err(Status::BadHandle));
    }

    #[test]
    fn a_handle_with_any_bit_changed_or_of_another_length_is_bad() {
        let key = HandleKey::new([1; 32]);
        let sealed = key.seal(&HANDLE);
        for bit in 0..sealed.len() * 8 {
            let mut forged = sealed.clone();
            forged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(key.open(&forged), Err(Status::BadHandle), "bit {bit}");
        }
        assert_eq!(key.open(&sealed[1..]), Err(Status::BadHandle));
        assert_eq!(key.open(&[]), Err(Status::BadHandle));
    }
}
