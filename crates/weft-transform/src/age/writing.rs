//! Writing a file of age.

use super::header;
use super::keys::Recipient;
use super::sealing::{CHUNK_BYTES, FILE_KEY_BYTES, NONCE_BYTES, Sealing};
use rustix::rand::{GetRandomFlags, getrandom};
use std::io::{self, Write};

/// The secrets that a file is encrypted by. No two files that differ may have the same.
#[derive(Default)]
pub(crate) struct Secrets {
    pub(crate) file_key: [u8; FILE_KEY_BYTES],
    pub(crate) nonce: [u8; NONCE_BYTES],
}

/// A writer that encrypts for `recipients` what is written, and writes it to another.
/// [`Encrypting::finish`] ends the file; without it the file is cut off, and readers notice.
pub struct Encrypting<W> {
    writer: W,
    sealing: Sealing,
    /// What is not encrypted yet, a chunk at most.
    waiting: Vec<u8>,
}

impl<W: Write> Encrypting<W> {
    /// Begins a file, by random secrets.
    ///
    /// # Errors
    /// Those of the writer, and of the source of random numbers.
    pub fn new(writer: W, recipients: &[Recipient]) -> io::Result<Encrypting<W>> {
        let secrets = Secrets { file_key: random()?, nonce: random()? };
        let recipients = recipients.iter().map(|to| Ok((random()?, *to))).collect::<io::Result<Vec<_>>>()?;
        Encrypting::with(writer, &secrets, &recipients)
    }

    /// Begins a file by `secrets`; each recipient has an ephemeral secret of its own.
    pub(crate) fn with(
        mut writer: W,
        secrets: &Secrets,
        recipients: &[([u8; 32], Recipient)],
    ) -> io::Result<Encrypting<W>> {
        writer.write_all(&header::write(&secrets.file_key, recipients))?;
        writer.write_all(&secrets.nonce)?;
        let sealing = Sealing::new(&secrets.file_key, &secrets.nonce);
        Ok(Encrypting { writer, sealing, waiting: Vec::with_capacity(CHUNK_BYTES) })
    }

    /// Ends the file, and gives the writer back. Does not flush it.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn finish(mut self) -> io::Result<W> {
        self.seal(true)?;
        Ok(self.writer)
    }

    fn seal(&mut self, is_last: bool) -> io::Result<()> {
        let sealed = self.sealing.seal(&self.waiting, is_last);
        self.waiting.clear();
        self.writer.write_all(&sealed)
    }
}

impl<W: Write> Write for Encrypting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A full chunk waits for more: it may be the last one.
        if self.waiting.len() == CHUNK_BYTES && !bytes.is_empty() {
            self.seal(false)?;
        }
        let count = bytes.len().min(CHUNK_BYTES - self.waiting.len());
        self.waiting.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    /// Flushes what is encrypted; less than a chunk waits for more.
    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    // At most 256 bytes come at once or not at all (getrandom(2)).
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(bytes)
}
