//! Files of age(1), version 1, for X25519 keys (the specification of age, C2SP age.md).
//!
//! A file is a header, which has its key for each who may read it, and its content in chunks of
//! 64 KiB, each encrypted and authenticated with its number; the last one is marked. So what is
//! damaged, cut off or out of place is found at the chunk, before any byte of it is given.
//! Knows nothing of stages and of volumes.

mod header;
mod keys;
mod reading;
mod sealing;
mod writing;

pub use keys::{Identity, Recipient, identities};
pub(crate) use reading::Opening;
pub use reading::{Decrypting, is_encrypted};
pub(crate) use sealing::{CHUNK_BYTES, Sealing, TAG_BYTES};
pub use writing::Encrypting;
pub(crate) use writing::Secrets;

use std::io;

/// Reason why a file of age, or a key for one, cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum AgeError {
    /// It begins as no file of age does.
    #[error("this was not encrypted by age: it begins otherwise")]
    Other,
    /// A passphrase opens it, and nothing else.
    #[error("this was encrypted by a passphrase, which is no key")]
    Passphrase,
    /// None of the keys opens it.
    #[error("this was encrypted for others: none of the keys opens it")]
    NoKeyOpens,
    /// Its header breaks the format.
    #[error("the header of the encrypted data is malformed, or cut off")]
    MalformedHeader,
    /// Its header is not what was written.
    #[error("the header of the encrypted data is damaged")]
    DamagedHeader,
    /// A chunk is not what was encrypted.
    #[error("the encrypted data is damaged or cut off: a part of it is not what was encrypted")]
    Damaged,
    /// It ends too soon.
    #[error("the encrypted data is cut off")]
    CutOff,
    /// A file of keys has a line that is none.
    #[error("line {line} of '{name}' is no secret key of age")]
    NoSecretKey {
        /// Name of the file.
        name: String,
        /// Number of the line, from 1.
        line: usize,
    },
    /// A file of keys has none.
    #[error("'{0}' holds no key")]
    NoKeys(String),
    /// A recipient is none.
    #[error("'{0}' is no public key of age, which begins with 'age1'")]
    NoRecipient(String),
    /// The encrypted data cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
}

impl From<AgeError> for io::Error {
    fn from(error: AgeError) -> io::Error {
        match error {
            AgeError::Read(error) => error,
            error => io::Error::new(io::ErrorKind::InvalidData, error),
        }
    }
}
