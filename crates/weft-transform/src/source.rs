//! Sources of a network's bytes.

use crate::account::Bounds;
use crate::flow::filled;
use std::io::{self, Read};
use weft_block::{Buffer, Slice};

/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;

/// Source of a network's bytes.
pub trait Source: Send {
    /// The next bytes; none at the end.
    fn next(&mut self) -> io::Result<Option<Slice>>;
    /// Tells that the next bytes are waited for no longer than a file takes to read. Where somebody
    /// sends them when they like, what was made of others is passed on before.
    fn is_at_hand(&self) -> bool {
        false
    }
}

/// Opener of a network's sources. Each may be opened several times, and is read from its beginning
/// each time.
pub trait Sources {
    /// Opens the input that the network reads if it names no file. It is none of
    /// [`crate::Network::modules`].
    fn input(&mut self) -> io::Result<Box<dyn Source>>;
    /// A file, counted from 0.
    fn file(&mut self, number: usize) -> io::Result<Box<dyn Source>>;
    /// Returns the identity of the content of such a file, if that is known without reading it. It
    /// differs from that of earlier content and of other files.
    fn stamp(&mut self, _number: usize) -> io::Result<Option<[u8; 32]>> {
        Ok(None)
    }
    /// The user whose network it is, if that is not who runs this process.
    fn owner(&self) -> Option<u32> {
        None
    }
    /// Bounds on what the network keeps, unless it is part of another one; none: a person runs it.
    fn bounds(&self) -> Option<Bounds> {
        None
    }
    /// Returns the content of the file that holds the key called so, which is a name and no path.
    fn key(&mut self, name: &str) -> io::Result<Vec<u8>> {
        Err(io::Error::new(io::ErrorKind::NotFound, format!("there is no key '{name}': there are none here")))
    }
}

/// Reads from anything.
pub struct Reading<R>(pub R);

impl<R: Read + Send> Source for Reading<R> {
    fn next(&mut self) -> io::Result<Option<Slice>> {
        let mut buffer = Buffer::any(READ_BYTES);
        loop {
            match self.0.read(&mut buffer) {
                Ok(0) => return Ok(None),
                Ok(len) => return Ok(Some(filled(buffer, len))),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Sources whose input is opened by `input`, and all else by `files`.
pub struct WithInput<'a, F> {
    /// Opens the input.
    pub input: F,
    /// Opens the files that the network names, and says whose it is.
    pub files: &'a mut dyn Sources,
}

impl<F: FnMut() -> io::Result<Box<dyn Source>>> Sources for WithInput<'_, F> {
    fn input(&mut self) -> io::Result<Box<dyn Source>> {
        (self.input)()
    }

    fn file(&mut self, number: usize) -> io::Result<Box<dyn Source>> {
        self.files.file(number)
    }

    fn stamp(&mut self, number: usize) -> io::Result<Option<[u8; 32]>> {
        self.files.stamp(number)
    }

    fn owner(&self) -> Option<u32> {
        self.files.owner()
    }

    fn bounds(&self) -> Option<Bounds> {
        self.files.bounds()
    }

    fn key(&mut self, name: &str) -> io::Result<Vec<u8>> {
        self.files.key(name)
    }
}

/// No files: for networks that name none.
pub struct NoFiles;

impl Sources for NoFiles {
    fn input(&mut self) -> io::Result<Box<dyn Source>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn file(&mut self, _: usize) -> io::Result<Box<dyn Source>> {
        Err(io::ErrorKind::NotFound.into())
    }
}
