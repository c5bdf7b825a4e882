//! Reading a file of age.

use super::AgeError;
use super::header::{self, VERSION};
use super::keys::Identity;
use super::sealing::{CHUNK_BYTES, FILE_KEY_BYTES, NONCE_BYTES, Sealing, TAG_BYTES};
use std::io::{self, BufRead, Read};

/// True if a file that begins so is one of age. `begins` is its first line, or more.
pub fn is_encrypted(begins: &[u8]) -> bool {
    begins.starts_with(VERSION)
}

/// The chunks of a file, decrypted one after the other.
pub(crate) struct Opening<R> {
    reader: R,
    sealing: Sealing,
    chunk: Vec<u8>,
    is_over: bool,
}

impl<R: BufRead> Opening<R> {
    pub(crate) fn new(mut reader: R, identities: &[Identity]) -> Result<Opening<R>, AgeError> {
        let file_key: [u8; FILE_KEY_BYTES] = header::read(&mut reader, identities)?;
        let mut nonce = [0; NONCE_BYTES];
        reader.read_exact(&mut nonce).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => AgeError::CutOff,
            _ => error.into(),
        })?;
        let chunk = Vec::with_capacity(CHUNK_BYTES + TAG_BYTES);
        Ok(Opening { reader, sealing: Sealing::new(&file_key, &nonce), chunk, is_over: false })
    }

    /// The next chunk; none at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<u8>>, AgeError> {
        if self.is_over {
            return Ok(None);
        }
        self.chunk.clear();
        self.reader.by_ref().take((CHUNK_BYTES + TAG_BYTES) as u64).read_to_end(&mut self.chunk)?;
        let is_last = self.reader.fill_buf()?.is_empty();
        let is_first = self.sealing.number() == 0;
        let opened = self.sealing.open(&self.chunk, is_last).ok_or(AgeError::Damaged)?;
        // Only a file that has nothing ends with an empty chunk.
        if opened.is_empty() && !is_first {
            return Err(AgeError::CutOff);
        }
        self.is_over = is_last;
        Ok(Some(opened))
    }
}

/// A reader of what a file of age holds. Each byte that it gives was verified; an error of the file
/// is `InvalidData`, with an [`AgeError`] inside.
pub struct Decrypting<R> {
    opening: Opening<R>,
    /// Bytes that were decrypted, and the number of those that were read.
    decrypted: Vec<u8>,
    read: usize,
}

impl<R: BufRead> Decrypting<R> {
    /// Reads the header of the file that begins here.
    ///
    /// # Errors
    /// [`AgeError`]; [`AgeError::NoKeyOpens`] if none of `identities` may read it.
    pub fn new(reader: R, identities: &[Identity]) -> Result<Decrypting<R>, AgeError> {
        Ok(Decrypting { opening: Opening::new(reader, identities)?, decrypted: Vec::new(), read: 0 })
    }
}

impl<R: BufRead> Read for Decrypting<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.read == self.decrypted.len() {
            self.decrypted = self.opening.next()?.unwrap_or_default();
            self.read = 0;
        }
        let count = (&self.decrypted[self.read..]).read(bytes)?;
        self.read += count;
        Ok(count)
    }
}
