//! File handles, which name files on the wire (RFC 1813 2.3.3).
//!
//! A handle names an inode and the export through which it was found, and carries a keyed hash of
//! both, so that nobody can make one up or use it in another export. The key is the volume's:
//! handles outlive restarts and moves to another machine. In bytes: a version, three zeros, the
//! inode of the export's directory, that of the file, its generation, and 16 bytes of the hash.

use crate::status::Status;
use weft_vfs::{FileId, Ino, Secret};

/// Bytes of a handle.
pub(crate) const HANDLE_BYTES: usize = NAMED_BYTES + 16;
/// Longest handle that anybody has (RFC 1813 2.4, `NFS3_FHSIZE`; NFS 4 has 128).
pub(crate) const HANDLE_BYTES_MAX: usize = 64;
const NAMED_BYTES: usize = 24;
const VERSION: [u8; 4] = [1, 0, 0, 0];

/// Content of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    /// Directory that is exported.
    pub(crate) export: Ino,
    /// File that the handle names.
    pub(crate) file: FileId,
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
    pub(crate) fn seal(&self, handle: &Handle) -> [u8; HANDLE_BYTES] {
        let mut bytes = [0; HANDLE_BYTES];
        bytes[..4].copy_from_slice(&VERSION);
        bytes[4..12].copy_from_slice(&handle.export.0.to_be_bytes());
        bytes[12..20].copy_from_slice(&handle.file.ino.0.to_be_bytes());
        bytes[20..24].copy_from_slice(&handle.file.generation.to_be_bytes());
        let seal = self.hash(&bytes[..NAMED_BYTES]);
        bytes[NAMED_BYTES..].copy_from_slice(&seal);
        bytes
    }

    /// Returns the content of handle `bytes`. `BadHandle` if it was not made here.
    pub(crate) fn open(&self, bytes: &[u8]) -> Result<Handle, Status> {
        let bytes: &[u8; HANDLE_BYTES] = bytes.try_into().map_err(|_| Status::BadHandle)?;
        let (named, seal) = bytes.split_at(NAMED_BYTES);
        let expected = self.hash(named);
        // The time is the same however many bytes are right.
        let differ = expected.iter().zip(seal).fold(0, |differ, (ours, theirs)| differ | (ours ^ theirs));
        if differ != 0 || named[..4] != VERSION {
            return Err(Status::BadHandle);
        }
        let number = |at: usize| u64::from_be_bytes(named[at..at + 8].try_into().expect("eight bytes"));
        let generation = u32::from_be_bytes(named[20..24].try_into().expect("four bytes"));
        Ok(Handle { export: Ino(number(4)), file: FileId { ino: Ino(number(12)), generation } })
    }

    fn hash(&self, named: &[u8]) -> [u8; 16] {
        *blake3::keyed_hash(&self.0, named).as_bytes().first_chunk().expect("a hash has 32 bytes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HANDLE: Handle = Handle { export: Ino(1), file: FileId { ino: Ino(1 << 40), generation: 7 } };

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
            let mut forged = sealed;
            forged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(key.open(&forged), Err(Status::BadHandle), "bit {bit}");
        }
        assert_eq!(key.open(&sealed[1..]), Err(Status::BadHandle));
        assert_eq!(key.open(&[]), Err(Status::BadHandle));
    }
}
