//! Keys, as age-keygen(1) writes them: a line for each, comments begin with `#`.

use crate::stage::StageError;
use bech32::Bech32;
use bech32::primitives::decode::CheckedHrpstring;
use x25519_dalek::{X25519_BASEPOINT_BYTES, x25519};

/// Prefix of a key in text (Bech32, BIP 173).
const PREFIX: &str = "age-secret-key-";

/// A secret key.
pub(super) struct Identity {
    pub(super) secret: [u8; 32],
}

impl Identity {
    /// The public key that goes with it.
    pub(super) fn recipient(&self) -> [u8; 32] {
        x25519(self.secret, X25519_BASEPOINT_BYTES)
    }
}

/// The keys in file `name`; there is one, at least.
pub(super) fn read(name: &str, bytes: &[u8]) -> Result<Vec<Identity>, StageError> {
    let wrong = |line: usize| StageError::data(format!("line {line} of '{name}' is no secret key of age"));
    let text = std::str::from_utf8(bytes).map_err(|_| wrong(1))?;
    let mut identities = Vec::new();
    for (line, number) in text.lines().map(str::trim).zip(1..) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let parsed = CheckedHrpstring::new::<Bech32>(line).map_err(|_| wrong(number))?;
        if !parsed.hrp().as_str().eq_ignore_ascii_case(PREFIX) {
            return Err(wrong(number));
        }
        let secret: Vec<u8> = parsed.byte_iter().collect();
        identities.push(Identity { secret: secret.try_into().map_err(|_| wrong(number))? });
    }
    if identities.is_empty() { Err(StageError::data(format!("'{name}' holds no key"))) } else { Ok(identities) }
}
