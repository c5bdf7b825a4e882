//! Keys, as age-keygen(1) writes them: a secret one a line, comments begin with `#`; and the public
//! ones that go with them.

use super::AgeError;
use bech32::Bech32;
use bech32::primitives::decode::CheckedHrpstring;
use std::str::FromStr;
use x25519_dalek::{X25519_BASEPOINT_BYTES, x25519};

/// Prefixes of keys in text (Bech32, BIP 173).
const SECRET: &str = "age-secret-key-";
const PUBLIC: &str = "age";

/// A secret key.
pub struct Identity {
    pub(crate) secret: [u8; 32],
}

impl Identity {
    /// The public key that goes with it.
    pub fn recipient(&self) -> Recipient {
        Recipient(x25519(self.secret, X25519_BASEPOINT_BYTES))
    }
}

/// A public key: whoever has the secret one that goes with it may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recipient(pub(super) [u8; 32]);

impl FromStr for Recipient {
    type Err = AgeError;

    /// Parses `age1…`. [`AgeError::NoRecipient`]. A secret key is not shown in the error.
    fn from_str(text: &str) -> Result<Recipient, AgeError> {
        // One of low order would make a secret of everybody's.
        let is_weak = |key: &[u8; 32]| x25519([1; 32], *key) == [0; 32];
        key(text, PUBLIC).filter(|key| !is_weak(key)).map(Recipient).ok_or_else(|| {
            let is_secret = text.get(..SECRET.len()).is_some_and(|begins| begins.eq_ignore_ascii_case(SECRET));
            AgeError::NoRecipient(if is_secret { "a secret key".into() } else { text.into() })
        })
    }
}

/// Returns the key that `text` is, if it has this prefix.
fn key(text: &str, prefix: &str) -> Option<[u8; 32]> {
    let parsed = CheckedHrpstring::new::<Bech32>(text).ok()?;
    let bytes: Vec<u8> = parsed.byte_iter().collect();
    bytes.try_into().ok().filter(|_| parsed.hrp().as_str().eq_ignore_ascii_case(prefix))
}

/// Reads the secret keys in `bytes` of file `name`; there is one, at least.
///
/// # Errors
/// [`AgeError::NoSecretKey`], [`AgeError::NoKeys`].
pub fn identities(name: &str, bytes: &[u8]) -> Result<Vec<Identity>, AgeError> {
    let wrong = |line: usize| AgeError::NoSecretKey { name: name.into(), line };
    let text = std::str::from_utf8(bytes).map_err(|_| wrong(1))?;
    let mut identities = Vec::new();
    for (line, number) in text.lines().map(str::trim).zip(1..) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        identities.push(Identity { secret: key(line, SECRET).ok_or_else(|| wrong(number))? });
    }
    if identities.is_empty() { Err(AgeError::NoKeys(name.into())) } else { Ok(identities) }
}
