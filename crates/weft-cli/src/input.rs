//! Input of programs and networks: files in shared memory, if a daemon grants it, and any other
//! input by reading.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::{self, Read, stdin};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use weft_block::{Buffer, Slice};
use weft_client::File;
use weft_transform::Source;

/// Name of the standard input.
pub const STANDARD_INPUT: &str = "-";

/// Most bytes given at once: as many as stay in a processor's own cache.
pub const PIECE_BYTES: usize = 256 << 10;

/// Bytes of shared memory taken at once.
const LENT_BYTES: usize = 8 << 20;

/// A file, or the standard input, from its beginning to its end.
pub enum Input {
    /// A file.
    File {
        /// The file.
        file: File,
        /// Offset up to which it was read.
        at: u64,
        /// Data that was read and not given yet.
        waiting: VecDeque<Slice>,
    },
    /// An input without positions.
    Stream(Box<dyn Read + Send>),
}

impl Input {
    /// Opens the file named `name`, or the standard input.
    pub fn open(name: &OsStr) -> io::Result<Input> {
        if name == STANDARD_INPUT {
            return Ok(Input::Stream(Box::new(stdin())));
        }
        let file = std::fs::File::open(Path::new(name))?;
        let shared = File::of(file);
        Ok(match shared.is_shared() {
            true => Input::File { file: shared, at: 0, waiting: VecDeque::new() },
            false => Input::Stream(Box::new(shared.into_inner())),
        })
    }

    /// Returns the file, if its bytes are in shared memory.
    pub fn lent(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Input::File { file, .. } => Some(file.as_fd()),
            Input::Stream(_) => None,
        }
    }

    /// Gives all that is left to `take`, piece by piece.
    pub fn each(mut self, mut take: impl FnMut(&[u8])) -> io::Result<()> {
        while let Some(piece) = self.next()? {
            take(&piece);
        }
        Ok(())
    }

    fn read(&mut self) -> io::Result<Option<Slice>> {
        let Input::File { file, at, waiting } = self else { return self.read_stream() };
        if waiting.is_empty() {
            let rope = file.read(*at, LENT_BYTES)?;
            *at += rope.len() as u64;
            waiting.extend(rope.slices().iter().cloned());
        }
        let Some(first) = waiting.front_mut() else { return Ok(None) };
        if first.len() <= PIECE_BYTES {
            return Ok(waiting.pop_front());
        }
        let piece = first.slice(0..PIECE_BYTES);
        *first = first.slice(PIECE_BYTES..first.len());
        Ok(Some(piece))
    }

    fn read_stream(&mut self) -> io::Result<Option<Slice>> {
        let Input::Stream(stream) = self else { return Ok(None) };
        let mut buffer = Buffer::any(PIECE_BYTES);
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => return Ok(None),
                Ok(len) => {
                    // The kernel copied them.
                    weft_block::copied(len);
                    buffer.resize(len);
                    return Ok(Some(buffer.freeze().whole()));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Source for Input {
    fn next(&mut self) -> io::Result<Option<Slice>> {
        self.read()
    }
}

/// Files that are read one after the other.
pub struct Inputs {
    left: VecDeque<PathBuf>,
    open: Option<(PathBuf, Input)>,
}

impl Inputs {
    /// Returns `files`, of which `-` is the standard input; or that, if there are none.
    pub fn of(files: impl Iterator<Item = PathBuf>) -> Inputs {
        let mut left: VecDeque<PathBuf> = files.collect();
        if left.is_empty() {
            left.push_back(PathBuf::from(STANDARD_INPUT));
        }
        Inputs { left, open: None }
    }
}

impl Source for Inputs {
    fn next(&mut self) -> io::Result<Option<Slice>> {
        let about = |path: &Path, error: io::Error| {
            io::Error::new(error.kind(), format!("cannot read {}: {error}", path.display()))
        };
        loop {
            if let Some((path, input)) = &mut self.open {
                match input.next().map_err(|error| about(path, error))? {
                    None => self.open = None,
                    piece => return Ok(piece),
                }
            }
            let Some(path) = self.left.pop_front() else { return Ok(None) };
            let input = Input::open(path.as_os_str()).map_err(|error| about(&path, error))?;
            self.open = Some((path, input));
        }
    }
}
