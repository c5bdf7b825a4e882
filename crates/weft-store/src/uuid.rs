//! Ids of volumes.

use crate::error::{Error, Result};

/// Random bytes that no other volume has.
pub(crate) fn new() -> Result<[u8; 16]> {
    let mut bytes = [0; 16];
    let failed = |source| Error::Io { what: "cannot take random bytes from", path: "the system".into(), source };
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(filled) if filled == bytes.len() => Ok(bytes),
        Ok(_) => Err(failed(std::io::Error::other("too few"))),
        Err(error) => Err(failed(error.into())),
    }
}
