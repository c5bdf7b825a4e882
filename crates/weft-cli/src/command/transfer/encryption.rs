//! Streams of `weft send` that are encrypted on their way, as files of age(1).

use crate::failure::usage;
use anyhow::{Context, Result};
use std::io::{self, BufReader, Cursor, Read, Write};
use std::path::PathBuf;
use weft_transform::age::{AgeError, Decrypting, Encrypting, Identity, Recipient, identities, is_encrypted};
use weft_transform::read_key_file;

/// Most bytes of a file's first line by which age's is told from a stream.
const FIRST_LINE_BYTES: u64 = 32;

/// The way on which a stream is written.
pub enum Sending<W> {
    Plain(W),
    Encrypted(Box<Encrypting<W>>),
}

impl<W: Write> Sending<W> {
    /// Encrypts for `recipients`, if there are any.
    pub fn new(out: W, recipients: &[Recipient]) -> io::Result<Sending<W>> {
        if recipients.is_empty() {
            return Ok(Sending::Plain(out));
        }
        Ok(Sending::Encrypted(Box::new(Encrypting::new(out, recipients)?)))
    }

    /// Ends the stream, which is cut off without this.
    pub fn finish(self) -> io::Result<()> {
        match self {
            Sending::Plain(mut out) => out.flush(),
            Sending::Encrypted(out) => out.finish()?.flush(),
        }
    }
}

impl<W: Write> Write for Sending<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Sending::Plain(out) => out.write(bytes),
            Sending::Encrypted(out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Sending::Plain(out) => out.flush(),
            Sending::Encrypted(out) => out.flush(),
        }
    }
}

/// Returns the public keys that `named` names, each as age:RECIPIENT. Refuses what is none, without
/// showing a secret key.
pub fn recipients(named: &[String]) -> Result<Vec<Recipient>> {
    let parsed = |named: &String| match named.strip_prefix("age:").map(str::parse::<Recipient>) {
        Some(Ok(recipient)) => Ok(recipient),
        Some(Err(error)) => usage(format!("invalid value of --encrypt: {error}")),
        None => usage("invalid value of --encrypt: it begins with 'age:', as in age:age1…".into()),
    };
    named.iter().map(parsed).collect()
}

/// Returns the stream that `input` has, decrypted by the keys in `files` if it is encrypted.
/// Refuses keys for one that is not: it is not the one that the caller means.
pub fn receiving<R: Read + 'static>(mut input: R, files: &[PathBuf]) -> Result<Box<dyn Read>> {
    let keys = keys(files)?;
    let mut begins = Vec::new();
    input.by_ref().take(FIRST_LINE_BYTES).read_to_end(&mut begins).context("cannot read the stream")?;
    let is_encrypted = is_encrypted(&begins);
    let input = Cursor::new(begins).chain(input);
    match (is_encrypted, keys.is_empty()) {
        (true, false) => Ok(Box::new(Decrypting::new(BufReader::new(input), &keys)?)),
        (true, true) => {
            usage("the stream is encrypted: name the file of a key that opens it with --identity FILE".into())
        }
        (false, false) => usage("the stream is not encrypted, so --identity has nothing to open".into()),
        (false, true) => Ok(Box::new(input)),
    }
}

fn keys(files: &[PathBuf]) -> Result<Vec<Identity>> {
    let mut keys = Vec::new();
    for file in files {
        let bytes = read_key_file(file).with_context(|| format!("cannot read the key {}", file.display()))?;
        keys.extend(identities(&file.display().to_string(), &bytes)?);
    }
    Ok(keys)
}

/// True if `error` reports that an encrypted stream is damaged or cut off.
pub fn is_damage(error: &anyhow::Error) -> bool {
    let by_age = |error: &AgeError| {
        use AgeError::{CutOff, Damaged, DamagedHeader, MalformedHeader};
        matches!(error, CutOff | Damaged | DamagedHeader | MalformedHeader)
    };
    error.chain().any(|cause| {
        let inner = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let inner = inner.and_then(|inner| inner.downcast_ref::<AgeError>());
        cause.downcast_ref().or(inner).is_some_and(by_age)
    })
}
