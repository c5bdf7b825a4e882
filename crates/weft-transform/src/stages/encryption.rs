//! encrypt and decrypt: files of age(1), version 1, for X25519 keys (the specification of age, C2SP
//! age.md).
//!
//! What encrypts makes the same of the same: nothing in it is random, but follows from the key and
//! all that is encrypted. So links that encrypt can be read in parts, and their length computed.
//! Who sees two files can tell whether they hold the same; nothing else.

mod header;
mod keys;

use crate::account::{Account, InMemory};
use crate::arguments::Arguments;
use crate::language::{Call, NetworkError};
use crate::source::Sources;
use crate::stage::{Shape, Stage, StageError};
use crate::temporary::TemporaryFile;
use crate::threaded::{Reader, Threaded, Writer};
use chacha20poly1305::aead::Aead;
use chacha20poly1305::{ChaCha20Poly1305, Key, KeyInit, Nonce};
use header::{FILE_KEY_BYTES, NONCE_BYTES};
use hkdf::Hkdf;
use keys::Identity;
use sha2::Sha256;
use std::io::{BufRead, Read, Seek, Write};

/// Bytes that are encrypted together, and how many more they are then.
const CHUNK_BYTES: usize = 64 << 10;
const TAG_BYTES: usize = 16;

/// Bytes that wait in memory until all that is encrypted is known; more go through a temporary
/// file.
const WAITING_BYTES: usize = 16 << 20;
/// The same if the network keeps much elsewhere.
const WAITING_LEAST: usize = 1 << 20;

/// Context from which the keys of encrypted data are derived (BLAKE3, key derivation).
const DERIVED: &str = "Weft 2026-11-22 encrypt: file key, ephemeral secret, nonce";

fn stage(
    call: &Call,
    inverse: &str,
    gives: fn(Shape) -> Shape,
    work: fn(&[Identity], Reader, &mut Writer) -> Result<(), StageError>,
) -> Result<Stage, NetworkError> {
    let mut arguments = Arguments::read(call, "", "")?;
    let word = arguments.operand("the name of a key")?;
    arguments.end()?;
    let name = word.text.clone();
    if name.is_empty() || name.starts_with('.') || name.contains(['/', '\0']) || name.contains(char::is_whitespace) {
        return Err(NetworkError::new(format!("'{name}' is no name of a key"), word.at));
    }
    let inverse = Some(format!("{inverse} '{}'", name.replace('\'', "'\\''")));
    let key = name.clone();
    let start = move |sources: &mut dyn Sources| {
        let identities = keys::read(&name, &sources.key(&name).map_err(StageError::Source)?)?;
        Ok(Threaded::new(move |reader, writer| work(&identities, reader, writer)))
    };
    Ok(Stage { inverse, gives, keys: vec![key], ..Stage::reading(start) })
}

pub(crate) fn encrypt(call: &Call) -> Result<Stage, NetworkError> {
    stage(call, "decrypt", |_| Shape::Binary, encrypted)
}

pub(crate) fn decrypt(call: &Call) -> Result<Stage, NetworkError> {
    stage(call, "encrypt", |_| Shape::Unknown, decrypted)
}

fn encrypted(identities: &[Identity], mut reader: Reader, writer: &mut Writer) -> Result<(), StageError> {
    let identity = &identities[0];
    let mut waiting = Waiting::new(Account::now())?;
    let mut hasher = blake3::Hasher::new();
    loop {
        let bytes = reader.fill_buf()?;
        if bytes.is_empty() {
            break;
        }
        hasher.update(bytes);
        waiting.push(bytes)?;
        let count = bytes.len();
        reader.consume(count);
    }
    let mut derived = [0; FILE_KEY_BYTES + 32 + NONCE_BYTES];
    let mut deriving = blake3::Hasher::new_derive_key(DERIVED);
    deriving.update(&identity.secret).update(hasher.finalize().as_bytes()).finalize_xof().fill(&mut derived);
    let (file_key, rest) = derived.split_first_chunk().expect("there are more");
    let (ephemeral, rest) = rest.split_first_chunk().expect("there are more");
    let nonce: &[u8; NONCE_BYTES] = rest.try_into().expect("as many");
    writer.write_all(&header::write(file_key, *ephemeral, &identity.recipient()))?;
    writer.write_all(nonce)?;
    let mut stream = Stream::new(file_key, nonce);
    waiting.pieces(|piece, is_last| Ok(writer.write_all(&stream.seal(piece, is_last))?))
}

fn decrypted(identities: &[Identity], mut reader: Reader, writer: &mut Writer) -> Result<(), StageError> {
    let file_key = header::read(&mut reader, identities)?;
    let mut nonce = [0; NONCE_BYTES];
    reader.read_exact(&mut nonce).map_err(|_| cut_off())?;
    let mut stream = Stream::new(&file_key, &nonce);
    let mut chunk = Vec::new();
    for number in 0u64.. {
        chunk.clear();
        (&mut reader).take((CHUNK_BYTES + TAG_BYTES) as u64).read_to_end(&mut chunk)?;
        let is_last = reader.fill_buf()?.is_empty();
        let opened = stream.open(&chunk, is_last).ok_or_else(|| {
            StageError::data("the encrypted data is damaged or cut off: a part of it is not what was encrypted")
        })?;
        // Only a file that has nothing ends with an empty part.
        if opened.is_empty() && number > 0 {
            return Err(cut_off());
        }
        writer.write_all(&opened)?;
        if is_last {
            return Ok(());
        }
    }
    Ok(())
}

fn cut_off() -> StageError {
    StageError::data("the encrypted data is cut off")
}

/// Key material of `N` bytes that follows from `secret`.
fn derived<const N: usize>(secret: &[u8], salt: &[u8], what: &[u8]) -> [u8; N] {
    let mut key = [0; N];
    Hkdf::<Sha256>::new(Some(salt), secret).expand(what, &mut key).expect("short enough");
    key
}

/// Chunks one after the other, each with its number, the last one marked.
struct Stream {
    cipher: ChaCha20Poly1305,
    number: u64,
}

impl Stream {
    fn new(file_key: &[u8; FILE_KEY_BYTES], nonce: &[u8; NONCE_BYTES]) -> Stream {
        Stream::with(&derived(file_key, nonce, b"payload"))
    }

    fn with(key: &[u8; 32]) -> Stream {
        Stream { cipher: ChaCha20Poly1305::new(&Key::from(*key)), number: 0 }
    }

    fn nonce(&mut self, is_last: bool) -> Nonce {
        let mut nonce = [0; 12];
        nonce[3..11].copy_from_slice(&self.number.to_be_bytes());
        nonce[11] = u8::from(is_last);
        self.number += 1;
        Nonce::from(nonce)
    }

    fn seal(&mut self, chunk: &[u8], is_last: bool) -> Vec<u8> {
        let nonce = self.nonce(is_last);
        self.cipher.encrypt(&nonce, chunk).expect("short enough")
    }

    /// None if it is not what was sealed.
    fn open(&mut self, chunk: &[u8], is_last: bool) -> Option<Vec<u8>> {
        let nonce = self.nonce(is_last);
        self.cipher.decrypt(&nonce, chunk).ok()
    }
}

/// Bytes that wait to be encrypted. What lies in a temporary file is encrypted there, by a key that
/// nobody keeps.
struct Waiting {
    memory: Vec<u8>,
    file: Option<TemporaryFile>,
    account: Account,
    kept: InMemory,
    key: [u8; 32],
    sealing: Stream,
}

impl Waiting {
    fn new(account: Account) -> Result<Waiting, StageError> {
        let mut key = [0; 32];
        rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty()).map_err(std::io::Error::from)?;
        let kept = account.memory();
        Ok(Waiting { memory: Vec::new(), file: None, account, kept, key, sealing: Stream::with(&key) })
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), StageError> {
        self.memory.extend_from_slice(bytes);
        let is_much = self.memory.len() >= WAITING_LEAST && !self.kept.set(self.memory.len());
        if self.memory.len() < WAITING_BYTES && !is_much {
            return Ok(());
        }
        if self.file.is_none() {
            self.file = Some(TemporaryFile::new(&self.account)?);
        }
        let whole = self.memory.len() / CHUNK_BYTES * CHUNK_BYTES;
        for chunk in self.memory[..whole].chunks(CHUNK_BYTES) {
            let sealed = self.sealing.seal(chunk, false);
            self.file.as_mut().expect("it was made").write_all(&sealed)?;
        }
        self.memory.drain(..whole);
        self.memory.shrink_to(WAITING_LEAST);
        self.kept.set(self.memory.len());
        Ok(())
    }

    /// All of them, in chunks; there is one, even if it is empty. Tells which one is the last.
    fn pieces(mut self, mut give: impl FnMut(&[u8], bool) -> Result<(), StageError>) -> Result<(), StageError> {
        if let Some(file) = &mut self.file {
            file.rewind()?;
            let mut opening = Stream::with(&self.key);
            let mut sealed = vec![0; CHUNK_BYTES + TAG_BYTES];
            for number in 0..self.sealing.number {
                file.read_exact(&mut sealed)?;
                let chunk = opening.open(&sealed, false);
                let chunk = chunk.ok_or_else(|| StageError::data("a temporary file is damaged"))?;
                give(&chunk, self.memory.is_empty() && number + 1 == self.sealing.number)?;
            }
        }
        let chunks = self.memory.len().div_ceil(CHUNK_BYTES);
        for (chunk, number) in self.memory.chunks(CHUNK_BYTES).zip(1..) {
            give(chunk, number == chunks)?;
        }
        if self.memory.is_empty() && self.file.is_none() { give(&[], true) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Network;
    use crate::run::Run;
    use crate::source::Source;
    use proptest::prelude::*;
    use std::io;
    use weft_block::Slice;

    /// A key that age-keygen made.
    const KEY: &str = "AGE-SECRET-KEY-1RHD3LRLTW223Z0JPJ0T02WPZ8GG87QN8XH80RM74AEDYXV3HSSLQFY6XK0";

    struct Given(Vec<u8>);

    impl Source for Given {
        fn next(&mut self) -> io::Result<Option<Slice>> {
            let bytes = std::mem::take(&mut self.0);
            Ok((!bytes.is_empty()).then(|| Slice::from(bytes)))
        }
    }

    impl Sources for Given {
        fn input(&mut self) -> io::Result<Box<dyn Source>> {
            Ok(Box::new(Given(self.0.clone())))
        }

        fn file(&mut self, _: usize) -> io::Result<Box<dyn Source>> {
            Err(io::ErrorKind::NotFound.into())
        }

        fn key(&mut self, name: &str) -> io::Result<Vec<u8>> {
            match name {
                "one" => Ok(format!("# a comment\n\n{KEY}\n").into_bytes()),
                "none" => Ok(b"# nothing\n".to_vec()),
                _ => Err(io::ErrorKind::NotFound.into()),
            }
        }
    }

    fn run(network: &str, bytes: &[u8]) -> Result<Vec<u8>, String> {
        let network = Network::parse(network).map_err(|error| error.to_string())?;
        let mut made = Vec::new();
        for rope in Run::start(&network, &mut Given(bytes.to_vec())).map_err(|error| error.to_string())? {
            made.extend(rope.map_err(|error| error.to_string())?.to_vec());
        }
        Ok(made)
    }

    #[test]
    fn what_is_encrypted_comes_back_and_is_always_the_same() {
        for len in [0, 1, 65_535, 65_536, 65_537, 131_072, WAITING_BYTES, WAITING_BYTES + 5, 2 * WAITING_BYTES] {
            let bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            let encrypted = run("encrypt one", &bytes).unwrap();
            assert!(encrypted.starts_with(b"age-encryption.org/v1\n-> X25519 "));
            assert!(run("encrypt one", &bytes).unwrap() == encrypted);
            assert!(run("decrypt one", &encrypted).unwrap() == bytes, "{len}");
        }
    }

    #[test]
    fn keys_are_named_and_must_be_there() {
        let error = |text| run(text, b"text").unwrap_err();
        assert_eq!(error("encrypt"), "encrypt needs the name of a key, at byte 7");
        assert_eq!(error("encrypt ../x"), "'../x' is no name of a key, at byte 8");
        assert!(error("encrypt other").contains("cannot read"));
        assert!(error("encrypt none").contains("'none' holds no key"));
        assert!(error("decrypt one").contains("begins otherwise"));
        let network = Network::parse("gzip | encrypt one").unwrap();
        assert!(network.has_keys());
        assert_eq!(network.inverse().unwrap().stages()[0].text, "decrypt 'one'");
        assert!(Network::parse("encrypt one | sort").is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn damage_is_found_wherever_it_is(bytes: Vec<u8>, at: prop::sample::Index, bit in 0..8u8, cut: bool) {
            let mut encrypted = run("encrypt one", &bytes).unwrap();
            let at = at.index(encrypted.len());
            if cut { encrypted.truncate(at) } else { encrypted[at] ^= 1 << bit }
            prop_assert!(run("decrypt one", &encrypted).is_err());
        }

        #[test]
        fn no_bytes_are_taken_for_encrypted_ones(bytes: Vec<u8>) {
            let begins = [&b"age-encryption.org/v1\n-> X25519 "[..], &bytes].concat();
            prop_assert!(run("decrypt one", &bytes).is_err() && run("decrypt one", &begins).is_err());
        }
    }
}
