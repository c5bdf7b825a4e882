//! Names of directory entries: bytes, never text.

use smallvec::SmallVec;
use std::fmt;

/// Longest name in bytes (POSIX `NAME_MAX` on Linux).
pub const NAME_BYTES_MAX: usize = 255;

/// The name of a directory entry: 1 to 255 bytes, any but `/` and NUL, and neither `.` nor `..`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(SmallVec<[u8; BYTES_INLINE]>);

/// Names up to this length, which most have, need no memory of their own: nothing to allocate,
/// nothing to follow.
const BYTES_INLINE: usize = 24;

/// Reasons that some bytes are not a [`Name`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    /// No bytes, or `.` or `..`.
    #[error("a name cannot be empty, '.' or '..'")]
    Reserved,
    /// More than [`NAME_BYTES_MAX`] bytes.
    #[error("a name cannot be longer than 255 bytes")]
    TooLong,
    /// A `/` or a NUL.
    #[error("a name cannot hold '/' or NUL")]
    BadByte,
}

impl Name {
    /// Checks `bytes` and copies them.
    pub fn new(bytes: &[u8]) -> Result<Name, InvalidName> {
        match bytes {
            b"" | b"." | b".." => Err(InvalidName::Reserved),
            _ if bytes.len() > NAME_BYTES_MAX => Err(InvalidName::TooLong),
            _ if bytes.iter().any(|&byte| byte == b'/' || byte == 0) => Err(InvalidName::BadByte),
            _ => Ok(Name(SmallVec::from_slice(bytes))),
        }
    }

    /// Checks the name of an extended attribute, which may hold `/` (xattr(7)).
    pub fn of_xattr(bytes: &[u8]) -> Result<Name, InvalidName> {
        match bytes {
            b"" => Err(InvalidName::Reserved),
            _ if bytes.len() > NAME_BYTES_MAX => Err(InvalidName::TooLong),
            _ if bytes.contains(&0) => Err(InvalidName::BadByte),
            _ => Ok(Name(SmallVec::from_slice(bytes))),
        }
    }

    /// The bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl std::borrow::Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_byte_but_slash_and_nul_makes_a_name() {
        let all: Vec<u8> = (1..=255).filter(|&byte| byte != b'/').collect();
        assert_eq!(Name::new(&all).map(|name| name.as_bytes().to_vec()), Ok(all));
        assert_eq!(Name::new(b"a/b"), Err(InvalidName::BadByte));
        assert_eq!(Name::new(b"a\0"), Err(InvalidName::BadByte));
        assert_eq!(Name::new(b".."), Err(InvalidName::Reserved));
        assert_eq!(Name::new(&[b'x'; 256]), Err(InvalidName::TooLong));
    }
}
