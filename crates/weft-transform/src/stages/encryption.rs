//! encrypt and decrypt: files of age(1), for X25519 keys ([`crate::age`]).
//!
//! What encrypts makes the same of the same: nothing in it is random, but follows from the key and
//! all that is encrypted. So links that encrypt can be read in parts, and their length computed.
//! Who sees two files can tell whether they hold the same; nothing else.

use crate::account::{Account, InMemory};
use crate::age::{AgeError, CHUNK_BYTES, Encrypting, Identity, Opening, Sealing, Secrets, TAG_BYTES, identities};
use crate::arguments::Arguments;
use crate::language::{Call, NetworkError};
use crate::source::Sources;
use crate::stage::{Shape, Stage, StageError};
use crate::temporary::TemporaryFile;
use crate::threaded::{Reader, Threaded, Writer};
use std::io::{BufRead, Read, Seek, Write};

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
        let identities = identities(&name, &sources.key(&name).map_err(StageError::Source)?)?;
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
    let mut deriving = blake3::Hasher::new_derive_key(DERIVED);
    let mut derived = deriving.update(&identity.secret).update(hasher.finalize().as_bytes()).finalize_xof();
    let (mut secrets, mut ephemeral) = (Secrets::default(), [0; 32]);
    for secret in [&mut secrets.file_key[..], &mut ephemeral, &mut secrets.nonce] {
        derived.fill(secret);
    }
    let mut encrypting = Encrypting::with(writer, &secrets, &[(ephemeral, identity.recipient())])?;
    waiting.pieces(|piece| Ok(encrypting.write_all(piece)?))?;
    encrypting.finish()?;
    Ok(())
}

fn decrypted(identities: &[Identity], reader: Reader, writer: &mut Writer) -> Result<(), StageError> {
    let mut opening = Opening::new(reader, identities)?;
    while let Some(chunk) = opening.next()? {
        writer.write_all(&chunk)?;
    }
    Ok(())
}

impl From<AgeError> for StageError {
    fn from(error: AgeError) -> StageError {
        match error {
            AgeError::Read(error) => error.into(),
            error => StageError::data(error.to_string()),
        }
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
    sealing: Sealing,
}

impl Waiting {
    fn new(account: Account) -> Result<Waiting, StageError> {
        let mut key = [0; 32];
        rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty()).map_err(std::io::Error::from)?;
        let kept = account.memory();
        Ok(Waiting { memory: Vec::new(), file: None, account, kept, key, sealing: Sealing::with(&key) })
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

    /// All of them, in pieces.
    fn pieces(mut self, mut give: impl FnMut(&[u8]) -> Result<(), StageError>) -> Result<(), StageError> {
        if let Some(file) = &mut self.file {
            file.rewind()?;
            let mut opening = Sealing::with(&self.key);
            let mut sealed = vec![0; CHUNK_BYTES + TAG_BYTES];
            for _ in 0..self.sealing.number() {
                file.read_exact(&mut sealed)?;
                let chunk = opening.open(&sealed, false);
                give(&chunk.ok_or_else(|| StageError::data("a temporary file is damaged"))?)?;
            }
        }
        give(&self.memory)
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
