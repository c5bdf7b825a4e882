//! Chunks of content, encrypted and authenticated one after the other.

use chacha20poly1305::aead::Aead;
use chacha20poly1305::{ChaCha20Poly1305, Key, KeyInit, Nonce};
use hkdf::Hkdf;
use sha2::Sha256;

/// Bytes that are encrypted together, and how many more they are then.
pub(crate) const CHUNK_BYTES: usize = 64 << 10;
pub(crate) const TAG_BYTES: usize = 16;

pub(crate) const FILE_KEY_BYTES: usize = 16;
pub(crate) const NONCE_BYTES: usize = 16;

/// Key material of `N` bytes that follows from `secret`.
pub(super) fn derived<const N: usize>(secret: &[u8], salt: &[u8], what: &[u8]) -> [u8; N] {
    let mut key = [0; N];
    Hkdf::<Sha256>::new(Some(salt), secret).expand(what, &mut key).expect("short enough");
    key
}

/// Chunks one after the other, each with its number, the last one marked.
pub(crate) struct Sealing {
    cipher: ChaCha20Poly1305,
    number: u64,
}

impl Sealing {
    pub(super) fn new(file_key: &[u8; FILE_KEY_BYTES], nonce: &[u8; NONCE_BYTES]) -> Sealing {
        Sealing::with(&derived(file_key, nonce, b"payload"))
    }

    /// By a key that is used for nothing else.
    pub(crate) fn with(key: &[u8; 32]) -> Sealing {
        Sealing { cipher: ChaCha20Poly1305::new(&Key::from(*key)), number: 0 }
    }

    /// How many chunks went through.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    fn nonce(&mut self, is_last: bool) -> Nonce {
        let mut nonce = [0; 12];
        nonce[3..11].copy_from_slice(&self.number.to_be_bytes());
        nonce[11] = u8::from(is_last);
        self.number += 1;
        Nonce::from(nonce)
    }

    pub(crate) fn seal(&mut self, chunk: &[u8], is_last: bool) -> Vec<u8> {
        let nonce = self.nonce(is_last);
        self.cipher.encrypt(&nonce, chunk).expect("short enough")
    }

    /// None if it is not what was sealed.
    pub(crate) fn open(&mut self, chunk: &[u8], is_last: bool) -> Option<Vec<u8>> {
        let nonce = self.nonce(is_last);
        self.cipher.decrypt(&nonce, chunk).ok()
    }
}
