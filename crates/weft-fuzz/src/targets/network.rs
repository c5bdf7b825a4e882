//! Any text as a network, and if it is one, run on some bytes: the text up to the first NUL, then
//! the bytes.
use crate::bytes_given;
use std::io;
use weft_transform::{Network, Reading, Source, Sources};

/// The same bytes for whoever asks.
struct Given<'a>(&'a [u8]);

impl Sources for Given<'_> {
    fn input(&mut self) -> io::Result<Box<dyn Source>> {
        Ok(Box::new(Reading(io::Cursor::new(self.0.to_vec()))))
    }

    fn file(&mut self, _: usize) -> io::Result<Box<dyn Source>> {
        self.input()
    }
}

/// Takes any bytes as what this is about.
pub fn run(bytes: &[u8]) {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let Ok(text) = std::str::from_utf8(&bytes[..end]) else { return };
    let Ok(network) = Network::parse(text) else { return };
    if network.is_exported() {
        // Commands of anybody's are not to be run.
        return;
    }
    let mut given = Given(bytes.get(end + 1..).unwrap_or_default());
    bytes_given(&network, &mut given);
}
