//! The header of a file of age: its key, for each who may read it, and a code that tells whether
//! the header is what it was.

use super::AgeError;
use super::keys::{Identity, Recipient};
use super::sealing::{FILE_KEY_BYTES, TAG_BYTES, derived};
use chacha20poly1305::aead::Aead;
use chacha20poly1305::{ChaCha20Poly1305, Key, KeyInit, Nonce};
use data_encoding::BASE64_NOPAD;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use std::io::{BufRead, Read};
use x25519_dalek::{X25519_BASEPOINT_BYTES, x25519};

/// First line of a file.
pub(super) const VERSION: &[u8] = b"age-encryption.org/v1\n";

/// Prefix of a key for a recipient; and the prefix of the code, which follows the last key.
const STANZA: &[u8] = b"-> ";
const END: &[u8] = b"---";

const WRAPPED: &[u8] = b"age-encryption.org/v1/X25519";

/// Longest line, and longest header.
const LINE_BYTES_MAX: u64 = 4096;
const BYTES_MAX: usize = 1 << 20;

/// The header of a file with this key, for `recipients`, each with an ephemeral secret of its own.
pub(super) fn write(file_key: &[u8; FILE_KEY_BYTES], recipients: &[([u8; 32], Recipient)]) -> Vec<u8> {
    let mut header = VERSION.to_vec();
    for (ephemeral, recipient) in recipients {
        let share = x25519(*ephemeral, X25519_BASEPOINT_BYTES);
        let wrapping = wrapping(&x25519(*ephemeral, recipient.0), &share, recipient);
        let wrapped = wrapping.encrypt(&Nonce::default(), &file_key[..]).expect("short enough");
        header.extend_from_slice(STANZA);
        let body = format!("X25519 {}\n{}\n", BASE64_NOPAD.encode(&share), BASE64_NOPAD.encode(&wrapped));
        header.extend_from_slice(body.as_bytes());
    }
    header.extend_from_slice(END);
    let code = code(file_key, &header).finalize().into_bytes();
    header.extend_from_slice(format!(" {}\n", BASE64_NOPAD.encode(&code)).as_bytes());
    header
}

/// The key of the file that begins here, if one of `identities` may read it.
pub(super) fn read(reader: &mut impl BufRead, identities: &[Identity]) -> Result<[u8; FILE_KEY_BYTES], AgeError> {
    let mut header = Vec::new();
    if line(reader, &mut header)? != VERSION {
        return Err(AgeError::Other);
    }
    let mut file_key = None;
    loop {
        let read = line(reader, &mut header)?;
        if let Some(rest) = read.strip_prefix(END) {
            let found: [u8; FILE_KEY_BYTES] = file_key.ok_or(AgeError::NoKeyOpens)?;
            header.truncate(header.len() - read.len() + END.len());
            let told = rest.strip_prefix(b" ").and_then(|rest| rest.strip_suffix(b"\n"));
            let told = told.and_then(|told| BASE64_NOPAD.decode(told).ok()).ok_or(AgeError::MalformedHeader)?;
            return match code(&found, &header).verify_slice(&told) {
                Ok(()) => Ok(found),
                Err(_) => Err(AgeError::DamagedHeader),
            };
        }
        let stanza =
            read.strip_prefix(STANZA).and_then(|rest| rest.strip_suffix(b"\n")).ok_or(AgeError::MalformedHeader)?;
        let mut body = Vec::new();
        loop {
            // Lines of 64 characters; a shorter one is the last.
            let line = line(reader, &mut header)?;
            let text = line.strip_suffix(b"\n").filter(|text| text.len() <= 64).ok_or(AgeError::MalformedHeader)?;
            body.extend_from_slice(&BASE64_NOPAD.decode(text).map_err(|_| AgeError::MalformedHeader)?);
            if text.len() < 64 {
                break;
            }
        }
        let mut words = stanza.split(|byte| *byte == b' ');
        if words.clone().any(|word| word.is_empty() || !word.iter().all(u8::is_ascii_graphic)) {
            return Err(AgeError::MalformedHeader);
        }
        match words.next() {
            // What a passphrase opens is for nobody else.
            Some(b"scrypt") => return Err(AgeError::Passphrase),
            Some(b"X25519") => {
                let (share, body) = x25519_stanza(words, &body).ok_or(AgeError::MalformedHeader)?;
                for identity in identities {
                    file_key = file_key.or(unwrapped(identity, &share, body).ok_or(AgeError::MalformedHeader)?);
                }
            }
            _ => {}
        }
    }
}

/// The next line, with its end, which is added to `header`.
fn line(reader: &mut impl BufRead, header: &mut Vec<u8>) -> Result<Vec<u8>, AgeError> {
    let mut line = Vec::new();
    reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    header.extend_from_slice(&line);
    if header.len() > BYTES_MAX { Err(AgeError::MalformedHeader) } else { Ok(line) }
}

/// Parses the key for an X25519 recipient: the share, and the encrypted key of the file.
fn x25519_stanza<'a>(
    mut words: impl Iterator<Item = &'a [u8]>,
    body: &[u8],
) -> Option<([u8; 32], &[u8; FILE_KEY_BYTES + TAG_BYTES])> {
    let share = BASE64_NOPAD.decode(words.next()?).ok()?.try_into().ok()?;
    words.next().is_none().then_some((share, body.try_into().ok()?))
}

/// The key of the file, if it is for `identity`. None if the share is of low order, which would
/// make a secret of everybody's.
fn unwrapped(identity: &Identity, share: &[u8; 32], body: &[u8]) -> Option<Option<[u8; FILE_KEY_BYTES]>> {
    let secret = x25519(identity.secret, *share);
    if secret == [0; 32] {
        return None;
    }
    let wrapping = wrapping(&secret, share, &identity.recipient());
    Some(wrapping.decrypt(&Nonce::default(), body).ok().and_then(|key| key.try_into().ok()))
}

fn wrapping(secret: &[u8; 32], share: &[u8; 32], recipient: &Recipient) -> ChaCha20Poly1305 {
    ChaCha20Poly1305::new(&Key::from(derived::<32>(secret, &[&share[..], &recipient.0].concat(), WRAPPED)))
}

/// Returns the code that authenticates `header`.
fn code(file_key: &[u8; FILE_KEY_BYTES], header: &[u8]) -> Hmac<Sha256> {
    let mut code = <Hmac<Sha256> as hmac::KeyInit>::new_from_slice(&derived::<32>(file_key, &[], b"header"))
        .expect("of any length");
    code.update(header);
    code
}
